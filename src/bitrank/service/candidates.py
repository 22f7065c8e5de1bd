"""`Candidates`: what the learner published, as this process last read it."""

from __future__ import annotations

import threading

from bitrank.service.store.candidates import CandidateStore, Published
from bitrank.service.store.rankings import Ranking


class Candidates:
    """The candidate of every profile in memory, kept up to date by `refresh`."""

    def __init__(self, store: CandidateStore) -> None:
        self._store = store
        self._known: dict[str, tuple[Published, Ranking | None]] = {}
        self._applied = -1
        self._refreshing = threading.Lock()

    def refresh(self) -> None:
        """Read what was published since the last time; rankings that stayed are not read again."""
        with self._refreshing:
            self._applied, published = self._store.published(self._applied)
            if published is not None:
                self._known = {row.profile: (row, self._ranking_of(row)) for row in published}

    def _ranking_of(self, row: Published) -> Ranking | None:
        known = self._known.get(row.profile)
        return known[1] if known is not None and known[0].ranked == row.ranked else self._store.ranking(row.profile)

    def ranking(self, profile: str) -> Ranking | None:
        """Return the candidate of a profile; None where there is none yet."""
        known = self._known.get(profile)
        return None if known is None else known[1]

    def position(self, profile: str) -> int:
        """Return the number of the last page of a profile that was learned from."""
        known = self._known.get(profile)
        return 0 if known is None else known[0].position
