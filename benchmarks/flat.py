"""Measure `Index` beside FAISS IndexBinaryFlat over lengths, sizes and batches, and write benchmarks/results/flat.json.

    python benchmarks/flat.py                       all parts (about four minutes)
    python benchmarks/flat.py small --n-bits 256    one part, one length
    BITRANK_KERNEL=avx2 FAISS_SIMD_LEVEL=AVX2 python benchmarks/flat.py    both libraries without AVX-512

Codes are random, weights between 0.1 and 1, and everything runs in one thread. In every round both search for the same
queries, one after the other. A figure is the speed of `Index` as a multiple of IndexBinaryFlat, by the medians of the
time that the thread was running, which other work on the machine disturbs least; the milliseconds of both stand
beside it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

import data
import faiss
import numpy as np
import peers
from report import RESULTS, Figure, Report, parse_parts

from bitrank import Index, _kernel

LENGTHS = (64, 128, 256, 512, 1024)
PATH = os.environ.get("BITRANK_KERNEL") or _kernel.kernel_paths()[-1]
SECONDS = 0.3  # per figure and contender, at least five rounds


def compare(index: Index, flat: peers.Search, queries: np.ndarray, k: int, together: int) -> tuple[float, float]:
    """Return the median milliseconds of IndexBinaryFlat and of `Index` per search of `together` queries."""
    contenders = (flat, lambda queries, k: index.search(queries, k, threads=1))
    times: list[list[float]] = [[], []]
    begin, turn = time.perf_counter(), -2  # two rounds to warm up
    while turn < 5 or time.perf_counter() - begin < 2 * SECONDS:
        start = turn * together % max(1, len(queries) - together + 1)
        batch = np.ascontiguousarray(queries[start : start + together])
        for search, milliseconds in zip(contenders, times, strict=True):
            since = time.thread_time()
            search(batch, k)
            if turn >= 0:
                milliseconds.append((time.thread_time() - since) * 1e3)
        turn += 1
    return statistics.median(times[0]), statistics.median(times[1])


def measure(part: str, sizes: list[int], together: list[int], least: float, options: argparse.Namespace) -> None:
    """Measure all lengths and sizes, for k = 10 and 100."""
    report = Report(f"{part}, {PATH}")
    for n_bits in options.n_bits:
        collection = data.random_codes(max(sizes), n_bits, n_queries=max(64, *together))
        weights = np.random.default_rng(0).uniform(0.1, 1, n_bits).astype(np.float32)
        for n in sizes:
            codes = collection.codes[:n]
            index, flat = Index(codes, weights=weights), peers.flat(codes)
            for size in together:
                for k in options.k:
                    flat_ms, index_ms = compare(index, flat, collection.queries, k, size)
                    name = f"{n_bits} bits, {n} codes, {size} queries, k = {k}"
                    report.add(name, ratio=Figure(flat_ms / index_ms, least=least), flat_ms=flat_ms, index_ms=index_ms)
    report.save(options.output)


PARTS = {
    "small": ([1000, 10_000], [1], 0.5),
    "large": ([100_000, 300_000, 1_000_000, 2_000_000, 4_000_000], [1], 1.0),
    "batch": ([500_000], [64, 1024], 3.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-bits", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--k", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--output", type=Path, default=RESULTS / "flat.json")
    options = parse_parts(parser, PARTS)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    faiss.omp_set_num_threads(1)
    for part in options.parts:
        measure(part, *PARTS[part], options)


if __name__ == "__main__":
    main()
