"""Random batches to learn vectors per query from: queries, and the gradient of a ranking loss by their vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from bitrank.core.codes import signs
from bitrank.core.types import Codes, Rows
from bitrank.ranking.evidence.kinds import Matrix
from bitrank.ranking.networks.loss import contrast, loss_gradient, softmax
from bitrank.ranking.trust import Unlabelled

_N_QUERIES, _N_ITEMS, _N_PULL = 256, 1024, 512  # per batch
# Negatives are drawn among the items that pairs name, and among the others at this share of their density: a judged
# item is a better negative than one that nobody looked at.
_OTHERS = 0.2
# Weight of the pull towards the query's own ranking, which keeps items findable that no pair names.
_PULL = np.float32(0.3)
# The same for unlabelled items as queries, the factor of their own scores, divided by √n_bits, and their weight as
# items that labelled queries pass over. On halves of the classes of four data sets these kept three quarters of the
# gain of seen classes and more, at a loss in precision at 10 of new ones of .01 on average.
_NEW_PULL, _NEW_SHARPNESS, _NEW_WEIGHT = np.float32(1.1), 4.0, np.float32(0.2)


class Batch(NamedTuple):
    """Row numbers of queries, and the gradient of their mean loss by the vectors that search for them.

    Items without labels may come as further queries, as vectors of one value per bit: they stand behind the others.
    """

    queries: Rows
    gradient: Callable[[Matrix], Matrix]
    unlabelled: Matrix | None = None


class Batches(Protocol):
    """A source of random batches."""

    def draw(self, random: np.random.Generator) -> Batch:
        """Draw queries and items to rank for them."""
        ...


class LabelBatches:
    """Rows of labelled codes query each other; rows of one class are similar.

    Unlabelled items, where there are any, count by how probably they are of a kind that no label names. They are
    dissimilar to labelled queries; as queries they are pulled towards their own ranking of unlabelled items, so that
    what is learned leaves alone what it knows nothing about. Where queries are reals, an item has the magnitudes of a
    random query, since its own are not known.
    """

    def __init__(
        self,
        codes: Codes,
        n_bits: int,
        classes: Rows,
        rows: Rows,
        unlabelled: Unlabelled | None = None,
        magnitudes: Matrix | None = None,
    ) -> None:
        self.codes, self.n_bits, self.classes, self.rows = codes, n_bits, classes, rows
        self.unlabelled, self.magnitudes = unlabelled, magnitudes

    def draw(self, random: np.random.Generator) -> Batch:
        """Draw queries and items among the rows."""
        n = len(self.rows)
        queries, items = (self.rows[random.integers(n, size=min(size, n))] for size in (_N_QUERIES, _N_ITEMS))
        similar = self.classes[queries][:, None] == self.classes[items]
        similar &= queries[:, None] != items
        item_bits = signs(self.codes[items], self.n_bits)
        if self.unlabelled is None:
            return Batch(queries, lambda vectors: loss_gradient(vectors @ item_bits.T, similar) @ item_bits)
        return self._beside_unlabelled(queries, item_bits, similar, self.unlabelled, random)

    def _beside_unlabelled(
        self,
        queries: Rows,
        item_bits: Matrix,
        similar: npt.NDArray[np.bool_],
        unlabelled: Unlabelled,
        random: np.random.Generator,
    ) -> Batch:
        n, n_bits = len(unlabelled.codes), self.n_bits
        more, others = (random.integers(n, size=size) for size in (_N_QUERIES // 2, _N_PULL))
        other_bits = signs(unlabelled.codes[others], n_bits)
        bits = np.vstack([item_bits, other_bits])
        shift = np.zeros(len(bits), np.float32)
        shift[len(item_bits) :] = np.log(_NEW_WEIGHT * unlabelled.newness[others] + np.float32(1e-9))
        passed_over = np.zeros((len(queries), len(others)), bool)
        similar = np.hstack([similar, passed_over])
        sharpness = np.float32(_NEW_SHARPNESS / np.sqrt(n_bits))
        vectors_of_more = signs(unlabelled.codes[more], n_bits)
        if self.magnitudes is not None:
            vectors_of_more *= self.magnitudes[random.integers(len(self.magnitudes), size=len(more))]
        own = softmax(np.asarray(sharpness * vectors_of_more @ other_bits.T, np.float32))
        pull = (_NEW_PULL / np.float32(len(more)) * unlabelled.newness[more])[:, None]

        def gradient(vectors: Matrix) -> Matrix:
            of_labelled = loss_gradient(vectors[: len(queries)] @ bits.T + shift, similar) @ bits
            pulled = (softmax(vectors[len(queries) :] @ other_bits.T) - own) @ other_bits
            return np.vstack([of_labelled, pull * pulled])

        return Batch(queries, gradient, vectors_of_more)


class PairBatches:
    """Judged pairs: a relevant item of each query against items that are not known to be relevant.

    The loss of a query is the cross-entropy of its relevant item, drawn in proportion to 2^grade − 1, among random
    items; plus a pull: the divergence (KL) of the ranking that the vector gives to random items from the query's own.

    Parameters
    ----------
    codes : packed codes of the items
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
        bits = signs(self.codes[self._draw_relevant(places, random)], self.n_bits)
        items = self._draw_items(random)
        item_bits, known = signs(self.codes[items], self.n_bits), self._known(places, items)
        pull_bits = signs(self.codes[random.integers(len(self.codes), size=_N_PULL)], self.n_bits)
        queries = self.queries[places]
        own = softmax(self.own_vectors(queries) @ pull_bits.T)

        def gradient(vectors: Matrix) -> Matrix:
            by_vector = contrast(vectors, bits, item_bits, known)
            by_vector += _PULL * ((softmax(vectors @ pull_bits.T) - own) @ pull_bits)
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
