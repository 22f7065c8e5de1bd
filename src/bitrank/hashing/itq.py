"""Iterative quantisation: the rotation of the principal components nearest to the vertices of the hypercube."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from bitrank.core.checks import check_count
from bitrank.hashing.hasher import Floats, RandomHasher
from bitrank.hashing.pca import fit_pca_of_bits, random_rotation


@dataclass(eq=False, repr=False, kw_only=True)
class ITQ(RandomHasher):
    """Iterative quantisation.

    Parameters
    ----------
    n_bits : int, default 32
        At most the number of features and of training vectors.
    n_iter : int, default 50
        Alternations of signs and rotation.
    random_state : int, RandomState or None
        Seed of the first rotation.

    References
    ----------
    Y. Gong and S. Lazebnik, Iterative quantization: a Procrustean approach to learning binary codes, CVPR 2011.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 16))
    >>> ITQ(n_bits=8, random_state=0).fit_transform(X).shape
    (100, 1)
    """

    n_iter: int = 50

    def _check_params(self, n_features: int) -> int:
        check_count("n_iter", self.n_iter, 0)
        return super()._check_params(n_features)

    def _learn(self, X: npt.NDArray[Any], n_bits: int) -> dict[str, Floats]:
        pca = fit_pca_of_bits(X, n_bits)
        rotation = random_rotation(n_bits, check_random_state(self.random_state))
        # Neither the signs nor the best rotation depend on the scale; at scale 1 float32 is enough.
        scale = np.sqrt(pca.variances[0]) or 1.0
        V = (pca.project(X) / scale).astype(np.float32)
        for _ in range(self.n_iter):
            rotation = nearest_rotation(V, rotation)
        return {"mean_": pca.mean, "components_": pca.components @ rotation}


def nearest_rotation(V: npt.NDArray[np.float32], rotation: Floats) -> Floats:
    """Alternate once: B = sign(VR) for the current rotation R, then the R that minimises |B - VR|."""
    R = rotation.astype(np.float32)
    product = np.zeros(R.shape)
    for start in range(0, len(V), 4096):  # a block stays in the cache
        block = V[start : start + 4096]
        signs = block @ R
        np.copysign(np.float32(1), signs, out=signs)
        product += signs.T @ block
    # Orthogonal Procrustes. NumPy's SVD, not SciPy's: two BLAS libraries would compete for the cores.
    left, _, right = np.linalg.svd(product)
    return np.asarray((left @ right).T)
