"""`JudgementStore`: judged queries that the API added, changed or removed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

import sqlalchemy as sa

from bitrank.service.store.database import Database, next_change
from bitrank.service.store.tables import judgements

Named = dict[int, tuple[int, bool]]  # grade from 1 by item, and whether an operator pinned it


class Judged(NamedTuple):
    """A judged query; one that names no items is removed, also where the collection's folder holds it."""

    query: str
    code: bytes
    items: Named


def put(connection: sa.Connection, batch: list[Judged]) -> None:
    """Write judged queries in place of those of the same names, within a transaction."""
    number = next_change(connection, "judgements")
    connection.execute(sa.delete(judgements).where(judgements.c.query.in_([each.query for each in batch])))
    rows = [
        {
            "query": query,
            "code": code,
            "items": json.dumps([[item, *how] for item, how in items.items()]),
            "changed": number,
        }
        for query, code, items in batch
    ]
    connection.execute(sa.insert(judgements), rows)


class JudgementStore:
    """Judged queries, and the number of the last change to them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def join(self, batch: list[Judged], join: Callable[[sa.Connection, list[Judged]], None]) -> None:
        """Write judged queries in a transaction of their own."""
        if batch:
            with self._database.write() as connection:
                join(connection, batch)

    def changed(self, after: int) -> tuple[int, list[Judged]]:
        """Read the number of the last change, and all judged queries changed after a number."""
        query = sa.select(judgements).where(judgements.c.changed > after)
        last, rows = self._database.changed("judgements", after, query)
        return last, [
            Judged(row.query, row.code, {item: (grade, pinned) for item, grade, pinned in json.loads(row.items)})
            for row in rows or ()
        ]
