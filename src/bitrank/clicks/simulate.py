"""`SimulatedUsers`: users who search a labelled collection and click, with the noise and position bias of real clicks.

For documentation, tests and benchmarks; and for trying the learner on a collection before real users do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.clicks.exploration import explore
from bitrank.clicks.page import Page
from bitrank.core.checks import check_codes, check_labels
from bitrank.core.codes import distances
from bitrank.core.types import Codes, Rows
from bitrank.ranking.ranker import Ranker


class SimulatedUsers:
    """Users who look for items of their query's class.

    A user looks at the item at place r of a page with probability 1 / log2(r + 1), and clicks it when it is of the
    query's class, up to noise.

    Parameters
    ----------
    codes : packed codes of the collection
    y : class labels, one per code
    n_shown, n_explored : int
        Results per page, and how many of them are explored.
    noise : float
        Share of looks that end wrongly: a click on an irrelevant item, or none on a relevant one.
    at_random : float
        Share of pages with the same number of clicks at random places.
    n_clients : int
        Number of users; every page is one of theirs, drawn at random.
    random_state : int or None

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> rng = np.random.default_rng(0)
    >>> users = SimulatedUsers(pack(rng.integers(0, 2, (500, 32))), rng.integers(5, size=500), random_state=0)
    >>> page = users.page()
    >>> page.shown_codes.shape, int(page.explored.sum())
    ((20, 4), 4)
    """

    name = "user"

    def __init__(
        self,
        codes: Codes,
        y: npt.ArrayLike,
        *,
        n_shown: int = 20,
        n_explored: int = 4,
        noise: float = 0.1,
        at_random: float = 0.0,
        n_clients: int = 100,
        random_state: Any = None,
    ) -> None:
        self._codes = check_codes(codes)
        self._labels = check_labels(y, len(self._codes))
        if not 0 <= n_explored <= n_shown < len(self._codes):
            raise ValueError(
                f"n_explored, n_shown and the number of codes, {len(self._codes)}, must be in rising order, "
                f"got {n_explored} and {n_shown}"
            )
        self._n_top, self._n_explored, self._noise, self._at_random = n_shown - n_explored, n_explored, noise, at_random
        self._n_clients = n_clients
        self._random = np.random.default_rng(random_state)

    def page(self, ranker: Ranker | None = None) -> Page:
        """Search with a random item as the query, ranked by a ranker (None: plain Hamming), and click."""
        query = self._query()
        item_distances = self._distances(query, ranker)
        item_distances[query] = np.inf
        # Ties come in random order: equal distances say nothing.
        top = np.lexsort((self._random.random(len(item_distances)), item_distances))[: self._n_top]
        rows, explored = explore(self._codes[query], self._codes[top], self._codes, self._n_explored, self._random)
        shown = np.where(explored, rows, top[np.where(explored, 0, rows)])
        client = f"{self.name} {self._random.integers(self._n_clients)}"
        return Page(self._codes[query], self._codes[shown], self._clicks(query, shown, explored), explored, client)

    def _query(self) -> int:
        return int(self._random.integers(len(self._codes)))

    def _distances(self, query: int, ranker: Ranker | None) -> npt.NDArray[np.float64]:
        code, weights = self._codes[[query]], None
        if ranker is not None:
            code, weights, _ = ranker.queries_for(code, collection=self._codes)
        return np.asarray(distances(code, self._codes, weights, threads=1)[0], np.float64)

    def _clicks(self, query: int, shown: Rows, explored: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        n, random = len(shown), self._random
        looked = random.random(n) < 1 / np.log2(np.arange(n) + 2)
        correct = random.random(n) >= self._noise
        clicked: npt.NDArray[np.bool_] = looked & ((self._labels[shown] == self._labels[query]) == correct)
        if random.random() >= self._at_random:
            return clicked
        shuffled = np.zeros(n, bool)
        shuffled[random.choice(n, int(clicked.sum()), replace=False)] = True
        return shuffled
