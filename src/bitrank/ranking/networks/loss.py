"""A listwise loss over labelled batches, and Adam to descend it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from bitrank.core.progress import progress

Matrix = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
# The loss mixes two terms: every similar item before the dissimilar ones (for MAP), and some similar item before all
# others (for the top of the list).
_EVERY, _SOME = np.float32(0.4), np.float32(0.6)


def loss_gradient(scores: Matrix, similar: npt.NDArray[np.bool_]) -> Matrix:
    """Gradient by the scores of the listwise loss, averaged over the queries that have a similar item in the batch.

    With e = exp(score) and N the sum of e over dissimilar items, the loss of a query is the mean over its similar
    items i of log(1 + N / e_i), and −log of the similar items' share of all e, in the mix above.
    """
    tiny = np.float32(1e-30)
    # Bounded below, so that similar items far behind still pull. In place, since memory traffic is the cost.
    e: Matrix = scores - scores.max(axis=1, keepdims=True)
    np.maximum(e, np.float32(-60), out=e)
    np.exp(e, out=e)
    mask = similar.astype(np.float32)
    n_similar = mask.sum(axis=1, keepdims=True)
    each = np.where(n_similar > 0, np.float32(1 / max(1, int(np.count_nonzero(n_similar)))), np.float32(0))
    similar_e = e * mask
    pull = e - similar_e
    of_similar = similar_e.sum(axis=1, keepdims=True)
    of_dissimilar = np.maximum(pull.sum(axis=1, keepdims=True), tiny)
    # Of the mean: 1 / (e_i + N) for the similar items, and their sum, which pushes the dissimilar ones.
    np.divide(mask, np.add(e, of_dissimilar, out=pull), out=pull)
    pull /= np.maximum(n_similar, 1)
    push = _EVERY * pull.sum(axis=1, keepdims=True)
    e *= each * (push + _SOME / (of_similar + of_dissimilar))
    pull *= each * _EVERY * of_dissimilar
    similar_e *= each * (push + _SOME / np.maximum(of_similar, tiny))
    e -= pull
    e -= similar_e
    return e


def contrast(vectors: Matrix, bits: Matrix, items: Matrix, known: tuple[Rows, Rows] | None = None) -> Matrix:
    """Gradient of −log of the share that a query's own item has among all items, by the vectors; a sum, not a mean.

    Parameters
    ----------
    vectors : vectors of the queries
    bits : ±1 of the own item of each query
    items : ±1 of the other items, which are the same for all queries
    known : query and column of other items that are no negatives, optional
    """
    scores = np.empty((len(vectors), 1 + len(items)), np.float32)
    scores[:, 0] = np.einsum("qb,qb->q", vectors, bits)
    scores[:, 1:] = vectors @ items.T
    if known is not None:
        scores[:, 1:][known] = -np.inf
    shares = softmax(scores, axis=1)
    by_vector: Matrix = (shares[:, :1] - 1) * bits + shares[:, 1:] @ items
    return by_vector


class Adam:
    """Adam for one array, which it changes in place.

    Parameters
    ----------
    array : float32 array
    rate : float
        Learning rate, at most.
    decay : float
        Share of the way back to its start that the array goes per step, at most.
    """

    def __init__(self, array: Matrix, rate: float, decay: float = 0.0) -> None:
        self.array, self.rate, self.decay = array, rate, decay
        self.mean, self.square, self.count = np.zeros_like(array), np.zeros_like(array), 0
        self.start = array.copy() if decay else array

    def step(self, gradient: Matrix, schedule: float = 1.0) -> None:
        """Move the array against the gradient, at a share of the rate and the decay."""
        self.count += 1
        self.mean += np.float32(0.1) * (gradient - self.mean)
        self.square += np.float32(0.01) * (gradient * gradient - self.square)
        scale = np.sqrt(self.square / (1 - 0.99**self.count)) + np.float32(1e-10)
        self.array -= np.float32(schedule * self.rate / (1 - 0.9**self.count)) * self.mean / scale
        if self.decay:
            self.array -= np.float32(schedule * self.decay) * (self.array - self.start)


def descend(steps: Sequence[Adam], gradients: Callable[[], Iterable[Matrix]], n_steps: int, label: str) -> None:
    """Descend with a cosine schedule; `gradients` gives those of a fresh batch, one per array."""
    for step in progress(range(n_steps), label=label):
        schedule = 0.5 * (1 + np.cos(np.pi * step / n_steps))
        for adam, gradient in zip(steps, gradients(), strict=True):
            adam.step(gradient, schedule)
