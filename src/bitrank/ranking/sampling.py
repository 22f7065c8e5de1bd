"""Constraints for the solvers: from rows as they came, or drawn from labels by one of several samplings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.ranking.evidence import ConstraintEvidence, LabelEvidence
from bitrank.ranking.objective import Constraints
from bitrank.ranking.quadruplets import draw_quadruplets
from bitrank.vocabulary import Codes, Rows

# What rankers try: quadruplets among the nearest few hundred items, among wider neighbourhoods, and from the whole
# collection. Near ones serve the top of a list, wide ones the rest of it.
SAMPLINGS: tuple[dict[str, Any], ...] = (
    {"strategy": "near", "n_neighbors": 200},
    {"strategy": "near", "n_neighbors": 0.03},
    {"strategy": "near", "n_neighbors": 0.12},
    {"strategy": "uniform", "n_neighbors": None},
)


def draw_samplings(
    y: npt.ArrayLike,
    n_quadruplets: int,
    *,
    codes: Codes,
    samplings: Sequence[dict[str, Any]] = SAMPLINGS,
    random: np.random.Generator,
) -> Iterator[tuple[dict[str, Any], Rows]]:
    """Draw quadruplets by each sampling; skip one that has nothing to draw, unless it is the last.

    Examples
    --------
    >>> codes, y = np.zeros((8, 1), np.uint8), [0, 0, 0, 0, 1, 1, 1, 1]
    >>> drawn = draw_samplings(y, 5, codes=codes, samplings=SAMPLINGS[::3], random=np.random.default_rng(0))
    >>> [(sampling["strategy"], len(rows)) for sampling, rows in drawn]
    [('near', 5), ('uniform', 5)]
    """
    for sampling in samplings:
        seed = int(random.integers(2**31))
        try:
            drawn = draw_quadruplets(y, n_quadruplets, codes=codes, random_state=seed, **sampling)
        except ValueError:
            if sampling is samplings[-1]:
                raise
            continue
        yield sampling, drawn


def draw_constraints(
    evidence: LabelEvidence,
    rows: Rows,
    n_quadruplets: int,
    samplings: Sequence[dict[str, Any]],
    random: np.random.Generator,
) -> Iterator[tuple[dict[str, Any], Constraints]]:
    """Draw constraints among some rows by each sampling."""
    codes, queries = evidence.codes[rows], evidence.queries.take(rows)
    for sampling, drawn in draw_samplings(
        evidence.y[rows], n_quadruplets, codes=codes, samplings=samplings, random=random
    ):
        yield sampling, Constraints(queries.codes, codes, drawn, evidence.n_bits, queries.magnitudes)


def constraints_of(evidence: ConstraintEvidence, rows: Rows | slice = slice(None)) -> Constraints:
    """Constraints as they came, or some of them."""
    queries = evidence.queries
    return Constraints(queries.codes, evidence.codes, evidence.rows[rows], evidence.n_bits, queries.magnitudes)
