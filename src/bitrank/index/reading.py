"""How much of an index in cells a search reads: which blocks, in which order, until when, for a promised recall."""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bitrank import _kernel
from bitrank.core.codes import signs
from bitrank.core.types import Codes, Ids, Weights
from bitrank.index.cells import Cells, Floats, signed

Chosen = tuple[Ids, Floats, int, Ids]  # blocks, floors, n_sure, n_read

Table = tuple[tuple[float, ...], ...]

SPREADS = (2.0, 3.0, 4.5, 6.0, 8.0)
PROMISES = (0.8, 0.9, 0.95, 0.98, 0.99, 0.996, 0.999)
KS = (1, 10, 100)
# Items stand for queries where no real ones are known: their loss must be this share of the promised one.
_LOSS_OF_ITEMS = 0.4
# A promise is kept by the mean recall of the queries it was measured on, less this many standard errors.
_ERRORS = 1.28
_NEVER = -1e9
_UNTOLD = 0.05  # share of a query that numbers need not tell


class Reading(NamedTuple):
    """What a query reads: the nearest share of the blocks, and those that may hold a row within the limit.

    Nearest is the estimated mean of a block's rows, `spread` times its radius nearer; a block may hold a row within the
    limit if its mean, `radii` times its radius nearer, is within the limit.
    """

    spread: float
    share: float
    radii: float


def check_recall(recall: Any) -> None:
    """Check a promise of recall.

    Examples
    --------
    >>> check_recall(2)
    Traceback (most recent call last):
    ValueError: recall must be None, or a number from 0.8 to 0.999, got 2
    """
    if recall is not None and not (isinstance(recall, float) and 0.8 <= recall <= 0.999):
        raise ValueError(f"recall must be None, or a number from 0.8 to 0.999, got {recall!r:.60}")


class Searches(NamedTuple):
    """The searches that are measured, for few results, for some and for many.

    Where whole codes or estimates order a shortlist, what counts is in the shortlist, and its last row is the limit.
    """

    ks: tuple[int, ...] = KS  # what `search` is given
    counted: tuple[int, ...] = KS  # the nearest rows, which a search should find
    kept: tuple[int, ...] = KS  # rows that the scan keeps


@dataclass(frozen=True)
class Calibration:
    """What must be read for a promised recall, measured on queries.

    Attributes
    ----------
    on : {"queries", "items"}
        What it was measured on; items stand for queries where there are none, with a margin.
    n_queries, n_rows : int
    spread : float
        Blocks are read in the order of their mean, this many radii nearer.
    shares, radii : tuple of tuples
        Per k of `ks` and promise of `PROMISES`: the rule by share of blocks, and the one by limit.
    ks : tuple of int
    known : bool
        Whether queries are of the kind that was measured; others follow both rules.
    """

    on: str
    n_queries: int
    n_rows: int
    spread: float
    shares: Table
    radii: Table
    ks: tuple[int, ...] = KS
    known: bool = True

    def reading(self, recall: float, k: int, known: bool = True) -> Reading:
        """What to read for a promise; queries like those measured read a share, others follow both rules."""
        loss = (1 - recall) * (_LOSS_OF_ITEMS if self.on == "items" else 1)
        column = int(np.searchsorted(PROMISES, 1 - loss - 1e-9))
        if column == len(PROMISES):
            return Reading(self.spread, 1.0, _NEVER)
        right = min(max(1, bisect_left(self.ks, k)), len(self.ks) - 1)
        place = math.log(k / self.ks[right - 1]) / math.log(self.ks[right] / self.ks[right - 1])
        place = min(max(place, 0.0), 1.0)
        share, radii = (
            (1 - place) * table[right - 1][column] + place * table[right][column] for table in (self.shares, self.radii)
        )
        return Reading(self.spread, share, _NEVER if known and self.known else radii)

    def for_others(self) -> Self:
        """For queries of another kind than those measured."""
        return dataclasses.replace(self, ks=KS, known=False)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """From plain values."""
        tables = {name: tuple(map(tuple, values[name])) for name in ("shares", "radii")}
        return cls(**{**values, **tables, "ks": tuple(values["ks"])})


class BlockRanking:
    """The coded means of all blocks of a snapshot."""

    def __init__(self, cells: Cells, means: Codes, segments: _kernel.Segments) -> None:
        self._cells, self._means, self.n_blocks = cells, means, len(means)
        self._radii, self._segments = cells.radii(means), segments
        self._order = np.arange(cells.n_mean_bits, dtype=np.uint16)
        self._asking, self._asking_radii = cells.asking(), cells.asking_radii()

    def choose(self, codes: Codes, weights: Weights | None, reading: Reading, least: int, threads: int) -> Chosen:
        """Blocks for the kernel, of which `least` at least are read."""
        n_sure = min(max(least, int(np.ceil(reading.share * self.n_blocks))), self.n_blocks)
        n = n_sure if reading.radii <= _NEVER else self.n_blocks
        queries = signed(codes, weights, len(self._cells.mean))
        reals, means, lengths = self._ask(queries, reading.spread)
        sizes = np.abs(reals)
        blocks, distances = np.empty((len(codes), n), np.int64), np.empty((len(codes), n), np.float32)
        weightings = _kernel.Weightings(sizes, self._order)
        _kernel.search(np.packbits(reals > 0, axis=1), weightings, self._segments, blocks, distances, threads)
        n_read = np.zeros(len(codes), np.int64)
        if reading.radii <= _NEVER:
            return blocks, distances, n_sure, n_read
        scores = sizes.sum(axis=1, keepdims=True) - 2 * distances
        rows, radii = self._rows(queries, scores, self._radii[blocks], means, lengths, reading.spread)
        return blocks, np.ascontiguousarray(rows - reading.radii * radii, np.float32), n_sure, n_read

    def tells(self, codes: Codes, weights: Weights | None) -> bool:
        """Whether numbers tell what queries ask: weights that part the bits of one number are beyond them."""
        queries, decode = signed(codes, weights, len(self._cells.mean)), self._cells.decode
        told = (queries @ decode / (decode**2).sum(axis=0)) @ decode.T
        return bool((((queries - told) ** 2).sum(axis=1) <= _UNTOLD * (queries**2).sum(axis=1)).all())

    def _ask(self, queries: Floats, spread: float) -> tuple[Floats, Floats, Floats]:
        """Reals per bit of coded means; mean score of all rows; length of what is asked of numbers."""
        lengths = np.sqrt((queries**2) @ self._cells.lengths) / np.float32(np.sqrt(self._cells.decode.shape[1]))
        reals = np.empty((len(queries), self._cells.n_mean_bits), np.float32)
        products = queries @ self._asking
        reals[:, : products.shape[1] - 1] = products[:, :-1]
        np.multiply.outer(lengths * np.float32(spread), self._asking_radii, out=reals[:, products.shape[1] - 1 :])
        return reals, products[:, -1], lengths

    def measure(
        self,
        codes: Codes,
        weights: Weights | None,
        blocks: Ids,
        limits: Floats,
        searches: Searches,
        on: str,
        n_rows: int,
    ) -> Calibration:
        """Calibrate by the blocks that hold the nearest rows of queries, and the distances of the last rows kept.

        Parameters
        ----------
        blocks : int array of shape (n_queries, the most rows that count)
            -1 where there are fewer rows.
        limits : float array of shape (n_queries, the most rows that are kept)
        """
        queries = signed(codes, weights, len(self._cells.mean))
        reals, means, lengths = self._ask(queries, 0.0)
        scores = reals @ signs(self._means, self._cells.n_mean_bits).T
        distances, radii = self._rows(queries, scores, self._radii[None], means, lengths, 0.0)
        tried = [self._measure(distances, radii, spread, blocks, limits, searches) for spread in SPREADS]
        middle = PROMISES.index(0.95)
        best = min(range(len(SPREADS)), key=lambda i: tried[i][0][len(KS) // 2][middle])
        return Calibration(on, len(codes), n_rows, SPREADS[best], *tried[best], searches.ks)

    def _rows(
        self, queries: Floats, scores: Floats, radii: Floats, means: Floats, lengths: Floats, spread: float
    ) -> tuple[Floats, Floats]:
        """Mean distances of the rows of blocks, and what their radii count, from the scores of their coded means."""
        counted = radii * lengths[:, None]
        nearer = np.float32(spread) * (counted - self._cells.steps[-1] * lengths[:, None])  # which scores include
        rows: Floats = (np.abs(queries).sum(axis=1, keepdims=True) - (scores + means[:, None] - nearer)) / 2
        return rows, counted / np.float32(2)

    def _measure(
        self, distances: Floats, radii: Floats, spread: float, blocks: Ids, limits: Floats, searches: Searches
    ) -> tuple[Table, Table]:
        """Both rules for every k and promise."""
        nearer = distances - np.float32(spread) * radii
        there, rows = blocks >= 0, np.maximum(blocks, 0)
        held, nearer = np.take_along_axis(nearer, rows, 1), np.sort(nearer, axis=1)
        places = [np.searchsorted(all_of, some, side="right") for all_of, some in zip(nearer, held, strict=True)]
        read_before = np.array(places) / self.n_blocks
        shares, rules = [], []
        for n, n_kept in zip(searches.counted, searches.kept, strict=True):
            limit = np.where(np.isfinite(limits[:, :n_kept]), limits[:, :n_kept], -np.inf).max(axis=1, keepdims=True)
            slack = (distances - limit) / np.maximum(radii, 1e-30)  # radii that a block's mean lies beyond the limit
            shares.append(_least(read_before[:, :n], there[:, :n]))
            rules.append(_least(np.take_along_axis(slack, rows[:, :n], 1), there[:, :n]))
        return tuple(shares), tuple(rules)


def _least(values: npt.NDArray[Any], there: npt.NDArray[np.bool_]) -> tuple[float, ...]:
    """For each promise, the least value within which the recall, less its error, keeps it."""
    rows = np.arange(len(values))[:, None]
    shares = there / np.maximum(there.sum(axis=1, keepdims=True), 1)
    order = np.argsort(values[there], kind="stable")
    at = values[there][order]
    gained, of = shares[there][order], np.broadcast_to(rows, values.shape)[there][order]
    n, mean = len(values), np.cumsum(gained) / len(values)
    # The square of a query's recall grows by 2·r·g + g² where its recall r grows by g.
    so_far, squares = np.zeros(n), np.empty(len(at))
    total = 0.0
    for i, (row, gain) in enumerate(zip(of.tolist(), gained.tolist(), strict=True)):
        total += gain * (2 * so_far[row] + gain)
        so_far[row] += gain
        squares[i] = total
    error = np.sqrt(np.maximum(squares / n - mean**2, 0) / n)
    sure = mean - _ERRORS * error
    out = []
    for promise in PROMISES:
        enough = np.flatnonzero(sure >= promise)
        out.append(float(at[enough[0]]) if len(enough) else float(at[-1]) if len(at) else 0.0)
    return tuple(out)
