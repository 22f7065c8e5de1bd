"""The random sets of ann-benchmarks, run here by its protocol: bitrank, FAISS, USearch and brute force.

`make bench-ann` draws the sets as ann-benchmarks draws them (Hamming, angular and Euclidean), times single queries on
one thread, takes the best of five runs, and counts as found what is no farther than the tenth neighbour. It writes
benchmarks/results/ann.json, docs/pictures/ann.png and docs/pictures/ann_vectors.png.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faiss
import matplotlib
import numpy as np
from module import Bitrank, BitrankVectors
from sklearn.datasets import make_blobs
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits
from usearch.index import Index as USearchIndex

from bitrank.core.checks import n_threads

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "ann.json"
# Dimensions, rows, and centres of the blobs; as many queries of bits.
SETS = {
    "random-xs-16-hamming": (16, 10_000, 100),
    "random-s-128-hamming": (128, 50_000, 1000),
    "random-l-256-hamming": (256, 100_000, 1000),
    "random-xs-20-angular": (20, 10_000, 100),
    "random-s-100-angular": (100, 100_000, 1000),
    "random-xs-20-euclidean": (20, 10_000, 100),
    "random-s-100-euclidean": (100, 100_000, 1000),
}
BITS = (1, 2, 4, 6, 8)
MOST_QUERIES = 1000  # of the tenth of the rows that ann-benchmarks asks for angular and Euclidean sets
COUNT = 10
RUNS = 5


class FaissFlat:
    """FAISS' exact search."""

    name = "FAISS flat"

    def fit(self, X: np.ndarray) -> None:
        """Build the index."""
        self.index = faiss.IndexBinaryFlat(X.shape[1])
        self.index.add(np.packbits(X, axis=1))

    def query(self, q: np.ndarray, n: int) -> np.ndarray:
        """Find the n nearest rows."""
        return self.index.search(np.packbits(q)[None], n)[1][0]


class FaissHNSW(FaissFlat):
    """FAISS' graph, at several widths of its search."""

    def __init__(self, width: int) -> None:
        self.name, self.width = "FAISS HNSW", width

    def fit(self, X: np.ndarray) -> None:
        """Build the graph."""
        self.index = faiss.IndexBinaryHNSW(X.shape[1], 16)
        self.index.hnsw.efConstruction = 200
        self.index.add(np.packbits(X, axis=1))

    def set_width(self, width: int) -> None:
        """Choose how many candidates a search keeps."""
        self.index.hnsw.efSearch = width


class USearch:
    """USearch's graph, at several widths of its search."""

    name = "USearch HNSW"

    def fit(self, X: np.ndarray) -> None:
        """Build the graph."""
        self.index = USearchIndex(ndim=X.shape[1], metric="hamming", dtype="b1", connectivity=16)
        self.index.add(np.arange(len(X)), np.packbits(X, axis=1))

    def set_width(self, width: int) -> None:
        """Choose how many candidates a search keeps."""
        self.index.expansion_search = width

    def query(self, q: np.ndarray, n: int) -> np.ndarray:
        """Find the n nearest rows."""
        return self.index.search(np.packbits(q), n).keys


class FaissVectors:
    """FAISS' exact search of floats."""

    name, metric = "FAISS flat", faiss.METRIC_L2

    def fit(self, X: np.ndarray) -> None:
        """Build the index."""
        self.index = faiss.IndexFlat(X.shape[1], self.metric)
        self.index.add(X)

    def query(self, q: np.ndarray, n: int) -> np.ndarray:
        """Find the n nearest rows."""
        return self.index.search(q[None], n)[1][0]


class FaissVectorsHNSW(FaissVectors):
    """FAISS' graph of floats."""

    name = "FAISS HNSW"

    def fit(self, X: np.ndarray) -> None:
        """Build the graph."""
        self.index = faiss.IndexHNSWFlat(X.shape[1], 16, self.metric)
        self.index.hnsw.efConstruction = 200
        self.index.add(X)

    def set_width(self, width: int) -> None:
        """Choose how many candidates a search keeps."""
        self.index.hnsw.efSearch = width


class FaissRaBitQ(FaissVectors):
    """FAISS' RaBitQ after a random rotation."""

    def __init__(self, bits: int) -> None:
        self.name, self.bits = f"FAISS RaBitQ({bits} bits per dimension)", bits

    def fit(self, X: np.ndarray) -> None:
        """Build the index."""
        d = X.shape[1]
        quantiser = faiss.IndexRaBitQ(d, self.metric, self.bits)
        self.index = faiss.IndexPreTransform(faiss.RandomRotationMatrix(d, d), quantiser)
        self.index.train(X)
        self.index.add(X)


class BruteForce:
    """NumPy's population count of all rows."""

    name = "NumPy"

    def fit(self, X: np.ndarray) -> None:
        """Pack the rows into words."""
        self.words = np.packbits(X, axis=1).view(np.uint64 if X.shape[1] % 64 == 0 else np.uint16)

    def query(self, q: np.ndarray, n: int) -> np.ndarray:
        """Find the n nearest rows."""
        distances = np.bitwise_count(self.words ^ np.packbits(q).view(self.words.dtype)).sum(axis=1)
        return np.argpartition(distances, n)[:n]


def draw(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Blobs, or their signs, as ann-benchmarks draws them; of length 1 for angular sets."""
    n_dimensions, n, centers = SETS[name]
    blobs, _ = make_blobs(n_samples=n, n_features=n_dimensions, centers=centers, random_state=1)
    if name.endswith("hamming"):
        return tuple(train_test_split(blobs > 0, test_size=centers, random_state=1))
    train, test = (np.float32(part) for part in train_test_split(blobs, test_size=0.1, random_state=1))
    if name.endswith("angular"):
        train, test = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (train, test))
    return train, test[:MOST_QUERIES]


def distances(rows: np.ndarray, query: np.ndarray) -> np.ndarray:
    """How far rows are from a query: bits that differ, or Euclidean, which orders rows of length 1 as angles do."""
    if rows.dtype == bool:
        return (rows != query).sum(axis=1)
    return np.linalg.norm(rows - query, axis=1)


def measure(algorithm: Any, train: np.ndarray, test: np.ndarray, limits: np.ndarray) -> dict[str, float]:
    """Queries per second, one by one, and recall."""
    best, found = np.inf, []
    for _ in range(RUNS):
        found, seconds = [], 0.0
        for query in test:
            start = time.perf_counter()
            rows = algorithm.query(query, COUNT)
            seconds += time.perf_counter() - start
            found.append(rows)
        best = min(best, seconds)
    hits = [
        distances(train[rows.astype(np.int64)], query) <= limit
        for rows, query, limit in zip(found, test, limits, strict=True)
    ]
    return {"recall": float(np.mean(hits)), "queries_per_second": len(test) / best}


def points(name: str, train: np.ndarray, test: np.ndarray, widths: list[int]) -> Iterator[dict[str, Any]]:
    """Every algorithm at every setting."""
    limits = np.array([np.partition(distances(train, query), COUNT - 1)[COUNT - 1] for query in test])
    if train.dtype == bool:
        algorithms = [Bitrank(), FaissFlat(), BruteForce(), FaissHNSW(16), USearch()]
    else:
        limits += 1e-3  # as ann-benchmarks has it
        metric = name.rpartition("-")[2]
        algorithms = [BitrankVectors(metric, bits) for bits in BITS] + [FaissRaBitQ(bits) for bits in (1, 2, 4, 8)]
        algorithms += [FaissVectors(), FaissVectorsHNSW()]
    for algorithm in algorithms:
        faiss.omp_set_num_threads(n_threads())
        start = time.perf_counter()
        algorithm.fit(train)
        build = time.perf_counter() - start
        for width in widths if hasattr(algorithm, "set_width") else [None]:
            if width is not None:
                algorithm.set_width(width)
            faiss.omp_set_num_threads(1)
            figures = measure(algorithm, train, test, limits)
            yield {"set": name, "algorithm": algorithm.name, "width": width, "build_seconds": build, **figures}


def frontier(rows: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those that no other beats in recall and in speed, as ann-benchmarks draws them."""
    return sorted(a for a in rows if not any(b != a and b[0] >= a[0] and b[1] >= a[1] for b in rows))


def picture(records: list[dict[str, Any]], path: Path) -> None:
    """Draw queries per second against recall, one panel per set; squares are exact."""
    names = list(dict.fromkeys(record["set"] for record in records))
    records = [{**record, "algorithm": record["algorithm"].partition("(")[0]} for record in records]
    figure, axes = plt.subplots(1, len(names), figsize=(4.2 * len(names), 3.4), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        for algorithm in dict.fromkeys(record["algorithm"] for record in records):
            rows = [
                (r["recall"], r["queries_per_second"])
                for r in records
                if (r["set"], r["algorithm"]) == (name, algorithm)
            ]
            marker = "o" if len(rows) > 1 else "s"
            axis.plot(*zip(*frontier(rows), strict=True), marker=marker, label=algorithm, alpha=0.8)
        axis.set(title=name, xlabel="recall@10", yscale="log")
    axes[0, 0].set_ylabel("queries per second, one thread")
    axes[0, 0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--widths", nargs="+", type=int, default=[10, 20, 40, 80, 160, 320])
    parser.add_argument("--picture", action="store_true", help="draw what was measured, and measure nothing")
    options = parser.parse_args()
    if options.picture:
        options.sets = []
    records = []
    with threadpool_limits(1):
        for name in options.sets:
            for record in points(name, *draw(name), options.widths):
                records.append(record)
                print({k: round(v, 4) if isinstance(v, float) else v for k, v in record.items()}, flush=True)
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    records = [record for record in kept if record["set"] not in options.sets] + records
    records.sort(key=lambda record: list(SETS).index(record["set"]))
    RESULTS.write_text(json.dumps(records, indent=1) + "\n")
    for file, wanted in (("ann", True), ("ann_vectors", False)):
        some = [record for record in records if record["set"].endswith("hamming") == wanted]
        if some:
            picture(some, ROOT / "docs" / "pictures" / f"{file}.png")


if __name__ == "__main__":
    main()
