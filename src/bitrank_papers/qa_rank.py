"""`QaRank`: query-adaptive weights from the classes of the nearest rows. A baseline from the literature."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from bitrank.core.checks import check_count
from bitrank.core.codes import signs
from bitrank.core.types import Queries
from bitrank.ranking.evidence.kinds import LabelEvidence, Matrix, QueryRows
from bitrank.ranking.ranker import Ranker, scaled

Array = npt.NDArray[np.float64]

MAX_SWEEPS = 1000
TOLERANCE = 1e-12
_BLOCK = 256  # queries compared with all rows at once


@dataclass(eq=False, repr=False, kw_only=True)
class QaRank(Ranker):
    """Weight bits by the classes that the query's neighbours have.

    Every class c has weights a_c ≥ 0 of sum 1, which minimise ``Σ_c Σ_k v_ck a_ck² + λ Σ_cd s_cd |a_c − a_d|²``: v_ck
    is the variance of bit k (as ±1) within the class, s_cd the similarity of the means of two classes. A query mixes
    them by the shares of the classes among its nearest labelled rows, a_q, and ranks by ``Σ_k a_qk² [bits differ]``.
    No gate is applied.

    Parameters
    ----------
    n_bits : int, optional
        Length of the codes; by default all bits of their bytes.
    smoothing : float, default=1.0
        λ: how much similar classes share weights.
    n_neighbors : int, default=500
        Nearest rows by Hamming distance that tell the classes of a query.
    n_rows : int, default=5000
        Rows to keep for that, drawn at random.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    class_weights_ : float64 array of shape (n_classes, n_bits)
        a_c.
    rows_ : float32 array of shape (n_rows, n_bits)
        The rows kept, as ±1.
    row_classes_ : float32 array of shape (n_rows,)
        Number of the class of each.
    n_bits_ : int

    References
    ----------
    Y.-G. Jiang, J. Wang and S.-F. Chang, Lost in binarization: query-adaptive ranking for similar image search with
    compact codes, ICMR 2011.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=400)
    >>> bits = np.column_stack([y, rng.integers(2, size=(400, 7))])
    >>> ranker = QaRank(n_neighbors=50, random_state=0).fit(pack(bits), y)
    >>> int(ranker.queries_for(pack(bits[:1])).weights.argmax())
    0
    """

    _arrays: ClassVar[dict[str, str]] = {"class_weights_": "cb", "rows_": "nb", "row_classes_": "n"}

    class_weights_: Array = field(init=False)
    rows_: Matrix = field(init=False)
    row_classes_: Matrix = field(init=False)

    smoothing: float = 1.0
    n_neighbors: int = 500
    n_rows: int = 5000
    random_state: Any = None

    def _fit_labels(self, evidence: LabelEvidence) -> None:
        check_count("n_neighbors", self.n_neighbors, 1)
        check_count("n_rows", self.n_rows, 1)
        if not 0 < self.smoothing < np.inf:
            raise ValueError(f"smoothing must be positive and finite, got {self.smoothing}")
        classes = np.unique(evidence.y, return_inverse=True)[1]
        bits = signs(evidence.codes, evidence.n_bits)
        membership = (classes == np.arange(classes.max() + 1)[:, None]).astype(np.float64)
        means = membership @ bits / membership.sum(axis=1, keepdims=True)
        rows = np.sort(check_random_state(self.random_state).permutation(len(bits))[: self.n_rows])
        # The variance of ±1 is 1 less the squared mean.
        self.class_weights_ = solve_weights(np.maximum(1 - means**2, 0), similarities(means), self.smoothing)
        self.rows_, self.row_classes_ = bits[rows], classes[rows].astype(np.float32)

    def _queries_for(self, queries: QueryRows, features: Matrix | None, collection: Any) -> Queries:
        mixed = np.empty((len(queries.codes), self.n_bits_))
        for start in range(0, len(mixed), _BLOCK):
            part = slice(start, start + _BLOCK)
            mixed[part] = self._class_shares(signs(queries.codes[part], self.n_bits_)) @ self.class_weights_
        return scaled(queries, np.square(self.n_bits_ * mixed))  # 1 where all weights are equal

    def _class_shares(self, query_bits: Matrix) -> Array:
        """Shares of the classes among the nearest rows of each query; ties by row."""
        nearest = np.argsort(-(query_bits @ self.rows_.T), axis=1, kind="stable")[:, : self.n_neighbors]
        classes = self.row_classes_.astype(np.int64)[nearest]
        n_classes = len(self.class_weights_)
        places = classes + n_classes * np.arange(len(classes))[:, None]
        counts = np.bincount(places.ravel(), minlength=n_classes * len(classes)).reshape(len(classes), n_classes)
        return np.asarray(counts / nearest.shape[1])

    def _loaded(self) -> None:
        classes = self.row_classes_
        if (self.class_weights_ < 0).any():
            raise ValueError("expected class_weights_ that are not negative, got others")
        if (classes != np.rint(classes)).any() or classes.min() < 0 or classes.max() >= len(self.class_weights_):
            raise ValueError(f"expected row_classes_ from 0 to {len(self.class_weights_) - 1}, got others")


def similarities(means: Array) -> Array:
    """Similarity of every two classes from the squared distance of their means; 0 of a class and itself."""
    squared = np.square(means[:, None] - means).sum(axis=2)
    similar = np.exp(-squared / (squared.mean() or 1.0))
    np.fill_diagonal(similar, 0)
    return np.asarray(similar)


def objective(weights: Array, variances: Array, similar: Array, smoothing: float) -> float:
    """Compute Σ v a² + λ Σ s |a_c − a_d|² over classes c and ordered pairs of classes."""
    differences = np.square(weights[:, None] - weights).sum(axis=2)
    return float(np.sum(variances * weights**2) + smoothing * np.sum(similar * differences))


def solve_weights(variances: Array, similar: Array, smoothing: float) -> Array:
    """Minimise the objective over non-negative weights of sum 1 per class: exactly for one class after the other.

    For one class the minimum is (2λ Σ_d s_cd a_d + ν) / (v_c + 2λ Σ_d s_cd), with the ν that makes the sum 1. It is
    never negative: without ν the sum is at most 1.
    """
    n_classes, n_bits = variances.shape
    variances = variances + 1e-6  # a bit that is constant in a class must not take all its weight
    weights = np.full((n_classes, n_bits), 1 / n_bits)
    for _ in range(MAX_SWEEPS):
        before = weights.copy()
        for c in range(n_classes):
            pulls = 2 * smoothing * similar[c] @ weights
            curvatures = variances[c] + 2 * smoothing * similar[c].sum()
            nu = (1 - np.sum(pulls / curvatures)) / np.sum(1 / curvatures)
            weights[c] = np.maximum((pulls + nu) / curvatures, 0)
        if np.abs(weights - before).max() <= TOLERANCE:
            break
    return weights
