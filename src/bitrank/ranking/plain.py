"""The plainest rankers: Hamming distance, and the asymmetric distance of float queries. They learn nothing."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bitrank.core.arrays import to_array
from bitrank.core.types import Codes, Queries
from bitrank.ranking.evidence.kinds import LabelEvidence, Matrix, QueryRows
from bitrank.ranking.ranker import Ranker, scaled


class UniformRanker(Ranker):
    """Rank by plain Hamming distance: every bit weighs 1, whatever the query.

    Parameters
    ----------
    n_bits : int, optional
        Length of the codes; by default all bits of their bytes.

    Examples
    --------
    >>> codes = np.packbits([[1, 0, 1], [0, 0, 1]], axis=1)
    >>> UniformRanker(n_bits=3).fit(codes).queries_for(codes[:1]).weights
    array([[1., 1., 1.]], dtype=float32)
    """

    _ungated_blend = 0.0

    def fit(
        self,
        codes: Codes,
        y: npt.ArrayLike | None = None,
        *,
        queries: npt.ArrayLike | None = None,
        features: npt.ArrayLike | None = None,
        collection: Any = None,
    ) -> Self:
        """Take the number of bits; labels may be left out."""
        labels: Any = np.zeros(len(to_array(codes, "codes"))) if y is None else y
        return super().fit(codes, labels, queries=queries, features=features, collection=collection)

    def _fit_labels(self, evidence: LabelEvidence) -> None:
        """There is nothing to learn."""

    def _queries_for(self, queries: QueryRows, features: Matrix | None, collection: Any) -> Queries:
        return scaled(QueryRows(queries.codes, None), np.ones(self.n_bits_))


class AsymmetricRanker(UniformRanker):
    """Rank float queries by the asymmetric distance: a bit weighs the size of the query's value before the sign.

    Codes are ranked as by the inner product of the query's reals with the codes' ±1. Queries that are codes are ranked
    by Hamming distance. `n_bits` is that of `UniformRanker`.

    Examples
    --------
    >>> codes = np.packbits([[1, 0], [0, 1]], axis=1)
    >>> AsymmetricRanker(n_bits=2).fit(codes).queries_for(np.array([[0.5, -2.0]])).weights
    array([[0.5, 2. ]], dtype=float32)
    """

    def _queries_for(self, queries: QueryRows, features: Matrix | None, collection: Any) -> Queries:
        return scaled(queries, np.ones(self.n_bits_))
