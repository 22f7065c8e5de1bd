"""Run the experiments: ``python -m experiments.run`` computes every cell that has no file yet.

Two processes (`--workers`), each with one thread of linear algebra, work through the groups of `plan`; a run that is
stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from bitrank.progress import progress
from experiments import cells, protocols
from experiments.plan import Group, groups
from experiments.questions import PROTOCOLS


def run_group(group: Group, results: Path, n_rows: int | None) -> tuple[Group, int, float, float]:
    """Compute the cells of a group that have no file; returns how many, and in how many seconds, of clock and core."""
    start, core_start = time.perf_counter(), time.process_time()
    wanted = cells.missing(results, group, n_rows)
    if not wanted:
        return group, 0, 0.0, 0.0
    n_done = 0
    for ranking, record in PROTOCOLS[group.protocol](group, wanted, protocols.load(group.dataset, n_rows)):
        if n_rows is not None:
            record["params"]["n_rows"] = n_rows
        cells.write(results, group, ranking, record)
        n_done += 1
    return group, n_done, time.perf_counter() - start, time.process_time() - core_start


def run(listed: list[Group], results: Path, n_rows: int | None = None, workers: int = 2) -> None:
    """Compute the missing cells of these groups in processes of their own, and gather all there are."""
    start = time.perf_counter()
    todo = {group: len(cells.missing(results, group, n_rows)) for group in listed}
    n_cells = sum(len(group.rankings) for group in todo)
    todo = {group: n for group, n in todo.items() if n}
    print(f"{sum(todo.values())} of {n_cells} cells to compute; the others are in {results}", flush=True)
    there = _available({group.dataset for group in todo})
    todo = {group: n for group, n in todo.items() if group.dataset in there}
    n_computed = 0
    try:
        for _ in progress(_done(list(todo), results, n_rows, workers), total=sum(todo.values()), label="cells"):
            n_computed += 1
    finally:
        if n_computed:
            cells.write_run(results, n_computed, workers, time.perf_counter() - start)
        print(f"{cells.gather(results)} cells in {results / 'cells.csv'}", flush=True)


def _available(names: set[str]) -> set[str]:
    """Datasets that are there; of the others, say how to get them. Features are computed here, with all cores."""
    found = set()
    for name in sorted(names):
        try:
            protocols.load(name)
            found.add(name)
        except OSError as error:
            print(f"left out, {name}: {error}", file=sys.stderr)
    protocols.load.cache_clear()
    return found


def _done(todo: list[Group], results: Path, n_rows: int | None, workers: int) -> Iterator[None]:
    """Run the groups, and yield once for each cell that is finished."""
    # The workers are new processes and read these when they start. Memory that glibc keeps need not be cleared by the
    # kernel again for every large array.
    os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    os.environ.update(dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), str(1 << 33)))
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=_silence) as pool:
        waiting = [pool.submit(run_group, group, results, n_rows) for group in todo]
        try:
            for future in as_completed(waiting):
                group, n_done, seconds, core_seconds = future.result()
                if not sys.stderr.isatty():
                    print(f"{group}: {n_done} cells, {seconds:.1f} s, {core_seconds:.1f} of a core", flush=True)
                yield from [None] * n_done
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _silence() -> None:
    # Learners draw bars of their own on a terminal. An error still comes back through the pool.
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", choices=("reproduce", "quick"), default="reproduce")
    parser.add_argument("--results", type=Path, default=cells.RESULTS, help="folder of the results")
    parser.add_argument("--only", default="", help="groups whose name holds this, such as full/mnist/ITQ-32")
    parser.add_argument("--rows", type=int, help="use so many rows of each dataset: a trial")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: %(default)s)")
    options = parser.parse_args(arguments)
    listed = [group for group in groups(options.plan) if options.only in str(group)]
    if not listed:
        parser.error(f"no group's name holds {options.only!r}")
    run(listed, options.results, options.rows, options.workers)


if __name__ == "__main__":
    main()
