"""Supervised hashing with kernels: one bit after the other, fitted to what earlier bits leave of the similarities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.optimize

from bitrank.core.progress import progress
from bitrank.hashing.hasher import Floats
from bitrank_papers.anchors import KernelHasher, fit_kernel
from bitrank_papers.labelled import Rows

# Share of the mean diagonal added to the diagonal of the Gram matrix, which may be singular.
RIDGE = 1e-8
MAX_ITER = 25


@dataclass(eq=False, repr=False, kw_only=True)
class KernelSupervisedHashing(KernelHasher):
    """Supervised hashing with kernels (KSH).

    Bit k is the sign of Σ_j a_jk (κ(x, anchor_j) − mean of κ). Its coefficients maximise bᵀ S_k b over the bits b of
    the labelled rows, S_k being n_bits times the similarities (1 within a class, −1 between classes) less the outer
    products of the earlier bits. They start from the spectral relaxation and follow the gradient of the objective with
    a sigmoid in place of the sign.

    Parameters
    ----------
    n_bits : int, default 32
        May exceed the number of features.
    n_anchors : int, default 1000
        Anchors, drawn among the vectors; all vectors where there are fewer.
    n_labelled : int, default 5000
        Rows whose labels are used, drawn evenly over the classes.
    random_state : int, RandomState or None
        Seed of the anchors and of the labelled rows.

    References
    ----------
    W. Liu, J. Wang, R. Ji, Y.-G. Jiang and S.-F. Chang, Supervised hashing with kernels, CVPR 2012.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(200, 8)), np.arange(200) % 4
    >>> X[np.arange(200), y] += 6
    >>> codes = KernelSupervisedHashing(n_bits=8, random_state=0).fit_transform(X, y)
    >>> [len(np.unique(codes[y == label])) <= 3 for label in range(4)]
    [True, True, True, True]
    """

    n_anchors: int = 1000

    def _learn_labelled(
        self, X: npt.NDArray[Any], classes: Rows, rows: Rows, n_bits: int, random: np.random.RandomState
    ) -> dict[str, Floats]:
        kernel = fit_kernel(X, self.n_anchors, random)
        return {**kernel.learned(), "components_": learn_bits(kernel(X[rows]), classes[rows], n_bits)}


class Residual(NamedTuple):
    """S_k, never as a matrix: n_bits · (2 Z Zᵀ − 1 1ᵀ) − H Hᵀ, Z being one column per class and H the earlier bits."""

    membership: Floats
    n_bits: int
    bits: Floats

    def __matmul__(self, v: Floats) -> Floats:
        similar = 2 * self.membership @ (self.membership.T @ v) - v.sum(axis=0)
        return np.asarray(self.n_bits * similar - self.bits @ (self.bits.T @ v))


def learn_bits(K: Floats, classes: Rows, n_bits: int) -> Floats:
    """Learn the coefficients of all bits, one column each, from the centred kernels of the labelled rows."""
    n, m = K.shape
    membership = (classes[:, None] == np.unique(classes)).astype(np.float64)
    gram = K.T @ K
    gram[np.diag_indices(m)] += RIDGE * np.trace(gram) / m or 1.0
    basis = scipy.linalg.solve_triangular(scipy.linalg.cholesky(gram), np.eye(m))  # K times it is orthonormal
    white, small = K @ basis, K.astype(np.float32)  # half the memory is half the time of the gradient
    coefficients, bits = np.zeros((m, n_bits)), np.zeros((n, n_bits))
    residual = Residual(membership, n_bits, bits[:, :0])
    spectral = white.T @ (residual @ white)  # kept up to date by one outer product per bit
    for k in progress(range(n_bits), label="bits of KSH"):
        _, top = scipy.linalg.eigh(spectral, subset_by_index=[m - 1, m - 1])
        start = basis @ top[:, 0] * np.sqrt(n)
        start *= np.sign(start[np.abs(start).argmax()])  # the sign of an eigenvector is arbitrary
        optimum = scipy.optimize.minimize(
            smoothed, start, (small, residual), method="L-BFGS-B", jac=True, options={"maxiter": MAX_ITER}
        ).x
        candidates = [np.where(K @ a > 0, 1.0, -1.0) for a in (start, optimum)]
        better = int(np.argmax([b @ (residual @ b) for b in candidates]))
        coefficients[:, k], bits[:, k] = (start, optimum)[better], candidates[better]
        projected = white.T @ bits[:, k]
        spectral -= np.outer(projected, projected)
        residual = residual._replace(bits=bits[:, : k + 1])
    return coefficients


def smoothed(a: Floats, K: npt.NDArray[Any], residual: Residual) -> tuple[float, Floats]:
    """Compute −φᵀ S φ and its gradient, φ = 2 sigmoid(K a) − 1, both per row."""
    phi = np.tanh((K @ a.astype(K.dtype)).astype(np.float64) / 2)
    product = residual @ phi
    n = len(K)
    by_value = (product * (1 - phi**2)).astype(K.dtype)
    return float(-phi @ product) / n, -(K.T @ by_value).astype(np.float64) / n
