"""Triplets and quadruplets of row numbers, read from rank lists, grades, judged pairs and clicks.

A triplet is (query, dissimilar, similar); a quadruplet adds a second similar row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.core.types import Rows


def triplets_from_ranking(query: int, ranked: npt.ArrayLike) -> Rows:
    """Read triplets (query, worse, better) from a list of rows in order, best first.

    Every row ranks above all rows behind it.

    Examples
    --------
    >>> triplets_from_ranking(7, [3, 1, 2])
    array([[7, 1, 3],
           [7, 2, 3],
           [7, 2, 1]])
    """
    rows = _check_shown(ranked, "ranked")
    return triplets_from_grades(query, rows, np.arange(len(rows), 0, -1))


def triplets_from_grades(query: int, rows: npt.ArrayLike, grades: npt.ArrayLike) -> Rows:
    """Read triplets (query, worse, better) from graded rows: higher grades first, equal grades unordered.

    Examples
    --------
    >>> triplets_from_grades(0, [5, 6, 7], [2, 0, 2])
    array([[0, 6, 5],
           [0, 6, 7]])
    """
    rows, grades = _check_shown(rows, "rows"), np.asarray(grades, float)
    if grades.shape != rows.shape or not np.isfinite(grades).all():
        raise ValueError(f"grades must be {len(rows)} finite numbers, one per row, got shape {grades.shape}")
    better, worse = np.nonzero(grades[:, None] > grades[None, :])
    return np.stack([np.full(len(better), query, np.int64), rows[worse], rows[better]], axis=1)


def triplets_from_clicks(query: int, shown: npt.ArrayLike, clicked: npt.ArrayLike) -> Rows:
    """Read triplets (query, skipped, clicked) from one page of results: clicked rows rank above the others.

    Parameters
    ----------
    query : int
        Row of the query.
    shown : array-like of int
        Rows shown, in the order of the page.
    clicked : array-like of bool
        For each row shown, whether it was clicked.

    Examples
    --------
    >>> triplets_from_clicks(0, [5, 6, 7], [False, True, False])
    array([[0, 5, 6],
           [0, 7, 6]])
    """
    rows, clicks = _check_shown(shown, "shown"), np.asarray(clicked)
    if clicks.dtype != np.bool_ or clicks.shape != rows.shape:
        raise ValueError(
            f"clicked must be {len(rows)} booleans, one for each row shown, got {clicks.dtype} of shape {clicks.shape}"
        )
    return triplets_from_grades(query, rows, clicks)


def check_constraints(rows: Any, n_items: int, n_queries: int) -> Rows:
    """Check triplets or quadruplets: integers with every row number in range.

    Examples
    --------
    >>> check_constraints([[0, 1, 2]], n_items=3, n_queries=1)
    array([[0, 1, 2]])
    """
    array = np.asarray(rows)
    if array.ndim != 2 or array.shape[1] not in (3, 4) or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            f"rows must be integers of shape (m, 4), or (m, 3) for triplets, got {array.dtype} of shape {array.shape}"
        )
    if len(array) == 0:
        raise ValueError("rows must hold at least one constraint, got none")
    for columns, n, what in ((array[:, :1], n_queries, "query"), (array[:, 1:], n_items, "item")):
        if columns.min() < 0 or columns.max() >= n:
            raise ValueError(f"rows must name {what} rows from 0 to {n - 1}, got {columns.min()} to {columns.max()}")
    return array.astype(np.int64, copy=False)


def _check_shown(rows: Any, name: str) -> Rows:
    array = np.asarray(rows)
    if array.ndim != 1 or (len(array) and not np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"{name} must be a list of row numbers, got {array.dtype} of shape {array.shape}")
    if len(np.unique(array)) != len(array):
        raise ValueError(f"{name} must name each row once, got one twice")
    return array.astype(np.int64)
