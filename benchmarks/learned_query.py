"""One learned query, part by part: what `queries_for` and the search take, in microseconds.

`python benchmarks/learned_query.py` learns a `QueryVectorRanker` from 2000 of 59 017 simulated vectors of sixty kinds,
whose codes are sign bits, and asks it with features and a collection, on one thread. It prints the median of every
part, the whole measured beside its parts in turn, then `Collection.search` with and without the ranker on up to four
million codes, and writes benchmarks/results/learned_query.json.
"""

import argparse
import itertools
import os
import time
from collections.abc import Callable
from statistics import median

import numpy as np
from report import RESULTS, Figure, Report
from threadpoolctl import threadpool_limits

from bitrank import Collection, Index, QueryVectorRanker, SignBits
from bitrank.core.types import Codes, Queries
from bitrank.ranking.evidence.kinds import check_query_rows

N_ITEMS, N_KINDS, N_LEARNED = 59_017, 60, 2000
SIZES = {384: (N_ITEMS, 1_000_000, 4_000_000), 1024: (N_ITEMS, 1_000_000)}
_TOGETHER = 5  # calls per time: reading the clock takes as long as the shortest
MOST_US = {(384, 1): 300.0, (384, 64): 20.0, (1024, 1): 800.0}  # of queries_for, per query


def draw(n: int, n_bits: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of sixty kinds that overlap as much at any length, and their kinds."""
    random = np.random.default_rng(seed)
    kinds, spread = random.integers(N_KINDS, size=n), 2 * (n_bits / 384) ** 0.4
    centers = np.random.default_rng(0).standard_normal((N_KINDS, n_bits), np.float32)
    return centers[kinds] + np.float32(spread) * random.standard_normal((n, n_bits), np.float32), kinds


def medians(parts: dict[str, Callable[[], object]], rounds: int, n: int) -> dict[str, float]:
    """Microseconds per query of every part, measured in turn."""
    times: dict[str, list[float]] = {name: [] for name in parts}
    for turn in range(-2, rounds):  # two rounds to warm up
        for name, part in parts.items():
            start = time.thread_time()
            for _ in range(_TOGETHER):
                part()
            if turn >= 0:
                times[name].append(time.thread_time() - start)
    return {name: 1e6 * median(values) / n / _TOGETHER for name, values in times.items()}


def learn(n_bits: int) -> tuple[SignBits, Codes, QueryVectorRanker, np.ndarray]:
    """Codes of the items, what was learned of them, and vectors to ask with."""
    vectors, kinds = draw(N_ITEMS, n_bits, 1)
    hasher = SignBits().fit(vectors[:10_000])
    codes = hasher.transform(vectors)
    rows = np.flatnonzero(kinds[:N_LEARNED] < 2 * N_KINDS // 3)
    ranker = QueryVectorRanker(n_steps=100, random_state=0)
    queries = hasher.project(vectors[rows])
    ranker.fit(codes[rows], kinds[rows], queries=queries, features=vectors[rows], collection=codes)
    if ranker.blend_ == 0:
        raise RuntimeError("the gate refused what was learned: trust would not be asked for")
    return hasher, codes, ranker, vectors[-64:].copy()


def measure(n_bits: int, rounds: int, report: Report, sizes: tuple[int, ...]) -> None:
    """Time the parts of 1 query and of 64, and whole searches of collections."""
    hasher, codes, ranker, vectors = learn(n_bits)
    index = Index(codes)
    start = time.perf_counter()
    calibration, network = ranker.calibrate(index), ranker.full_part_
    first_ms = (time.perf_counter() - start) * 1e3
    for n in (1, 64):
        some = vectors[:n]
        reals = hasher.project(some)
        queries = check_query_rows(reals, n_bits)
        learned = ranker.queries_for(reals, features=some, collection=index)
        parts: dict[str, Callable[[], object]] = {
            "queries_for_us": lambda reals=reals, some=some: ranker.queries_for(reals, features=some, collection=index),
            "project_us": lambda some=some: hasher.project(some),
            "checks_us": lambda reals=reals: check_query_rows(reals, n_bits),
            "trust_us": lambda queries=queries: calibration.trust(queries.codes),
            "network_us": lambda queries=queries, some=some: network(network.inputs(queries, some, n_bits)),
            "search_us": lambda learned=learned: index.search(Queries(*learned[:2]), k=10, threads=1),
            "plain_search_us": lambda reals=reals: index.search(reals, k=10, threads=1),
        }
        row: dict[str, Figure | float] = {**medians(parts, rounds if n == 1 else max(5, rounds // 8), n)}
        row["queries_for_us"] = Figure(row["queries_for_us"], most=MOST_US.get((n_bits, n), np.inf))
        if n_bits == 384:
            row["project_us"] = Figure(row["project_us"], most=10 if n == 1 else 2)
        report.add(f"{n_bits} bits, {N_ITEMS} codes, {n} queries", **row, first_call_ms=first_ms)
    for n_items in sizes:
        plain, block = Collection.from_codes(codes[:0], hasher=hasher, n_bits=n_bits), 250_000
        for number, first in enumerate(range(0, n_items, block)):
            plain.add(draw(min(block, n_items - first), n_bits, 2 + number)[0])
        learned_one = Collection.from_codes(plain.index.export()[0], hasher=hasher, n_bits=n_bits)
        learned_one.use(ranker)
        turn = itertools.count()
        parts = {
            name: lambda one=one, turn=turn: one.search(vectors[next(turn) // 2 % 64], k=10, threads=1)
            for name, one in (("plain_us", plain), ("learned_us", learned_one))
        }
        took = medians(parts, rounds if n_items < 100_000 else max(3, rounds // 5), 1)
        most = 600 if n_bits == 384 and n_items == N_ITEMS else np.inf
        report.add(
            f"{n_bits} bits, {n_items} codes, Collection.search",
            learned_us=Figure(took["learned_us"], most=most),
            plain_us=took["plain_us"],
            ratio=Figure(took["learned_us"] / took["plain_us"], most=2.5 if n_items >= 1_000_000 else np.inf),
        )


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short, and writes nothing")
    options = parser.parse_args()
    report = Report("learned query")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with threadpool_limits(1):
        for n_bits, sizes in SIZES.items():
            measure(n_bits, 20 if options.quick else 200, report, sizes[:1] if options.quick else sizes)
    report.summarize()
    if not options.quick:
        report.save(RESULTS / "learned_query.json")


if __name__ == "__main__":
    main()
