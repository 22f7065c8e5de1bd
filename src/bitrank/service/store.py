"""The data base of the service: items, clicks, versions of weights and their activations, through SQLAlchemy Core.

It is what survives a crash: the index, the learners and the active weights in memory are rebuilt from it. Every method
is one transaction, and what it returns is committed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa

from bitrank.service.tables import (
    activations,
    changes,
    clicks,
    connect,
    create,
    facts,
    items,
    profiles,
    quality,
    versions,
)
from bitrank.vocabulary import Weights

FORMAT = 1
HAMMING = "hamming"
DEFAULT = "default"


class Click(NamedTuple):
    """One answered page, as it is logged: shown ids with their flags, and every code that learning needs."""

    key: str
    profile: str
    version: int | None
    query_item: int | None
    query_code: bytes
    magnitudes: bytes | None
    shown: list[dict[str, Any]]  # id, explored, clicked
    shown_codes: bytes


class Version(NamedTuple):
    """Weights of a profile, and where they come from."""

    profile: str
    number: int
    time: float
    weights: Weights
    made_from: int | None
    origin: str  # "uniform", "index", "given" or "clicks"
    n_clicks: int
    figures: dict[str, Any]


class Activation(NamedTuple):
    """One entry of a profile's log of what became active."""

    number: int
    version: int
    reason: str  # "start", "gate", "user" or "rollback"
    n_clicks: int
    time: float


class Item(NamedTuple):
    """An item that the API added or removed."""

    id: int
    removed: bool
    code: bytes
    title: str | None
    image: str | None
    payload: dict[str, Any]


class Store:
    """All reads and writes of the service, on SQLite or PostgreSQL.

    Examples
    --------
    >>> store = Store("sqlite:///store.db", n_bits=16)
    >>> store.add_items([Item(7, False, b"ab", "seven", None, {})])
    0
    >>> [item.title for item in store.items_changed(after=0)[1]]
    ['seven']
    >>> store.close()
    """

    def __init__(self, url: str, n_bits: int) -> None:
        self._engine, self._turns = connect(url)
        self._writer = self._engine.execution_options(writes=True)
        try:
            create(self._engine)
            for name, value in {"format": FORMAT, "n_bits": n_bits}.items():
                self._fact(name, value)
            for name in ("items", "versions"):
                self._insert_once(changes, {"name": name, "value": 0})
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give all connections back."""
        self._engine.dispose()

    # Items

    def add_items(self, batch: Sequence[Item]) -> int:
        """Add or replace items, all or none; returns how many there were already, removed ones not counted."""
        with self._write() as connection:
            number = _next_change(connection, "items")
            ids = [item.id for item in batch]
            there = {
                row.id: row.removed
                for row in connection.execute(sa.select(items.c.id, items.c.removed).where(items.c.id.in_(ids)))
            }
            if there:
                connection.execute(sa.delete(items).where(items.c.id.in_(list(there))))
            rows = [item._asdict() | {"payload": json.dumps(item.payload), "changed": number} for item in batch]
            if rows:
                connection.execute(sa.insert(items), rows)
        return sum(not removed for removed in there.values())

    def items_changed(self, after: int) -> tuple[int, list[Item]]:
        """The number of the last change, and all items changed since the given one."""
        with self._engine.connect() as connection:
            last = self._change(connection, "items")
            wanted = items.c.changed.between(after + 1, last)
            rows = [] if last == after else connection.execute(sa.select(items).where(wanted)).all()
            return last, [
                Item(row.id, row.removed, row.code, row.title, row.image, json.loads(row.payload)) for row in rows
            ]

    # Clicks

    def add_click(self, click: Click) -> tuple[bool, int]:
        """Log a page; returns whether its key is new, and how many pages its profile has."""
        try:
            with self._write() as connection:
                seen = connection.execute(sa.select(clicks.c.number).where(clicks.c.key == click.key)).first()
                if seen is None:
                    # The row of the profile stays locked until the commit: pages are numbered in the order of commits.
                    mine = profiles.c.name == click.profile
                    connection.execute(sa.update(profiles).where(mine).values(n_clicks=profiles.c.n_clicks + 1))
                    number = connection.execute(sa.select(profiles.c.n_clicks).where(mine)).scalar_one()
                    row = click._asdict() | {"shown": json.dumps(click.shown), "number": number, "time": time.time()}
                    connection.execute(sa.insert(clicks), row)
                    return True, number
        except sa.exc.IntegrityError:
            pass  # another process logged the same key between our look and our insert
        return False, self.n_clicks(click.profile)

    def n_clicks(self, profile: str) -> int:
        """Pages logged for a profile."""
        with self._engine.connect() as connection:
            query = sa.select(profiles.c.n_clicks).where(profiles.c.name == profile)
            return int(connection.execute(query).scalar_one())

    def clicks_after(self, profile: str, number: int, limit: int) -> list[tuple[int, Click]]:
        """The next pages of a profile's log, oldest first, each with its number."""
        query = sa.select(clicks).where(clicks.c.profile == profile, clicks.c.number > number)
        with self._engine.connect() as connection:
            rows = connection.execute(query.order_by(clicks.c.number).limit(limit)).all()
        return [
            (
                row.number,
                Click(
                    row.key,
                    row.profile,
                    row.version,
                    row.query_item,
                    row.query_code,
                    row.magnitudes,
                    json.loads(row.shown),
                    row.shown_codes,
                ),
            )
            for row in rows
        ]

    # Profiles, versions, activations

    def all_profiles(self) -> dict[str, int]:
        """Every profile with its number of pages."""
        with self._engine.connect() as connection:
            rows = connection.execute(sa.select(profiles.c.name, profiles.c.n_clicks).order_by(profiles.c.created))
            return {row.name: row.n_clicks for row in rows}

    def add_profile(self, name: str, weights: Weights, origin: str) -> bool:
        """Make a profile with its first version active; False when it is there already."""
        now = time.time()
        try:
            with self._write() as connection:
                connection.execute(sa.insert(profiles), {"name": name, "n_clicks": 0, "created": now})
                _insert_version(connection, Version(name, 1, now, weights, None, origin, 0, {}))
                _activate(connection, name, 1, "start")
        except sa.exc.IntegrityError:
            return False
        return True

    def add_version(self, profile: str, weights: Weights, origin: str) -> int:
        """Keep weights as a new version of a profile, not yet active; returns its number."""
        with self._write() as connection:
            return _new_version(connection, profile, weights, origin, {})

    def versions_of(self, profile: str) -> list[Version]:
        """All versions of a profile, oldest first."""
        query = sa.select(versions).where(versions.c.profile == profile).order_by(versions.c.number)
        with self._engine.connect() as connection:
            return [_version(row) for row in connection.execute(query)]

    def n_versions(self, profile: str) -> int:
        """Number of versions of a profile."""
        query = sa.select(sa.func.count()).select_from(versions).where(versions.c.profile == profile)
        with self._engine.connect() as connection:
            return int(connection.execute(query).scalar_one())

    def version(self, profile: str, number: int) -> Version | None:
        """One version, if it is there."""
        query = sa.select(versions).where(versions.c.profile == profile, versions.c.number == number)
        with self._engine.connect() as connection:
            row = connection.execute(query).first()
        return None if row is None else _version(row)

    def activations_of(self, profile: str) -> list[Activation]:
        """Everything that was ever active in a profile, oldest first."""
        with self._engine.connect() as connection:
            return _activations(connection, profile)

    def last_choice(self, profile: str) -> Activation:
        """The last activation that was not the gate's: learning begins after it."""
        return [entry for entry in self.activations_of(profile) if entry.reason != "gate"][-1]

    def activate(self, profile: str, number: int) -> None:
        """Make a version of a profile the active one."""
        with self._write() as connection:
            _activate(connection, profile, number, "user")

    def roll_back(self, profile: str) -> int | None:
        """Undo the last activation that is not yet undone; returns the version gone back to, None if there is none."""
        with self._write() as connection:
            _lock(connection, profile)
            stack = active_stack(_activations(connection, profile))
            if len(stack) < 2:
                return None
            _activate(connection, profile, stack[-2], "rollback")
            return stack[-2]

    def active_versions(self, changed_after: int) -> tuple[int, dict[str, Version]]:
        """The number of the last change of any activation and, if it is another than given, all active versions."""
        with self._engine.connect() as connection:
            last = self._change(connection, "versions")
            if last == changed_after:
                return last, {}
            newest = sa.select(activations.c.profile, sa.func.max(activations.c.number).label("number"))
            newest_of = newest.group_by(activations.c.profile).subquery()
            joined = (
                sa.select(versions)
                .join(activations, _both(activations, versions, "version"))
                .join(newest_of, _both(newest_of, activations, "number"))
            )
            return last, {row.profile: _version(row) for row in connection.execute(joined)}

    # The gate

    def decide(
        self, profile: str, n_clicks: int, figures: dict[str, Any], active: int, candidate: Weights | None
    ) -> int | None:
        """Log what the gate found after so many pages and, given a candidate, make it a version and activate it.

        Nothing happens when another process decided at the same page or another version became active meanwhile.
        Returns the number of the new version, if there is one.
        """
        try:
            with self._write() as connection:
                _lock(connection, profile)
                row = {"profile": profile, "n_clicks": n_clicks, "time": time.time(), "figures": json.dumps(figures)}
                connection.execute(sa.insert(quality), row)
                if candidate is None or _activations(connection, profile)[-1].version != active:
                    return None
                number = _new_version(connection, profile, candidate, "clicks", figures, n_clicks, active)
                _activate(connection, profile, number, "gate", n_clicks)
                return number
        except sa.exc.IntegrityError:
            return None

    def decisions(self, profile: str, after: int) -> tuple[int, int]:
        """How often the gate decided since a page, and the last page that it decided at."""
        query = sa.select(sa.func.count(), sa.func.max(quality.c.n_clicks)).where(quality.c.profile == profile)
        with self._engine.connect() as connection:
            n, last = connection.execute(query.where(quality.c.n_clicks > after)).one()
        return int(n), max(after, int(last or 0))

    def last_alarm(self, profile: str) -> bool:
        """Whether the newest finding of the gate is an alarm."""
        return any(found["alarm"] for found in self.quality_of(profile, 1))

    def quality_of(self, profile: str, limit: int) -> list[dict[str, Any]]:
        """The newest findings of the gate, oldest first."""
        query = sa.select(quality).where(quality.c.profile == profile).order_by(quality.c.n_clicks.desc()).limit(limit)
        with self._engine.connect() as connection:
            rows = connection.execute(query).all()
        return [{"time": row.time, "n_pages": row.n_clicks} | json.loads(row.figures) for row in reversed(rows)]

    # How it is done

    @contextmanager
    def _write(self) -> Iterator[sa.Connection]:
        with self._turns, self._writer.begin() as connection:
            yield connection

    def _change(self, connection: sa.Connection, name: str) -> int:
        return int(connection.execute(sa.select(changes.c.value).where(changes.c.name == name)).scalar_one())

    def _fact(self, name: str, value: int) -> None:
        self._insert_once(facts, {"name": name, "value": value})
        with self._engine.connect() as connection:
            found = connection.execute(sa.select(facts.c.value).where(facts.c.name == name)).scalar_one()
        if found != value:
            raise ValueError(f"the data base must have {name} {value}, got one with {found}: give another with --data")

    def _insert_once(self, table: sa.Table, row: dict[str, Any]) -> None:
        with self._engine.connect() as connection:
            if connection.execute(sa.select(table).where(table.c.name == row["name"])).first():
                return
        try:
            with self._write() as connection:
                connection.execute(sa.insert(table), row)
        except sa.exc.IntegrityError:
            pass  # another process was first


def active_stack(log: Iterable[Activation]) -> list[int]:
    """Versions that a rollback would go through, the active one last.

    Examples
    --------
    >>> log = [(1, "start"), (2, "gate"), (3, "gate"), (2, "rollback"), (4, "user")]
    >>> active_stack(Activation(n, version, reason, 0, 0.0) for n, (version, reason) in enumerate(log))
    [1, 2, 4]
    """
    stack: list[int] = []
    for entry in log:
        if entry.reason == "rollback":
            stack.pop()
        else:
            stack.append(entry.version)
    return stack


def _next_change(connection: sa.Connection, name: str) -> int:
    # The update comes first: its row lock lasts until the commit, so that numbers become visible in their order.
    mine = changes.c.name == name
    connection.execute(sa.update(changes).where(mine).values(value=changes.c.value + 1))
    return int(connection.execute(sa.select(changes.c.value).where(mine)).scalar_one())


def _lock(connection: sa.Connection, profile: str) -> int:
    """Hold a profile's row until the commit; returns its number of pages."""
    mine = profiles.c.name == profile
    return int(connection.execute(sa.select(profiles.c.n_clicks).where(mine).with_for_update()).scalar_one())


def _new_version(
    connection: sa.Connection,
    profile: str,
    weights: Weights,
    origin: str,
    figures: dict[str, Any],
    n_clicks: int | None = None,
    made_from: int | None = None,
) -> int:
    there = _lock(connection, profile)
    newest = sa.select(sa.func.max(versions.c.number)).where(versions.c.profile == profile)
    number = int(connection.execute(newest).scalar_one()) + 1
    n_clicks = there if n_clicks is None else n_clicks
    _insert_version(connection, Version(profile, number, time.time(), weights, made_from, origin, n_clicks, figures))
    return number


def _insert_version(connection: sa.Connection, version: Version) -> None:
    row = version._asdict()
    row |= {"weights": version.weights.astype("<f4").tobytes(), "figures": json.dumps(version.figures)}
    connection.execute(sa.insert(versions), row)


def _activate(connection: sa.Connection, profile: str, version: int, reason: str, n_clicks: int | None = None) -> None:
    there = _lock(connection, profile)
    newest = sa.select(sa.func.max(activations.c.number)).where(activations.c.profile == profile)
    number = (connection.execute(newest).scalar_one() or 0) + 1
    row = Activation(number, version, reason, there if n_clicks is None else n_clicks, time.time())
    connection.execute(sa.insert(activations), row._asdict() | {"profile": profile})
    _next_change(connection, "versions")


def _activations(connection: sa.Connection, profile: str) -> list[Activation]:
    query = sa.select(activations).where(activations.c.profile == profile).order_by(activations.c.number)
    return [
        Activation(row.number, row.version, row.reason, row.n_clicks, row.time) for row in connection.execute(query)
    ]


def _version(row: Any) -> Version:
    weights = np.frombuffer(row.weights, "<f4").astype(np.float32)
    figures = json.loads(row.figures)
    return Version(row.profile, row.number, row.time, weights, row.made_from, row.origin, row.n_clicks, figures)


def _both(left: Any, right: Any, column: str) -> Any:
    """Join on the profile and on `column`, which versions call their number."""
    other = right.c.number if right is versions else right.c[column]
    return sa.and_(left.c.profile == right.c.profile, left.c[column] == other)
