"""bitrank as two algorithms of ann-benchmarks: for its Hamming sets, and for angular and Euclidean ones.

Copy this folder's module.py, config.yml and Dockerfile to ann_benchmarks/algorithms/bitrank/ of
https://github.com/erikbern/ann-benchmarks, and run `python run.py --algorithm bitrank --dataset random-s-128-hamming`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bitrank import Collection, Index

try:
    from ..base.module import BaseANN
except ImportError:  # outside of ann-benchmarks, as in run.py

    class BaseANN:  # type: ignore[no-redef]
        """What ann-benchmarks expects of an algorithm."""


class Bitrank(BaseANN):
    """Exact search by Hamming distance; single queries run on one thread, as ann-benchmarks asks."""

    def __init__(self, metric: str = "hamming") -> None:
        if metric != "hamming":
            raise ValueError(f"metric must be hamming, got {metric!r}")
        self.name = "bitrank"

    def fit(self, X: np.ndarray) -> None:
        """Build the index of a matrix of booleans, one column per bit."""
        self._index = Index(np.packbits(X.astype(bool), axis=1), n_bits=X.shape[1])

    def query(self, q: np.ndarray, n: int) -> np.ndarray:
        """Find the n nearest rows of one query."""
        return self._index.search(np.packbits(q.astype(bool))[None], n, threads=1).ids[0]

    def batch_query(self, X: np.ndarray, n: int) -> None:
        """Find the n nearest rows of many queries on all cores."""
        self._results = self._index.search(np.packbits(X.astype(bool), axis=1), n).ids

    def get_batch_results(self) -> np.ndarray:
        """Return the rows of the last batch."""
        return self._results

    def get_additional(self) -> dict[str, Any]:
        """Return further facts of a run: none."""
        return {}

    def done(self) -> None:
        """Free the index."""
        del self._index

    def __str__(self) -> str:
        return self.name


class BitrankVectors(Bitrank):
    """Codes of vectors with some bits per dimension; the vectors are not kept."""

    def __init__(self, metric: str, bits: float) -> None:
        if metric not in _METRICS:
            raise ValueError(f"metric must be one of {', '.join(_METRICS)}, got {metric!r}")
        self._metric, self._bits = _METRICS[metric], bits
        self.name = f"bitrank({bits} bits per dimension)"

    def fit(self, X: np.ndarray) -> None:
        """Make the codes."""
        self._index = Collection.from_vectors(X, bits=self._bits, metric=self._metric, random_state=0)

    def query(self, q: np.ndarray, n: int) -> np.ndarray:
        """Find the n nearest rows of one query."""
        return self._index.search(q[None], n, threads=1).ids[0]

    def batch_query(self, X: np.ndarray, n: int) -> None:
        """Find the n nearest rows of many queries on all cores."""
        self._results = self._index.search(X, n).ids


_METRICS = {"angular": "cosine", "euclidean": "l2"}
