"""MNIST, the embedded digits and banking77 as codes to learn from and codes to search."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

import bitrank
from bitrank.core.codes import distances, pack
from bitrank.core.metrics import average_precision, precision_at
from bitrank.core.types import Queries

sys.path.append(str(Path(__file__).parents[1]))

from bitrank.datasets import digits
from experiments.datasets import banking77, mnist


class Split:
    """Codes to learn from, and codes to search, some of which are the queries."""

    def __init__(self, hasher: Any, X: np.ndarray, y: np.ndarray, test_X: np.ndarray, test_y: np.ndarray) -> None:
        self.values, self.y, test_values = hasher.fit(X).project(X), y, hasher.project(test_X)
        self.codes, self.test_codes, self.test_y = pack(self.values > 0), pack(test_values > 0), test_y
        # Queries are a tenth of each class, or all rows of a small set.
        by_class = [np.flatnonzero(test_y == label) for label in np.unique(test_y)]
        share = 1 if len(test_y) < 4000 else 10
        self.queries = np.sort(np.concatenate([rows[: len(rows) // share] for rows in by_class]))
        self.query_codes, self.query_values = self.test_codes[self.queries], test_values[self.queries]

    def evaluate(self, queries: Queries | None = None) -> dict[str, float]:
        """Return MAP and P@10 of the queries as a ranker returns them; None is plain Hamming."""
        parts, codes = [], self.query_codes if queries is None else queries.codes
        for part in np.array_split(np.arange(len(self.queries)), max(1, len(self.queries) // 250)):
            to_all = distances(codes[part], self.test_codes, None if queries is None else queries.weights[part])
            relevant = self.test_y[self.queries[part]][:, None] == self.test_y
            parts.append([average_precision(to_all, relevant), precision_at(to_all, relevant, 10)])
        ap, p10 = np.concatenate(parts, axis=1)
        return {"map": float(ap.mean()), "p10": float(p10.mean())}


def make_hasher(method: str, n_bits: int, seed: int) -> Any:
    hasher = getattr(bitrank, method)(n_bits)
    return hasher.set_params(random_state=seed) if "random_state" in hasher.get_params() else hasher


def mnist_halves(hasher: Any, seed: int, quick: bool, new_classes: bool = False) -> Split:
    """Split MNIST into halves; with new classes, keep digits 0-4 of the first half and 5-9 of the second."""
    images, y = digits() if quick else mnist()
    X = images.reshape(len(images), -1).astype(np.float32) / np.float32(255)
    train, test = np.array_split(np.random.default_rng(seed).permutation(len(y)), 2)
    if new_classes:
        train, test = train[y[train] < 5], test[y[test] >= 5]
    return Split(hasher, X[train], y[train], X[test], y[test])


def banking_parts(new_classes: bool) -> Split:
    """Return training and test sentences; with new classes, train on labels below 40 and test on the others."""
    X, y, _ = banking77()
    train, test = np.split(np.arange(len(y)), [10_003])
    if new_classes:
        train, test = train[y[train] < 40], test[y[test] >= 40]
    return Split(bitrank.SignBits(), X[train], y[train], X[test], y[test])
