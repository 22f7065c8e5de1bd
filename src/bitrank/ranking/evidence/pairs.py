"""Judged pairs of queries and items: from arrays, sparse matrices and qrels files."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bitrank.core.types import Rows


class Qrels(NamedTuple):
    """Pairs of a qrels file as row numbers, and how many of its lines named unknown ids.

    Examples
    --------
    >>> pairs, n_unknown = Qrels(np.array([[0, 1, 2]]), n_unknown=0)
    >>> pairs  # query row, item row, grade
    array([[0, 1, 2]])
    """

    pairs: Rows
    n_unknown: int


def check_pairs(pairs: Any, n_items: int, n_queries: int) -> Rows:
    """Check judged pairs and sort them by query: rows (query, item, grade), each pair once.

    Parameters
    ----------
    pairs : int array of shape (m, 2) or (m, 3), or scipy sparse matrix of shape (n_queries, n_items)
        Row numbers (query, item) or (query, item, grade); a sparse matrix holds the grades. Grades are whole numbers
        from 0 (not relevant) on, 1 where there are none.
    n_items, n_queries : int

    Examples
    --------
    >>> check_pairs([[1, 4], [0, 2]], n_items=5, n_queries=2)
    array([[0, 2, 1],
           [1, 4, 1]])
    """
    array = _from_sparse(pairs, n_items, n_queries) if hasattr(pairs, "tocoo") else np.asarray(pairs)
    if array.ndim != 2 or array.shape[1] not in (2, 3) or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            f"pairs must be integers of shape (m, 2), or (m, 3) with grades, got {array.dtype} of shape {array.shape}"
            + (": read_qrels turns ids into row numbers" if array.dtype.kind in "UO" else "")
        )
    if len(array) == 0:
        raise ValueError("pairs must hold at least one pair, got none")
    for column, n, what in ((array[:, 0], n_queries, "query"), (array[:, 1], n_items, "item")):
        if column.min() < 0 or column.max() >= n:
            raise ValueError(f"pairs must name {what} rows from 0 to {n - 1}, got {column.min()} to {column.max()}")
    grades = array[:, 2] if array.shape[1] == 3 else np.ones(len(array), np.int64)
    if not 0 <= grades.min() <= grades.max() <= 30:
        raise ValueError(f"grades must be from 0 (not relevant) to 30, got {grades.min()} to {grades.max()}")
    graded = np.unique(np.column_stack([array[:, :2], grades]).astype(np.int64), axis=0)
    twice = (graded[1:, :2] == graded[:-1, :2]).all(axis=1)
    if twice.any():
        query, item, grade = graded[:-1][twice][0]
        raise ValueError(f"pairs must grade query {query} and item {item} once, got {grade} and another grade")
    _check_informative(graded, n_items)
    return graded


def _check_informative(pairs: Rows, n_items: int) -> None:
    """Some query must have both relevant and other items: only those say something about an order."""
    n_relevant = np.bincount(pairs[pairs[:, 2] > 0, 0]) if (pairs[:, 2] > 0).any() else np.zeros(0, int)
    if not n_relevant.any():
        raise ValueError("pairs must name at least one relevant item, with a grade above 0, got none")
    if not ((n_relevant > 0) & (n_relevant < n_items)).any():
        raise ValueError(f"pairs must leave items that are not relevant, got all {n_items} items as relevant")


def _from_sparse(matrix: Any, n_items: int, n_queries: int) -> Rows:
    if matrix.shape != (n_queries, n_items):
        raise ValueError(f"a matrix of pairs must have shape {(n_queries, n_items)}, got {matrix.shape}")
    entries = matrix.tocoo()
    grades = np.asarray(entries.data)
    if not np.array_equal(grades, np.round(grades)):
        raise ValueError("a matrix of pairs must hold whole numbers as grades, got fractions")
    return np.column_stack([entries.row, entries.col, grades]).astype(np.int64)


def read_qrels(
    path: str | os.PathLike[str],
    query_ids: Sequence[Hashable],
    item_ids: Sequence[Hashable],
    *,
    strict: bool = False,
) -> Qrels:
    """Read relevance judgements: TREC's `query 0 item grade`, or `query item grade` with or without a header.

    Parameters
    ----------
    path : str or path
    query_ids, item_ids : sequences of ids
        The rows that the ids stand for; ids are compared as text.
    strict : bool
        Refuse unknown ids with a ValueError; by default their lines are skipped and counted.

    Returns
    -------
    Qrels
        `pairs` for `fit_pairs`, and `n_unknown`.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("test.qrels").write_text("q1 0 doc2 1\\nq1 0 doc9 2\\n")
    >>> read_qrels("test.qrels", ["q1"], ["doc1", "doc2"])
    Qrels(pairs=array([[0, 1, 1]]), n_unknown=1)
    """
    rows_of_queries, rows_of_items = _rows_of(query_ids, "query_ids"), _rows_of(item_ids, "item_ids")
    pairs, unknown, example = [], 0, ""
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            fields = line.split()
            if not fields or (number == 1 and len(fields) == 3 and not _is_grade(fields[2])):
                continue  # an empty line, or a header
            if len(fields) not in (3, 4) or not _is_grade(fields[-1]):
                raise ValueError(
                    f"{path}:{number} must be `query 0 item grade` or `query item grade`, got {line!r:.80}"
                )
            query, item, grade = rows_of_queries.get(fields[0]), rows_of_items.get(fields[-2]), int(fields[-1])
            if query is None or item is None:
                if strict:
                    raise ValueError(f"{path}:{number} must name known ids, got query {fields[0]}, item {fields[-2]}")
                unknown, example = unknown + 1, f"query {fields[0]}, item {fields[-2]}"
                continue
            pairs.append((query, item, max(grade, 0)))  # TREC marks some items that are not relevant by -1 or -2
    if unknown and not pairs:
        raise ValueError(f"{path} must name known ids, got none in {unknown} lines, the last with {example}")
    return Qrels(np.array(pairs, np.int64).reshape(-1, 3), unknown)


def _rows_of(ids: Sequence[Hashable], name: str) -> dict[str, int]:
    rows = {str(each): row for row, each in enumerate(ids)}
    if len(rows) != len(ids):
        raise ValueError(f"{name} must be unique, got one twice")
    return rows


def _is_grade(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 10
