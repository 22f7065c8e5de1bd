"""Logs of clicks as JSON lines: the form that the service takes at `/feedback`, and OpenSearch's UBI.

Read here, they go to a running service, to a file, or through a `LogReader` as pages to a learner.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.checks import check_codes
from bitrank.codes import pack
from bitrank.feedback.pages import Page
from bitrank.files import replacing
from bitrank.vocabulary import Codes, n_bytes

PathLike = str | os.PathLike[str]
Project = Callable[[npt.NDArray[np.float32]], npt.NDArray[Any]]

QUERY_KINDS = ("item", "code", "vector")


class LoggedPage(NamedTuple):
    """One page of a log, by ids: what was asked for, what was shown in which order, and what was clicked."""

    key: str
    query: dict[str, Any]
    shown: list[int]
    explored: list[bool]
    clicked: list[int]
    profile: str | None = None
    version: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The body of `POST /feedback`."""
        shown = [{"id": item, "explored": apart} for item, apart in zip(self.shown, self.explored, strict=True)]
        named = {"profile": self.profile, "version": self.version}
        given = {name: value for name, value in named.items() if value is not None}
        return {"key": self.key, **given, "query": self.query, "shown": shown, "clicked": self.clicked}


def read_log(paths: Sequence[PathLike]) -> list[LoggedPage]:
    """Read pages from JSON lines, of bitrank's own form or of UBI; all files together are one log.

    A line of bitrank's own form is the body of a `POST /feedback`: see the example.

    Of UBI, lines of `ubi_queries` and `ubi_events` may come in any order, bare or as hits with a `_source`. What was
    shown are the impressions in the order of `event_attributes.position.ordinal` or, without any, the hits of the
    query. A query is known by an item, code or vector in its `query_attributes`, or by a `user_query` that is the id
    of an item; one known by neither is left out.

    Parameters
    ----------
    paths : files of JSON lines

    Returns
    -------
    list of LoggedPage, in the order in which their first lines came

    Raises
    ------
    ValueError
        Naming the file and the line, when one is not what it should be; nothing is returned then.

    Examples
    --------
    >>> line = '{"key": "a1", "query": {"item": 7}, "shown": [{"id": 3}, {"id": 4, "explored": true}], "clicked": [4]}'
    >>> with open("clicks.jsonl", "w") as file:
    ...     _ = file.write(line)
    >>> read_log(["clicks.jsonl"])[0].clicked
    [4]
    """
    pages: dict[str, LoggedPage | _UbiPage] = {}
    for path in paths:
        for where, line in _lines(path):
            try:
                _take(pages, line)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None
    found = [page.page() if isinstance(page, _UbiPage) else page for page in pages.values()]
    return [page for page in found if page is not None]


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


def _take(pages: dict[str, Any], line: dict[str, Any]) -> None:
    if "shown" in line:
        page = _own(line)
        if page.key in pages:
            raise ValueError(f"key {page.key!r} comes a second time")
        pages[page.key] = page
    elif "query_id" in line or "action_name" in line:
        if line.get("query_id") is None:
            return  # an event outside of any search
        page = pages.setdefault(_text(line["query_id"], "query_id"), _UbiPage(str(line["query_id"])))
        if not isinstance(page, _UbiPage):
            raise ValueError(f"query_id {page.key!r} is the key of another page")
        page.take(line)
    else:
        raise ValueError(f'expected a page with "shown" or a line of UBI with "query_id", got {sorted(line)!r:.80}')


def _own(line: dict[str, Any]) -> LoggedPage:
    shown, clicked = line["shown"], line.get("clicked")
    if not isinstance(shown, list) or not shown or not all(isinstance(place, dict) for place in shown):
        raise ValueError(f'shown must be a list of {{"id": ..., "explored": ...}}, got {shown!r:.60}')
    if not isinstance(clicked, list):
        raise ValueError(f"clicked must be a list of ids, got {clicked!r:.60}")
    explored = [place.get("explored", False) for place in shown]
    if not all(isinstance(value, bool) for value in explored):
        raise ValueError("explored must be true or false")
    ids, clicks = [_id(place.get("id")) for place in shown], [_id(item) for item in clicked]
    _check_page(ids, clicks)
    return LoggedPage(
        _text(line.get("key"), "key"),
        _query(line.get("query")),
        ids,
        explored,
        clicks,
        line.get("profile"),
        line.get("version") if isinstance(line.get("version"), int) else None,
    )


def _check_page(shown: list[int], clicked: list[int]) -> None:
    if len(set(shown)) < len(shown):
        raise ValueError("shown must hold every item once")
    strangers = set(clicked) - set(shown)
    if strangers:
        raise ValueError(f"clicked must be among what was shown, got {min(strangers)}")


class _UbiPage:
    """What lines of UBI with one query_id have said so far."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.query: dict[str, Any] | None = None
        self.hits: list[int] = []
        self.places: dict[int, float] = {}
        self.explored: set[int] = set()
        self.clicked: dict[int, None] = {}

    def take(self, line: dict[str, Any]) -> None:
        action = line.get("action_name")
        if action is None:
            hits = line.get("query_response_hit_ids") or []
            if not isinstance(hits, list):
                raise ValueError(f"query_response_hit_ids must be a list of ids, got {hits!r:.60}")
            self.hits = [_id(item) for item in hits]
            self.query = _ubi_query(line)
        elif action in ("impression", "click"):
            attributes = _object(line, "event_attributes")
            item = _id(_object(attributes, "object").get("object_id"))
            ordinal = _object(attributes, "position", optional=True).get("ordinal")
            if action == "click":
                self.clicked[item] = None
            if action == "impression" or ordinal is not None:
                self.places.setdefault(item, np.inf if ordinal is None else float(ordinal))
            if attributes.get("explored") is True:
                self.explored.add(item)

    def page(self) -> LoggedPage | None:
        """The page, or None where it is not known what was asked for or shown."""
        shown = sorted(self.places, key=self.places.__getitem__)
        if not shown or set(shown) <= set(self.clicked):  # clicks alone do not say what was skipped
            shown = self.hits
        shown += [item for item in self.clicked if item not in shown]
        if self.query is None or not shown:
            return None
        explored = [item in self.explored for item in shown]
        return LoggedPage(self.key, self.query, shown, explored, list(self.clicked))


def _ubi_query(line: dict[str, Any]) -> dict[str, Any] | None:
    attributes = line.get("query_attributes")
    if isinstance(attributes, dict) and any(kind in attributes for kind in QUERY_KINDS):
        return _query({kind: attributes[kind] for kind in QUERY_KINDS if kind in attributes})
    text = line.get("user_query")
    return {"item": int(text)} if isinstance(text, str) and text.isdecimal() else None


def _query(query: Any) -> dict[str, Any]:
    if not isinstance(query, dict) or len(query) != 1 or not set(query) <= set(QUERY_KINDS):
        raise ValueError(f"query must hold one of {', '.join(QUERY_KINDS)}, got {query!r:.60}")
    ((kind, value),) = query.items()
    if kind == "item":
        return {"item": _id(value)}
    if kind == "code":
        return {"code": _text(value, "code")}
    numbers = isinstance(value, list) and all(isinstance(x, int | float) and not isinstance(x, bool) for x in value)
    if not numbers or not np.isfinite(value).all():
        raise ValueError(f"vector must be a list of finite numbers, got {value!r:.60}")
    return {"vector": value}


def _object(line: dict[str, Any], name: str, optional: bool = False) -> dict[str, Any]:
    value = line.get(name)
    if optional and value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be an object, got {value!r:.60}")
    return value


def _id(value: Any) -> int:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError(f"an id must be a whole number from 0, got {value!r:.60}")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} must be a text, got {value!r:.60}")
    return value


class LogReader:
    """Turns logged pages into pages of codes.

    Parameters
    ----------
    codes : packed codes of the collection
    ids : int array, one a code
    n_bits : int
    project : callable, optional
        Values before the sign of float queries, as `project` of a hasher gives them; needed where queries are vectors.
    """

    def __init__(self, codes: Codes, ids: npt.ArrayLike, n_bits: int, project: Project | None = None) -> None:
        self._codes, self._n_bits, self._project = check_codes(codes, n_bits), n_bits, project
        self._rows = {item: row for row, item in enumerate(np.asarray(ids).tolist())}

    def pages(self, logged: Iterable[LoggedPage]) -> Iterator[tuple[LoggedPage, Page]]:
        """Pages in order; items that are not in the collection are left out, and so are pages without any that is."""
        for each in logged:
            places = [place for place, item in enumerate(each.shown) if item in self._rows]
            if not places or ("item" in each.query and each.query["item"] not in self._rows):
                continue
            code, magnitudes = self._query(each.query)
            clicked = set(each.clicked)
            yield (
                each,
                Page(
                    code,
                    self._codes[[self._rows[each.shown[place]] for place in places]],
                    np.array([each.shown[place] in clicked for place in places]),
                    np.array([each.explored[place] for place in places]),
                    magnitudes,
                ),
            )

    def _query(self, query: dict[str, Any]) -> tuple[Codes, npt.NDArray[np.float32] | None]:
        if "item" in query:
            return self._codes[self._rows[query["item"]]], None
        if "code" in query:
            return parse_code(query["code"], self._n_bits), None
        if self._project is None:
            raise ValueError("queries are vectors: a hasher is needed to make codes of them")
        values = np.asarray(self._project(np.asarray([query["vector"]], np.float32)))
        return pack(values > 0)[0], np.abs(values[0]).astype(np.float32)


def parse_code(text: str, n_bits: int) -> Codes:
    """A packed code from hex digits or base64.

    Examples
    --------
    >>> parse_code("ff80", 9), parse_code("/4A=", 9)
    (array([255, 128], dtype=uint8), array([255, 128], dtype=uint8))
    """
    width = n_bytes(n_bits)
    for read in (bytes.fromhex, lambda given: base64.b64decode(given, validate=True)):
        try:
            raw = read(text)
        except ValueError:
            continue
        if len(raw) == width:
            (code,) = check_codes(np.frombuffer(raw, np.uint8)[None], n_bits, name="code")
            return np.asarray(code)
    raise ValueError(f"code must be {2 * width} hex digits or base64 of {width} bytes, got {text!r:.60}")
