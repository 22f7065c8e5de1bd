"""Held-out queries: how rows are split, and how weights rank for the queries that were held out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from bitrank.codes import distances, distances_to_rows, signs, split_vectors
from bitrank.metrics import average_precision, precision_at
from bitrank.ranking.evidence import LabelEvidence
from bitrank.vocabulary import Codes, Rows, Weights

Floats = npt.NDArray[np.float64]
Validation = Literal["rows", "classes"]
# What multiplies the bits of a query: one vector, or a function of query row numbers. A negative weight flips the bit.
Factor = npt.NDArray[np.floating[Any]] | Callable[[Rows], Weights]
# Labelled rows used at most: one weight per bit, or one blend, needs no more.
_MOST_ROWS = 50_000
# MAP is measured in a sample of the held-out items. Precision at 10 depends on the density of the collection and varies
# more: it is measured on more queries, among the nearest items of the whole collection.
_MAP_QUERIES = 1000
_MOST_QUERIES = 3000
_MOST_ITEMS = 4000
_NEAREST = 1000
# Below this many rows one held-out third is too noisy; use three folds.
_FEW_ROWS = 10_000
# Least number of items per class where MAP is judged on two sides.
_FEWEST_TO_HALVE = 20


class Fold(NamedTuple):
    """Row numbers: to learn from, to query with, a sample of unseen items to search, and the whole collection."""

    learn: Rows
    queries: Rows
    sample: Rows
    collection: Rows


def mean_one(values: npt.NDArray[Any]) -> Floats:
    """Scale each row to a mean size of 1; rows of zeros become ones."""
    mean = np.abs(values).mean(axis=-1, keepdims=True, dtype=np.float64)
    return np.where(mean > 0, values / np.where(mean > 0, mean, 1.0), 1.0)


class HeldOut:
    """Rank for held-out queries: MAP in a sample of unseen items, P@10 in the whole collection."""

    def __init__(self, evidence: LabelEvidence, fold: Fold, scale_magnitudes: bool = True) -> None:
        codes, y = evidence.codes, evidence.y
        n_similar = (y[fold.queries][:, None] == y[fold.sample]).sum(axis=1)
        rows = fold.queries[n_similar > np.isin(fold.queries, fold.sample)]
        if len(rows) == 0:
            raise ValueError("no held-out query has a similar item: the classes are too small to hold rows out")
        self.codes, self.y, self.rows, self.collection = codes, y, rows, fold.collection
        self.queries, self.magnitudes = evidence.queries.take(rows)
        self.n_bits = evidence.n_bits
        if self.magnitudes is not None and not scale_magnitudes:  # the factor replaces them: bring both to one scale
            self.magnitudes = mean_one(self.magnitudes).astype(np.float32)
        self.scale_magnitudes = scale_magnitudes
        self.halves = _halves(y, rows[:_MAP_QUERIES], fold.sample)
        self.samples = [codes[items] for _, items in self.halves]
        self.classes = np.concatenate([y[rows[half]] for half, _ in self.halves])
        side = (1.0, -1.0) if len(self.halves) == 2 else (0.0,)
        self.sides = np.concatenate(
            [np.full(len(half), sign) for (half, _), sign in zip(self.halves, side, strict=True)]
        )
        self.itself = np.concatenate([rows[half][:, None] == items for half, items in self.halves])
        same_class = np.concatenate([y[rows[half]][:, None] == y[items] for half, items in self.halves])
        self.relevant = same_class & ~self.itself
        self.near = self._nearest(self.magnitudes)
        self.near_relevant = y[self.near] == y[rows][:, None]
        self.uniform = self._to_sample(self.magnitudes), self._to_rows(self.near, self.magnitudes)

    def _nearest(self, weights: Weights | None) -> Rows:
        """Rows of the collection nearest to each query, itself excluded."""
        n_near = min(_NEAREST, len(self.collection) - 1)
        near = np.empty((len(self.rows), n_near), np.int64)
        for start in range(0, len(self.rows), 64):
            part = slice(start, start + 64)
            found = self._distances(self.queries[part], self.codes[self.collection], _part(weights, part))
            found[self.rows[part][:, None] == self.collection] = np.inf
            near[part] = self.collection[np.argpartition(found, n_near - 1, axis=1)[:, :n_near]]
        return near

    def _weights(self, factor: Factor) -> Weights:
        weights = np.broadcast_to(
            mean_one(factor(self.rows) if callable(factor) else factor), (len(self.rows), self.n_bits)
        )
        return (weights * self.magnitudes if self.scale_magnitudes and self.magnitudes is not None else weights).astype(
            np.float32
        )

    def _distances(self, queries: Codes, items: Codes, weights: Weights | None) -> npt.NDArray[np.float32]:
        return distances(*self._flipped(queries, items, weights)).astype(np.float32, copy=False)

    def _flipped(self, queries: Codes, items: Codes, weights: Weights | None) -> tuple[Codes, Codes, Weights | None]:
        """Flip query bits where weights are negative; distances change by a constant per query."""
        if weights is not None and weights.min() < 0:
            queries, weights = split_vectors(signs(queries, self.n_bits) * weights)
        return queries, items, weights

    def _to_sample(self, weights: Weights | None) -> npt.NDArray[np.float32]:
        parts = zip(self.halves, self.samples, strict=True)
        return np.concatenate(
            [self._distances(self.queries[half], sample, _part(weights, half)) for (half, _), sample in parts]
        )

    def _to_rows(self, rows: Rows, weights: Weights | None) -> npt.NDArray[np.float32]:
        """Distances from each query to its own list of rows."""
        queries, codes, weights = self._flipped(self.queries, self.codes, weights)
        return distances_to_rows(queries, codes, rows, weights)

    def judge(self) -> tuple[Floats, Floats]:
        """Average precision and precision at 10 of every query, by uniform weights."""
        to_sample, to_near = self.uniform
        return self._score(to_sample.copy(), to_near, self.near_relevant)

    def judge_blends(self, factor: Factor, blends: Sequence[float]) -> Iterator[tuple[float, tuple[Floats, Floats]]]:
        """Judge every blend with the factor; a blend of weights is a blend of distances."""
        weights = self._weights(factor)
        uniform, near_relevant = self.uniform, self.near_relevant
        full = self._to_sample(weights), self._to_rows(self.near, weights)
        if weights is not None and weights.min() < 0:
            # Flipped bits find items that are far by uniform weights: add those nearest by the factor.
            more = self._nearest(weights)
            known = np.empty(more.shape, bool)
            flags = np.zeros(len(self.codes), bool)
            for row, (new, old) in enumerate(zip(more, self.near, strict=True)):
                flags[old] = True
                known[row] = flags[new]
                flags[old] = False
            far = np.where(known, np.float32(1e30), np.float32(0))
            near_relevant = np.hstack([near_relevant, (self.y[more] == self.y[self.rows][:, None]) & ~known])
            uniform, full = (
                (to_sample, np.hstack([to_near, self._to_rows(more, by) + far]))
                for (to_sample, to_near), by in ((uniform, self.magnitudes), (full, weights))
            )
        for amount in blends:
            share = np.float32(amount)
            to_sample, to_near = ((1 - share) * a + share * b for a, b in zip(uniform, full, strict=True))
            yield amount, self._score(to_sample, to_near, near_relevant)

    def _score(
        self,
        to_sample: npt.NDArray[np.float32],
        to_near: npt.NDArray[np.float32],
        near_relevant: npt.NDArray[np.bool_],
    ) -> tuple[Floats, Floats]:
        to_sample[self.itself] = np.inf
        # A query without a similar item among its nearest has precision 0, not an unknown one.
        p10 = np.nan_to_num(precision_at(to_near, near_relevant, 10))
        return average_precision(to_sample, self.relevant), p10


def _part(weights: Weights | None, part: slice | Rows) -> Weights | None:
    return None if weights is None else weights[part]


def _halves(y: npt.NDArray[Any], queries: Rows, items: Rows) -> list[tuple[Rows, Rows]]:
    """Split queries and items in two halves per class, each half judged in its own; or keep all together.

    Two judgements that share nothing tell chance from what is true of a class. Small classes stay whole: a half would
    have nothing left to find, and many classes measure chance by themselves.
    """
    if np.unique(y[items], return_counts=True)[1].min() >= _FEWEST_TO_HALVE:
        by_class = np.argsort(y[queries], kind="stable"), items[np.argsort(y[items], kind="stable")]
        n_items = len(items) // 2
        return [(by_class[0][side::2], np.sort(by_class[1][side::2][:n_items])) for side in (0, 1)]
    return [(np.arange(len(queries)), items)]


def some_rows(n: int, random: np.random.Generator) -> Rows:
    """Draw row numbers in random order, at most 50 000 of them.

    Examples
    --------
    >>> some_rows(1_000_000, np.random.default_rng(0)).shape
    (50000,)
    """
    return random.permutation(n)[:_MOST_ROWS]


def split(
    y: npt.NDArray[Any], validation: Validation, random: np.random.Generator, cross_validate: bool = False
) -> list[Fold]:
    """Hold out a third of the rows, or each third once where they are few; or half of the classes, then the other half.

    Examples
    --------
    >>> y = np.repeat([0, 1, 2, 3], 50)
    >>> [fold.learn.size for fold in split(y, "classes", np.random.default_rng(0))]
    [100, 100]
    """
    if validation not in get_args(Validation):
        raise ValueError(f"validation must be one of {get_args(Validation)}, got {validation!r}")
    rows = some_rows(len(y), random)
    if validation == "rows":
        thirds = np.array_split(rows, 3)
        folds = [_fold(np.setdiff1d(rows, third), third, rows) for third in thirds]
        return folds if cross_validate and len(rows) <= _FEW_ROWS else folds[:1]
    classes = random.permutation(np.unique(y))
    if len(classes) < 4:
        raise ValueError(f'validation="classes" needs at least four classes, got {len(classes)}')
    half = np.isin(y[rows], classes[: len(classes) // 2])
    sides = [rows[half], rows[~half]]
    return [_fold(learn, held_out, held_out) for learn, held_out in (sides, sides[::-1])]


def _fold(learn: Rows, held_out: Rows, collection: Rows) -> Fold:
    return Fold(np.sort(learn), held_out[:_MOST_QUERIES], held_out[:_MOST_ITEMS], np.sort(collection))
