"""Measures of rankings from groups of tied items: closed forms of the mean over every order of the ties."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitrank.core.ties import Floats, Groups, Ints

# Entries per table of harmonic numbers: 64 MB.
_TABLE = 1 << 23


def values_of(groups: Groups, ks: Sequence[int]) -> Floats:
    """Average precision, VOC-11 and the precision at each cut-off: one row per measure, one column per query."""
    return np.stack([average_precision(groups), voc11(groups), *(precision(groups, k) for k in ks)])


def means_of(parts: Sequence[Floats], ks: Sequence[int]) -> dict[str, float]:
    """Means over queries of the parts that `values_of` returned, by name."""
    names = ["map", "voc11", *(f"p{k}" for k in ks)]
    return {name: mean_over_queries(row) for name, row in zip(names, np.concatenate(parts, axis=1), strict=True)}


def mean_over_queries(values: Floats) -> float:
    """Mean over the queries that have a relevant item; there must be one."""
    values = values[~np.isnan(values)]
    if len(values) == 0:
        raise ValueError("at least one query must have a relevant item, got none")
    return float(values.mean())


def average_precision(groups: Groups) -> Floats:
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


def precision(groups: Groups, k: int) -> Floats:
    """Expected share of relevant items among the first k of each query."""
    return np.where(np.isnan(groups.totals), np.nan, expected_hits(groups, k) / min(k, groups.n))


def hits_at_every_rank(groups: Groups) -> tuple[Floats, Floats]:
    """Expected number of relevant items among the first i, for every i and query, and their totals per query."""
    density, stride = groups.count / (groups.end - groups.start), groups.n + 1
    steps = np.bincount(groups.row * stride + groups.start, density, minlength=len(groups.totals) * stride)
    steps -= np.bincount(groups.row * stride + groups.end, density, minlength=len(steps))
    return np.cumsum(np.cumsum(steps.reshape(-1, stride)[:, :-1], axis=1), axis=1), groups.totals


def curve_sums(groups: Groups) -> tuple[Floats, int]:
    """Expected relevance at every rank, plain and as a share of the total, summed over queries; and their number."""
    density = groups.count / (groups.end - groups.start)
    sums = np.empty((2, groups.n))
    for out, weight in zip(sums, (density, density / groups.totals[groups.row]), strict=True):
        out[:] = np.bincount(groups.start, weight, minlength=groups.n)
        out -= np.bincount(groups.end, weight, minlength=groups.n + 1)[:-1]
    return np.cumsum(sums, axis=1), int(np.isfinite(groups.totals).sum())


def voc11(groups: Groups) -> Floats:
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
