"""The gate: choose among challengers and blends on held-out data, or keep the plain distance.

No ranker ranks worse than the plain distance as far as held-out data can tell. Labels and judged pairs are split and
judged differently; one loop asks the challengers and the judge of every fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bitrank.core.types import Rows
from bitrank.ranking.evidence.kinds import (
    ConstraintEvidence,
    LabelEvidence,
    PairEvidence,
    TooLittleEvidenceError,
    pairs_of_constraints,
)
from bitrank.ranking.gate.folds import PairFold, Validation, split_labels, split_pairs
from bitrank.ranking.gate.judge import (
    Factor,
    Floats,
    HeldOutLabels,
    HeldOutPairs,
    LabelScores,
    PairScores,
    mean_one,
    standard_error,
)
from bitrank.ranking.gate.report import Report, Scoring, check_scoring

# From row numbers to learn from, and where the gate races the parameters that are still wanted, to the parameters of
# every challenger and the factor that it gives to a query's bits.
Challengers = Callable[..., Iterator[tuple[dict[str, Any], Factor]]]
BLENDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
COARSE_BLENDS = (0.1, 0.25, 0.5, 0.75, 1.0)  # for learners with many challengers
_PLACEBO_Z = 2.0  # standard errors by which a winner must beat the placebo
Judged = dict[tuple[tuple[str, Any], ...], list[LabelScores | PairScores]]
# Share of the named items whose pairs are hidden from learning: they stand for the documents of tomorrow.
_NEW_ITEMS = 1 / 3
# In a race, this many challengers go on after the first fold by each of: MAP, MAP where precision at 10 does not fall,
# and precision at 10.
_RACERS = 3


class Judge(Protocol):
    """Held-out queries, and how well a factor ranks for them."""

    def judge(self) -> Any:
        """Scores of every query by the queries themselves."""
        ...

    def judge_blends(self, factor: Factor, blends: Sequence[float]) -> Iterator[tuple[float, Any]]:
        """Scores of every query for every blend with the factor."""
        ...


def blend(factor: npt.NDArray[Any], amount: float) -> Floats:
    """Mix weights, scaled to mean 1, with uniform ones: (1 − amount)·1 + amount·factor.

    Examples
    --------
    >>> blend(np.array([1.0, 3.0]), 0.5)
    array([0.75, 1.25])
    """
    return (1 - amount) + amount * mean_one(factor)


def blend_at_scale(factor: npt.NDArray[Any], amount: float, scale: float) -> Floats:
    """Blend, times a scale, for learners that continue from these weights.

    Uniform weights get the power of two nearest to the scale: its sums are exact in any order, so that equal Hamming
    distances stay equal.

    Examples
    --------
    >>> blend_at_scale(np.array([1.0, 3.0]), 0.0, 0.3)
    array([0.25, 0.25])
    """
    return blend(factor, amount) * (scale if amount > 0 else 2.0 ** np.round(np.log2(scale)))


def choose(
    held_out: Iterable[tuple[Rows, Judge]],
    challengers: Challengers,
    *,
    blends: Sequence[float] = BLENDS,
    scoring: Scoring = "guarded",
    race: bool = False,
) -> Report:
    """Rank held-out queries by every challenger and blend.

    Parameters
    ----------
    held_out : iterable of (rows, judge), one per fold
        Row numbers to learn from, and the judge of what was learned.
    challengers : callable
        Given row numbers to learn from, yields (parameters, factor) for every challenger.
    blends : sequence of float
        Shares of the factor to try; the rest is the query itself.
    scoring : {"guarded", "map", "p10"}
    race : bool
        Judge only the best few of the first fold in the others; `challengers` takes the parameters that are wanted.
    """
    judged: Judged = {}
    rivals: list[Any] = []
    try:
        for rows, judge in held_out:
            wanted = (_racers(judged, rivals[0]),) if race and rivals else ()
            rivals.append(judge.judge())
            for params, factor in challengers(rows, *wanted):
                for amount, scores in judge.judge_blends(factor, blends):
                    judged.setdefault((*params.items(), ("blend", amount)), []).append(scores)
    except TooLittleEvidenceError as error:
        return Report(refusal=f"too little evidence: {error}")
    rival = _gather(rivals)
    lines = [{"blend": 0.0, **rival.figures(rival)}]
    for key, parts in judged.items():
        if len(parts) == len(rivals):  # a challenger that could not be learned from every fold is not comparable
            lines.append({**dict(key), **_gather(parts).figures(rival)})
    return Report(lines, scoring)


def choose_by_labels(
    evidence: LabelEvidence,
    challengers: Challengers,
    *,
    random: np.random.Generator,
    scoring: Scoring = "guarded",
    validation: Validation = "rows",
    cross_validate: bool = False,
    scale_magnitudes: bool = True,
    blends: Sequence[float] = BLENDS,
    race: bool = False,
) -> Report:
    """Hold out labelled rows, and judge by MAP and precision at 10.

    Parameters
    ----------
    evidence : LabelEvidence
        Where queries are reals, the rival is the asymmetric distance; else it is Hamming distance.
    challengers, scoring, blends, race : as in `choose`
    random : numpy Generator
    validation : {"rows", "classes"}
        Hold out rows of every class, or whole classes where future classes will be new.
    cross_validate : bool
        Where rows are few, hold out each third once: three times the learning, less noise.
    scale_magnitudes : bool
        Whether the factor multiplies the magnitudes of queries, or replaces them and is blended with them.
    """
    check_scoring(scoring)
    folds = split_labels(evidence.y, validation, random, cross_validate)
    held_out = ((fold.learn, HeldOutLabels(evidence, fold, scale_magnitudes)) for fold in folds)
    return choose(held_out, challengers, blends=blends, scoring=scoring, race=race)


def choose_by_pairs(
    evidence: PairEvidence,
    challengers: Challengers,
    *,
    random: np.random.Generator,
    itself: bool = False,
    scale_magnitudes: bool = True,
    blends: Sequence[float] = BLENDS,
) -> Report:
    """Hold out whole queries and hide the pairs of some items, and judge by nDCG@10 over the collection.

    Parameters
    ----------
    evidence, challengers, random, scale_magnitudes, blends : as in `choose_by_labels`
        Rows to learn from are rows of `evidence.pairs`.
    itself : bool
        Whether queries are rows of the codes, which must not find themselves.
    """

    def held_out() -> Iterator[tuple[Rows, Judge]]:
        for fold in split_pairs(evidence.pairs, _NEW_ITEMS, random):
            yield fold.learn, HeldOutPairs(evidence, fold, scale_magnitudes, itself, random)

    return choose(held_out(), challengers, blends=blends)


def choose_by_constraints(
    evidence: ConstraintEvidence,
    make: Callable[[ConstraintEvidence], Challengers],
    *,
    random: np.random.Generator,
) -> Report:
    """Hold out queries and items as `choose_by_pairs` does, the similar items of held-out queries being relevant.

    Constraints of one query tell little that those of another do not, so that a winner must also beat a placebo: what
    the same learner makes of the same constraints, exchanged among the queries that are learned from.

    Parameters
    ----------
    evidence : ConstraintEvidence
    make : callable
        From constraints to challengers; rows to learn from are rows of them.
    random : numpy Generator
    """
    judged = pairs_of_constraints(evidence)
    itself = evidence.queries.codes is evidence.codes
    try:
        folds = split_pairs(judged.pairs, _NEW_ITEMS, random)
        held_out = [
            (_rows_to_learn(evidence, judged, fold, itself), HeldOutPairs(judged, fold, True, itself, random))
            for fold in folds
        ]
    except TooLittleEvidenceError as error:
        return Report(refusal=f"too little evidence: {error}")
    report = choose(held_out, make(evidence))
    if report.winner is None:
        return report
    gains = []
    for rows, judge in held_out:
        exchanged = evidence.rows.copy()
        queries, places = np.unique(exchanged[rows, 0], return_inverse=True)
        exchanged[rows, 0] = random.permutation(queries)[places]
        real, placebo = (
            _scores_of(report, judge, make(evidence._replace(rows=some)), rows) for some in (evidence.rows, exchanged)
        )
        gains.append(real - placebo)
    gain = np.concatenate(gains)
    if gain.mean() > _PLACEBO_Z * standard_error(gain):
        return report
    return Report(report, refusal="constraints exchanged among the queries teach as much")


def _rows_to_learn(evidence: ConstraintEvidence, judged: PairEvidence, fold: PairFold, itself: bool) -> Rows:
    """Rows of constraints that name no held-out query and no hidden item."""
    hidden = np.union1d(fold.new_items, fold.queries) if itself else fold.new_items
    known = np.isin(evidence.rows[:, 0], judged.pairs[fold.learn, 0])
    rows = np.flatnonzero(known & ~np.isin(evidence.rows[:, 1:], hidden).any(axis=1))
    if len(rows) == 0:
        raise TooLittleEvidenceError("no constraint is left where queries and items are held out")
    return rows


def _scores_of(report: Report, judge: Judge, challengers: Challengers, rows: Rows) -> Floats:
    """The figure of every query by the winner of a report, learned again from some rows."""
    factor = next(factor for params, factor in challengers(rows) if params == report.params)
    ((_, scores),) = judge.judge_blends(factor, (report.blend,))
    found: Floats = scores[0]
    return found


def _gather(parts: Sequence[Any]) -> Any:
    """Scores of all folds as one."""
    return type(parts[0])(*map(np.concatenate, zip(*parts, strict=True)))


def _racers(judged: Judged, rival: Any) -> list[dict[str, Any]]:
    """Parameters of the best challengers by the first fold."""
    lines = [(key[:-1], [float(figure.mean()) for figure in parts[0][:2]]) for key, parts in judged.items()]
    by_map = sorted(lines, key=lambda line: -line[1][0])
    safe = [line for line in by_map if line[1][1] >= rival[1].mean()]
    by_p10 = sorted(lines, key=lambda line: -line[1][1])
    best: dict[tuple[tuple[str, Any], ...], None] = {}
    for order in (by_map, safe, by_p10):
        best |= dict.fromkeys(list(dict.fromkeys(params for params, _ in order))[:_RACERS])
    return [dict(params) for params in best]
