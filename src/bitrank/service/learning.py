"""`Learning`: one learner per profile, the gate's decisions, and the alarm.

Learners follow the log in the store, not the requests: pages that other processes logged reach them as well, and after
a restart they catch up by themselves. A thread of `Service` runs it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from bitrank import feedback
from bitrank.service.collection import Collection
from bitrank.service.store import Store
from bitrank.service.store.page_log import read_page
from bitrank.service.store.profiles import Version
from bitrank.vocabulary import Weights

logger = logging.getLogger("bitrank.service")

MEMORY = 2000  # Newest pages of a log that a new learner reads, while searches go on.
BATCH = 4  # Pages learned before another profile has its turn.


@dataclass
class _Follower:
    """A learner on its way along a profile's log."""

    learner: feedback.ClickLearner
    choice: int  # number of the activation by a user that it started from
    active: int  # the version that was active at its last step
    position: int  # last page that it learned from
    decided: int  # last page that the gate decided at


class Learning:
    """The learners of all profiles."""

    def __init__(self, store: Store, collection: Collection, learn_imported: bool = False) -> None:
        self._store, self._collection, self._learn_imported = store, collection, learn_imported
        self._followers: dict[str, _Follower] = {}
        self.alarms = {name: store.gate.last_alarm(name) for name in store.profiles.n_pages()}

    def candidate(self, profile: str) -> Weights | None:
        """Return the candidate of a profile; None before its first page."""
        follower = self._followers.get(profile)
        return None if follower is None else follower.learner.weights

    def position(self, profile: str) -> int:
        """Return the number of the last page that a profile's candidate has learned from."""
        follower = self._followers.get(profile)
        return 0 if follower is None else follower.position

    def behind(self, profile: str, n_pages: int) -> int:
        """Count the logged pages that are not learned yet."""
        return n_pages - self.position(profile)

    def step(self, active: dict[str, Version]) -> bool:
        """Learn some new pages of every profile, and decide where due; returns whether there are more."""
        more = False
        for profile, n_pages in self._store.profiles.n_pages().items():
            if profile in active and n_pages:
                more |= self._learn(profile, n_pages, active[profile])
        return more

    def _learn(self, profile: str, n_pages: int, active: Version) -> bool:
        follower = self._followers.get(profile)
        if follower is None or (follower.active != active.number and self._last_choice(profile) != follower.choice):
            follower = self._followers[profile] = self._start(profile, n_pages, active)
        follower.active = active.number
        if follower.position >= n_pages:
            return False
        follower.learner.sample = self._collection.sample.codes
        for row in self._store.pages.after(profile, follower.position, BATCH):
            try:
                if row.signed or self._learn_imported:
                    follower.learner.learn(read_page(row))
            except ValueError:  # it stays in the log, and the pages after it are still learned
                logger.exception("page %s of profile %s cannot be learned from", row.number, profile)
            follower.position = row.number  # only now: whoever waits for it wants the weights of this page
            if follower.learner.due and row.number > follower.decided:
                self._decide(profile, follower, active)
                break  # another version may be active now
        return follower.position < n_pages

    def _last_choice(self, profile: str) -> int:
        return self._store.profiles.last_choice(profile).number

    def _start(self, profile: str, n_pages: int, active: Version) -> _Follower:
        # A user who rolls back or activates another version does not want what was learned until then.
        choice = self._store.profiles.last_choice(profile)
        version = self._store.profiles.version(profile, choice.version)
        assert version is not None
        sample, n_bits = self._collection.sample.codes, self._collection.n_bits
        learner = feedback.ClickLearner(sample, n_bits=n_bits, weights=version.weights, random_state=0)
        learner.n_looks, decided = self._store.gate.count(profile, choice.n_pages)
        position = max(choice.n_pages, n_pages - MEMORY)
        return _Follower(learner, choice.number, active.number, position, decided)

    def _decide(self, profile: str, follower: _Follower, active: Version) -> None:
        decision = follower.learner.decide(active.weights)
        figures: dict[str, Any] = {
            "active": decision.active,
            "candidate": decision.candidate,
            "hamming": decision.hamming,
            "decision": "activate" if decision.activate else "keep",
            "reason": decision.reason,
            "n_held_out": decision.n_pages,
            "alarm": bool(decision.alarm),
        }
        candidate = follower.learner.weights if decision.activate else None
        self._store.gate.record(profile, follower.position, figures, active.number, candidate)
        follower.decided = follower.position
        self.alarms[profile] = bool(decision.alarm)
