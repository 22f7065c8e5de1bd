"""`RequestLog`: writes that a client may send again, each done once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import sqlalchemy as sa

from bitrank.service.store.database import Database
from bitrank.service.store.tables import requests

REMEMBERED_S = 7 * 24 * 3600

Outcome = dict[str, Any]
Write = Callable[[sa.Connection], Outcome | None]  # within a transaction


class RequestKey(NamedTuple):
    """The key that a client chose for a write, and what the write was."""

    key: str
    fingerprint: str


class RequestLog:
    """Outcomes of writes by their keys."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def once(self, request: RequestKey | None, prepare: Callable[[], Write]) -> Outcome:
        """Prepare and do a write and keep its outcome, in one transaction, unless it was done before."""
        known = self._outcome(request)
        if known is not None:
            return known
        write = prepare()
        try:
            with self._database.write() as connection:
                known = None if request is None else _known(connection, request)
                if known is not None:
                    return known
                outcome = write(connection) or {}
                if request is not None:
                    connection.execute(sa.delete(requests).where(requests.c.time < time.time() - REMEMBERED_S))
                    row = {**request._asdict(), "time": time.time(), "outcome": json.dumps(outcome)}
                    connection.execute(sa.insert(requests), row)
                return outcome
        except sa.exc.IntegrityError:
            known = self._outcome(request)  # another process did it between our look and our insert
            if known is None:
                raise
            return known

    def _outcome(self, request: RequestKey | None) -> Outcome | None:
        """Read what came of a write; None where it was never done, or has no key."""
        if request is None:
            return None
        with self._database.read() as connection:
            return _known(connection, request)


def _known(connection: sa.Connection, request: RequestKey) -> Outcome | None:
    row = connection.execute(sa.select(requests).where(requests.c.key == request.key)).first()
    if row is None:
        return None
    if row.fingerprint != request.fingerprint:
        raise ValueError(f"the Idempotency-Key must be new for another request, got {request.key!r:.80} again")
    outcome: Outcome = json.loads(row.outcome)
    return outcome
