"""Choosing among candidate weights on held-out data, so that what is learned never ranks worse than what it replaces.

Every learner hands its candidates to `choose`, which blends each with uniform weights, ranks held-out queries, and
answers with the best blend or with none; the learner then learns once more, from all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from bitrank.codes import Codes, Weights, distances
from bitrank.metrics import average_precision_and_precision_at

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Scoring = Literal["guarded", "map", "p10"]
Validation = Literal["rows", "classes"]

# What multiplies the bits of a query: one vector, or a function of the query codes.
Factor = Weights | Callable[[Codes], Weights]
Learn = Callable[[Rows], Iterator[tuple[dict[str, Any], Factor]]]

BLENDS = (0.1, 0.25, 0.5, 0.75, 1.0)

_HELD_OUT_SHARE = 0.3
_MOST_QUERIES = 1000
_MOST_ITEMS = 6000


class Fold(NamedTuple):
    """Row numbers: to learn from, to search with, and to search in."""

    learn: Rows
    queries: Rows
    items: Rows


class Choice(NamedTuple):
    """The parameters and blend that won (None and 0.0: uniform weights), and a line for each that was tried."""

    params: dict[str, Any] | None
    blend: float
    report: list[dict[str, Any]]


def blend(factor: npt.NDArray[Any], amount: float) -> Floats:
    """Mix weights, scaled to mean 1, with uniform ones: (1 − amount)·1 + amount·factor.

    Examples
    --------
    >>> blend(np.array([1.0, 3.0]), 0.5)
    array([0.75, 1.25])
    """
    return (1 - amount) + amount * _mean_one(factor)


def _mean_one(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    mean = values.mean(axis=-1, keepdims=True, dtype=np.float64)
    return np.where(mean > 0, values / np.where(mean > 0, mean, 1.0), 1.0)


def choose(
    codes: Codes,
    y: npt.NDArray[Any],
    learn: Learn,
    *,
    n_bits: int,
    magnitudes: Weights | None = None,
    scoring: Scoring = "guarded",
    validation: Validation = "rows",
    random: np.random.Generator,
) -> Choice:
    """Rank held-out queries by every candidate and blend, and pick one.

    Parameters
    ----------
    codes : packed codes
    y : class labels, one a code
    learn : callable
        Given row numbers to learn from, yields (parameters, factor) for every candidate.
    n_bits : int
    magnitudes : array of shape (n, n_bits), optional
        Float queries: weights are the magnitudes times the factor, and the rival is the asymmetric distance.
    scoring : {"guarded", "map", "p10"}
        "guarded" maximises MAP among those that do not lower precision at 10; "map" and "p10" maximise that figure.
    validation : {"rows", "classes"}
        Hold out rows of every class, or whole classes: for collections whose future classes are new.
    random : numpy Generator

    Returns
    -------
    Choice
    """
    if scoring not in get_args(Scoring):
        raise ValueError(f"scoring must be one of {get_args(Scoring)}, got {scoring!r}")
    judged: dict[tuple[tuple[str, Any], ...], list[tuple[Floats, Floats]]] = {}
    rivals: list[tuple[Floats, Floats]] = []
    for fold in split(y, validation, random):
        held_out = HeldOut(codes, y, fold, n_bits, magnitudes)
        rivals.append(held_out.judge())
        for params, factor in learn(fold.learn):
            for amount, scores in held_out.judge_blends(factor):
                judged.setdefault((*params.items(), ("blend", amount)), []).append(scores)
    rival = _Scores.gather(rivals)
    # A candidate that could not be learned from every fold is not comparable.
    table = [(dict(key), _Scores.gather(parts)) for key, parts in judged.items() if len(parts) == len(rivals)]
    report = [{"blend": 0.0, **rival.means()}, *({**params, **scores.means()} for params, scores in table)]
    best = _best(table, rival, scoring)
    if best is None:
        return Choice(None, 0.0, report)
    params = dict(best)
    return Choice(params, params.pop("blend"), report)


class _Scores(NamedTuple):
    """Average precision and precision at 10 of every held-out query."""

    ap: Floats
    p10: Floats

    @classmethod
    def gather(cls, parts: Iterable[tuple[Floats, Floats]]) -> _Scores:
        ap, p10 = zip(*parts, strict=True)
        return cls(np.concatenate(ap), np.concatenate(p10))

    def means(self) -> dict[str, float]:
        return {"map": float(self.ap.mean()), "p10": float(self.p10.mean())}


def _best(table: list[tuple[dict[str, Any], _Scores]], rival: _Scores, scoring: Scoring) -> dict[str, Any] | None:
    """The candidate with the best figure among those that beat the rival by more than chance."""
    winner, best = None, 0.0
    for params, scores in table:
        figure = _sure_gain(scores.p10, rival.p10) if scoring == "p10" else _sure_gain(scores.ap, rival.ap)
        if scoring == "guarded" and _sure_gain(scores.p10, rival.p10) < 0:
            continue
        if figure > best:
            winner, best = params, figure
    return winner


def _sure_gain(new: Floats, old: Floats) -> float:
    """Mean gain, less its standard error: what is left when luck is taken off. Paired, query by query."""
    difference = new - old
    return float(difference.mean() - difference.std() / np.sqrt(len(difference)))


class HeldOut:
    """Held-out queries and items, and how weights rank them; a query never finds itself."""

    def __init__(
        self, codes: Codes, y: npt.NDArray[Any], fold: Fold, n_bits: int, magnitudes: Weights | None = None
    ) -> None:
        self.queries, self.items, self.n_bits = codes[fold.queries], codes[fold.items], n_bits
        self.relevant = y[fold.queries][:, None] == y[fold.items]
        query, item = np.nonzero(fold.queries[:, None] == fold.items)
        self.own = (query, item)
        self.relevant[self.own] = False
        self.magnitudes = None if magnitudes is None else magnitudes[fold.queries]
        usable = self.relevant.any(axis=1)
        if not usable.all():  # a query whose class has no other item says nothing
            self.queries, self.relevant = self.queries[usable], self.relevant[usable]
            place = np.cumsum(usable) - 1
            keep = usable[query]
            self.own = (place[query[keep]], item[keep])
            self.magnitudes = None if self.magnitudes is None else self.magnitudes[usable]
        if len(self.queries) == 0:
            raise ValueError("no held-out query has a similar item: the classes are too small to hold rows out")
        self._uniform = self._distances(None)

    def _distances(self, factor: Factor | None) -> npt.NDArray[np.float32]:
        weights: npt.NDArray[Any] = (
            np.ones(self.n_bits) if factor is None else _mean_one(_evaluate(factor, self.queries))
        )
        if self.magnitudes is not None:
            weights = weights * self.magnitudes
        found: npt.NDArray[np.float32] = distances(self.queries, self.items, weights)
        return found

    def judge(self, factor: Factor | None = None) -> tuple[Floats, Floats]:
        """Average precision and precision at 10 of every query; no factor stands for uniform weights."""
        return self._score(self._uniform.copy() if factor is None else self._distances(factor))

    def judge_blends(self, factor: Factor) -> Iterator[tuple[float, tuple[Floats, Floats]]]:
        """The same for every blend: a blend of weights is a blend of distances."""
        full = self._distances(factor)
        for amount in BLENDS:
            share = np.float32(amount)
            yield amount, self._score((1 - share) * self._uniform + share * full)

    def _score(self, found: npt.NDArray[np.float32]) -> tuple[Floats, Floats]:
        found[self.own] = np.inf
        return average_precision_and_precision_at(found, self.relevant, 10)


def _evaluate(factor: Factor, queries: Codes) -> Weights:
    return factor(queries) if callable(factor) else factor


def split(y: npt.NDArray[Any], validation: Validation, random: np.random.Generator) -> list[Fold]:
    """Hold out three rows in ten, once; or half of the classes, and then the other half.

    Examples
    --------
    >>> y = np.repeat([0, 1, 2, 3], 50)
    >>> [fold.learn.size for fold in split(y, "classes", np.random.default_rng(0))]
    [100, 100]
    """
    if validation not in get_args(Validation):
        raise ValueError(f"validation must be one of {get_args(Validation)}, got {validation!r}")
    if validation == "rows":
        order = random.permutation(len(y))
        n_held_out = max(1, round(_HELD_OUT_SHARE * len(y)))
        return [_fold(order[n_held_out:], order[:n_held_out])]
    classes = random.permutation(np.unique(y))
    if len(classes) < 4:
        raise ValueError(f'validation="classes" needs at least four classes, got {len(classes)}')
    half = np.isin(y, classes[: len(classes) // 2])
    halves = [random.permutation(np.flatnonzero(side)) for side in (half, ~half)]
    return [_fold(halves[0], halves[1]), _fold(halves[1], halves[0])]


def _fold(learn: Rows, held_out: Rows) -> Fold:
    return Fold(np.sort(learn), held_out[:_MOST_QUERIES], held_out[:_MOST_ITEMS])


def hold_out_queries(queries: Rows, random: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Mark the rows of three queries in ten, so that none is on both sides."""
    distinct = np.unique(queries)
    if len(distinct) < 2:
        raise ValueError('C="auto" needs quadruplets of at least two queries to hold one out, got one; give C')
    n_held_out = min(len(distinct) - 1, max(1, round(_HELD_OUT_SHARE * len(distinct))))
    return np.isin(queries, random.permutation(distinct)[:n_held_out])


def choose_by_order(
    margins: Callable[[Floats], Floats], candidates: Iterable[tuple[dict[str, Any], Floats]], n_bits: int
) -> Choice:
    """Pick a candidate and blend by the share of held-out order constraints that hold; a tie holds by half.

    `margins` gives, for weights, how much farther the dissimilar item is than the similar one in every constraint.
    """

    def order(margin: Floats) -> Floats:
        return (np.sign(margin) + 1) / 2

    uniform = margins(np.ones(n_bits))
    rival = order(uniform)
    report: list[dict[str, Any]] = [{"blend": 0.0, "order": float(rival.mean())}]
    winner, best = Choice(None, 0.0, report), 0.0
    for params, weights in candidates:
        full = margins(_mean_one(weights))
        for amount in BLENDS:
            held = order((1 - amount) * uniform + amount * full)
            report.append({**params, "blend": amount, "order": float(held.mean())})
            gain = _sure_gain(held, rival)
            if gain > best:
                winner, best = Choice(params, amount, report), gain
    return winner
