"""How much of an index in cells a search reads: which blocks, in which order, until when, for a promised recall."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bitrank import _kernel
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
# Blocks that are ranked beyond those that a calibrated query reads, before a query is asked to rank all.
_SPARE = 4


class Reading(NamedTuple):
    """What a query reads: the nearest share of the blocks, and those that may hold a row within the limit.

    Nearest is the estimated mean of a block's rows, `spread` times its radius nearer; a block may hold a row within the
    limit if its mean, `radii` times its radius nearer, is within the limit.
    """

    spread: float
    share: float
    radii: float


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
        Per k of `KS` and promise of `PROMISES`: the rule by share of blocks, and the one by limit.
    read : tuple of tuples
        The share of the blocks that each rule read: (by share, by limit).
    """

    on: str
    n_queries: int
    n_rows: int
    spread: float
    shares: Table
    radii: Table
    read: Table

    def reading(self, recall: float, k: int, known: bool = True) -> Reading:
        """What to read for a promise; queries like those measured follow the rule that read less, others both."""
        loss = (1 - recall) * (_LOSS_OF_ITEMS if self.on == "items" else 1)
        column = int(np.searchsorted(PROMISES, 1 - loss - 1e-9))
        if column == len(PROMISES):
            return Reading(self.spread, 1.0, _NEVER)
        place = np.interp(np.log(k), np.log(KS), np.arange(len(KS)))
        share, radii, read = (
            float(np.interp(place, np.arange(len(KS)), [row[column] for row in table]))
            for table in (self.shares, self.radii, self.read)
        )
        if not known:
            return Reading(self.spread, share, radii)
        return Reading(self.spread, share, _NEVER) if share <= read else Reading(self.spread, 0, radii)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """From plain values."""
        tables = {name: tuple(map(tuple, values[name])) for name in ("shares", "radii", "read")}
        return cls(**{**values, **tables})


class BlockRanking:
    """The coded means of all blocks of a snapshot."""

    def __init__(self, cells: Cells, means: Codes, segments: _kernel.Segments) -> None:
        self._cells, self.n_blocks = cells, len(means)
        self._radii, self._segments = cells.radii(means), segments
        self._order = np.arange(cells.n_mean_bits, dtype=np.uint16)

    def nearest(
        self, codes: Codes, weights: Weights | None, spread: float, n: int, threads: int
    ) -> tuple[Ids, Floats, Floats]:
        """The n nearest blocks, estimated mean distances of their rows, and what a radius counts."""
        signs = signed(codes, weights, len(self._cells.mean))
        reals, means, lengths = self._cells.ask(signs, spread)
        asked, sizes = np.packbits(reals > 0, axis=1), np.abs(reals)
        blocks, distances = np.empty((len(codes), n), np.int64), np.empty((len(codes), n), np.float32)
        _kernel.search(asked, _kernel.Weightings(sizes, self._order), self._segments, blocks, distances, threads)
        radii = self._radii[blocks] * lengths[:, None]
        scores: Floats = sizes.sum(axis=1, keepdims=True) - 2 * distances + means[:, None]
        scores -= np.float32(spread) * (radii - self._cells.steps[-1] * lengths[:, None])
        rows: Floats = (np.abs(signs).sum(axis=1, keepdims=True) - scores) / 2
        return blocks, rows.astype(np.float32), (radii / 2).astype(np.float32)

    def choose(self, codes: Codes, weights: Weights | None, reading: Reading, n: int, threads: int) -> Chosen:
        """Blocks for the kernel, of which `n` at most are ranked."""
        n_sure = max(1, int(np.ceil(reading.share * self.n_blocks)))
        n = n_sure if reading.radii <= _NEVER else max(n, n_sure)
        blocks, distances, radii = self.nearest(codes, weights, reading.spread, min(n, self.n_blocks), threads)
        floors = np.ascontiguousarray(distances - reading.radii * radii, np.float32)
        return blocks, floors, n_sure, np.zeros(len(codes), np.int64)

    def n_ranked(self, calibration: Calibration, recall: float, k: int, known: bool) -> int:
        """How many blocks to rank: some times what queries read that were measured; all where nothing was."""
        if not known:
            return self.n_blocks
        column = min(int(np.searchsorted(PROMISES, recall - 1e-9)), len(PROMISES) - 1)
        return int(_SPARE * max(row[column] for row in calibration.read) * self.n_blocks) + 64

    def measure(
        self, codes: Codes, weights: Weights | None, blocks: Ids, limits: Floats, on: str, n_rows: int, threads: int
    ) -> Calibration:
        """Calibrate by the blocks that hold the nearest rows of queries, and the distances of these rows.

        Parameters
        ----------
        blocks : int array of shape (n_queries, k of the largest of KS)
            -1 where there are fewer rows.
        limits : float array of the same shape
        """
        blocks_of, distances, radii = self.nearest(codes, weights, 0.0, self.n_blocks, threads)
        order = np.argsort(blocks_of, axis=1)
        distances, radii = (np.take_along_axis(values, order, axis=1) for values in (distances, radii))
        tried = [self._measure(distances, radii, spread, blocks, limits) for spread in SPREADS]
        middle = PROMISES.index(0.95)
        best = min(range(len(SPREADS)), key=lambda i: tried[i][0][len(KS) // 2][middle])
        return Calibration(on, len(codes), n_rows, SPREADS[best], *tried[best])

    def _measure(
        self, distances: Floats, radii: Floats, spread: float, blocks: Ids, limits: Floats
    ) -> tuple[Table, Table, Table]:
        """Both rules for every k and promise, and the share of blocks that the rule by limit reads."""
        ranks = np.argsort(np.argsort(distances - spread * radii, axis=1, kind="stable"), axis=1)
        shares, rules, read = [], [], []
        for k in KS:
            held = blocks[:, :k]
            there, rows = held >= 0, np.maximum(held, 0)
            limit = np.where(there, limits[:, :k], -np.inf).max(axis=1, keepdims=True)
            slack = (distances - limit) / np.maximum(radii, 1e-30)  # radii that a block's mean lies beyond the limit
            shares.append(_least((np.take_along_axis(ranks, rows, 1) + 1) / self.n_blocks, there))
            rules.append(_least(np.take_along_axis(slack, rows, 1), there))
            read.append(tuple(float((slack <= rule).mean()) for rule in rules[-1]))
        return tuple(shares), tuple(rules), tuple(read)


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
