"""`Report`: what a gate tried on held-out data, what it is worth, and which of it won."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np

Line = dict[str, Any]
FIGURES = ("map", "p10", "ndcg10", "new_ndcg10", "score")
# What a gate can maximise: from labels, and from pairs and constraints. recall@N is the share of what is relevant
# before the N-th false match.
_LABEL_SCORINGS = ("guarded", "rare", "map", "p10", "ndcg", "mrr", "bedroc", "recall@N")
_PAIR_SCORINGS = ("guarded", "ndcg", "mrr", "recall@N")
_USUAL = {"guarded", "rare", "map"}
# Standard errors that a gain must exceed, since the winner is the best of many. On random labels the best of about a
# hundred reached 2 on most draws and 3 rarely; on digits of 600 rows and more it reached at least 5.5.
_LABEL_Z, _PAIR_Z = 4.0, 3.0


class Report(list[Line]):
    """One line per challenger and blend with its held-out figures; the first line is the plain distance.

    A line holds the challenger's parameters, its `blend`, figures (`map` and `p10` from labels, `ndcg10` and
    `new_ndcg10` from pairs and constraints, `score` where another figure is asked for), and the standard errors of
    their gains (`map_error`, …). The report is empty where nothing was held out.

    Parameters
    ----------
    lines : iterable of dict
    scoring : {"guarded", "rare", "map", "p10", "ndcg", "mrr", "bedroc", "recall@N"}
        From labels, "guarded" maximises MAP among those that do not lower precision at 10, and "rare" the same for
        queries of rare classes; the others maximise that figure. From pairs and constraints "guarded" is nDCG@10.
    seconds : float
        What the fit took.
    refusal : str, optional
        Why nothing may win, whatever the figures: too little evidence, or a placebo that does as well.

    Attributes
    ----------
    winner : dict or None
        The line that surely beats the plain distance, the best of them; None where the plain distance stays.

    Examples
    --------
    >>> lines = [(0.0, 0.3, 0.3), (0.5, 0.4, 0.3), (1.0, 0.5, 0.2)]
    >>> report = Report({"blend": b, "ndcg10": n, "ndcg10_error": 0.01, "new_ndcg10": w} for b, n, w in lines)
    >>> report.accepted, report.blend, report.before, report.after
    (True, 0.5, {'ndcg10': 0.3, 'new_ndcg10': 0.3}, {'ndcg10': 0.4, 'new_ndcg10': 0.3})
    """

    def __init__(
        self, lines: Iterable[Line] = (), scoring: str = "guarded", seconds: float = 0.0, refusal: str | None = None
    ) -> None:
        super().__init__(lines)
        self.scoring, self.seconds, self.refusal = scoring, seconds, refusal
        self.winner = self.pick(scoring) if refusal is None else None

    @property
    def accepted(self) -> bool:
        """Whether something surely beat the plain distance."""
        return self.winner is not None

    @property
    def figure(self) -> str:
        """The figure that is maximised."""
        if self and "ndcg10" in self[0]:
            return "score" if "score" in self[0] else "ndcg10"
        return "map" if self.scoring in _USUAL else "p10" if self.scoring == "p10" else "score"

    @property
    def before(self) -> dict[str, float | None]:
        """Figures of the plain distance; empty where nothing was held out."""
        return _figures(self[0]) if self else {}

    @property
    def after(self) -> dict[str, float | None]:
        """Figures of the winner, or of the plain distance where it stays."""
        return self.before if self.winner is None else _figures(self.winner)

    @property
    def gain(self) -> float:
        """What the winner gains in the figure that is maximised."""
        return 0.0 if self.winner is None else float(self.winner[self.figure] - self[0][self.figure])

    @property
    def gain_error(self) -> float:
        """Standard error of the gain."""
        return 0.0 if self.winner is None else float(self.winner[f"{self.figure}_error"])

    @property
    def blend(self) -> float:
        """Share of what was learned in the ranking."""
        return 0.0 if self.winner is None else float(self.winner["blend"])

    @property
    def inputs(self) -> str | None:
        """What the winner reads of a query, "bits", "reals" or "features", where challengers differ in that."""
        return None if self.winner is None else self.winner.get("inputs")

    @property
    def params(self) -> dict[str, Any]:
        """Parameters of the winner; none where the plain distance stays."""
        return self.params_of(self.winner or {})

    @staticmethod
    def params_of(line: Line) -> dict[str, Any]:
        """Parameters of a line, without its blend and figures."""
        rest = {"blend", *FIGURES, *(f"{name}_error" for name in FIGURES)}
        return {name: value for name, value in line.items() if name not in rest}

    def pick(self, scoring: str) -> Line | None:
        """The line that this scoring chooses, or None.

        Examples
        --------
        >>> lines = [(0.0, 0.4, 0.8), (0.5, 0.5, 0.8), (1.0, 0.6, 0.7)]
        >>> report = Report({"blend": b, "map": m, "p10": p, "map_error": 0.01, "p10_error": 0.0} for b, m, p in lines)
        >>> report.pick("guarded")["blend"], report.pick("map")["blend"], report.pick("p10")
        (0.5, 1.0, None)
        """
        if not self:
            return None
        plain, *tried = self
        pairs = "ndcg10" in plain
        usual = "ndcg10" if pairs else "p10" if scoring == "p10" else "map"
        figure = usual if scoring in _USUAL or "score" not in plain else "score"
        # The winner is the best of many, and part of that is luck: the best of n equal challengers gains about this
        # many standard errors.
        luck = np.sqrt(2 * np.log(len(tried) + 1))

        def gain(line: Line, figure: str) -> float:
            return float(line[figure] - plain[figure])

        def surely(line: Line, figure: str, errors: float) -> float:
            return gain(line, figure) - errors * float(line[f"{figure}_error"])

        def is_safe(line: Line) -> bool:
            """Whether a line does not lose on new items or, guarded or rare, in precision at 10."""
            if pairs:
                return plain["new_ndcg10"] is None or gain(line, "new_ndcg10") >= 0
            return scoring not in ("guarded", "rare") or surely(line, "p10", luck) >= 0

        better = [line for line in tried if surely(line, figure, _PAIR_Z if pairs else _LABEL_Z) > 0 and is_safe(line)]
        return max(better, key=lambda line: gain(line, figure), default=None)

    def stored(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {"lines": list(self), "scoring": self.scoring, "seconds": self.seconds, "refusal": self.refusal}

    @classmethod
    def load(cls, stored: Any, scoring: str) -> Self:
        """A report from JSON values; older files hold the lines alone."""
        try:
            return cls(stored, scoring) if isinstance(stored, list) else cls(**stored)
        except (TypeError, KeyError) as error:
            raise ValueError(f"expected a report of lines, got {stored!r:.80}") from error


def check_scoring(scoring: str, kind: str = "labels") -> None:
    """Refuse a scoring that no judge of this kind of evidence has."""
    known = {"labels": _LABEL_SCORINGS, "pairs": _PAIR_SCORINGS, "constraints": _PAIR_SCORINGS}.get(kind, ("guarded",))
    text, _, number = str(scoring).partition("@")
    named = f"{text}@N" if number.isdecimal() and int(number) > 0 else scoring
    if named not in known or scoring == "recall@N":
        raise ValueError(f"scoring must be one of {', '.join(known)} for {kind}, got {scoring!r}")


def _figures(line: Line) -> dict[str, float | None]:
    return {name: line[name] for name in FIGURES if name in line}
