"""Distances from held-out queries to the items nearest to them: by the query itself, by a factor, and by blends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.core.codes import distances, distances_to_rows, signs, split_vectors
from bitrank.core.ties import smallest_columns
from bitrank.core.types import Codes, Rows, Weights
from bitrank.ranking.evidence.kinds import QueryRows

Floats = npt.NDArray[np.float64]
# What multiplies the bits of a query: one vector, or a function of query row numbers. A negative weight flips the bit.
Factor = npt.NDArray[np.floating[Any]] | Callable[[Rows], Weights]

_NEAREST = 1000  # items per query


def mean_one(values: npt.NDArray[Any]) -> Floats:
    """Scale each row to a mean size of 1; rows of zeros become ones."""
    mean = np.abs(values).mean(axis=-1, keepdims=True, dtype=np.float64)
    return np.where(mean > 0, values / np.where(mean > 0, mean, 1.0), 1.0)


class Near(NamedTuple):
    """Rows of near items per query, and the distances to them; a row that is known already is far away.

    The distances of a blend hold until the next one is taken.
    """

    rows: Rows
    known: npt.NDArray[np.bool_]
    blends: Iterator[tuple[float, npt.NDArray[np.float32]]]


class HeldOutQueries:
    """Held-out queries in a collection.

    Parameters
    ----------
    queries : QueryRows
        The held-out queries.
    numbers : int64 array of shape (n_queries,)
        Their row numbers, which a factor is asked for.
    codes : packed codes
    collection : int64 array
        Rows of `codes` to search in.
    itself : int64 array of shape (n_queries,), optional
        Row of `codes` that each query is, and that it must not find.
    n_bits : int
    scale_magnitudes : bool
        Whether a factor multiplies the magnitudes of queries, or replaces them and is blended with them.
    """

    def __init__(
        self,
        queries: QueryRows,
        numbers: Rows,
        codes: Codes,
        collection: Rows,
        itself: Rows | None,
        n_bits: int,
        scale_magnitudes: bool,
    ) -> None:
        self.queries, self.magnitudes = queries
        self.numbers, self.codes, self.collection, self.n_bits = numbers, codes, collection, n_bits
        self.itself = np.full(len(numbers), -1) if itself is None else itself
        if self.magnitudes is not None and not scale_magnitudes:  # the factor replaces them: bring both to one scale
            self.magnitudes = mean_one(self.magnitudes).astype(np.float32)
        self.scale_magnitudes = scale_magnitudes
        self.near = self._nearest(self.magnitudes)
        self.to_near = self.to_rows(self.near, self.magnitudes)

    def weights(self, factor: Factor) -> Weights:
        """Weights of the queries' bits by a factor; negative ones flip a bit."""
        values = mean_one(factor(self.numbers) if callable(factor) else factor)
        weights = np.broadcast_to(values, (len(self.numbers), self.n_bits))
        if self.scale_magnitudes and self.magnitudes is not None:
            weights = weights * self.magnitudes
        return weights.astype(np.float32)

    def distances(self, part: slice | Rows, items: Codes, weights: Weights | None) -> npt.NDArray[np.float32]:
        """Distances of some queries to items."""
        queries, some = self._flipped(self.queries[part], None if weights is None else weights[part])
        return distances(queries, items, some).astype(np.float32, copy=False)

    def to_rows(self, rows: Rows, weights: Weights | None) -> npt.NDArray[np.float32]:
        """Distances from each query to its own list of rows."""
        queries, weights = self._flipped(self.queries, weights)
        return distances_to_rows(queries, self.codes, rows, weights)

    def blend_near(self, weights: Weights, blends: Sequence[float]) -> Near:
        """Distances to near items for every blend; a blend of weights is a blend of distances."""
        rows, known = self.near, np.zeros(self.near.shape, bool)
        plain, full = self.to_near, self.to_rows(self.near, weights)
        if weights.min() < 0:
            # Flipped bits find items that are far by the query itself: add those nearest by the factor.
            more = self._nearest(weights)
            again = self._which_known(more)
            far = np.where(again, np.float32(1e30), np.float32(0))
            rows, known = np.hstack([rows, more]), np.hstack([known, again])
            plain = np.hstack([plain, self.to_rows(more, self.magnitudes) + far])
            full = np.hstack([full, self.to_rows(more, weights) + far])
        return Near(rows, known, _mix(plain, full, blends))

    def _nearest(self, weights: Weights | None) -> Rows:
        """Rows of the collection nearest to each query, itself excluded."""
        n_near = min(_NEAREST, len(self.collection) - 1)
        near = np.empty((len(self.numbers), n_near), np.int64)
        for part in blocks(len(self.numbers), 64):
            found = self.distances(part, self.codes[self.collection], weights)
            found[self.itself[part][:, None] == self.collection] = np.inf
            near[part] = self.collection[smallest_columns(found, n_near)]
        return near

    def _which_known(self, rows: Rows) -> npt.NDArray[np.bool_]:
        known, flags = np.empty(rows.shape, bool), np.zeros(len(self.codes), bool)
        for place, (new, old) in enumerate(zip(rows, self.near, strict=True)):
            flags[old] = True
            known[place] = flags[new]
            flags[old] = False
        return known

    def _flipped(self, queries: Codes, weights: Weights | None) -> tuple[Codes, Weights | None]:
        """Flip query bits where weights are negative; distances change by a constant per query."""
        if weights is not None and weights.size and weights.min() < 0:
            return split_vectors(signs(queries, self.n_bits) * weights)
        return queries, weights


def _mix(
    plain: npt.NDArray[np.float32], full: npt.NDArray[np.float32], blends: Sequence[float]
) -> Iterator[tuple[float, npt.NDArray[np.float32]]]:
    """Mix two matrices in several shares, in one place of memory."""
    mixed, rest = np.empty_like(plain), np.empty_like(plain)
    for amount in blends:
        np.multiply(1 - np.float32(amount), plain, out=mixed)
        mixed += np.multiply(np.float32(amount), full, out=rest)
        yield amount, mixed


def blocks(n: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` rows.

    Examples
    --------
    >>> list(blocks(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))
