"""Judges: how well a factor, blended with the query itself, ranks for held-out queries.

Labels are judged by MAP and precision at 10, judged pairs and constraints by nDCG@10. Both look only at the items that
are nearest to each query by the query itself or by the factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, stdtrit

from bitrank.core.codes import distances, distances_to_rows, signs, split_vectors
from bitrank.core.metrics import average_precision, bedroc, ndcg_at, precision_at, recall_before, reciprocal_rank_at
from bitrank.core.ties import smallest_columns
from bitrank.core.types import Codes, Rows, Weights
from bitrank.ranking.evidence.kinds import LabelEvidence, PairEvidence, QueryRows, TooLittleEvidenceError, blocks
from bitrank.ranking.gate.folds import LabelFold, PairFold

Floats = npt.NDArray[np.float64]
Distances = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
# What multiplies the bits of a query: one vector, or a function of query row numbers. A negative weight flips the bit.
Factor = npt.NDArray[np.floating[Any]] | Callable[[Rows], Weights]

_NEAREST = 1000  # items per query
# MAP is measured on fewer queries and in a sample of the held-out items. Precision at 10 depends on the density of the
# collection and varies more: it is measured on more queries, among the nearest items of the whole collection.
_MAP_QUERIES = 1000
_MOST_ITEMS = 50_000  # of the collection, beside those that pairs name
_MIN_Z = 3.0  # standard errors that a gain must exceed
_FEWEST_TO_HALVE = 20  # least number of items per class where MAP is judged on two sides


def mean_one(values: npt.NDArray[Any]) -> Floats:
    """Scale each row to a mean size of 1; rows of zeros become ones."""
    scaled: Floats = values.astype(np.float64)
    mean = np.add.reduce(np.abs(scaled), axis=-1, keepdims=True) / max(1, values.shape[-1])
    known = mean > 0
    if not known.all():
        scaled, mean = np.where(known, scaled, 1.0), np.where(known, mean, 1.0)
    scaled /= mean
    return scaled


def standard_error(gains: Floats) -> float:
    """Standard error of the mean gain: the one that all gates use.

    Few gains say little about their own spread: it is widened so that a multiple of it, three, is as sure as with many.

    Examples
    --------
    >>> [round(standard_error(np.tile([0.0, 2.0], n)), 2) for n in (2, 8, 800)]
    [1.77, 0.31, 0.03]
    """
    n = len(gains)
    if n < 2:
        return math.inf
    return float(stdtrit(n - 1, ndtr(_MIN_Z)) / _MIN_Z * gains.std(ddof=1) / np.sqrt(n))


class LabelScores(NamedTuple):
    """Average precision of queries, precision at 10 of more queries, and class and side of the first ones.

    `score` is another figure of these or those queries, or without values.
    """

    ap: Floats
    p10: Floats
    classes: npt.NDArray[Any]
    sides: Floats
    score: Floats

    def figures(self, rival: LabelScores) -> dict[str, float]:
        """Means, and the standard errors of their gains over the rival's, paired by query.

        Queries of one class look for the same items and gain or lose together: for MAP each class counts as one
        observation where that gives the larger error. Where a class was judged on two sides, in different items, only
        the difference between the sides is chance; where on one, the difference between classes counts as chance.
        """
        means = {"map": self.ap.mean(), "p10": self.p10.mean()}
        gains, groups = self.ap - rival.ap, np.unique(rival.classes, return_inverse=True)[1]
        of_classes = np.bincount(groups, np.where(rival.sides == 0, gains - gains.mean(), rival.sides * gains))
        by_class = float(np.sqrt(of_classes @ of_classes) / len(gains))
        errors = {"map_error": max(standard_error(gains), by_class), "p10_error": standard_error(self.p10 - rival.p10)}
        return {name: float(value) for name, value in {**means, **errors}.items()} | _score_figures(self, rival)

    @staticmethod
    def mean_of(parts: Sequence[LabelScores]) -> LabelScores:
        """Mean of several judgements of the same queries."""
        ap, p10, score = (np.mean([getattr(part, name) for part in parts], axis=0) for name in ("ap", "p10", "score"))
        return parts[0]._replace(ap=ap, p10=p10, score=score)


class PairScores(NamedTuple):
    """nDCG@10 of every query for all its relevant items, and for those that no training pair names; another figure."""

    ndcg10: Floats
    new_ndcg10: Floats
    score: Floats

    def figures(self, rival: PairScores) -> dict[str, float | None]:
        """Means of both figures, and the standard error of the first one's gain, paired by query."""
        new = self.new_ndcg10[~np.isnan(rival.new_ndcg10)]
        return {
            "ndcg10": float(self.ndcg10.mean()),
            "ndcg10_error": standard_error(self.ndcg10 - rival.ndcg10),
            "new_ndcg10": float(new.mean()) if len(new) else None,
            **_score_figures(self, rival),
        }

    @staticmethod
    def mean_of(parts: Sequence[PairScores]) -> PairScores:
        """Mean of several judgements of the same queries."""
        return PairScores(*(np.mean(columns, axis=0) for columns in zip(*parts, strict=True)))


def _score_figures(now: Any, rival: Any) -> dict[str, float]:
    """Mean of the other figure, and the standard error of its gain."""
    if not len(now.score):
        return {}
    return {"score": float(now.score.mean()), "score_error": standard_error(now.score - rival.score)}


def score_lists(scoring: str, to_items: Distances, gains: npt.NDArray[Any], n_relevant: Rows, best: Floats) -> Floats:
    """The figure of a scoring for every query by its nearest items; without values for those of other lists.

    Parameters
    ----------
    scoring : str
    to_items, gains : arrays of shape (n_queries, n)
    n_relevant, best : arrays of shape (n_queries,)
        Relevant items, and the best DCG@10, of the whole collection.
    """
    relevant, figure = gains > 0, np.empty(0)
    if scoring == "mrr":
        figure = np.nan_to_num(reciprocal_rank_at(to_items, relevant, 10))
    elif scoring.startswith("recall@"):
        figure = np.nan_to_num(recall_before(to_items, relevant, int(scoring.partition("@")[2])))
        figure *= relevant.sum(axis=1) / np.maximum(n_relevant, 1)
    elif scoring == "ndcg":
        gained = np.nan_to_num(ndcg_at(to_items, gains, 10)) * best_dcg(gains)
        figure = np.divide(gained, best, out=np.full(len(best), np.nan), where=best > 0)
    return figure


def best_dcg(gains: npt.NDArray[Any]) -> Floats:
    """DCG@10 of rows of gains in their best order."""
    top = -np.sort(-gains.astype(np.float64), axis=1)[:, :10]
    out: Floats = top @ (1 / np.log2(np.arange(2, top.shape[1] + 2)))
    return out


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

    def vectors(self, factor: Factor, amount: float) -> Weights:
        """The queries, mixed with a factor, as one real per bit."""
        itself = np.float32(1) if self.magnitudes is None else self.magnitudes
        mixed = (1 - np.float32(amount)) * itself + np.float32(amount) * self.weights(factor)
        return signs(self.queries, self.n_bits) * mixed

    def distances(self, part: slice | Rows, items: Codes, weights: Weights | None) -> Distances:
        """Distances of some queries to items."""
        some = None if weights is None else weights[part]
        return distances_between(self.queries[part], items, some, self.n_bits).astype(np.float32, copy=False)

    def to_rows(self, rows: Rows, weights: Weights | None) -> Distances:
        """Distances from each query to its own list of rows."""
        if self.codes.dtype == np.uint8:
            queries, weights = _flipped(self.queries, weights, self.n_bits)
            return distances_to_rows(queries, self.codes, rows, weights)
        vectors = signs(self.queries, self.n_bits) * np.asarray(weights)
        out = np.empty(rows.shape, np.float32)
        for place, vector in enumerate(vectors):
            np.matmul(self.codes[rows[place]], -vector, out=out[place])
        return out

    def blend_near(
        self, weights: Weights, blends: Sequence[float]
    ) -> tuple[Rows, Mask, Iterator[tuple[float, Distances]]]:
        """Rows of near items per query, which of them come again, far away, and the distances to them for every blend.

        A blend of weights is a blend of distances; those of one hold until the next is taken.
        """
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
        return rows, known, _mix(plain, full, blends)

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


def distances_between(
    queries: Codes, items: Any, weights: Weights | None, n_bits: int
) -> npt.NDArray[np.floating[Any]]:
    """Distances of queries to codes; to rows of reals, minus the products with them."""
    if items.dtype == np.uint8:
        queries, weights = _flipped(queries, weights, n_bits)
        return distances(queries, items, weights)
    out: Distances = -(signs(queries, n_bits) * np.asarray(weights)) @ items.T
    return out


def _flipped(queries: Codes, weights: Weights | None, n_bits: int) -> tuple[Codes, Weights | None]:
    """Flip query bits where weights are negative; distances change by a constant per query."""
    if weights is not None and weights.size and weights.min() < 0:
        return split_vectors(signs(queries, n_bits) * weights)
    return queries, weights


def _mix(
    plain: npt.NDArray[np.float32], full: npt.NDArray[np.float32], blends: Sequence[float]
) -> Iterator[tuple[float, Distances]]:
    """Mix two matrices in several shares, in one place of memory."""
    mixed, rest = np.empty_like(plain), np.empty_like(plain)
    for amount in blends:
        np.multiply(1 - np.float32(amount), plain, out=mixed)
        mixed += np.multiply(np.float32(amount), full, out=rest)
        yield amount, mixed


class HeldOutLabels(HeldOutQueries):
    """Rank for held-out rows of labelled codes: MAP in a sample of unseen items, P@10 in the whole collection."""

    def __init__(
        self, evidence: LabelEvidence, fold: LabelFold, scale_magnitudes: bool = True, scoring: str = "guarded"
    ) -> None:
        codes, y = evidence.codes, evidence.y
        n_similar = (y[fold.queries][:, None] == y[fold.sample]).sum(axis=1)
        rows = fold.queries[n_similar > np.isin(fold.queries, fold.sample)]
        if len(rows) == 0:
            raise TooLittleEvidenceError("no held-out query has a similar item: the classes are too small")
        super().__init__(
            evidence.queries.take(rows), rows, codes, fold.collection, rows, evidence.n_bits, scale_magnitudes
        )
        self.y, self.scoring = y, scoring
        classes, counts = np.unique(y[fold.collection], return_counts=True)
        self.n_relevant = counts[np.searchsorted(classes, y[rows])] - np.isin(rows, fold.collection)
        self.best = best_dcg((np.arange(10) < self.n_relevant[:, None]).astype(np.float64))
        self.halves = halves(y, rows[:_MAP_QUERIES], fold.sample)
        sides = (1.0, -1.0) if len(self.halves) == 2 else (0.0,)
        parts = [
            (y[rows[half]], np.full(len(half), side), rows[half][:, None] == items, y[rows[half]][:, None] == y[items])
            for side, (half, items) in zip(sides, self.halves, strict=True)
        ]
        self.classes, self.sides, self.in_sample, self.same_class = map(np.concatenate, zip(*parts, strict=True))
        self.relevant = self.same_class & ~self.in_sample
        self.to_sample = self._to_sample(self.magnitudes)

    def judge(self) -> LabelScores:
        """Scores of every query by uniform weights."""
        return self._score(self.to_sample.copy(), self.to_near, self._near_relevant(self.near), self.relevant)

    def judge_exchanged(self, random: np.random.Generator) -> LabelScores:
        """Scores of every query by uniform weights for the class of another: for MAP, of another in its half."""
        starts = np.cumsum([0] + [len(half) for half, _ in self.halves[:-1]])
        order = np.concatenate([s + random.permutation(len(h)) for s, (h, _) in zip(starts, self.halves, strict=True)])
        near_relevant = self._near_relevant(self.near, random.permutation(self.numbers))
        return self._score(self.to_sample.copy(), self.to_near, near_relevant, self.same_class[order] & ~self.in_sample)

    def judge_blends(self, factor: Factor, blends: Sequence[float]) -> Iterator[tuple[float, LabelScores]]:
        """Judge every blend with the factor."""
        weights = self.weights(factor)
        full, (rows, known, blended) = self._to_sample(weights), self.blend_near(weights, blends)
        near_relevant = self._near_relevant(rows) & ~known
        for amount, to_near in blended:
            share = np.float32(amount)
            to_sample = (1 - share) * self.to_sample + share * full
            yield amount, self._score(to_sample, to_near, near_relevant, self.relevant)

    def _near_relevant(self, near: Rows, wanted: Rows | None = None) -> Mask:
        """Which near rows are of the class of their query, or of the rows that are wanted in its place."""
        relevant: Mask = self.y[near] == self.y[self.numbers if wanted is None else wanted][:, None]
        return relevant

    def _to_sample(self, weights: Weights | None) -> Distances:
        return np.concatenate([self.distances(half, self.codes[items], weights) for half, items in self.halves])

    def _score(self, to_sample: Distances, to_near: Distances, near_relevant: Mask, relevant: Mask) -> LabelScores:
        to_sample[self.in_sample] = np.inf
        # A query without a similar item among its nearest has precision 0, not an unknown one.
        p10 = np.nan_to_num(precision_at(to_near, near_relevant, 10))
        score = score_lists(self.scoring, to_near, near_relevant, self.n_relevant, self.best)
        if self.scoring == "bedroc":
            score = np.nan_to_num(bedroc(to_sample, relevant))
        ap = np.nan_to_num(average_precision(to_sample, relevant))
        return LabelScores(ap, p10, self.classes, self.sides, score)


def halves(y: npt.NDArray[Any], queries: Rows, items: Rows) -> list[tuple[Rows, Rows]]:
    """Split queries and items in two halves per class, each half judged in its own; or keep all together.

    Two judgements that share nothing tell chance from what is true of a class. Small classes stay whole: a half would
    have nothing left to find, and many classes measure chance by themselves.
    """
    if np.unique(y[items], return_counts=True)[1].min() >= _FEWEST_TO_HALVE:
        by_class = np.argsort(y[queries], kind="stable"), items[np.argsort(y[items], kind="stable")]
        n_items = len(items) // 2
        return [(by_class[0][side::2], np.sort(by_class[1][side::2][:n_items])) for side in (0, 1)]
    return [(np.arange(len(queries)), items)]


class HeldOutPairs(HeldOutQueries):
    """Rank for held-out queries: nDCG@10 of all their relevant items, and of those that no training pair names."""

    def __init__(
        self,
        evidence: PairEvidence,
        fold: PairFold,
        scale_magnitudes: bool,
        itself: bool,
        random: np.random.Generator,
        scoring: str = "guarded",
    ) -> None:
        self.scoring = "guarded" if scoring == "ndcg" else scoring
        numbers = np.sort(fold.queries)
        pairs = evidence.pairs[np.isin(evidence.pairs[:, 0], numbers) & (evidence.pairs[:, 2] > 0)]
        collection = np.arange(len(evidence.codes))
        if len(collection) > _MOST_ITEMS:
            sample = random.permutation(len(collection))[:_MOST_ITEMS]
            collection = np.union1d(sample, pairs[:, 1])
        rows = numbers if itself else None
        queries = evidence.queries.take(numbers)
        super().__init__(queries, numbers, evidence.codes, collection, rows, evidence.n_bits, scale_magnitudes)
        self.pairs, self.gains = pairs, np.exp2(pairs[:, 2], dtype=np.float64) - 1
        self.starts = np.searchsorted(pairs[:, 0], numbers)
        self.stops = np.searchsorted(pairs[:, 0], numbers, side="right")
        self.new_gains: Floats = np.where(np.isin(pairs[:, 1], fold.new_items), self.gains, 0.0)

    def judge(self) -> PairScores:
        """Scores of every query by the queries themselves."""
        return self._score(self.near, np.zeros(self.near.shape, bool), self.to_near)

    def judge_exchanged(self, random: np.random.Generator) -> PairScores:
        """Scores of every query by itself for the list of another."""
        order = random.permutation(len(self.numbers))
        return self._score(self.near, np.zeros(self.near.shape, bool), self.to_near, order)

    def judge_blends(self, factor: Factor, blends: Sequence[float]) -> Iterator[tuple[float, PairScores]]:
        """Judge every blend with the factor."""
        rows, known, blended = self.blend_near(self.weights(factor), blends)
        for amount, to_near in blended:
            yield amount, self._score(rows, known, to_near)

    def _score(self, rows: Rows, known: Mask, to_near: Distances, lists: Any = slice(None)) -> PairScores:
        kinds = [self._gains_of(rows, known, gains, lists) for gains in (self.gains, self.new_gains)]
        ndcg10, new_ndcg10 = (score_lists("ndcg", to_near, *kind) for kind in kinds)
        return PairScores(ndcg10, new_ndcg10, score_lists(self.scoring, to_near, *kinds[0]))

    def _gains_of(self, rows: Rows, known: Mask, gains: Floats, lists: Any) -> tuple[Floats, Rows, Floats]:
        """Gains of near items for every query's list, or that of another; how many it has, and its best DCG@10."""
        near_gains, best, buffer = np.zeros(rows.shape), np.zeros((len(rows), 10)), np.zeros(len(self.codes))
        n_relevant = np.zeros(len(rows), np.int64)
        for place, (start, stop) in enumerate(zip(self.starts[lists], self.stops[lists], strict=True)):
            items, worth = self.pairs[start:stop, 1], gains[start:stop]
            buffer[items] = worth
            near_gains[place] = buffer[rows[place]]
            buffer[items] = 0
            top = -np.sort(-worth)[:10]
            best[place, : len(top)], n_relevant[place] = top, np.count_nonzero(worth)
        near_gains[known] = 0
        return near_gains, n_relevant, best_dcg(best)
