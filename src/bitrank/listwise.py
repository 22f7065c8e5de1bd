"""What the learners of weights and vectors per query share: a listwise loss, and Adam to descend it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float32]

# The loss is a mix of two: every similar item before the dissimilar ones (serves MAP), and some similar item before
# everything (serves the top of the list).
_EVERY, _SOME = np.float32(0.4), np.float32(0.6)


def loss_gradient(scores: Matrix, similar: npt.NDArray[np.bool_]) -> Matrix:
    """Gradient by the scores of the listwise loss, averaged over the queries that have a similar item in the batch.

    With e = exp(score) and N the sum of e over dissimilar items, the loss of a query is the mean over its similar
    items i of log(1 + N / e_i), and −log of the similar items' share of all e, in the mix given above.
    """
    # Bounded below, so that similar items far behind do not vanish, and still pull.
    e = np.exp(np.maximum(scores - scores.max(axis=1, keepdims=True), np.float32(-60)))
    n_similar = similar.sum(axis=1, keepdims=True).astype(np.float32)
    similar_e = np.where(similar, e, np.float32(0))
    of_similar = similar_e.sum(axis=1, keepdims=True)
    of_dissimilar = np.maximum((e - similar_e).sum(axis=1, keepdims=True), np.float32(1e-30))
    share = np.where(similar, 1 / (e + of_dissimilar), np.float32(0)) / np.maximum(n_similar, 1)
    every = np.where(similar, -of_dissimilar * share, e * share.sum(axis=1, keepdims=True))
    some = e / (of_similar + of_dissimilar) - similar_e / np.maximum(of_similar, np.float32(1e-30))
    gradient: Matrix = np.where(n_similar > 0, _EVERY * every + _SOME * some, np.float32(0))
    return gradient / np.float32(max(1, int((n_similar > 0).sum())))


class Adam:
    """Adam's state for one array, which it changes in place."""

    def __init__(self, array: Matrix) -> None:
        self.array, self.mean, self.square, self.count = array, np.zeros_like(array), np.zeros_like(array), 0

    def step(self, gradient: Matrix, rate: float) -> None:
        """Move the array against the gradient."""
        self.count += 1
        self.mean += np.float32(0.1) * (gradient - self.mean)
        self.square += np.float32(0.01) * (gradient * gradient - self.square)
        scale = np.sqrt(self.square / (1 - 0.99**self.count)) + np.float32(1e-10)
        self.array -= np.float32(rate / (1 - 0.9**self.count)) * self.mean / scale
