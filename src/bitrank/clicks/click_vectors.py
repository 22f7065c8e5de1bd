"""Query vectors from walks on the click graph: train a network, and wrap it as a `QueryVectorRanker`."""

from __future__ import annotations

import numpy as np

from bitrank.clicks.walks import Walks
from bitrank.core.codes import signs
from bitrank.core.types import Codes
from bitrank.ranking.evidence.kinds import Matrix
from bitrank.ranking.networks.batches import Batch
from bitrank.ranking.networks.loss import contrast
from bitrank.ranking.networks.network import Network, start_network, train
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

        size = np.float32(max(1, len(pairs)))
        return Batch(pairs[:, 0], lambda vectors: contrast(vectors, bits, items) / size)


def train_vectors(walks: Walks, sample: Codes, n_bits: int, *, n_steps: int, random: np.random.Generator) -> Network:
    """Train a network that turns the bits of a query into a vector."""
    network = start_network(n_bits, n_bits + 1, random, n_hidden=_N_HIDDEN)

    def phi(batch: Batch) -> Matrix:
        bits = signs(walks.codes[batch.queries], n_bits)
        return np.hstack([bits, np.ones((len(bits), 1), np.float32)])

    rate = min(_MOST_RATE, _RATE / n_bits)
    batches = WalkBatches(walks, sample, n_bits)
    return train(network, batches, phi, rate=rate, n_steps=n_steps, random=random, label="query vectors of clicks")


def ranker_of_clicks(network: Network, blend: float, walks: Walks, sample: Codes) -> QueryVectorRanker:
    """Wrap a network as a ranker; queries and clicked items are the sample that trust is told from."""
    random = np.random.default_rng(0)
    clicked = walks.codes[random.permutation(walks.nodes)[:_MOST_SAMPLED]]
    collection = sample[random.permutation(len(sample))[:_MOST_SAMPLED]]
    return QueryVectorRanker.from_network(network._replace(blend=blend), clicked, collection, learned_from="clicks")
