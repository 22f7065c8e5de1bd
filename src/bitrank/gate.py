"""Choosing among candidate weights on held-out data, so that what is learned never ranks worse than what it replaces.

Every learner hands its candidates to `choose`, which blends each with uniform weights, ranks held-out queries, and
answers with the best blend or with none; the learner then learns once more, from all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from bitrank.codes import Codes, Weights, distances, distances_to_rows, signs, split_vectors
from bitrank.metrics import average_precision, precision_at

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Scoring = Literal["guarded", "map", "p10"]
Validation = Literal["rows", "classes"]

# What multiplies the bits of a query: one vector, or a function of the rows that are the queries. A negative weight
# says that the query's bit is better turned.
Factor = Weights | Callable[[Rows], Weights]
Learn = Callable[[Rows], Iterator[tuple[dict[str, Any], Factor]]]

BLENDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
COARSE_BLENDS = (0.1, 0.25, 0.5, 0.75, 1.0)  # for learners with many candidates

# Of more labelled rows than this a random part is used: K weights, or one blend, do not need more.
_MOST_ROWS = 50_000
# MAP is measured on a thousand queries in a sample of the held-out items. Precision at 10 depends on how dense the
# collection is, and varies more: it is measured on more queries, in all of the collection, among the items nearest to
# each by uniform weights.
_MAP_QUERIES = 1000
_MOST_QUERIES = 3000
_MOST_ITEMS = 4000
_NEAREST = 1000
# Of so few rows a third says little: learners that are quick hold out each third in turn.
_FEW_ROWS = 10_000
# A gain in MAP must be so many of its standard errors: the winner is the best of about a hundred. Over random labels
# the best mostly came to 2 and rarely to 3 or more, over digits of 600 rows and more to at least 5.5.
_SURE = 4.0
# Items of a class, at least, where MAP is judged on two sides.
_FEWEST_TO_HALVE = 20


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


def blend_at_scale(factor: npt.NDArray[Any], amount: float, scale: float) -> Floats:
    """The same, times a scale: for learners that go on from these weights, which a ranking need not.

    Uniform weights get the power of two nearest to the scale: sums of it are exact in any order, so that equal Hamming
    distances stay equal.

    Examples
    --------
    >>> blend_at_scale(np.array([1.0, 3.0]), 0.0, 0.3)
    array([0.25, 0.25])
    """
    return blend(factor, amount) * (scale if amount > 0 else 2.0 ** np.round(np.log2(scale)))


def mean_one(values: npt.NDArray[Any]) -> Floats:
    """Scale each row to a mean size of 1; rows of zeros become ones."""
    mean = np.abs(values).mean(axis=-1, keepdims=True, dtype=np.float64)
    return np.where(mean > 0, values / np.where(mean > 0, mean, 1.0), 1.0)


def choose(
    codes: Codes,
    y: npt.NDArray[Any],
    learn: Learn,
    *,
    n_bits: int,
    magnitudes: Weights | None = None,
    on_top: bool = True,
    blends: Sequence[float] = BLENDS,
    in_turn: bool = False,
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
    on_top : bool
        Whether the factor multiplies the magnitudes, or stands in their place and is blended with them.
    blends : sequence of float
        Shares of the factor to try, the rest being uniform weights.
    in_turn : bool
        Where rows are few, hold out every third of them in turn: three times the learning, better judgement.
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
    classes: list[npt.NDArray[Any]] = []
    sides: list[Floats] = []
    for fold in split(y, validation, random, in_turn):
        held_out = HeldOut(codes, y, fold, n_bits, magnitudes, on_top)
        rivals.append(held_out.judge())
        classes.append(held_out.classes)
        sides.append(held_out.sides)
        for params, factor in learn(fold.learn):
            for amount, scores in held_out.judge_blends(factor, blends):
                judged.setdefault((*params.items(), ("blend", amount)), []).append(scores)
    rival = _Scores.gather(rivals)
    # A candidate that could not be learned from every fold is not comparable.
    table = [(dict(key), _Scores.gather(parts)) for key, parts in judged.items() if len(parts) == len(rivals)]
    groups = np.unique(np.concatenate(classes), return_inverse=True)[1]
    side = np.concatenate(sides)
    report = [{"blend": 0.0, **rival.figures(rival, groups, side)}]
    report += [{**params, **scores.figures(rival, groups, side)} for params, scores in table]
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

    figure = "p10" if scoring == "p10" else "map"
    # The winner is the best of many on these queries, and some of that is luck, so that not to lose on average is not
    # enough: the best of n that are all alike comes to about so many standard errors.
    luck = np.sqrt(2 * np.log(len(tried) + 1))
    winner, best = None, 0.0
    for line in tried:
        if scoring == "guarded" and sure_gain(line, "p10", errors=luck) < 0:
            continue
        gain = sure_gain(line, figure, errors=0)
        if gain > best and sure_gain(line, figure, errors=_SURE) > 0:
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

    def figures(self, rival: _Scores, groups: Rows, sides: Floats) -> dict[str, float]:
        """Means, and the standard errors of their gains over the rival's. Paired, query by query.

        Queries of one class look for the same items and gain or lose together, so that for MAP a class counts as one
        observation, where that gives the larger error. Where a class was judged on two sides, in different items, what
        differs between them is chance; where on one, what differs between the classes has to count as such.
        """
        means = {"map": self.ap.mean(), "p10": self.p10.mean()}
        gains = self.ap - rival.ap
        of_classes = np.bincount(groups, np.where(sides == 0, gains - gains.mean(), sides * gains))
        by_class = float(np.sqrt(of_classes @ of_classes) / len(gains))
        errors = {"map_error": max(_error(gains), by_class), "p10_error": _error(self.p10 - rival.p10)}
        return {name: float(value) for name, value in {**means, **errors}.items()}


_FIGURES = ("map", "p10", "map_error", "p10_error")


def _error(gains: Floats) -> float:
    """Standard error of the mean gain."""
    return float(gains.std() / np.sqrt(len(gains)))


class HeldOut:
    """Held-out queries and how weights rank for them: MAP in a sample of unseen items, P@10 in the whole collection."""

    def __init__(
        self,
        codes: Codes,
        y: npt.NDArray[Any],
        fold: Fold,
        n_bits: int,
        magnitudes: Weights | None = None,
        on_top: bool = True,
    ) -> None:
        with_similar = (y[fold.queries][:, None] == y[fold.sample]).sum(axis=1) > np.isin(fold.queries, fold.sample)
        rows = fold.queries[with_similar]
        if len(rows) == 0:
            raise ValueError("no held-out query has a similar item: the classes are too small to hold rows out")
        self.codes, self.y, self.rows, self.collection = codes, y, rows, fold.collection
        self.queries, self.n_bits = codes[rows], n_bits
        self.magnitudes = None if magnitudes is None else magnitudes[rows]
        if self.magnitudes is not None and not on_top:  # of one size with the factor, which is not multiplied by them
            self.magnitudes = mean_one(self.magnitudes).astype(np.float32)
        self.on_top = on_top
        self.halves = _halves(y, rows[:_MAP_QUERIES], fold.sample)
        self.samples = [codes[items] for _, items in self.halves]
        self.classes = np.concatenate([y[rows[half]] for half, _ in self.halves])
        side = (1.0, -1.0) if len(self.halves) == 2 else (0.0,)
        self.sides = np.concatenate(
            [np.full(len(half), sign) for (half, _), sign in zip(self.halves, side, strict=True)]
        )
        self.own = np.concatenate([rows[half][:, None] == items for half, items in self.halves])
        self.relevant = np.concatenate([y[rows[half]][:, None] == y[items] for half, items in self.halves]) & ~self.own
        uniform = self._weights(None)
        self.near = self._nearest(uniform)
        self.near_relevant = y[self.near] == y[rows][:, None]
        self.uniform = self._to_sample(uniform), self._to_rows(self.near, uniform)

    def _nearest(self, weights: Weights | None) -> Rows:
        """For each query the rows of the collection nearest to it, itself left out."""
        n_near = min(_NEAREST, len(self.collection) - 1)
        near = np.empty((len(self.rows), n_near), np.int64)
        for start in range(0, len(self.rows), 64):
            part = slice(start, start + 64)
            found = self._distances(self.queries[part], self.codes[self.collection], _part(weights, part))
            found[self.rows[part][:, None] == self.collection] = np.inf
            near[part] = self.collection[np.argpartition(found, n_near - 1, axis=1)[:, :n_near]]
        return near

    def _weights(self, factor: Factor | None) -> Weights | None:
        if factor is None:
            return self.magnitudes
        weights = np.broadcast_to(
            mean_one(factor(self.rows) if callable(factor) else factor), (len(self.rows), self.n_bits)
        )
        return (weights * self.magnitudes if self.on_top and self.magnitudes is not None else weights).astype(
            np.float32
        )

    def _distances(self, queries: Codes, items: Codes, weights: Weights | None) -> npt.NDArray[np.float32]:
        return distances(*self._turned(queries, items, weights)).astype(np.float32, copy=False)

    def _turned(self, queries: Codes, items: Codes, weights: Weights | None) -> tuple[Codes, Codes, Weights | None]:
        """Weights that are not negative: by them distances are the same but for a constant of the query."""
        if weights is not None and weights.min() < 0:
            queries, weights = split_vectors(signs(queries, self.n_bits) * weights)
        return queries, items, weights

    def _to_sample(self, weights: Weights | None) -> npt.NDArray[np.float32]:
        parts = zip(self.halves, self.samples, strict=True)
        return np.concatenate(
            [self._distances(self.queries[half], sample, _part(weights, half)) for (half, _), sample in parts]
        )

    def _to_rows(self, rows: Rows, weights: Weights | None) -> npt.NDArray[np.float32]:
        """From each query to rows of its own."""
        queries, codes, weights = self._turned(self.queries, self.codes, weights)
        return distances_to_rows(queries, codes, rows, weights)

    def judge(self) -> tuple[Floats, Floats]:
        """Average precision and precision at 10 of every query, by uniform weights."""
        to_sample, to_near = self.uniform
        return self._score(to_sample.copy(), to_near, self.near_relevant)

    def judge_blends(self, factor: Factor, blends: Sequence[float]) -> Iterator[tuple[float, tuple[Floats, Floats]]]:
        """The same for every blend with the factor: a blend of weights is a blend of distances."""
        weights = self._weights(factor)
        uniform, near_relevant = self.uniform, self.near_relevant
        full = self._to_sample(weights), self._to_rows(self.near, weights)
        if weights is not None and weights.min() < 0:
            # Turned bits find items that are far by uniform weights: those nearest by the factor are looked at as well.
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
        to_sample[self.own] = np.inf
        # A query without a similar item among its nearest has a precision of 0 there, not an unknown one.
        p10 = np.nan_to_num(precision_at(to_near, near_relevant, 10))
        return average_precision(to_sample, self.relevant), p10


def _part(weights: Weights | None, part: slice | Rows) -> Weights | None:
    return None if weights is None else weights[part]


def _halves(y: npt.NDArray[Any], queries: Rows, items: Rows) -> list[tuple[Rows, Rows]]:
    """Half of the queries of each class to search in half of the items of each class, and the others; or all in all.

    Two judgements that share nothing tell chance from what is true of a class. Where a class has few items it would
    have none left to find, and there are so many classes that they tell it themselves.
    """
    if np.unique(y[items], return_counts=True)[1].min() >= _FEWEST_TO_HALVE:
        by_class = np.argsort(y[queries], kind="stable"), items[np.argsort(y[items], kind="stable")]
        n_items = len(items) // 2
        return [(by_class[0][side::2], np.sort(by_class[1][side::2][:n_items])) for side in (0, 1)]
    return [(np.arange(len(queries)), items)]


def some_rows(n: int, random: np.random.Generator) -> Rows:
    """Row numbers in random order; a part of them where there are very many.

    Examples
    --------
    >>> some_rows(1_000_000, np.random.default_rng(0)).shape
    (50000,)
    """
    return random.permutation(n)[:_MOST_ROWS]


def split(
    y: npt.NDArray[Any], validation: Validation, random: np.random.Generator, in_turn: bool = False
) -> list[Fold]:
    """Hold out a third of the rows, or each third in turn where they are few; or half of the classes, then the rest.

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
        return folds if in_turn and len(rows) <= _FEW_ROWS else folds[:1]
    classes = random.permutation(np.unique(y))
    if len(classes) < 4:
        raise ValueError(f'validation="classes" needs at least four classes, got {len(classes)}')
    half = np.isin(y[rows], classes[: len(classes) // 2])
    sides = [rows[half], rows[~half]]
    return [_fold(learn, held_out, held_out) for learn, held_out in (sides, sides[::-1])]


def _fold(learn: Rows, held_out: Rows, collection: Rows) -> Fold:
    return Fold(np.sort(learn), held_out[:_MOST_QUERIES], held_out[:_MOST_ITEMS], np.sort(collection))


def hold_out_queries(queries: Rows, random: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Mark the rows of one query in three, so that none is on both sides."""
    distinct = np.unique(queries)
    if len(distinct) < 2:
        raise ValueError('C="auto" needs quadruplets of at least two queries to hold one out, got one; give C')
    n_held_out = max(1, len(distinct) // 3)
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
            gain, error = float((held - rival).mean()), _error(held - rival)
            if gain > best and gain - _SURE * error > 0:
                winner, best = Choice(params, amount, report), gain
    return winner
