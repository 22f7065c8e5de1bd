"""Other implementations of search, each as a function from queries and k to ids."""

from __future__ import annotations

from collections.abc import Callable

import faiss
import numpy as np
import usearch.index
from scipy.spatial.distance import cdist

Search = Callable[[np.ndarray, int], np.ndarray]


def flat(codes: np.ndarray) -> Search:
    """FAISS IndexBinaryFlat: exact, plain Hamming distance."""
    index = faiss.IndexBinaryFlat(8 * codes.shape[1])
    index.add(codes)
    return lambda queries, k: index.search(queries, k)[1]


def hnsw(codes: np.ndarray) -> tuple[faiss.IndexBinaryHNSW, Search]:
    """FAISS IndexBinaryHNSW, M = 16: approximate, plain Hamming distance; returned with its index, to set efSearch."""
    index = faiss.IndexBinaryHNSW(8 * codes.shape[1], 16)
    index.add(codes)
    return index, lambda queries, k: index.search(queries, k)[1]


def pq_fast_scan(codes: np.ndarray, weights: np.ndarray) -> Search:
    """FAISS IndexPQFastScan with the 16 values of four bits as centroids, scaled by the weights: approximate."""
    n_bits = 8 * codes.shape[1]
    index = faiss.IndexPQFastScan(n_bits, n_bits // 4, 4)
    bits = np.unpackbits(np.arange(16, dtype=np.uint8)[:, None], axis=1)[:, 4:].astype(np.float32)
    scale = np.sqrt(weights).reshape(-1, 1, 4)
    faiss.copy_array_to_vector(np.ascontiguousarray(bits * scale).ravel(), index.pq.centroids)
    index.is_trained = True
    scaled = lambda part: np.unpackbits(part, axis=1) * np.sqrt(weights)  # noqa: E731
    for part in np.array_split(codes, max(1, len(codes) // 200_000)):
        index.add(scaled(part))
    return lambda queries, k: index.search(scaled(queries), k)[1]


def pq_inner_product(codes: np.ndarray) -> Search:
    """FAISS IndexPQFastScan by inner product with the ±1 of the bits, the same bytes per code; queries are reals."""
    n_bits = 8 * codes.shape[1]
    index = faiss.IndexPQFastScan(n_bits, n_bits // 4, 4, faiss.METRIC_INNER_PRODUCT)
    values = 2 * np.unpackbits(np.arange(16, dtype=np.uint8)[:, None], axis=1)[:, 4:].astype(np.float32) - 1
    faiss.copy_array_to_vector(np.tile(values, (n_bits // 4, 1, 1)).ravel(), index.pq.centroids)
    index.is_trained = True
    return _add_signs(index, codes)


def rabitq(codes: np.ndarray) -> Search:
    """FAISS IndexRaBitQFastScan of the ±1 of the bits; queries are reals."""
    index = faiss.IndexRaBitQFastScan(8 * codes.shape[1], faiss.METRIC_INNER_PRODUCT)
    index.train(2 * np.unpackbits(codes[:20_000], axis=1).astype(np.float32) - 1)
    return _add_signs(index, codes)


def _add_signs(index: faiss.Index, codes: np.ndarray) -> Search:
    for part in np.array_split(codes, max(1, len(codes) // 100_000)):
        index.add(2 * np.unpackbits(part, axis=1).astype(np.float32) - 1)
    return lambda queries, k: index.search(queries, k)[1]


def usearch_exact(codes: np.ndarray, threads: int) -> Search:
    """USearch, exact: plain Hamming distance."""

    def search(queries: np.ndarray, k: int) -> np.ndarray:
        metric = usearch.index.MetricKind.Hamming
        return np.atleast_2d(usearch.index.search(codes, queries, k, metric, exact=True, threads=threads).keys)

    return search


def numpy_weighted(codes: np.ndarray, weights: np.ndarray) -> Search:
    """NumPy: xor, unpack, multiply."""

    def search(queries: np.ndarray, k: int) -> np.ndarray:
        distances = np.stack([np.unpackbits(codes ^ query, axis=1) @ weights for query in queries])
        return np.argpartition(distances, k, axis=1)[:, :k]

    return search


def scipy_weighted(codes: np.ndarray, weights: np.ndarray) -> Search:
    """SciPy cdist(..., "hamming", w=weights) on unpacked bits."""
    bits = np.unpackbits(codes, axis=1).astype(bool)

    def search(queries: np.ndarray, k: int) -> np.ndarray:
        distances = cdist(np.unpackbits(queries, axis=1).astype(bool), bits, "hamming", w=weights.astype(float))
        return np.argpartition(distances, k, axis=1)[:, :k]

    return search


def read(codes: np.ndarray) -> Search:
    """Read every byte of the codes once: a lower bound for the time of a scan."""
    words = codes.reshape(-1).view(np.uint64)
    return lambda queries, k: np.array([words.sum() for _ in queries])
