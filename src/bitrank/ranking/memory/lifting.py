"""How a search remembers: items that judged queries near the query name are lifted in its results, exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank import _kernel
from bitrank.core.types import Ids, Rows
from bitrank.ranking.memory.entries import Lists, Memory

Floats = npt.NDArray[np.floating[Any]]
Scale = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]  # similarity = (first − 2·distance)·second, per query
# The score of an item is max(P, M + TIE·(P − PIVOT) − offset): P its own similarity to the query, M that of the nearest
# judged query that names it. The term in P orders items of one list; at most MOST items are lifted per query.
TIE, PIVOT, MOST = 0.3, 0.63, 5
# Share of a query's similarity to itself from which a judged query is the same one: what it pins is put first.
PINNED_FROM = 0.95


class Lifted(NamedTuple):
    """Results after lifting; `judged` has the row of the judged query that lifted each result, or −1."""

    ids: Ids
    distances: npt.NDArray[np.float32]
    judged: npt.NDArray[np.int64]


class Search(NamedTuple):
    """What was found, and how to ask for more."""

    ids: Ids
    distances: npt.NDArray[np.float32]
    scale: Scale
    judged_from: Callable[[Floats], tuple[Ids, npt.NDArray[np.float32]]]  # judged queries, −1 pads, of this similarity
    distances_to: Callable[[Ids], npt.NDArray[np.float32]]  # to ids of each query; infinite for −1
    pinned_floors: Floats  # similarity from which pinned items are lifted

    def floors(self) -> Floats:
        """Similarity to a judged query, less the offset, from which an item may come among the results."""
        (total, unit), found = self.scale, self.ids[:, 0] >= 0
        first, last = (total - 2.0 * self.distances[:, 0]) * unit, (total - 2.0 * self.distances[:, -1]) * unit
        return np.where(found, last, np.inf) - TIE * (np.where(found, first, 0.0) - PIVOT)


def lift(memory: Memory, offset: float | None, search: Search, threads: int) -> Lifted:
    """Lift what judged queries name; without an offset what is pinned alone.

    All judged queries are fetched that could lift anything into the results: a lift is at least as good as the last of
    them, and no item's own similarity is above that of the first.
    """
    floors = search.floors()
    least = search.pinned_floors if offset is None else floors + offset
    least = np.minimum(least, search.pinned_floors) if memory.any_pinned else least
    return lift_by(memory.lists, offset, search, floors, *search.judged_from(least), threads)


def lift_by(
    lists: Lists,
    offset: float | None,
    search: Search,
    floors: Floats,
    judged: Rows,
    similarities: Floats,
    threads: int = 1,
) -> Lifted:
    """Lift what some judged queries of each query name, -1 for none."""
    (total, unit), (ids, distances) = search.scale, (search.ids.copy(), search.distances.copy())
    floors, pinned_floors = floors.astype(np.float32), search.pinned_floors.astype(np.float32)
    items, values, places = _kernel.named(
        judged, similarities, floors, pinned_floors, np.inf if offset is None else offset, *lists, threads
    )
    by = np.full(ids.shape, -1, np.int64)
    if items.shape[1]:
        columns, to_items = by.copy(), search.distances_to(items)
        _kernel.lift(ids, distances, items, values, to_items, total, unit, TIE, PIVOT, MOST, columns, threads)
        rows, ranks = np.nonzero(columns >= 0)
        by[rows, ranks] = places[rows, columns[rows, ranks]]
    return Lifted(ids, distances, by)
