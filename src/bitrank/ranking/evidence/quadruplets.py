"""Draw quadruplets (query, dissimilar, similar, similar) of row numbers from class labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from bitrank.core.checks import check_classes, check_codes, check_count
from bitrank.core.codes import distances
from bitrank.core.ties import smallest_columns
from bitrank.core.types import Codes, Rows
from bitrank.ranking.evidence.kinds import TooLittleEvidenceError

Strategy = Literal["uniform", "near"]


# With "near", at most this many queries have their neighbours looked up.
MOST_NEAR_QUERIES = 2048


def draw_quadruplets(
    y: npt.ArrayLike,
    n_quadruplets: int,
    *,
    query_y: npt.ArrayLike | None = None,
    strategy: Strategy = "uniform",
    codes: Codes | None = None,
    query_codes: Codes | None = None,
    n_neighbors: float | None = None,
    random_state: Any = None,
) -> Rows:
    """Draw distinct quadruplets from class labels.

    Draw the query's class by class frequency, then the query in it, two other rows of the class and one row of
    another class. Classes too small to draw from are skipped.

    Parameters
    ----------
    y : array-like of shape (n,)
        Class of each item.
    n_quadruplets : int
        At most as many as exist.
    query_y : array-like of shape (n_queries,), optional
        Class of each query, where queries are not among the items. By default items query each other.
    strategy : {"uniform", "near"}
        "uniform" draws similar and dissimilar rows from the whole collection, as in the paper; "near" draws them among
        the `n_neighbors` items nearest to the query by Hamming distance.
    codes, query_codes : packed codes, needed for "near"
    n_neighbors : int, or float below 1, optional
        Number of near items; a float is a share of the collection. 200 by default.
    random_state : int, RandomState instance or None

    Returns
    -------
    quadruplets : int64 array of shape (n_quadruplets, 4)
        Row numbers (query, dissimilar, similar, similar), no row twice.

    Examples
    --------
    >>> y = [0, 0, 0, 1, 1, 1]
    >>> draw_quadruplets(y, 2, random_state=0).shape
    (2, 4)
    """
    check_count("n_quadruplets", n_quadruplets, 1)
    if strategy not in get_args(Strategy):
        raise ValueError(f"strategy must be one of {get_args(Strategy)}, got {strategy!r}")
    classes = _RowClasses(y, query_y)
    random = np.random.default_rng(check_random_state(random_state).randint(2**31))
    if strategy == "uniform":
        return distinct(classes.draw, classes.capacity(), n_quadruplets, random)
    if codes is None or (query_y is not None and query_codes is None):
        raise ValueError('strategy "near" needs codes, and query_codes where query_y is given')
    near = _neighbors(classes, codes, query_codes, n_quadruplets, n_neighbors, random)
    return distinct(near.draw, near.capacity(), n_quadruplets, random)


class Classes:
    """The paper's draw over numbered rows, which subclasses look up in memory or elsewhere once they are drawn.

    Items are numbered class by class, in their order within a class; queries in their order, without those of classes
    too small to draw from.
    """

    def __init__(self, count: Rows, query_count: Rows, separate: bool) -> None:
        self.separate = separate
        self.count = count
        self.start = np.cumsum(count) - count
        self.n_items = int(count.sum())
        if len(count) < 2:
            raise TooLittleEvidenceError(f"y must hold at least two classes, got {len(count)}")
        needed = 2 if separate else 3
        self.large_enough = count >= needed
        self.query_count = np.where(self.large_enough, query_count, 0)
        self.n_queries = int(self.query_count.sum())
        if self.n_queries == 0:
            raise TooLittleEvidenceError(
                f"no class is large enough to draw from: a quadruplet takes {needed} items of one class, "
                f"the largest of {len(count)} classes has {count.max()}"
            )

    def queries_at(self, numbers: Rows) -> tuple[Rows, Rows, Rows]:
        """Rows of the queries with these numbers, their classes, and their places in them as items."""
        raise NotImplementedError

    def items_at(self, numbers: Rows) -> Rows:
        """The rows of the items with these numbers."""
        raise NotImplementedError

    def capacity(self) -> float:
        """Number of different quadruplets."""
        similar = self.count.astype(float) - (not self.separate)
        return float((self.query_count * similar * (similar - 1) * (self.n_items - self.count)).sum())

    def draw(self, n: int, random: np.random.Generator) -> Rows:
        """Draw n quadruplets, some of which may be equal."""
        query, group, place = self.queries_at(random.integers(self.n_queries, size=n))
        start, count = self.start[group], self.count[group]
        dissimilar = random.integers(self.n_items - count)
        dissimilar += np.where(dissimilar >= start, count, 0)
        if self.separate:
            first = random.integers(count)
            second = random.integers(count - 1)
            second += second >= first
        else:  # draw among the remaining places, then step over those that are taken
            first = random.integers(count - 1)
            first += first >= place
            second = random.integers(count - 2)
            second += second >= np.minimum(place, first)
            second += second >= np.maximum(place, first)
        items = self.items_at(np.concatenate([dissimilar, start + first, start + second]))
        return np.column_stack([query, items.reshape(3, n).T])


class _RowClasses(Classes):
    """Classes of labels in memory."""

    def __init__(self, y: npt.ArrayLike, query_y: npt.ArrayLike | None) -> None:
        labels = check_labels(y, "y")
        query_labels = labels if query_y is None else check_labels(query_y, "query_y")
        names, self.item_class = np.unique(labels, return_inverse=True)
        self.query_class = self.item_class
        if query_y is not None:
            found = np.searchsorted(names, query_labels).clip(max=len(names) - 1)
            self.query_class = np.where(names[found] == query_labels, found, -1)
        known = self.query_class[self.query_class >= 0]
        count = np.bincount(self.item_class)
        super().__init__(count, np.bincount(known, minlength=len(names)), separate=query_y is not None)
        self.order = np.argsort(self.item_class, kind="stable")
        # place[row]: position of the row inside its class.
        self.place = np.empty(len(labels), np.int64)
        self.place[self.order] = np.arange(len(labels)) - np.repeat(self.start, self.count)
        # The last flag is for class -1: a class without items.
        self.queries = np.flatnonzero(np.append(self.large_enough, False)[self.query_class])

    def queries_at(self, numbers: Rows) -> tuple[Rows, Rows, Rows]:
        rows = self.queries[numbers]
        return rows, self.query_class[rows], rows if self.separate else self.place[rows]

    def items_at(self, numbers: Rows) -> Rows:
        return self.order[numbers]


class Neighbors:
    """Draw among each query's nearest items; skip queries without two similar rows and a dissimilar one."""

    def __init__(self, query: Rows, near: Rows, same: npt.NDArray[np.bool_]) -> None:
        similar = same.sum(axis=1)
        usable = (similar >= 2) & (similar < near.shape[1])
        if not usable.any():
            raise TooLittleEvidenceError(
                f'strategy "near" found no query with two similar and one dissimilar row among its {near.shape[1]} '
                'nearest: raise n_neighbors or use strategy "uniform"'
            )
        self.query, self.n_similar = query[usable], similar[usable]
        # Similar rows stand first in each query's list, dissimilar ones behind them.
        order = np.argsort(~same[usable], axis=1, kind="stable")
        self.near = np.take_along_axis(near[usable], order, axis=1)

    def capacity(self) -> float:
        """Number of different quadruplets."""
        return _n_quadruplets(self.n_similar, self.near.shape[1])

    def draw(self, n: int, random: np.random.Generator) -> Rows:
        """Draw n quadruplets, some of which may be equal."""
        row = random.integers(len(self.query), size=n)
        similar = self.n_similar[row]
        first = random.integers(similar)
        second = random.integers(similar - 1)
        second += second >= first
        dissimilar = similar + random.integers(self.near.shape[1] - similar)
        items = (self.near[row, place] for place in (dissimilar, first, second))
        return np.stack([self.query[row], *items], axis=1)


def _neighbors(
    classes: _RowClasses,
    codes: Codes,
    query_codes: Codes | None,
    n_quadruplets: int,
    n_neighbors: float | None,
    random: np.random.Generator,
) -> Neighbors:
    """Look up the nearest items of as many queries as the draw needs."""
    codes = check_codes(codes)
    queries = codes if query_codes is None or not classes.separate else check_codes(query_codes, name="query_codes")
    if len(codes) != len(classes.item_class) or len(queries) != len(classes.query_class):
        raise ValueError(
            f"codes and labels must have the same length, got {len(codes)} codes for {len(classes.item_class)} "
            f"labels and {len(queries)} query codes for {len(classes.query_class)}"
        )
    n_near = check_n_neighbors(n_neighbors, len(codes))
    chosen = random.permutation(classes.queries)[:MOST_NEAR_QUERIES]
    # Look up one query per ten quadruplets, and more where these yield fewer.
    step = min(max(1, n_quadruplets // 10), max(1, 10_000_000 // len(codes)))
    lists, sames, n_found = [], [], 0.0
    for start in range(0, len(chosen), step):
        if start >= n_quadruplets // 10 and n_found >= n_quadruplets:
            break
        rows = chosen[start : start + step]
        near = _nearest(queries[rows], codes, n_near, None if classes.separate else rows, random)
        same = classes.item_class[near] == classes.query_class[rows][:, None]
        lists.append(near)
        sames.append(same)
        n_found += _n_quadruplets(same.sum(axis=1), near.shape[1])
    near = np.concatenate(lists)
    return Neighbors(chosen[: len(near)], near, np.concatenate(sames))


def check_n_neighbors(n_neighbors: float | None, n: int) -> int:
    """Number of near items among n: 200 by default, a number, or a share."""
    if n_neighbors is None:
        n_neighbors = 200
    share = 0 < n_neighbors < 1
    if not share and not (n_neighbors >= 3 and n_neighbors % 1 == 0):
        raise ValueError(f"n_neighbors must be an integer from 3 on or a share between 0 and 1, got {n_neighbors}")
    return max(3, round(n_neighbors * n)) if share else int(n_neighbors)


def _n_quadruplets(n_similar: Rows, n_near: int) -> float:
    similar = n_similar.astype(float)
    return float((similar * (similar - 1) * (n_near - similar)).sum())


def _nearest(
    queries: Codes, codes: Codes, n_neighbors: int, query_rows: Rows | None, random: np.random.Generator
) -> Rows:
    """Rows of the nearest codes by Hamming distance, ties in random order, the query itself excluded."""
    key = distances(queries, codes).astype(np.uint32) << 16
    key |= random.integers(2**16, size=key.shape, dtype=np.uint32)
    n_candidates = len(codes)
    if query_rows is not None:
        key[np.arange(len(queries)), query_rows] = np.iinfo(np.uint32).max
        n_candidates -= 1
    return smallest_columns(key, min(n_neighbors, n_candidates))


def distinct(
    draw: Callable[[int, np.random.Generator], Rows], capacity: float, n: int, random: np.random.Generator
) -> Rows:
    """Draw until there are n different rows, or all that exist."""
    n = int(min(n, capacity))
    # When nearly all are drawn, the last few are found by chance only: draw many at once.
    more = n if 2 * n > capacity else 16
    rows = np.empty((0, 4), np.int64)
    while len(rows) < n:
        rows = np.concatenate([rows, draw(n - len(rows) + more, random)])
        _, first = np.unique(_fingerprint(rows), return_index=True)
        rows = rows[np.sort(first)]
    return rows[:n]


def _fingerprint(rows: Rows) -> npt.NDArray[np.uint64]:
    """One 64-bit number per row; a chance collision costs a redraw and nothing else."""
    key = np.zeros(len(rows), np.uint64)
    for column in rows.T.astype(np.uint64):
        key = (key ^ column) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    return key


def check_labels(y: Any, name: str) -> npt.NDArray[Any]:
    """Check class labels: a vector that is not empty."""
    labels = check_classes(y, name)
    if len(labels) == 0:
        raise ValueError(f"{name} must hold one label for each code, got none")
    return labels
