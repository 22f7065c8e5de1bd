"""Quality of a ranking: average precision, precision, recall, MRR, BEDROC, PR curves, VOC-11, nDCG, ties.

All measures are expectations over the order of items at equal distances, since binary codes tie most items. Conventions
of every function:

- `distances` has one row per query and one column per item, small is near; any real dtype without NaN. Two items are
  tied when their distances are exactly equal.
- `relevant` is a boolean matrix of the same shape.
- A query without relevant items has the value NaN, and means leave it out. A mean over no query is a ValueError.
- A `k` larger than the collection means the whole collection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_count
from bitrank.core.ties import Floats, Groups, Ints, by_chunk, check_distances, check_no_nan, dense_ranks

# Entries per table of harmonic numbers: 64 MB.
_TABLE = 1 << 23


def average_precision(distances: npt.ArrayLike, relevant: npt.ArrayLike) -> Floats:
    """Compute the average precision of every query: the mean over every order of the tied items, in closed form.

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
    """Compute the mean of `average_precision` over the queries that have a relevant item.

    Examples
    --------
    >>> mean_average_precision([[0, 1], [0, 0]], [[False, True], [True, False]])
    0.625
    """
    return mean_over_queries(average_precision(distances, relevant))


def precision_at(distances: npt.ArrayLike, relevant: npt.ArrayLike, k: int) -> Floats:
    """Compute the expected share of relevant items among the first `k` of every query.

    Parameters
    ----------
    distances : array of shape (n_queries, n)
    relevant : bool array of shape (n_queries, n)
    k : int
        At least 1; more than n means n, in the divisor as well.

    Returns
    -------
    float64 array of shape (n_queries,)
        NaN for a query without relevant items.

    Examples
    --------
    >>> precision_at([[0, 1, 1, 2]], [[True, True, False, False]], k=2)
    array([0.75])
    """
    k = check_count("k", k, 1)
    return np.concatenate(by_chunk(lambda groups: _precision(groups, k), distances, relevant))


def recall_at(distances: npt.ArrayLike, relevant: npt.ArrayLike, k: int) -> Floats:
    """Compute the expected share of the relevant items that are among the first `k` of every query.

    Examples
    --------
    >>> recall_at([[0, 1, 1, 2]], [[True, True, False, True]], k=2)
    array([0.5])
    """
    k = check_count("k", k, 1)
    shares = by_chunk(lambda groups: expected_hits(groups, k) / groups.totals, distances, relevant)
    return np.concatenate(shares)


def recall_before(distances: npt.ArrayLike, relevant: npt.ArrayLike, n_false: int) -> Floats:
    """Compute the expected share of the relevant items that come before the `n_false`-th other item of every query.

    Examples
    --------
    >>> recall_before([[0, 1, 2, 3]], [[True, False, True, False]], n_false=1)
    array([0.5])
    >>> recall_before([[0, 0]], [[True, False]], n_false=1)
    array([0.5])
    """
    n_false = check_count("n_false", n_false, 1)
    return np.concatenate(by_chunk(lambda groups: _recall_before(groups, n_false), distances, relevant))


def reciprocal_rank_at(distances: npt.ArrayLike, relevant: npt.ArrayLike, k: int) -> Floats:
    """Compute the expected reciprocal rank of the first relevant item of every query; 0 where it is beyond `k`.

    Examples
    --------
    >>> reciprocal_rank_at([[0, 1, 1], [0, 1, 2]], [[False, True, False], [False, False, True]], k=2)
    array([0.25, 0.  ])
    """
    k = check_count("k", k, 1)
    return np.concatenate(by_chunk(lambda groups: expected_reciprocal_rank(groups, k), distances, relevant))


def bedroc(distances: npt.ArrayLike, relevant: npt.ArrayLike, alpha: float = 20.0) -> Floats:
    """Compute BEDROC of every query: how early relevant items come, from 0 to 1; most of it is the first 1.6/α.

    References
    ----------
    J.-F. Truchon and C. Bayly: Evaluating virtual screening methods. J. Chem. Inf. Model. 47, 2007.

    Examples
    --------
    >>> bedroc([[0, 1, 2, 3], [3, 2, 1, 0]], [[True, False, False, False]] * 2).round(3)
    array([1., 0.])
    """
    return np.concatenate(by_chunk(lambda groups: _bedroc(groups, alpha), distances, relevant))


def precision_recall(distances: npt.ArrayLike, relevant: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Compute precision and recall at every rank, from the expected number of relevant items among the first i.

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
    parts = by_chunk(_hits_at_every_rank, distances, relevant)
    hits, totals = (np.concatenate(part) for part in zip(*parts, strict=True))
    recall = hits / totals[:, None]
    hits /= np.arange(1, hits.shape[1] + 1)
    hits[np.isnan(totals)] = np.nan
    return hits, recall


def mean_precision_recall(distances: npt.ArrayLike, relevant: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Compute the mean PR curve: precision and recall at every rank, averaged over queries with a relevant item.

    Returns
    -------
    precision, recall : float64 arrays of shape (n,)

    Examples
    --------
    >>> precision, recall = mean_precision_recall([[0, 1], [1, 0]], [[True, False], [True, True]])
    >>> precision, recall
    (array([1.  , 0.75]), array([0.75, 1.  ]))
    """
    parts = by_chunk(_curve_sums, distances, relevant)
    sums = np.sum([part for part, _ in parts], axis=0)
    hits, recall = sums / _at_least_one(sum(n_queries for _, n_queries in parts))
    return hits / np.arange(1, len(hits) + 1), recall


def voc11(distances: npt.ArrayLike, relevant: npt.ArrayLike) -> Floats:
    """Compute the eleven-point interpolated average precision (VOC 2007) of every query, from its expected PR curve.

    The mean over recall 0, 0.1, ..., 1 of the best precision at or beyond that recall; NaN for a query without
    relevant items.

    Examples
    --------
    >>> voc11([[0, 1, 2, 3]], [[True, False, False, True]]).round(3)  # 1 up to recall 0.5, then 1/2
    array([0.773])
    """
    return np.concatenate(by_chunk(_voc11, distances, relevant))


def ndcg_at(distances: npt.ArrayLike, gains: npt.ArrayLike, k: int) -> Floats:
    """Compute the normalised discounted cumulative gain of the first `k` of every query, in expectation over ties.

    Parameters
    ----------
    distances : array of shape (n_queries, n)
    gains : array of shape (n_queries, n)
        Gain of each item: finite, not negative, linear; booleans are 0 and 1.
    k : int
        At least 1; more than n means n.

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
    discounts[check_count("k", k, 1) :] = 0
    ranks = dense_ranks(distances)
    offsets = np.arange(len(ranks))[:, None] * n
    # Each item of a group of ties gets the mean discount of its places.
    sizes = np.bincount((ranks + offsets).ravel(), minlength=ranks.size)
    in_order = np.repeat(np.arange(ranks.size), sizes)
    shared = np.bincount(in_order, np.tile(discounts, len(ranks)), minlength=ranks.size) / np.maximum(sizes, 1)
    gained = np.einsum("qi,qi->q", gains, shared[ranks + offsets])
    best = -np.sort(-gains, axis=1) @ discounts
    quotient: Floats = np.divide(gained, best, out=np.full(len(ranks), np.nan), where=best > 0)
    return quotient


def tie_mass(distances: npt.ArrayLike, k: int) -> Floats:
    """Compute the mass of ties: the share of the first `k` places whose item is tied with another item.

    The other item may be among the first k or beyond. 0 means that the distances alone decide the order, 1 that they
    decide no place.

    Examples
    --------
    >>> tie_mass([[0, 1, 1, 2], [0, 1, 2, 2]], k=3).round(3)
    array([0.667, 0.333])
    """
    distances, k = check_distances(distances), check_count("k", k, 1)
    n = distances.shape[1]
    k = min(k, n)
    check_no_nan(distances)
    # The (k+1)-th smallest distance tells whether the k-th is tied.
    head = distances if k + 1 >= n else np.partition(distances, k, axis=1)[:, : k + 1]
    head = np.sort(head, axis=1)
    same = head[:, 1:] == head[:, :-1]
    tied = np.zeros(head.shape, bool)
    tied[:, 1:] |= same
    tied[:, :-1] |= same
    mass: Floats = tied[:, :k].mean(axis=1)
    return mass


def evaluate(distances: npt.ArrayLike, relevant: npt.ArrayLike, ks: Sequence[int] = (10, 100)) -> dict[str, float]:
    """Compute all means at once, from one sort.

    Parameters
    ----------
    distances : array of shape (n_queries, n)
    relevant : bool array of shape (n_queries, n)
    ks : sequence of int
        Cut-offs of the precision.

    Returns
    -------
    dict of float
        ``map``, ``voc11``, and ``p10``, ``p100``, … for the cut-offs.

    Examples
    --------
    >>> evaluate([[0, 1, 1, 2]], [[True, True, False, False]], ks=[1, 2])["p2"]
    0.75
    """
    cuts = [check_count("k", k, 1) for k in ks]
    return means_of(by_chunk(lambda groups: values_of(groups, cuts), distances, relevant), cuts)


# Closed forms over groups of ties ------------------------------------------------------------------------------------


def values_of(groups: Groups, ks: Sequence[int]) -> Floats:
    """Average precision, VOC-11 and the precision at each cut-off: one row per measure, one column per query."""
    return np.stack([_average_precision(groups), _voc11(groups), *(_precision(groups, k) for k in ks)])


def means_of(parts: Sequence[Floats], ks: Sequence[int]) -> dict[str, float]:
    """Means over queries of the parts that `values_of` returned, by name."""
    names = ["map", "voc11", *(f"p{k}" for k in ks)]
    return {name: mean_over_queries(row) for name, row in zip(names, np.concatenate(parts, axis=1), strict=True)}


def mean_over_queries(values: Floats) -> float:
    """Mean over the queries that have a relevant item; there must be one."""
    values = values[~np.isnan(values)]
    _at_least_one(len(values))
    return float(values.mean())


def _at_least_one(n_queries: int) -> int:
    if n_queries == 0:
        raise ValueError("at least one query must have a relevant item, got none")
    return n_queries


def _average_precision(groups: Groups) -> Floats:
    """Average precision of every query (McSherry and Najork 2008)."""
    # In a group of size m with r relevant items, place i holds a relevant one with probability r/m, and then
    # (i - start - 1) (r - 1)/(m - 1) others are expected before it in the group. Sums of 1/i are harmonic numbers.
    size = groups.end - groups.start
    at_start, at_end = _harmonic(np.stack([groups.start, groups.end]), groups.n)
    inverse = at_end - at_start
    slope = (groups.count - 1) / np.maximum(size - 1, 1)
    gain = (groups.hits + 1) * inverse + slope * (size - (groups.start + 1) * inverse)
    return np.bincount(groups.row, gain * groups.count / size, minlength=len(groups.totals)) / groups.totals


def _harmonic(numbers: Ints, n: int) -> Floats:
    """Harmonic numbers up to the n-th, from tables of bounded length: one of n entries may exceed the memory."""
    out = np.empty(numbers.shape)
    last = 0.0
    for first in range(0, n + 1, _TABLE):
        table = np.cumsum(np.concatenate([[last], 1 / np.arange(first + 1, min(first + _TABLE, n) + 1)]))
        if n <= _TABLE:
            return table[numbers]
        inside = (numbers >= first) & (numbers < first + _TABLE)
        out[inside] = table[numbers[inside] - first]
        last = table[-1]
    return out


def expected_hits(groups: Groups, k: int) -> Floats:
    """Expected number of relevant items among the first k of each query."""
    size = groups.end - groups.start
    inside: Floats = np.clip(k - groups.start, 0, size) * groups.count / size
    return np.bincount(groups.row, inside, minlength=len(groups.totals)).astype(np.float64, copy=False)


def _precision(groups: Groups, k: int) -> Floats:
    """Expected share of relevant items among the first k of each query."""
    return np.where(np.isnan(groups.totals), np.nan, expected_hits(groups, k) / min(k, groups.n))


def _recall_before(groups: Groups, n_false: int) -> Floats:
    """Expected share of relevant items before the n-th other one: of r among f others, r·j/(f + 1) before the j-th."""
    n_others = groups.end - groups.start - groups.count
    wanted = n_false - (groups.start - groups.hits)
    share = np.where(wanted > n_others, 1.0, wanted.clip(0) / (n_others + 1))
    return np.bincount(groups.row, share * groups.count, minlength=len(groups.totals)) / groups.totals


def expected_reciprocal_rank(groups: Groups, k: int) -> Floats:
    """Expected reciprocal rank of the first relevant item, place by place of its group."""
    out = np.where(np.isnan(groups.totals), np.nan, 0.0)
    queries = np.flatnonzero(groups.totals > 0)
    first = groups.bounds[queries]
    start, count = groups.start[first], groups.count[first]
    left, none_yet = groups.end[first] - start, np.ones(len(first))
    for place in range(1, min(k, groups.n) + 1):
        share = np.divide(count, left, out=np.zeros(len(first)), where=left >= count)
        out[queries] += np.where(start + place <= k, none_yet * share / (start + place), 0.0)
        none_yet, left = none_yet * (1 - share), left - 1
    return out


def _bedroc(groups: Groups, alpha: float) -> Floats:
    """BEDROC: the mean of exp(−α·rank/n) over relevant items, between that of the last and of the first places."""
    rate = alpha / groups.n

    def mass(start: Any, size: Any) -> Any:  # of the places after the start
        return np.exp(-rate * (start + 1)) * -np.expm1(-rate * size) / -np.expm1(-rate)

    size = groups.end - groups.start
    found = np.bincount(groups.row, mass(groups.start, size) * groups.count / size, minlength=len(groups.totals))
    most, least = mass(0, groups.totals), mass(groups.n - groups.totals, groups.totals)
    out: Floats = np.divide(found - least, most - least, out=np.ones(len(found)), where=groups.totals < groups.n)
    return np.where(np.isnan(groups.totals), np.nan, out)


def _hits_at_every_rank(groups: Groups) -> tuple[Floats, Floats]:
    """Expected number of relevant items among the first i, for every i and query, and their totals per query."""
    density, stride = groups.count / (groups.end - groups.start), groups.n + 1
    steps = np.bincount(groups.row * stride + groups.start, density, minlength=len(groups.totals) * stride)
    steps -= np.bincount(groups.row * stride + groups.end, density, minlength=len(steps))
    return np.cumsum(np.cumsum(steps.reshape(-1, stride)[:, :-1], axis=1), axis=1), groups.totals


def _curve_sums(groups: Groups) -> tuple[Floats, int]:
    """Expected hits at every rank, plain and as a share of the total, summed over queries; and their number."""
    hits, totals = _hits_at_every_rank(groups)
    hits, totals = hits[totals > 0], totals[totals > 0]
    return np.stack([hits.sum(axis=0), (hits / totals[:, None]).sum(axis=0)]), len(hits)


def _voc11(groups: Groups) -> Floats:
    """Eleven-point interpolated average precision of every query."""
    # Within a group the expected precision is monotone, and its formula also holds at the end of the group before: the
    # maxima are at ends of groups and at the rank that reaches the recall. All in integers, as 0.3 * 10 relevant items
    # must be 3.
    at_end = (groups.hits + groups.count) / groups.end
    values = np.full(len(groups.totals), np.nan)
    for query, total in enumerate(groups.totals):
        if np.isnan(total):
            continue
        query_groups = slice(groups.bounds[query], groups.bounds[query + 1])
        best = np.maximum.accumulate(at_end[query_groups][::-1])[::-1]
        start, size = groups.start[query_groups], groups.end[query_groups] - groups.start[query_groups]
        hits, count = groups.hits[query_groups], groups.count[query_groups]
        tenths = np.arange(1, 11) * int(total)  # ten times the hits at recall 0.1, ..., 1
        group = np.searchsorted(hits + count, -(-tenths // 10))
        start, size, hits, count = start[group], size[group], hits[group], count[group]
        places = -(-(tenths - 10 * hits) * size // (10 * count))
        at_recall = (hits + places * count / size) / (start + places)
        values[query] = (best[0] + np.maximum(best[group], at_recall).sum()) / 11
    return values
