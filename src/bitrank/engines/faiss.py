"""`FaissEngine`: learned weights on a FAISS binary index, one that is there already or a new one.

FAISS finds candidates by plain Hamming distance and they are ranked here; an exact search goes through `index_pq`,
which makes FAISS itself weigh the bits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt

from bitrank.checks import check_codes, check_ids, check_weights
from bitrank.codes import nearest, signs
from bitrank.engines.contract import Candidates, Closing, check_add, check_created, check_search
from bitrank.engines.planes import check_whole
from bitrank.engines.stages import rerank
from bitrank.lazy import import_extra
from bitrank.vocabulary import Codes, Ids, Results, Weights, n_bytes

# Queries whose candidates are fetched at once.
BATCH = 64


def index_pq(codes: Codes, n_bits: int, weights: npt.ArrayLike | None = None) -> Any:
    """A FAISS `IndexPQ` that ranks by weighted Hamming distance: its codes are ours, its centroids hold the weights.

    Each byte of a code is a code of one sub-quantiser, and the 256 centroids of a byte are its bits as minus and plus
    their weight. A query to it is `pq_queries`; its inner product with a code is the sum of all weights less twice
    the weighted distance. Weights that change are new centroids, the codes stay: see `set_pq_weights`.

    Parameters
    ----------
    codes : uint8 array of shape (n, ceil(n_bits / 8))
    n_bits : int
    weights : float array of shape (n_bits,), optional
        None is plain Hamming distance.

    Examples
    --------
    >>> from bitrank.codes import pack
    >>> index = index_pq(pack([[1, 0, 1], [1, 1, 0], [0, 0, 1]]), 3, weights=[4, 2, 1])
    >>> products, rows = index.search(pq_queries(pack([[1, 0, 0]]), 3), 2)
    >>> rows, (4 + 2 + 1 - products) / 2
    (array([[0, 1]]), array([[1., 2.]], dtype=float32))
    """
    faiss = import_extra("faiss", "faiss")
    codes = check_codes(codes, n_bits)
    width = n_bytes(n_bits)
    index = faiss.IndexPQ(8 * width, width, 8, faiss.METRIC_INNER_PRODUCT)
    index.is_trained = True
    set_pq_weights(index, n_bits, weights)
    index.add_sa_codes(codes)
    return index


def set_pq_weights(index: Any, n_bits: int, weights: npt.ArrayLike | None) -> None:
    """Give an index of `index_pq` other weights; they take effect at the next search.

    Examples
    --------
    >>> from bitrank.codes import pack
    >>> index = index_pq(pack([[1, 0, 1], [1, 1, 0]]), 3, weights=[4, 2, 1])
    >>> set_pq_weights(index, 3, [4, 1, 2])
    >>> index.search(pq_queries(pack([[1, 0, 0]]), 3), 1)[1]
    array([[1]])
    """
    faiss = import_extra("faiss", "faiss")
    row = np.ones(n_bits, np.float32) if weights is None else check_weights(weights, n_bits)
    if row.ndim != 1:
        raise ValueError(f"weights of an index must be one vector of {n_bits}, got shape {row.shape}")
    padded = np.zeros((n_bytes(n_bits), 1, 8), np.float32)
    padded.reshape(-1)[:n_bits] = row
    values = signs(np.arange(256, dtype=np.uint8)[:, None], 8)
    faiss.copy_array_to_vector((padded * values).ravel(), index.pq.centroids)


def pq_queries(queries: Codes, n_bits: int, weights: npt.ArrayLike | None = None) -> npt.NDArray[np.float32]:
    """Query codes as vectors for an index of `index_pq`; weights given here are multiplied with those of the index.

    Examples
    --------
    >>> from bitrank.codes import pack
    >>> pq_queries(pack([[1, 0, 1]]), 3)
    array([[ 1., -1.,  1.,  0.,  0.,  0.,  0.,  0.]], dtype=float32)
    """
    codes = check_codes(queries, n_bits, name="queries")
    vectors = np.zeros((len(codes), 8 * codes.shape[1]), np.float32)
    vectors[:, :n_bits] = signs(codes, n_bits)
    if weights is not None:
        vectors[:, :n_bits] *= check_weights(weights, n_bits, n_queries=len(codes))
    return vectors


class FaissEngine(Closing):
    """Codes in a FAISS binary index; the methods are those of `Engine`.

    Parameters
    ----------
    source : str or faiss.IndexBinary
        ``faiss://`` for a new one in memory, ``faiss:///path/to/file`` for a file, which every change rewrites, or the
        index itself: `IndexBinaryFlat`, `IndexBinaryHNSW` or `IndexBinaryIVF`, alone or in an `IndexBinaryIDMap`.
    name : str
        Not used: a file holds one index.
    n_bits : int, optional
        Bits of a code; those of the index by default, which are whole bytes.

    Examples
    --------
    >>> import faiss
    >>> from bitrank.codes import pack
    >>> mine = faiss.IndexBinaryFlat(8)
    >>> mine.add(pack([[1, 0, 1], [1, 1, 0], [0, 0, 1]]))
    >>> FaissEngine(mine, n_bits=3).search(pack([[1, 0, 0]]), k=2, weights=[4, 2, 1], candidates=3).ids
    array([[0, 1]])
    """

    def __init__(self, source: Any, name: str = "codes", *, n_bits: int | None = None) -> None:
        self._faiss = import_extra("faiss", "faiss")
        self._path: Path | None = None
        self._n_bits = 0
        self._index: Any = None
        self._kept: Any = None
        self._pq: tuple[Any, Ids] | None = None
        if isinstance(source, str):
            parts = urlsplit(source)
            if parts.netloc:
                raise ValueError(f"the address must be faiss:// or faiss:///path/to/file, got {source!r}")
            self._path = Path(unquote(parts.path)) if parts.path else None
            if self._path is not None and self._path.exists():
                self._use(self._read(self._path), n_bits)
        else:
            self._use(source, n_bits)

    @property
    def n_bits(self) -> int:
        """Bits of a code."""
        self._made()
        return self._n_bits

    def create(self, n_bits: int) -> None:
        """Make a flat index with ids, unless there is an index of codes of as many bytes."""
        n_bits = check_created(n_bits)
        if self._index is not None:
            return self._use(self._kept, n_bits)
        flat = self._faiss.IndexBinaryFlat(8 * n_bytes(n_bits))
        self._use(self._faiss.IndexBinaryIDMap2(flat), n_bits)
        return self._changed()

    def add(self, codes: Codes, ids: npt.ArrayLike) -> None:
        """Add codes, or replace them; an index without ids takes only those that follow its last row."""
        inner, named = self._made()
        codes, checked = check_add(codes, ids, self._n_bits)
        if isinstance(inner, self._faiss.IndexBinaryIVF):
            self._index.remove_ids(checked)
        elif named is None:
            if not np.array_equal(checked, np.arange(inner.ntotal, inner.ntotal + len(checked))):
                raise ValueError(f"ids of an index without an IDMap must go on from {inner.ntotal}, got others")
            inner.add(codes)
            return self._changed()
        elif np.isin(checked, named).any():
            self._remove(checked)
        self._index.add_with_ids(codes, checked)
        return self._changed()

    def remove(self, ids: npt.ArrayLike) -> None:
        """Remove what is there of these ids."""
        self._made()
        self._remove(check_ids(ids))
        self._changed()

    def optimize(self) -> None:
        """Nothing to do: an index is what its maker chose."""
        self._made()

    def search(
        self, queries: npt.NDArray[Any], k: int, weights: npt.ArrayLike | None = None, candidates: Candidates = None
    ) -> Results:
        """The k nearest codes of each query."""
        self._made()
        codes, rows, n_candidates = check_search(queries, k, weights, candidates, self._n_bits)
        if n_candidates is None:
            return self._exact(codes, check_whole(rows), k)
        return rerank(codes, self._fetch(codes, n_candidates), k, rows, self._n_bits)

    def count(self) -> int:
        """Number of codes."""
        self._made()
        return int(self._index.ntotal)

    def close(self) -> None:
        """Let go of the index."""
        self._index = self._kept = self._pq = None

    def _made(self) -> tuple[Any, Ids | None]:
        """The index that holds the codes, and the ids of its rows, if they have any."""
        if self._index is None:
            raise ValueError("there is no index yet: make it with create(n_bits)")
        index = self._index
        if isinstance(index, (self._faiss.IndexBinaryIDMap, self._faiss.IndexBinaryIDMap2)):
            return self._faiss.downcast_IndexBinary(index.index), self._faiss.vector_to_array(index.id_map)
        return index, None

    def _use(self, index: Any, n_bits: int | None) -> None:
        if not isinstance(index, self._faiss.IndexBinary):
            raise ValueError(f"source must be an address or a faiss.IndexBinary, got {type(index)}")
        n_bits = index.d if n_bits is None else check_created(n_bits)
        if 8 * n_bytes(n_bits) != index.d:
            raise ValueError(f"an index of codes of {n_bits} bits was expected, got one of {index.d}")
        # What is downcast does not keep its memory: the index as it came does.
        self._kept, self._index, self._n_bits = index, self._faiss.downcast_IndexBinary(index), n_bits

    def _read(self, path: Path) -> Any:
        try:
            return self._faiss.read_index_binary(os.fspath(path))
        except RuntimeError as error:
            raise ValueError(f"{path} must be a FAISS binary index: {error}") from None

    def _changed(self) -> None:
        """What was computed from the codes is void, and the file is replaced in one step."""
        self._pq = None
        if self._path is not None:
            beside = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
            self._faiss.write_index_binary(self._index, os.fspath(beside))
            beside.replace(self._path)

    def _remove(self, ids: Ids) -> None:
        inner, named = self._made()
        if named is None and not isinstance(inner, self._faiss.IndexBinaryIVF):
            raise ValueError("rows of an index without an IDMap cannot be removed: the others would change their ids")
        try:
            self._index.remove_ids(ids)
        except RuntimeError:
            raise ValueError(f"{type(inner).__name__} of FAISS cannot remove or replace codes") from None

    def _fetch(self, queries: Codes, n_candidates: int) -> Iterator[tuple[Ids, Codes]]:
        """Ids and codes of the nearest by plain Hamming distance, one query after the other."""
        inner, named = self._made()
        n = min(n_candidates, int(inner.ntotal))
        pointer = self._faiss.swig_ptr
        for start in range(0, len(queries), BATCH):
            asked = np.ascontiguousarray(queries[start : start + BATCH])
            counts, rows = np.empty((len(asked), n), np.int32), np.empty((len(asked), n), np.int64)
            codes = np.empty((len(asked), n, queries.shape[1]), np.uint8)
            if n:
                inner.search_and_reconstruct(
                    len(asked), pointer(asked), n, pointer(counts), pointer(rows), pointer(codes)
                )
            for row, found in zip(rows, codes, strict=True):
                there = row >= 0
                yield (row if named is None else named[row])[there], found[there]

    def _exact(self, queries: Codes, weights: Weights, k: int) -> Results:
        """All codes by weight, in FAISS; it does not say which of equals it returns, so all of them are fetched."""
        if self._pq is None:
            inner, named = self._made()
            if isinstance(inner, self._faiss.IndexBinaryIVF):
                raise ValueError("an exact search needs codes in order, as in IndexBinaryFlat, got an IndexBinaryIVF")
            codes = inner.reconstruct_n(0, inner.ntotal) if inner.ntotal else np.empty((0, queries.shape[1]), np.uint8)
            self._pq = index_pq(codes, self._n_bits), np.arange(len(codes)) if named is None else named
        index, ids = self._pq
        out = Results(np.full((len(queries), k), -1, np.int64), np.full((len(queries), k), np.inf, np.float32))
        if not len(ids):
            return out
        vectors = pq_queries(queries, self._n_bits, weights)
        least = index.search(vectors, min(k, len(ids)))[0][:, -1]
        for at, vector in enumerate(vectors):
            # Products are whole numbers.
            _, products, rows = index.range_search(vector[None], float(least[at]) - 0.5)
            distances = (weights[at].sum() - products) / 2
            out.ids[at : at + 1], out.distances[at : at + 1] = nearest(ids[rows][None], distances[None], k)
        return out
