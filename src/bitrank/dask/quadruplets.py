"""`draw_quadruplets`: quadruplets from a Dask array of labels, which stay in their blocks."""

from __future__ import annotations

from typing import Any, get_args

import dask
import dask.array as da
import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from bitrank.core.checks import check_labels
from bitrank.core.types import Rows
from bitrank.dask.blocks import blocks, check_dask_array, check_dask_codes
from bitrank.dask.search import search
from bitrank.ranking.evidence.quadruplets import (
    MOST_NEAR_QUERIES,
    Classes,
    Neighbors,
    Strategy,
    check_n_neighbors,
    distinct,
)

Labels = npt.NDArray[Any]

# Scrambled row numbers are modulo 2**61.
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
    """Draw the quadruplets that `bitrank.ranking.evidence.quadruplets.draw_quadruplets` draws in memory.

    Parameters
    ----------
    y : Dask array of shape (n,)
        Class of each item.
    n_quadruplets : int
        If fewer exist, all of them are drawn.
    strategy : {"uniform", "near"}
        "uniform" draws similar and dissimilar rows from the whole collection: with the same seed, the same rows as in
        memory. "near" draws them among the `n_neighbors` items nearest to the query, for at most 2048 queries.
    codes : Dask array of uint8, of shape (n, n_bytes), needed for "near"
    n_neighbors : int, or float below 1, optional
        Number of near items, or their share of the collection; 200 by default.
    random_state : int, RandomState instance or None

    Returns
    -------
    quadruplets : as `bitrank.ranking.evidence.quadruplets.draw_quadruplets` returns them

    Notes
    -----
    All labels are read once to count classes, and the blocks of drawn rows about twice more. This machine holds one
    number per class and block. "near" searches the codes once.

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
        raise ValueError('codes must be a Dask array for strategy "near", got None')
    classes = _BlockClasses(y)
    random = np.random.default_rng(check_random_state(random_state).randint(2**31))
    if strategy == "uniform":
        return distinct(classes.draw, classes.capacity(), n_quadruplets, random)
    near = _neighbors(classes, codes, n_quadruplets, n_neighbors, random)
    return distinct(near.draw, near.capacity(), n_quadruplets, random)


class _BlockClasses(Classes):
    """Classes of labels in blocks: counts per class and block are here, labels stay in their blocks."""

    def __init__(self, y: da.Array) -> None:
        self.blocks = blocks(y)
        self.first_row = np.cumsum([0, *y.chunks[0]])
        counted = dask.compute([dask.delayed(_count)(block) for block in self.blocks])[0]
        self.names = np.unique(np.concatenate([names for names, _ in counted]))
        count = np.zeros((len(self.blocks) + 1, len(self.names)), np.int64)
        for row, (names, block_counts) in zip(count[1:], counted, strict=True):
            row[np.searchsorted(self.names, names)] = block_counts
        # before[b, c]: items of class c before block b.
        self.before = np.cumsum(count, axis=0)
        super().__init__(self.before[-1], self.before[-1], separate=False)
        self.queries_before = self.before[:, self.large_enough].sum(axis=1)

    def queries_at(self, numbers: Rows) -> tuple[Rows, Rows, Rows]:
        block = np.searchsorted(self.queries_before, numbers, side="right") - 1
        usable = self.names[self.large_enough]
        answers = self._ask(_queries, block, numbers - self.queries_before[block], usable)
        row, group, place = answers[:, 0], np.flatnonzero(self.large_enough)[answers[:, 1]], answers[:, 2]
        return self.first_row[block] + row, group, self.before[block, group] + place

    def items_at(self, numbers: Rows) -> Rows:
        group = np.searchsorted(self.start, numbers, side="right") - 1
        place = numbers - self.start[group]
        block = np.empty(len(numbers), np.int64)
        for number in np.unique(group):
            members = group == number
            block[members] = np.searchsorted(self.before[:, number], place[members], side="right") - 1
        questions = np.column_stack([group, place - self.before[block, group]])
        return self.first_row[block] + self._ask(_items, block, questions, self.names)

    def classes_at(self, rows: Rows) -> Rows:
        """Classes of the items in these rows."""
        block = np.searchsorted(self.first_row, rows, side="right") - 1
        return self._ask(_classes, block, rows - self.first_row[block], self.names)

    def _ask(self, task: Any, block: Rows, questions: Rows, names: Labels) -> Rows:
        """Answers of a task to questions about blocks, in the order of the questions."""
        order = np.argsort(block, kind="stable")
        numbers, starts = np.unique(block[order], return_index=True)
        shared = dask.delayed(names, traverse=False)
        parts = np.split(questions[order], starts[1:])
        answers = dask.compute(
            [dask.delayed(task)(self.blocks[b], part, shared) for b, part in zip(numbers, parts, strict=True)]
        )[0]
        joined = np.concatenate(answers)
        out = np.empty_like(joined)
        out[order] = joined
        return out


def _neighbors(
    classes: _BlockClasses, codes: da.Array, n_quadruplets: int, n_neighbors: float | None, random: np.random.Generator
) -> Neighbors:
    """Find the nearest items of some queries in one search."""
    codes = check_dask_codes(codes, None)[0]
    if len(codes) != classes.n_items:
        raise ValueError(f"codes must have one row for each of the {classes.n_items} labels, got {len(codes)}")
    n_near = min(check_n_neighbors(n_neighbors, len(codes)), len(codes) - 1)
    # About ten quadruplets per query; hundreds of queries cost as much as one, since the codes are read once.
    n_queries = min(classes.n_queries, MOST_NEAR_QUERIES, max(256, n_quadruplets // 10))
    rows, group, _ = classes.queries_at(random.choice(classes.n_queries, n_queries, replace=False))
    # Ties are ordered by id: scrambled row numbers do not prefer the first rows.
    factor = int(random.integers(1 << 60)) * 2 + 1
    ids = (da.arange(len(codes), dtype=np.uint64, chunks=(codes.chunks[0],)) * np.uint64(factor)) & np.uint64(_MASK)
    scrambled = search(codes, codes[rows].compute(), n_near + 1, ids=ids.astype(np.int64)).ids.astype(np.uint64)
    near = ((scrambled * np.uint64(pow(factor, -1, _MASK + 1))) & np.uint64(_MASK)).astype(np.int64)
    # Drop the query itself, or, where ties crowd it out, the last neighbour.
    dropped = near == rows[:, None]
    dropped[~dropped.any(axis=1), -1] = True
    near = near[~dropped].reshape(n_queries, n_near)
    return Neighbors(rows, near, classes.classes_at(near.ravel()).reshape(near.shape) == group[:, None])


def _count(labels: Labels) -> tuple[Labels, Rows]:
    if len(labels) == 0:
        return labels, np.empty(0, np.int64)
    return np.unique(check_labels(labels, len(labels)), return_counts=True)


def _queries(labels: Labels, numbers: Rows, usable: Labels) -> Rows:
    """Row in the block, class, and place within the class, of usable queries by their numbers in the block."""
    nearest_names = np.searchsorted(usable, labels).clip(max=len(usable) - 1)
    rows = np.flatnonzero(usable[nearest_names] == labels)
    group = nearest_names[rows]
    return np.column_stack([rows, group, _places(group)])[numbers]


def _items(labels: Labels, questions: Rows, names: Labels) -> Rows:
    """Row in the block of items by class and place within the class."""
    group = np.searchsorted(names, labels)
    order = np.argsort(group, kind="stable")
    start = np.searchsorted(group[order], questions[:, 0])
    rows: Rows = order[start + questions[:, 1]]
    return rows


def _classes(labels: Labels, rows: Rows, names: Labels) -> Rows:
    return np.searchsorted(names, labels[rows])


def _places(group: Rows) -> Rows:
    """Number of earlier members of the same group."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    places = np.empty(len(group), np.int64)
    places[order] = np.arange(len(group)) - np.searchsorted(ordered, ordered)
    return places
