"""`Learning`: one learner per profile, the gate's decisions, and the alarm.

Learners follow the log in the store, not the requests: pages that other processes logged reach them as well, and after
a restart they catch up by themselves.
"""

from __future__ import annotations

import hmac
import logging
from dataclasses import dataclass
from typing import Any

from bitrank import feedback
from bitrank.service.settings import Settings
from bitrank.service.store import Store
from bitrank.service.store.page_log import read_page
from bitrank.service.store.profiles import Version
from bitrank.service.store.rankings import Ranking, ranking_of
from bitrank.vocabulary import Codes

logger = logging.getLogger("bitrank.service")

MEMORY = 5000  # Newest pages of a log that a new learner reads.
BATCH = 4  # Pages learned before another profile has its turn.


@dataclass
class _Follower:
    """A learner on its way along a profile's log."""

    learner: feedback.ClickLearner
    choice: int  # number of the activation by a user that it started from
    active: int  # the version that was active at its last step
    position: int  # last page that it learned from
    decided: int  # last page that the gate decided at
    candidate: Ranking | None = None


class Learning:
    """The learners of all profiles.

    Parameters
    ----------
    store : Store
    sample : packed codes of the collection, or of some of its items drawn at random
    n_bits : int
    settings : Settings
    """

    def __init__(self, store: Store, sample: Codes, n_bits: int, settings: Settings) -> None:
        self._store, self.sample, self._n_bits, self._settings = store, sample, n_bits, settings
        self._secret = hmac.digest(store.secret, b"held-out pages", "sha256")
        self._followers: dict[str, _Follower] = {}
        self.alarms = {name: store.gate.last_alarm(name) for name in store.profiles.n_pages()}
        self.set_aside: dict[str, set[int]] = {}  # numbers of pages that could not be learned from, by profile
        self.n_failures, self.failing = 0, False  # steps that failed, and whether the last one did

    def restart(self) -> None:
        """Forget the learners after a failure: they start again from the log, without the pages set aside."""
        self._followers.clear()
        self.n_failures += 1
        self.failing = True

    def candidate(self, profile: str) -> Ranking | None:
        """Return the candidate of a profile; None before the first decision."""
        follower = self._followers.get(profile)
        return None if follower is None else follower.candidate

    def position(self, profile: str) -> int:
        """Return the number of the last page that a profile's learner has read."""
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
        self.failing = False
        return more

    def _learn(self, profile: str, n_pages: int, active: Version) -> bool:
        follower = self._followers.get(profile)
        if follower is None or (follower.active != active.number and self._last_choice(profile) != follower.choice):
            follower = self._followers[profile] = self._start(profile, n_pages, active)
        follower.active = active.number
        if follower.position >= n_pages:
            return False
        follower.learner.sample = self.sample
        for row in self._store.pages.after(profile, follower.position, BATCH):
            try:
                learnable = row.number not in self.set_aside.get(profile, ())
                if learnable and (row.signed or self._settings.learn_imported):
                    follower.learner.learn(read_page(row), number=row.number, version=row.version)
            except Exception:  # it stays in the log, and the pages after it are still learned
                logger.exception("page %s of profile %s cannot be learned from", row.number, profile)
                self.set_aside.setdefault(profile, set()).add(int(row.number))
            if follower.learner.due and row.number > follower.decided:
                follower.position = row.number
                self._decide(profile, follower, active)
                break  # another version may be active now
            if row.number == n_pages and follower.learner.stale:
                follower.learner.update()
                follower.candidate = ranking_of(follower.learner.candidate, self.sample)
            follower.position = row.number  # only now: whoever waits for it wants the candidate of this page
        return follower.position < n_pages

    def _last_choice(self, profile: str) -> int:
        return self._store.profiles.last_choice(profile).number

    def _start(self, profile: str, n_pages: int, active: Version) -> _Follower:
        # A user who rolls back or activates another version does not want what was learned until then.
        choice = self._store.profiles.last_choice(profile)
        learner = feedback.ClickLearner(self.sample, n_bits=self._n_bits, secret=self._secret, random_state=0)
        learner.n_looks, decided = self._store.gate.count(profile, choice.n_pages)
        position = max(choice.n_pages, n_pages - MEMORY)
        return _Follower(learner, choice.number, active.number, position, decided)

    def _decide(self, profile: str, follower: _Follower, active: Version) -> None:
        decision = follower.learner.decide(active.ranking.as_ranker(), active.number)
        follower.candidate = ranking_of(follower.learner.candidate, self.sample)
        undo = decision.alarm and active.origin == "clicks" and self._settings.auto_rollback
        figures: dict[str, Any] = {
            "active": decision.active,
            "candidate": decision.candidate,
            "hamming": decision.hamming,
            "top": decision.top,
            "decision": "roll back" if undo else "activate" if decision.activate else "keep",
            "reason": decision.reason,
            "n_held_out": decision.n_pages,
            "n_left_out": len(follower.learner.dropped),
            "alarm": bool(decision.alarm),
        }
        candidate = follower.candidate if decision.activate and not undo else None
        self._store.gate.record(profile, follower.position, figures, active.number, candidate, undo=undo)
        follower.decided = follower.position
        self.alarms[profile] = bool(decision.alarm)
