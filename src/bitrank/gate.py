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
from bitrank.metrics import average_precision, precision_at

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Scoring = Literal["guarded", "map", "p10"]
Validation = Literal["rows", "classes"]

# What multiplies the bits of a query: one vector, or a function of the query codes.
Factor = Weights | Callable[[Codes], Weights]
Learn = Callable[[Rows], Iterator[tuple[dict[str, Any], Factor]]]

BLENDS = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0)

# Of more labelled rows than this a random part is used: K weights, or one blend, do not need more.
_MOST_ROWS = 50_000
_HELD_OUT_SHARE = 0.3
# MAP is measured in a sample of the held-out items. Precision at 10 depends on how dense the collection is, so it is
# measured in all of it, among the items nearest to a query by uniform weights.
_MOST_QUERIES = 1000
_MOST_ITEMS = 4000
_NEAREST = 1000


class Fold(NamedTuple):
    """Row numbers: to learn from, to search with, a sample of unseen ones to search in, and the whole collection."""

    learn: Rows
    queries: Rows
    sample: Rows
    collection: Rows


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
    return (1 - amount) + amount * mean_one(factor)


def mean_one(values: npt.NDArray[Any]) -> Floats:
    """Scale each row to mean 1; rows of zeros become ones."""
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
    report = [{"blend": 0.0, **rival.figures(rival)}]
    report += [{**params, **scores.figures(rival)} for params, scores in table]
    best = pick(report, scoring)
    if best is None:
        return Choice(None, 0.0, report)
    params = {name: value for name, value in best.items() if name not in _FIGURES}
    return Choice(params, params.pop("blend"), report)


def pick(report: list[dict[str, Any]], scoring: Scoring) -> dict[str, Any] | None:
    """The line of a report with the best figure among those that beat uniform weights by more than chance, or None.

    So a learner's `report_` also answers what another scoring would have chosen.

    Examples
    --------
    >>> lines = [(0.0, 0.4, 0.8), (0.5, 0.5, 0.8), (1.0, 0.6, 0.7)]
    >>> report = [{"blend": b, "map": m, "p10": p, "map_error": 0.01, "p10_error": 0.0} for b, m, p in lines]
    >>> pick(report, "guarded")["blend"], pick(report, "map")["blend"], pick(report, "p10")
    (0.5, 1.0, None)
    """
    if scoring not in get_args(Scoring):
        raise ValueError(f"scoring must be one of {get_args(Scoring)}, got {scoring!r}")
    uniform, *tried = report

    def sure_gain(line: dict[str, Any], figure: str, errors: float) -> float:
        gain: float = line[figure] - uniform[figure] - errors * line[f"{figure}_error"]
        return gain

    winner, best = None, 0.0
    for line in tried:
        # The winner is the best of many on these queries, so the guard must allow for some luck in it: two standard
        # errors kept precision at 10 from falling on unseen queries, one did not.
        if scoring == "guarded" and sure_gain(line, "p10", errors=2) < 0:
            continue
        gain = sure_gain(line, "p10" if scoring == "p10" else "map", errors=1)
        if gain > best:
            winner, best = line, gain
    return winner


class _Scores(NamedTuple):
    """Average precision and precision at 10 of every held-out query."""

    ap: Floats
    p10: Floats

    @classmethod
    def gather(cls, parts: Iterable[tuple[Floats, Floats]]) -> _Scores:
        ap, p10 = zip(*parts, strict=True)
        return cls(np.concatenate(ap), np.concatenate(p10))

    def figures(self, rival: _Scores) -> dict[str, float]:
        """Means, and the standard errors of their gains over the rival's. Paired, query by query."""
        means = {"map": self.ap.mean(), "p10": self.p10.mean()}
        errors = {"map_error": _error(self.ap - rival.ap), "p10_error": _error(self.p10 - rival.p10)}
        return {name: float(value) for name, value in {**means, **errors}.items()}


_FIGURES = ("map", "p10", "map_error", "p10_error")


def _error(gains: Floats) -> float:
    """Standard error of the mean gain."""
    return float(gains.std() / np.sqrt(len(gains)))


class HeldOut:
    """Held-out queries and how weights rank for them: MAP in a sample of unseen items, P@10 in the whole collection."""

    def __init__(
        self, codes: Codes, y: npt.NDArray[Any], fold: Fold, n_bits: int, magnitudes: Weights | None = None
    ) -> None:
        with_similar = (y[fold.queries][:, None] == y[fold.sample]).sum(axis=1) > np.isin(fold.queries, fold.sample)
        rows = fold.queries[with_similar]
        if len(rows) == 0:
            raise ValueError("no held-out query has a similar item: the classes are too small to hold rows out")
        self.queries, self.n_bits = codes[rows], n_bits
        self.magnitudes = None if magnitudes is None else magnitudes[rows]
        self.sample = codes[fold.sample]
        self.own = np.nonzero(rows[:, None] == fold.sample)
        self.relevant = y[rows][:, None] == y[fold.sample]
        self.relevant[self.own] = False
        near = self._nearest(codes, rows, fold.collection)
        self.near = codes[near]
        self.near_relevant = y[near] == y[rows][:, None]
        self.uniform = self._distances(None)

    def _nearest(self, codes: Codes, rows: Rows, collection: Rows) -> Rows:
        """For each query the rows nearest to it by uniform weights, itself left out."""
        n_near = min(_NEAREST, len(collection) - 1)
        near = np.empty((len(rows), n_near), np.int64)
        for start in range(0, len(rows), 64):
            part = slice(start, start + 64)
            found = distances(self.queries[part], codes[collection], self._weights(None, part)).astype(np.float32)
            found[rows[part][:, None] == collection] = np.inf
            near[part] = collection[np.argpartition(found, n_near - 1, axis=1)[:, :n_near]]
        return near

    def _weights(self, factor: Factor | None, part: slice) -> Weights | None:
        if factor is None:
            return None if self.magnitudes is None else self.magnitudes[part]
        weights = np.broadcast_to(
            mean_one(factor(self.queries[part]) if callable(factor) else factor),
            (len(self.queries[part]), self.n_bits),
        )
        return (weights if self.magnitudes is None else weights * self.magnitudes[part]).astype(np.float32)

    def _distances(self, factor: Factor | None) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """To the sample, and to each query's nearest items."""
        weights = self._weights(factor, slice(None))
        to_sample = distances(self.queries, self.sample, weights).astype(np.float32, copy=False)
        to_near = np.empty(self.near.shape[:2], np.float32)
        for row, (query, items) in enumerate(zip(self.queries, self.near, strict=True)):
            to_near[row] = distances(query[None], items, None if weights is None else weights[row], threads=1)
        return to_sample, to_near

    def judge(self) -> tuple[Floats, Floats]:
        """Average precision and precision at 10 of every query, by uniform weights."""
        return self._score(*(found.copy() for found in self.uniform))

    def judge_blends(self, factor: Factor) -> Iterator[tuple[float, tuple[Floats, Floats]]]:
        """The same for every blend with the factor: a blend of weights is a blend of distances."""
        full = self._distances(factor)
        for amount in BLENDS:
            share = np.float32(amount)
            yield amount, self._score(*((1 - share) * a + share * b for a, b in zip(self.uniform, full, strict=True)))

    def _score(self, to_sample: npt.NDArray[np.float32], to_near: npt.NDArray[np.float32]) -> tuple[Floats, Floats]:
        to_sample[self.own] = np.inf
        # A query without a similar item among its nearest has a precision of 0 there, not an unknown one.
        p10 = np.nan_to_num(precision_at(to_near, self.near_relevant, 10))
        return average_precision(to_sample, self.relevant), p10


def some_rows(n: int, random: np.random.Generator) -> Rows:
    """Row numbers in random order; a part of them where there are very many.

    Examples
    --------
    >>> some_rows(1_000_000, np.random.default_rng(0)).shape
    (50000,)
    """
    return random.permutation(n)[:_MOST_ROWS]


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
    rows = some_rows(len(y), random)
    if validation == "rows":
        n_held_out = max(2, round(_HELD_OUT_SHARE * len(rows)))
        return [_fold(rows[n_held_out:], rows[:n_held_out], rows)]
    classes = random.permutation(np.unique(y))
    if len(classes) < 4:
        raise ValueError(f'validation="classes" needs at least four classes, got {len(classes)}')
    half = np.isin(y[rows], classes[: len(classes) // 2])
    sides = [rows[half], rows[~half]]
    return [_fold(learn, held_out, held_out) for learn, held_out in (sides, sides[::-1])]


def _fold(learn: Rows, held_out: Rows, collection: Rows) -> Fold:
    return Fold(np.sort(learn), held_out[:_MOST_QUERIES], held_out[:_MOST_ITEMS], np.sort(collection))


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
        full = margins(mean_one(weights))
        for amount in BLENDS:
            held = order((1 - amount) * uniform + amount * full)
            report.append({**params, "blend": amount, "order": float(held.mean())})
            gain = float((held - rival).mean()) - _error(held - rival)
            if gain > best:
                winner, best = Choice(params, amount, report), gain
    return winner
