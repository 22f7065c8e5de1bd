"""`ClickGraph`: pages joined by the items they share, and constraints drawn from walks along them.

A query and the items clicked for it are alike, and so are pages that share an item. A walk over a few pages reaches
items that are alike but far apart, which no page of near results shows.
"""

from __future__ import annotations

import random
from bisect import bisect
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from bitrank.codes import signs
from bitrank.feedback.pages import Floats, Page, QueryArray, Reals
from bitrank.vocabulary import Codes


class _Node(NamedTuple):
    """A page: its members (the query, then the clicked items) and the skipped items, with cumulative weights."""

    members: list[bytes]
    weights: list[float]
    skipped: list[bytes]
    skip_weights: list[float]
    query_reals: Reals | None


class Triplets(NamedTuple):
    """Constraints: for each query, the similar item must rank before the dissimilar one.

    `queries` are packed codes or, where any of them is a vector of reals, reals: items as queries are then ±1.
    """

    queries: QueryArray
    dissimilar: Codes
    similar: Codes


class ClickGraph:
    """The newest pages of a log as a graph, and constraints drawn from it.

    Parameters
    ----------
    n_bytes : int
        Bytes per code. Items with equal codes are one item, since no weights can tell them apart.
    n_pages : int
        Number of pages to keep; older ones are forgotten.
    n_hops : int
        Number of pages that a walk visits.
    skipped : float
        Share of the constraints that rank a clicked item before one skipped on the same page. The others rank an item
        reached by a walk before one drawn from the collection.
    seed : int

    Examples
    --------
    >>> codes = np.uint8([[0], [1], [3], [255]])
    >>> graph = ClickGraph(n_bytes=1)
    >>> graph.add(Page(codes[0], codes[1:3], clicked=np.array([False, True])), propensities=np.ones(1))
    True
    >>> set(graph.draw(10, codes).similar.ravel().tolist()) <= {0, 3}  # the query and the clicked item
    True
    """

    def __init__(self, n_bytes: int, *, n_pages: int = 10_000, n_hops: int = 24, skipped: float = 0.2, seed: int = 0):
        self.n_bytes, self.n_pages, self.n_hops, self.skipped = n_bytes, n_pages, n_hops, skipped
        self._nodes: dict[int, _Node] = {}  # by page number, oldest first
        self._next = 0
        self._pages_of: dict[bytes, list[int]] = {}
        self._random = random.Random(seed)

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, page: Page, propensities: Floats) -> bool:
        """Add a page and return True; a page without a click says nothing and is not kept.

        A click counts by the inverse of the propensity of its place, so that a click far down counts as much as one
        at the top. A skipped item counts by the propensity: the chance that it was seen.
        """
        if not page.clicked.any():
            return False
        seen = propensities[np.minimum(np.arange(len(page.clicked)), len(propensities) - 1)]
        clicked, skipped = np.flatnonzero(page.clicked), np.flatnonzero(~page.clicked)
        node = _Node(
            [page.query_code.tobytes(), *(page.shown_codes[place].tobytes() for place in clicked)],
            list(accumulate([1.0, *(1 / seen[clicked]).tolist()])),
            [page.shown_codes[place].tobytes() for place in skipped],
            list(accumulate(seen[skipped].tolist())),
            page.query if page.query.dtype.kind == "f" else None,
        )
        self._nodes[self._next] = node
        for code in dict.fromkeys(node.members):
            self._pages_of.setdefault(code, []).append(self._next)
        self._next += 1
        if len(self._nodes) > self.n_pages:
            self._forget(self._next - len(self._nodes))
        return True

    def _forget(self, oldest: int) -> None:
        for code in dict.fromkeys(self._nodes.pop(oldest).members):
            pages = self._pages_of[code]
            pages.pop(0)
            if not pages:
                del self._pages_of[code]

    def draw(self, n: int, collection: Codes) -> Triplets:
        """Draw up to n constraints; those between two equal items say nothing and are left out."""
        rows: list[bytes] = []
        reals: list[Reals | None] = []
        for _ in range(n if self._nodes and len(collection) else 0):
            node = self._any_node()
            if node.skipped and self._random.random() < self.skipped:
                query, similar = node.members[0], self._member(node, first=1)
                dissimilar = self._random.choices(node.skipped, cum_weights=node.skip_weights)[0]
            else:
                query, similar = self._member(node), self._walk(self._member(node))
                dissimilar = collection[self._random.randrange(len(collection))].tobytes()
            if similar not in (query, dissimilar):
                rows += [query, dissimilar, similar]
                reals.append(node.query_reals if query is node.members[0] else None)
        codes = np.frombuffer(b"".join(rows), np.uint8).reshape(-1, 3, self.n_bytes)
        queries, dissimilar_codes, similar_codes = (np.ascontiguousarray(codes[:, part]) for part in range(3))
        return Triplets(_with_reals(queries, reals), dissimilar_codes, similar_codes)

    def _any_node(self) -> _Node:
        return self._nodes[self._random.randrange(self._next - len(self._nodes), self._next)]

    def _member(self, node: _Node, first: int = 0) -> bytes:
        """Draw a member of a page by weight; with `first=1`, a clicked item."""
        start = node.weights[first - 1] if first else 0.0
        at = start + (node.weights[-1] - start) * self._random.random()
        return node.members[min(bisect(node.weights, at), len(node.members) - 1)]

    def _walk(self, code: bytes) -> bytes:
        for _ in range(self.n_hops):
            code = self._member(self._nodes[self._random.choice(self._pages_of[code])])
        return code


def _with_reals(codes: Codes, reals: list[Reals | None]) -> QueryArray:
    """Replace the codes of queries that are reals; the others become ±1, the scale at which the solver sees codes."""
    n_bits = next((len(row) for row in reals if row is not None), None)
    if n_bits is None:
        return codes
    queries: Reals = signs(codes, n_bits)
    for place, row in enumerate(reals):
        if row is not None:
            queries[place] = row
    return queries
