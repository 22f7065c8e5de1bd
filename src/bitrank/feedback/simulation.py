"""`SimulatedUsers`: people who search a labelled collection and click, with all the faults that real clicks have.

It stands where a service and its users would: documentation, tests and benchmarks try the learner on it, and so may
you, before your own users do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.checks import check_codes, check_labels
from bitrank.codes import distances
from bitrank.feedback.exploration import explore
from bitrank.feedback.pages import Page
from bitrank.vocabulary import Codes


class SimulatedUsers:
    """Users who look for items of their query's class.

    The item at place r of a page is looked at with probability 1 / log2(r + 1); one that is looked at is clicked when
    it is of the query's class, but for the noise.

    Parameters
    ----------
    codes : packed codes of the collection
    y : class labels, one a code
    n_shown, n_explored : int
        Results of a page, and how many of them are explored ones.
    noise : float
        Share of looks that end wrongly: a click on what is not relevant, or none on what is.
    at_random : float
        Share of pages with as many clicks as there would be, but anywhere.
    random_state : int or None

    Examples
    --------
    >>> from bitrank.codes import pack
    >>> rng = np.random.default_rng(0)
    >>> users = SimulatedUsers(pack(rng.integers(0, 2, (500, 32))), rng.integers(5, size=500), random_state=0)
    >>> page = users.page()
    >>> page.shown_codes.shape, int(page.explored.sum())
    ((20, 4), 4)
    """

    def __init__(
        self,
        codes: Codes,
        y: npt.ArrayLike,
        *,
        n_shown: int = 20,
        n_explored: int = 4,
        noise: float = 0.1,
        at_random: float = 0.0,
        random_state: Any = None,
    ) -> None:
        self._codes = check_codes(codes)
        self._labels = check_labels(y, len(self._codes))
        if not 0 <= n_explored <= n_shown < len(self._codes):
            raise ValueError(
                f"n_explored, n_shown and the {len(self._codes)} codes must be in rising order, "
                f"got {n_explored} and {n_shown}"
            )
        self._n_top, self._n_explored, self._noise, self._at_random = n_shown - n_explored, n_explored, noise, at_random
        self._random = np.random.default_rng(random_state)

    def page(self, weights: npt.ArrayLike | None = None) -> Page:
        """One search with any item as the query, ranked by these weights (None: plain Hamming), and its clicks."""
        query = int(self._random.integers(len(self._codes)))
        found = distances(self._codes[[query]], self._codes, weights, threads=1)[0].astype(np.float64)
        found[query] = np.inf
        # Ties in random order: equal distances say nothing.
        top = np.lexsort((self._random.random(len(found)), found))[: self._n_top]
        rows, explored = explore(self._codes[query], self._codes[top], self._codes, self._n_explored, self._random)
        shown = np.where(explored, rows, top[np.where(explored, 0, rows)])
        return Page(self._codes[query], self._codes[shown], self._clicks(query, shown), explored)

    def _clicks(self, query: int, shown: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        n, random = len(shown), self._random
        looked = random.random(n) < 1 / np.log2(np.arange(n) + 2)
        right = random.random(n) >= self._noise
        clicked: npt.NDArray[np.bool_] = looked & ((self._labels[shown] == self._labels[query]) == right)
        if random.random() >= self._at_random:
            return clicked
        anywhere = np.zeros(n, bool)
        anywhere[random.choice(n, int(clicked.sum()), replace=False)] = True
        return anywhere
