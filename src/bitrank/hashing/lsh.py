"""Locality-sensitive hashing: random hyperplanes through the mean of the training data, for any number of bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from bitrank.hashing.hasher import Floats, RandomHasher


class LSH(RandomHasher):
    """Locality-sensitive hashing by random hyperplanes.

    Parameters
    ----------
    n_bits : int, default 32
        May exceed the number of features.
    random_state : int, RandomState or None
        Seed of the hyperplanes.

    References
    ----------
    M. Charikar, Similarity estimation techniques from rounding algorithms, STOC 2002.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 16))
    >>> LSH(n_bits=64, random_state=0).fit_transform(X).shape
    (100, 8)
    """

    def _learn(self, X: npt.NDArray[Any], n_bits: int) -> dict[str, Floats]:
        random = check_random_state(self.random_state)
        return {
            "mean_": X.mean(axis=0, dtype=np.float64),
            "components_": random.standard_normal((X.shape[1], n_bits)),
        }
