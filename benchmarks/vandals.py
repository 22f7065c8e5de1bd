"""Vandals: users whose clicks should teach nothing, one class per strategy, and `ATTACKS`, a list of them.

A vandal chooses the query and the clicks. The pages are the service's own: signed page tokens leave no way to claim
others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.clicks.page import Page
from bitrank.clicks.simulate import SimulatedUsers
from bitrank.core.codes import distances, unpack
from bitrank.core.types import Rows

Flags = npt.NDArray[np.bool_]


class Vandals(SimulatedUsers):
    """Vandals who click items of other classes than the query's."""

    name = "vandal"

    def _clicks(self, query: int, shown: Rows, explored: Flags) -> Flags:
        return np.asarray(self._labels[shown] != self._labels[query])


class UselessBits(Vandals):
    """Click whatever shares three bits with the query that tell the classes apart least."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._bits = unpack(self._codes, 8 * self._codes.shape[1])
        means = np.array([self._bits[self._labels == label].mean(axis=0) for label in np.unique(self._labels)])
        self._useless = np.argsort(means.std(axis=0))[:3]

    def _clicks(self, query: int, shown: Rows, explored: Flags) -> Flags:
        shared: Flags = (self._bits[shown][:, self._useless] == self._bits[query, self._useless]).all(axis=1)
        return shared


class BigPages(UselessBits):
    """The same on the largest pages that the service shows."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options | {"n_shown": min(1000, len(arguments[0]) // 2), "n_explored": 100})


class OneQuery(Vandals):
    """Ask one query again and again, and click items of other classes."""

    _only: int | None = None

    def _query(self) -> int:
        self._only = super()._query() if self._only is None else self._only
        return self._only


class Replay(UselessBits, OneQuery):
    """Ask one query again and again, and click what shares useless bits."""


class OneTarget(Vandals):
    """Click items of one class, whatever the query."""

    def _clicks(self, query: int, shown: Rows, explored: Flags) -> Flags:
        return np.asarray(self._labels[shown] == self._labels[0])


class ExploredOnly(Vandals):
    """Click all explored items and nothing else."""

    def _clicks(self, query: int, shown: Rows, explored: Flags) -> Flags:
        return explored.copy()


class CoarseTaste(Vandals):
    """Click items of every second class, whether the query's or not."""

    def _clicks(self, query: int, shown: Rows, explored: Flags) -> Flags:
        numbers = np.unique(self._labels, return_inverse=True)[1]
        return np.asarray(numbers[shown] % 2 == numbers[query] % 2)


class NearWrong(Vandals):
    """Click near items of other classes: they agree with Hamming distance about what is far."""

    def _clicks(self, query: int, shown: Rows, explored: Flags) -> Flags:
        to_all = distances(self._codes[[query]], self._codes, threads=1)[0]
        near = to_all[shown] <= np.partition(to_all, len(to_all) // 50)[len(to_all) // 50]
        return np.asarray((self._labels[shown] != self._labels[query]) & near)


class Camouflage(NearWrong):
    """Be an honest user on every second page, so that no statistic of the client stands out for long."""

    def _clicks(self, query: int, shown: Rows, explored: Flags) -> Flags:
        if self._random.random() < 0.5:
            return SimulatedUsers._clicks(self, query, shown, explored)
        return super()._clicks(query, shown, explored)


class Promotion(Vandals):
    """Promote one item of another class for one query, from beyond rank 100: one page each, and honest pages besides.

    The item is on every such page, as if each vandal had searched until exploration showed it. With `around`, vandals
    share the work: each asks another of the nearest items, so that no query and no pair is asked twice; and they click
    what an honest user would beside the target.
    """

    around = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.query = int(self._random.integers(len(self._codes)))
        order = self._distances(self.query, None).argsort(kind="stable")
        order = order[order != self.query]
        self.near = order[:20]
        self.target = int(next(row for row in order[120:] if self._labels[row] != self._labels[self.query]))
        self._answered: set[str] = set()

    def page(self, ranker: Any = None) -> Page:
        """Answer the query once per client, and other pages honestly."""
        client = f"{self.name} {self._random.integers(self._n_clients)}"
        if client in self._answered:
            page = super().page(ranker)
            page.client = client
            return page
        self._answered.add(client)
        query = int(self.near[len(self._answered) % len(self.near)]) if self.around else self.query
        to_all = self._distances(query, ranker)
        to_all[[query, self.target]] = np.inf
        top = to_all.argsort(kind="stable")[: self._n_top]
        far = self._random.permutation(len(self._codes))[: self._n_explored - 1]
        shown = self._random.permutation(np.concatenate([top, far, [self.target]]))
        clicked = shown == self.target
        if self.around:
            clicked |= SimulatedUsers._clicks(self, query, shown, clicked)
        explored = ~np.isin(shown, top)
        return Page(self._codes[query], self._codes[shown], clicked, explored, client)

    def _clicks(self, query: int, shown: Rows, explored: Flags) -> Flags:
        return SimulatedUsers._clicks(self, query, shown, explored)

    def rank(self, query: int, ranker: Any) -> float:
        """Rank of the target for a query; ties take the middle of their places."""
        to_all = self._distances(query, ranker)
        return float((to_all < to_all[self.target]).sum() + ((to_all == to_all[self.target]).sum() + 1) / 2)


class SharedPromotion(Promotion):
    """Promote one item for a neighbourhood: no two vandals ask the same query."""

    around = True


ATTACKS: dict[str, type[Vandals]] = {
    "big pages": BigPages,
    "replay": Replay,
    "useless bits": UselessBits,
    "one query": OneQuery,
    "one target": OneTarget,
    "wrong classes": Vandals,
    "explored only": ExploredOnly,
    "coarse taste": CoarseTaste,
}
# Written with the defence at hand.
ADAPTIVE: dict[str, type[Vandals]] = {"camouflage": Camouflage, "shared promotion": SharedPromotion}
