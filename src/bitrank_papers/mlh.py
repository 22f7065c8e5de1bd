"""Minimal loss hashing: linear hash functions by loss-augmented inference on pairs, as in a structural SVM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_count
from bitrank.core.progress import progress
from bitrank.hashing.hasher import Floats
from bitrank_papers.labelled import Rows, SupervisedHasher, draw_pairs

BATCH = 100
LEARNING_RATE, MOMENTUM, DECAY = 0.1, 0.9, 1e-4
START = 0.1  # standard deviation of the first coefficients


@dataclass(eq=False, repr=False, kw_only=True)
class MinimalLossHashing(SupervisedHasher):
    """Minimal loss hashing (MLH).

    Pairs of one class should differ in fewer than ρ bits, other pairs in more: the loss is a hinge on the Hamming
    distance. Stochastic gradients descend on its upper bound, max over code pairs (g, h) of loss(g, h) + g·Wx + h·Wy,
    less the same without the loss. Half of the pairs are of one class. Vectors are centred and scaled to length one.

    Parameters
    ----------
    n_bits : int, default 32
        May exceed the number of features.
    threshold : float, default 0.2
        ρ, as a share of the bits.
    n_steps : int, default 10000
        Steps, each on 100 pairs; the learning rate falls linearly to zero.
    n_labelled : int, default 5000
        Rows whose labels are used, drawn evenly over the classes.
    random_state : int, RandomState or None

    References
    ----------
    M. Norouzi and D. J. Fleet, Minimal loss hashing for compact binary codes, ICML 2011.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(200, 8)), np.arange(200) % 4
    >>> X[np.arange(200), y] += 6
    >>> codes = MinimalLossHashing(n_bits=8, n_steps=500, random_state=0).fit_transform(X, y)
    >>> [len(np.unique(codes[y == label])) <= 4 for label in range(4)]
    [True, True, True, True]
    """

    threshold: float = 0.2
    n_steps: int = 10_000

    def _check_params(self, n_features: int) -> int:
        check_count("n_steps", self.n_steps, 0)
        if not 0 <= self.threshold < 1:
            raise ValueError(f"threshold must be at least 0 and below 1, got {self.threshold}")
        return super()._check_params(n_features)

    def _learn_labelled(
        self, X: npt.NDArray[Any], classes: Rows, rows: Rows, n_bits: int, random: np.random.RandomState
    ) -> dict[str, Floats]:
        mean = X.mean(axis=0, dtype=np.float64)
        labelled, classes = X[rows] - mean, classes[rows]
        lengths = np.sqrt(np.square(labelled).sum(axis=1, keepdims=True))
        labelled = (labelled / np.where(lengths > 0, lengths, 1)).astype(np.float32)
        W = (START * random.standard_normal((X.shape[1], n_bits))).astype(np.float32)
        losses = hinge_losses(n_bits, round(self.threshold * n_bits)).astype(np.float32)
        velocity = np.zeros_like(W)
        for step in progress(range(self.n_steps), label="steps of MLH"):
            first, second = draw_pairs(classes, BATCH, random)
            similar = (classes[first] == classes[second]).astype(np.int64)
            _, gradient = bound(W, labelled[first], labelled[second], losses[similar])
            rate = np.float32(LEARNING_RATE * (1 - step / self.n_steps))
            velocity *= MOMENTUM
            velocity -= rate * (gradient / BATCH + DECAY * W)
            W += velocity
        return {"mean_": mean, "components_": W.astype(np.float64)}


def hinge_losses(n_bits: int, rho: int) -> Floats:
    """Loss per Hamming distance from 0 to n_bits: of pairs of different classes (row 0) and of one class (row 1)."""
    distance = np.arange(n_bits + 1)
    different = np.maximum(rho + 1 - distance, 0) / (rho + 1)
    return np.stack([different, np.maximum(distance - rho + 1, 0) / (n_bits - rho + 1)])


def bound(
    W: npt.NDArray[Any], first: npt.NDArray[Any], second: npt.NDArray[Any], losses: npt.NDArray[Any]
) -> tuple[float, npt.NDArray[Any]]:
    """Compute the upper bound of the loss of pairs of vectors, summed, and its gradient; losses: one row per pair."""
    u, v = first @ W, second @ W
    # Per bit, the best score is |u + v| where the bits of the pair are equal, and |u - v| where they differ.
    gains = np.abs(u - v) - np.abs(u + v)
    order = np.argsort(-gains, axis=1, kind="stable")
    totals = np.zeros((len(u), W.shape[1] + 1), W.dtype)
    np.cumsum(np.take_along_axis(gains, order, axis=1), axis=1, out=totals[:, 1:])
    totals += losses
    n_different = totals.argmax(axis=1)
    differ = np.empty(u.shape, bool)
    np.put_along_axis(differ, order, np.arange(W.shape[1]) < n_different[:, None], axis=1)
    one = W.dtype.type(1)
    g = np.copysign(one, np.where(differ, u - v, u + v))
    h = np.where(differ, -g, g)
    value = totals.max(axis=1).sum() + np.abs(u + v).sum() - np.abs(u).sum() - np.abs(v).sum()
    gradient = first.T @ (g - np.copysign(one, u)) + second.T @ (h - np.copysign(one, v))
    return float(value), gradient
