"""The random Hamming sets of ann-benchmarks, run here by its protocol: bitrank, FAISS, USearch and brute force.

`make bench-ann` draws the sets as ann-benchmarks draws them, times single queries on one thread, takes the best of five
runs, and counts as found what is no farther than the tenth neighbour. It writes
benchmarks/results/ann.json and docs/pictures/ann.png.
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
from module import Bitrank
from sklearn.datasets import make_blobs
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits
from usearch.index import Index as USearchIndex

from bitrank.core.checks import n_threads

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "ann.json"
SETS = {"random-xs-16": (16, 10_000, 100), "random-s-128": (128, 50_000, 1000), "random-l-256": (256, 100_000, 1000)}
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


def draw(n_bits: int, n: int, n_queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Signs of blobs, as ann-benchmarks draws them."""
    blobs, _ = make_blobs(n_samples=n, n_features=n_bits, centers=n_queries, random_state=1)
    return tuple(train_test_split(blobs > 0, test_size=n_queries, random_state=1))


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
        (train[rows.astype(np.int64)] != query).sum(axis=1) <= limit
        for rows, query, limit in zip(found, test, limits, strict=True)
    ]
    return {"recall": float(np.mean(hits)), "queries_per_second": len(test) / best}


def points(name: str, train: np.ndarray, test: np.ndarray, widths: list[int]) -> Iterator[dict[str, Any]]:
    """Every algorithm at every setting."""
    exact = BruteForce()
    exact.fit(train)
    limits = np.array([np.partition((train != query).sum(axis=1), COUNT - 1)[COUNT - 1] for query in test])
    for algorithm in (Bitrank(), FaissFlat(), exact, FaissHNSW(16), USearch()):
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
        axis.set(title=f"{name}-hamming", xlabel="recall@10", yscale="log")
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
            for record in points(name, *draw(*SETS[name]), options.widths):
                records.append(record)
                print({k: round(v, 4) if isinstance(v, float) else v for k, v in record.items()}, flush=True)
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    records = [record for record in kept if record["set"] not in options.sets] + records
    records.sort(key=lambda record: list(SETS).index(record["set"]))
    RESULTS.write_text(json.dumps(records, indent=1) + "\n")
    picture(records, ROOT / "docs" / "pictures" / "ann.png")


if __name__ == "__main__":
    main()
