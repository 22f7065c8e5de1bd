"""`draw_quadruplets`: the paper's draw over a Dask array of labels, of which only the counts are brought together.

Between encoding and learning at scale: the learner then takes the few rows that were drawn into memory.
"""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from bitrank.batch.blocks import blocks, check_array
from bitrank.quadruplets import Classes, Rows, check_labels, distinct

Labels = npt.NDArray[Any]


def draw_quadruplets(y: da.Array, n_quadruplets: int, *, random_state: Any = None) -> Rows:
    """Draw distinct quadruplets from class labels: those that `bitrank.quadruplets.draw_quadruplets` draws in memory.

    Parameters
    ----------
    y : Dask array of shape (n,)
        Class of each item.
    n_quadruplets : int
        Where fewer different ones exist, all of them are drawn.
    random_state : int, RandomState instance or None

    Returns
    -------
    quadruplets : int64 array of shape (n_quadruplets, 4)
        Row numbers (query, dissimilar, similar, similar), no row twice; the same as in memory with the same seed.

    Notes
    -----
    The labels are read once to count classes, and then only the blocks that rows were drawn from, about twice each.
    This machine holds one number a class and block.

    Examples
    --------
    >>> y = da.from_array(np.arange(1000) % 10, chunks=300)
    >>> draw_quadruplets(y, 5, random_state=0).shape
    (5, 4)
    """
    y = check_array(y, "y", 1)
    if n_quadruplets < 1:
        raise ValueError(f"n_quadruplets must be at least 1, got {n_quadruplets}")
    classes = _BlockClasses(y)
    random = np.random.default_rng(check_random_state(random_state).randint(2**31))
    return distinct(classes.draw, classes.capacity(), n_quadruplets, random)


class _BlockClasses(Classes):
    """Classes of labels in blocks: how many of each stand in each block is known here, the rest is asked of the block."""

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


def _places(group: Rows) -> Rows:
    """How many of its own group stand before each."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    places = np.empty(len(group), np.int64)
    places[order] = np.arange(len(group)) - np.searchsorted(ordered, ordered)
    return places
