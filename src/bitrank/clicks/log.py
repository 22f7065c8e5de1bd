"""Logs of pages as JSON lines: `read_log`, `write_log`, and `LogReader`, which looks up the codes of their items."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.clicks.logged_pages import LoggedPage, check_text
from bitrank.clicks.page import Page, QueryArray
from bitrank.clicks.ubi import UbiPage
from bitrank.core.checks import check_codes
from bitrank.core.files import replacing
from bitrank.core.types import Codes, n_bytes

PathLike = str | os.PathLike[str]
Project = Callable[[npt.NDArray[np.float32]], npt.NDArray[Any]]


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


class LogReader:
    """Look up the codes of logged pages.

    Parameters
    ----------
    codes : packed codes of the collection
    ids : int array, one per code
    n_bits : int
    project : callable, optional
        `project` of the hasher; needed where queries are vectors.

    Examples
    --------
    >>> reader = LogReader(np.uint8([[0], [1], [3]]), ids=[10, 20, 30], n_bits=8)
    >>> [(_, page)] = reader.pages([LoggedPage("a1", {"item": 10}, [20, 30], [False, True], [30])])
    >>> page.shown_codes.ravel(), page.clicked
    (array([1, 3], dtype=uint8), array([False,  True]))
    """

    def __init__(self, codes: Codes, ids: npt.ArrayLike, n_bits: int, project: Project | None = None) -> None:
        self._codes, self._n_bits, self._project = check_codes(codes, n_bits), n_bits, project
        self._rows = {item: row for row, item in enumerate(np.asarray(ids).tolist())}

    def pages(self, logged_pages: Iterable[LoggedPage]) -> Iterator[tuple[LoggedPage, Page]]:
        """Yield pages in order, without items that the collection lacks; pages with none left are skipped."""
        for logged in logged_pages:
            places = [place for place, item in enumerate(logged.shown) if item in self._rows]
            if not places or ("item" in logged.query and logged.query["item"] not in self._rows):
                continue
            clicked = set(logged.clicked)
            page = Page(
                self._query(logged.query),
                self._codes[[self._rows[logged.shown[place]] for place in places]],
                np.array([logged.shown[place] in clicked for place in places]),
                np.array([logged.explored[place] for place in places]),
                logged.client,
            )
            yield logged, page

    def _query(self, query: dict[str, Any]) -> QueryArray:
        if "item" in query:
            return self._codes[[self._rows[query["item"]]]]
        if "code" in query:
            return parse_code(query["code"], self._n_bits)
        if self._project is None:
            raise ValueError("queries are vectors: a hasher is needed to turn them into codes")
        return np.asarray(self._project(np.asarray([query["vector"]], np.float32)), np.float32)


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
