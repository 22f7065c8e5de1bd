"""`Database`: transactions on SQLite or PostgreSQL. Nothing else in the service knows one engine from the other."""

from __future__ import annotations

import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import sqlalchemy as sa

from bitrank.core.lazy import import_extra
from bitrank.service.store import migrations
from bitrank.service.store.tables import blobs, changes, facts

LOCK_TIMEOUT_S = 2.0  # How long a writer waits for another process before it gives up, with nothing written.
SCHEMA = "bitrank"  # In PostgreSQL, where others may have tables of the same names.
PREPARING = 0x62697472616E6B01  # Advisory lock of PostgreSQL, held while tables are created or migrated.


class UnknownOutcomeError(Exception):
    """A commit that failed: what was written may or may not be there."""


class Database:
    """An engine whose commits are durable, over tables of the current format.

    Parameters
    ----------
    url : str
        `sqlite:///…` or `postgresql://…`.
    n_bits : int, optional
        Bits per code; a database of codes with another number is refused. By default, those of the database, which
        must have been used before.

    Attributes
    ----------
    n_bits : int
        Bits per code.
    secret : bytes
        A key that never leaves the database and its services. It signs page tokens.
    """

    def __init__(self, url: str, n_bits: int | None = None) -> None:
        self._engine, self._write_lock = connect(url)
        self._writer = self._engine.execution_options(writes=True)
        self.secret, self.n_bits = b"", 0
        try:
            self._prepare(n_bits)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def read(self) -> AbstractContextManager[sa.Connection]:
        """Open a connection for reads."""
        return self._engine.connect()

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Open a transaction for writes, committed at the end of the block.

        Where the commit itself fails, nobody knows whether it happened: that is an `UnknownOutcomeError`. Any other
        error leaves everything as it was.
        """
        with self._write_lock, self._writer.connect() as connection:
            transaction = connection.begin()
            try:
                yield connection
            except BaseException:
                with suppress(sa.exc.SQLAlchemyError):
                    transaction.rollback()
                raise
            try:
                transaction.commit()
            except sa.exc.DBAPIError as error:
                with suppress(sa.exc.SQLAlchemyError):
                    transaction.rollback()
                if isinstance(error.orig, sqlite3.OperationalError) and _is_refusal(error.orig):
                    raise
                raise UnknownOutcomeError(str(error.orig)) from error

    def remember(self, name: str, value: bytes) -> bytes:
        """Keep a value under a name, unless there is one; returns the one that is kept."""
        query = sa.select(blobs.c.value).where(blobs.c.name == name)
        with self.read() as connection:
            kept = connection.scalar(query)
        if kept is None:
            with self.write() as connection:
                _insert_once(connection, blobs, name, value)
                kept = connection.scalar(query)
        return bytes(kept or b"")

    def replace(self, name: str, value: bytes) -> None:
        """Keep a value in place of the one that is kept under a name."""
        with self.write() as connection:
            connection.execute(sa.update(blobs).where(blobs.c.name == name).values(value=value))

    def _prepare(self, n_bits: int | None) -> None:
        """Create or migrate the tables; of several processes that start at once, one does."""
        try:
            with self.write() as connection:
                if self._engine.dialect.name == "postgresql":
                    connection.execute(sa.text("SET LOCAL lock_timeout = 0"))
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(PREPARING)))
                    create_schema(connection)
                migrations.prepare(connection)
                if n_bits is not None:
                    _insert_once(connection, facts, "n_bits", n_bits)
                for name in ("items", "versions", "candidates", "sample", "blocked"):
                    _insert_once(connection, changes, name, 0)
                _insert_once(connection, blobs, "secret", secrets.token_bytes(32))
                self.secret = connection.execute(sa.select(blobs.c.value).where(blobs.c.name == "secret")).scalar_one()
                stored_n_bits = connection.scalar(sa.select(facts.c.value).where(facts.c.name == "n_bits"))
        except sa.exc.DBAPIError as error:
            raise ConnectionError(f"the database cannot be used: {error.orig}") from None
        self.n_bits = int(stored_n_bits or 0)
        if self.n_bits != (n_bits or self.n_bits):
            raise ValueError(
                f"the database must have n_bits {n_bits}, got one with {stored_n_bits}: choose another with --data"
            )


def create_schema(connection: sa.Connection) -> None:
    """Create the schema of the tables in PostgreSQL, unless it is there."""
    if connection.dialect.name != "postgresql":
        return
    if connection.scalar(sa.select(sa.func.to_regnamespace(SCHEMA))) is None:
        connection.execute(sa.schema.CreateSchema(SCHEMA))


def next_change(connection: sa.Connection, name: str) -> int:
    """Count one more change. The row stays locked until the commit: numbers become visible in their order."""
    row = changes.c.name == name
    connection.execute(sa.update(changes).where(row).values(value=changes.c.value + 1))
    return last_change(connection, name)


def last_change(connection: sa.Connection, name: str) -> int:
    """Read the number of the last change."""
    return int(connection.execute(sa.select(changes.c.value).where(changes.c.name == name)).scalar_one())


def _insert_once(connection: sa.Connection, table: sa.Table, name: str, value: int | bytes) -> None:
    if connection.execute(sa.select(table).where(table.c.name == name)).first() is None:
        connection.execute(sa.insert(table), {"name": name, "value": value})


def connect(url: str) -> tuple[sa.Engine, AbstractContextManager[Any]]:
    """Create an engine, and a lock for the writers of this process; PostgreSQL needs none."""
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise ValueError("the database must be sqlite:///… or postgresql://…, got neither") from None
    if parsed.get_backend_name() == "sqlite":
        return _sqlite(url), _WriteLock()
    if parsed.get_backend_name() != "postgresql":
        raise ValueError(f"the database must be sqlite or postgresql, got {parsed.get_backend_name()}")
    import_extra("psycopg", "service,postgres")
    url_options = parsed.normalized_query.get("options", ())
    options = " ".join([f"-csearch_path={SCHEMA} -clock_timeout={LOCK_TIMEOUT_S}s", *url_options])
    engine = sa.create_engine(
        parsed.set(drivername="postgresql+psycopg"), pool_pre_ping=True, connect_args={"options": options}
    )
    return engine, nullcontext()


def _sqlite(url: str) -> sa.Engine:
    """Create an engine with a write-ahead log that is synced at every commit.

    SQLite has one writer at a time. Writers of one process queue at a lock, and each locks the database when it
    begins, so that none fails halfway.
    """
    arguments = {"timeout": LOCK_TIMEOUT_S, "check_same_thread": False, "isolation_level": None}
    engine = sa.create_engine(url, connect_args=arguments)

    @sa.event.listens_for(engine, "connect")
    def _set_up(connection: sqlite3.Connection, _: Any) -> None:
        _switch_to_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Switch to a write-ahead log; SQLite does not wait by itself for another process that switches too."""
    deadline = time.monotonic() + 5 * LOCK_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def _is_refusal(error: sqlite3.OperationalError) -> bool:
    """Tell a commit that SQLite refused, for want of room or of the lock, from one that broke halfway."""
    return error.sqlite_errorcode in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class _WriteLock:
    """A lock with the patience of the database: nobody queues for ever behind a writer that is stuck."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=2 * LOCK_TIMEOUT_S):
            raise sa.exc.TimeoutError("the database is locked, and others wait for it already")

    def __exit__(self, *_: object) -> None:
        self._lock.release()
