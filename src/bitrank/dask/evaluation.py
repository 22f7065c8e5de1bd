"""`evaluate`: tie-aware measures over a Dask array of codes, from counts instead of a matrix of distances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_count, check_queries
from bitrank.core.codes import distances
from bitrank.core.metrics import means_of, values_of
from bitrank.core.ties import Groups, Ints
from bitrank.core.types import AnyQueries, Codes, Weights
from bitrank.dask.blocks import blocks, check_column, check_dask_codes, merged

Labels = npt.NDArray[Any]
Keys = npt.NDArray[np.uint64]

_sum = partial(np.sum, axis=0)
# Distances of relevant items per pass over the codes: about 0.5 GB with their counts.
MAX_VALUES = 1 << 24


class _Batch(NamedTuple):
    """Queries of one pass, with one row of weights each, or without weights."""

    codes: Codes
    labels: Labels
    weights: Weights | None


def evaluate(
    codes: da.Array,
    y: da.Array,
    queries: AnyQueries,
    query_y: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    *,
    n_bits: int | None = None,
    ks: Sequence[int] = (10, 100),
) -> dict[str, float]:
    """Compute MAP, VOC-11 and precision of a ranking of the whole collection, in expectation over ties.

    The figures equal those of `metrics.evaluate` on the whole matrix of distances, to the last bit.

    Parameters
    ----------
    codes : Dask array of uint8, of shape (n, ceil(n_bits / 8))
    y : Dask array of shape (n,)
        Class of each item; items of the query's class are relevant.
    queries : Queries, uint8 array of shape (n_queries, ceil(n_bits / 8)), or float array (n_queries, n_bits)
        As in `Index.search`.
    query_y : array-like of shape (n_queries,)
    weights : float array of shape (n_bits,) or (n_queries, n_bits), optional
        None is plain Hamming distance; must be None for `Queries`.
    n_bits : int, optional
        Eight per byte of `codes` by default.
    ks : sequence of int
        Cut-offs of the precision.

    Returns
    -------
    dict of float
        ``map``, ``voc11``, and ``p10``, ``p100``, … for the cut-offs: means over the queries with a relevant item.

    Notes
    -----
    Every block is read twice per batch of queries: for the distances of relevant items, and for the number of items
    nearer than those. A batch has at most 16 million relevant items, or, where plain Hamming distance or whole-number
    weights allow fewer, 16 million different distances.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> codes = da.from_array(pack([[1, 0], [1, 1], [0, 0], [0, 1]]), chunks=(2, 1))
    >>> y = da.from_array(np.array([1, 1, 0, 0]), chunks=2)
    >>> evaluate(codes, y, pack([[1, 0]]), [1], ks=[2], n_bits=2)["p2"]
    0.75
    """
    codes, n_bits = check_dask_codes(codes, n_bits)
    y = check_column(y, "y", codes)
    ks = [check_count("k", k, 1) for k in ks]
    everything = _check(queries, query_y, weights, n_bits)
    pairs = list(zip(blocks(codes), blocks(y), strict=True))
    n_relevant = merged([dask.delayed(_count)(labels, everything.labels) for _, labels in pairs], _sum)
    values = []
    for rows in _batches(np.minimum(n_relevant, _max_distances(everything.weights, n_bits))):
        weights_of_rows = None if everything.weights is None else everything.weights[rows]
        batch = _Batch(everything.codes[rows], everything.labels[rows], weights_of_rows)
        values.append(values_of(_groups(pairs, batch, len(codes)), ks))
    return means_of(values, ks)


def _check(queries: AnyQueries, query_y: npt.ArrayLike, weights: npt.ArrayLike | None, n_bits: int) -> _Batch:
    codes, rows = check_queries(queries, weights, n_bits)
    labels = np.asarray(query_y)
    if len(codes) == 0 or labels.shape != (len(codes),):
        raise ValueError(
            f"query_y must hold one label for each of the {len(codes)} queries, at least one, got {labels.shape}"
        )
    if weights is None and getattr(queries, "dtype", None) == np.uint8:
        return _Batch(codes, labels, None)
    return _Batch(codes, labels, np.broadcast_to(rows, (len(codes), n_bits)))


def _batches(n_values: Ints) -> Iterator[slice]:
    """Runs of queries with at most MAX_VALUES values, or of one query."""
    start = 0
    while start < len(n_values):
        stop = start + max(1, int(np.searchsorted(np.cumsum(n_values[start:]), MAX_VALUES, side="right")))
        yield slice(start, stop)
        start = stop


def _max_distances(weights: Weights | None, n_bits: int) -> float:
    """Largest possible number of different distances: few where they are whole numbers."""
    if weights is None:
        return n_bits + 1
    return float(weights.sum(axis=1, dtype=np.float64).max()) + 1 if (weights == np.round(weights)).all() else np.inf


def _groups(pairs: list[tuple[Any, Any]], batch: _Batch, n: int) -> Groups:
    """Groups of tied items, over all blocks, that hold a relevant one."""
    shared = dask.delayed(batch, traverse=False)
    keys, count = merged([dask.delayed(_relevant)(*pair, shared) for pair in pairs], _merge)
    known = dask.delayed(keys, traverse=False)
    start, end = merged([dask.delayed(_places)(block, shared, known) for block, _ in pairs], _sum)
    row = (keys >> np.uint64(32)).astype(np.int64)
    bounds = np.searchsorted(row, np.arange(len(batch.codes) + 1))
    before = np.concatenate([[0], np.cumsum(count)])
    totals = np.diff(before[bounds])
    return Groups(
        n=n,
        totals=np.where(totals > 0, totals, np.nan),
        row=row,
        start=start,
        end=end,
        hits=before[:-1] - before[bounds[row]],
        count=count,
        bounds=bounds,
    )


def _count(labels: Labels, query_labels: Labels) -> Ints:
    """Number of relevant items of this block per query."""
    names, counts = np.unique(labels, return_counts=True)
    if len(names) == 0:
        return np.zeros(len(query_labels), np.int64)
    places = np.searchsorted(names, query_labels).clip(max=len(names) - 1)
    return np.where(names[places] == query_labels, counts[places], 0)


def _relevant(codes: Codes, labels: Labels, batch: _Batch) -> tuple[Keys, Ints]:
    """Distances of this block's relevant items as keys of query and distance, and the number of items per key."""
    parts = [
        np.unique(_bits(batch, number, codes[labels == label]), return_counts=True)
        for number, label in enumerate(batch.labels)
    ]
    row = np.repeat(np.arange(len(parts), dtype=np.uint64), [len(bits) for bits, _ in parts])
    keys = (row << np.uint64(32)) | np.concatenate([bits for bits, _ in parts])
    return keys, np.concatenate([counts for _, counts in parts])


def _places(codes: Codes, batch: _Batch, keys: Keys) -> Ints:
    """Per key, the number of items of this block that are nearer than its distance, and of those no farther."""
    bounds = np.searchsorted(keys, np.arange(len(batch.codes) + 1, dtype=np.uint64) << np.uint64(32))
    out = np.empty((2, len(keys)), np.int64)
    for number in range(len(batch.codes)):
        query_keys = slice(bounds[number], bounds[number + 1])
        values = (keys[query_keys] & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        ordered = np.sort(_bits(batch, number, codes))
        out[:, query_keys] = np.searchsorted(ordered, values), np.searchsorted(ordered, values, side="right")
    return out


def _bits(batch: _Batch, number: int, codes: Codes) -> npt.NDArray[np.uint32]:
    """Distances of one query as the bits of float32, which have the order of the distances: none is negative."""
    if len(codes) == 0:
        return np.empty(0, np.uint32)
    weights = None if batch.weights is None else batch.weights[number]
    row = distances(batch.codes[number : number + 1], codes, weights, threads=1)[0]
    bits: npt.NDArray[np.uint32] = row.astype(np.float32, copy=False).view(np.uint32)
    return bits


def _merge(parts: list[tuple[Keys, Ints]]) -> tuple[Keys, Ints]:
    keys = np.concatenate([part[0] for part in parts])
    counts = np.concatenate([part[1] for part in parts])
    order = np.argsort(keys, kind="stable")
    keys, first = np.unique(keys[order], return_index=True)
    return keys, np.add.reduceat(counts[order], first) if len(first) else counts
