"""Formats of the database, and the statements that bring an older one up to date."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from bitrank.service.store.tables import facts, metadata

FORMAT = 9
# The statements that turn the previous format into each new one. Never change an entry: add one.
MIGRATIONS = {
    2: (  # `n_clicks` counted pages
        "ALTER TABLE clicks RENAME TO pages",
        "ALTER TABLE profiles RENAME COLUMN n_clicks TO n_pages",
        "ALTER TABLE versions RENAME COLUMN n_clicks TO n_pages",
        "ALTER TABLE activations RENAME COLUMN n_clicks TO n_pages",
        "ALTER TABLE quality RENAME COLUMN n_clicks TO n_pages",
    ),
    3: (  # whatever a client said it saw was logged before: pages of these formats are not signed
        "ALTER TABLE pages ADD COLUMN signed BOOLEAN DEFAULT FALSE NOT NULL",
        "ALTER TABLE pages ADD COLUMN client VARCHAR(64)",
    ),
    4: (),  # a new table, `requests`
    5: ("ALTER TABLE versions ADD COLUMN ranker BYTEA",),
    6: (),  # new tables, `candidates` and `pages_set_aside`
    7: ("ALTER TABLE versions ADD COLUMN clients TEXT",),  # and new tables, `clients` and `blocked_clients`
    8: (),  # what a page showed takes less room
    9: (),  # a new table, `judgements`
}


def stored_format(connection: sa.Connection) -> int:
    """Number of the format of a database; 0 where there are no tables."""
    if not sa.inspect(connection).has_table(facts.name):
        return 0
    # Format 1 wrote its number after its tables; a process that died in between left none.
    number = connection.scalar(sa.select(facts.c.value).where(facts.c.name == "format")) or 1
    if number > FORMAT:
        raise ValueError(f"the database must have format {FORMAT} or older, got one with {number}: update bitrank")
    return int(number)


def prepare(connection: sa.Connection, stored: int) -> None:
    """Create the tables, or migrate those of an older format, within the transaction of the connection."""
    for target in range(stored + 1, FORMAT + 1) if stored else ():
        for statement in MIGRATIONS[target]:
            connection.execute(sa.text(statement))
    metadata.create_all(connection)
    connection.execute(sa.delete(facts).where(facts.c.name == "format"))
    connection.execute(sa.insert(facts), {"name": "format", "value": FORMAT})


def keep_copy(connection: sa.Connection, stored: int, schema: str) -> str:
    """Copy a database as it is before a migration, and return the place: a file beside it, or a schema."""
    place = f"{schema}_format_{stored}_{time.strftime('%Y%m%d%H%M%S')}"
    if connection.dialect.name == "postgresql":
        connection.execute(sa.schema.CreateSchema(place))
        for table in sa.inspect(connection).get_table_names(schema=schema):
            connection.execute(sa.text(f'CREATE TABLE {place}."{table}" AS TABLE {schema}."{table}"'))
        return place
    database = str(connection.engine.url.database)
    path = Path(database).with_name(f"{place}.db")
    path.unlink(missing_ok=True)  # of an attempt that failed within the same second
    os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(path)) as target:
        source.backup(target)
    return str(path)
