"""Formats of the database, and the statements that bring an older one up to date."""

from __future__ import annotations

import sqlalchemy as sa

from bitrank.service.store.tables import facts, metadata

FORMAT = 7
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
}


def prepare(connection: sa.Connection) -> None:
    """Create the tables, or migrate those of an older format, within the transaction of the connection."""
    is_format = facts.c.name == "format"
    if sa.inspect(connection).has_table(facts.name):
        # Format 1 wrote its number after its tables; a process that died in between left none.
        number = connection.scalar(sa.select(facts.c.value).where(is_format)) or 1
        if number > FORMAT:
            raise ValueError(f"the database must have format {FORMAT} or older, got one with {number}: update bitrank")
        if number == FORMAT:
            return
        for target in range(number + 1, FORMAT + 1):
            for statement in MIGRATIONS[target]:
                connection.execute(sa.text(statement))
        connection.execute(sa.delete(facts).where(is_format))
    metadata.create_all(connection)
    connection.execute(sa.insert(facts), {"name": "format", "value": FORMAT})
