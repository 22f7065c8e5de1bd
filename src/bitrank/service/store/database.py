"""`Database`: transactions on SQLite or PostgreSQL. Nothing else in the service knows one engine from the other."""

from __future__ import annotations

import logging
import secrets
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from bitrank.core.lazy import import_extra
from bitrank.service.store import migrations
from bitrank.service.store.tables import blobs, changes, facts

LOCK_TIMEOUT_S = 2.0  # How long a writer waits for another process before it gives up, with nothing written.
SCHEMA = "bitrank"  # In PostgreSQL, where others may have tables of the same names.
_N_BITS = sa.select(facts.c.value).where(facts.c.name == "n_bits")
PREPARING = 0x62697472616E6B01  # Advisory lock of PostgreSQL, held while tables are created or migrated.

logger = logging.getLogger("bitrank.service")


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
    check : callable, optional
        Called with the sample of a collection that the database knows, before anything is migrated; it may refuse.

    Attributes
    ----------
    n_bits : int
        Bits per code.
    secret : bytes
        A key that never leaves the database and its services. It signs page tokens.
    """

    def __init__(self, url: str, n_bits: int | None = None, check: Callable[[bytes], None] | None = None) -> None:
        self._engine, self._write_lock = connect(url)
        self._writer = self._engine.execution_options(writes=True)
        self.secret, self.n_bits = b"", 0
        try:
            self._prepare(n_bits, check)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def read(self) -> AbstractContextManager[sa.Connection]:
        """Open a connection for reads."""
        return self._engine.connect()

    def rows(self, query: sa.Executable) -> Sequence[Any]:
        """Read all rows of a query."""
        with self.read() as connection:
            return connection.execute(query).all()

    def scalar(self, query: sa.Executable) -> Any:
        """Read the first value of a query; None where it has no rows."""
        with self.read() as connection:
            return connection.scalar(query)

    def changed(self, name: str, after: int, query: sa.Executable) -> tuple[int, Sequence[Any] | None]:
        """Read the number of the last change of some kind and, if it is not `after`, the rows of a query.

        In PostgreSQL these may know later changes already, and are read again next time.
        """
        with self.read() as connection:
            last = last_change(connection, name)
            return last, None if last == after else connection.execute(query).all()

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

    def keep_sample(self, name: str, value: bytes) -> None:
        """Keep a sample of the collection under a name, unless it is there already."""
        row = blobs.c.name == name
        if self.scalar(sa.select(blobs.c.value).where(row)) != value:
            with self.write() as connection:
                next_change(connection, "sample")
                connection.execute(sa.delete(blobs).where(row))
                connection.execute(sa.insert(blobs), {"name": name, "value": value})

    def check_writable(self) -> None:
        """Write something, as long as there is room and the disk takes writes."""
        with self.write() as connection:
            next_change(connection, "probe")

    def shrink(self) -> None:
        """Give the room of what was deleted back to the disk; PostgreSQL does so by itself."""
        if self._engine.dialect.name == "sqlite":
            path = str(self._engine.url.database)
            with self._write_lock, closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute("VACUUM")

    def n_bytes(self) -> int:
        """Size of the database."""
        with self.read() as connection:
            if self._engine.dialect.name == "postgresql":
                size = "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c WHERE c.relkind = 'r' AND "
                query = sa.text(size + "c.relnamespace = to_regnamespace(:schema)")
                return int(connection.execute(query, {"schema": SCHEMA}).scalar_one() or 0)
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            return int(pages) * int(connection.exec_driver_sql("PRAGMA page_size").scalar_one())

    def n_bytes_free(self) -> int | None:
        """Free room on the disk of the database, where that is this machine's."""
        path = self._engine.url.database
        return shutil.disk_usage(Path(path).parent).free if path and self._engine.dialect.name == "sqlite" else None

    def _prepare(self, n_bits: int | None, check: Callable[[bytes], None] | None) -> None:
        """Create or migrate the tables; of several processes that start at once, one does."""
        try:
            with self.write() as connection:
                if self._engine.dialect.name == "postgresql":
                    connection.execute(sa.text("SET LOCAL lock_timeout = 0"))
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(PREPARING)))
                    create_schema(connection)
                stored = migrations.stored_format(connection)
                if stored:
                    self._check(connection, n_bits, check)
                if 0 < stored < migrations.FORMAT:
                    place = migrations.keep_copy(connection, stored, SCHEMA)
                    logger.warning("the database had format %s: it is migrated, a copy is kept in %s", stored, place)
                if stored < migrations.FORMAT:
                    migrations.prepare(connection, stored)
                if n_bits is not None:
                    _insert_once(connection, facts, "n_bits", n_bits)
                for name in ("items", "judgements", "versions", "candidates", "sample", "blocked", "probe"):
                    _insert_once(connection, changes, name, 0)
                _insert_once(connection, blobs, "secret", secrets.token_bytes(32))
                self.secret = connection.execute(sa.select(blobs.c.value).where(blobs.c.name == "secret")).scalar_one()
                self.n_bits = int(connection.scalar(_N_BITS) or 0)
        except sa.exc.DBAPIError as error:
            raise ConnectionError(f"the database cannot be used: {error.orig}") from None

    def _check(self, connection: sa.Connection, n_bits: int | None, check: Callable[[bytes], None] | None) -> None:
        """Refuse a database of other codes, before anything changes."""
        known = connection.scalar(_N_BITS)
        if n_bits is not None and known not in (None, n_bits):
            raise ValueError(
                f"the database must have n_bits {n_bits}, got one with {known}: choose another with --data"
            )
        if check is not None and sa.inspect(connection).has_table(blobs.name):  # older formats knew no sample
            sample = connection.scalar(sa.select(blobs.c.value).where(blobs.c.name == "sample"))
            if sample is not None:
                check(bytes(sample))


def check_sound(url: str) -> None:
    """Refuse a file of SQLite that is damaged, which would show much later only."""
    path = sa.make_url(url).database
    if path is None or not Path(path).exists():
        return
    try:
        with closing(sqlite3.connect(path)) as connection:
            found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError:  # locked, say: whoever opens it next says so
        return
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found != "ok":
        raise ValueError(f"the database must be sound, got damage in {path}: {found:.200}; restore a backup")


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
