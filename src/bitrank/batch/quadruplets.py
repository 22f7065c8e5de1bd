"""`draw_quadruplets`: quadruplets from a Dask array of labels, of which only the counts are brought together.

Between encoding and learning at scale: the learner then takes the few rows that were drawn into memory.
"""

from __future__ import annotations

from typing import Any, get_args

import dask
import dask.array as da
import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from bitrank.batch.blocks import blocks, check_dask_array, check_dask_codes
from bitrank.batch.search import search
from bitrank.ranking.quadruplets import (
    MOST_NEAR_QUERIES,
    Classes,
    Neighbors,
    Strategy,
    check_labels,
    check_n_neighbors,
    distinct,
)
from bitrank.vocabulary import Rows

Labels = npt.NDArray[Any]

# Scrambled row numbers are taken modulo 2**61.
_MASK = (1 << 61) - 1


def draw_quadruplets(
    y: da.Array,
    n_quadruplets: int,
    *,
    strategy: Strategy = "uniform",
    codes: da.Array | None = None,
    n_neighbors: float | None = None,
    random_state: Any = None,
) -> Rows:
    """Draw distinct quadruplets from class labels, as `bitrank.ranking.quadruplets.draw_quadruplets` does in memory.

    Parameters
    ----------
    y : Dask array of shape (n,)
        Class of each item.
    n_quadruplets : int
        Where fewer different ones exist, all of them are drawn.
    strategy : {"uniform", "near"}
        "uniform" draws similar and dissimilar rows from the whole collection: the same as in memory with the same
        seed. "near" draws them among the `n_neighbors` items nearest to the query, of at most 4096 queries.
    codes : Dask array of uint8, of shape (n, n_bytes), needed for "near"
    n_neighbors : int, or float below 1, optional
        How many items are near; a float is a share of the collection. 200 by default.
    random_state : int, RandomState instance or None

    Returns
    -------
    quadruplets : int64 array of shape (n_quadruplets, 4)
        Row numbers (query, dissimilar, similar, similar), no row twice.

    Notes
    -----
    The labels are read once to count classes, and then only the blocks that rows were drawn from, about twice each.
    This machine holds one number a class and block. "near" searches the codes once.

    Examples
    --------
    >>> y = da.from_array(np.arange(1000) % 10, chunks=300)
    >>> draw_quadruplets(y, 5, random_state=0).shape
    (5, 4)
    """
    y = check_dask_array(y, "y", 1)
    if n_quadruplets < 1:
        raise ValueError(f"n_quadruplets must be at least 1, got {n_quadruplets}")
    if strategy not in get_args(Strategy):
        raise ValueError(f"strategy must be one of {get_args(Strategy)}, got {strategy!r}")
    if strategy == "near" and codes is None:
        raise ValueError('strategy "near" needs codes')
    classes = _BlockClasses(y)
    random = np.random.default_rng(check_random_state(random_state).randint(2**31))
    if strategy == "uniform":
        return distinct(classes.draw, classes.capacity(), n_quadruplets, random)
    near = _neighbors(classes, codes, n_quadruplets, n_neighbors, random)
    return distinct(near.draw, near.capacity(), n_quadruplets, random)


class _BlockClasses(Classes):
    """Classes of labels in blocks: the number of each in each block is known here, the rest is asked of the block."""

    def __init__(self, y: da.Array) -> None:
        self.blocks = blocks(y)
        self.first_row = np.cumsum([0, *y.chunks[0]])
        counted = dask.compute([dask.delayed(_count)(block) for block in self.blocks])[0]
        self.names = np.unique(np.concatenate([names for names, _ in counted]))
        count = np.zeros((len(self.blocks) + 1, len(self.names)), np.int64)
        for row, (names, here) in zip(count[1:], counted, strict=True):
            row[np.searchsorted(self.names, names)] = here
        # before[b, c]: items of class c that stand before block b.
        self.before = np.cumsum(count, axis=0)
        super().__init__(self.before[-1], self.before[-1], separate=False)
        self.queries_before = self.before[:, self.large_enough].sum(axis=1)

    def queries_at(self, numbers: Rows) -> tuple[Rows, Rows, Rows]:
        block = np.searchsorted(self.queries_before, numbers, side="right") - 1
        usable = self.names[self.large_enough]
        found = self._ask(_queries, block, numbers - self.queries_before[block], usable)
        row, group, place = found[:, 0], np.flatnonzero(self.large_enough)[found[:, 1]], found[:, 2]
        return self.first_row[block] + row, group, self.before[block, group] + place

    def items_at(self, numbers: Rows) -> Rows:
        group = np.searchsorted(self.start, numbers, side="right") - 1
        place = numbers - self.start[group]
        block = np.empty(len(numbers), np.int64)
        for one in np.unique(group):
            mine = group == one
            block[mine] = np.searchsorted(self.before[:, one], place[mine], side="right") - 1
        wanted = np.column_stack([group, place - self.before[block, group]])
        return self.first_row[block] + self._ask(_items, block, wanted, self.names)

    def classes_at(self, rows: Rows) -> Rows:
        """The classes of the items in these rows."""
        block = np.searchsorted(self.first_row, rows, side="right") - 1
        return self._ask(_classes, block, rows - self.first_row[block], self.names)

    def _ask(self, task: Any, block: Rows, wanted: Rows, names: Labels) -> Rows:
        """Each block's answers to what is wanted of it, in the order in which it was wanted."""
        order = np.argsort(block, kind="stable")
        asked, starts = np.unique(block[order], return_index=True)
        shared = dask.delayed(names, traverse=False)
        parts = np.split(wanted[order], starts[1:])
        answers = dask.compute(
            [dask.delayed(task)(self.blocks[b], part, shared) for b, part in zip(asked, parts, strict=True)]
        )[0]
        joined = np.concatenate(answers)
        out = np.empty_like(joined)
        out[order] = joined
        return out


def _neighbors(
    classes: _BlockClasses, codes: da.Array, n_quadruplets: int, n_neighbors: float | None, random: np.random.Generator
) -> Neighbors:
    """The nearest items of some queries, in one search."""
    codes = check_dask_codes(codes, None)[0]
    if len(codes) != classes.n_items:
        raise ValueError(f"codes must have one row for each of the {classes.n_items} labels, got {len(codes)}")
    n_near = min(check_n_neighbors(n_neighbors, len(codes)), len(codes) - 1)
    # Ten quadruplets a query are plenty; a few hundred queries cost no more than one, for the codes are read once.
    n_queries = min(classes.n_queries, MOST_NEAR_QUERIES, max(256, n_quadruplets // 10))
    rows, group, _ = classes.queries_at(random.choice(classes.n_queries, n_queries, replace=False))
    # Equal distances are ordered by id: row numbers, scrambled, so that the first rows are not preferred.
    factor = int(random.integers(1 << 60)) * 2 + 1
    ids = (da.arange(len(codes), dtype=np.uint64, chunks=(codes.chunks[0],)) * np.uint64(factor)) & np.uint64(_MASK)
    found = search(codes, codes[rows].compute(), n_near + 1, ids=ids.astype(np.int64)).ids.astype(np.uint64)
    near = ((found * np.uint64(pow(factor, -1, _MASK + 1))) & np.uint64(_MASK)).astype(np.int64)
    # A query is its own neighbour, or was crowded out by equals: then the last of the list goes.
    own = near == rows[:, None]
    own[~own.any(axis=1), -1] = True
    near = near[~own].reshape(n_queries, n_near)
    return Neighbors(rows, near, classes.classes_at(near.ravel()).reshape(near.shape) == group[:, None])


def _count(labels: Labels) -> tuple[Labels, Rows]:
    if len(labels) == 0:
        return labels, np.empty(0, np.int64)
    return np.unique(check_labels(labels, "y"), return_counts=True)


def _queries(labels: Labels, numbers: Rows, usable: Labels) -> Rows:
    """Row in the block, class, and place in the class here, of the queries with these numbers among the usable ones."""
    found = np.searchsorted(usable, labels).clip(max=len(usable) - 1)
    there = np.flatnonzero(usable[found] == labels)
    group = found[there]
    return np.column_stack([there, group, _places(group)])[numbers]


def _items(labels: Labels, wanted: Rows, names: Labels) -> Rows:
    """Row in the block of the items with these classes and places."""
    group = np.searchsorted(names, labels)
    order = np.argsort(group, kind="stable")
    start = np.searchsorted(group[order], wanted[:, 0])
    rows: Rows = order[start + wanted[:, 1]]
    return rows


def _classes(labels: Labels, rows: Rows, names: Labels) -> Rows:
    return np.searchsorted(names, labels[rows])


def _places(group: Rows) -> Rows:
    """How many of its own group stand before each."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    places = np.empty(len(group), np.int64)
    places[order] = np.arange(len(group)) - np.searchsorted(ordered, ordered)
    return places
