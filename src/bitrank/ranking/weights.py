"""Describe one weight vector, or the change from one to another; wrap weights as a ranker."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_weights
from bitrank.ranking.gate.near import Floats, mean_one

if TYPE_CHECKING:
    from bitrank.ranking.ranking_svm import RankingSVM


class WeightsSummary(NamedTuple):
    """The spread of weights over the bits.

    `effective_bits` is the number of equal weights that would be spread as widely: (Σw)² / Σw².

    Examples
    --------
    >>> summarize_weights([3, 1]).effective_bits
    1.6
    """

    n_bits: int
    min: float
    mean: float
    max: float
    n_zero: int
    effective_bits: float


class WeightsChange(NamedTuple):
    """Two weight vectors scaled to mean 1, and the bits in order of their change, largest first.

    Examples
    --------
    >>> compare_weights([1, 1], [3, 1]).max_change
    0.5
    """

    mean_change: float
    max_change: float
    cosine: float
    before: Floats
    after: Floats
    order: npt.NDArray[np.int64]


def summarize_weights(weights: npt.ArrayLike) -> WeightsSummary:
    """Summarize the spread of a weight vector.

    Examples
    --------
    >>> summarize_weights([2, 2, 0, 0])
    WeightsSummary(n_bits=4, min=0.0, mean=1.0, max=2.0, n_zero=2, effective_bits=2.0)
    """
    values = _one_vector(weights)
    total, squares = float(values.sum()), float(np.square(values).sum())
    return WeightsSummary(
        n_bits=len(values),
        min=float(values.min()),
        mean=total / len(values),
        max=float(values.max()),
        n_zero=int((values == 0).sum()),
        effective_bits=total**2 / squares if squares else 0.0,
    )


def compare_weights(before: npt.ArrayLike, after: npt.ArrayLike) -> WeightsChange:
    """Compare two weight vectors at one scale: rankings do not depend on it.

    Examples
    --------
    >>> change = compare_weights([1, 1, 1, 1], [4, 2, 2, 0])
    >>> change.after, change.order
    (array([2., 1., 1., 0.]), array([0, 3, 1, 2]))
    """
    first, second = mean_one(_one_vector(before)), mean_one(_one_vector(after))
    if len(first) != len(second):
        raise ValueError(f"both weight vectors must have the same number of bits, got {len(first)} and {len(second)}")
    change = np.abs(second - first)
    return WeightsChange(
        mean_change=float(change.mean()),
        max_change=float(change.max()),
        cosine=float(first @ second / (np.linalg.norm(first) * np.linalg.norm(second))),
        before=first,
        after=second,
        order=np.argsort(-change, kind="stable"),
    )


def ranker_of_weights(weights: npt.ArrayLike) -> RankingSVM:
    """Wrap one weight per bit, learned anywhere, as a ranker.

    Examples
    --------
    >>> ranker_of_weights([2.0, 1.0]).queries_for(np.uint8([[64]])).weights
    array([[2., 1.]], dtype=float32)
    """
    vector = check_weights(_one_vector(weights))
    from bitrank.ranking.ranking_svm import RankingSVM  # slow to import

    ranker = RankingSVM(n_bits=len(vector))
    ranker.weights_, ranker.n_bits_ = vector, len(vector)
    ranker.blend_, ranker.report_, ranker.params_ = 1.0, [], {}
    return ranker


def _one_vector(weights: npt.ArrayLike) -> Floats:
    values = check_weights(weights)
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(f"weights must be one vector, got shape {values.shape}")
    return values.astype(np.float64)
