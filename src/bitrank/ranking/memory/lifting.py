"""How a search remembers: items that judged queries near the query name are lifted in its results, exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bitrank import _kernel
from bitrank.core.types import Ids, Rows
from bitrank.ranking.memory.entries import Lists

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
    judged: Rows


class Search(NamedTuple):
    """What was found, and how far other items are."""

    ids: Ids
    distances: npt.NDArray[np.float32]
    scale: Scale
    distances_to: Callable[[Ids], npt.NDArray[np.float32]]  # to ids of each query; infinite for −1


class Limits(NamedTuple):
    """How near judged queries must be to lift anything into what was found, float32 per query."""

    floors: npt.NDArray[np.float32]  # similarity, less the offset, from which items are lifted
    pinned_floors: npt.NDArray[np.float32]  # similarity from which pinned items are
    distances: npt.NDArray[np.float32]  # distance within which all such judged queries are

    @classmethod
    def of(cls, search: Search, asked: Scale, offset: float | None, any_pinned: bool) -> Self:
        """Limits of judged queries, whose distances are on the scale `asked`."""
        offset = np.inf if offset is None else offset
        return cls(
            *_kernel.lift_limits(search.distances, *search.scale, *asked, offset, TIE, PIVOT, PINNED_FROM, any_pinned)
        )


def lift(
    lists: Lists, offset: float | None, search: Search, limits: Limits, judged: Rows, similarities: Floats, threads: int
) -> Lifted:
    """Lift what some judged queries of each query name, -1 for none; without an offset what is pinned alone."""
    ids, distances, by = search.ids.copy(), search.distances.copy(), np.full(search.ids.shape, -1)
    offset = np.inf if offset is None else offset
    items, values, places = _kernel.named(
        judged, similarities.astype(np.float32), limits.floors, limits.pinned_floors, offset, *lists, threads
    )
    if items.shape[1]:
        to_items = search.distances_to(items)
        _kernel.lift(ids, distances, by, items, values, places, to_items, *search.scale, TIE, PIVOT, MOST, threads)
    return Lifted(ids, distances, by)
