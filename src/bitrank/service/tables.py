"""Tables of the service's data base, and the connection to it: the one place that knows SQLite from other engines.

`store` reads and writes them, through SQLAlchemy Core alone.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import sqlalchemy as sa

LOCK_TIMEOUT_S = 2.0  # a writer waits so long for another process before it gives up, with nothing written
SCHEMA = "bitrank"  # in PostgreSQL, where others may have tables of the same names
CREATING = 0x62697472616E6B01  # an advisory lock of PostgreSQL, held while tables are made

metadata = sa.MetaData()

# One row a fact that must never change under a data base: its format and the bits of its codes.
facts = sa.Table(
    "facts",
    metadata,
    sa.Column("name", sa.String(40), primary_key=True),
    sa.Column("value", sa.BigInteger, nullable=False),
)
# Counts that rise with every change, so that each process sees by one small query what it has not yet applied.
changes = sa.Table(
    "changes",
    metadata,
    sa.Column("name", sa.String(40), primary_key=True),
    sa.Column("value", sa.BigInteger, nullable=False),
)
# What the API added, replaced or removed; a removed item keeps a row, which hides one of the collection's files.
items = sa.Table(
    "items",
    metadata,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("removed", sa.Boolean, nullable=False),
    sa.Column("code", sa.LargeBinary, nullable=False),
    sa.Column("title", sa.Text),
    sa.Column("image", sa.Text),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Column("changed", sa.BigInteger, nullable=False, index=True),
)
profiles = sa.Table(
    "profiles",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("n_clicks", sa.BigInteger, nullable=False),
    sa.Column("created", sa.Double, nullable=False),
)
# One row a page of results that somebody answered; `number` counts them within a profile, without a gap.
clicks = sa.Table(
    "clicks",
    metadata,
    sa.Column("key", sa.String(200), primary_key=True),
    sa.Column("profile", sa.String(64), sa.ForeignKey("profiles.name"), nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("time", sa.Double, nullable=False),
    sa.Column("version", sa.Integer),
    sa.Column("query_item", sa.BigInteger),
    sa.Column("query_code", sa.LargeBinary, nullable=False),
    sa.Column("magnitudes", sa.LargeBinary),
    sa.Column("shown", sa.Text, nullable=False),
    sa.Column("shown_codes", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint("profile", "number"),
)
versions = sa.Table(
    "versions",
    metadata,
    sa.Column("profile", sa.String(64), sa.ForeignKey("profiles.name"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("time", sa.Double, nullable=False),
    sa.Column("weights", sa.LargeBinary, nullable=False),
    sa.Column("made_from", sa.Integer),
    sa.Column("origin", sa.String(20), nullable=False),
    sa.Column("n_clicks", sa.BigInteger, nullable=False),
    sa.Column("figures", sa.Text, nullable=False),
)
activations = sa.Table(
    "activations",
    metadata,
    sa.Column("profile", sa.String(64), sa.ForeignKey("profiles.name"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("reason", sa.String(20), nullable=False),
    sa.Column("n_clicks", sa.BigInteger, nullable=False),
    sa.Column("time", sa.Double, nullable=False),
)
# What the gate found at a click; the key makes sure that of several processes one alone decides.
quality = sa.Table(
    "quality",
    metadata,
    sa.Column("profile", sa.String(64), sa.ForeignKey("profiles.name"), primary_key=True),
    sa.Column("n_clicks", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("time", sa.Double, nullable=False),
    sa.Column("figures", sa.Text, nullable=False),
)


def connect(url: str) -> tuple[sa.Engine, AbstractContextManager[Any]]:
    """An engine whose commits are for good, and a lock for the writers of this process.

    PostgreSQL sees to its writers by itself. Its tables stand in a schema of their own.
    """
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise ValueError("the data base must be given as sqlite:///… or postgresql://…, got neither") from None
    if parsed.get_backend_name() == "sqlite":
        return _sqlite(url), _Turns()
    if parsed.get_backend_name() != "postgresql":
        raise ValueError(f"the data base must be sqlite or postgresql, got {parsed.get_backend_name()}")
    given = parsed.normalized_query.get("options", ())
    options = " ".join([f"-csearch_path={SCHEMA} -clock_timeout={LOCK_TIMEOUT_S}s", *given])
    try:
        engine = sa.create_engine(
            parsed.set(drivername="postgresql+psycopg"), pool_pre_ping=True, connect_args={"options": options}
        )
    except ModuleNotFoundError:
        raise ModuleNotFoundError("PostgreSQL needs psycopg: pip install 'bitrank[service,postgres]'") from None
    return engine, nullcontext()


def create(engine: sa.Engine) -> None:
    """Make the tables that are not there; of processes that start at once, one makes them."""
    try:
        with engine.begin() as connection:
            if engine.dialect.name == "postgresql":
                connection.execute(sa.text("SET LOCAL lock_timeout = 0"))
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(CREATING)))
                if connection.scalar(sa.select(sa.func.to_regnamespace(SCHEMA))) is None:
                    connection.execute(sa.schema.CreateSchema(SCHEMA))
            metadata.create_all(connection)
    except sa.exc.DBAPIError as error:
        raise ConnectionError(f"the data base cannot be used: {error.orig}") from None


def _sqlite(url: str) -> sa.Engine:
    """SQLite keeps a write-ahead log and syncs it at every commit.

    It has one writer at a time: those of a process take turns by a lock, and each takes the data base when it begins,
    so that none fails halfway.
    """
    arguments = {"timeout": LOCK_TIMEOUT_S, "check_same_thread": False, "isolation_level": None}
    engine = sa.create_engine(url, connect_args=arguments)

    @sa.event.listens_for(engine, "connect")
    def _set_up(connection: sqlite3.Connection, _: Any) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


class _Turns:
    """A lock that is waited for as long as the data base itself: behind one that is stuck, nobody queues for ever."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=2 * LOCK_TIMEOUT_S):
            raise sa.exc.TimeoutError("the data base is locked, and others wait for it already")

    def __exit__(self, *_: object) -> None:
        self._lock.release()
