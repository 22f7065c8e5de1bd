"""Sign bits of embeddings: one bit per dimension, set where the value exceeds its training mean."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from bitrank.hashing.hasher import Floats, Hasher


class SignBits(Hasher):
    """Signs of centred embeddings, one bit per dimension.

    Attributes
    ----------
    mean_ : float array of shape (n_features,)
    n_bits_ : int
        The number of features.

    Examples
    --------
    >>> from bitrank.codes import unpack
    >>> unpack(SignBits().fit_transform([[0.9, 0.1, 0.2], [0.1, 0.5, 0.4]]), n_bits=3)
    array([[1, 0, 0],
           [0, 1, 1]], dtype=uint8)
    """

    _learned: ClassVar[dict[str, str]] = {"mean_": "d"}

    def _check_params(self, n_features: int) -> int:
        return n_features

    def _learn(self, X: npt.NDArray[Any], n_bits: int) -> dict[str, Floats]:
        return {"mean_": X.mean(axis=0, dtype=np.float64)}

    def _project(self, rows: Floats) -> Floats:
        return rows - self.mean_
