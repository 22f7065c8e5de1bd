"""`GateLog`: what the click gate found over time, and the activations that followed."""

from __future__ import annotations

import json
import time
from typing import Any

import sqlalchemy as sa

from bitrank.service.store.database import Database
from bitrank.service.store.profiles import (
    activate_version,
    add_version,
    lock_profile,
    read_activations,
    roll_back,
)
from bitrank.service.store.rankings import Ranking
from bitrank.service.store.tables import quality


class GateLog:
    """Findings of the gate, one per profile and number of pages."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(
        self,
        profile: str,
        n_pages: int,
        figures: dict[str, Any],
        active: int,
        candidate: Ranking | None,
        clients: dict[str, float] | None = None,
        undo: bool = False,
        *,
        again: bool = False,
    ) -> int | None:
        """Log what the gate found after n pages; a candidate that passed becomes a version and is activated.

        With `undo` the last activation is undone instead. `clients` taught the candidate. With `again`, what was found
        after as many pages before is replaced.

        Does nothing where another process decided at the same page, and activates nothing where the active version
        has changed meanwhile. Returns the number of the new version, if any.
        """
        try:
            with self._database.write() as connection:
                lock_profile(connection, profile)
                if again:
                    connection.execute(
                        sa.delete(quality).where(quality.c.profile == profile, quality.c.n_pages == n_pages)
                    )
                row = {"profile": profile, "n_pages": n_pages, "time": time.time(), "figures": json.dumps(figures)}
                connection.execute(sa.insert(quality), row)
                if read_activations(connection, profile)[-1].version != active:
                    return None
                if undo:
                    roll_back(connection, profile, "alarm")
                if undo or candidate is None:
                    return None
                made = add_version(connection, profile, candidate, "clicks", figures, n_pages, active, clients)
                number = made.number
                activate_version(connection, profile, number, "gate", n_pages)
                return number
        except sa.exc.IntegrityError:
            return None

    def count(self, profile: str, after: int) -> tuple[int, int, int]:
        """Count the decisions after a page, and those for a candidate; and read the last page that was decided at."""
        later = sa.and_(quality.c.profile == profile, quality.c.n_pages > after)
        query = sa.select(quality.c.n_pages, quality.c.figures).where(later).order_by(quality.c.n_pages)
        rows = self._database.rows(query)
        activated = sum(json.loads(row.figures)["decision"] == "activate" for row in rows)
        return len(rows), activated, rows[-1].n_pages if rows else after

    def alarms(self) -> dict[str, bool]:
        """Read whether the newest finding of each profile is an alarm; profiles without any are left out."""
        newest = sa.select(quality.c.profile, sa.func.max(quality.c.n_pages).label("n_pages"))
        newest_of = newest.group_by(quality.c.profile).subquery()
        same = sa.and_(quality.c.profile == newest_of.c.profile, quality.c.n_pages == newest_of.c.n_pages)
        query = sa.select(quality.c.profile, quality.c.figures).join(newest_of, same)
        return {row.profile: bool(json.loads(row.figures)["alarm"]) for row in self._database.rows(query)}

    def findings(self, profile: str, limit: int) -> list[dict[str, Any]]:
        """Read the newest findings, oldest first."""
        query = sa.select(quality).where(quality.c.profile == profile).order_by(quality.c.n_pages.desc()).limit(limit)
        rows = self._database.rows(query)
        return [{"time": row.time, "n_pages": row.n_pages} | json.loads(row.figures) for row in reversed(rows)]
