"""`ItemStore`: items that the API added, replaced or removed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from bitrank.service.store.database import Database, next_change
from bitrank.service.store.tables import items


class Item(NamedTuple):
    """An item that the API added or removed."""

    id: int
    removed: bool
    code: bytes
    title: str | None
    image: str | None
    payload: dict[str, Any]


def add_items(connection: sa.Connection, batch: Sequence[Item]) -> None:
    """Add or replace items, within a transaction."""
    number = next_change(connection, "items")
    rows = [item._asdict() | {"payload": json.dumps(item.payload), "changed": number} for item in batch]
    if rows:
        connection.execute(sa.delete(items).where(items.c.id.in_([item.id for item in batch])))
        connection.execute(sa.insert(items), rows)


class ItemStore:
    """Items, and the number of the last change to them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, batch: Sequence[Item]) -> None:
        """Add or replace items, all or none."""
        with self._database.write() as connection:
            add_items(connection, batch)

    def changed(self, after: int) -> tuple[int, list[Item]]:
        """Read the number of the last change, and all items changed after a number."""
        last, rows = self._database.changed("items", after, sa.select(items).where(items.c.changed > after))
        return last, [
            Item(row.id, row.removed, row.code, row.title, row.image, json.loads(row.payload)) for row in rows or ()
        ]
