"""Principal components, exact and with fixed signs, and random rotations."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg

from bitrank.hashing.hasher import Floats, blocks


class PCA(NamedTuple):
    """Mean (d,), orthonormal components (d, k), and the variances (k,) along them, descending."""

    mean: Floats
    components: Floats
    variances: Floats

    def project(self, X: npt.NDArray[Any]) -> Floats:
        """Coordinates of the rows of X along the components."""
        out = np.empty((len(X), self.components.shape[1]))
        for rows, block in blocks(X, out.shape[1]):
            out[rows] = (block - self.mean) @ self.components
        return out


def fit_pca(X: npt.NDArray[Any], n_components: int) -> PCA:
    """Compute the first principal components, at most as many as rows or features."""
    n, d = X.shape
    mean = X.mean(axis=0, dtype=np.float64)
    if n < d:
        _, singular, rows = _finite(scipy.linalg.svd, X.astype(np.float64) - mean, full_matrices=False)
        variances, components = singular[:n_components] ** 2 / n, rows[:n_components].T
    else:
        covariance = np.zeros((d, d))
        for _, block in blocks(X, d):
            block -= mean
            covariance += block.T @ block
        covariance /= n
        variances, components = _finite(scipy.linalg.eigh, covariance, subset_by_index=[d - n_components, d - 1])
        variances, components = variances[::-1], components[:, ::-1]
    # The sign of an eigenvector is arbitrary: make its largest entry positive, so that fits are repeatable.
    largest = np.abs(components).argmax(axis=0)
    components = components * np.where(components[largest, np.arange(n_components)] < 0, -1.0, 1.0)
    return PCA(mean, components, np.maximum(variances, 0))


def fit_pca_of_bits(X: npt.NDArray[Any], n_bits: int) -> PCA:
    """Compute one principal component per bit, or raise a ValueError where there are too few."""
    n, d = X.shape
    if n_bits > d:
        raise ValueError(f"n_bits must be at most the number of features ({d}), got {n_bits}")
    if n_bits > n:
        raise ValueError(f"n_bits must be at most the number of samples ({n}), got {n_bits}")
    return fit_pca(X, n_bits)


def random_rotation(n: int, random: np.random.RandomState) -> Floats:
    """Draw a random orthogonal matrix, uniformly."""
    q, r = scipy.linalg.qr(random.standard_normal((n, n)))
    return np.asarray(q * np.sign(np.diag(r)))


def _finite(decompose: Any, matrix: Floats, **options: Any) -> Any:
    if not np.isfinite(matrix).all():
        raise ValueError("X must hold values that can be squared and summed, got values too large for float64")
    return decompose(matrix, check_finite=False, **options)
