"""Backups: all tables of a database as one SQLite file, and back into any database."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import sqlalchemy as sa

from bitrank.service.store import migrations
from bitrank.service.store.database import connect, create_schema
from bitrank.service.store.tables import facts, metadata

_BATCH = 1000


def back_up(url: str, path: Path) -> dict[str, int]:
    """Copy a database to a new SQLite file, as it is at one moment, while services go on; returns rows per table."""
    if path.exists():
        raise ValueError(f"the backup must be a new file, got {path}, which exists")
    source = connect(url)[0]
    descriptor, name = tempfile.mkstemp(dir=path.resolve().parent, prefix=f".{path.name}-")
    os.close(descriptor)
    target = sa.create_engine(f"sqlite:///{name}")
    try:
        isolated = source.execution_options(isolation_level="REPEATABLE READ") if _is_postgres(source) else source
        with isolated.connect() as reading, target.begin() as writing:
            _check_format(reading, f"the database at {source.url.render_as_string()}")
            metadata.create_all(writing)
            counts = _copy(reading, writing)
        target.dispose()
        os.replace(name, path)
        return counts
    except sa.exc.DBAPIError as error:
        raise ConnectionError(f"the database cannot be read: {error.orig}") from None
    finally:
        source.dispose()
        target.dispose()
        Path(name).unlink(missing_ok=True)


def restore(path: Path, url: str) -> dict[str, int]:
    """Copy a backup into an empty database, in one transaction; returns rows per table."""
    if not path.exists():
        raise ValueError(f"the backup must be a file, got {path}, which does not exist")
    source, target = sa.create_engine(f"sqlite:///{path}"), connect(url)[0]
    try:
        with source.connect() as reading, target.execution_options(writes=True).begin() as writing:
            _check_format(reading, f"the backup {path}")
            create_schema(writing)
            if sa.inspect(writing).has_table(facts.name):
                raise ValueError("the database to restore into must be empty, got one with tables of bitrank")
            metadata.create_all(writing)
            return _copy(reading, writing)
    except sa.exc.DBAPIError as error:
        raise ConnectionError(f"the database cannot be used: {error.orig}") from None
    finally:
        source.dispose()
        target.dispose()


def _check_format(connection: sa.Connection, name: str) -> None:
    number = None
    if sa.inspect(connection).has_table(facts.name):
        number = connection.scalar(sa.select(facts.c.value).where(facts.c.name == "format"))
    if number != migrations.FORMAT:
        expected = f"{name} must be one of bitrank, of format {migrations.FORMAT}"
        raise ValueError(f"{expected}, got {'another' if number is None else f'format {number}'}: start a service once")


def _copy(reading: sa.Connection, writing: sa.Connection) -> dict[str, int]:
    counts = {}
    for table in metadata.sorted_tables:
        counts[table.name] = 0
        rows = reading.execution_options(yield_per=_BATCH).execute(sa.select(table))
        for part in rows.mappings().partitions(_BATCH):
            writing.execute(sa.insert(table), [dict(row) for row in part])
            counts[table.name] += len(part)
    return counts


def _is_postgres(engine: sa.Engine) -> bool:
    return engine.dialect.name == "postgresql"
