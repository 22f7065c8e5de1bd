"""Spectral hashing: cosines along the principal components, the lowest frequencies first, for any number of bits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from bitrank.hashing.hasher import Floats, Hasher
from bitrank.hashing.pca import fit_pca


@dataclass(eq=False, repr=False)
class SpectralHashing(Hasher):
    """Spectral hashing.

    Bit k is set where cos(ω_k (x·p_k − m_k)) is positive: p_k is a principal component, m_k the least value along it
    in the training data, and ω_k a multiple of π over its range.

    Parameters
    ----------
    n_bits : int, default 32
        May exceed the number of features.

    Attributes
    ----------
    mean_ : float array of shape (n_features,)
    components_ : float array of shape (n_features, n_bits)
        Principal component of each bit.
    minima_ : float array of shape (n_bits,)
        Least training value along it.
    frequencies_ : float array of shape (n_bits,)
        ω, ascending.
    n_bits_ : int

    References
    ----------
    Y. Weiss, A. Torralba and R. Fergus, Spectral hashing, NIPS 2008.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 16))
    >>> SpectralHashing(n_bits=24).fit_transform(X).shape
    (100, 3)
    """

    _learned: ClassVar[dict[str, str]] = {"mean_": "d", "components_": "dk", "minima_": "k", "frequencies_": "k"}

    minima_: Floats = field(init=False)
    frequencies_: Floats = field(init=False)

    n_bits: int = 32

    def _learn(self, X: npt.NDArray[Any], n_bits: int) -> dict[str, Floats]:
        pca = fit_pca(X, min(n_bits, *X.shape))
        values = pca.project(X)
        minima, ranges = values.min(axis=0), np.ptp(values, axis=0)
        if ranges.max() <= 1e-14 * np.abs(pca.mean).max():  # all rows are equal up to rounding: any range works
            ranges[0] = 1.0
        # The widest component alone has enough modes; no component needs a faster one.
        n_modes = np.ceil((n_bits + 1) * ranges / ranges.max()).astype(int)
        component = np.repeat(np.arange(len(ranges)), n_modes)
        mode = np.concatenate([np.arange(1, count + 1) for count in n_modes])
        frequencies = mode * np.pi / ranges[component]
        slowest = np.argsort(frequencies, kind="stable")[:n_bits]
        component = component[slowest]
        return {
            "mean_": pca.mean,
            "components_": pca.components[:, component],
            "minima_": minima[component],
            "frequencies_": frequencies[slowest],
        }

    def _project(self, rows: Floats) -> Floats:
        return np.cos(self.frequencies_ * (super()._project(rows) - self.minima_))
