"""The gate: choose among challengers and blends on held-out data, or keep the plain distance.

No ranker ranks worse than the plain distance as far as held-out data can tell. Labels and judged pairs are split and
judged differently; one loop asks the challengers and the judge of every fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

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
from bitrank.ranking.gate import placebo
from bitrank.ranking.gate.folds import PairFold, Validation, rare_rows, split_labels, split_pairs
from bitrank.ranking.gate.judge import (
    Factor,
    Floats,
    HeldOutLabels,
    HeldOutPairs,
    LabelScores,
    PairScores,
    mean_one,
)
from bitrank.ranking.gate.report import Report, check_scoring

# From row numbers to learn from, and the parameters that are wanted (None: all), to the parameters of challengers and
# the factor that each gives to a query's bits.
Challengers = Callable[[Rows, list[dict[str, Any]] | None], Iterator[tuple[dict[str, Any], Factor]]]
Evidence = TypeVar("Evidence")
Learn = Callable[[Evidence, np.random.Generator], Challengers]
BLENDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
COARSE_BLENDS = (0.1, 0.25, 0.5, 0.75, 1.0)  # for learners with many challengers
Judge = HeldOutLabels | HeldOutPairs
Judged = dict[tuple[tuple[str, Any], ...], list[LabelScores | PairScores]]
# Share of the named items whose pairs are hidden from learning: they stand for the documents of tomorrow.
_NEW_ITEMS = 1 / 3
# In a race, this many challengers go on after the first fold by each of: MAP, MAP where precision at 10 does not fall,
# and precision at 10.
_RACERS = 3


def blend(factor: npt.NDArray[Any], amount: float, start: Floats | float = 1.0) -> Floats:
    """Mix weights, scaled to mean 1, with a start of this scale, uniform weights: (1 − amount)·start + amount·factor.

    Examples
    --------
    >>> blend(np.array([1.0, 3.0]), 0.5)
    array([0.75, 1.25])
    """
    return (1 - amount) * start + amount * mean_one(factor)


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
    evidence: Evidence,
    held_out: Iterable[tuple[Rows, Judge]],
    learn: Learn[Evidence],
    *,
    random: np.random.Generator,
    blends: Sequence[float] = BLENDS,
    scoring: str = "guarded",
    race: bool = False,
) -> Report:
    """Rank held-out queries by every challenger and blend; the winner must also beat a placebo.

    Parameters
    ----------
    evidence : LabelEvidence, PairEvidence or ConstraintEvidence
    held_out : iterable of (rows, judge), one per fold
        Row numbers of the evidence to learn from, and the judge of what was learned.
    learn : callable
        From evidence and a source of randomness to its challengers: what the placebo is learned by as well.
    random : numpy Generator
    blends : sequence of float
        Shares of the factor to try; the rest is the query itself.
    scoring : str
        As in `Report`.
    race : bool
        Judge only the best few of the first fold in the others.
    """
    judged: Judged = {}
    factors: dict[tuple[tuple[str, Any], ...], list[Factor]] = {}
    rivals: list[Any] = []
    challengers = learn(evidence, random)
    try:
        folds = list(held_out)
        for rows, judge in folds:
            wanted = _racers(judged, rivals[0]) if race and rivals else None
            rivals.append(judge.judge())
            for params, factor in challengers(rows, wanted):
                key = tuple(params.items())
                factors.setdefault(key, []).append(factor)
                for amount, scores in judge.judge_blends(factor, blends):
                    judged.setdefault((*key, ("blend", amount)), []).append(scores)
    except TooLittleEvidenceError as error:
        return Report(refusal=f"too little evidence: {error}")
    rival = _gather(rivals)
    lines, scores_of = [{"blend": 0.0, **rival.figures(rival)}], {}
    for key, parts in judged.items():
        if len(parts) == len(rivals):  # a challenger that could not be learned from every fold is not comparable
            scores_of[key] = _gather(parts)
            lines.append({**dict(key), **scores_of[key].figures(rival)})
    report = Report(lines, scoring)
    if report.winner is None:
        return report
    chance, key = random.spawn(1)[0], tuple(report.params.items())
    means_something = not _was_shown(evidence) and placebo.means_something(
        rival, _gather([judge.judge_exchanged(chance) for _, judge in folds]), report.figure
    )
    if not means_something:
        winner = scores_of[(*key, ("blend", report.blend))]
        if not placebo.is_beaten(winner, rival, _placebos(evidence, folds, learn, report, chance), report.figure):
            return Report(report, scoring, refusal=placebo.REFUSAL)
    if isinstance(evidence, PairEvidence) and evidence.beside is not None:
        for (rows, judge), factor in zip(folds, factors[key], strict=True):
            evidence.beside(rows, judge.numbers, judge.vectors(factor, report.blend))
    return report


def _was_shown(evidence: Any) -> bool:
    """Whether items may have been judged because the plain ranking showed them: where others beside were not chosen."""
    pairs = isinstance(evidence, PairEvidence)
    return bool((evidence.pairs[:, 2] == 0).any()) if pairs else isinstance(evidence, ConstraintEvidence)


def _placebos(
    evidence: Evidence, folds: list[tuple[Rows, Judge]], learn: Learn[Evidence], report: Report, random: Any
) -> Iterator[Any]:
    """Scores of what the winner's way of learning makes of exchanged evidence, one exchange after the other."""
    while True:
        parts = []
        for rows, judge in folds:
            some, rows_of_some = placebo.exchanged(evidence, rows, random)
            try:
                learned = {tuple(params.items()): f for params, f in learn(some, random)(rows_of_some, [report.params])}
            except TooLittleEvidenceError:
                learned = {}
            factor = learned.get(tuple(report.params.items()))
            if factor is None:  # nothing can be learned from the exchanged evidence
                parts.append(judge.judge())
            else:
                parts += [scores for _, scores in judge.judge_blends(factor, (report.blend,))]
        yield _gather(parts)


def choose_by_labels(
    evidence: LabelEvidence,
    learn: Learn[LabelEvidence],
    *,
    random: np.random.Generator,
    scoring: str = "guarded",
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
    learn, random, scoring, blends, race : as in `choose`
    validation : {"rows", "classes"}
        Hold out rows of every class, or whole classes where future classes will be new.
    cross_validate : bool
        Where rows are few, hold out each third once: three times the learning, less noise.
    scale_magnitudes : bool
        Whether the factor multiplies the magnitudes of queries, or replaces them and is blended with them.
    """
    check_scoring(scoring)
    rare = rare_rows(evidence.y) if scoring == "rare" else None
    if rare is not None and not rare.any():
        raise ValueError(
            'scoring="rare" must have a class with fewer than half of the items of the mean class, got none'
        )
    folds = split_labels(evidence.y, validation, random, cross_validate, rare)
    held_out = ((fold.learn, HeldOutLabels(evidence, fold, scale_magnitudes, scoring)) for fold in folds)
    return choose(evidence, held_out, learn, random=random, blends=blends, scoring=scoring, race=race)


def choose_by_pairs(
    evidence: PairEvidence,
    learn: Learn[PairEvidence],
    *,
    random: np.random.Generator,
    itself: bool = False,
    scale_magnitudes: bool = True,
    blends: Sequence[float] = BLENDS,
    scoring: str = "guarded",
) -> Report:
    """Hold out whole queries and hide the pairs of some items, and judge by nDCG@10 over the collection.

    Parameters
    ----------
    evidence, learn, random, scale_magnitudes, blends, scoring : as in `choose_by_labels`
        Rows to learn from are rows of `evidence.pairs`.
    itself : bool
        Whether queries are rows of the codes, which must not find themselves.
    """
    held_out = (
        (fold.learn, HeldOutPairs(evidence, fold, scale_magnitudes, itself, random, scoring))
        for fold in _pair_folds(evidence.pairs, random)
    )
    return choose(evidence, held_out, learn, random=random, blends=blends, scoring=scoring)


def choose_by_constraints(
    evidence: ConstraintEvidence,
    learn: Learn[ConstraintEvidence],
    *,
    random: np.random.Generator,
    scoring: str = "guarded",
) -> Report:
    """Hold out queries and items as `choose_by_pairs` does, the similar items of held-out queries being relevant."""
    judged = pairs_of_constraints(evidence)
    itself = evidence.queries.codes is evidence.codes
    held_out = (
        (_rows_to_learn(evidence, judged, fold, itself), HeldOutPairs(judged, fold, True, itself, random, scoring))
        for fold in _pair_folds(judged.pairs, random)
    )
    return choose(evidence, held_out, learn, random=random, scoring=scoring)


def _pair_folds(pairs: Rows, random: np.random.Generator) -> Iterator[PairFold]:
    yield from split_pairs(pairs, _NEW_ITEMS, random)


def _rows_to_learn(evidence: ConstraintEvidence, judged: PairEvidence, fold: PairFold, itself: bool) -> Rows:
    """Rows of constraints that name no held-out query and no hidden item."""
    hidden = np.union1d(fold.new_items, fold.queries) if itself else fold.new_items
    known = np.isin(evidence.rows[:, 0], judged.pairs[fold.learn, 0])
    rows = np.flatnonzero(known & ~np.isin(evidence.rows[:, 1:], hidden).any(axis=1))
    if len(rows) == 0:
        raise TooLittleEvidenceError("no constraint is left where queries and items are held out")
    return rows


def _gather(parts: Sequence[Any]) -> Any:
    """Scores of all folds as one."""
    return type(parts[0])(*map(np.concatenate, zip(*parts, strict=True)))


def _racers(judged: Judged, rival: Any) -> list[dict[str, Any]]:
    """Parameters of the best challengers by the first fold."""

    def figures(scores: Any) -> list[float]:
        return [float(figure.mean()) for figure in (scores.score if len(scores.score) else scores.ap, scores.p10)]

    lines = [(key[:-1], figures(parts[0])) for key, parts in judged.items()]
    by_map = sorted(lines, key=lambda line: -line[1][0])
    safe = [line for line in by_map if line[1][1] >= rival[1].mean()]
    by_p10 = sorted(lines, key=lambda line: -line[1][1])
    best: dict[tuple[tuple[str, Any], ...], None] = {}
    for order in (by_map, safe, by_p10):
        best |= dict.fromkeys(list(dict.fromkeys(params for params, _ in order))[:_RACERS])
    return [dict(params) for params in best]
