"""`Rows`: all rows of an index at one moment, never changed; adding and removing make a new one.

A search that holds one is not disturbed by writers: `index` swaps its `Rows` whole, `storage` writes and reads them.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from bitrank import _kernel
from bitrank.checks import check_ids, n_threads
from bitrank.index.segments import Order, Segment, bit_order, build, count, flags, pick, restore, words
from bitrank.vocabulary import Codes, Ids, Weights, n_bytes


class Rows:
    """Segments that share one order of bits."""

    def __init__(self, n_bits: int, order: Order | None = None, segments: tuple[Segment, ...] = ()) -> None:
        self.n_bits = n_bits
        self.order = np.arange(n_bits, dtype=np.uint16) if order is None else order
        self.segments = segments
        self._lookups: dict[int, _Lookup] = {}
        self._largest: int | None = None

    def __len__(self) -> int:
        return sum(map(count, self.segments))

    def ids(self) -> Ids:
        """All ids, ascending."""
        parts = [s.ids if s.wanted is None else s.ids[flags(s)] for s in self.segments]
        return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)

    @property
    def largest(self) -> int:
        """The largest id, or -1."""
        if self._largest is None:
            there = [s.ids if s.wanted is None else s.ids[flags(s)] for s in self.segments]
            self._largest = max((int(ids.max(initial=-1)) for ids in there), default=-1)
        return self._largest

    def export(self) -> tuple[Codes, Ids]:
        """All codes as they came, and their ids, in the order of memory."""
        parts = [restore(segment, self.order, n_threads()) for segment in self.segments]
        if len(parts) == 1:
            return parts[0]
        empty = np.empty((0, n_bytes(self.n_bits)), np.uint8), np.empty(0, np.int64)
        codes, ids = zip(*[empty, *parts], strict=True)
        return np.concatenate(codes), np.concatenate(ids)

    def new_ids(self, n: int, ids: npt.ArrayLike | None) -> Ids:
        """Ids for n more rows: those given, if none is taken, or those after the largest."""
        if ids is None:
            return np.arange(self.largest + 1, self.largest + 1 + n)
        array = check_ids(ids, n)
        if n and int(array.min()) <= self.largest:
            taken = np.intersect1d(array, self.ids())
            if len(taken):
                raise ValueError(f"ids must be new, got {taken[0]}, which is in the index")
        return array

    def add(self, codes: Codes, ids: Ids, weights: Weights | None) -> Rows:
        """With more rows. Segments up to twice as long as the new one are merged into it.

        So a row is moved about log2(n) times in its life, and a search meets about as many segments. When all merge
        into one, it is sorted for the weights.
        """
        largest = max(self.largest, int(ids.max(initial=-1)))
        segments = [segment for segment in self.segments if count(segment)]
        parts = [(codes, ids)] if len(ids) else []
        while segments and len(segments[-1].ids) <= 2 * sum(len(i) for _, i in parts):
            parts.append(restore(segments.pop(), self.order, n_threads()))
        order = self.order
        if parts:
            if len(parts) > 1:
                codes, ids = np.concatenate([c for c, _ in parts]), np.concatenate([i for _, i in parts])
            if not segments:
                order = bit_order(self.n_bits, weights)
            segments.append(build(codes, ids, order, n_threads()))
        out = self._with(order, segments)
        out._largest = largest
        return out

    def remove(self, ids: Ids) -> Rows:
        """Without these ids, all of which must be there."""
        segments = list(self.segments)
        for i, mine in enumerate(self._split(self.numbers(ids))):
            if len(mine):
                there = words(segments[i], flags(segments[i])) & ~words(segments[i], mine)
                segments[i] = segments[i]._replace(wanted=there)
        return self._with(self.order, segments)

    def numbers(self, ids: Ids) -> Ids:
        """Row numbers, counted through all segments, of ids that must be there."""
        out = np.full(len(ids), -1, np.int64)
        start = 0
        for segment in self.segments:
            lookup = self._lookups.get(id(segment.ids))
            if lookup is None:
                lookup = self._lookups[id(segment.ids)] = _Lookup(segment.ids)
            numbers = lookup.numbers(ids)
            if segment.wanted is not None:
                bits = segment.wanted[numbers // 64] >> (numbers % 64).astype(np.uint64)
                numbers[bits & np.uint64(1) == 0] = -1
            out[numbers >= 0] = start + numbers[numbers >= 0]
            start += len(segment.ids)
        if (out < 0).any():
            raise ValueError(f"ids must be in the index, got {ids[out < 0][0]}, which is not")
        return out

    def codes(self, ids: Ids) -> Codes:
        """The caller's codes of ids that must be there."""
        out = np.empty((len(ids), n_bytes(self.n_bits)), np.uint8)
        start, numbers = 0, self.numbers(ids)
        for segment in self.segments:
            mine = (numbers >= start) & (numbers < start + len(segment.ids))
            out[mine] = pick(segment, self.order, numbers[mine] - start)
            start += len(segment.ids)
        return out

    def filtered(self, wanted: npt.ArrayLike) -> tuple[Segment, ...]:
        """Segments with only these rows: a mask in the order of `ids`, or a list of ids."""
        array = np.asarray(wanted)
        if array.dtype == np.bool_:
            n = len(self)
            if array.shape != (n,):
                raise ValueError(f"a filter mask must have one value for each of the {n} rows, got shape {array.shape}")
            if all(segment.wanted is None and self.largest < n for segment in self.segments):
                return tuple(s._replace(wanted=words(s, array[s.ids])) for s in self.segments)
            array = self.ids()[array]
        elif array.ndim == 1:
            array = np.unique(array)
        parts = self._split(self.numbers(check_ids(array)))
        return tuple(s._replace(wanted=words(s, mine)) for s, mine in zip(self.segments, parts, strict=True))

    def search(
        self,
        queries: Codes,
        weights: Weights,
        k: int,
        radius: float,
        wanted: npt.ArrayLike | None,
        threads: int | None,
    ) -> tuple[Ids, npt.NDArray[np.float32], Ids]:
        """Ids, distances and row numbers of the k nearest within the radius; k = 0 takes all."""
        segments = self.segments if wanted is None else self.filtered(wanted)
        found = _kernel.search(queries, weights, self.order, segments, k, radius, n_threads(threads))
        return found[0].view(np.int64), found[1], found[2].view(np.int64)

    def score(self, queries: Codes, weights: Weights, numbers: Ids, threads: int | None) -> npt.NDArray[np.float32]:
        """Distances of each query to its own rows; -1 is at infinity."""
        out = np.empty(numbers.shape, np.float32)
        _kernel.score(queries, weights, self.order, self.segments, numbers, out, n_threads(threads))
        return out

    def _split(self, numbers: Ids) -> list[Ids]:
        """Row numbers counted through all segments, as those of each segment."""
        starts = np.cumsum([0, *(len(segment.ids) for segment in self.segments)])
        pairs = itertools.pairwise(starts)
        return [numbers[(numbers >= start) & (numbers < stop)] - start for start, stop in pairs]

    def _with(self, order: Order, segments: list[Segment]) -> Rows:
        out = Rows(self.n_bits, order, tuple(segments))
        out._lookups = {id(s.ids): self._lookups[id(s.ids)] for s in segments if id(s.ids) in self._lookups}
        return out


class _Lookup:
    """Rows of a segment by id, made when first needed: two bytes a row, two and a half where ids have gaps.

    It tells in which run of rows an id lies, of at most 65536 runs; the ids of that run are then compared.
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
            start = np.where(inside, ids, 0)
            stop = start + inside
        else:
            buckets = self._buckets(ids)
            start, stop = self._starts[buckets].astype(np.int64), self._starts[buckets + 1].astype(np.int64)
        out = np.full(len(ids), -1, np.int64)
        at_once = max(1, (1 << 20) // self._run)  # a few megabytes at a time
        while len(left := np.flatnonzero((start < stop) & (out < 0))):
            for part in np.split(left, range(at_once, len(left), at_once)):
                rows = self._runs[start[part], None].astype(np.int64) * self._run + np.arange(self._run)
                np.minimum(rows, n - 1, out=rows)
                equal = self._ids[rows] == ids[part, None]
                hit = equal.any(axis=1)
                out[part[hit]] = rows[hit, equal[hit].argmax(axis=1)]
            start += 1
        return out

    def _numbers_of_many(self, ids: Ids) -> Ids:
        """The same by a table of all rows, which is not kept."""
        n = len(self._ids)
        if self._dense:
            inside = (ids >= 0) & (ids < n)
            table = np.empty(n, np.uint32)
            table[self._ids] = np.arange(n, dtype=np.uint32)
            return np.where(inside, table[np.where(inside, ids, 0)].astype(np.int64), -1)
        table = np.argsort(self._ids).astype(np.uint32)
        at = np.searchsorted(self._ids, ids, sorter=table)
        numbers = table[np.minimum(at, n - 1)].astype(np.int64)
        return np.where(self._ids[numbers] == ids, numbers, -1)

    def _buckets(self, ids: Ids) -> Ids:
        """About eight ids a bucket, by the upper half of their product with the golden ratio."""
        mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)
        return (mixed * np.uint64(self._n_buckets) >> np.uint64(32)).astype(np.int64)
