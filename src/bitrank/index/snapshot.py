"""`Snapshot`: all rows of an index at one moment. It never changes: adding and removing rows make a new one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank import _kernel
from bitrank.core.arrays import to_array
from bitrank.core.checks import check_ids, n_threads
from bitrank.core.types import Codes, Estimates, Ids, Results, Weights, n_bytes
from bitrank.index.cells import Cells
from bitrank.index.lookup import Lookup
from bitrank.index.reading import BlockRanking, Calibration, Chosen, Searches
from bitrank.index.segments import (
    LANES,
    Order,
    Segment,
    bit_order,
    build,
    count,
    flags,
    of_kernel,
    pick,
    restore,
    words,
)

# Rows of a segment in cells to which others are added: finding the cells of rows takes longer than sorting them.
LONGEST_MERGED = 1 << 17

Asked = tuple[Codes, Weights | None]  # codes of queries, and rows of weights or one vector; None is one per bit


class Snapshot:
    """Segments that share one order of the bits in blocks: all of them, or the first, a multiple of 8."""

    def __init__(
        self, n_bits: int, order: Order, segments: tuple[Segment, ...] = (), cells: Cells | None = None
    ) -> None:
        self.n_bits, self.order, self.cells = n_bits, order, cells
        self.segments = segments
        self._ranking: BlockRanking | None = None
        self._lookups: dict[int, Lookup] = {}
        self._largest: int | None = None
        self._all_views: _kernel.Segments | None = None
        self._prepared: tuple[Weights | None, _kernel.Weightings] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Snapshot, (self.n_bits, self.order, self.segments, self.cells)

    def __len__(self) -> int:
        return sum(map(count, self.segments))

    def ids(self) -> Ids:
        """All ids, ascending."""
        parts = self._ids_of_segments()
        return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)

    @property
    def largest(self) -> int:
        """The largest id, or -1."""
        if self._largest is None:
            self._largest = max((int(ids.max(initial=-1)) for ids in self._ids_of_segments()), default=-1)
        return self._largest

    def export(self) -> tuple[Codes, Ids]:
        """All codes as they were added, and their ids, in the order of memory."""
        parts = [restore(segment, self.order, n_threads()) for segment in self.segments]
        if len(parts) == 1:
            return parts[0]
        empty = np.empty((0, n_bytes(self.n_bits)), np.uint8), np.empty(0, np.int64)
        codes, ids = zip(*[empty, *parts], strict=True)
        return np.concatenate(codes), np.concatenate(ids)

    def new_ids(self, n: int, ids: npt.ArrayLike | None) -> Ids:
        """Ids of n more rows: `ids`, if none of them is taken, or the numbers after the largest id."""
        if ids is None:
            return np.arange(self.largest + 1, self.largest + 1 + n)
        array = check_ids(ids, n)
        if n and int(array.min()) <= self.largest:
            taken = array[self.find(array) >= 0]
            if len(taken):
                raise ValueError(f"ids must be new, got {taken.min()}, which is in the index")
        return array

    def add(self, codes: Codes, ids: Ids, weights: Weights | None) -> Snapshot:
        """A snapshot with more rows. Segments up to twice as long as the new one are merged into it.

        Each row is therefore moved about log2(n) times, and a search visits about as many segments. When all segments
        merge into one, it is sorted for the weights. In cells, long segments stay as they are.
        """
        largest = max(self.largest, int(ids.max(initial=-1)))
        segments = [segment for segment in self.segments if count(segment)]
        parts = [(codes, ids)] if len(ids) else []
        longest = len(self) if self.cells is None else LONGEST_MERGED
        while segments and len(segments[-1].ids) <= min(longest, 2 * sum(len(i) for _, i in parts)):
            parts.append(restore(segments.pop(), self.order, n_threads()))
        order = self.order
        if parts:
            if len(parts) > 1:
                codes, ids = np.concatenate([c for c, _ in parts]), np.concatenate([i for _, i in parts])
            if not segments and weights is not None:
                order = bit_order(weights[: len(order)])
            segments.append(build(codes, ids, order, n_threads(), self.cells))
        out = self._with(order, segments)
        out._largest = largest
        return out

    def remove(self, ids: Ids) -> Snapshot:
        """A snapshot without these ids, all of which must exist."""
        segments = list(self.segments)
        for i, removed in enumerate(self._split(self.numbers(ids))):
            if len(removed):
                kept = words(segments[i], flags(segments[i])) & ~words(segments[i], removed)
                segments[i] = segments[i]._replace(wanted=kept)
        return self._with(self.order, segments)

    def numbers(self, ids: Ids) -> Ids:
        """Row numbers, counted over all segments, of ids that must exist."""
        out = self.find(ids)
        if (out < 0).any():
            raise ValueError(f"ids must be in the index, got {ids[out < 0][0]}, which is not")
        return out

    def find(self, ids: Ids) -> Ids:
        """Row numbers, counted over all segments; -1 for ids that do not exist."""
        out = np.full(len(ids), -1, np.int64)
        start = 0
        for segment in self.segments:
            lookup = self._lookups.get(id(segment.ids))
            if lookup is None:
                lookup = self._lookups[id(segment.ids)] = Lookup(segment.ids)
            numbers = lookup.numbers(ids)
            if segment.wanted is not None:
                bits = segment.wanted[numbers // 64] >> (numbers % 64).astype(np.uint64)
                numbers[bits & np.uint64(1) == 0] = -1
            if len(self.segments) == 1:
                return numbers
            out[numbers >= 0] = start + numbers[numbers >= 0]
            start += len(segment.ids)
        return out

    def codes(self, ids: Ids) -> Codes:
        """Codes of ids that must exist."""
        out = np.empty((len(ids), n_bytes(self.n_bits)), np.uint8)
        start, numbers = 0, self.numbers(ids)
        for segment in self.segments:
            inside = (numbers >= start) & (numbers < start + len(segment.ids))
            out[inside] = pick(segment, self.order, numbers[inside] - start)
            start += len(segment.ids)
        return out

    def last_bytes(self, ids: Ids, n: int) -> Codes:
        """Last bytes of the codes of ids; zeros for ids that do not exist."""
        numbers = self.find(ids.ravel())
        out, start = np.zeros((len(numbers), n), np.uint8), 0
        for segment in self.segments:
            inside = (numbers >= start) & (numbers < start + len(segment.ids))
            if segment.rest is not None:
                out[inside] = segment.rest[numbers[inside] - start, segment.rest.shape[1] - n :]
            start += len(segment.ids)
        return out.reshape(*ids.shape, n)

    def filtered(self, wanted: npt.ArrayLike) -> tuple[Segment, ...]:
        """Segments with only the wanted rows: a mask in the order of `ids`, or a list of ids."""
        array = to_array(wanted, "filter")
        if array.dtype == np.bool_:
            n = len(self)
            if array.shape != (n,):
                raise ValueError(
                    f"filter must be a list of ids, or a mask with one value for each of the {n} rows, "
                    f"got a mask of shape {array.shape}"
                )
            if all(segment.wanted is None and self.largest < n for segment in self.segments):
                return tuple(s._replace(wanted=words(s, array[s.ids])) for s in self.segments)
            array = self.ids()[array]
        elif array.ndim == 1:
            array = np.unique(array)
        parts = self._split(self.numbers(check_ids(array, name="filter")))
        return tuple(s._replace(wanted=words(s, rows)) for s, rows in zip(self.segments, parts, strict=True))

    def search(
        self,
        queries: Codes,
        weights: Weights | None,
        k: int,
        wanted: npt.ArrayLike | None,
        threads: int | None,
        chosen: Chosen | None = None,
    ) -> Results:
        """The k nearest rows by the bits in blocks: of all blocks, or of those chosen."""
        out = _room(len(queries), k)
        _kernel.search(queries, self._weightings(weights), self._views(wanted), *out, n_threads(threads), chosen)
        return out

    def search_whole(
        self,
        head: Asked,
        whole: Asked,
        shortlist: int,
        k: int,
        wanted: npt.ArrayLike | None,
        threads: int | None,
        chosen: Chosen | None = None,
        estimates: Estimates | None = None,
    ) -> Results:
        """The k nearest rows by whole codes of a shortlist: the nearest rows by the bits in blocks.

        With estimates these are their distances, and their order.
        """
        out, views = _room(len(head[0]), k), self._views(wanted)
        asked = shortlist, whole[0], self._rows(whole[1]), self.order
        weights = self._weightings(head[1])
        _kernel.search_whole(head[0], weights, views, *asked, *out, n_threads(threads), chosen, estimates)
        return out

    def ranking(self) -> BlockRanking:
        """What ranks the blocks of an index in cells."""
        if self._ranking is None:
            assert self.cells is not None
            means = np.concatenate([s.means for s in self.segments if s.means is not None])
            order = np.arange(self.cells.n_mean_bits, dtype=np.uint16)
            segment = build(means, np.arange(len(means)), order, n_threads())
            self._ranking = BlockRanking(self.cells, means, _kernel.Segments(of_kernel([segment]), means.shape[1], 0))
        return self._ranking

    def calibrate(
        self,
        head: Asked,
        ranked: Callable[[Ids], npt.NDArray[Any]] | None,
        searches: Searches,
        own: Ids | None,
        threads: int | None,
    ) -> Calibration:
        """Measure what must be read, on queries; items that stand for them leave themselves out.

        Parameters
        ----------
        ranked : callable, optional
            Distances by which the shortlist is ordered, of its ids.
        """
        k = min(searches.kept[-1], max(1, len(self) - 1))
        ids, limits = self.search(*head, k + (own is not None), None, threads)
        if own is not None:  # leave the item out of its own results, and of its own limit
            others = np.argsort(ids == own[:, None], axis=1, kind="stable")[:, :k]
            ids, limits = np.take_along_axis(ids, others, 1), np.take_along_axis(limits, others, 1)
        if ranked is not None:
            ids = np.take_along_axis(ids, np.argsort(ranked(ids), axis=1, kind="stable"), 1)
        ids = ids[:, : searches.counted[-1]]
        rows = np.full(ids.shape, -1, np.int64)
        rows[ids >= 0] = self.find(ids[ids >= 0])
        starts, firsts = self._starts()
        segment = np.searchsorted(starts, rows, side="right") - 1
        blocks = np.where(rows < 0, -1, firsts[segment] + (rows - starts[segment]) // LANES)
        on = "queries" if own is None else "items"
        return self.ranking().measure(*head, blocks, limits, searches, on, len(self))

    def _starts(self) -> tuple[Ids, Ids]:
        """First row and first block of each segment."""
        rows = np.cumsum([0, *(len(s.ids) for s in self.segments)])[:-1]
        return rows, np.cumsum([0, *(len(s.blocks) for s in self.segments)])[:-1]

    def search_radius(
        self, queries: Codes, weights: Weights | None, radius: float, wanted: npt.ArrayLike | None, threads: int | None
    ) -> Results:
        """All rows within the radius, by the bits in blocks."""
        weightings, views = self._weightings(weights), self._views(wanted)
        ids, distances = _kernel.search_radius(queries, weightings, views, radius, n_threads(threads))
        return Results(ids.view(np.int64), distances)

    def score(
        self, queries: Codes, weights: Weights | None, numbers: Ids, threads: int | None
    ) -> npt.NDArray[np.float32]:
        """Distances, by whole codes, of each query to its row of `numbers`; those to row -1 are infinite."""
        out, views = np.empty(numbers.shape, np.float32), self._views(None)
        _kernel.score(queries, self._rows(weights), self.order, views, numbers, out, n_threads(threads))
        return out

    def _rows(self, weights: Weights | None) -> Weights:
        """Weights of whole codes as rows."""
        return np.ones((1, self.n_bits), np.float32) if weights is None else np.atleast_2d(weights)

    def _weightings(self, weights: Weights | None) -> _kernel.Weightings:
        """Weights for the kernel: rows, or the vector of the index, which is prepared once; None is one per bit."""
        if weights is not None and weights.ndim == 2:
            return _kernel.Weightings(weights, self.order)
        if self._prepared is None or self._prepared[0] is not weights:
            vector = np.ones(len(self.order), np.float32) if weights is None else weights
            self._prepared = weights, _kernel.Weightings(vector[None], self.order)
        return self._prepared[1]

    def _views(self, wanted: npt.ArrayLike | None) -> _kernel.Segments:
        """Segments for the kernel."""
        n_head = n_bytes(len(self.order))
        widths = n_head, n_bytes(self.n_bits) - n_head
        if wanted is not None:
            return _kernel.Segments(of_kernel(self.filtered(wanted)), *widths)
        if self._all_views is None:
            self._all_views = _kernel.Segments(of_kernel(self.segments), *widths)
        return self._all_views

    def _ids_of_segments(self) -> list[Ids]:
        return [s.ids if s.wanted is None else s.ids[flags(s)] for s in self.segments]

    def _split(self, numbers: Ids) -> list[Ids]:
        """Row numbers counted over all segments, as row numbers of each segment."""
        starts = np.cumsum([0, *(len(segment.ids) for segment in self.segments)])
        pairs = itertools.pairwise(starts)
        return [numbers[(numbers >= start) & (numbers < stop)] - start for start, stop in pairs]

    def _with(self, order: Order, segments: list[Segment]) -> Snapshot:
        out = Snapshot(self.n_bits, order, tuple(segments), self.cells)
        out._lookups = {id(s.ids): self._lookups[id(s.ids)] for s in segments if id(s.ids) in self._lookups}
        return out


def _room(n_queries: int, k: int) -> Results:
    """Where the kernel writes results."""
    return Results(np.empty((n_queries, k), np.int64), np.empty((n_queries, k), np.float32))
