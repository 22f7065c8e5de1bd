"""Placebos: the same evidence, exchanged among the queries, and whether something learned is better than from them.

What held-out data gain may be true of any query: popular items are found by every vector that points to them. Where
evidence is noise, that is all there is to learn. Two answers show that evidence is more: the plain ranking, which has
learned nothing, finds what queries ask for better than what other queries ask for; or what is learned from it is better
than what is learned from exchanged evidence in the same way. The first costs nothing, and holds where a true gain is
one of all queries alike; but items that were shown because they are near are found by the plain ranking anyway, whether
or not clicks on them mean something.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from bitrank.core.types import Rows
from bitrank.ranking.evidence.kinds import ConstraintEvidence, LabelEvidence, PairEvidence

REFUSAL = "a placebo, the same evidence exchanged among the queries, ranks as well"
# Standard errors, and share of what is gained over the plain ranking, by which a winner must beat it: chance in
# learning moves a large gain by more than chance in queries does.
_Z, _LEAST_SHARE = 2.0, 0.25
_SURELY = 3.0  # standard errors by which the plain ranking must tell evidence from exchanged evidence
# One exchange is enough where the decision is clear; where it is within a standard error, take the mean of this many.
_MOST_EXCHANGES = 3


def exchanged(evidence: Any, rows: Rows, random: np.random.Generator) -> tuple[Any, Rows]:
    """Evidence whose rows that are learned from are exchanged, and these rows.

    Labels change places among rows, and the lists of judged pairs and the constraints go to other queries.

    Examples
    --------
    >>> pairs = np.array([[0, 5, 1], [0, 6, 1], [3, 7, 1]])
    >>> evidence = PairEvidence(np.zeros((8, 1), np.uint8), pairs, None, None, 8)
    >>> exchanged(evidence, np.arange(3), np.random.default_rng(0))[0].pairs[:, 1].tolist()
    [7, 5, 6]
    """
    if isinstance(evidence, LabelEvidence):
        y = evidence.y.copy()
        y[rows] = y[random.permutation(rows)]
        return evidence._replace(y=y), rows
    name = "rows" if isinstance(evidence, ConstraintEvidence) else "pairs"
    some = getattr(evidence, name)[rows]
    queries, places = np.unique(some[:, 0], return_inverse=True)
    some[:, 0] = np.roll(queries, 1)[places] if len(queries) < 4 else random.permutation(queries)[places]
    if isinstance(evidence, PairEvidence):
        some = some[np.argsort(some[:, 0], kind="stable")]
    return evidence._replace(**{name: some}), np.arange(len(rows))


def means_something(plain: Any, exchanged: Any, figure: str) -> bool:
    """Whether the plain ranking surely finds what queries ask for better than what others ask for."""
    gain, error = _gain(plain, exchanged, figure)
    return gain > _SURELY * error


def is_beaten(real: Any, plain: Any, placebos: Iterator[Any], figure: str) -> bool:
    """Whether scores are surely better in a figure than those of placebos; as many of these are taken as it needs."""
    taken, least = [], _LEAST_SHARE * _gain(real, plain, figure)[0]
    for scores in islice(placebos, _MOST_EXCHANGES):
        taken.append(scores)
        gain, error = _gain(real, real.mean_of(taken), figure)
        surplus = gain - max(_Z * error, least)
        if abs(surplus) > error:
            break
    return bool(surplus > 0)


def _gain(scores: Any, rival: Any, figure: str) -> tuple[float, float]:
    """Mean gain over a rival and its standard error."""
    now = scores.figures(rival)
    return now[figure] - rival.figures(rival)[figure], now[f"{figure}_error"]
