"""Weights from how surely similar items agree with a query: `AgreementRanker`, the log odds of every bit.

A query whose value lies far from a bit's threshold, compared with how far similar items lie from each other, shares the
bit with them almost surely: an item that differs there is hardly similar. Nothing is learned by ranking; the labels
only say which rows are similar.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr
from sklearn.base import BaseEstimator
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bitrank.checks import check_codes, check_magnitudes, weights_for_queries
from bitrank.ranking.whrank import check_labelled, spread_between
from bitrank.vocabulary import Codes, Weights


class AgreementRanker(BaseEstimator):
    """Weight every bit by the log odds that a similar item has the query's bit.

    Similar is the nearest row of the same class, by the values before the sign. With σ_k the spread of the k-th value
    between such rows, and Φ the normal distribution, it agrees with a query of value y_k with probability
    Φ(|y_k|/σ_k), so that the bit weighs log Φ(|y_k|/σ_k) − log Φ(−|y_k|/σ_k). Where the query's values are not known,
    the share of pairs that agree takes the place of the probability.

    `WhRank` takes the spread over any pair of a class, and weighs by the quotient itself.

    Parameters
    ----------
    n_rows : int, default=3000
        Rows to draw; of each the nearest of its class is sought.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    spread_ : float64 array of shape (n_bits,)
        σ_k, as in `WhRank` where a value does not vary.
    weights_ : float32 array of shape (n_bits,)
        For queries known by their codes alone; none is negative.
    n_bits_ : int

    Examples
    --------
    >>> from bitrank.codes import pack
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=1000)
    >>> steady, noisy = 2 * y - 1 + rng.normal(0, 0.5, 1000), rng.normal(0, 10, 1000)
    >>> ranker = AgreementRanker(random_state=0).fit(np.column_stack([steady, noisy]), y)
    >>> weights = ranker.weights_for(pack([[1, 1], [1, 1]]), magnitudes=[[1.0, 0.01], [0.01, 1.0]])
    >>> bool(weights[0, 0] > weights[0, 1]), bool(weights[1, 0] < weights[1, 1])
    (True, True)
    """

    def __init__(self, n_rows: int = 3000, *, random_state: Any = None) -> None:
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(self, projections: npt.ArrayLike, y: npt.ArrayLike) -> AgreementRanker:
        """Estimate how near similar rows lie.

        Parameters
        ----------
        projections : array of shape (n, n_bits)
            Values before the sign: what `project` of a hasher returns.
        y : array of shape (n,)
            Classes. Those with a single row are left out.
        """
        values, labels = check_labelled(projections, y)
        if self.n_rows < 1:
            raise ValueError(f"n_rows must be at least 1, got {self.n_rows}")
        _, classes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        if sizes.max() < 2:
            raise ValueError(f"y must have a class with at least two rows, got {len(sizes)} classes with one each")
        drawn = check_random_state(self.random_state).permutation(len(values))
        drawn = drawn[sizes[classes[drawn]] > 1][: self.n_rows]
        pairs = _nearest_of_class(values, classes, drawn)
        first, second = (values[np.concatenate(rows)] for rows in zip(*pairs, strict=True))
        self.spread_ = spread_between(first, second)
        agree = np.sum((first > 0) == (second > 0), axis=0)
        odds = (agree + 1) / (len(first) - agree + 1)  # one of each more, so that no odds are infinite
        self.weights_: Weights = np.log(np.maximum(odds, 1)).astype(np.float32)
        self.n_bits_ = values.shape[1]
        return self

    def weights_for(self, query_codes: Codes, magnitudes: npt.ArrayLike | None = None) -> Weights:
        """Weights for every query, ready for a search.

        Parameters
        ----------
        query_codes : uint8 array of shape (n_queries, ceil(n_bits / 8)), packed
        magnitudes : array of shape (n_queries, n_bits), optional
            Absolute values of the queries before the sign. Without them all queries get `weights_`.

        Returns
        -------
        float32 array of shape (n_queries, n_bits)
        """
        check_is_fitted(self)
        if magnitudes is None:
            return weights_for_queries(self.weights_, query_codes, None, self.n_bits_)
        query_codes = check_codes(query_codes, self.n_bits_, name="query_codes")
        sizes = check_magnitudes(magnitudes, len(query_codes), self.n_bits_) / self.spread_
        weights: Weights = (log_ndtr(sizes) - log_ndtr(-sizes)).astype(np.float32)
        return weights


def _nearest_of_class(
    values: npt.NDArray[Any], classes: npt.NDArray[np.int64], drawn: npt.NDArray[np.int64]
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Of every class: the rows drawn of it, and of each the nearest other row."""
    for number in np.unique(classes[drawn]):
        members, rows = np.flatnonzero(classes == number), np.sort(drawn[classes[drawn] == number])
        found = members[NearestNeighbors(n_neighbors=2).fit(values[members]).kneighbors(values[rows])[1]]
        yield rows, np.where(found[:, 0] == rows, found[:, 1], found[:, 0])
