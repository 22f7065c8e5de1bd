"""Isotropic hashing: the rotation of the principal components that gives every bit the same variance."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from bitrank.hashing.hasher import Floats, RandomHasher
from bitrank.hashing.pca import fit_pca_of_bits, random_rotation

# Largest relative deviation from the mean of variances that count as equal.
TOLERANCE = 1e-4
MAX_ITER = 1000


class IsotropicHashing(RandomHasher):
    """Isotropic hashing by lift and projection.

    Parameters
    ----------
    n_bits : int, default 32
        At most the number of features and of training vectors.
    random_state : int, RandomState or None
        Seed of the first rotation.

    References
    ----------
    W. Kong and W.-J. Li, Isotropic hashing, NIPS 2012.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 16)) * np.arange(1, 17)
    >>> hasher = IsotropicHashing(n_bits=8, random_state=0).fit(X)
    >>> variances = hasher.project(X).var(axis=0)
    >>> bool(np.allclose(variances, variances.mean(), rtol=1e-3))
    True
    """

    def _learn(self, X: npt.NDArray[Any], n_bits: int) -> dict[str, Floats]:
        pca = fit_pca_of_bits(X, n_bits)
        start = random_rotation(n_bits, check_random_state(self.random_state))
        return {"mean_": pca.mean, "components_": pca.components @ lift_and_project(pca.variances, start).T}


def lift_and_project(variances: Floats, rotation: Floats) -> Floats:
    """Find an orthogonal Q that makes the diagonal of Q diag(variances) Qᵀ constant; `variances` descend."""
    mean = variances.mean()
    Z = (rotation * variances) @ rotation.T
    for _ in range(MAX_ITER):
        if np.abs(np.diag(Z) - mean).max() <= TOLERANCE * mean:
            break
        np.fill_diagonal(Z, mean)
        # Reverse the eigenvectors, whose eigenvalues ascend, to match the variances: any other order diverges.
        rotation = np.linalg.eigh(Z)[1][:, ::-1]
        Z = (rotation * variances) @ rotation.T
    return rotation
