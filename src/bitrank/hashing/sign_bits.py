"""Sign bits of embeddings: one bit per dimension, set where the value exceeds its training mean, or zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from bitrank.core.codes import sample_rows
from bitrank.core.types import Codes
from bitrank.hashing.hasher import Floats, Hasher

# Codes of embeddings that were not centred set bits of positive means more often, and those of negative means less.
# benchmarks/retrieval/centring.py: this correlation is at least 0.87 for 50 such codes, at most 0.33 for centred ones.
_UNCENTRED = 0.6
_MIN_CODES = 50
_ROWS, _QUERIES, _NEAREST = 5000, 300, 10  # that choose the threshold
_MIN_BITS = 16
_MIN_IMBALANCE = 0.05  # mean distance of the shares of ones from a half; below it centring hardly matters


@dataclass(eq=False, repr=False)
class SignBits(Hasher):
    """Signs of embeddings, one bit per dimension.

    Parameters
    ----------
    threshold : {"mean", "zero", "auto"}
        "mean" centres embeddings on the training vectors, which makes bits balanced. "zero" gives the codes that
        providers return and `bitrank.core.codes.from_embeddings` makes: ``np.packbits(X > 0, axis=1)``. "auto" takes
        the one by which rows find more of their nearest others, by the cosine, in a sample; zero where both are equal.

    Attributes
    ----------
    mean_ : float array of shape (n_features,)
        Zeros where "auto" chose zero.
    n_bits_ : int
        The number of features.

    Examples
    --------
    >>> from bitrank.core.codes import unpack
    >>> X = [[0.9, 0.1, 0.2], [0.1, 0.5, 0.4]]
    >>> unpack(SignBits().fit_transform(X), n_bits=3)
    array([[1, 0, 0],
           [0, 1, 1]], dtype=uint8)
    >>> unpack(SignBits(threshold="zero").fit_transform(X), n_bits=3)
    array([[1, 1, 1],
           [1, 1, 1]], dtype=uint8)
    """

    _learned: ClassVar[dict[str, str]] = {"mean_": "d"}
    _newer_params: ClassVar[frozenset[str]] = frozenset({"threshold"})

    threshold: Literal["mean", "zero", "auto"] = "mean"

    def _check_params(self, n_features: int) -> int:
        if self.threshold not in ("mean", "zero", "auto"):
            raise ValueError(f'threshold must be "mean", "zero" or "auto", got {self.threshold!r}')
        return n_features

    def _learn(self, X: npt.NDArray[Any], n_bits: int) -> dict[str, Floats]:
        mean = X.mean(axis=0, dtype=np.float64)
        if self.threshold == "auto" and _recall(X, np.zeros_like(mean)) >= _recall(X, mean):
            mean = np.zeros_like(mean)
        return {"mean_": mean}

    def _project(self, rows: Floats) -> Floats:
        return rows if self.threshold == "zero" else rows - self.mean_

    def check_codes(self, codes: Codes) -> None:
        """Refuse codes of another length, and codes of embeddings that were not centred as this hasher centres.

        Codes must be many for the second: fewer than 50 are not judged.
        """
        super().check_codes(codes)
        if self.threshold == "zero" or len(codes) < _MIN_CODES or self.n_bits_ < _MIN_BITS or not np.ptp(self.mean_):
            return
        shares = np.unpackbits(codes, axis=1, count=self.n_bits_).mean(axis=0) - 0.5
        if np.abs(shares).mean() < _MIN_IMBALANCE or not np.ptp(shares):
            return
        correlation = np.corrcoef(shares, self.mean_)[0, 1]
        if correlation > _UNCENTRED:
            raise ValueError(
                f"codes must be those of this hasher, which centres embeddings, got codes that look like signs of "
                f"embeddings that were not centred (shares of ones and means correlate by {correlation:.2f}): "
                f'use SignBits(threshold="zero"), or encode the collection with this hasher'
            )


def _recall(X: npt.NDArray[Any], threshold: Floats) -> float:
    """Share of the ten nearest others by the cosine that rows find by their values and the signs of a sample."""
    items = X[sample_rows(len(X), _ROWS)].astype(np.float64)
    rows = sample_rows(len(items), _QUERIES)
    k = min(_NEAREST, len(items) - 1)
    lengths = np.linalg.norm(items, axis=1)
    cosines = items[rows] @ (items / np.where(lengths > 0, lengths, 1)[:, None]).T
    scores = (items[rows] - threshold) @ np.where(items > threshold, 1.0, -1.0).T
    for each in (cosines, scores):
        each[np.arange(len(rows)), rows] = -np.inf
    wanted, found = (np.argpartition(-each, k - 1, axis=1)[:, :k] for each in (cosines, scores))
    return float((wanted[:, :, None] == found[:, None, :]).any(axis=2).mean())
