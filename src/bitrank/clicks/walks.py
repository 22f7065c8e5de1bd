"""`ClickLog` and `Walks`: pages joined by the items they share, pairs of items that walks join, and what they teach.

A query and the items clicked for it are alike, and so are pages that share an item. A walk over a few pages joins items
that are alike but far apart, which no page of near results shows. `learn_vectors` learns a vector per query from them.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.clicks.page import Floats, Page
from bitrank.clicks.window import Window, page_weights
from bitrank.core.codes import signs
from bitrank.core.types import Codes, Rows
from bitrank.ranking.evidence.kinds import Matrix
from bitrank.ranking.networks.batches import Batch
from bitrank.ranking.networks.loss import contrast
from bitrank.ranking.networks.network import start_network, train
from bitrank.ranking.query_vector import QueryVectorRanker

N_HOPS = 4  # pages that a walk visits after its first
# Clicks below this place do not count, and of the others at most so many, drawn at random: a page of a thousand results
# and clicks says no more than others.
_LAST_PLACE, _MOST_CLICKED = 50, 20
_N_HIDDEN = 256
_RATE, _MOST_RATE = 0.96, 0.03  # the first is divided by the number of bits
_N_QUERIES, _N_ITEMS = 256, 1024  # per batch
_MOST_SAMPLED = 4000  # codes that the trust of a query is told from


class _Node(NamedTuple):
    """A page: its query and clicked items as node numbers, the weight of each, and which of them were explored."""

    members: Rows
    weights: Floats
    explored: npt.NDArray[np.bool_]


class ClickLog:
    """The newest pages with a click, as numbers of distinct codes.

    Parameters
    ----------
    n_bytes : int
        Bytes per code. Items with equal codes are one item, since no ranking can tell them apart.
    n_pages : int
        Number of pages to keep; where there are more, the busiest client's oldest page is forgotten.
    """

    def __init__(self, n_bytes: int, n_pages: int = 10_000) -> None:
        self.n_bytes = n_bytes
        self._pages: Window[_Node] = Window(n_pages)
        self._numbers: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._pages)

    @property
    def n_pages(self) -> dict[str, int]:
        """Number of pages of every client."""
        return self._pages.counts

    def add(self, page: Page, client: str, propensities: Floats, random: np.random.Generator) -> bool:
        """Add a page and return True; a page that joins no two items says nothing and is not kept.

        A click counts by the inverse of the propensity of its place, so that a click far down counts as much as one
        at the top.
        """
        clicked = np.flatnonzero(page.clicked[:_LAST_PLACE])
        if len(clicked) > _MOST_CLICKED:
            clicked = np.sort(random.permutation(clicked)[:_MOST_CLICKED])
        codes = [page.query_code.tobytes(), *(page.shown_codes[place].tobytes() for place in clicked)]
        if len(set(codes)) < 2:
            return False
        seen = propensities[np.minimum(clicked, len(propensities) - 1)]
        members = np.array([self._numbers.setdefault(code, len(self._numbers)) for code in codes])
        explored = np.concatenate([[False], page.explored[clicked]])
        self._pages.add(client, _Node(members, np.concatenate([[1.0], 1 / seen]), explored))
        return True

    def walks(self, left_out: Container[str] = ()) -> Walks:
        """Build the graph of the pages of the other clients.

        No client counts for more than its share. All pages of one query count as one page, and all clicks on one
        explored item as one click: many who agree on an item for a query say no more than one.
        """
        of_client = page_weights(self.n_pages, left_out)
        pages = [(of_client[client], page) for client, page in self._pages if of_client[client] > 0]
        queries, items = np.zeros(len(self._numbers)), np.zeros(len(self._numbers))
        for weight, page in pages:
            queries[page.members[0]] += weight
            items[page.members[page.explored]] += weight
        queries, items = (1 / np.maximum(counts, 1) for counts in (queries, items))
        members, member_weights, weights = [], [], []
        for weight, page in pages:
            shares = np.where(page.explored, items[page.members], 1.0)
            members.append(page.members)
            member_weights.append(page.weights * shares)
            weights.append(weight * queries[page.members[0]] * shares[1:].max())
        codes = np.frombuffer(b"".join(self._numbers), np.uint8).reshape(-1, self.n_bytes)
        return Walks(codes, members, member_weights, np.array(weights))


class Walks:
    """A graph of pages and items, to walk at random.

    Parameters
    ----------
    codes : packed codes, one row per node
    members : list of int arrays
        The nodes of each page.
    member_weights : list of float arrays
        Weights by which a walk chooses among the nodes of a page.
    page_weights : float array, one per page
        Weights by which walks start at pages, and choose among the pages of a node.

    Examples
    --------
    >>> codes = np.arange(3, dtype=np.uint8)[:, None]
    >>> walks = Walks(codes, [np.array([0, 1]), np.array([1, 2])], [np.ones(2)] * 2, np.ones(2))
    >>> pairs = walks.draw(100, np.random.default_rng(0))
    >>> bool((pairs[:, 0] != pairs[:, 1]).all())
    True
    """

    def __init__(self, codes: Codes, members: list[Rows], member_weights: list[Floats], page_weights: Floats) -> None:
        self.codes = codes
        sizes = np.array([len(nodes) for nodes in members], np.int64)
        self._members = np.concatenate(members) if members else np.zeros(0, np.int64)
        self._starts = _sums(sizes)
        self._by_weight = _sums(np.concatenate(member_weights) if members else np.zeros(0))
        self._by_page = _sums(page_weights)
        order = np.argsort(self._members, kind="stable")
        self._pages_of = np.repeat(np.arange(len(sizes)), sizes)[order]
        self._node_starts = _sums(np.bincount(self._members, minlength=len(codes)))
        self._by_page_of_node = _sums(page_weights[self._pages_of])

    def __len__(self) -> int:
        return len(self._starts) - 1

    @property
    def nodes(self) -> Rows:
        """Nodes of any page."""
        return np.unique(self._members)

    def draw(self, n: int, random: np.random.Generator, n_hops: int = N_HOPS) -> Rows:
        """Draw pairs of different nodes that a walk joins, at most n of them.

        A walk starts at a node of a random page, and goes from the page to a node, and n_hops times to another page
        of that node and a node of that page.
        """
        if len(self) == 0:
            return np.zeros((0, 2), np.int64)
        zeros = np.zeros(n, np.int64)
        pages = _pick(self._by_page, zeros, zeros + len(self), random)
        first, last = self._member(pages, random), self._member(pages, random)
        for _ in range(n_hops):
            pages = self._pages_of[
                _pick(self._by_page_of_node, self._node_starts[last], self._node_starts[last + 1], random)
            ]
            last = self._member(pages, random)
        pairs: Rows = np.column_stack([first, last])[first != last]
        return pairs

    def _member(self, pages: Rows, random: np.random.Generator) -> Rows:
        places = _pick(self._by_weight, self._starts[pages], self._starts[pages + 1], random)
        return np.asarray(self._members[places], np.int64)


def _sums(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.concatenate([np.zeros(1, values.dtype), np.cumsum(values)])


def _pick(sums: Floats, starts: Rows, stops: Rows, random: np.random.Generator) -> Rows:
    """Draw one place of each range in proportion to the weights that these are the sums of."""
    low, high = sums[starts], sums[stops]
    places = np.searchsorted(sums, low + random.random(len(starts)) * (high - low), side="right") - 1
    picked: Rows = np.clip(places, starts, stops - 1)
    return picked


class _Batches(NamedTuple):
    """Pairs that walks join: the second item of each pair against random items of the collection."""

    walks: Walks
    sample: Codes
    n_bits: int

    def draw(self, random: np.random.Generator) -> Batch:
        """Draw pairs, and items for all of them; the loss is the cross-entropy of the pair's second item."""
        pairs = self.walks.draw(_N_QUERIES, random)
        bits = signs(self.walks.codes[pairs[:, 1]], self.n_bits)
        items = signs(self.sample[random.integers(len(self.sample), size=_N_ITEMS)], self.n_bits)
        size = np.float32(max(1, len(pairs)))
        return Batch(pairs[:, 0], lambda vectors: contrast(vectors, bits, items) / size)


def learn_vectors(
    walks: Walks, sample: Codes, n_bits: int, *, blend: float, n_steps: int, random: np.random.Generator
) -> QueryVectorRanker:
    """Learn a network from the bits of a query to a vector; trust is told from the queries and clicked items."""
    network = start_network(n_bits, n_bits + 1, random, n_hidden=_N_HIDDEN)

    def phi(batch: Batch) -> Matrix:
        bits = signs(walks.codes[batch.queries], n_bits)
        return np.hstack([bits, np.ones((len(bits), 1), np.float32)])

    rate, draw = min(_MOST_RATE, _RATE / n_bits), _Batches(walks, sample, n_bits).draw
    network = train(network, draw, phi, rate=rate, n_steps=n_steps, random=random, label="query vectors of clicks")
    order = np.random.default_rng(0)
    clicked = walks.codes[order.permutation(walks.nodes)[:_MOST_SAMPLED]]
    collection = sample[order.permutation(len(sample))[:_MOST_SAMPLED]]
    return QueryVectorRanker.from_network(network._replace(blend=blend), clicked, collection, learned_from="clicks")
