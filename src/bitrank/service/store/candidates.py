"""`CandidateStore`: what passes between the learner and those who search.

The learner publishes candidates, how far it is along each log, and the pages set aside; those who search keep a sample
of the collection for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import sqlalchemy as sa

from bitrank.clicks.robust import Facts
from bitrank.core.types import Codes, n_bytes
from bitrank.service.store.clients import write_facts
from bitrank.service.store.database import Database, next_change
from bitrank.service.store.rankings import Ranking
from bitrank.service.store.tables import blobs, candidates, pages_set_aside

SAMPLE = "sample to learn with"


class Progress(NamedTuple):
    """How far a learner is: the user's choice that it started from, and the last page that it learned from.

    Examples
    --------
    >>> Progress(choice=2, position=10) > Progress(choice=1, position=10) > Progress(choice=1, position=9)
    True
    """

    choice: int
    position: int


class Publication(NamedTuple):
    """How far a learner is along the log of a profile, and its candidate where that is new."""

    profile: str
    progress: Progress
    is_new: bool
    candidate: Ranking | None
    facts: Mapping[str, Facts] = {}  # of the clients of whom more is known than was published


class PageSetAside(NamedTuple):
    """A page that could not be learned from."""

    profile: str
    number: int
    reason: str


class Published(NamedTuple):
    """A published row without its ranking: `ranked` tells one ranking from another."""

    profile: str
    position: int
    ranked: int


class CandidateStore:
    """The newest candidate of every profile."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def publish(self, publications: Iterable[Publication], aside: Iterable[PageSetAside]) -> None:
        """Publish progress, new candidates and pages set aside; a learner that is behind another changes nothing."""
        nothing: dict[str, bytes | None] = {"weights": None, "ranker": None}
        rows = [
            (entry, ({} if not entry.is_new else nothing if entry.candidate is None else entry.candidate.columns()))
            for entry in publications
        ]
        with self._database.write() as connection:
            change = next_change(connection, "candidates")  # others that publish wait here
            for (profile, progress, _, _, facts), ranking in rows:
                row = candidates.c.profile == profile
                known = connection.execute(sa.select(candidates.c.choice, candidates.c.position).where(row)).first()
                if known is not None and progress < (known.choice, known.position):
                    continue
                values = progress._asdict() | {"changed": change} | ({"ranked": change} | ranking if ranking else {})
                if known is None:
                    connection.execute(sa.insert(candidates), {"profile": profile, "ranked": change} | values)
                else:
                    connection.execute(sa.update(candidates).where(row).values(values))
                write_facts(connection, profile, facts)
            for page in aside:
                key = sa.and_(pages_set_aside.c.profile == page.profile, pages_set_aside.c.number == page.number)
                if connection.execute(sa.select(pages_set_aside.c.number).where(key)).first() is None:
                    connection.execute(sa.insert(pages_set_aside), page._asdict() | {"time": time.time()})

    def progress(self, profile: str) -> Progress | None:
        """Read how far the learners of a profile are; None where nothing was published."""
        query = sa.select(candidates.c.choice, candidates.c.position).where(candidates.c.profile == profile)
        return next((Progress(*row) for row in self._database.rows(query)), None)

    def published(self, after: int) -> tuple[int, list[Published] | None]:
        """Read the number of the last change and, if it is not `after`, what is published of all profiles."""
        query = sa.select(candidates.c.profile, candidates.c.position, candidates.c.ranked)
        last, rows = self._database.changed("candidates", after, query)
        return last, None if rows is None else [Published(*row) for row in rows]

    def ranking(self, profile: str) -> Ranking | None:
        """Read the candidate of a profile; None where there is none yet."""
        of_profile = sa.and_(candidates.c.profile == profile, candidates.c.weights.is_not(None))
        query = sa.select(candidates.c.weights, candidates.c.ranker).where(of_profile)
        return next((Ranking.of_row(row) for row in self._database.rows(query)), None)

    def set_aside(self, profile: str) -> set[int]:
        """Read the numbers of the pages that could not be learned from."""
        query = sa.select(pages_set_aside.c.number).where(pages_set_aside.c.profile == profile)
        return {number for (number,) in self._database.rows(query)}

    def n_set_aside(self) -> dict[str, int]:
        """Count the pages that could not be learned from; profiles without any are left out."""
        column = pages_set_aside.c.profile
        return dict(self._database.rows(sa.select(column, sa.func.count()).group_by(column)))

    def keep_sample(self, codes: Codes) -> None:
        """Keep a sample of the collection for the learner."""
        self._database.keep_sample(SAMPLE, codes.tobytes())

    def sample(self, after: int) -> tuple[int, Codes | None]:
        """Read the number of the last change and, if it is not `after`, the sample of the collection."""
        query = sa.select(blobs.c.value).where(blobs.c.name == SAMPLE)
        last, rows = self._database.changed("sample", after, query)
        if rows is None:
            return last, None
        return last, np.frombuffer(rows[0].value, np.uint8).reshape(-1, n_bytes(self._database.n_bits))
