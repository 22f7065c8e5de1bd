"""What a network sees of a query: its bits or its reals, the leading components of its features, and a one."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from bitrank.core.codes import signs
from bitrank.core.types import Rows
from bitrank.ranking.evidence.kinds import Matrix, QueryRows
from bitrank.ranking.gate.near import mean_one

_MOST_COMPONENTS = 128
_MOST_ROWS = 10_000  # that the components are computed from


class Inputs(NamedTuple):
    """φ of a query: `[query, (features − center)·components, 1]`, the query as ±1 bits or as reals of mean size 1.

    Features are reduced to their leading components and divided by one scale: raw features, of hundreds of columns,
    make a network rank worse than the bits alone where rows are few.
    """

    reals: bool
    center: Matrix
    components: Matrix

    @classmethod
    def learn(cls, reals: bool, features: Matrix | None, random: np.random.Generator) -> Self:
        """Learn the components of features, or of none."""
        if features is None:
            return cls(reals, np.zeros(0, np.float32), np.zeros((0, 0), np.float32))
        rows = np.sort(random.permutation(len(features))[:_MOST_ROWS])
        center = features[rows].mean(axis=0, dtype=np.float64)
        centered = features[rows] - center
        values, vectors = np.linalg.eigh(centered.T @ centered / len(rows))
        leading = vectors[:, ::-1][:, : min(_MOST_COMPONENTS, len(rows))]
        spread = np.sqrt(values[::-1][: leading.shape[1]].clip(min=0).mean())
        scaled = leading / spread if spread > 0 else np.zeros_like(leading)
        return cls(reals, center.astype(np.float32), scaled.astype(np.float32))

    @property
    def with_features(self) -> bool:
        """Whether the queries need features."""
        return self.components.size > 0

    def n_inputs(self, n_bits: int) -> int:
        """Length of φ."""
        return n_bits + int(self.components.shape[1]) + 1

    def query(self, queries: QueryRows, n_bits: int) -> Matrix:
        """The query's part of φ: its bits, or its reals where these are used."""
        bits = signs(queries.codes, n_bits)
        if not self.reals or queries.magnitudes is None:
            return bits
        return (bits * mean_one(queries.magnitudes)).astype(np.float32)

    def __call__(self, queries: QueryRows, features: Matrix | None, n_bits: int) -> Matrix:
        """φ, one row per query."""
        parts = [self.query(queries, n_bits)]
        if self.with_features and features is not None:
            parts.append(np.asarray((features - self.center) @ self.components, np.float32))
        return np.hstack([*parts, np.ones((len(queries.codes), 1), np.float32)])


def take(features: Matrix | None, rows: Rows) -> Matrix | None:
    """Some rows of features, where there are any."""
    return None if features is None else features[rows]
