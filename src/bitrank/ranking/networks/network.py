"""Networks that turn what is known of a query into a vector, and how they are trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bitrank.ranking.evidence.kinds import Matrix
from bitrank.ranking.networks.batches import Batch, Batches
from bitrank.ranking.networks.loss import Adam, descend


class Network(NamedTuple):
    """f(φ) = direct·φ + shift + outer·relu(inner·φ); a vector `direct` multiplies the first inputs, one per bit."""

    direct: Matrix
    shift: Matrix
    inner: Matrix
    outer: Matrix

    def __call__(self, inputs: Matrix) -> Matrix:
        """Vectors, one row per query."""
        vectors = self.linear(inputs)
        if len(self.inner):
            vectors += np.maximum(inputs @ self.inner.T, 0) @ self.outer.T
        return vectors

    def linear(self, inputs: Matrix) -> Matrix:
        """The linear part of the vectors."""
        direct = inputs[:, : len(self.shift)] * self.direct if self.direct.ndim == 1 else inputs @ self.direct.T
        vectors: Matrix = direct + self.shift
        return vectors


def start_network(
    n_bits: int, n_inputs: int, random: np.random.Generator, *, n_hidden: int = 0, scale: float = 1.0
) -> Network:
    """A network that returns its first n_bits inputs, divided by √n_bits and times a scale.

    With hidden units `direct` is a vector, and a full matrix without.
    """
    size = np.float32(scale / np.sqrt(n_bits))
    direct = np.full(n_bits, size) if n_hidden else size * np.eye(n_bits, n_inputs, dtype=np.float32)
    inner = random.standard_normal((n_hidden, n_inputs), np.float32) / np.float32(np.sqrt(n_inputs))
    return Network(direct, np.zeros(n_bits, np.float32), inner, np.zeros((n_bits, n_hidden), np.float32))


def train(
    network: Network,
    batches: Batches,
    inputs: Callable[[Batch], Matrix],
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
        From a batch to the inputs φ of its queries.
    rate : float
        Learning rate.
    decay : float
        Share of the way back to its start that `direct` goes per step.
    n_steps : int
    random : numpy Generator
    label : str
        For the progress bar.
    """
    n_bits, has_hidden = len(network.shift), len(network.inner) > 0

    def gradients() -> tuple[Matrix, ...]:
        batch = batches.draw(random)
        phi = inputs(batch)
        vectors = network.linear(phi)
        hidden = np.maximum(phi @ network.inner.T, 0)
        if has_hidden:
            vectors += hidden @ network.outer.T
        by_vector = batch.gradient(vectors)
        diagonal = network.direct.ndim == 1
        by_direct = (by_vector * phi[:, :n_bits]).sum(axis=0) if diagonal else by_vector.T @ phi
        if not has_hidden:
            return by_direct, by_vector.sum(axis=0)
        by_hidden = (by_vector @ network.outer) * (hidden > 0)
        return by_direct, by_vector.sum(axis=0), by_hidden.T @ phi, by_vector.T @ hidden

    arrays = network if has_hidden else network[:2]
    steps = [Adam(array, rate, decay if array is network.direct else 0.0) for array in arrays]
    descend(steps, gradients, n_steps, label)
    return network
