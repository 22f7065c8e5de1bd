"""`ClickGraph`: who was clicked together, and pairs of similar items from walks along it.

A query and what was clicked for it belong together, and so do pages that share an item: a walk over a few pages leads
to items that are alike but far apart, which no page of near results shows. The learner's constraints come from here.
"""

from __future__ import annotations

import random
from bisect import bisect
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from bitrank.feedback.pages import Floats, Page
from bitrank.vocabulary import Codes, Weights


class _Node(NamedTuple):
    """What a page says: the query and what was clicked, with the weight of each; and what was skipped."""

    members: list[bytes]
    weights: list[float]
    skipped: list[bytes]
    skip_weights: list[float]
    magnitudes: Weights | None


class Triplets(NamedTuple):
    """Codes of constraints: for each query, the similar item must come before the dissimilar one.

    With the magnitudes of the queries, ones for those that have none, where any of them has.
    """

    queries: Codes
    dissimilar: Codes
    similar: Codes
    magnitudes: Weights | None


class ClickGraph:
    """The newest pages of a log as a graph, and constraints drawn from it.

    Parameters
    ----------
    n_bytes : int
        Of a code; items with equal codes are one, since no weights can tell them apart.
    n_pages : int
        Pages kept; older ones are forgotten.
    n_hops : int
        Pages that a walk visits.
    skipped : float
        Share of the constraints that put a clicked item above one skipped on its page; the others put an item
        reached by a walk above one drawn from the collection.
    seed : int
    """

    def __init__(self, n_bytes: int, *, n_pages: int = 10_000, n_hops: int = 24, skipped: float = 0.2, seed: int = 0):
        self.n_bytes, self.n_pages, self.n_hops, self.skipped = n_bytes, n_pages, n_hops, skipped
        self._nodes: dict[int, _Node] = {}  # by number, the oldest first
        self._next = 0
        self._where: dict[bytes, list[int]] = {}
        self._random = random.Random(seed)

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, page: Page, propensities: Floats) -> bool:
        """Add a page; one without a click says nothing, and is not kept.

        A click counts by the inverse of its place's propensity, so that what stood far down speaks as loud as what
        stood at the top. A skipped item counts by the propensity itself: the chance that it was seen.
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
            page.magnitudes,
        )
        self._nodes[self._next] = node
        for code in dict.fromkeys(node.members):
            self._where.setdefault(code, []).append(self._next)
        self._next += 1
        if len(self._nodes) > self.n_pages:
            self._forget(self._next - len(self._nodes))
        return True

    def _forget(self, oldest: int) -> None:
        for code in dict.fromkeys(self._nodes.pop(oldest).members):
            numbers = self._where[code]
            numbers.pop(0)
            if not numbers:
                del self._where[code]

    def draw(self, n: int, collection: Codes) -> Triplets:
        """Draw constraints from any of the pages; those that say nothing, the two items being equal, are left out."""
        rows: list[bytes] = []
        magnitudes: list[Weights | None] = []
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
                magnitudes.append(node.magnitudes if query is node.members[0] else None)
        codes = np.frombuffer(b"".join(rows), np.uint8).reshape(-1, 3, self.n_bytes)
        parts = [np.ascontiguousarray(codes[:, part]) for part in range(3)]
        return Triplets(parts[0], parts[1], parts[2], _matrix(magnitudes))

    def _any_node(self) -> _Node:
        return self._nodes[self._random.randrange(self._next - len(self._nodes), self._next)]

    def _member(self, node: _Node, first: int = 0) -> bytes:
        """One of the page's members by weight; from the second on, one that was clicked."""
        start = node.weights[first - 1] if first else 0.0
        at = start + (node.weights[-1] - start) * self._random.random()
        return node.members[min(bisect(node.weights, at), len(node.members) - 1)]

    def _walk(self, code: bytes) -> bytes:
        for _ in range(self.n_hops):
            code = self._member(self._nodes[self._random.choice(self._where[code])])
        return code


def _matrix(magnitudes: list[Weights | None]) -> Weights | None:
    given = [row for row in magnitudes if row is not None]
    if not given:
        return None
    # At the scale of ones, as the solver sees them too.
    return np.stack([np.ones_like(given[0]) if row is None else row for row in magnitudes])
