"""OpenSearch's User Behavior Insights: lines of `ubi_queries` and `ubi_events` with one query_id as one page."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitrank.clicks.logged_pages import QUERY_KINDS, LoggedPage, check_id, check_query


class UbiPage:
    """The lines with one query_id, collected in any order."""

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
