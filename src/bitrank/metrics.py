"""How good a ranking is: average precision, precision, recall, PR curves, VOC-11, nDCG and the mass of ties.

Everything is judged from a matrix of distances, in expectation over the order of items at equal distances, since a
ranking by binary codes ties most items; the gate, the demo and the experiments all measure with this module.

Conventions that hold for every function here:

- `distances` has one row a query and one column an item, small is near; any real dtype without NaN. Two items are
  tied when their distances are equal exactly.
- `relevant` is a boolean matrix of the same shape.
- A query without any relevant item says nothing about a ranking: its value is NaN, and means leave it out. A mean
  over no query at all is a ValueError.
- `k` larger than the collection stands for the whole collection.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.ties import Floats, Groups, Ints, by_chunk, check_distances, check_no_nan, check_pair, dense_ranks

# Entries of a table of harmonic numbers: 64 MB.
_TABLE = 1 << 23


def average_precision(distances: npt.ArrayLike, relevant: npt.ArrayLike) -> Floats:
    """Average precision of every query: the mean over every order of the tied items, in closed form.

    Parameters
    ----------
    distances : array of shape (n_queries, n)
    relevant : bool array of shape (n_queries, n)

    Returns
    -------
    float64 array of shape (n_queries,)
        NaN for a query without relevant items.

    References
    ----------
    F. McSherry and M. Najork: Computing information retrieval performance measures efficiently in the presence of
    tied scores. ECIR 2008.

    Examples
    --------
    >>> average_precision([[0, 1, 2]], [[True, False, True]]).round(3)
    array([0.833])
    >>> average_precision([[0, 0]], [[True, False]])  # the mean of 1 and 1/2
    array([0.75])
    """
    return np.concatenate(by_chunk(_average_precision, distances, relevant))


def mean_average_precision(distances: npt.ArrayLike, relevant: npt.ArrayLike) -> float:
    """Mean of `average_precision` over the queries that have a relevant item.

    Examples
    --------
    >>> mean_average_precision([[0, 1], [0, 0]], [[False, True], [True, False]])
    0.625
    """
    return _mean(average_precision(distances, relevant))


def precision_at(distances: npt.ArrayLike, relevant: npt.ArrayLike, k: int) -> Floats:
    """Expected share of relevant items among the first `k`, for every query.

    Parameters
    ----------
    distances : array of shape (n_queries, n)
    relevant : bool array of shape (n_queries, n)
    k : int
        At least 1; more than n stands for n, in the divisor as well.

    Returns
    -------
    float64 array of shape (n_queries,)
        NaN for a query without relevant items.

    Examples
    --------
    >>> precision_at([[0, 1, 1, 2]], [[True, True, False, False]], k=2)
    array([0.75])
    """
    k = _check_k(k)
    distances, relevant = check_pair(distances, relevant)
    check_no_nan(distances)
    k = min(k, distances.shape[1])
    # Not a sort: all that counts is who is nearer than the k-th item, and who is as far.
    rim = np.partition(distances, k - 1, axis=1)[:, k - 1 : k]
    nearer, tied = distances < rim, distances == rim
    places = k - nearer.sum(axis=1)
    hits = (nearer & relevant).sum(axis=1) + places * (tied & relevant).sum(axis=1) / tied.sum(axis=1)
    return np.where(relevant.any(axis=1), hits / k, np.nan)


def recall_at(distances: npt.ArrayLike, relevant: npt.ArrayLike, k: int) -> Floats:
    """Expected share of the relevant items that are among the first `k`, for every query (see `precision_at`).

    Examples
    --------
    >>> recall_at([[0, 1, 1, 2]], [[True, True, False, True]], k=2)
    array([0.5])
    """
    k = _check_k(k)
    return np.concatenate(by_chunk(lambda groups: _expected_hits(groups, k) / groups.totals, distances, relevant))


def precision_recall(distances: npt.ArrayLike, relevant: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Precision and recall at every rank, from the expected number of relevant items among the first i.

    Returns
    -------
    precision, recall : float64 arrays of shape (n_queries, n)
        Column i - 1 is rank i. Rows of NaN for a query without relevant items.

    Examples
    --------
    >>> precision, recall = precision_recall([[0, 1, 1]], [[True, True, False]])
    >>> precision.round(3), recall
    (array([[1.   , 0.75 , 0.667]]), array([[0.5 , 0.75, 1.  ]]))
    """
    hits, totals = (np.concatenate(part) for part in zip(*by_chunk(_all_hits, distances, relevant), strict=True))
    recall = hits / totals[:, None]
    hits /= np.arange(1, hits.shape[1] + 1)
    hits[np.isnan(totals)] = np.nan
    return hits, recall


def mean_precision_recall(distances: npt.ArrayLike, relevant: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Mean PR curve: precision and recall at every rank, each averaged over the queries that have a relevant item.

    Returns
    -------
    precision, recall : float64 arrays of shape (n,)

    Examples
    --------
    >>> precision, recall = mean_precision_recall([[0, 1], [1, 0]], [[True, False], [True, True]])
    >>> precision, recall
    (array([1.  , 0.75]), array([0.75, 1.  ]))
    """
    return _mean_curve(by_chunk(_curve_sums, distances, relevant))


def voc11(distances: npt.ArrayLike, relevant: npt.ArrayLike) -> Floats:
    """Eleven-point interpolated average precision (VOC 2007) of every query, from its expected PR curve.

    The mean over recall 0, 0.1, ..., 1 of the best precision at or beyond that recall; NaN for a query without
    relevant items.

    Examples
    --------
    >>> voc11([[0, 1, 2, 3]], [[True, False, False, True]]).round(3)  # 1 up to recall 0.5, then 1/2
    array([0.773])
    """
    return np.concatenate(by_chunk(_voc11, distances, relevant))


def authors_map(distances: npt.ArrayLike, relevant: npt.ArrayLike) -> float:
    """The figure that Feng, Liu and Wang report as MAP: one number from the mean PR curve, not a mean over queries.

    The sum over recall 0, 0.1, ..., 0.9 of the best precision of the mean curve at or beyond that recall, divided
    by eleven; a perfect ranking therefore gets 10/11. For comparison with their tables only.

    Examples
    --------
    >>> round(authors_map([[0, 1, 2, 3]], [[True, True, False, False]]), 3)
    0.909
    """
    return _authors_map(*mean_precision_recall(distances, relevant))


def ndcg_at(distances: npt.ArrayLike, gains: npt.ArrayLike, k: int) -> Floats:
    """Normalised discounted cumulative gain of the first `k`, in expectation over ties, for every query.

    Parameters
    ----------
    distances : array of shape (n_queries, n)
    gains : array of shape (n_queries, n)
        What finding an item is worth: finite, not negative; booleans are 0 and 1. Used as they are (linear gain).
    k : int
        At least 1; more than n stands for n.

    Returns
    -------
    float64 array of shape (n_queries,)
        The gain at rank i is divided by log2(i + 1), the sum by that of the best order. NaN for a query whose gains
        are all zero.

    Examples
    --------
    >>> ndcg_at([[0, 1, 1]], [[0, 3, 1]], k=3).round(3)
    array([0.623])
    """
    distances, gains = check_distances(distances), np.asarray(gains)
    if gains.dtype.kind not in "buif" or gains.shape != distances.shape:
        raise ValueError(
            f"gains must be real numbers of the shape of distances, {distances.shape}, "
            f"got {gains.dtype} of shape {gains.shape}"
        )
    gains = gains.astype(np.float64)
    if not np.isfinite(gains).all() or (gains < 0).any():
        raise ValueError("gains must be finite and not negative")
    n = distances.shape[1]
    discounts = 1 / np.log2(np.arange(2, n + 2))
    discounts[_check_k(k) :] = 0
    ranks = dense_ranks(distances)
    offsets = np.arange(len(ranks))[:, None] * n
    # A group of ties shares the discounts of its places: each item gets their mean.
    sizes = np.bincount((ranks + offsets).ravel(), minlength=ranks.size)
    in_order = np.sort(ranks + offsets, axis=None)
    shared = np.bincount(in_order, np.tile(discounts, len(ranks)), minlength=ranks.size) / np.maximum(sizes, 1)
    found = np.einsum("qi,qi->q", gains, shared[ranks + offsets])
    best = -np.sort(-gains, axis=1) @ discounts
    quotient: Floats = np.divide(found, best, out=np.full(len(ranks), np.nan), where=best > 0)
    return quotient


def tie_mass(distances: npt.ArrayLike, k: int) -> Floats:
    """Mass of ties among the first `k`: the share of the first k places that do not decide their own order.

    A place counts when its item is at the same distance as at least one other item of the collection, among the
    first k or beyond them. 0 means that the order is decided by the distances alone, 1 that no place is.

    Examples
    --------
    >>> tie_mass([[0, 1, 1, 2], [0, 1, 2, 2]], k=3).round(3)
    array([0.667, 0.333])
    """
    distances, k = check_distances(distances), _check_k(k)
    n = distances.shape[1]
    k = min(k, n)
    check_no_nan(distances)
    # The (k+1)-th smallest is enough to know whether the k-th is tied.
    head = distances if k + 1 >= n else np.partition(distances, k, axis=1)[:, : k + 1]
    head = np.sort(head, axis=1)
    same = head[:, 1:] == head[:, :-1]
    tied = np.zeros(head.shape, bool)
    tied[:, 1:] |= same
    tied[:, :-1] |= same
    mass: Floats = tied[:, :k].mean(axis=1)
    return mass


def evaluate(distances: npt.ArrayLike, relevant: npt.ArrayLike, ks: Sequence[int] = (10, 100)) -> dict[str, float]:
    """All the means at once, from one sort.

    Parameters
    ----------
    distances : array of shape (n_queries, n)
    relevant : bool array of shape (n_queries, n)
    ks : sequence of int
        Cut-offs of the precision.

    Returns
    -------
    dict of float
        ``map``, ``voc11``, ``authors_map``, and ``p10``, ``p100``, … for the cut-offs.

    Examples
    --------
    >>> evaluate([[0, 1, 1, 2]], [[True, True, False, False]], ks=[1, 2])["p2"]
    0.75
    """
    cuts = [_check_k(k) for k in ks]
    parts = by_chunk(lambda groups: (values_of(groups, cuts), _curve_sums(groups)), distances, relevant)
    means = means_of([part[0] for part in parts], cuts)
    return means | {"authors_map": _authors_map(*_mean_curve([part[1] for part in parts]))}


def values_of(groups: Groups, ks: Sequence[int]) -> Floats:
    """Average precision, VOC-11, and the precision at each cut-off: one row a measure, one column a query."""
    return np.stack([_average_precision(groups), _voc11(groups), *(_precision(groups, _check_k(k)) for k in ks)])


def means_of(parts: Sequence[Floats], ks: Sequence[int]) -> dict[str, float]:
    """The means over queries of what `values_of` gave for parts of them, by name."""
    names = ["map", "voc11", *(f"p{k}" for k in ks)]
    return {name: _mean(row) for name, row in zip(names, np.concatenate(parts, axis=1), strict=True)}


def _average_precision(groups: Groups) -> Floats:
    # In a group of size m with r relevant items, a place i holds a relevant one with probability r/m, and then
    # (i - start - 1) (r - 1)/(m - 1) others are expected before it in the group. Sums of 1/i are harmonic numbers.
    size = groups.end - groups.start
    at_start, at_end = _harmonic(np.stack([groups.start, groups.end]), groups.n)
    inverse = at_end - at_start
    slope = (groups.count - 1) / np.maximum(size - 1, 1)
    gain = (groups.hits + 1) * inverse + slope * (size - (groups.start + 1) * inverse)
    return np.bincount(groups.row, gain * groups.count / size, minlength=len(groups.totals)) / groups.totals


def _harmonic(numbers: Ints, n: int) -> Floats:
    """Harmonic numbers up to the n-th; a table of a bounded length at a time, for n may exceed the memory."""
    out = np.empty(numbers.shape)
    last = 0.0
    for first in range(0, n + 1, _TABLE):
        table = np.cumsum(np.concatenate([[last], 1 / np.arange(first + 1, min(first + _TABLE, n) + 1)]))
        if n <= _TABLE:
            return table[numbers]
        here = (numbers >= first) & (numbers < first + _TABLE)
        out[here] = table[numbers[here] - first]
        last = table[-1]
    return out


def _expected_hits(groups: Groups, k: int) -> Floats:
    """Expected number of relevant items among the first k of each query."""
    size = groups.end - groups.start
    inside: Floats = np.clip(k - groups.start, 0, size) * groups.count / size
    return np.bincount(groups.row, inside, minlength=len(groups.totals)).astype(np.float64, copy=False)


def _precision(groups: Groups, k: int) -> Floats:
    return np.where(np.isnan(groups.totals), np.nan, _expected_hits(groups, k) / min(k, groups.n))


def _all_hits(groups: Groups) -> tuple[Floats, Floats]:
    """Expected number of relevant items among the first i, for every i and query; and their totals."""
    density, stride = groups.count / (groups.end - groups.start), groups.n + 1
    steps = np.bincount(groups.row * stride + groups.start, density, minlength=len(groups.totals) * stride)
    steps -= np.bincount(groups.row * stride + groups.end, density, minlength=len(steps))
    return np.cumsum(np.cumsum(steps.reshape(-1, stride)[:, :-1], axis=1), axis=1), groups.totals


def _curve_sums(groups: Groups) -> tuple[Floats, int]:
    """Expected relevant items at every rank, summed over queries: as they are, and divided by the query's total."""
    density = groups.count / (groups.end - groups.start)
    sums = np.empty((2, groups.n))
    for out, weight in zip(sums, (density, density / groups.totals[groups.row]), strict=True):
        out[:] = np.bincount(groups.start, weight, minlength=groups.n)
        out -= np.bincount(groups.end, weight, minlength=groups.n + 1)[:-1]
    return np.cumsum(sums, axis=1), int(np.isfinite(groups.totals).sum())


def _mean_curve(parts: Sequence[tuple[Floats, int]]) -> tuple[Floats, Floats]:
    sums, n_queries = sum(part[0] for part in parts), sum(part[1] for part in parts)
    if n_queries == 0:
        raise ValueError("at least one query must have a relevant item, got none")
    hits, recall = np.cumsum(sums, axis=1) / n_queries
    return hits / np.arange(1, len(hits) + 1), recall


def _voc11(groups: Groups) -> Floats:
    # Within a group the expected precision is monotone, and the same formula holds at the end of the group before:
    # its maxima are at ends of groups, and at the rank where the recall asked for is reached. All in integers, as
    # 0.3 * 10 relevant items must be 3.
    at_end = (groups.hits + groups.count) / groups.end
    found = np.full(len(groups.totals), np.nan)
    for query, total in enumerate(groups.totals):
        if np.isnan(total):
            continue
        mine = slice(groups.bounds[query], groups.bounds[query + 1])
        best = np.maximum.accumulate(at_end[mine][::-1])[::-1]
        start, size = groups.start[mine], groups.end[mine] - groups.start[mine]
        hits, count = groups.hits[mine], groups.count[mine]
        wanted = np.arange(1, 11) * int(total)  # ten times the hits at recall 0.1, ..., 1
        group = np.searchsorted(hits + count, -(-wanted // 10))
        start, size, hits, count = start[group], size[group], hits[group], count[group]
        places = -(-(wanted - 10 * hits) * size // (10 * count))
        there = (hits + places * count / size) / (start + places)
        found[query] = (best[0] + np.maximum(best[group], there).sum()) / 11
    return found


def _authors_map(precision: Floats, recall: Floats) -> float:
    best = np.maximum.accumulate(precision[::-1])[::-1]
    # The tolerance keeps a recall that is 0.3 but for rounding on its own side.
    return float(best[np.searchsorted(recall, np.arange(10) / 10 - 1e-9)].sum() / 11)


def _mean(values: Floats) -> float:
    values = values[~np.isnan(values)]
    if len(values) == 0:
        raise ValueError("at least one query must have a relevant item, got none")
    return float(values.mean())


def _check_k(k: Any) -> int:
    if not isinstance(k, Integral) or k < 1:
        raise ValueError(f"k must be an int of at least 1, got {k!r}")
    return int(k)
