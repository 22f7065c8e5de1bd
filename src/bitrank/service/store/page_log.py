"""`PageLog`: every answered page, numbered per profile in the order of commits."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import numpy as np
import sqlalchemy as sa

from bitrank.clicks import LoggedPage, Page
from bitrank.core.codes import signs
from bitrank.service.store.database import Database
from bitrank.service.store.tables import pages, profiles


class PageLog:
    """Pages with the codes that learning needs, so that they outlive their items."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, logged: LoggedPage, page: Page, *, signed: bool) -> tuple[bool, int]:
        """Log a page under its key; returns whether the key is new, and the number of pages of its profile.

        `logged` names the profile, and `page` holds the same items in the same order. `signed` says that the service
        itself showed the page.
        """
        profile = profiles.c.name == logged.profile
        try:
            with self._database.write() as connection:
                known = connection.execute(sa.select(pages.c.number).where(pages.c.key == logged.key)).first()
                if known is None:
                    # The row of the profile stays locked until the commit: pages are numbered in commit order.
                    connection.execute(sa.update(profiles).where(profile).values(n_pages=profiles.c.n_pages + 1))
                    number = connection.execute(sa.select(profiles.c.n_pages).where(profile)).scalar_one()
                    connection.execute(sa.insert(pages), _row(logged, page, signed, int(number)))
                    return True, int(number)
        except sa.exc.IntegrityError:
            pass  # another process logged the same key between our look and our insert
        with self._database.read() as connection:
            return False, int(connection.execute(sa.select(profiles.c.n_pages).where(profile)).scalar_one())

    def after(self, profile: str, number: int, limit: int) -> list[Any]:
        """Read the next rows of a profile's log, oldest first; `read_page` makes pages of them."""
        return self._rows(sa.and_(pages.c.profile == profile, pages.c.number > number), limit)

    def rows(self, profile: str, numbers: list[int]) -> list[Any]:
        """Read these rows of a profile's log, oldest first."""
        return self._rows(sa.and_(pages.c.profile == profile, pages.c.number.in_(numbers)), len(numbers))

    def _rows(self, condition: sa.ColumnElement[bool], limit: int) -> list[Any]:
        query = sa.select(pages).where(condition).order_by(pages.c.number).limit(limit)
        with self._database.read() as connection:
            return list(connection.execute(query))

    def newest(self, profile: str, after: int, n: int) -> list[int]:
        """Numbers of the newest pages after a page, at most n; no client has more of them than it must."""
        name = sa.func.coalesce(pages.c.client, pages.c.key)
        query = sa.select(pages.c.number, name).where(pages.c.profile == profile, pages.c.number > after)
        with self._database.read() as connection:
            known = [(int(number), client) for number, client in connection.execute(query)]
        counts = np.sort(np.array([*Counter(client for _, client in known).values()], np.int64))
        if counts.sum() > n:
            most = next(m for m in range(counts[-1], -1, -1) if np.minimum(counts, m).sum() <= n)
            taken: Counter[str] = Counter()
            kept = []
            for number, client in sorted(known, reverse=True):
                taken[client] += 1
                if taken[client] <= most:
                    kept.append((number, client))
            known = kept
        return sorted(number for number, _ in known)

    def answered(self, profile: str, items: list[int]) -> set[int]:
        """Tell which items were the query of a page of a profile."""
        query = sa.select(pages.c.query_item).where(pages.c.profile == profile, pages.c.query_item.in_(items))
        with self._database.read() as connection:
            return set(connection.execute(query.distinct()).scalars())


def read_page(row: Any) -> Page:
    """Read the page of a row, or raise a ValueError where it cannot be learned from."""
    query = np.frombuffer(row.query_code, np.uint8)
    if row.magnitudes is not None:
        magnitudes = np.frombuffer(row.magnitudes, "<f4").astype(np.float32)
        query = signs(query[None], len(magnitudes))[0] * magnitudes
    shown = json.loads(row.shown)
    return Page(
        query,
        np.frombuffer(row.shown_codes, np.uint8).reshape(-1, len(row.query_code)),
        np.array([place["clicked"] for place in shown], bool),
        np.array([place["explored"] for place in shown], bool),
        row.client,
    )


def _row(logged: LoggedPage, page: Page, signed: bool, number: int) -> dict[str, Any]:
    shown = [
        {"id": item, "explored": explored, "clicked": clicked}
        for item, explored, clicked in zip(logged.shown, page.explored.tolist(), page.clicked.tolist(), strict=True)
    ]
    return {
        "key": logged.key,
        "profile": logged.profile,
        "number": number,
        "time": time.time(),
        "version": logged.version,
        "query_item": logged.query.get("item"),
        "query_code": page.query_code.tobytes(),
        "magnitudes": np.abs(page.query).astype("<f4").tobytes() if page.query.dtype.kind == "f" else None,
        "shown": json.dumps(shown),
        "shown_codes": page.shown_codes.tobytes(),
        "signed": signed,
        "client": logged.client,
    }
