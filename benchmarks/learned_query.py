"""One learned query, part by part: what `queries_for` and the search take, in microseconds.

`python benchmarks/learned_query.py` learns a `QueryVectorRanker` from a part of 59 017 simulated vectors of sixty
kinds, whose codes are sign bits, and asks it with features and a collection, on one thread. It prints the median of
every part, the whole measured beside its parts in turn, and writes benchmarks/results/learned_query.json.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
from threadpoolctl import threadpool_limits

from bitrank import Index, QueryVectorRanker, SignBits
from bitrank.core.types import Queries
from bitrank.ranking.evidence.kinds import check_query_rows

RESULTS = Path(__file__).parent / "results" / "learned_query.json"
N_ITEMS, N_KINDS, N_LEARNED = 59_017, 60, 2000
ROUNDS = {1: 300, 64: 20}


def measure(n_bits: int, quick: bool) -> list[dict[str, float]]:
    """Learn for codes of some length, and time 1 query and 64."""
    random = np.random.default_rng(0)
    kinds = random.integers(N_KINDS, size=N_ITEMS)
    vectors = random.standard_normal((N_KINDS, n_bits))[kinds] + 2 * random.standard_normal((N_ITEMS, n_bits))
    vectors = vectors.astype(np.float32)
    hasher = SignBits().fit(vectors[:10_000])
    codes = hasher.transform(vectors)
    rows = np.flatnonzero(kinds[:N_LEARNED] < 2 * N_KINDS // 3)
    index = Index(codes)
    ranker = QueryVectorRanker(n_steps=100, random_state=0)
    ranker.fit(
        codes[rows], kinds[rows], queries=hasher.project(vectors[rows]), features=vectors[rows], collection=index
    )
    if ranker.blend_ == 0:
        raise RuntimeError("the gate refused what was learned: trust would not be asked for")
    start = time.perf_counter()
    calibration = ranker.calibrate(index)
    calibrated = time.perf_counter() - start
    out = []
    for n, rounds in ROUNDS.items():
        some = vectors[-n:]
        reals = hasher.project(some)
        queries = check_query_rows(reals, n_bits)
        learned = ranker.queries_for(reals, features=some, collection=index)
        parts: dict[str, Callable[[], object]] = {
            "project": lambda some=some: hasher.project(some),
            "queries_for": lambda reals=reals, some=some: ranker.queries_for(reals, features=some, collection=index),
            "checks": lambda reals=reals: check_query_rows(reals, n_bits),
            "trust": lambda queries=queries: calibration.trust(queries.codes),
            "network": lambda queries=queries, some=some: ranker.full_part_.vectors(queries, some),
            "search": lambda learned=learned: index.search(Queries(*learned[:2]), k=10, threads=1),
            "plain_search": lambda reals=reals: index.search(reals, k=10, threads=1),
        }
        seconds: dict[str, list[float]] = {name: [] for name in parts}
        for _ in range(rounds // 10 if quick else rounds):
            for name, part in parts.items():
                start = time.perf_counter()
                part()
                seconds[name].append(time.perf_counter() - start)
        row = {f"{name}_us": round(1e6 * median(values) / n, 1) for name, values in seconds.items()}
        out.append({"n_bits": n_bits, "n_queries": n, "first_call_ms": round(1e3 * calibrated, 1), **row})
    return out


def processor() -> str:
    """The name of the processor."""
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")] \
        if info.exists() else []  # fmt: skip
    return names[0] if names else platform.processor()


def main(arguments: list[str]) -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short, and writes nothing")
    options = parser.parse_args(arguments)
    with threadpool_limits(1):
        rows = [row for n_bits in (384, 1024) for row in measure(n_bits, options.quick)]
    names = list(rows[0])
    print("   ".join(names))
    for row in rows:
        print("   ".join(f"{row[name]:>{len(name)}}" for name in names))
    if not options.quick:
        result = {"processor": processor(), "items": N_ITEMS, "microseconds_per_query": rows}
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
