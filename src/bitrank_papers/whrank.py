"""`WhRank`: weight bits by the spread of their values before the sign. A baseline from the literature."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from bitrank.core.checks import check_count
from bitrank.core.codes import signs
from bitrank.core.types import Weights
from bitrank.ranking.evidence.kinds import LabelEvidence, Matrix
from bitrank.ranking.ranker import Ranker


@dataclass(eq=False, repr=False, kw_only=True)
class WhRank(Ranker):
    """Weight every bit by how little its value before the sign varies within a class.

    Simple form of WhRank: σ_k is the standard deviation of the difference of the k-th value over pairs of one class;
    a bit weighs ``1/σ_k``, or ``|y_k(q)|/σ_k`` for reals as queries. `fit` needs `queries=hasher.project(X)`.

    Parameters
    ----------
    n_bits : int, optional
        Length of the codes; by default the number of values per row.
    n_pairs : int, default=20000
        Pairs to draw: a class with a probability proportional to its size, then two different rows of it.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    weights_ : float32 array of shape (n_bits,)
        1/σ_k. A value that does not vary within classes (σ_k below a millionth of the largest) gets the largest weight
        of the others. Ones, if no value varies.
    n_bits_ : int

    References
    ----------
    L. Zhang, Y. Zhang, J. Tang, K. Lu, Q. Tian: Binary code ranking with weighted Hamming distance. CVPR 2013.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=1000)
    >>> steady, noisy = y + rng.normal(0, 0.1, 1000), y + rng.normal(0, 10, 1000)
    >>> values = np.column_stack([steady, noisy])
    >>> WhRank(random_state=0).fit(np.packbits(values > 0, axis=1), y, queries=values).weights_.round(2)
    array([7.15, 0.07], dtype=float32)
    """

    _arrays: ClassVar[dict[str, str]] = {"weights_": "b"}

    weights_: Weights = field(init=False)

    n_pairs: int = 20000
    random_state: Any = None

    def _fit_labels(self, evidence: LabelEvidence) -> None:
        check_count("n_pairs", self.n_pairs, 1)
        values = check_values(evidence, type(self).__name__)
        first, second = _same_class_pairs(evidence.y, self.n_pairs, check_random_state(self.random_state))
        self.weights_ = (1 / spread_between(values[first], values[second])).astype(np.float32)


def check_values(evidence: LabelEvidence, name: str) -> Matrix:
    """Values before the sign of every row, which these rankers learn from."""
    if evidence.queries.magnitudes is None:
        raise ValueError(
            f"{name} learns from values before the sign: queries must be reals, as `project` gives, got codes"
        )
    return signs(evidence.queries.codes, evidence.n_bits) * evidence.queries.magnitudes


def spread_between(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Standard deviation of every value's difference between paired rows.

    Values below a millionth of the largest are replaced by the smallest of the others; ones, if no value varies.
    """
    # Either row may come first: the mean difference is zero and need not be estimated.
    sigma = np.sqrt(np.mean(np.square(first - second, dtype=np.float64), axis=0))
    varies = sigma > 1e-6 * sigma.max()
    return np.where(varies, sigma, sigma[varies].min()) if varies.any() else np.ones_like(sigma)


def _same_class_pairs(
    y: npt.NDArray[Any], n_pairs: int, rng: np.random.RandomState
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    _, codes, sizes = np.unique(y, return_inverse=True, return_counts=True)
    by_class = np.argsort(codes, kind="stable")
    starts = np.cumsum(sizes) - sizes
    # A row drawn evenly is a class drawn by its frequency; its partner is another row of the class.
    eligible = np.flatnonzero(sizes[codes[by_class]] > 1)
    if len(eligible) == 0:
        raise ValueError(f"y must have a class with at least two rows, got {len(sizes)} classes with one each")
    places = eligible[rng.randint(len(eligible), size=n_pairs)]
    classes = codes[by_class[places]]
    shift = rng.randint(1, sizes[classes])
    partners = starts[classes] + (places - starts[classes] + shift) % sizes[classes]
    return by_class[places], by_class[partners]
