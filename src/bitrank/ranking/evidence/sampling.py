"""Constraints for learners of one weight per bit: as they came, or drawn from labels or judged pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bitrank.core.checks import class_numbers
from bitrank.core.codes import distances
from bitrank.core.ties import smallest_columns
from bitrank.core.types import Rows, Weights
from bitrank.ranking.evidence.kinds import (
    ConstraintEvidence,
    LabelEvidence,
    PairEvidence,
    TooLittleEvidenceError,
    blocks,
)
from bitrank.ranking.evidence.quadruplets import draw_quadruplets

Params = dict[str, Any]
Drawn = Iterator[tuple[Params, ConstraintEvidence]]
# What rankers try: quadruplets among the nearest few hundred items, among wider neighbourhoods, and from the whole
# collection. Near ones serve the top of a list, wide ones the rest of it.
SAMPLINGS: tuple[dict[str, Any], ...] = (
    {"strategy": "near", "n_neighbors": 200},
    {"strategy": "near", "n_neighbors": 0.03},
    {"strategy": "near", "n_neighbors": 0.12},
    {"strategy": "uniform", "n_neighbors": None},
)


class Samples(NamedTuple):
    """Ways to draw constraints from one body of evidence.

    Attributes
    ----------
    n_bits : int
    samplings : sequence of dict
        What a gate tries.
    usual : dict
        The sampling of a ranker that keeps uniform weights.
    draw : callable
        From row numbers of the evidence (None: all of them) and samplings to (sampling, constraints) of each.
    """

    n_bits: int
    samplings: Sequence[Params]
    usual: Params
    draw: Callable[[Rows | None, Sequence[Params]], Drawn]

    def challengers(
        self,
        learn: Callable[[ConstraintEvidence, list[Params] | None], Iterator[tuple[Params, Weights]]],
        rows: Rows,
        wanted: list[Params] | None = None,
    ) -> Iterator[tuple[Params, Weights]]:
        """Weights learned from every sampling of some rows, or from those that a race still wants.

        `learn` takes constraints, and the parameters that are wanted besides the sampling.
        """
        some = [each for each in self.samplings if wanted is None or any(each.items() <= one.items() for one in wanted)]
        try:
            for sampling, constraints in self.draw(rows, some):
                rest = [
                    {name: value for name, value in one.items() if name not in sampling}
                    for one in wanted or ()
                    if sampling.items() <= one.items()
                ]
                for params, weights in learn(constraints, None if wanted is None else rest):
                    yield {**sampling, **params}, weights
        except TooLittleEvidenceError:
            if wanted is None:
                raise  # later, a sampling with nothing to draw just drops out of the race

    def chosen(self, params: Params) -> tuple[Params, ConstraintEvidence]:
        """Constraints of all rows by the sampling that the parameters name."""
        return next(self.draw(None, [{name: params.get(name, value) for name, value in self.usual.items()}]))


def label_samples(
    evidence: LabelEvidence,
    n_quadruplets: int,
    samplings: Sequence[Params],
    random: np.random.Generator,
    everything: Callable[[], Rows],
) -> Samples:
    """Quadruplets drawn from labels, among the rows that `everything` gives where no rows are named.

    A sampling that has nothing to draw is skipped, unless it is the last.
    """
    class_numbers(evidence.y, len(evidence.codes), fewest=2)

    def draw(rows: Rows | None, samplings: Sequence[Params]) -> Drawn:
        rows = everything() if rows is None else rows
        codes, queries = evidence.codes[rows], evidence.queries.take(rows)
        for sampling in samplings:
            seed = int(random.integers(2**31))
            try:
                drawn = draw_quadruplets(evidence.y[rows], n_quadruplets, codes=codes, random_state=seed, **sampling)
            except TooLittleEvidenceError:
                if sampling is samplings[-1]:
                    raise
                continue
            yield sampling, ConstraintEvidence(codes, drawn, queries, evidence.n_bits)

    return Samples(evidence.n_bits, samplings, samplings[-1], draw)


def pair_samples(evidence: PairEvidence, n_triplets: int, random: np.random.Generator) -> Samples:
    """Triplets drawn from judged pairs."""

    def draw(rows: Rows | None, samplings: Sequence[Params]) -> Drawn:
        pairs = evidence.pairs if rows is None else evidence.pairs[rows]
        for sampling in samplings:
            yield sampling, draw_triplets(evidence, pairs, n_triplets, sampling["negatives"], random)

    ways = [{"negatives": negatives} for negatives in NEGATIVES]
    return Samples(evidence.n_bits, ways, ways[0], draw)


def constraint_samples(evidence: ConstraintEvidence) -> Samples:
    """Constraints as they came."""

    def draw(rows: Rows | None, samplings: Sequence[Params]) -> Drawn:
        yield {}, evidence if rows is None else evidence._replace(rows=evidence.rows[rows])

    return Samples(evidence.n_bits, [{}], {}, draw)


# How triplets are drawn from judged pairs: the item that should be farther comes from the whole collection, or from the
# query's nearest items.
NEGATIVES = ("random", "near")


def draw_triplets(
    evidence: PairEvidence, pairs: Rows, n_triplets: int, negatives: str, random: np.random.Generator
) -> ConstraintEvidence:
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
        raise TooLittleEvidenceError("pairs must leave items that are not relevant near the queries, got none")
    return ConstraintEvidence(evidence.codes, triplets, evidence.queries, evidence.n_bits)


def _near_items(evidence: PairEvidence, queries: Rows, n_near: int = 200) -> Rows:
    """The nearest items of each query by Hamming distance."""
    n_near = min(n_near, len(evidence.codes))
    near = np.empty((len(queries), n_near), np.int64)
    for part in blocks(len(queries), 256):
        to_items = distances(evidence.queries.codes[queries[part]], evidence.codes)
        near[part] = smallest_columns(to_items, n_near)
    return near
