"""`ProfileStore`: profiles, versions of their weights, and the log of activations."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import sqlalchemy as sa

from bitrank.core.types import Weights
from bitrank.service.store.database import Database, last_change, next_change
from bitrank.service.store.rankings import Ranking, from_bytes, is_same, kind_of, to_bytes
from bitrank.service.store.tables import activations, profiles, versions

if TYPE_CHECKING:
    from bitrank.ranking.ranker import Ranker

HAMMING = "hamming"  # read-only: uniform weights, for comparison
DEFAULT = "default"
MAX_PROFILES = 1000


class Version(NamedTuple):
    """How a profile ranks, and where that came from."""

    profile: str
    number: int
    time: float
    weights: Weights
    made_from: int | None
    origin: str  # "uniform", "index", "ranker", "given" or "clicks"
    n_pages: int
    figures: dict[str, Any]
    ranker: Ranker | None = None
    clients: dict[str, float] | None = None  # who taught it, with their shares of the evidence

    @property
    def ranking(self) -> Ranking:
        """How it ranks."""
        return Ranking(self.weights, self.ranker)

    def facts(self) -> dict[str, Any]:
        """What is known of it apart from how it ranks."""
        hidden = ("profile", "weights", "ranker", "clients")
        facts = {name: value for name, value in self._asdict().items() if name not in hidden}
        return facts | {"kind": self.ranking.kind}


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
        with self._database.read() as connection:
            rows = connection.execute(sa.select(profiles.c.name, profiles.c.n_pages).order_by(profiles.c.created))
            return {row.name: row.n_pages for row in rows}

    def add(self, name: str, ranking: Ranking, origin: str) -> bool:
        """Create a profile with its first version active; False where it exists already."""
        with self._database.write() as connection:
            return add_profile(connection, name, ranking, origin)

    def begin_with(self, profile: str, ranking: Ranking) -> None:
        """Add a ranker that was learned offline and activate it, unless a version has the same already."""
        with self._database.write() as connection:
            lock_profile(connection, profile)  # others that begin with the same ranker wait here
            query = sa.select(versions).where(versions.c.profile == profile, versions.c.origin == "ranker")
            if not any(is_same(_with_ranker(row).ranking, ranking) for row in connection.execute(query).all()):
                version = add_version(connection, profile, ranking, "ranker", {})
                activate_version(connection, profile, version.number, "user")

    def versions(self, profile: str) -> list[dict[str, Any]]:
        """Read the facts of all versions of a profile, oldest first, and no ranker."""
        query = sa.select(versions).where(versions.c.profile == profile).order_by(versions.c.number)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [_read_version(row, None).facts() | {"kind": kind_of(row.ranker)} for row in rows]

    def n_versions(self, profile: str) -> int:
        """Count the versions of a profile."""
        query = sa.select(sa.func.count()).select_from(versions).where(versions.c.profile == profile)
        with self._database.read() as connection:
            return int(connection.execute(query).scalar_one())

    def version(self, profile: str, number: int) -> Version | None:
        """Read one version; None where there is none of this number."""
        query = sa.select(versions).where(versions.c.profile == profile, versions.c.number == number)
        with self._database.read() as connection:
            row = connection.execute(query).first()
        return None if row is None else _with_ranker(row)

    def activations(self, profile: str) -> list[Activation]:
        """Read the activations of a profile, oldest first."""
        with self._database.read() as connection:
            return read_activations(connection, profile)

    def last_choice(self, profile: str) -> Activation:
        """Read the last activation by a user: learning begins after it."""
        return [entry for entry in self.activations(profile) if entry.reason not in ("gate", "alarm", "block")][-1]

    def active(self, changed_after: int) -> tuple[int, dict[str, Version]]:
        """Read the number of the last activation of any profile and, if it changed, every active version."""
        with self._database.read() as connection:
            last = last_change(connection, "versions")
            if last == changed_after:
                return last, {}
            newest = sa.select(activations.c.profile, sa.func.max(activations.c.number).label("number"))
            newest_of = newest.group_by(activations.c.profile).subquery()
            joined = (
                sa.select(versions)
                .join(activations, _join(activations, "version", versions))
                .join(newest_of, _join(newest_of, "number", activations))
            )
            return last, {row.profile: _with_ranker(row) for row in connection.execute(joined)}


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
    now = time.time()
    next_change(connection, "versions")  # others that create a profile wait here, and then count this one
    names = connection.execute(sa.select(profiles.c.name)).scalars().all()
    if name in names:
        return False
    if len(names) >= MAX_PROFILES:
        raise ValueError(f"there must be at most {MAX_PROFILES} profiles, got one more")
    connection.execute(sa.insert(profiles), {"name": name, "n_pages": 0, "created": now})
    _insert_version(connection, Version(name, 1, now, ranking.weights, None, origin, 0, {}, ranking.ranker))
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
    version = Version(
        profile, number, time.time(), ranking.weights, made_from, origin, n_pages, figures, ranking.ranker, clients
    )
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


def _insert_version(connection: sa.Connection, version: Version) -> None:
    row = version._asdict()
    row |= {"weights": version.weights.astype("<f4").tobytes(), "ranker": to_bytes(version.ranker)}
    row |= {"figures": json.dumps(version.figures)}
    row |= {"clients": None if version.clients is None else json.dumps(version.clients)}
    connection.execute(sa.insert(versions), row)


def _with_ranker(row: Any) -> Version:
    return _read_version(row, from_bytes(row.ranker))


def _read_version(row: Any, ranker: Ranker | None) -> Version:
    weights = np.frombuffer(row.weights, "<f4").astype(np.float32)
    figures = json.loads(row.figures)
    clients = None if row.clients is None else json.loads(row.clients)
    facts = row.made_from, row.origin, row.n_pages, figures, ranker, clients
    return Version(row.profile, row.number, row.time, weights, *facts)


def _join(left: sa.FromClause, column: str, right: sa.FromClause) -> Any:
    """Join on the profile, and on a column of the left that holds numbers of the right."""
    return sa.and_(left.c.profile == right.c.profile, left.c[column] == right.c.number)
