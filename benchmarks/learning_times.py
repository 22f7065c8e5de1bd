"""Time and memory of learning with default settings, each figure beside its bar.

`python benchmarks/learning_times.py [idle] [busy]` runs these parts, or both, and writes one section per part to
benchmarks/results/learning_times.json. `idle`: seconds of wall time and peak memory of one `fit` in a process of its
own, for each learner and several sizes. `busy`: the same beside two processes that never rest, as a multiple of the
time alone. Run it on an idle machine; the bars are for two cores.

Rows are signs of 77 clusters in 64 dimensions, projected at random to one value per bit and blurred with noise.
"""

import argparse
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Process, get_context
from typing import NamedTuple

import numpy as np
from report import RESULTS, Figure, Report, parse_parts

import bitrank

N_CLASSES, N_DIMENSIONS, NOISE = 77, 64, 1.2


class Case(NamedTuple):
    """One fit, and what it may take: seconds, and gigabytes at the peak."""

    ranker: str
    n: int
    n_bits: int
    seconds: float
    gigabytes: float = np.inf
    reals: bool = False

    @property
    def name(self) -> str:
        """The case in words."""
        return f"{self.ranker}, {self.n} rows of {self.n_bits} bits{', float queries' if self.reals else ''}"


CASES = (
    Case("QueryVectorRanker", 10_000, 64, 15),
    Case("QueryVectorRanker", 20_000, 1024, 60),
    Case("QueryVectorRanker", 20_000, 3072, 150, 2),
    Case("QueryVectorRanker", 1_000_000, 384, 40, 2),
    Case("QueryAdaptiveRanker", 1_000_000, 384, 40, 2),
    Case("RankingSVM", 7500, 384, 15),
    Case("RankingSVM", 7500, 384, 25, reals=True),
    Case("RankingSVM", 5000, 3072, 100),
)
BUSY = tuple(case for case in CASES if case.n <= 10_000 and case.n_bits < 1024)
MOST_TIMES_LONGER = 3.0


def draw(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Draw codes, classes, and the values before the sign where queries are reals."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((N_CLASSES, N_DIMENSIONS), np.float32)
    projection = rng.standard_normal((N_DIMENSIONS, case.n_bits), np.float32)
    y = rng.integers(N_CLASSES, size=case.n)
    codes, values = np.empty((case.n, case.n_bits // 8), np.uint8), []
    for start in range(0, case.n, 10_000):
        rows = centers[y[start : start + 10_000]]
        rows = rows + np.float32(NOISE) * rng.standard_normal(rows.shape, np.float32)
        block = rows @ projection
        codes[start : start + len(rows)] = np.packbits(block > 0, axis=1)
        values += [block] if case.reals else []
    return codes, y, np.concatenate(values) if case.reals else None


def fit(case: Case) -> dict[str, float]:
    """Fit once; return seconds, CPU seconds, peak gigabytes and the blend that was chosen."""
    codes, y, values = draw(case)
    ranker = getattr(bitrank, case.ranker)(random_state=0)
    start, cpu = time.perf_counter(), time.process_time()
    ranker.fit(codes, y, queries=values)
    return {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        "blend": ranker.blend_,
    }


def fit_apart(case: Case) -> dict[str, float]:
    """Fit in a fresh process, whose peak memory is the fit's own."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(fit, (case,))


def idle(report: Report, cases: list[Case]) -> None:
    """Measure every case alone."""
    for case in cases:
        row = fit_apart(case)
        seconds, gigabytes = Figure(row.pop("seconds"), most=case.seconds), Figure(row.pop("gigabytes"))
        report.add(case.name, seconds=seconds, gigabytes=gigabytes._replace(most=case.gigabytes), **row)


def busy(report: Report, cases: list[Case]) -> None:
    """Measure the shorter cases alone, and beside two busy processes."""
    for case in (case for case in cases if case in BUSY):
        alone = fit_apart(case)["seconds"]
        with busy_processes(2):
            beside = fit_apart(case)["seconds"]
        times_longer = Figure(beside / alone, most=MOST_TIMES_LONGER)
        report.add(case.name, seconds=alone, busy_seconds=beside, times_longer=times_longer)


@contextmanager
def busy_processes(n: int) -> Iterator[None]:
    """Keep n processes busy with one thread each."""
    processes = [Process(target=spin, daemon=True) for _ in range(n)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
            process.join()


def spin() -> None:
    """Compute for ever."""
    while True:
        sum(range(100_000))


PARTS = {"idle": idle, "busy": busy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="measure the cases whose name contains this; write nothing")
    options = parse_parts(parser, PARTS)
    cases = [case for case in CASES if options.only in case.name]
    for part in options.parts:
        report = Report(part)
        PARTS[part](report, cases)
        if not options.only:
            report.save(RESULTS / "learning_times.json")
        report.summarize()


if __name__ == "__main__":
    main()
