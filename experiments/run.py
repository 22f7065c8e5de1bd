"""Run the experiments: ``python -m experiments.run`` computes every cell that is missing from the results.

Two processes (`--workers`) with one BLAS thread each work through the groups of a plan. A run that was stopped
continues where it stopped.
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

from bitrank.core.progress import progress
from experiments import cells, data
from experiments.plan import Group, groups
from experiments.protocols import PROTOCOLS, rankings_of


def run_group(group: Group, results: Path, n_rows: int | None) -> tuple[Group, int, float, float]:
    """Compute the missing cells of a group; return the group, the number of cells, seconds and CPU seconds."""
    start, cpu_start = time.perf_counter(), time.process_time()
    stored = cells.read(cells.path_of(results, group.protocol, group.dataset))
    wanted = cells.missing(stored, group, rankings_of(group.protocol, group.dataset), n_rows)
    if not wanted:
        return group, 0, 0.0, 0.0
    n_computed = 0
    for ranking, record in PROTOCOLS[group.protocol].compute(group, wanted, data.load(group.dataset, n_rows)):
        if n_rows is not None:
            record["params"]["n_rows"] = n_rows
        cells.append(results, group, ranking, record)
        n_computed += 1
    return group, n_computed, time.perf_counter() - start, time.process_time() - cpu_start


def run(planned: list[Group], results: Path, n_rows: int | None = None, workers: int = 2) -> None:
    """Compute the missing cells of these groups in worker processes, and write cells.csv."""
    start = time.perf_counter()
    stored, n_cells, n_missing = cells.read_all(results), 0, {}
    for group in planned:
        rankings = rankings_of(group.protocol, group.dataset)
        n_cells += len(rankings)
        if wanted := cells.missing(stored, group, rankings, n_rows):
            n_missing[group] = len(wanted)
    print(f"{sum(n_missing.values())} of {n_cells} cells to compute; the others are in {results}", flush=True)
    available = _available({group.dataset for group in n_missing})
    n_missing = {group: n for group, n in n_missing.items() if group.dataset in available}
    n_computed = 0
    try:
        finished = _finished(list(n_missing), results, n_rows, workers)
        for _ in progress(finished, total=sum(n_missing.values()), label="cells"):
            n_computed += 1
    finally:
        if n_computed:
            cells.write_run(results, n_computed, workers, time.perf_counter() - start)
        print(f"{cells.write_csv(results)} cells in {results / 'cells.csv'}", flush=True)


def _available(names: set[str]) -> set[str]:
    """Return the data sets that can be loaded; say how to get the others. Features are computed here, on all cores."""
    available = set()
    for name in sorted(names):
        try:
            data.load(name)
            available.add(name)
        except OSError as error:
            print(f"left out, {name}: {error}", file=sys.stderr)
    data.load.cache_clear()
    return available


def _finished(todo: list[Group], results: Path, n_rows: int | None, workers: int) -> Iterator[None]:
    """Run the groups, and yield once per finished cell."""
    # Workers are spawned and read these at their start. With the malloc thresholds, glibc keeps freed memory, and the
    # kernel need not clear pages again for every large array.
    os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    os.environ.update(dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), str(1 << 33)))
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=_silence) as pool:
        futures = [pool.submit(run_group, group, results, n_rows) for group in todo]
        try:
            for future in as_completed(futures):
                group, n_computed, seconds, cpu_seconds = future.result()
                if not sys.stderr.isatty():
                    print(f"{group}: {n_computed} cells, {seconds:.1f} s, {cpu_seconds:.1f} s of CPU", flush=True)
                yield from [None] * n_computed
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _silence() -> None:
    # Learners show progress bars on a terminal. Errors still come back through the pool.
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", choices=("reproduce", "quick"), default="reproduce")
    parser.add_argument("--results", type=Path, default=cells.RESULTS, help="folder of the results")
    parser.add_argument("--only", default="", help="run groups whose name contains this text, e.g. full/mnist/ITQ-32")
    parser.add_argument("--rows", type=int, help="use a sample of this many rows of each data set: a trial")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: %(default)s)")
    options = parser.parse_args(arguments)
    planned = [group for group in groups(options.plan) if options.only in str(group)]
    if not planned:
        parser.error(f"--only must be part of a group's name, got {options.only!r}")
    run(planned, options.results, options.rows, options.workers)


if __name__ == "__main__":
    main()
