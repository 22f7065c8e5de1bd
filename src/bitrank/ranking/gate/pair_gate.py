"""The gate for pairs and constraints: hold out whole queries, and judge candidates by nDCG@10 over the collection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.core.metrics import ndcg_at
from bitrank.core.types import Rows
from bitrank.ranking.evidence.kinds import PairEvidence
from bitrank.ranking.gate.choose import Candidates, Choice, standard_error
from bitrank.ranking.gate.near import Factor, Floats, HeldOutQueries, Near

_MOST_QUERIES = 1000  # held out per fold
_MOST_ITEMS = 50_000  # of the collection
# Below this many queries one held-out third is too noisy; use three folds.
_FEW_QUERIES = 1500
# Share of the named items whose pairs are hidden from learning: they stand for the documents of tomorrow.
_NEW_ITEMS = 1 / 3
# Standard errors that a gain must exceed.
_MIN_Z = 3.0


class Fold(NamedTuple):
    """Rows of pairs to learn from, queries to judge by, and items whose pairs are hidden."""

    learn: Rows
    queries: Rows
    new_items: Rows


def split(pairs: Rows, new_share: float, random: np.random.Generator) -> list[Fold]:
    """Hold out a third of the queries, or each third once where they are few; hide pairs of a share of the items.

    Examples
    --------
    >>> pairs = np.column_stack([np.repeat(np.arange(9), 4), np.arange(36), np.ones(36, int)])
    >>> [len(fold.queries) for fold in split(pairs, 0.0, np.random.default_rng(0))]
    [3, 3, 3]
    """
    queries = random.permutation(np.unique(pairs[pairs[:, 2] > 0, 0]))
    if len(queries) < 2:
        raise ValueError("evidence must come from at least two queries to hold one out, got one")
    folds = []
    for held_out in np.array_split(queries, min(3, len(queries)))[: 3 if len(queries) < _FEW_QUERIES else 1]:
        items = random.permutation(np.unique(pairs[:, 1]))
        new_items = items[: int(new_share * len(items))]
        hidden = np.isin(pairs[:, 0], held_out) | np.isin(pairs[:, 1], new_items)
        learn = np.flatnonzero(~hidden)
        if not (pairs[learn, 2] > 0).any():  # too few pairs to hide any: hold out queries alone
            learn, new_items = np.flatnonzero(~np.isin(pairs[:, 0], held_out)), new_items[:0]
        folds.append(Fold(learn, held_out[:_MOST_QUERIES], new_items))
    return folds


class HeldOutPairs(HeldOutQueries):
    """Rank for held-out queries: nDCG@10 of all their relevant items, and of those that no training pair names."""

    def __init__(
        self, evidence: PairEvidence, fold: Fold, scale_magnitudes: bool, itself: bool, random: np.random.Generator
    ) -> None:
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

    def judge(self) -> Floats:
        """nDCG@10 of every query for all its relevant items, and for the new ones, by the queries themselves."""
        return self._score(self.near, np.zeros(self.near.shape, bool), self.to_near)

    def judge_blends(self, factor: Factor, blends: Sequence[float]) -> Iterator[tuple[float, Floats]]:
        """Judge every blend with the factor."""
        near: Near = self.blend_near(self.weights(factor), blends)
        for amount, to_near in near.blends:
            yield amount, self._score(near.rows, near.known, to_near)

    def _score(self, rows: Rows, known: npt.NDArray[np.bool_], to_near: npt.NDArray[np.float32]) -> Floats:
        return np.column_stack([self._ndcg(rows, known, to_near, gains) for gains in (self.gains, self.new_gains)])

    def _ndcg(
        self, rows: Rows, known: npt.NDArray[np.bool_], to_near: npt.NDArray[np.float32], gains: Floats
    ) -> Floats:
        """nDCG@10 of every query; NaN where nothing is worth finding."""
        near_gains, best = np.zeros(rows.shape), np.zeros(len(rows))
        buffer = np.zeros(len(self.codes))
        discounts = 1 / np.log2(np.arange(2, 12))
        for place, (start, stop) in enumerate(zip(self.starts, self.stops, strict=True)):
            items, worth = self.pairs[start:stop, 1], gains[start:stop]
            buffer[items] = worth
            near_gains[place] = buffer[rows[place]]
            buffer[items] = 0
            top = -np.sort(-worth)[:10]
            best[place] = top @ discounts[: len(top)]
        near_gains[known] = 0
        near_best = -np.sort(-near_gains, axis=1)[:, :10]
        share = np.nan_to_num(ndcg_at(to_near, near_gains, 10)) * (near_best @ discounts[: near_best.shape[1]])
        out: Floats = np.divide(share, best, out=np.full(len(rows), np.nan), where=best > 0)
        return out


def choose(
    evidence: PairEvidence,
    candidates: Candidates,
    *,
    scale_magnitudes: bool = True,
    itself: bool = False,
    new_share: float = _NEW_ITEMS,
    blends: Sequence[float],
    random: np.random.Generator,
) -> Choice:
    """Rank for held-out queries by every candidate and blend, and pick one, or none.

    Parameters
    ----------
    evidence : PairEvidence
    candidates : callable
        Given rows of `evidence.pairs` to learn from, yields (parameters, factor) for every candidate.
    scale_magnitudes : bool
        Whether the factor multiplies the magnitudes of queries, or replaces them and is blended with them.
    itself : bool
        Whether queries are rows of the codes, which must not find themselves.
    new_share : float
        Share of the named items whose pairs are hidden from learning.
    blends : sequence of float
    random : numpy Generator

    Returns
    -------
    Choice
    """
    judged: dict[tuple[tuple[str, Any], ...], list[Floats]] = {}
    rivals: list[Floats] = []
    for fold in split(evidence.pairs, new_share, random):
        held_out = HeldOutPairs(evidence, fold, scale_magnitudes, itself, random)
        rivals.append(held_out.judge())
        for params, factor in candidates(fold.learn):
            for amount, scores in held_out.judge_blends(factor, blends):
                judged.setdefault((*params.items(), ("blend", amount)), []).append(scores)
    rival = np.concatenate(rivals)
    report = [{"blend": 0.0, **_figures(rival, rival)}]
    for key, parts in judged.items():
        if len(parts) == len(rivals):  # a candidate that could not be learned from every fold is not comparable
            report.append({**dict(key), **_figures(np.concatenate(parts), rival)})
    best = pick(report)
    if best is None:
        return Choice(None, 0.0, report)
    params = {name: value for name, value in best.items() if name not in _FIGURES}
    return Choice(params, params.pop("blend"), report)


def pick(report: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Pick the line with the best nDCG@10 among those that surely gain and do not lose on new items, or None.

    Examples
    --------
    >>> lines = [(0.0, 0.3, 0.3), (0.5, 0.4, 0.3), (1.0, 0.5, 0.2)]
    >>> report = [{"blend": b, "ndcg10": n, "ndcg10_error": 0.01, "new_ndcg10": w} for b, n, w in lines]
    >>> pick(report)["blend"]
    0.5
    """
    plain, *tried = report
    winner = None
    for line in tried:
        gain = line["ndcg10"] - plain["ndcg10"]
        new_gain = line["new_ndcg10"] - plain["new_ndcg10"] if plain["new_ndcg10"] is not None else 0.0
        surely = gain > _MIN_Z * line["ndcg10_error"] and new_gain >= 0
        if surely and (winner is None or line["ndcg10"] > winner["ndcg10"]):
            winner = line
    return winner


_FIGURES = ("ndcg10", "ndcg10_error", "new_ndcg10")


def _figures(scores: Floats, rival: Floats) -> dict[str, float | None]:
    """Means of both figures, and the standard error of the first one's gain, paired by query."""
    new = scores[~np.isnan(rival[:, 1]), 1]
    return {
        "ndcg10": float(scores[:, 0].mean()),
        "ndcg10_error": standard_error(scores[:, 0] - rival[:, 0]),
        "new_ndcg10": float(new.mean()) if len(new) else None,
    }
