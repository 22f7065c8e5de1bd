"""Rankings as groups of tied items, from one fast sort of many queries at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from bitrank import _kernel
from bitrank.core.checks import n_threads

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
T = TypeVar("T")

# Elements per chunk: the sort and the passes after it stay in the cache.
_CHUNK = 1 << 18


@dataclass
class Groups:
    """Sorted queries as groups of tied items. Groups without a relevant item are left out: they add nothing."""

    n: int  # items per query
    totals: Floats  # (n_queries,) relevant items per query, NaN for none
    row: Ints  # (n_groups,) query of the group
    start: Ints  # items of the query before the group
    end: Ints  # items of the query up to the group's end
    hits: Ints  # relevant items of the query before the group
    count: Ints  # relevant items in the group
    bounds: Ints  # (n_queries + 1,) first group of each query


def _groups(distances: npt.NDArray[Any], relevant: npt.NDArray[np.bool_]) -> Groups:
    keys = np.ascontiguousarray(_keys(distances, relevant))
    keys.sort(axis=1)
    n_rows, n = keys.shape
    groups = np.empty((5, np.count_nonzero(relevant)), np.int64)
    bounds, totals = np.empty(n_rows + 1, np.int64), np.empty(n_rows, np.int64)
    n_groups = _kernel.tied_groups(keys, groups, bounds, totals)
    row, start, end, hits, count = groups[:, :n_groups]
    return Groups(n, np.where(totals > 0, totals, np.nan), row, start, end, hits, count, bounds)


def _keys(distances: npt.NDArray[Any], relevant: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Unsigned integers in the order of the distances, equal where those are, with relevance as the lowest bit.

    NumPy sorts integers several times faster than it sorts indirectly. The bits of floats that are not negative have
    their order, and the unused sign bit makes room for the relevance.
    """
    if distances.dtype.kind == "f" and distances.dtype.itemsize <= 8:
        real = distances.astype(np.float32) if distances.dtype.itemsize == 2 else distances
        # Adding zero makes -0.0 equal to 0.0.
        bits: npt.NDArray[Any] = (real + real.dtype.type(0)).view(np.uint32 if real.dtype.itemsize == 4 else np.uint64)
        if bits.max() > real.dtype.type(np.inf).view(bits.dtype):  # negative, or NaN
            bits = dense_ranks(distances).astype(np.uint32)
    elif distances.dtype.kind != "f" and distances.min() >= 0 and distances.max() < 2**31:
        bits = distances.astype(np.uint32)
    else:
        bits = dense_ranks(distances).astype(np.uint32)
    np.left_shift(bits, bits.dtype.type(1), out=bits)
    np.bitwise_or(bits, relevant, out=bits)
    return bits


def dense_ranks(distances: npt.NDArray[Any]) -> Ints:
    """Rank of each item's distance among the different distances of its row, from 0."""
    check_no_nan(distances)
    order = np.argsort(distances, axis=1)
    ordered = np.take_along_axis(distances, order, axis=1)
    ranks = np.zeros(distances.shape, np.int64)
    ranks[:, 1:] = np.cumsum(ordered[:, 1:] != ordered[:, :-1], axis=1)
    out = np.empty_like(ranks)
    np.put_along_axis(out, order, ranks, axis=1)
    return out


def by_chunk(function: Callable[[Groups], T], distances: npt.ArrayLike, relevant: npt.ArrayLike) -> list[T]:
    """Apply a function to the groups of a chunk of queries at a time, in threads: NumPy releases the GIL."""
    distances, relevant = check_pair(distances, relevant)
    n_queries, n = distances.shape
    step = max(1, _CHUNK // n)
    chunks = [slice(first, first + step) for first in range(0, n_queries, step)]

    def one(chunk: slice) -> T:
        return function(_groups(distances[chunk], relevant[chunk]))

    if len(chunks) == 1:
        return [one(chunks[0])]
    with ThreadPoolExecutor(n_threads()) as pool:
        return list(pool.map(one, chunks))


def by_rows(function: Callable[..., npt.NDArray[Any]], *matrices: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Apply a function to parts of the rows of matrices, one part per thread, and put the results together.

    Examples
    --------
    >>> by_rows(lambda rows: rows.max(axis=1), np.array([[1, 5], [7, 2]]))
    array([5, 7])
    """
    n_parts = n_threads() if matrices[0].size >= _CHUNK else 1
    if n_parts == 1:
        return function(*matrices)
    cuts = np.linspace(0, len(matrices[0]), n_parts + 1).astype(int)
    parts = [slice(first, end) for first, end in pairwise(cuts)]
    with ThreadPoolExecutor(n_parts) as pool:
        return np.concatenate(list(pool.map(lambda part: function(*(matrix[part] for matrix in matrices)), parts)))


def smallest_columns(values: npt.NDArray[Any], k: int) -> Ints:
    """Column numbers of the k smallest values of every row, ascending; of equal values the first.

    The order in which `numpy.argpartition` leaves them, and which of equal ones it takes, depends on the processor.

    Examples
    --------
    >>> smallest_columns(np.array([[3, 1, 2, 1, 2]]), 3)
    array([[1, 2, 3]])
    """
    return by_rows(lambda rows: _smallest_columns(rows, k), values)


def _smallest_columns(values: npt.NDArray[Any], k: int) -> Ints:
    limit = np.partition(values, k - 1, axis=1)[:, k - 1, None]
    taken = values <= limit
    if taken.sum() > k * len(values):
        tied = values == limit
        n_below = taken.sum(axis=1, keepdims=True) - tied.sum(axis=1, keepdims=True)
        taken &= ~tied | (np.cumsum(tied, axis=1) + n_below <= k)
    return np.nonzero(taken)[1].reshape(len(values), k)


def check_pair(distances: npt.ArrayLike, relevant: npt.ArrayLike) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Distances as a real matrix, and relevance as a boolean matrix of the same shape."""
    distances, relevant = check_distances(distances), np.asarray(relevant)
    if relevant.dtype != np.bool_ or relevant.shape != distances.shape:
        raise ValueError(
            f"relevant must be a bool array of the shape of distances, {distances.shape}, "
            f"got {relevant.dtype} of shape {relevant.shape}"
        )
    return distances, relevant


def check_distances(distances: npt.ArrayLike) -> npt.NDArray[Any]:
    """Distances as a real matrix that is not empty."""
    array = np.asarray(distances)
    if array.ndim != 2 or array.dtype.kind not in "buif":
        raise ValueError(
            f"distances must be a real matrix with one row per query, got {array.dtype} of shape {array.shape}"
        )
    if array.size == 0:
        raise ValueError(f"distances must hold at least one query and one item, got shape {array.shape}")
    return array


def check_no_nan(distances: npt.NDArray[Any]) -> None:
    """Refuse distances that are NaN, which have no order."""
    if np.isnan(distances).any():
        raise ValueError("distances must not be NaN")
