"""`pairs_from_log`: logged pages as judged pairs, which rankers learn from offline."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.clicks.log import LogReader, Project
from bitrank.clicks.logged_pages import LoggedPage
from bitrank.clicks.page import QueryArray
from bitrank.core.codes import signs
from bitrank.core.types import Codes, Rows


class LoggedPairs(NamedTuple):
    """Queries, and pairs (query, item, grade) of row numbers: grade 1 for items that were clicked, 0 for others shown.

    `n_left_out` counts pages whose query, or all of whose items, the collection lacks.

    Examples
    --------
    >>> page = LoggedPage("a1", {"item": 2}, [0], [False], [0])
    >>> pairs_from_log([page], np.uint8([[1], [2], [3]]), None, 8).pairs
    array([[0, 0, 1]])
    """

    queries: QueryArray
    pairs: Rows
    n_left_out: int


def pairs_from_log(
    pages: Iterable[LoggedPage],
    codes: Codes,
    ids: npt.ArrayLike | None,
    n_bits: int,
    project: Project | None = None,
) -> LoggedPairs:
    """Read judged pairs from logged pages; pages of one query count as one, and a click on any of them counts.

    Parameters
    ----------
    pages : iterable of LoggedPage
    codes : packed codes of the collection
    ids : int array, one per code; 0 to n - 1 by default
    n_bits : int
    project : callable, optional
        `project` of the hasher; needed where queries are vectors. Other queries are then ±1.

    Examples
    --------
    >>> page = LoggedPage("a1", {"item": 2}, [0, 1], [False, False], [1])
    >>> pairs_from_log([page], np.uint8([[1], [2], [3]]), None, 8)
    LoggedPairs(queries=array([[3]], dtype=uint8), pairs=array([[0, 0, 0],
           [0, 1, 1]]), n_left_out=0)
    """
    logged_pages, numbers = list(pages), np.arange(len(codes)) if ids is None else np.asarray(ids)
    reader = LogReader(codes, numbers, n_bits, project)
    rows = {item: row for row, item in enumerate(numbers.tolist())}
    places: dict[bytes, int] = {}
    queries: list[QueryArray] = []
    grades: dict[tuple[int, int], int] = {}
    n_pages = 0
    for logged, page in reader.pages(logged_pages):
        n_pages += 1
        place = places.setdefault(page.query.tobytes(), len(queries))
        if place == len(queries):
            queries.append(page.query)
        for item in logged.shown:
            if item in rows:
                pair = place, rows[item]
                grades[pair] = max(grades.get(pair, 0), int(item in logged.clicked))
    if not queries:
        raise ValueError(f"pages must name items of the collection, got none in {len(logged_pages)} pages")
    pairs = np.array([(*pair, grade) for pair, grade in grades.items()], np.int64)
    return LoggedPairs(_stack(queries, n_bits), pairs, len(logged_pages) - n_pages)


def _stack(queries: list[QueryArray], n_bits: int) -> QueryArray:
    """Queries as one matrix: codes, or reals where any of them is a vector."""
    if not any(query.dtype.kind == "f" for query in queries):
        return np.stack(queries)
    rows = [query if query.dtype.kind == "f" else signs(query[None], n_bits)[0] for query in queries]
    return np.stack(rows).astype(np.float32)
