"""`Lookup`: the rows of a segment by id."""

from __future__ import annotations

import numpy as np

from bitrank.core.types import Ids


class Lookup:
    """Row numbers by id, in two bytes per row, or two and a half where ids have gaps.

    A table gives the run of rows that holds an id, out of at most 65536 runs; the ids of that run are then compared.
    """

    def __init__(self, ids: Ids) -> None:
        n = len(ids)
        self._ids = ids
        self._run = 1 << max(0, (n - 1).bit_length() - 16)
        self._dense = int(ids.max()) == n - 1  # ids are unique: 0 to n - 1 in some order
        if self._dense:
            self._runs = np.empty(n, np.uint16)
            self._runs[ids] = np.arange(n, dtype=np.uint32) // self._run
        else:
            self._n_buckets = n // 8 + 1
            buckets = self._buckets(ids)
            self._runs = (np.argsort(buckets) // self._run).astype(np.uint16)
            counts = np.bincount(buckets, minlength=self._n_buckets)
            self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)

    def numbers(self, ids: Ids) -> Ids:
        """Row of each id, or -1."""
        n = len(self._ids)
        if self._run > 1 and len(ids) > n // 64:
            return self._numbers_of_many(ids)
        if self._dense:
            inside = (ids >= 0) & (ids < n)
            if self._run == 1:
                return np.where(inside, self._runs.take(ids, mode="clip").astype(np.int64), -1)
            start = np.where(inside, ids, 0)
            stop = start + inside
        else:
            buckets = self._buckets(ids)
            start, stop = self._starts[buckets].astype(np.int64), self._starts[buckets + 1].astype(np.int64)
        out = np.full(len(ids), -1, np.int64)
        step = max(1, (1 << 20) // self._run)  # a few megabytes at a time
        while len(pending := np.flatnonzero((start < stop) & (out < 0))):
            for part in np.split(pending, range(step, len(pending), step)):
                rows = self._runs[start[part], None].astype(np.int64) * self._run + np.arange(self._run)
                np.minimum(rows, n - 1, out=rows)
                equal = self._ids[rows] == ids[part, None]
                hit = equal.any(axis=1)
                out[part[hit]] = rows[hit, equal[hit].argmax(axis=1)]
            start += 1
        return out

    def _numbers_of_many(self, ids: Ids) -> Ids:
        """Row of each id, or -1, from a temporary table of all rows."""
        n = len(self._ids)
        if self._dense:
            inside = (ids >= 0) & (ids < n)
            table = np.empty(n, np.uint32)
            table[self._ids] = np.arange(n, dtype=np.uint32)
            return np.where(inside, table[np.where(inside, ids, 0)].astype(np.int64), -1)
        table = np.argsort(self._ids).astype(np.uint32)
        places = np.searchsorted(self._ids, ids, sorter=table)
        numbers = table[np.minimum(places, n - 1)].astype(np.int64)
        return np.where(self._ids[numbers] == ids, numbers, -1)

    def _buckets(self, ids: Ids) -> Ids:
        """Bucket of each id, about eight ids per bucket: the upper half of the product with the golden ratio."""
        mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)
        return (mixed * np.uint64(self._n_buckets) >> np.uint64(32)).astype(np.int64)
