"""Multidimensional spectral hashing: signs of eigenfunctions, and `MDSHRanker`, which weighs by their eigenvalues."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.linalg

from bitrank.core.checks import check_weights
from bitrank.core.types import Queries, Weights
from bitrank.hashing.hasher import Floats, Hasher
from bitrank.hashing.pca import fit_pca
from bitrank.ranking.evidence.kinds import LabelEvidence, Matrix, QueryRows
from bitrank.ranking.plain import UniformRanker
from bitrank.ranking.ranker import scaled
from bitrank_papers.anchors import MOST_ROWS

N_GRID = 64  # points at which an eigenfunction is kept
SMOOTHING = 1e-3  # share of a uniform density mixed into a histogram, so that no point has density zero


@dataclass(eq=False, repr=False)
class MultidimensionalSpectralHashing(Hasher):
    """Multidimensional spectral hashing (MDSH).

    The affinity exp(−|x − y|²/2σ²) of vectors whose principal components are taken as independent has products of
    eigenfunctions of single components as eigenfunctions. Bits are the signs of those of single components with the
    largest eigenvalues: the signs of products follow from them. A component's eigenfunctions come from the histogram
    of its values. The eigenvalues are the weights of the bits: `MDSHRanker(hasher.eigenvalues_)` ranks by them.

    Parameters
    ----------
    n_bits : int, default 32
        May exceed the number of features.
    sigma : float, optional
        σ, in the unit of the vectors; by default half the root of the mean squared distance of two vectors.

    Attributes
    ----------
    mean_ : float array of shape (n_features,)
    components_ : float array of shape (n_features, n_bits)
        Principal component of each bit.
    minima_, maxima_ : float arrays of shape (n_bits,)
        Range of the training data along it.
    functions_ : float array of shape (n_bits, 64)
        Eigenfunction of each bit at evenly spaced points of the range; constant beyond it.
    eigenvalues_ : float array of shape (n_bits,)
        Relative to the eigenvalue of the constant function; descending.
    n_bits_ : int

    References
    ----------
    Y. Weiss, R. Fergus and A. Torralba, Multidimensional spectral hashing, ECCV 2012.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(300, 4)) * [4, 2, 1, 1]
    >>> hasher = MultidimensionalSpectralHashing(n_bits=6).fit(X)
    >>> bool((np.diff(hasher.eigenvalues_) <= 0).all())
    True
    """

    _learned: ClassVar[dict[str, str]] = {
        "mean_": "d",
        "components_": "dk",
        "minima_": "k",
        "maxima_": "k",
        "functions_": "kg",
        "eigenvalues_": "k",
    }

    minima_: Floats = field(init=False)
    maxima_: Floats = field(init=False)
    functions_: Floats = field(init=False)
    eigenvalues_: Floats = field(init=False)

    n_bits: int = 32
    _: KW_ONLY
    sigma: float | None = None

    def _check_params(self, n_features: int) -> int:
        if self.sigma is not None and not 0 < self.sigma < np.inf:
            raise ValueError(f"sigma must be positive and finite, got {self.sigma}")
        return super()._check_params(n_features)

    def _learn(self, X: npt.NDArray[Any], n_bits: int) -> dict[str, Floats]:
        pca = fit_pca(X, min(n_bits, *X.shape))
        values = pca.project(X)
        # The mean squared distance of two vectors is twice the sum of all variances.
        variance = np.square(X[:: max(1, len(X) // MOST_ROWS)] - pca.mean).sum(axis=1).mean()
        sigma = self.sigma or np.sqrt(variance / 2) or 1.0
        low, high = values.min(axis=0), values.max(axis=0)
        # Where all rows are equal up to rounding, any range works.
        high = np.where(high - low <= 1e-14 * np.abs(pca.mean).max(), low + 1, high)
        functions, eigenvalues, component = [], [], []
        for column, along in enumerate(values.T):
            places = np.rint((along - low[column]) / (high[column] - low[column]) * (N_GRID - 1)).astype(np.int64)
            step = (high[column] - low[column]) / sigma / (N_GRID - 1)
            column_functions, relative = eigenfunctions(np.bincount(places, minlength=N_GRID), step, n_bits)
            functions.append(column_functions)
            eigenvalues.append(relative)
            component.append(np.full(len(relative), column))
        largest = np.argsort(-np.concatenate(eigenvalues), kind="stable")[:n_bits]
        chosen = np.concatenate(component)[largest]
        return {
            "mean_": pca.mean,
            "components_": pca.components[:, chosen],
            "minima_": low[chosen],
            "maxima_": high[chosen],
            "functions_": np.concatenate(functions)[largest],
            "eigenvalues_": np.concatenate(eigenvalues)[largest],
        }

    def _project(self, rows: Floats) -> Floats:
        along = super()._project(rows)
        if not np.isfinite(along).all():
            return along
        places = np.clip((along - self.minima_) / (self.maxima_ - self.minima_), 0, 1) * (N_GRID - 1)
        left = np.minimum(places.astype(np.int64), N_GRID - 2)
        bit = np.arange(self.n_bits_)
        share = places - left
        return np.asarray((1 - share) * self.functions_[bit, left] + share * self.functions_[bit, left + 1])


@dataclass(eq=False, repr=False)
class MDSHRanker(UniformRanker):
    """Rank codes of `MultidimensionalSpectralHashing` by the eigenvalues of its eigenfunctions.

    The affinity of two vectors is Σ λ_k b_k(x) b_k(y), b_k being bits as ±1: a weighted Hamming distance with the
    weights λ_k. Nothing is learned from labels. The products of eigenfunctions of several components, which
    have no bits of their own, are left out.

    Parameters
    ----------
    eigenvalues : array of shape (n_bits,), optional
        `hasher.eigenvalues_`; ones by default.
    n_bits : int, optional
        Length of the codes; by default the number of eigenvalues, or all bits of the codes' bytes.

    Attributes
    ----------
    weights_ : float32 array of shape (n_bits,)
    n_bits_ : int

    Examples
    --------
    >>> from bitrank.hashing import MultidimensionalSpectralHashing
    >>> X = np.random.default_rng(0).normal(size=(300, 4)) * [4, 2, 1, 1]
    >>> hasher = MultidimensionalSpectralHashing(n_bits=6).fit(X)
    >>> codes = hasher.transform(X)
    >>> ranker = MDSHRanker(hasher.eigenvalues_).fit(codes)
    >>> bool((np.diff(ranker.queries_for(codes[:1]).weights[0]) <= 0).all())
    True
    """

    _arrays: ClassVar[dict[str, str]] = {"weights_": "b"}

    _ungated_blend = 1.0

    weights_: Weights = field(init=False)

    eigenvalues: Any = None
    _: KW_ONLY
    n_bits: int | None = None

    def _fit_labels(self, evidence: LabelEvidence) -> None:
        weights = np.ones(evidence.n_bits) if self.eigenvalues is None else self.eigenvalues
        weights = check_weights(weights, evidence.n_bits)
        if weights.ndim != 1:
            raise ValueError(f"eigenvalues must be one vector, got shape {weights.shape}")
        self.weights_ = weights

    def _n_bits(self) -> int | None:
        if self.n_bits is not None or self.eigenvalues is None:
            return self.n_bits
        return int(np.asarray(self.eigenvalues).shape[-1])

    def _queries_for(self, queries: QueryRows, features: Matrix | None, collection: Any) -> Queries:
        return scaled(queries, self.weights_)


def eigenfunctions(counts: npt.NDArray[np.int64], step: float, most: int) -> tuple[Floats, Floats]:
    """Compute eigenfunctions of exp(−(x − y)²/2) over a histogram on an even grid.

    Parameters
    ----------
    counts : int array of shape (n_grid,)
    step : float
        Distance of neighbouring points of the grid.
    most : int

    Returns
    -------
    functions : float array of shape (n, n_grid)
        At most `most`, without the first, which has the same sign everywhere; their largest size is 1.
    eigenvalues : float array of shape (n,)
        Relative to that of the first, from 0 to 1, descending.
    """
    n_grid = len(counts)
    density = (1 - SMOOTHING) * counts / counts.sum() + SMOOTHING / n_grid
    root = np.sqrt(density)
    grid = step * np.arange(n_grid)
    affinity = np.exp(-np.square(grid[:, None] - grid) / 2)
    eigenvalues, vectors = scipy.linalg.eigh(root[:, None] * affinity * root)
    n = min(most, n_grid - 1)
    functions = (vectors / root[:, None])[:, -2 : -2 - n : -1].T
    # The sign of an eigenvector is arbitrary: let functions be positive at the upper end of the range.
    functions = functions * np.where(functions[:, -1:] < 0, -1, 1)
    relative = np.clip(eigenvalues[-2 : -2 - n : -1] / eigenvalues[-1], 0, 1)
    return functions / np.abs(functions).max(axis=1, keepdims=True), relative
