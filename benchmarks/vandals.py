"""Vandals: users whose clicks should teach nothing, one class per strategy, and `ATTACKS`, a list of them.

A vandal chooses the query and the clicks. The pages are the service's own: signed page tokens leave no way to claim
others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.clicks.simulate import SimulatedUsers
from bitrank.core.codes import unpack
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
