"""`LoggedPage`: a page by ids, as logs carry it, and checks of its JSON fields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

QUERY_KINDS = ("item", "code", "vector")


class LoggedPage(NamedTuple):
    """A page by ids: the query, the items shown in order, and those clicked, several or none.

    The form in which pages travel: a line of a log, the body of `POST /feedback/import` (which
    `service.schemas.ImportedPage` describes to OpenAPI). Ids need a collection to become codes; `LogReader` turns a
    LoggedPage into a `Page`.

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
