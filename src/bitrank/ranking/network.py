"""Networks that turn what is known of a query into a vector, and how they are trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bitrank.ranking.batches import Batches
from bitrank.ranking.evidence import Matrix
from bitrank.ranking.listwise import Adam, descend
from bitrank.vocabulary import Rows


class Network(NamedTuple):
    """f(φ) = direct·φ + outer·relu(inner·φ)."""

    direct: Matrix
    inner: Matrix
    outer: Matrix

    def __call__(self, inputs: Matrix) -> Matrix:
        """Vectors, one row per query."""
        vectors: Matrix = inputs @ self.direct.T
        if len(self.inner):
            vectors += np.maximum(inputs @ self.inner.T, 0) @ self.outer.T
        return vectors


def start_network(n_bits: int, n_inputs: int, n_hidden: int, scale: float, random: np.random.Generator) -> Network:
    """A network that returns its first n_bits inputs, divided by √n_bits and times a scale."""
    direct = np.zeros((n_bits, n_inputs), np.float32)
    direct[:, :n_bits] = np.eye(n_bits, dtype=np.float32) * np.float32(scale / np.sqrt(n_bits))
    inner = random.normal(size=(n_hidden, n_inputs)).astype(np.float32) / np.float32(np.sqrt(n_inputs))
    return Network(direct, inner, np.zeros((n_bits, n_hidden), np.float32))


def train(
    network: Network,
    batches: Batches,
    inputs: Callable[[Rows], Matrix],
    *,
    rate: float,
    decay: float = 0.0,
    n_steps: int,
    random: np.random.Generator,
    label: str,
) -> Network:
    """Train a network in place and return it.

    Parameters
    ----------
    network : Network
    batches : Batches
    inputs : callable
        From row numbers of queries to their inputs φ.
    rate : float
        Learning rate.
    decay : float
        Share of the way back to its start that `direct` goes per step.
    n_steps : int
    random : numpy Generator
    label : str
        For the progress bar.
    """
    has_hidden = len(network.inner) > 0

    def gradients() -> tuple[Matrix, ...]:
        batch = batches.draw(random)
        given = inputs(batch.queries)
        if not has_hidden:
            return (batch.gradient(given @ network.direct.T).T @ given,)
        hidden = np.maximum(given @ network.inner.T, 0)
        by_vector = batch.gradient(given @ network.direct.T + hidden @ network.outer.T)
        by_hidden = (by_vector @ network.outer) * (hidden > 0)
        return by_vector.T @ given, by_hidden.T @ given, by_vector.T @ hidden

    arrays = network if has_hidden else network[:1]
    steps = [Adam(array, rate, decay if array is network.direct else 0.0) for array in arrays]
    descend(steps, gradients, n_steps, label)
    return network
