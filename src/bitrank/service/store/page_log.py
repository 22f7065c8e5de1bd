"""`PageLog`: every answered page, numbered per profile in the order of commits."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa

from bitrank.clicks import LoggedPage, Page
from bitrank.core.codes import signs
from bitrank.service.settings import TOKEN_LIFETIME_S, Retention
from bitrank.service.store.database import Database
from bitrank.service.store.tables import pages, profiles

_CLIENT = sa.func.coalesce(pages.c.client, pages.c.key)
_ROW_BYTES = 200  # of a row without what was shown


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
        return False, int(self._database.scalar(sa.select(profiles.c.n_pages).where(profile)))

    def after(self, profile: str, number: int, limit: int) -> Sequence[Any]:
        """Read the next rows of a profile's log, oldest first; `read_page` makes pages of them."""
        return self._rows(sa.and_(pages.c.profile == profile, pages.c.number > number), limit)

    def rows(self, profile: str, numbers: list[int]) -> Sequence[Any]:
        """Read these rows of a profile's log, oldest first."""
        return self._rows(sa.and_(pages.c.profile == profile, pages.c.number.in_(numbers)), len(numbers))

    def _rows(self, condition: sa.ColumnElement[bool], limit: int) -> Sequence[Any]:
        query = sa.select(pages).where(condition, pages.c.shown != "").order_by(pages.c.number).limit(limit)
        return self._database.rows(query)

    def newest(self, profile: str, after: int, n: int) -> list[int]:
        """Numbers of the newest pages after a page, at most n; no client has more of them than it must."""
        later = sa.and_(pages.c.profile == profile, pages.c.number > after, pages.c.shown != "")
        query = sa.select(pages.c.number, _CLIENT).where(later)
        return _newest([(number, client) for number, client in self._database.rows(query)], n)

    def n_of_clients(self, profile: str, after: int, last: int) -> dict[str, int]:
        """Count the pages of every client after a page and up to another; who has no name has one page."""
        between = sa.and_(pages.c.profile == profile, pages.c.number > after, pages.c.number <= last)
        client = sa.func.coalesce(pages.c.client, sa.literal("page ") + sa.cast(pages.c.number, sa.String))
        return dict(self._database.rows(sa.select(client, sa.func.count()).where(between).group_by(client)))

    def prune(self, profile: str, keep: Retention) -> int:
        """Forget the pages of a profile that are too old or too many; returns how many.

        Where there are too many, the busiest clients lose their oldest. The key of a page stays for as long as its
        token lives, so that the page cannot be answered again.
        """
        size = sa.func.length(pages.c.shown) + sa.func.length(pages.c.shown_codes) + _ROW_BYTES
        present = sa.and_(pages.c.profile == profile, pages.c.shown != "")
        totals = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(size), 0), sa.func.min(pages.c.time))
        busiest = sa.select(sa.func.count()).where(present).group_by(_CLIENT).order_by(sa.func.count().desc()).limit(1)
        query = sa.select(pages.c.number, _CLIENT, pages.c.time).where(present).order_by(pages.c.number)
        now = time.time()
        oldest = now - 86400 * keep.days if keep.days else 0.0
        with self._database.read() as connection:
            n, n_bytes, first = connection.execute(totals.where(present)).one()
            most = connection.scalar(busiest) or 0
            few = n <= (keep.pages or n) and n_bytes <= (keep.bytes or n_bytes) and most <= (keep.client_pages or most)
            rows = [] if few and (first or now) >= oldest else connection.execute(query).all()
        known = [(int(number), client) for number, client, seconds in rows if seconds >= oldest]
        limit = min(keep.pages or n, int(keep.bytes * n / n_bytes) if keep.bytes and n else n)
        kept = set(_newest(known, limit, keep.client_pages or limit))
        gone = [int(row.number) for row in rows if row.number not in kept]
        forgotten = {"shown": "", "shown_codes": b"", "magnitudes": None}
        for start in range(0, len(gone), 500):  # writers wait for one part at most
            of_part = pages.c.number.in_(gone[start : start + 500])
            with self._database.write() as connection:
                connection.execute(sa.update(pages).where(pages.c.profile == profile, of_part).values(forgotten))
        with self._database.write() as connection:
            is_over = pages.c.time < now - TOKEN_LIFETIME_S
            connection.execute(sa.delete(pages).where(pages.c.profile == profile, pages.c.shown == "", is_over))
        return len(gone)

    def answered(self, profile: str, items: list[int]) -> set[int]:
        """Tell which items were the query of a page of a profile."""
        query = sa.select(pages.c.query_item).where(pages.c.profile == profile, pages.c.query_item.in_(items))
        return {item for (item,) in self._database.rows(query.distinct())}


def _newest(known: list[tuple[int, str]], n: int, most: int | None = None) -> list[int]:
    """Numbers of the newest of some pages, at most n, and of no client more than it must be, or than `most`."""
    counts = np.array([*Counter(client for _, client in known).values()], np.int64)
    most = int(counts.max(initial=0)) if most is None else most
    further = 0  # clients who keep one page more
    if np.minimum(counts, most).sum() > n:
        most = next(m for m in range(most, -1, -1) if np.minimum(counts, m).sum() <= n)
        further = n - int(np.minimum(counts, most).sum())
    taken: Counter[str] = Counter()
    kept = []
    for number, client in sorted(known, reverse=True):
        taken[client] += 1
        if taken[client] == most + 1 and further:
            further -= 1
        elif taken[client] > most:
            continue
        kept.append(number)
    return kept[::-1]


def read_page(row: Any) -> Page:
    """Read the page of a row, or raise a ValueError where it cannot be learned from."""
    query = np.frombuffer(row.query_code, np.uint8)
    if row.magnitudes is not None:
        magnitudes = np.frombuffer(row.magnitudes, "<f4").astype(np.float32)
        query = signs(query[None], len(magnitudes))[0] * magnitudes
    codes = np.frombuffer(row.shown_codes, np.uint8).reshape(-1, len(row.query_code))
    shown = json.loads(row.shown)
    clicked, explored = np.zeros(len(codes), bool), np.zeros(len(codes), bool)
    if isinstance(shown, dict):
        clicked[shown["clicked"]], explored[shown["explored"]] = True, True
    else:  # of format 7 and before
        clicked[:], explored[:] = ([place[name] for place in shown] for name in ("clicked", "explored"))
    return Page(query, codes, clicked, explored, row.client)


def _row(logged: LoggedPage, page: Page, signed: bool, number: int) -> dict[str, Any]:
    places = {
        name: flags.nonzero()[0].tolist() for name, flags in (("explored", page.explored), ("clicked", page.clicked))
    }
    return {
        "key": logged.key,
        "profile": logged.profile,
        "number": number,
        "time": time.time(),
        "version": logged.version,
        "query_item": logged.query.get("item"),
        "query_code": page.query_code.tobytes(),
        "magnitudes": np.abs(page.query).astype("<f4").tobytes() if page.query.dtype.kind == "f" else None,
        "shown": json.dumps({"ids": logged.shown, **places}, separators=(",", ":")),
        "shown_codes": page.shown_codes.tobytes(),
        "signed": signed,
        "client": logged.client,
    }
