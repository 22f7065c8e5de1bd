"""`evaluate`: tie-aware measures over a Dask array of codes, from counts instead of a matrix of distances.

Beside the path of data at scale: the figures are those of `metrics.evaluate` on the whole matrix, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
import numpy.typing as npt

from bitrank.batch.blocks import blocks, check_codes, check_column, merged
from bitrank.checks import check_codes as check_queries
from bitrank.checks import check_weights
from bitrank.codes import distances
from bitrank.metrics import means_of, values_of
from bitrank.ties import Groups, Ints
from bitrank.vocabulary import Codes, Weights

Labels = npt.NDArray[Any]
Keys = npt.NDArray[np.uint64]

# Distances of relevant items that are held at a time, about 0.5 GB with their counts; queries beyond wait their turn.
MOST_VALUES = 1 << 24


class _Asked(NamedTuple):
    """Some queries, with a row of weights each or none at all."""

    queries: Codes
    labels: Labels
    weights: Weights | None


def evaluate(
    codes: da.Array,
    y: da.Array,
    queries: Codes,
    query_y: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    *,
    n_bits: int | None = None,
    ks: Sequence[int] = (10, 100),
) -> dict[str, float]:
    """MAP, VOC-11 and precision of a ranking of the whole collection, in expectation over ties.

    Parameters
    ----------
    codes : Dask array of uint8, of shape (n, ceil(n_bits / 8))
    y : Dask array of shape (n,)
        Class of each item: those of the query's class are relevant.
    queries : uint8 array of shape (n_queries, ceil(n_bits / 8))
    query_y : array-like of shape (n_queries,)
    weights : float array of shape (n_bits,) or (n_queries, n_bits), optional
        None is plain Hamming distance.
    n_bits : int, optional
        Eight a byte of `codes` by default.
    ks : sequence of int
        Cut-offs of the precision.

    Returns
    -------
    dict of float
        ``map``, ``voc11``, and ``p10``, ``p100``, … for the cut-offs: means over the queries with a relevant item.

    Notes
    -----
    Every block is read twice for each lot of queries: for the distances at which relevant items stand, and for the
    number of items nearer than those. A lot has as many queries as hold 16 million relevant items among them, or
    16 million different distances, where plain Hamming distance or whole weights allow fewer.

    Examples
    --------
    >>> from bitrank.codes import pack
    >>> codes = da.from_array(pack([[1, 0], [1, 1], [0, 0], [0, 1]]), chunks=(2, 1))
    >>> y = da.from_array(np.array([1, 1, 0, 0]), chunks=2)
    >>> evaluate(codes, y, pack([[1, 0]]), [1], ks=[2], n_bits=2)["p2"]
    0.75
    """
    codes, n_bits = check_codes(codes, n_bits)
    y = check_column(y, "y", codes)
    asked = _check(queries, query_y, weights, n_bits)
    pairs = list(zip(blocks(codes), blocks(y), strict=True))
    n_relevant = merged([dask.delayed(_count)(labels, asked.labels) for _, labels in pairs], _sum)
    values = []
    for lot in _lots(np.minimum(n_relevant, _most_distances(asked.weights, n_bits))):
        part = _Asked(asked.queries[lot], asked.labels[lot], None if asked.weights is None else asked.weights[lot])
        values.append(values_of(_groups(pairs, part, len(codes)), ks))
    return means_of(values, ks)


def _check(queries: Codes, query_y: npt.ArrayLike, weights: npt.ArrayLike | None, n_bits: int) -> _Asked:
    queries, labels = check_queries(queries, n_bits, name="queries"), np.asarray(query_y)
    if len(queries) == 0 or labels.shape != (len(queries),):
        raise ValueError(
            f"query_y must hold one label for each of the {len(queries)} queries, at least one, got {labels.shape}"
        )
    if weights is None:
        return _Asked(queries, labels, None)
    rows = check_weights(weights, n_bits, n_queries=len(queries))
    return _Asked(queries, labels, np.broadcast_to(rows, (len(queries), n_bits)))


def _lots(n_values: Ints) -> Iterator[slice]:
    """Queries with at most so many values together, or one query."""
    start = 0
    while start < len(n_values):
        stop = start + max(1, int(np.searchsorted(np.cumsum(n_values[start:]), MOST_VALUES, side="right")))
        yield slice(start, stop)
        start = stop


def _most_distances(weights: Weights | None, n_bits: int) -> float:
    """How many different distances there can be: few where they are whole numbers."""
    if weights is None:
        return n_bits + 1
    return float(weights.sum(axis=1, dtype=np.float64).max()) + 1 if (weights == np.round(weights)).all() else np.inf


def _groups(pairs: list[tuple[Any, Any]], asked: _Asked, n: int) -> Groups:
    """The groups of tied items, of all blocks, that hold a relevant one."""
    shared = dask.delayed(asked, traverse=False)
    keys, count = merged([dask.delayed(_relevant)(*pair, shared) for pair in pairs], _merge)
    known = dask.delayed(keys, traverse=False)
    start, end = merged([dask.delayed(_places)(block, shared, known) for block, _ in pairs], _sum)
    row = (keys >> np.uint64(32)).astype(np.int64)
    bounds = np.searchsorted(row, np.arange(len(asked.queries) + 1))
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


def _count(labels: Labels, wanted: Labels) -> Ints:
    names, counts = np.unique(labels, return_counts=True)
    found = np.searchsorted(names, wanted).clip(max=len(names) - 1)
    return np.where(names[found] == wanted, counts[found], 0) if len(names) else np.zeros(len(wanted), np.int64)


def _relevant(codes: Codes, labels: Labels, asked: _Asked) -> tuple[Keys, Ints]:
    """Distances of this block's relevant items, as keys of query and distance, and how many have each."""
    parts = [
        np.unique(_bits(asked, number, codes[labels == label]), return_counts=True)
        for number, label in enumerate(asked.labels)
    ]
    row = np.repeat(np.arange(len(parts), dtype=np.uint64), [len(bits) for bits, _ in parts])
    keys = (row << np.uint64(32)) | np.concatenate([bits for bits, _ in parts])
    return keys, np.concatenate([counts for _, counts in parts])


def _places(codes: Codes, asked: _Asked, keys: Keys) -> Ints:
    """For each key, how many items of this block are nearer than its distance, and how many no farther."""
    bounds = np.searchsorted(keys, np.arange(len(asked.queries) + 1, dtype=np.uint64) << np.uint64(32))
    out = np.empty((2, len(keys)), np.int64)
    for number in range(len(asked.queries)):
        mine = slice(bounds[number], bounds[number + 1])
        values = (keys[mine] & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        found = np.sort(_bits(asked, number, codes))
        out[:, mine] = np.searchsorted(found, values), np.searchsorted(found, values, side="right")
    return out


def _bits(asked: _Asked, number: int, codes: Codes) -> npt.NDArray[np.uint32]:
    """Distances of one query as the bits of float32, which are in the order of the distances: none is negative."""
    if len(codes) == 0:
        return np.empty(0, np.uint32)
    weights = None if asked.weights is None else asked.weights[number]
    found = distances(asked.queries[number : number + 1], codes, weights, threads=1)[0]
    bits: npt.NDArray[np.uint32] = found.astype(np.float32, copy=False).view(np.uint32)
    return bits


def _merge(parts: list[tuple[Keys, Ints]]) -> tuple[Keys, Ints]:
    keys = np.concatenate([part[0] for part in parts])
    counts = np.concatenate([part[1] for part in parts])
    order = np.argsort(keys, kind="stable")
    keys, first = np.unique(keys[order], return_index=True)
    return keys, np.add.reduceat(counts[order], first) if len(first) else counts


def _sum(parts: list[Any]) -> Any:
    return np.sum(parts, axis=0)
