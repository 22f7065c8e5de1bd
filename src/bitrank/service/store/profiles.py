"""`ProfileStore`: profiles, versions of their weights, and the log of activations."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import sqlalchemy as sa

from bitrank.service.store.database import Database, next_change
from bitrank.service.store.rankings import Ranking, kind_of
from bitrank.service.store.tables import activations, metadata, profiles, versions

HAMMING = "hamming"  # read-only: uniform weights, for comparison
DEFAULT = "default"
MAX_PROFILES = 1000


class Version(NamedTuple):
    """How a profile ranks, and where that came from."""

    profile: str
    number: int
    time: float
    ranking: Ranking
    made_from: int | None
    origin: str  # "uniform", "index", "ranker", "given" or "clicks"
    n_pages: int
    figures: dict[str, Any]
    clients: dict[str, float] | None = None  # who taught it, with their shares of the evidence

    @property
    def key(self) -> tuple[int, float]:
        """What tells it from others, also from those of a profile of the same name that was deleted."""
        return self.number, self.time

    def facts(self) -> dict[str, Any]:
        """What is known of it apart from how it ranks."""
        return _facts(self) | {"kind": self.ranking.kind}


class Activation(NamedTuple):
    """One entry of a profile's log of activations."""

    number: int
    version: int
    reason: str  # "start", "gate", "user", "rollback", "block" or, a rollback by itself, "alarm"
    n_pages: int
    time: float


class ProfileStore:
    """Profiles with their versions and activations."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def n_pages(self) -> dict[str, int]:
        """Count the logged pages of every profile, oldest profile first."""
        query = sa.select(profiles.c.name, profiles.c.n_pages).order_by(profiles.c.created)
        return {row.name: row.n_pages for row in self._database.rows(query)}

    def add(self, name: str, ranking: Ranking, origin: str) -> bool:
        """Create a profile with its first version active; False where it exists already."""
        with self._database.write() as connection:
            return add_profile(connection, name, ranking, origin)

    def begin_with(self, profile: str, ranking: Ranking) -> None:
        """Add a ranker that was learned offline and activate it, unless a version has the same already."""
        with self._database.write() as connection:
            lock_profile(connection, profile)  # others that begin with the same ranker wait here
            query = sa.select(versions).where(versions.c.profile == profile, versions.c.origin == "ranker")
            columns = ranking.columns()  # of a ranker, weights are means over whatever the collection was
            same = ["weights", "ranker"] if ranking.ranker is None else ["ranker"]
            rows = connection.execute(query).all()
            if not any(all(getattr(row, name) == columns[name] for name in same) for row in rows):
                version = add_version(connection, profile, ranking, "ranker", {})
                activate_version(connection, profile, version.number, "user")

    def versions(self, profile: str) -> list[dict[str, Any]]:
        """Read the facts of all versions of a profile, oldest first, and no ranker."""
        query = sa.select(versions).where(versions.c.profile == profile).order_by(versions.c.number)
        return [
            _facts(row) | {"figures": json.loads(row.figures), "kind": kind_of(row.ranker)}
            for row in self._database.rows(query)
        ]

    def n_versions(self, profile: str) -> int:
        """Count the versions of a profile."""
        query = sa.select(sa.func.count()).select_from(versions).where(versions.c.profile == profile)
        return int(self._database.scalar(query))

    def version(self, profile: str, number: int) -> Version | None:
        """Read one version; None where there is none of this number."""
        query = sa.select(versions).where(versions.c.profile == profile, versions.c.number == number)
        return next(map(_read_version, self._database.rows(query)), None)

    def activations(self, profile: str) -> list[Activation]:
        """Read the activations of a profile, oldest first."""
        with self._database.read() as connection:
            return read_activations(connection, profile)

    def last_choice(self, profile: str) -> Activation:
        """Read the last activation by a user: learning begins after it."""
        return [entry for entry in self.activations(profile) if entry.reason not in ("gate", "alarm", "block")][-1]

    def active(self, changed_after: int) -> tuple[int, dict[str, Version]]:
        """Read the number of the last activation of any profile and, if it changed, every active version."""
        newest = sa.select(activations.c.profile, sa.func.max(activations.c.number).label("number"))
        newest_of = newest.group_by(activations.c.profile).subquery()
        joined = (
            sa.select(versions)
            .join(activations, _join(activations, "version", versions))
            .join(newest_of, _join(newest_of, "number", activations))
        )
        last, rows = self._database.changed("versions", changed_after, joined)
        return last, {row.profile: _read_version(row) for row in rows or ()}


def active_stack(log: Iterable[Activation]) -> list[int]:
    """List the versions that rollbacks would go through, the active one last.

    Examples
    --------
    >>> log = [(1, "start"), (2, "gate"), (3, "gate"), (2, "rollback"), (4, "user")]
    >>> active_stack(Activation(n, version, reason, 0, 0.0) for n, (version, reason) in enumerate(log))
    [1, 2, 4]
    """
    stack: list[int] = []
    for entry in log:
        if entry.reason in ("rollback", "alarm"):
            stack.pop()
        elif entry.reason == "block":  # back to the newest version that the client did not teach
            del stack[stack.index(entry.version) + 1 :]
        else:
            stack.append(entry.version)
    return stack


def lock_profile(connection: sa.Connection, profile: str) -> int:
    """Lock the row of a profile until the commit; returns its number of pages."""
    query = sa.select(profiles.c.n_pages).where(profiles.c.name == profile)
    return int(connection.execute(query.with_for_update()).scalar_one())


def roll_back(connection: sa.Connection, profile: str, reason: str = "rollback") -> int | None:
    """Undo the last activation not yet undone, within a transaction."""
    lock_profile(connection, profile)
    stack = active_stack(read_activations(connection, profile))
    if len(stack) < 2:
        return None
    activate_version(connection, profile, stack[-2], reason)
    return stack[-2]


def add_profile(connection: sa.Connection, name: str, ranking: Ranking, origin: str) -> bool:
    """Create a profile with its first version active, within a transaction; False where it exists already."""
    now, query = time.time(), sa.select(profiles.c.name)
    if name in connection.execute(query).scalars().all():  # on a full disk, too, which takes no writes
        return False
    next_change(connection, "versions")  # others that create a profile wait here, and then count this one
    names = connection.execute(query).scalars().all()
    if name in names:
        return False
    if len(names) >= MAX_PROFILES:
        raise ValueError(f"there must be at most {MAX_PROFILES} profiles, got one more")
    connection.execute(sa.insert(profiles), {"name": name, "n_pages": 0, "created": now})
    _insert_version(connection, Version(name, 1, now, ranking, None, origin, 0, {}))
    activate_version(connection, name, 1, "start")
    return True


def add_version(
    connection: sa.Connection,
    profile: str,
    ranking: Ranking,
    origin: str,
    figures: dict[str, Any],
    n_pages: int | None = None,
    made_from: int | None = None,
    clients: dict[str, float] | None = None,
) -> Version:
    """Insert the next version of a profile, within a transaction."""
    n_logged = lock_profile(connection, profile)
    newest = sa.select(sa.func.max(versions.c.number)).where(versions.c.profile == profile)
    number = int(connection.execute(newest).scalar_one()) + 1
    n_pages = n_logged if n_pages is None else n_pages
    version = Version(profile, number, time.time(), ranking, made_from, origin, n_pages, figures, clients)
    _insert_version(connection, version)
    return version


def activate_version(
    connection: sa.Connection, profile: str, version: int, reason: str, n_pages: int | None = None
) -> None:
    """Log an activation, within a transaction."""
    n_logged = lock_profile(connection, profile)
    newest = sa.select(sa.func.max(activations.c.number)).where(activations.c.profile == profile)
    number = (connection.execute(newest).scalar_one() or 0) + 1
    entry = Activation(number, version, reason, n_logged if n_pages is None else n_pages, time.time())
    connection.execute(sa.insert(activations), entry._asdict() | {"profile": profile})
    next_change(connection, "versions")


def read_activations(connection: sa.Connection, profile: str) -> list[Activation]:
    """Read the activations of a profile, oldest first, within a transaction."""
    query = sa.select(activations).where(activations.c.profile == profile).order_by(activations.c.number)
    return [Activation(row.number, row.version, row.reason, row.n_pages, row.time) for row in connection.execute(query)]


def delete_profile(connection: sa.Connection, name: str) -> bool:
    """Delete a profile with all that was learned and logged, within a transaction; False where there is none."""
    next_change(connection, "versions")
    next_change(connection, "candidates")
    for table in reversed(metadata.sorted_tables):
        if "profile" in table.c:
            connection.execute(sa.delete(table).where(table.c.profile == name))
    return connection.execute(sa.delete(profiles).where(profiles.c.name == name)).rowcount > 0


def _insert_version(connection: sa.Connection, version: Version) -> None:
    clients = None if version.clients is None else json.dumps(version.clients)
    row = _facts(version) | {"figures": json.dumps(version.figures), "clients": clients}
    connection.execute(sa.insert(versions), row | {"profile": version.profile} | version.ranking.columns())


def _facts(version: Any) -> dict[str, Any]:
    """What a version, or its row, says apart from how it ranks and who taught it."""
    return {name: getattr(version, name) for name in ("number", "time", "made_from", "origin", "n_pages", "figures")}


def _read_version(row: Any) -> Version:
    clients = None if row.clients is None else json.loads(row.clients)
    learned = row.made_from, row.origin, row.n_pages, json.loads(row.figures), clients
    return Version(row.profile, row.number, row.time, Ranking.of_row(row), *learned)


def _join(left: sa.FromClause, column: str, right: sa.FromClause) -> Any:
    """Join on the profile, and on a column of the left that holds numbers of the right."""
    return sa.and_(left.c.profile == right.c.profile, left.c[column] == right.c.number)
