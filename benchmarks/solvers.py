"""The part `solvers` of learning.py: the exact solver beside L-BFGS-B, its time per quadruplet and its memory."""

import argparse
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from report import Figure, Report, timed
from scipy.optimize import minimize
from splits import mnist_halves
from threadpoolctl import threadpool_limits

from bitrank import ITQ, RankingSVM
from bitrank.ranking.evidence.quadruplets import draw_quadruplets
from bitrank.ranking.solvers.objective import Constraints, Objective, best_scale
from bitrank.ranking.solvers.solvers import Solution, egd, exact, pgd


def solve(codes: np.ndarray, quadruplets: np.ndarray, c: float, prior: str, solver: Any = exact) -> Solution:
    """Learn weights from packed codes, as RankingSVM does with a fixed C."""
    constraints = Constraints(codes, codes, quadruplets, 8 * codes.shape[1])
    uniform = np.full(constraints.n_bits, best_scale(constraints, c, c))
    return solver(Objective(constraints, c, c, uniform if prior == "uniform" else np.zeros_like(uniform)), uniform)


def solvers(report: Report, options: argparse.Namespace) -> None:
    quick = options.quick
    data = mnist_halves(ITQ(128, random_state=0), 0, quick)
    sizes = (2_000, 20_000, 200_000) if quick else (10_000, 100_000, 1_000_000)
    many = draw_quadruplets(data.y, sizes[-1], random_state=0)
    with threadpool_limits(1, user_api="blas"):
        # The paper's setting, and settings that C="auto" tries.
        for c, prior in ((100.0, "zero"), (200 / 5000, "uniform"), (2 / 5000, "uniform")):
            against_lbfgs(report, data.codes, many[:5000], c, prior)
        for total, prior in ((None, "zero"), (200.0, "uniform")):
            runs = [[timed(solve, data.codes, many[:m], 100.0 if total is None else total / m, prior)[0] / m * 1e6
                     for m in sizes] for _ in range(3)]  # fmt: skip
            per_quadruplet = dict(zip(sizes, map(median, zip(*runs, strict=True)), strict=True))
            report.add(
                f"exact by number of quadruplets, C {'100' if total is None else '200/m'}, prior {prior}",
                **{f"us_each_of_{m}": us for m, us in per_quadruplet.items()},
                last_ratio=Figure(per_quadruplet[sizes[2]] / per_quadruplet[sizes[1]], most=1.5),
            )
    labels = np.random.default_rng(0).integers(10, size=1_000_000)
    seconds = median(timed(draw_quadruplets, labels, 1_000_000, random_state=0)[0] for _ in range(3))
    report.add("draw 1M quadruplets from 1M rows", seconds=Figure(seconds, most=2.0))
    for C, bar in ((1e-4, 200.0), ("auto", np.inf)):
        with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(1, get_context("spawn")) as pool:
            np.savez(f"{folder}/input.npz", codes=data.codes, quadruplets=many)
            used, with_input = pool.submit(peak_memory, folder, C).result()
        report.add(f"peak MB of {len(many)} quadruplets, C {C}", used=Figure(used, most=bar), with_given=with_input)


def against_lbfgs(report: Report, codes: np.ndarray, quadruplets: np.ndarray, c: float, prior: str) -> None:
    """Time both from packed codes and quadruplets to weights; stop SciPy once it is within 1e-8 of the optimum."""
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

    # In turns, each three times in a row: the second and third call reuse the memory of the first.
    runs, differences = [], rows()
    for _ in range(15):
        fastest = [
            min((timed(*call) for _ in range(3)), key=lambda run: run[0])
            for call in (
                (solve, codes, quadruplets, c, prior),
                (rows,),
                (lbfgs, 1e-8, *differences),
                (lbfgs, 1e-12, *differences),
            )
        ]
        runs.append([seconds for seconds, _ in fastest])
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
        lbfgs_steps=fastest[2][1].nit,
        lbfgs_excess=Figure(fastest[2][1].fun / best.objective - 1, most=1e-8),
    )
    others = {name: solve(codes, quadruplets, c, prior, solver) for name, solver in (("egd", egd), ("pgd", pgd))}
    report.add(
        f"relative gap, C {c:g}, prior {prior}",
        exact=Figure(best.gap / best.objective, most=1e-8),
        **{name: Figure(other.objective / best.objective - 1, most=1e-4) for name, other in others.items()},
    )


def peak_memory(folder: str, C: Any) -> tuple[float, float]:
    """Return the peak memory of learning in MB, without and with its input; call it in a new process."""
    tiny = np.random.default_rng(0).integers(256, size=(100, 16), dtype=np.uint8)
    RankingSVM(C=C).fit_constraints(tiny, np.arange(100).reshape(25, 4))  # loads modules
    high_water()
    empty = high_water()
    with np.load(f"{folder}/input.npz") as stored:
        codes, quadruplets = stored["codes"], stored["quadruplets"]
    high_water()
    loaded = high_water()
    RankingSVM(C=C).fit_constraints(codes, quadruplets)
    peak = high_water()
    return peak - loaded, peak - empty


def high_water() -> float:
    """Return the peak resident MB since the last call (Linux; a new process inherits the ru_maxrss of its parent)."""
    status = Path("/proc/self/status").read_text().splitlines()
    Path("/proc/self/clear_refs").write_text("5")
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024 / 1e6
