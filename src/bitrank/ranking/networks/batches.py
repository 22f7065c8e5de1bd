"""Random batches to learn vectors per query from: queries, and the gradient of a ranking loss by their vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from bitrank.core.types import Codes, Rows
from bitrank.ranking.evidence.kinds import Matrix, as_vectors
from bitrank.ranking.networks.loss import contrast, loss_gradient

_N_QUERIES, _N_ITEMS, _N_PULL = 256, 1024, 512  # per batch
# Negatives are drawn among the items that pairs name, and among the others at this share of their density: a judged
# item is a better negative than one that nobody looked at.
_OTHERS = 0.2
# Weight of the pull towards the query's own ranking, which keeps items findable that no pair names.
_PULL = np.float32(0.3)


class Batch(NamedTuple):
    """Row numbers of queries, and the gradient of their mean loss by the vectors that search for them."""

    queries: Rows
    gradient: Callable[[Matrix], Matrix]


Draw = Callable[[np.random.Generator], Batch]  # a random batch


def label_batches(codes: Codes, n_bits: int, classes: Rows, rows: Rows) -> Draw:
    """Rows of labelled codes query each other; rows of one class are similar."""

    def draw(random: np.random.Generator) -> Batch:
        n = len(rows)
        queries, items = (rows[random.integers(n, size=min(size, n))] for size in (_N_QUERIES, _N_ITEMS))
        similar = classes[queries][:, None] == classes[items]
        similar &= queries[:, None] != items
        item_bits = as_vectors(codes[items], n_bits)
        return Batch(queries, lambda vectors: loss_gradient(vectors @ item_bits.T, similar) @ item_bits)

    return draw


def class_batches(classes: Rows, rows: Rows) -> Draw:
    """Labelled rows, whose classes are to be told: the loss is the cross-entropy of the logits."""

    def draw(random: np.random.Generator) -> Batch:
        queries = rows[random.integers(len(rows), size=min(_N_QUERIES, len(rows)))]

        def gradient(logits: Matrix) -> Matrix:
            shares: Matrix = softmax(logits, axis=1)
            shares[np.arange(len(queries)), classes[queries]] -= 1
            return shares / np.float32(len(queries))

        return Batch(queries, gradient)

    return draw


class PairBatches:
    """Judged pairs: a relevant item of each query against items that are not known to be relevant.

    The loss of a query is the cross-entropy of its relevant item, drawn in proportion to 2^grade − 1, among random
    items; plus a pull: the divergence (KL) of the ranking that the vector gives to random items from the query's own.

    Parameters
    ----------
    codes : packed codes of the items, or rows of reals
    n_bits : int
    pairs : int64 array of shape (m, 3), sorted by query
    own_vectors : callable
        From row numbers of queries to the vectors whose ranking they are pulled towards.
    """

    def __init__(self, codes: Codes, n_bits: int, pairs: Rows, own_vectors: Callable[[Rows], Matrix]) -> None:
        relevant = pairs[pairs[:, 2] > 0]
        self.codes, self.n_bits, self.own_vectors = codes, n_bits, own_vectors
        self.queries, self.starts = np.unique(relevant[:, 0], return_index=True)
        self.stops = np.append(self.starts[1:], len(relevant))
        self.items = relevant[:, 1]
        self.gains = np.concatenate([[0.0], np.cumsum(2.0 ** relevant[:, 2] - 1)])
        self.named = np.unique(pairs[:, 1])

    def draw(self, random: np.random.Generator) -> Batch:
        """Draw queries, one relevant item for each, and items for all of them."""
        places = random.integers(len(self.queries), size=min(_N_QUERIES, len(self.queries)))
        bits = as_vectors(self.codes[self._draw_relevant(places, random)], self.n_bits)
        items = self._draw_items(random)
        item_bits, known = as_vectors(self.codes[items], self.n_bits), self._known(places, items)
        pull_bits = as_vectors(self.codes[random.integers(len(self.codes), size=_N_PULL)], self.n_bits)
        queries = self.queries[places]
        own = softmax(self.own_vectors(queries) @ pull_bits.T, axis=1)

        def gradient(vectors: Matrix) -> Matrix:
            by_vector = contrast(vectors, bits, item_bits, known)
            by_vector += _PULL * ((softmax(vectors @ pull_bits.T, axis=1) - own) @ pull_bits)
            by_vector /= np.float32(len(places))
            return by_vector

        return Batch(queries, gradient)

    def _draw_relevant(self, places: Rows, random: np.random.Generator) -> Rows:
        low, high = self.gains[self.starts[places]], self.gains[self.stops[places]]
        at = np.searchsorted(self.gains, low + random.random(len(places)) * (high - low), side="right") - 1
        drawn: Rows = self.items[np.clip(at, self.starts[places], self.stops[places] - 1)]
        return drawn

    def _draw_items(self, random: np.random.Generator) -> Rows:
        """Random items, sorted: mostly those that pairs name."""
        n, n_named = len(self.codes), len(self.named)
        named = self.named if n_named <= _N_ITEMS else self.named[random.integers(n_named, size=_N_ITEMS)]
        n_others = min(_N_ITEMS, int(_OTHERS * len(named) * (n - n_named) / n_named))
        return np.unique(np.concatenate([named, random.integers(n, size=n_others)]))

    def _known(self, places: Rows, items: Rows) -> tuple[Rows, Rows]:
        """Query and column of every relevant item among these items: they are no negatives."""
        sizes = self.stops[places] - self.starts[places]
        queries = np.repeat(np.arange(len(places)), sizes)
        within = np.arange(len(queries)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        relevant = self.items[np.repeat(self.starts[places], sizes) + within]
        columns = np.searchsorted(items, relevant).clip(max=len(items) - 1)
        hits = items[columns] == relevant
        return queries[hits], columns[hits]
