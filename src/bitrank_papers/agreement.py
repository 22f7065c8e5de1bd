"""`AgreementRanker`: weight bits by the log odds that similar items share them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_random_state

from bitrank.core.checks import check_count
from bitrank.core.types import Queries, Weights
from bitrank.ranking.evidence.kinds import LabelEvidence, Matrix, QueryRows
from bitrank.ranking.ranker import Ranker, scaled
from bitrank_papers.whrank import check_values, spread_between


@dataclass(eq=False, repr=False, kw_only=True)
class AgreementRanker(Ranker):
    """Weight every bit by the log odds that a similar item has the query's bit.

    The similar item is the nearest row of the same class, by the values before the sign. With σ_k the spread of the
    k-th value between such rows and Φ the normal distribution, it agrees with a query of value y_k with probability
    ``Φ(|y_k|/σ_k)``: the bit weighs ``log Φ(|y_k|/σ_k) − log Φ(−|y_k|/σ_k)``. For codes as queries, the share of pairs
    that agree replaces the probability. `fit` needs the values: `queries=hasher.project(X)`. No gate is applied.

    Parameters
    ----------
    n_bits : int, optional
        Length of the codes; by default the number of values per row.
    n_rows : int, default=3000
        Rows to draw, each paired with the nearest row of its class.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    spread_ : float64 array of shape (n_bits,)
        σ_k, as in `WhRank` where a value does not vary.
    weights_ : float32 array of shape (n_bits,)
        For queries that are codes.
    n_bits_ : int

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=1000)
    >>> steady, noisy = 2 * y - 1 + rng.normal(0, 0.5, 1000), rng.normal(0, 10, 1000)
    >>> values = np.column_stack([steady, noisy])
    >>> ranker = AgreementRanker(random_state=0).fit(pack(values > 0), y, queries=values)
    >>> weights = ranker.queries_for(np.array([[1.0, 0.01], [0.01, 1.0]])).weights
    >>> bool(weights[0, 0] > weights[0, 1]), bool(weights[1, 0] < weights[1, 1])
    (True, True)
    """

    _arrays: ClassVar[dict[str, str]] = {"spread_": "b", "weights_": "b"}

    spread_: npt.NDArray[np.float64] = field(init=False)
    weights_: Weights = field(init=False)

    n_rows: int = 3000
    random_state: Any = None

    def _fit_labels(self, evidence: LabelEvidence) -> None:
        check_count("n_rows", self.n_rows, 1)
        values = check_values(evidence, type(self).__name__)
        _, classes, sizes = np.unique(evidence.y, return_inverse=True, return_counts=True)
        if sizes.max() < 2:
            raise ValueError(f"y must have a class with at least two rows, got {len(sizes)} classes with one each")
        drawn = check_random_state(self.random_state).permutation(len(values))
        drawn = drawn[sizes[classes[drawn]] > 1][: self.n_rows]
        pairs = _nearest_of_class(values, classes, drawn)
        first, second = (values[np.concatenate(rows)] for rows in zip(*pairs, strict=True))
        self.spread_ = spread_between(first, second)
        agree = np.sum((first > 0) == (second > 0), axis=0)
        odds = (agree + 1) / (len(first) - agree + 1)  # one more of each, so that no odds are infinite
        self.weights_ = np.log(np.maximum(odds, 1)).astype(np.float32)

    def one_weight_per_bit(self) -> Weights | None:
        """None: `weights_` are for codes alone."""
        return None

    def _queries_for(self, queries: QueryRows, features: Matrix | None, collection: Any) -> Queries:
        if queries.magnitudes is None:
            return scaled(queries, self.weights_)
        sizes = queries.magnitudes / self.spread_
        return scaled(QueryRows(queries.codes, None), log_ndtr(sizes) - log_ndtr(-sizes))


def _nearest_of_class(
    values: npt.NDArray[Any], classes: npt.NDArray[np.int64], drawn: npt.NDArray[np.int64]
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Per class: its drawn rows, and the nearest other row of each."""
    for number in np.unique(classes[drawn]):
        members, rows = np.flatnonzero(classes == number), np.sort(drawn[classes[drawn] == number])
        nearest = members[NearestNeighbors(n_neighbors=2).fit(values[members]).kneighbors(values[rows])[1]]
        yield rows, np.where(nearest[:, 0] == rows, nearest[:, 1], nearest[:, 0])
