"""The gate for labels: choose among candidates and blends on held-out data, or keep uniform weights.

No ranker ranks worse than the plain distance as far as held-out data can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
import numpy.typing as npt

from bitrank.core.types import Rows
from bitrank.ranking.evidence.kinds import LabelEvidence
from bitrank.ranking.gate.held_out import HeldOut, Validation, split
from bitrank.ranking.gate.near import Factor, Floats, mean_one

Scoring = Literal["guarded", "map", "p10"]
# From row numbers to learn from, and where the gate races the parameters that are still wanted, to candidates.
Candidates = Callable[..., Iterator[tuple[dict[str, Any], Factor]]]
# Average precision and precision at 10 of every query, one pair per fold, by parameters and blend.
Judged = dict[tuple[tuple[str, Any], ...], list[tuple[Floats, Floats]]]
BLENDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
COARSE_BLENDS = (0.1, 0.25, 0.5, 0.75, 1.0)  # for learners with many candidates
# Standard errors that a gain in MAP must exceed, since the winner is the best of about a hundred. On random labels the
# best reached 2 on most draws and 3 rarely; on digits of 600 rows and more it reached at least 5.5.
_MIN_Z = 4.0
# In a race, this many candidates go on after the first fold by each of: MAP, MAP where precision at 10 does not fall,
# and precision at 10.
_RACERS = 3


class Choice(NamedTuple):
    """The winning parameters and blend (None and 0.0: uniform weights), and one line per candidate and blend."""

    params: dict[str, Any] | None
    blend: float
    report: list[dict[str, Any]]


class Learner(Protocol):
    """How a ranker learns from one body of evidence: candidates from a part of it, the winner from all of it."""

    def candidates(self, rows: Rows) -> Iterator[tuple[dict[str, Any], Factor]]:
        """Learn every candidate from some rows: its parameters, and the factor that it gives to a query's bits."""
        ...

    def learn(self, choice: Choice) -> dict[str, Any]:
        """Learn the chosen candidate from all rows, and return the learned attributes by name."""
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
    evidence: LabelEvidence,
    candidates: Candidates,
    *,
    scale_magnitudes: bool = True,
    blends: Sequence[float] = BLENDS,
    cross_validate: bool = False,
    race: bool = False,
    scoring: Scoring = "guarded",
    validation: Validation = "rows",
    random: np.random.Generator,
) -> Choice:
    """Rank held-out queries by every candidate and blend, and pick one.

    Parameters
    ----------
    evidence : LabelEvidence
        Where queries are reals, the rival is the asymmetric distance; else it is Hamming distance.
    candidates : callable
        Given row numbers to learn from, yields (parameters, factor) for every candidate.
    scale_magnitudes : bool
        Whether the factor multiplies the magnitudes of queries, or replaces them and is blended with them.
    blends : sequence of float
        Shares of the factor to try; the rest are uniform weights.
    cross_validate : bool
        Where rows are few, hold out each third once: three times the learning, less noise.
    race : bool
        Judge only the best few of the first fold in the others; `candidates` takes the parameters that are wanted.
    scoring : {"guarded", "map", "p10"}
        "guarded" maximises MAP among those that do not lower precision at 10; "map" and "p10" maximise that figure.
    validation : {"rows", "classes"}
        Hold out rows of every class, or whole classes where future classes will be new.
    random : numpy Generator

    Returns
    -------
    Choice
    """
    _check_scoring(scoring)
    judged: Judged = {}
    rivals: list[tuple[Floats, Floats]] = []
    classes: list[npt.NDArray[Any]] = []
    sides: list[Floats] = []
    for fold in split(evidence.y, validation, random, cross_validate):
        held_out = HeldOut(evidence, fold, scale_magnitudes)
        wanted = (_racers(judged, rivals[0]),) if race and rivals else ()
        rivals.append(held_out.judge())
        classes.append(held_out.classes)
        sides.append(held_out.sides)
        for params, factor in candidates(fold.learn, *wanted):
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
    """Pick the line of a report with the best figure among those that surely beat uniform weights, or None.

    Apply it to a ranker's `report_` to see what another scoring would have chosen.

    Examples
    --------
    >>> lines = [(0.0, 0.4, 0.8), (0.5, 0.5, 0.8), (1.0, 0.6, 0.7)]
    >>> report = [{"blend": b, "map": m, "p10": p, "map_error": 0.01, "p10_error": 0.0} for b, m, p in lines]
    >>> pick(report, "guarded")["blend"], pick(report, "map")["blend"], pick(report, "p10")
    (0.5, 1.0, None)
    """
    _check_scoring(scoring)
    uniform, *tried = report

    def sure_gain(line: dict[str, Any], figure: str, errors: float) -> float:
        gain: float = line[figure] - uniform[figure] - errors * line[f"{figure}_error"]
        return gain

    figure = "p10" if scoring == "p10" else "map"
    # The winner is the best of many, and part of that is luck: the best of n equal candidates gains about this many
    # standard errors.
    luck = np.sqrt(2 * np.log(len(tried) + 1))
    winner, best = None, 0.0
    for line in tried:
        if scoring == "guarded" and sure_gain(line, "p10", errors=luck) < 0:
            continue
        gain = sure_gain(line, figure, errors=0)
        if gain > best and sure_gain(line, figure, errors=_MIN_Z) > 0:
            winner, best = line, gain
    return winner


def _racers(judged: Judged, rival: tuple[Floats, Floats]) -> list[dict[str, Any]]:
    """Parameters of the best candidates by the first fold."""
    lines = [(key[:-1], [float(figure.mean()) for figure in parts[0]]) for key, parts in judged.items()]
    by_map = sorted(lines, key=lambda line: -line[1][0])
    safe = [line for line in by_map if line[1][1] >= rival[1].mean()]
    by_p10 = sorted(lines, key=lambda line: -line[1][1])
    best: dict[tuple[tuple[str, Any], ...], None] = {}
    for order in (by_map, safe, by_p10):
        best |= dict.fromkeys(list(dict.fromkeys(params for params, _ in order))[:_RACERS])
    return [dict(params) for params in best]


class _Scores(NamedTuple):
    """Average precision and precision at 10 of every held-out query."""

    ap: Floats
    p10: Floats

    @classmethod
    def gather(cls, parts: Iterable[tuple[Floats, Floats]]) -> _Scores:
        ap, p10 = zip(*parts, strict=True)
        return cls(np.concatenate(ap), np.concatenate(p10))

    def figures(self, rival: _Scores, groups: Rows, sides: Floats) -> dict[str, float]:
        """Means, and the standard errors of their gains over the rival's, paired by query.

        Queries of one class look for the same items and gain or lose together: for MAP each class counts as one
        observation where that gives the larger error. Where a class was judged on two sides, in different items, only
        the difference between the sides is chance; where on one, the difference between classes counts as chance.
        """
        means = {"map": self.ap.mean(), "p10": self.p10.mean()}
        gains = self.ap - rival.ap
        of_classes = np.bincount(groups, np.where(sides == 0, gains - gains.mean(), sides * gains))
        by_class = float(np.sqrt(of_classes @ of_classes) / len(gains))
        errors = {"map_error": max(standard_error(gains), by_class), "p10_error": standard_error(self.p10 - rival.p10)}
        return {name: float(value) for name, value in {**means, **errors}.items()}


_FIGURES = ("map", "p10", "map_error", "p10_error")


def _check_scoring(scoring: str) -> None:
    if scoring not in get_args(Scoring):
        raise ValueError(f"scoring must be one of {get_args(Scoring)}, got {scoring!r}")


def standard_error(gains: Floats) -> float:
    """Standard error of the mean gain: the one that all gates use.

    Examples
    --------
    >>> standard_error(np.array([0.0, 2.0, 0.0, 2.0]))
    0.5
    """
    return float(gains.std() / np.sqrt(len(gains)))
