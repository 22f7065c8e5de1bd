"""Tables of the service's database. A change here needs a new format in `migrations`."""

from __future__ import annotations

from functools import partial
from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData()

_required = partial(sa.Column, nullable=False)


def _profile(primary_key: bool = True) -> sa.Column[str]:
    return sa.Column("profile", sa.String(64), sa.ForeignKey("profiles.name"), primary_key=primary_key, nullable=False)


def _named_values(table: str, kind: type[sa.types.TypeEngine[Any]]) -> sa.Table:
    return sa.Table(table, metadata, sa.Column("name", sa.String(40), primary_key=True), _required("value", kind))


# What must never change in a database: its format and the number of bits per code.
facts = _named_values("facts", sa.BigInteger)
# The key that signs page tokens, a sample of the collection by which it is known again, and one to learn with.
blobs = _named_values("blobs", sa.LargeBinary)
# Counters that rise with every change: one small query tells a process what it has not yet applied.
changes = _named_values("changes", sa.BigInteger)
# What the API added, replaced or removed. A removed item keeps its row, which hides an item of the index.
items = sa.Table(
    "items",
    metadata,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    _required("removed", sa.Boolean),
    _required("code", sa.LargeBinary),
    sa.Column("title", sa.Text),
    sa.Column("image", sa.Text),
    _required("payload", sa.Text),
    _required("changed", sa.BigInteger, index=True),
)
# Judged queries that the API added or changed, with (item, grade, pinned) as JSON. One without items hides that of the
# collection's folder.
judgements = sa.Table(
    "judgements",
    metadata,
    sa.Column("query", sa.String(400), primary_key=True),
    _required("code", sa.LargeBinary),
    _required("items", sa.Text),
    _required("changed", sa.BigInteger, index=True),
)
profiles = sa.Table(
    "profiles",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    _required("n_pages", sa.BigInteger),
    _required("created", sa.Double),
)
# What came of writes that named an `Idempotency-Key`: one that comes again is answered with it.
requests = sa.Table(
    "requests",
    metadata,
    sa.Column("key", sa.String(200), primary_key=True),
    _required("fingerprint", sa.String(64)),
    _required("time", sa.Double),
    _required("outcome", sa.Text),
)
# One row per answered page; `number` counts the pages of a profile without a gap. The key of a signed page is the id of
# its token.
pages = sa.Table(
    "pages",
    metadata,
    sa.Column("key", sa.String(200), primary_key=True),
    _profile(primary_key=False),
    _required("number", sa.BigInteger),
    _required("time", sa.Double),
    sa.Column("version", sa.Integer),
    sa.Column("query_item", sa.BigInteger),
    _required("query_code", sa.LargeBinary),
    sa.Column("magnitudes", sa.LargeBinary),  # of a query that was a vector of reals
    _required("shown", sa.Text),
    _required("shown_codes", sa.LargeBinary),
    _required("signed", sa.Boolean, server_default=sa.false()),
    sa.Column("client", sa.String(64)),  # who answered; a page without one counts as a client of its own
    sa.UniqueConstraint("profile", "number"),
)
versions = sa.Table(
    "versions",
    metadata,
    _profile(),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    _required("time", sa.Double),
    _required("weights", sa.LargeBinary),
    sa.Column("ranker", sa.LargeBinary),  # the file of a ranker that is more than weights
    sa.Column("made_from", sa.Integer),
    _required("origin", sa.String(20)),
    _required("n_pages", sa.BigInteger),
    _required("figures", sa.Text),
    sa.Column("clients", sa.Text),  # who taught a version that was learned from clicks: shares of its evidence, as JSON
)
activations = sa.Table(
    "activations",
    metadata,
    _profile(),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    _required("version", sa.Integer),
    _required("reason", sa.String(20)),
    _required("n_pages", sa.BigInteger),
    _required("time", sa.Double),
)
# One row per gate decision. The key makes sure that only one of several processes decides at a page.
quality = sa.Table(
    "quality",
    metadata,
    _profile(),
    sa.Column("n_pages", sa.BigInteger, primary_key=True, autoincrement=False),
    _required("time", sa.Double),
    _required("figures", sa.Text),
)
# What the learner published: the user's choice that it started from, how far it is along the log of each profile, and
# the candidate, if any. `changed` and `ranked` are the changes that wrote the row and its ranking.
candidates = sa.Table(
    "candidates",
    metadata,
    _profile(),
    _required("choice", sa.Integer),
    _required("position", sa.BigInteger),
    _required("changed", sa.BigInteger),
    _required("ranked", sa.BigInteger),
    sa.Column("weights", sa.LargeBinary),
    sa.Column("ranker", sa.LargeBinary),
)
# What the learner knows of every client, up to the position that it published: sums as `bitrank.clicks.robust` keeps
# them, and whether its clicks go against the rest.
clients = sa.Table(
    "clients",
    metadata,
    _profile(),
    sa.Column("client", sa.String(64), primary_key=True),
    _required("n_pages", sa.BigInteger),
    _required("sums", sa.LargeBinary),
    _required("taste", sa.LargeBinary),
    _required("left_out", sa.Boolean),
)
# Clients whose pages an operator forbids to learn from, in any profile.
blocked_clients = sa.Table(
    "blocked_clients",
    metadata,
    sa.Column("client", sa.String(64), primary_key=True),
    _required("time", sa.Double),
)
# Pages that could not be learned from, and why.
pages_set_aside = sa.Table(
    "pages_set_aside",
    metadata,
    _profile(),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    _required("time", sa.Double),
    _required("reason", sa.Text),
)
