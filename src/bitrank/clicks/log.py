"""Logs of pages as JSON lines: `LoggedPage`, `read_log`, `write_log`, and what a collection makes of them.

`pages_from_log` gives pages of codes, which clicks are learned from, and `pairs_from_log` judged pairs for any ranker.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.clicks.page import Page, QueryArray, stack_queries
from bitrank.core.checks import check_codes
from bitrank.core.files import replacing
from bitrank.core.types import Codes, Rows, n_bytes

PathLike = str | os.PathLike[str]
Project = Callable[[npt.NDArray[np.float32]], npt.NDArray[Any]]
QUERY_KINDS = ("item", "code", "vector")


class LoggedPage(NamedTuple):
    """A page by ids: the query, the items shown in order, and those clicked, several or none.

    The form in which pages travel: a line of a log, the body of `POST /feedback/import` (which
    `service.schemas.ImportedPage` describes to OpenAPI). Ids need a collection to become codes: see `pages_from_log`.

    Examples
    --------
    >>> page = LoggedPage("a1", {"item": 7}, [3, 4], [False, True], [4])
    >>> LoggedPage.from_json(page.to_json()) == page
    True
    """

    key: str
    query: dict[str, Any]
    shown: list[int]
    explored: list[bool]
    clicked: list[int]
    profile: str | None = None
    version: int | None = None
    client: str | None = None  # who answered, where that is known

    def to_json(self) -> dict[str, Any]:
        """Build a line of a log."""
        shown = [{"id": item, "explored": flag} for item, flag in zip(self.shown, self.explored, strict=True)]
        optional = {"profile": self.profile, "version": self.version, "client": self.client}
        present = {name: value for name, value in optional.items() if value is not None}
        return {"key": self.key, **present, "query": self.query, "shown": shown, "clicked": self.clicked}

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> LoggedPage:
        """Read a line of a log; raises a ValueError that names the field."""
        shown, clicked = line.get("shown"), line.get("clicked")
        if not isinstance(shown, list) or not shown or not all(isinstance(place, dict) for place in shown):
            raise ValueError(f'shown must be a list of {{"id": ..., "explored": ...}}, got {shown!r:.60}')
        if not isinstance(clicked, list):
            raise ValueError(f"clicked must be a list of ids, got {clicked!r:.60}")
        explored = [place.get("explored", False) for place in shown]
        for flag in explored:
            if not isinstance(flag, bool):
                raise ValueError(f"explored must be true or false, got {flag!r:.60}")
        ids, clicked_ids = [check_id(place.get("id")) for place in shown], [check_id(item) for item in clicked]
        check_clicked(ids, clicked_ids)
        return cls(
            check_text(line.get("key"), "key"),
            check_query(line.get("query")),
            ids,
            explored,
            clicked_ids,
            line.get("profile"),
            line.get("version") if isinstance(line.get("version"), int) else None,
            None if line.get("client") is None else check_text(line["client"], "client"),
        )


def check_clicked(shown: list[int], clicked: Iterable[int]) -> None:
    """Check that a page shows every item once and that only shown items were clicked."""
    if len(set(shown)) < len(shown):
        raise ValueError("shown must hold every item once")
    unknown = set(clicked) - set(shown)
    if unknown:
        raise ValueError(f"clicked must be among the items shown, got {min(unknown)}")


def check_query(query: Any) -> dict[str, Any]:
    """Check a query: exactly one of an item, a code and a vector."""
    if not isinstance(query, dict) or len(query) != 1 or not set(query) <= set(QUERY_KINDS):
        raise ValueError(f"query must hold one of {', '.join(QUERY_KINDS)}, got {query!r:.60}")
    ((kind, value),) = query.items()
    if kind == "item":
        return {"item": check_id(value)}
    if kind == "code":
        return {"code": check_text(value, "code")}
    numbers = isinstance(value, list) and all(isinstance(x, int | float) and not isinstance(x, bool) for x in value)
    if not numbers or not np.isfinite(value).all():
        raise ValueError(f"vector must be a list of finite numbers, got {value!r:.60}")
    return {"vector": value}


def check_id(value: Any) -> int:
    """Check an id: a whole number, or its decimal digits."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError(f"an id must be a whole number from 0 to 2**63 - 1, got {value!r:.60}")
    return value


def check_text(value: Any, name: str) -> str:
    """Check a text that must not be empty."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} must be a text, got {value!r:.60}")
    return value


class UbiPage:
    """Lines of OpenSearch's User Behavior Insights with one query_id, collected in any order."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._query: dict[str, Any] | None = None
        self._hits: list[int] = []
        self._places: dict[int, float] = {}
        self._explored: set[int] = set()
        self._clicked: dict[int, None] = {}

    def add(self, line: dict[str, Any]) -> None:
        """Add a query or an event; events other than impressions and clicks say nothing here."""
        action = line.get("action_name")
        if action is None:
            hits = line.get("query_response_hit_ids") or []
            if not isinstance(hits, list):
                raise ValueError(f"query_response_hit_ids must be a list of ids, got {hits!r:.60}")
            self._hits = [check_id(item) for item in hits]
            self._query = _query(line)
        elif action in ("impression", "click"):
            attributes = _object(line, "event_attributes")
            item = check_id(_object(attributes, "object").get("object_id"))
            ordinal = _object(attributes, "position", optional=True).get("ordinal")
            if action == "click":
                self._clicked[item] = None
            if action == "impression" or ordinal is not None:
                self._places.setdefault(item, np.inf if ordinal is None else float(ordinal))
            if attributes.get("explored") is True:
                self._explored.add(item)

    def page(self) -> LoggedPage | None:
        """Build the page; None where the query or the items shown are unknown."""
        shown = sorted(self._places, key=self._places.__getitem__)
        if not shown or set(shown) <= set(self._clicked):  # clicks alone do not say what was skipped
            shown = list(self._hits)
        shown += [item for item in self._clicked if item not in shown]
        if self._query is None or not shown:
            return None
        explored = [item in self._explored for item in shown]
        return LoggedPage(self.key, self._query, shown, explored, list(self._clicked))


def _query(line: dict[str, Any]) -> dict[str, Any] | None:
    attributes = line.get("query_attributes")
    if isinstance(attributes, dict) and any(kind in attributes for kind in QUERY_KINDS):
        return check_query({kind: attributes[kind] for kind in QUERY_KINDS if kind in attributes})
    text = line.get("user_query")
    return {"item": int(text)} if isinstance(text, str) and text.isdecimal() else None


def _object(line: dict[str, Any], name: str, optional: bool = False) -> dict[str, Any]:
    value = line.get(name)
    if optional and value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be an object, got {value!r:.60}")
    return value


def read_log(paths: Sequence[PathLike]) -> list[LoggedPage]:
    """Read pages from JSON lines, in bitrank's form or as UBI; all files together are one log.

    A line in bitrank's form is a `LoggedPage`: see the example.

    Lines of UBI (`ubi_queries` and `ubi_events`) may come in any order, bare or as hits with a `_source`. The items
    shown are the impressions in the order of `event_attributes.position.ordinal` or, without any, the hits of the
    query. The query is an item, code or vector in `query_attributes`, or a `user_query` that is the id of an item;
    pages with neither are left out.

    Parameters
    ----------
    paths : files of JSON lines

    Returns
    -------
    list of LoggedPage, in the order of their first lines

    Raises
    ------
    ValueError
        Names the file and the line that is wrong; nothing is returned then.

    Examples
    --------
    >>> line = '{"key": "a1", "query": {"item": 7}, "shown": [{"id": 3}, {"id": 4, "explored": true}], "clicked": [4]}'
    >>> with open("clicks.jsonl", "w") as file:
    ...     _ = file.write(line)
    >>> read_log(["clicks.jsonl"])[0].clicked
    [4]
    """
    pages: dict[str, LoggedPage | UbiPage] = {}
    for path in paths:
        for where, line in _lines(path):
            try:
                _add(pages, line)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None
    logged = (page.page() if isinstance(page, UbiPage) else page for page in pages.values())
    return [page for page in logged if page is not None]


def _lines(path: PathLike) -> Iterator[tuple[str, dict[str, Any]]]:
    with open(path, encoding="utf-8") as file:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            where = f"{os.fspath(path)}, line {number}"
            try:
                line = json.loads(text)
            except ValueError as error:
                raise ValueError(f"{where}: not JSON: {error}") from None
            if not isinstance(line, dict):
                raise ValueError(f"{where}: expected an object, got {text.strip()!r:.60}")
            yield where, line.get("_source", line)


def _add(pages: dict[str, Any], line: dict[str, Any]) -> None:
    if "shown" in line:
        page = LoggedPage.from_json(line)
        if page.key in pages:
            raise ValueError(f"key {page.key!r} comes a second time")
        pages[page.key] = page
    elif "query_id" in line or "action_name" in line:
        if line.get("query_id") is None:
            return  # an event outside of any search
        key = check_text(line["query_id"], "query_id")
        page = pages.setdefault(key, UbiPage(key))
        if not isinstance(page, UbiPage):
            raise ValueError(f"query_id {key!r} is the key of another page")
        page.add(line)
    else:
        raise ValueError(f'expected a page with "shown" or a line of UBI with "query_id", got {sorted(line)!r:.80}')


def write_log(path: PathLike, pages: Iterable[LoggedPage]) -> None:
    """Write pages as JSON lines that `read_log` reads; the file appears whole or not at all.

    Examples
    --------
    >>> page = LoggedPage("a1", {"item": 7}, [3, 4], [False, True], [4])
    >>> write_log("clicks.jsonl", [page])
    >>> read_log(["clicks.jsonl"]) == [page]
    True
    """
    with replacing(path) as file:
        file.writelines(f"{json.dumps(page.to_json())}\n".encode() for page in pages)


def pages_from_log(
    logged_pages: Iterable[LoggedPage],
    codes: Codes,
    ids: npt.ArrayLike | None,
    n_bits: int,
    project: Project | None = None,
) -> Iterator[tuple[LoggedPage, Page]]:
    """Look up the codes of logged pages, in order.

    Items that the collection lacks are left out, and so are pages of which it lacks the query or all items. Logs write
    texts of digits as numbers: a number that is no id stands for its text.

    Parameters
    ----------
    logged_pages : iterable of LoggedPage
        They are yielded with the items that are left.
    codes : packed codes of the collection
    ids : array, one per code; 0 to n - 1 by default
    n_bits : int
    project : callable, optional
        `project` of the hasher; needed where queries are vectors.

    Examples
    --------
    >>> logged = LoggedPage("a1", {"item": 10}, [20, 30, 40], [False, True, True], [30])
    >>> [(left, page)] = pages_from_log([logged], np.uint8([[0], [1], [3]]), [10, 20, 30], n_bits=8)
    >>> left.shown, page.shown_codes.ravel(), page.clicked
    ([20, 30], array([1, 3], dtype=uint8), array([False,  True]))
    """
    codes = check_codes(codes, n_bits)
    rows = {item: row for row, item in enumerate(range(len(codes)) if ids is None else np.asarray(ids).tolist())}

    def code_of(query: dict[str, Any]) -> QueryArray:
        if "item" in query:
            return np.asarray(codes[rows[query["item"]]])
        if "code" in query:
            return parse_code(query["code"], n_bits)
        if project is None:
            raise ValueError("queries are vectors: a hasher is needed to turn them into codes")
        return np.asarray(project(np.asarray([query["vector"]], np.float32)), np.float32)

    def id_of(item: Any) -> Any:
        return item if item in rows else str(item)

    for logged in logged_pages:
        query = logged.query | ({"item": id_of(logged.query["item"])} if "item" in logged.query else {})
        shown, clicked = list(map(id_of, logged.shown)), list(map(id_of, logged.clicked))
        places = [place for place, item in enumerate(shown) if item in rows]
        if not places or ("item" in query and query["item"] not in rows):
            continue
        shown, explored = [shown[place] for place in places], [logged.explored[place] for place in places]
        clicked = [item for item in clicked if item in rows]
        shown_codes, is_clicked = codes[[rows[item] for item in shown]], np.array([item in clicked for item in shown])
        left = logged._replace(query=query, shown=shown, explored=explored, clicked=clicked)
        yield left, Page(code_of(query), shown_codes, is_clicked, np.array(explored), logged.client)


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
    codes, ids, n_bits, project : as in `pages_from_log`
        Where a query is a vector, codes of others are read as ±1.

    Examples
    --------
    >>> page = LoggedPage("a1", {"item": 2}, [0, 1], [False, False], [1])
    >>> pairs_from_log([page], np.uint8([[1], [2], [3]]), None, 8)
    LoggedPairs(queries=array([[3]], dtype=uint8), pairs=array([[0, 0, 0],
           [0, 1, 1]]), n_left_out=0)
    """
    logged_pages = list(pages)
    numbers = range(len(codes)) if ids is None else np.asarray(ids).tolist()
    rows = {item: row for row, item in enumerate(numbers)}
    places: dict[bytes, int] = {}
    queries: list[QueryArray] = []
    grades: dict[tuple[int, int], int] = {}
    n_pages = 0
    for logged, page in pages_from_log(logged_pages, codes, ids, n_bits, project):
        n_pages += 1
        place = places.setdefault(page.query.tobytes(), len(queries))
        if place == len(queries):
            queries.append(page.query[None])
        for item in logged.shown:
            pair = place, rows[item]
            grades[pair] = max(grades.get(pair, 0), int(item in logged.clicked))
    if not queries:
        raise ValueError(f"pages must name items of the collection, got none in {len(logged_pages)} pages")
    pairs = np.array([(*pair, grade) for pair, grade in grades.items()], np.int64)
    return LoggedPairs(stack_queries(queries), pairs, len(logged_pages) - n_pages)


def parse_code(text: str, n_bits: int) -> Codes:
    """Parse a packed code from hex digits or base64.

    Examples
    --------
    >>> parse_code("ff80", 9), parse_code("/4A=", 9)
    (array([255, 128], dtype=uint8), array([255, 128], dtype=uint8))
    """
    width = n_bytes(n_bits)
    for decode in (bytes.fromhex, lambda digits: base64.b64decode(digits, validate=True)):
        try:
            raw = decode(text)
        except ValueError:
            continue
        if len(raw) == width:
            (code,) = check_codes(np.frombuffer(raw, np.uint8)[None], n_bits, name="code")
            return np.asarray(code)
    raise ValueError(f"code must be {2 * width} hex digits or base64 of {width} bytes, got {text!r:.60}")
