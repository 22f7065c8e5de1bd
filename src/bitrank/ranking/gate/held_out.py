"""Held-out queries: how rows are split, and how weights rank for the queries that were held out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from bitrank.core.metrics import average_precision, precision_at
from bitrank.core.types import Rows, Weights
from bitrank.ranking.evidence.kinds import LabelEvidence
from bitrank.ranking.gate.near import Factor, Floats, HeldOutQueries

Validation = Literal["rows", "classes"]
# Labelled rows used at most: one weight per bit, or one blend, needs no more.
_MOST_ROWS = 50_000
# MAP is measured in a sample of the held-out items. Precision at 10 depends on the density of the collection and varies
# more: it is measured on more queries, among the nearest items of the whole collection.
_MAP_QUERIES = 1000
_MOST_QUERIES = 3000
_MOST_ITEMS = 4000
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


class HeldOut(HeldOutQueries):
    """Rank for held-out rows of labelled codes: MAP in a sample of unseen items, P@10 in the whole collection."""

    def __init__(self, evidence: LabelEvidence, fold: Fold, scale_magnitudes: bool = True) -> None:
        codes, y = evidence.codes, evidence.y
        n_similar = (y[fold.queries][:, None] == y[fold.sample]).sum(axis=1)
        rows = fold.queries[n_similar > np.isin(fold.queries, fold.sample)]
        if len(rows) == 0:
            raise ValueError("no held-out query has a similar item: the classes are too small to hold rows out")
        super().__init__(
            evidence.queries.take(rows), rows, codes, fold.collection, rows, evidence.n_bits, scale_magnitudes
        )
        self.y = y
        self.halves = _halves(y, rows[:_MAP_QUERIES], fold.sample)
        self.samples = [codes[items] for _, items in self.halves]
        self.classes = np.concatenate([y[rows[half]] for half, _ in self.halves])
        side = (1.0, -1.0) if len(self.halves) == 2 else (0.0,)
        self.sides = np.concatenate(
            [np.full(len(half), sign) for (half, _), sign in zip(self.halves, side, strict=True)]
        )
        self.in_sample = np.concatenate([rows[half][:, None] == items for half, items in self.halves])
        same_class = np.concatenate([y[rows[half]][:, None] == y[items] for half, items in self.halves])
        self.relevant = same_class & ~self.in_sample
        self.to_sample = self._to_sample(self.magnitudes)

    def judge(self) -> tuple[Floats, Floats]:
        """Average precision and precision at 10 of every query, by uniform weights."""
        near_relevant = self.y[self.near] == self.y[self.numbers][:, None]
        return self._score(self.to_sample.copy(), self.to_near, near_relevant)

    def judge_blends(self, factor: Factor, blends: Sequence[float]) -> Iterator[tuple[float, tuple[Floats, Floats]]]:
        """Judge every blend with the factor."""
        weights = self.weights(factor)
        full, near = self._to_sample(weights), self.blend_near(weights, blends)
        near_relevant = (self.y[near.rows] == self.y[self.numbers][:, None]) & ~near.known
        for amount, to_near in near.blends:
            share = np.float32(amount)
            yield amount, self._score((1 - share) * self.to_sample + share * full, to_near, near_relevant)

    def _to_sample(self, weights: Weights | None) -> npt.NDArray[np.float32]:
        parts = zip(self.halves, self.samples, strict=True)
        return np.concatenate([self.distances(half, sample, weights) for (half, _), sample in parts])

    def _score(
        self,
        to_sample: npt.NDArray[np.float32],
        to_near: npt.NDArray[np.float32],
        near_relevant: npt.NDArray[np.bool_],
    ) -> tuple[Floats, Floats]:
        to_sample[self.in_sample] = np.inf
        # A query without a similar item among its nearest has precision 0, not an unknown one.
        p10 = np.nan_to_num(precision_at(to_near, near_relevant, 10))
        return average_precision(to_sample, self.relevant), p10


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
