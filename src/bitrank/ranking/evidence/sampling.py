"""Constraints for the solvers: from rows as they came, or drawn from labels or judged pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.core.codes import distances
from bitrank.core.types import Codes, Rows
from bitrank.ranking.evidence.kinds import ConstraintEvidence, LabelEvidence, PairEvidence
from bitrank.ranking.evidence.quadruplets import draw_quadruplets
from bitrank.ranking.gate.near import blocks
from bitrank.ranking.solvers.objective import Constraints

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


# How triplets are drawn from judged pairs: the item that should be farther comes from the whole collection, or from the
# query's nearest items.
NEGATIVES = ("random", "near")


def draw_triplets(
    evidence: PairEvidence, pairs: Rows, n_triplets: int, negatives: str, random: np.random.Generator
) -> Constraints:
    """Draw (query, other item, relevant item) from judged pairs, relevant ones in proportion to 2^grade − 1.

    Items that are relevant to the query are no negatives; queries for which none is left are skipped.
    """
    relevant = pairs[pairs[:, 2] > 0]
    gains = np.exp2(relevant[:, 2], dtype=np.float64) - 1
    rows = relevant[random.choice(len(relevant), n_triplets, p=gains / gains.sum())]
    n_items = len(evidence.codes)
    if negatives == "random":
        items = random.integers(n_items, size=n_triplets)
    else:
        queries, places = np.unique(rows[:, 0], return_inverse=True)
        near = _near_items(evidence, queries)
        items = near[places, random.integers(near.shape[1], size=n_triplets)]
    keys = evidence.pairs[evidence.pairs[:, 2] > 0] @ np.array([n_items, 1, 0])
    negative = ~np.isin(rows[:, 0] * n_items + items, keys)
    triplets = np.column_stack([rows[:, 0], items, rows[:, 1]])[negative]
    if len(triplets) == 0:
        raise ValueError("pairs must leave items that are not relevant near the queries, got none")
    queries_as = evidence.queries
    return Constraints(queries_as.codes, evidence.codes, triplets, evidence.n_bits, queries_as.magnitudes)


def _near_items(evidence: PairEvidence, queries: Rows, n_near: int = 200) -> Rows:
    """The nearest items of each query by Hamming distance."""
    n_near = min(n_near, len(evidence.codes))
    near = np.empty((len(queries), n_near), np.int64)
    for part in blocks(len(queries), 256):
        to_items = distances(evidence.queries.codes[queries[part]], evidence.codes)
        near[part] = np.argpartition(to_items, n_near - 1, axis=1)[:, :n_near]
    return near


def constraints_of(evidence: ConstraintEvidence, rows: Rows | slice = slice(None)) -> Constraints:
    """Constraints as they came, or some of them."""
    queries = evidence.queries
    return Constraints(queries.codes, evidence.codes, evidence.rows[rows], evidence.n_bits, queries.magnitudes)
