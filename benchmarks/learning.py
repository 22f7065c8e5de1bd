"""Quality and speed of learning, each figure beside its bar: solvers, online learner, full MNIST and banking77.

`python benchmarks/learning.py [solvers] [online] [never-worse] [mnist]` runs these parts, or all, prints each figure as
soon as it is known, and writes one section per part to benchmarks/results/learning.json. Data: docs/data.md.

MAP and P@10 are expectations over ties. As in the paper, a query stays in the collection that it searches. MNIST is
split at random into a half to learn from and a half to search, with a tenth of each class as queries.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import fmean, median
from typing import Any

import numpy as np
from report import RESULTS, Figure, Report, parse_parts, timed
from solvers import solvers
from splits import banking_parts, make_hasher, mnist_halves

import bitrank
from bitrank import ITQ, OnlineRankingSVM, RankingSVM
from bitrank.core.types import Queries
from bitrank.ranking import QueryAdaptiveRanker
from bitrank.ranking.evidence.quadruplets import draw_quadruplets

Rows = list[tuple[str, dict[str, Figure | float]]]

# Least gain in MAP over Hamming, with P@10 guarded and not, and least MAP of the query-adaptive ranker.
GAINS = {"ITQ 32": (0.02, 0.03), "ITQ 128": (0.03, 0.045), "SpectralHashing 128": (0.08, 0.10)}
LEAST = {"ITQ 32": (0.57, 0.60), "ITQ 128": (0.66, 0.70)}


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
                "offline": RankingSVM(random_state=seed).fit_constraints(data.codes, quadruplets),
                "fit": RankingSVM(random_state=seed).fit(data.codes, data.y),
            }
            maps = {key: data.evaluate(ranker.queries_for(data.query_codes))["map"] for key, ranker in rankers.items()}
            rows.append({"hamming": data.evaluate()["map"], **maps})
            report.add(f"{name} 32, seed {seed}", **rows[-1])
        row = {key: fmean(row[key] for row in rows) for key in rows[0]}
        difference = Figure(row["online"] - row["offline"], least=-0.01)
        report.add(f"{name} 32", **row, above_offline=difference, above_fit=row["online"] - row["fit"])
    data = mnist_halves(ITQ(128, random_state=0), 0, quick)
    stream, batches = OnlineRankingSVM(), np.split(draw_quadruplets(data.y, 5000, random_state=0), 500)
    seconds = median(timed(stream.partial_fit, data.codes, batch)[0] for batch in batches)
    report.add("one update of 10 at 128 bits", microseconds=Figure(1e6 * seconds, most=150.0))


def never_worse(report: Report, options: argparse.Namespace) -> None:
    cells = [(classes, n_bits, options.quick) for classes in ("seen", "new") for n_bits in (None, 128, 64)]
    for rows in in_processes(compare, cells, options.jobs):
        for name, figures in rows:
            report.add(name, **figures)


def compare(classes: str, n_bits: int | None, quick: bool) -> Rows:
    """Measure every learner on banking77 (no n_bits) or on MNIST, without magnitudes and with them."""
    new = classes == "new"
    data = banking_parts(new) if n_bits is None else mnist_halves(ITQ(n_bits, random_state=0), 0, quick, new)
    name = f"{'banking77' if n_bits is None else f'MNIST ITQ {n_bits}'}, {classes} classes"
    hamming, asymmetric = data.evaluate(), data.evaluate(Queries(data.query_codes, np.abs(data.query_values)))
    whrank = bitrank.ranking.WhRank(random_state=0).fit(data.codes, data.y, queries=data.values)
    rows: Rows = []
    for with_magnitudes in (False, True):
        rows_as_queries, queries = (data.values, data.query_values) if with_magnitudes else (None, data.query_codes)
        rival, kind = (asymmetric, ", magnitudes") if with_magnitudes else (hamming, "")
        rows.append((f"{name}, {'asymmetric' if with_magnitudes else 'Hamming'}", {**rival}))
        rows.append((f"{name}, WhRank{kind}", {**data.evaluate(whrank.queries_for(queries))}))
        for learner in (RankingSVM, OnlineRankingSVM, QueryAdaptiveRanker):
            ranker = learner(validation="classes" if new else "rows", random_state=0)
            seconds = timed(ranker.fit, data.codes, data.y, queries=rows_as_queries)[0]
            row = data.evaluate(ranker.queries_for(queries, collection=data.test_codes))
            figures = {key: Figure(value, least=rival[key] - 0.002) for key, value in row.items()}
            if learner is QueryAdaptiveRanker and name == "banking77, seen classes" and not with_magnitudes:
                figures = {"map": Figure(row["map"], least=0.70), "p10": Figure(row["p10"], least=rival["p10"] + 0.06)}
            rows.append((f"{name}, {learner.__name__}{kind}", {**figures, "fit_s": seconds}))
    for kind, features, query_features in (("", None, None), (", values", data.values, data.query_values)):
        vectors = bitrank.QueryVectorRanker(validation="classes" if new else "rows", random_state=0)
        seconds = timed(vectors.fit, data.codes, data.y, features=features)[0]
        row = data.evaluate(vectors.queries_for(data.query_codes, features=query_features, collection=data.test_codes))
        figures = {key: Figure(value, least=hamming[key] - 0.002) for key, value in row.items()}
        rows.append((f"{name}, QueryVectorRanker{kind}", {**figures, "fit_s": seconds}))
    return rows


def in_processes(function: Callable[..., Any], calls: list[tuple[Any, ...]], jobs: int) -> Iterator[Any]:
    """Yield the results of a function for each tuple of arguments, in order, computed by this process or by several."""
    if jobs == 1:
        yield from (function(*arguments) for arguments in calls)
    else:
        with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
            yield from pool.map(function, *zip(*calls, strict=True))


def full_mnist(report: Report, options: argparse.Namespace) -> None:
    by_setting: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    cells = [(coded, seed, options.quick) for seed in range(options.seeds) for coded in GAINS]
    for (coded, seed, _), rows in zip(cells, in_processes(mnist_cell, cells, options.jobs), strict=True):
        for learner, scoring, row in rows:
            report.add(f"{coded}, {learner}{scoring and ', ' + scoring}, seed {seed}", **row)
            if scoring:
                by_setting.setdefault((coded, learner, scoring), []).append(row)
    for (coded, learner, scoring), rows in by_setting.items():
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
    """Measure Hamming and every learner, guarded and not: (ranker, scoring, figures)."""
    method, n_bits = coded.split()
    data = mnist_halves(make_hasher(method, int(n_bits), seed), seed, quick)
    hamming = data.evaluate()
    rows = [("Hamming", "", hamming | {"n_queries": float(len(data.queries))})]
    for learner in (RankingSVM, QueryAdaptiveRanker) if coded in LEAST else (RankingSVM,):
        for scoring in ("guarded", "map"):
            ranker = learner(scoring=scoring, random_state=seed)
            cpu = time.process_time()  # less sensitive to other load than the wall time
            seconds = timed(ranker.fit, data.codes, data.y)[0]
            row = data.evaluate(ranker.queries_for(data.query_codes))
            row |= {f"{key}_gain": row[key] - hamming[key] for key in hamming}
            row |= {"fit_s": seconds, "fit_cpu_s": time.process_time() - cpu}
            rows.append((learner.__name__, scoring, row))
    return rows


PARTS = {"solvers": solvers, "online": online, "never-worse": never_worse, "mnist": full_mnist}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="splits of MNIST to average over, in online and mnist")
    parser.add_argument(
        "--jobs", type=int, default=1, help="processes for never-worse and mnist (default: %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="use the embedded digits for MNIST; write nothing")
    options = parse_parts(parser, PARTS)
    bars = []
    for part in options.parts:
        report = Report(part)
        PARTS[part](report, options)
        bars += [(part, f"{name}: {key}", f) for name, row in report.rows.items() for key, f in row.items() if f.bar]
        if not options.quick:
            report.save(RESULTS / "learning.json")
    print(f"\n{'part':12} {'figure':66} {'value':>10}  bar")
    for part, name, figure in bars:
        print(f"{part:12} {name:66} {figure.value:10.4g}  {figure.bar:9} {'met' if figure.met else 'MISSED'}")
    print(f"{sum(figure.met for *_, figure in bars)} of {len(bars)} bars met")


if __name__ == "__main__":
    main()
