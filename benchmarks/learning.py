"""What learning must reach: every figure with its bar, for the solvers, the online learner, full MNIST and banking77.

`python benchmarks/learning.py [solvers] [online] [never-worse] [mnist]` runs the parts named, or all. A figure is
printed as soon as it is known; benchmarks/results/learning.json keeps a section for each part. Data: docs/data.md.

Everywhere: MAP and P@10 in expectation over ties; a query is in the collection and in its own ranking, as in the
paper. MNIST is split at random into halves, to learn from and to search in, with a tenth of each test class as queries.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np
import scipy
import sklearn
from scipy.optimize import minimize
from threadpoolctl import threadpool_info, threadpool_limits

import bitrank
from bitrank import ITQ, OnlineRankingSVM, QueryAdaptiveRanker, RankingSVM
from bitrank.codes import distances, pack
from bitrank.datasets import banking77, digits, mnist
from bitrank.metrics import average_precision, precision_at
from bitrank.ranking.objective import Constraints, Objective, best_scale
from bitrank.ranking.quadruplets import draw_quadruplets
from bitrank.ranking.solvers import Solution, egd, exact, pgd

RESULTS = Path(__file__).parent / "results" / "learning.json"


class Figure(NamedTuple):
    """A measured value, and the least or the most that it has to be."""

    value: float
    least: float = -np.inf
    most: float = np.inf

    @property
    def bar(self) -> str:
        """The bar in words; nothing where there is none."""
        return f"≥ {self.least:.4g}" if self.least > -np.inf else f"≤ {self.most:.4g}" if self.most < np.inf else ""

    @property
    def met(self) -> bool:
        """Whether the value is beyond its bar."""
        return bool(self.least <= self.value <= self.most)

    def __str__(self) -> str:
        return f"{self.value:.4g}" + (f" ({self.bar} {'met' if self.met else 'MISSED'})" if self.bar else "")


class Report:
    """Rows of figures of one part, printed as they come."""

    def __init__(self, part: str) -> None:
        self.part, self.start, self.load = part, time.perf_counter(), os.getloadavg()[0]
        self.rows: dict[str, dict[str, Figure]] = {}
        print(f"\n== {part}", flush=True)

    def add(self, name: str, **figures: Figure | float) -> None:
        """Print and keep a row."""
        row = {key: value if isinstance(value, Figure) else Figure(float(value)) for key, value in figures.items()}
        self.rows[name] = row
        print(f"{name}: " + ", ".join(f"{key} {figure}" for key, figure in row.items()), flush=True)

    def section(self) -> dict[str, Any]:
        """All rows for the JSON, with where and when they were measured."""
        cpu = [line.split(":")[1] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
        packages = (bitrank, np, scipy, sklearn)
        return {
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "machine": {
                "system": f"{platform.system()} {platform.machine()}",
                "cpu": cpu[0].strip() if cpu else platform.processor(),
                "cores": os.cpu_count(),
                "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
                "blas": sorted(
                    {f"{pool['internal_api']}, {pool['num_threads']} threads" for pool in threadpool_info()}
                ),
                "load_at_start": self.load,
            },
            "versions": {"python": platform.python_version(), **{each.__name__: each.__version__ for each in packages}},
            "seconds": time.perf_counter() - self.start,
            "rows": {
                name: {
                    key: {"value": f.value, "bar": f.bar, "met": f.met} if f.bar else f.value for key, f in row.items()
                }
                for name, row in self.rows.items()
            },
        }


def timed(function: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    result = function(*arguments, **named)
    return time.perf_counter() - start, result


class Data:
    """Coded rows to learn from, and coded rows to search in, some of which are the queries."""

    def __init__(self, hasher: Any, X: np.ndarray, y: np.ndarray, test_X: np.ndarray, test_y: np.ndarray) -> None:
        self.values, self.y, test_values = hasher.fit(X).project(X), y, hasher.project(test_X)
        self.codes, self.test_codes, self.test_y = pack(self.values > 0), pack(test_values > 0), test_y
        # A tenth of each class, or everything where that is little.
        of_class = [np.flatnonzero(test_y == label) for label in np.unique(test_y)]
        share = 1 if len(test_y) < 4000 else 10
        self.queries = np.sort(np.concatenate([rows[: len(rows) // share] for rows in of_class]))
        self.query_codes, self.query_values = self.test_codes[self.queries], test_values[self.queries]

    def evaluate(self, weights: np.ndarray | None = None, query_codes: np.ndarray | None = None) -> dict[str, float]:
        """MAP and P@10 by weights a query; by None, Hamming's. Other codes may stand in for the queries'."""
        parts, searched = [], self.query_codes if query_codes is None else query_codes
        for part in np.array_split(np.arange(len(self.queries)), max(1, len(self.queries) // 250)):
            found = distances(searched[part], self.test_codes, None if weights is None else weights[part])
            relevant = self.test_y[self.queries[part]][:, None] == self.test_y
            parts.append([average_precision(found, relevant), precision_at(found, relevant, 10)])
        ap, p10 = np.concatenate(parts, axis=1)
        return {"map": float(ap.mean()), "p10": float(p10.mean())}


def make_hasher(method: str, n_bits: int, seed: int) -> Any:
    made = getattr(bitrank, method)(n_bits)
    return made.set_params(random_state=seed) if "random_state" in made.get_params() else made


def mnist_halves(hasher: Any, seed: int, quick: bool, new_classes: bool = False) -> Data:
    """Halves of MNIST; with new classes, digits 0-4 of the one and 5-9 of the other."""
    images, y = digits() if quick else mnist()
    X = images.reshape(len(images), -1).astype(np.float32) / np.float32(255)
    train, test = np.array_split(np.random.default_rng(seed).permutation(len(y)), 2)
    if new_classes:
        train, test = train[y[train] < 5], test[y[test] >= 5]
    return Data(hasher, X[train], y[train], X[test], y[test])


def banking_parts(new_classes: bool) -> Data:
    """Training and test sentences; with new classes, labels below 40 of the ones and from 40 of the others."""
    X, y, _ = banking77()
    train, test = np.split(np.arange(len(y)), [10_003])
    if new_classes:
        train, test = train[y[train] < 40], test[y[test] >= 40]
    return Data(bitrank.SignBits(), X[train], y[train], X[test], y[test])


# --- solvers


def solve(codes: np.ndarray, quadruplets: np.ndarray, c: float, prior: str, solver: Any = exact) -> Solution:
    """From packed codes to weights, as RankingSVM does with C given."""
    constraints = Constraints(codes, codes, quadruplets, 8 * codes.shape[1])
    uniform = np.full(constraints.n_bits, best_scale(constraints, c, c))
    return solver(Objective(constraints, c, c, uniform if prior == "uniform" else np.zeros_like(uniform)), uniform)


def solvers(report: Report, options: argparse.Namespace) -> None:
    quick = options.quick
    data = mnist_halves(ITQ(128, random_state=0), 0, quick)
    sizes = (2_000, 20_000, 200_000) if quick else (10_000, 100_000, 1_000_000)
    many = draw_quadruplets(data.y, sizes[-1], random_state=0)
    with threadpool_limits(1, user_api="blas"):
        # The paper's setting, and those that C="auto" tries, with ties.
        for c, prior in ((100.0, "zero"), (200 / 5000, "uniform"), (2 / 5000, "uniform")):
            against_lbfgs(report, data.codes, many[:5000], c, prior)
        for total, prior in ((None, "zero"), (200.0, "uniform")):
            runs = [[timed(solve, data.codes, many[:m], 100.0 if total is None else total / m, prior)[0] / m * 1e6
                     for m in sizes] for _ in range(3)]  # fmt: skip
            each = dict(zip(sizes, map(median, zip(*runs, strict=True)), strict=True))
            report.add(
                f"exact by number of quadruplets, C {'100' if total is None else '200/m'}, prior {prior}",
                **{f"us_each_of_{m}": us for m, us in each.items()},
                last_ratio=Figure(each[sizes[2]] / each[sizes[1]], most=1.5),
            )
    labels = np.random.default_rng(0).integers(10, size=1_000_000)
    seconds = median(timed(draw_quadruplets, labels, 1_000_000, random_state=0)[0] for _ in range(3))
    report.add("draw 1M quadruplets from 1M rows", seconds=Figure(seconds, most=2.0))
    for C, bar in ((1e-4, 200.0), ("auto", np.inf)):
        with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(1, get_context("spawn")) as pool:
            np.savez(f"{folder}/given.npz", codes=data.codes, quadruplets=many)
            used, with_given = pool.submit(peak_memory, folder, C).result()
        report.add(f"peak MB of {len(many)} quadruplets, C {C}", used=Figure(used, most=bar), with_given=with_given)


def against_lbfgs(report: Report, codes: np.ndarray, quadruplets: np.ndarray, c: float, prior: str) -> None:
    """Both from packed codes and quadruplets to weights; SciPy is stopped once it is as low as exact but for 1e-8."""
    n_bits = 8 * codes.shape[1]
    best = solve(codes, quadruplets, c, prior)
    constraints = Constraints(codes, codes, quadruplets, n_bits)
    start = np.full(n_bits, best_scale(constraints, c, c))
    center = start if prior == "uniform" else np.zeros_like(start)

    def rows() -> tuple[np.ndarray, np.ndarray]:
        q, j, k, s = (codes[column] for column in quadruplets.T)
        far, near, other = (np.unpackbits(q ^ item, axis=1).view(np.int8) for item in (j, k, s))
        return (far - near).astype(np.float64), (near - other).astype(np.float64)

    def lbfgs(excess: float, D: np.ndarray, T: np.ndarray) -> Any:
        def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
            step, slack, tie = w - center, np.maximum(1 - D @ w, 0), T @ w
            value = 0.5 * step @ step + c * (slack @ slack) + c * (tie @ tie)
            return value, step - 2 * c * (slack @ D) + 2 * c * (tie @ T)

        def enough(intermediate_result: Any) -> None:
            if intermediate_result.fun <= best.objective * (1 + excess):
                raise StopIteration

        bounds, options = [(0, None)] * n_bits, {"maxiter": 10**5, "maxfun": 10**6, "ftol": 0, "gtol": 0}
        return minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, callback=enough, options=options)

    # In turn, each three times on end: the second and third do not pay for the memory that another gave back.
    runs, made = [], rows()
    for _ in range(15):
        found = [
            min((timed(*call) for _ in range(3)), key=lambda run: run[0])
            for call in (
                (solve, codes, quadruplets, c, prior),
                (rows,),
                (lbfgs, 1e-8, *made),
                (lbfgs, 1e-12, *made),
            )
        ]
        runs.append([seconds for seconds, _ in found])
    ours, setting_up, theirs, precise = (1e3 * median(times) for times in zip(*runs, strict=True))
    report.add(
        f"exact against L-BFGS-B, C {c:g}, prior {prior}",
        times_faster=Figure((setting_up + theirs) / ours, least=5.0),
        times_faster_to_1e12=(setting_up + precise) / ours,
        times_faster_without_lbfgs_rows=theirs / ours,
        exact_ms=ours,
        lbfgs_rows_ms=setting_up,
        lbfgs_ms=theirs,
        exact_steps=best.n_iter,
        lbfgs_steps=found[2][1].nit,
        lbfgs_excess=Figure(found[2][1].fun / best.objective - 1, most=1e-8),
    )
    others = {name: solve(codes, quadruplets, c, prior, solver) for name, solver in (("egd", egd), ("pgd", pgd))}
    report.add(
        f"relative gap, C {c:g}, prior {prior}",
        exact=Figure(best.gap / best.objective, most=1e-8),
        **{name: Figure(other.objective / best.objective - 1, most=1e-4) for name, other in others.items()},
    )


def peak_memory(folder: str, C: Any) -> tuple[float, float]:
    """MB at peak that learning takes, without and with what it is given; in a process of its own."""
    tiny = np.random.default_rng(0).integers(256, size=(100, 16), dtype=np.uint8)
    RankingSVM(C=C).fit_quadruplets(tiny, np.arange(100).reshape(25, 4))  # loads what is loaded once
    high_water()
    empty = high_water()
    with np.load(f"{folder}/given.npz") as given:
        codes, quadruplets = given["codes"], given["quadruplets"]
    high_water()
    loaded = high_water()
    RankingSVM(C=C).fit_quadruplets(codes, quadruplets)
    peak = high_water()
    return peak - loaded, peak - empty


def high_water() -> float:
    """Most MB resident since the last call. (Linux; not ru_maxrss, as a new process inherits that of its parent.)"""
    status = Path("/proc/self/status").read_text().splitlines()
    Path("/proc/self/clear_refs").write_text("5")
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024 / 1e6


# --- online


def online(report: Report, options: argparse.Namespace) -> None:
    quick, seeds = options.quick, options.seeds
    for name in ("LSH", "SpectralHashing", "IsotropicHashing", "ITQ"):
        rows = []
        for seed in range(seeds):
            data = mnist_halves(make_hasher(name, 32, seed), seed, quick)
            quadruplets = draw_quadruplets(data.y, 5000, random_state=seed)
            stream = OnlineRankingSVM()
            for batch in np.split(quadruplets, 500):
                stream.partial_fit(data.codes, batch)
            rankers = {
                "online": stream,
                "offline": RankingSVM(random_state=seed).fit_quadruplets(data.codes, quadruplets),
                "fit": RankingSVM(random_state=seed).fit(data.codes, data.y),
            }
            maps = {key: data.evaluate(ranker.weights_for(data.query_codes))["map"] for key, ranker in rankers.items()}
            rows.append({"hamming": data.evaluate()["map"], **maps})
            report.add(f"{name} 32, seed {seed}", **rows[-1])
        row = {key: fmean(each[key] for each in rows) for key in rows[0]}
        # To be better than offline is no fault.
        difference = Figure(row["online"] - row["offline"], least=-0.01)
        report.add(f"{name} 32", **row, above_offline=difference, above_fit=row["online"] - row["fit"])
    data = mnist_halves(ITQ(128, random_state=0), 0, quick)
    stream, batches = OnlineRankingSVM(), np.split(draw_quadruplets(data.y, 5000, random_state=0), 500)
    seconds = median(timed(stream.partial_fit, data.codes, batch)[0] for batch in batches)
    report.add("one update of 10 at 128 bits", microseconds=Figure(1e6 * seconds, most=150.0))


# --- never worse


Rows = list[tuple[str, dict[str, Figure | float]]]


def never_worse(report: Report, options: argparse.Namespace) -> None:
    cells = [(classes, n_bits, options.quick) for classes in ("seen", "new") for n_bits in (None, 128, 64)]
    for rows in in_processes(compare, cells, options.jobs):
        for name, figures in rows:
            report.add(name, **figures)


def compare(classes: str, n_bits: int | None, quick: bool) -> Rows:
    """Every learner on banking77 (no n_bits) or on MNIST, without magnitudes and with them."""
    new = classes == "new"
    data = banking_parts(new) if n_bits is None else mnist_halves(ITQ(n_bits, random_state=0), 0, quick, new)
    name = f"{'banking77' if n_bits is None else f'MNIST ITQ {n_bits}'}, {classes} classes"
    hamming, asymmetric = data.evaluate(), data.evaluate(np.abs(data.query_values))
    whrank = bitrank.WhRank(random_state=0).fit(data.values, data.y)
    rows: Rows = []
    for with_magnitudes in (False, True):
        given, asked = (np.abs(data.values), np.abs(data.query_values)) if with_magnitudes else (None, None)
        rival, kind = (asymmetric, ", magnitudes") if with_magnitudes else (hamming, "")
        rows.append((f"{name}, {'asymmetric' if with_magnitudes else 'Hamming'}", {**rival}))
        rows.append((f"{name}, WhRank{kind}", {**data.evaluate(whrank.weights_for(data.query_codes, asked))}))
        for learner in (RankingSVM, OnlineRankingSVM, QueryAdaptiveRanker):
            ranker = learner(validation="classes" if new else "rows", random_state=0)
            seconds = timed(ranker.fit, data.codes, data.y, given)[0]
            row = data.evaluate(ranker.weights_for(data.query_codes, asked))
            figures = {key: Figure(value, least=rival[key] - 0.002) for key, value in row.items()}
            if learner is QueryAdaptiveRanker and name == "banking77, seen classes" and not with_magnitudes:
                figures = {"map": Figure(row["map"], least=0.70), "p10": Figure(row["p10"], least=rival["p10"] + 0.06)}
            rows.append((f"{name}, {learner.__name__}{kind}", {**figures, "fit_s": seconds}))
    for kind, given, asked in (("", None, None), (", values", data.values, data.query_values)):
        vectors = bitrank.QueryVectorRanker(validation="classes" if new else "rows", random_state=0)
        seconds = timed(vectors.fit, data.codes, data.y, given)[0]
        queries = vectors.queries_for(data.query_codes, asked)
        row = data.evaluate(queries.weights, queries.codes)
        figures = {key: Figure(value, least=hamming[key] - 0.002) for key, value in row.items()}
        rows.append((f"{name}, QueryVectorRanker{kind}", {**figures, "fit_s": seconds}))
    return rows


def in_processes(cell: Callable[..., Any], cells: list[tuple[Any, ...]], jobs: int) -> Iterator[Any]:
    """Results of a cell for each tuple of arguments, in order; here, or several at a time in processes of their own."""
    if jobs == 1:
        yield from (cell(*arguments) for arguments in cells)
    else:
        with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
            yield from pool.map(cell, *zip(*cells, strict=True))


# --- full MNIST

# Least gain in MAP over Hamming's with P@10 guarded and not, and least MAP of the query-adaptive ranker.
GAINS = {"ITQ 32": (0.02, 0.03), "ITQ 128": (0.03, 0.045), "SpectralHashing 128": (0.08, 0.10)}
LEAST = {"ITQ 32": (0.57, 0.60), "ITQ 128": (0.66, 0.70)}


def full_mnist(report: Report, options: argparse.Namespace) -> None:
    of_seeds: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    cells = [(coded, seed, options.quick) for seed in range(options.seeds) for coded in GAINS]
    for (coded, seed, _), rows in zip(cells, in_processes(mnist_cell, cells, options.jobs), strict=True):
        for learner, scoring, row in rows:
            report.add(f"{coded}, {learner}{scoring and ', ' + scoring}, seed {seed}", **row)
            if scoring:
                of_seeds.setdefault((coded, learner, scoring), []).append(row)
    for (coded, learner, scoring), rows in of_seeds.items():
        mean: dict[str, Any] = {key: fmean(row[key] for row in rows) for key in rows[0]}
        if learner == "RankingSVM":
            mean["map_gain"] = Figure(mean["map_gain"], least=GAINS[coded][scoring == "map"])
        else:
            mean["map"] = Figure(mean["map"], least=LEAST[coded][scoring == "map"])
            mean["fit_s"] = Figure(mean["fit_s"], most=60.0)
        if scoring == "guarded":
            mean["p10_gain"] = Figure(mean["p10_gain"], least=0.0)
        report.add(f"{coded}, {learner}, {scoring}", **mean)


def mnist_cell(coded: str, seed: int, quick: bool) -> list[tuple[str, str, dict[str, float]]]:
    """Hamming and every learner, guarded and not: (ranker, scoring, figures)."""
    method, n_bits = coded.split()
    data = mnist_halves(make_hasher(method, int(n_bits), seed), seed, quick)
    hamming = data.evaluate()
    rows = [("Hamming", "", hamming | {"n_queries": float(len(data.queries))})]
    for learner in (RankingSVM, QueryAdaptiveRanker) if coded in LEAST else (RankingSVM,):
        for scoring in ("guarded", "map"):
            ranker = learner(scoring=scoring, random_state=seed)
            cpu = time.process_time()  # of both cores: on a busy machine it says more than the time on the wall
            seconds = timed(ranker.fit, data.codes, data.y)[0]
            row = data.evaluate(ranker.weights_for(data.query_codes))
            row |= {f"{key}_gain": row[key] - hamming[key] for key in hamming}
            row |= {"fit_s": seconds, "fit_cpu_s": time.process_time() - cpu}
            rows.append((learner.__name__, scoring, row))
    return rows


PARTS = {"solvers": solvers, "online": online, "never-worse": never_worse, "mnist": full_mnist}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--seeds", type=int, default=3, help="splits of MNIST to average over, in online and mnist")
    parser.add_argument(
        "--jobs", type=int, default=1, help="processes for never-worse and mnist (default: %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="the embedded digits for MNIST; nothing is written")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part named {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    lines = []
    for part in options.parts or PARTS:
        report = Report(part)
        PARTS[part](report, options)
        lines += [(part, f"{name}: {key}", f) for name, row in report.rows.items() for key, f in row.items() if f.bar]
        if not options.quick:
            RESULTS.parent.mkdir(exist_ok=True)
            sections = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            sections[part] = report.section()
            RESULTS.write_text(json.dumps(sections, indent=1, ensure_ascii=False) + "\n")
    print(f"\n{'part':12} {'figure':66} {'value':>10}  bar")
    for part, name, figure in lines:
        print(f"{part:12} {name:66} {figure.value:10.4g}  {figure.bar:9} {'met' if figure.met else 'MISSED'}")
    print(f"{sum(figure.met for *_, figure in lines)} of {len(lines)} bars met")


if __name__ == "__main__":
    main()
