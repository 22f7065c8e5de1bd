"""Query vectors from walks on the click graph: train a network, and wrap it as a `QueryVectorRanker`."""

from __future__ import annotations

import numpy as np

from bitrank.clicks.walks import Walks
from bitrank.core.codes import signs
from bitrank.core.types import Codes
from bitrank.ranking.evidence.kinds import Matrix
from bitrank.ranking.networks.batches import Batch
from bitrank.ranking.networks.inputs import Inputs
from bitrank.ranking.networks.loss import softmax
from bitrank.ranking.networks.network import Network, start_network, train
from bitrank.ranking.networks.query_parts import Part
from bitrank.ranking.query_vector import QueryVectorRanker

_N_HIDDEN = 256
_RATE, _MOST_RATE = 0.96, 0.03  # the first is divided by the number of bits
_N_QUERIES, _N_ITEMS = 256, 1024  # per batch
_MOST_SAMPLED = 4000  # codes that the trust of a query is told from


class WalkBatches:
    """Pairs that walks join: the second item of each pair against random items of the collection."""

    def __init__(self, walks: Walks, sample: Codes, n_bits: int) -> None:
        self.walks, self.sample, self.n_bits = walks, sample, n_bits

    def draw(self, random: np.random.Generator) -> Batch:
        """Draw pairs, and items for all of them; the loss is the cross-entropy of the pair's second item."""
        pairs = self.walks.draw(_N_QUERIES, random)
        bits = signs(self.walks.codes[pairs[:, 1]], self.n_bits)
        items = signs(self.sample[random.integers(len(self.sample), size=_N_ITEMS)], self.n_bits)

        def gradient(vectors: Matrix) -> Matrix:
            scores = np.empty((len(pairs), 1 + len(items)), np.float32)
            scores[:, 0] = np.einsum("qb,qb->q", vectors, bits)
            scores[:, 1:] = vectors @ items.T
            shares = softmax(scores)
            by_vector: Matrix = (shares[:, :1] - 1) * bits + shares[:, 1:] @ items
            return by_vector / np.float32(max(1, len(pairs)))

        return Batch(pairs[:, 0], gradient)


def train_vectors(walks: Walks, sample: Codes, n_bits: int, *, n_steps: int, random: np.random.Generator) -> Network:
    """Train a network that turns the bits of a query into a vector."""
    network = start_network(n_bits, n_bits + 1, random, n_hidden=_N_HIDDEN)

    def phi(batch: Batch) -> Matrix:
        bits = signs(walks.codes[batch.queries], n_bits)
        return np.hstack([bits, np.ones((len(bits), 1), np.float32)])

    rate = min(_MOST_RATE, _RATE / n_bits)
    batches = WalkBatches(walks, sample, n_bits)
    return train(network, batches, phi, rate=rate, n_steps=n_steps, random=random, label="query vectors of clicks")


def bit_inputs() -> Inputs:
    """Inputs of the bits alone."""
    return Inputs(False, np.zeros(0, np.float32), np.zeros((0, 0), np.float32))


def ranker_of_clicks(network: Network, blend: float, walks: Walks, sample: Codes, n_bits: int) -> QueryVectorRanker:
    """Wrap a network as a ranker; queries and clicked items are the sample that trust is told from."""
    ranker = QueryVectorRanker(n_bits, n_hidden=_N_HIDDEN)
    ranker.bits_part_ = ranker.reals_part_ = ranker.full_part_ = Part(bit_inputs(), network, blend)
    random = np.random.default_rng(0)
    ranker.sample_ = walks.codes[random.permutation(walks.nodes)[:_MOST_SAMPLED]]
    ranker.collection_ = sample[random.permutation(len(sample))[:_MOST_SAMPLED]]
    ranker.learned_from_ = "clicks"
    ranker.n_bits_, ranker.n_features_ = n_bits, 0
    ranker.blend_, ranker.report_ = blend, []
    return ranker
