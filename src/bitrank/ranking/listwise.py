"""A listwise loss over labelled batches, and Adam to descend it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from bitrank.checks import check_labels
from bitrank.progress import progress

Matrix = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
# From queries, items and their similarity to the gradient of the loss by every array.
Gradients = Callable[[Rows, Rows, npt.NDArray[np.bool_]], Iterable[Matrix]]

_N_QUERIES, _N_ITEMS = 256, 1024  # per step

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


def class_numbers(y: npt.ArrayLike, n: int) -> Rows:
    """Labels of n rows as numbers from 0 on, or a ValueError where there is nothing to tell apart."""
    classes, numbers = np.unique(check_labels(y, n), return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y must hold at least two classes, got {len(classes)}")
    return numbers


def descend(
    arrays: Sequence[Matrix],
    gradients: Gradients,
    y: Rows,
    rate: float,
    n_steps: int,
    random: np.random.Generator,
    label: str,
) -> None:
    """Change the arrays in place: Adam with a cosine schedule on random batches of the rows that y labels."""
    steps = [Adam(array) for array in arrays]
    for step in progress(range(n_steps), label=label):
        queries, items = (random.integers(len(y), size=min(n, len(y))) for n in (_N_QUERIES, _N_ITEMS))
        similar = y[queries][:, None] == y[items]
        similar &= queries[:, None] != items
        now = rate * 0.5 * (1 + np.cos(np.pi * step / n_steps))
        for adam, gradient in zip(steps, gradients(queries, items, similar), strict=True):
            adam.step(gradient, now)


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
