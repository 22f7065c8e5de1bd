"""`FaissEngine`: learned weights on a FAISS binary index, the caller's or a new one; and weights inside FAISS.

FAISS finds candidates by plain Hamming distance. It ranks exactly through `index_pq`, an index whose centroids are the
weights.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_codes, check_weights
from bitrank.core.codes import signs
from bitrank.core.lazy import import_extra
from bitrank.core.types import Codes, Ids, Weights, n_bytes
from bitrank.engines.local import LocalEngine
from bitrank.engines.stages import Fetched

# Queries whose candidates are fetched at once.
BATCH = 64


def index_pq(codes: Codes, n_bits: int, weights: npt.ArrayLike | None = None) -> Any:
    """Build a FAISS `IndexPQ` that ranks by weighted Hamming distance: the codes as they are, the weights as centroids.

    Each byte of a code is the code of one sub-quantiser, whose 256 centroids are the byte's bits as plus and minus
    their weight. Query it with `pq_queries`: the inner product with a code is the sum of all weights less twice the
    weighted distance. New weights are new centroids for the same codes: see `set_pq_weights`.

    Parameters
    ----------
    codes : uint8 array of shape (n, ceil(n_bits / 8))
    n_bits : int
    weights : float array of shape (n_bits,), optional
        None is plain Hamming distance.

    Examples
    --------
    >>> from bitrank.core.codes import pack
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
    """Set the weights of an index of `index_pq`, from the next search on.

    Examples
    --------
    >>> from bitrank.core.codes import pack
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
    """Turn query codes into vectors for an index of `index_pq`; `weights` multiply those of the index.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> pq_queries(pack([[1, 0, 1]]), 3)
    array([[ 1., -1.,  1.,  0.,  0.,  0.,  0.,  0.]], dtype=float32)
    """
    codes = check_codes(queries, n_bits, name="queries")
    vectors = np.zeros((len(codes), 8 * codes.shape[1]), np.float32)
    vectors[:, :n_bits] = signs(codes, n_bits)
    if weights is not None:
        vectors[:, :n_bits] *= check_weights(weights, n_bits, n_queries=len(codes))
    return vectors


class FaissEngine(LocalEngine):
    """Codes in a FAISS binary index.

    Parameters
    ----------
    source : str or faiss.IndexBinary
        ``faiss://`` for a new index in memory, ``faiss:///path/to/file`` for a file that every change rewrites, or an
        index: `IndexBinaryFlat`, `IndexBinaryHNSW` or `IndexBinaryIVF`, alone or in an `IndexBinaryIDMap`.
    name : str
        Ignored: a file holds one index.
    n_bits : int, optional
        Bits per code; by default those of the index, which are whole bytes.

    Examples
    --------
    >>> import faiss
    >>> from bitrank.core.codes import pack
    >>> index = faiss.IndexBinaryFlat(8)
    >>> index.add(pack([[1, 0, 1], [1, 1, 0], [0, 0, 1]]))
    >>> FaissEngine(index, n_bits=3).search(pack([[1, 0, 0]]), k=2, weights=[4, 2, 1]).ids
    array([[0, 1]])
    """

    _scheme = "faiss"

    def __init__(self, source: Any, name: str = "codes", *, n_bits: int | None = None) -> None:
        self._faiss = import_extra("faiss", "faiss")
        self._pq: tuple[Any, Ids] | None = None
        super().__init__(source, n_bits)

    def _add(self, codes: Codes, ids: Ids) -> None:
        """Add codes; an index without ids takes only ids that follow its last row."""
        inner, row_ids = self._inner()
        if isinstance(inner, self._faiss.IndexBinaryIVF):
            self._downcast().remove_ids(ids)
        elif row_ids is None:
            if not np.array_equal(ids, np.arange(inner.ntotal, inner.ntotal + len(ids))):
                raise ValueError(f"ids of an index without an IDMap must continue from {inner.ntotal}, got others")
            inner.add(codes)
            self._save()
            return
        elif np.isin(ids, row_ids).any():
            self._drop(ids)
        self._downcast().add_with_ids(codes, ids)
        self._save()

    def _count(self) -> int:
        return int(self._open().ntotal)

    def close(self) -> None:
        """Let go of the index."""
        super().close()
        self._pq = None

    def _fetch(self, codes: Codes, n: int) -> Iterator[Fetched]:
        inner, row_ids = self._inner()
        n = min(n, int(inner.ntotal))
        pointer = self._faiss.swig_ptr
        for start in range(0, len(codes), BATCH):
            batch = np.ascontiguousarray(codes[start : start + BATCH])
            counts, rows = np.empty((len(batch), n), np.int32), np.empty((len(batch), n), np.int64)
            nearest_codes = np.empty((len(batch), n, codes.shape[1]), np.uint8)
            if n:
                inner.search_and_reconstruct(
                    len(batch), pointer(batch), n, pointer(counts), pointer(rows), pointer(nearest_codes)
                )
            for query_rows, query_codes in zip(rows, nearest_codes, strict=True):
                hits = query_rows >= 0
                yield (query_rows if row_ids is None else row_ids[query_rows])[hits], query_codes[hits]

    def _scan(self, codes: Codes, weights: Weights, n: int) -> Iterator[Fetched]:
        index, ids = self._weighted()
        stored = self._faiss.rev_swig_ptr(index.codes.data(), index.codes.size()).reshape(-1, codes.shape[1])
        vectors = pq_queries(codes, self._n_bits, weights)
        least = index.search(vectors, min(n, len(ids)))[0][:, -1] if len(ids) else np.zeros(len(codes))
        for vector, product in zip(vectors, least, strict=True):
            # FAISS chooses among ties, so fetch all of them; products are whole numbers.
            _, products, rows = index.range_search(vector[None], float(product) - 0.5)
            order = np.lexsort((ids[rows], -products))[:n]
            yield ids[rows[order]], stored[rows[order]]

    def _ids(self) -> Ids:
        inner, row_ids = self._inner()
        if not isinstance(inner, self._faiss.IndexBinaryIVF):
            return np.arange(inner.ntotal) if row_ids is None else row_ids
        ids = np.concatenate([np.empty(0, np.int64), *(ids for ids, _ in self._lists(inner))])
        return ids if row_ids is None else row_ids[ids]

    def _lookup(self, ids: Ids) -> Fetched:
        inner, row_ids = self._inner()
        width = n_bytes(self._n_bits)
        if isinstance(inner, self._faiss.IndexBinaryIVF):
            parts = [(np.empty(0, np.int64), np.empty((0, width), np.uint8))]
            for rows, codes in self._lists(inner):
                stored = rows if row_ids is None else row_ids[rows]
                wanted = np.isin(stored, ids)
                parts.append((stored[wanted], codes[wanted]))
            found, found_codes = zip(*parts, strict=True)
            return np.concatenate(found), np.concatenate(found_codes)
        rows = ids[ids < inner.ntotal] if row_ids is None else np.flatnonzero(np.isin(row_ids, ids))
        out = np.empty((len(rows), width), np.uint8)
        for place, row in enumerate(rows.tolist()):
            out[place] = inner.reconstruct(row)
        return rows if row_ids is None else row_ids[rows], out

    def _lists(self, inner: Any) -> Iterator[Fetched]:
        """Ids and codes in each list of an IVF that holds any."""
        lists, width = inner.invlists, n_bytes(self._n_bits)
        for number in range(lists.nlist):
            size = lists.list_size(number)
            if size:
                codes = self._faiss.rev_swig_ptr(lists.get_codes(number), size * width).reshape(size, width)
                yield self._faiss.rev_swig_ptr(lists.get_ids(number), size).copy(), codes

    def _weighted(self) -> tuple[Any, Ids]:
        """An index of `index_pq` with the same rows, kept until the next change, and the ids of its rows."""
        if self._pq is None:
            inner, row_ids = self._inner()
            if isinstance(inner, self._faiss.IndexBinaryIVF):
                raise ValueError('method must be "rerank" for an IndexBinaryIVF, whose rows have no order, got "exact"')
            empty = np.empty((0, n_bytes(self._n_bits)), np.uint8)
            codes = inner.reconstruct_n(0, inner.ntotal) if inner.ntotal else empty
            self._pq = index_pq(codes, self._n_bits), np.arange(len(codes)) if row_ids is None else row_ids
        return self._pq

    def _downcast(self) -> Any:
        # The result does not own its memory: self._index does.
        return self._faiss.downcast_IndexBinary(self._open())

    def _inner(self) -> tuple[Any, Ids | None]:
        """The index that holds the codes, and the ids of its rows where an IDMap has them."""
        index = self._downcast()
        if isinstance(index, (self._faiss.IndexBinaryIDMap, self._faiss.IndexBinaryIDMap2)):
            return self._faiss.downcast_IndexBinary(index.index), self._faiss.vector_to_array(index.id_map)
        return index, None

    def _new(self, n_bits: int) -> Any:
        return self._faiss.IndexBinaryIDMap2(self._faiss.IndexBinaryFlat(n_bits))

    def _bits_of(self, index: Any) -> int:
        if not isinstance(index, self._faiss.IndexBinary):
            raise ValueError(f"source must be an address or a faiss.IndexBinary, got {type(index)}")
        return int(index.d)

    def _read(self, path: Path) -> Any:
        try:
            return self._faiss.read_index_binary(os.fspath(path))
        except RuntimeError as error:
            raise ValueError(f"{path} must be a FAISS binary index: {error}") from None

    def _write(self, path: str) -> None:
        self._faiss.write_index_binary(self._open(), path)

    def _save(self) -> None:
        self._pq = None
        super()._save()

    def _drop(self, ids: Ids) -> None:
        inner, row_ids = self._inner()
        if row_ids is None and not isinstance(inner, self._faiss.IndexBinaryIVF):
            raise ValueError("rows of an index without an IDMap cannot be removed: the others would change their ids")
        try:
            self._downcast().remove_ids(ids)
        except RuntimeError:
            raise ValueError(f"{type(inner).__name__} of FAISS cannot remove or replace codes") from None
