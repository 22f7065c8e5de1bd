"""Weights without learning to rank: WhRank, from the spread of each value before the sign, and asymmetric weights.

Both are the opponents of the learners, and like them end in weights per bit or per query for a search.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.validation import check_is_fitted

from bitrank.checks import weights_for_queries
from bitrank.vocabulary import Codes, Weights


class WhRank(BaseEstimator):
    """Weight every bit by how little its value before the sign varies within a class.

    Simple form of WhRank: σ_k is the standard deviation of the difference of the k-th value over pairs of one class;
    a bit weighs 1/σ_k, or |y_k(q)|/σ_k where the query's values before the sign are known.

    Parameters
    ----------
    n_pairs : int, default=20000
        Pairs to draw: a class with a probability proportional to its size, then two different rows of it.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    weights_ : float32 array of shape (n_bits,)
        1/σ_k. A value that does not vary within classes (σ_k below a millionth of the largest) says nothing about its
        weight: it gets the largest weight of the others. Ones, if no value varies.
    n_bits_ : int

    References
    ----------
    L. Zhang, Y. Zhang, J. Tang, K. Lu, Q. Tian: Binary code ranking with weighted Hamming distance. CVPR 2013.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=1000)
    >>> steady, noisy = y + rng.normal(0, 0.1, 1000), y + rng.normal(0, 10, 1000)
    >>> WhRank(random_state=0).fit(np.column_stack([steady, noisy]), y).weights_.round(2)
    array([7.15, 0.07], dtype=float32)
    """

    def __init__(self, n_pairs: int = 20000, *, random_state: Any = None) -> None:
        self.n_pairs = n_pairs
        self.random_state = random_state

    def fit(self, projections: npt.ArrayLike, y: npt.ArrayLike) -> WhRank:
        """Estimate the spread of every value from pairs of one class.

        Parameters
        ----------
        projections : array of shape (n, n_bits)
            Values before the sign: what `project` of a hasher returns.
        y : array of shape (n,)
            Classes. Those with a single row are left out.
        """
        values, labels = check_labelled(projections, y)
        if self.n_pairs < 1:
            raise ValueError(f"n_pairs must be at least 1, got {self.n_pairs}")
        first, second = _same_class_pairs(labels, self.n_pairs, check_random_state(self.random_state))
        sigma = spread_between(values[first], values[second])
        self.weights_: Weights = (1 / sigma).astype(np.float32)
        self.n_bits_ = len(sigma)
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

        Examples
        --------
        >>> from bitrank.codes import pack
        >>> ranker = WhRank(random_state=0).fit([[1, 1], [2, 3], [1, 1], [2, 3]], [0, 0, 1, 1])
        >>> ranker.weights_for(pack([[1, 0]]), magnitudes=[[3, 2]])
        array([[3., 1.]], dtype=float32)
        """
        check_is_fitted(self)
        return weights_for_queries(self.weights_, query_codes, magnitudes, self.n_bits_)


def asymmetric_weights(projections: npt.ArrayLike) -> Weights:
    """Weights of the asymmetric distance: the magnitudes of the queries' values before the sign.

    By these weights codes are ranked as by their inner product, as vectors of ±1, with the query's real values.

    Parameters
    ----------
    projections : array of shape (n_queries, n_bits)
        What `project` of a hasher returns for the queries.

    Returns
    -------
    float32 array of shape (n_queries, n_bits)

    Examples
    --------
    >>> asymmetric_weights([[0.5, -2.0]])
    array([[0.5, 2. ]], dtype=float32)
    """
    values = check_array(projections, dtype=np.float32, ensure_min_samples=0, input_name="projections")
    magnitudes: Weights = np.abs(values)
    return magnitudes


def check_labelled(projections: npt.ArrayLike, y: npt.ArrayLike) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Values before the sign and one label a row, or a ValueError that says what came instead."""
    values = check_array(projections, dtype=(np.float32, np.float64), input_name="projections")
    labels = column_or_1d(y)
    check_consistent_length(values, labels)
    return values, labels


def spread_between(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Standard deviation of every value's difference between rows that are paired.

    Below a millionth of the largest it says nothing, and the smallest of the others is taken; ones, if no value varies.
    """
    # Either row may come first, so the mean difference is zero and need not be estimated.
    sigma = np.sqrt(np.mean(np.square(first - second, dtype=np.float64), axis=0))
    varies = sigma > 1e-6 * sigma.max()
    return np.where(varies, sigma, sigma[varies].min()) if varies.any() else np.ones_like(sigma)


def _same_class_pairs(
    y: npt.NDArray[Any], n_pairs: int, rng: np.random.RandomState
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    _, codes, sizes = np.unique(y, return_inverse=True, return_counts=True)
    by_class = np.argsort(codes, kind="stable")
    starts = np.cumsum(sizes) - sizes
    # A row drawn evenly is a class drawn by its frequency; the partner is another place of the same class.
    eligible = np.flatnonzero(sizes[codes[by_class]] > 1)
    if len(eligible) == 0:
        raise ValueError(f"y must have a class with at least two rows, got {len(sizes)} classes with one each")
    places = eligible[rng.randint(len(eligible), size=n_pairs)]
    classes = codes[by_class[places]]
    shift = rng.randint(1, sizes[classes])
    partners = starts[classes] + (places - starts[classes] + shift) % sizes[classes]
    return by_class[places], by_class[partners]
