"""`ClientStore`: what is known of every client of a profile, and the clients whom an operator blocked."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

import numpy as np
import sqlalchemy as sa

from bitrank.clicks.robust import Facts
from bitrank.service.store.database import Database, next_change
from bitrank.service.store.profiles import activate_version, active_stack, lock_profile, read_activations
from bitrank.service.store.tables import activations, blocked_clients, clients, profiles, versions


class ClientStore:
    """Clients by name: keyed hashes of addresses, or of sessions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def facts(self, profile: str) -> dict[str, Facts]:
        """Read what is known of the clients of a profile."""
        return {
            row.client: Facts(
                row.n_pages,
                np.frombuffer(row.sums, "<f8").reshape(-1, 3).astype(np.float64),
                np.frombuffer(row.taste, "<f4").astype(np.float32),
                row.left_out,
            )
            for row in self._database.rows(sa.select(clients).where(clients.c.profile == profile))
        }

    def n_pages(self) -> dict[str, dict[str, tuple[int, bool]]]:
        """Read per profile and client the number of pages, and whether its clicks go against the rest."""
        columns = clients.c.profile, clients.c.client, clients.c.n_pages, clients.c.left_out
        found: dict[str, dict[str, tuple[int, bool]]] = {}
        for profile, client, n, left_out in self._database.rows(sa.select(*columns)):
            found.setdefault(profile, {})[client] = n, left_out
        return found

    def blocked(self, after: int = -1) -> tuple[int, set[str] | None]:
        """Read the number of the last change and, if it is not `after`, the clients who are blocked."""
        last, rows = self._database.changed("blocked", after, sa.select(blocked_clients.c.client))
        return last, None if rows is None else {client for (client,) in rows}

    def block(self, client: str) -> bool:
        """Block a client, and roll profiles back to versions that it did not teach; False where it was blocked before.

        The learner reads this within a moment, and learns again without the pages of the client.
        """
        with self._database.write() as connection:
            next_change(connection, "blocked")
            is_client = blocked_clients.c.client == client
            if connection.execute(sa.select(blocked_clients.c.client).where(is_client)).first() is not None:
                return False
            connection.execute(sa.insert(blocked_clients), {"client": client, "time": time.time()})
            connection.execute(sa.delete(clients).where(clients.c.client == client))
            names = connection.execute(sa.select(profiles.c.name).order_by(profiles.c.name)).scalars().all()
            for profile in names:
                lock_profile(connection, profile)
                stack = active_stack(read_activations(connection, profile))
                taught = _taught_by(connection, profile, client)
                if stack[-1] in taught:
                    clean = next(version for version in reversed(stack) if version not in taught)
                    activate_version(connection, profile, clean, "block")
        return True

    def unblock(self, client: str) -> bool:
        """Learn from a client again; False where it was not blocked."""
        with self._database.write() as connection:
            next_change(connection, "blocked")
            return connection.execute(sa.delete(blocked_clients).where(blocked_clients.c.client == client)).rowcount > 0


def write_facts(connection: sa.Connection, profile: str, facts: Mapping[str, Facts]) -> None:
    """Keep what is known of clients, within a transaction."""
    names = list(facts)
    for start in range(0, len(names), 500):
        part = names[start : start + 500]
        connection.execute(sa.delete(clients).where(clients.c.profile == profile, clients.c.client.in_(part)))
        connection.execute(sa.insert(clients), [_row(profile, client, facts[client]) for client in part])


def _row(profile: str, client: str, facts: Facts) -> dict[str, object]:
    sums, taste = facts.sums.astype("<f8").tobytes(), facts.taste.astype("<f4").tobytes()
    known = {"n_pages": facts.n_pages, "sums": sums, "taste": taste, "left_out": facts.left_out}
    return {"profile": profile, "client": client} | known


def _taught_by(connection: sa.Connection, profile: str, client: str) -> set[int]:
    """Versions that were ever active and that a client taught."""
    used = sa.select(activations.c.version).where(activations.c.profile == profile)
    query = sa.select(versions.c.number, versions.c.clients).where(
        versions.c.profile == profile, versions.c.clients.is_not(None), versions.c.number.in_(used)
    )
    return {row.number for row in connection.execute(query) if client in json.loads(row.clients)}
