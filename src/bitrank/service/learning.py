"""Learning from the log of clicks: a candidate for every profile, the gate's decisions, and the alarm.

A learner follows the log in the store, not the requests: clicks of other processes reach it as well, and after a
restart it catches up by itself. `ranking` calls it from its own thread.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np

from bitrank import feedback
from bitrank.service.collection import Collection
from bitrank.service.store import Click, Store, Version
from bitrank.vocabulary import Weights

logger = logging.getLogger("bitrank.service")

MEMORY = 2000  # newest pages of a log that a new learner reads, behind the searches
AT_ONCE = 4  # pages learned before others have their turn


@dataclass
class _Follower:
    """A learner on its way along a profile's log."""

    learner: feedback.ClickLearner
    began: int  # number of the activation by a user that it began after
    active: int  # the version that was active when it last looked
    position: int  # last page that was learned
    decided: int  # last page that the gate decided at


class Learning:
    """The learners of all profiles."""

    def __init__(self, store: Store, collection: Collection) -> None:
        self._store, self._collection = store, collection
        self._followers: dict[str, _Follower] = {}
        self.alarms = {name: store.last_alarm(name) for name in store.all_profiles()}

    def candidate(self, profile: str) -> Weights | None:
        """What clicks have made of a profile so far, if there were any."""
        follower = self._followers.get(profile)
        return None if follower is None else follower.learner.weights

    def position(self, profile: str) -> int:
        """Pages of the log up to which a profile's candidate has learned."""
        follower = self._followers.get(profile)
        return 0 if follower is None else follower.position

    def behind(self, profile: str, n_clicks: int) -> int:
        """Pages in the log that are not learned yet."""
        follower = self._followers.get(profile)
        return n_clicks if follower is None else n_clicks - follower.position

    def step(self, active: dict[str, Version]) -> bool:
        """Learn some new pages of every profile, and decide where it is due; returns whether there are more."""
        more = False
        for profile, n_clicks in self._store.all_profiles().items():
            if profile in active and n_clicks:
                more |= self._learn(profile, n_clicks, active[profile])
        return more

    def _learn(self, profile: str, n_clicks: int, active: Version) -> bool:
        follower = self._followers.get(profile)
        if follower is None or (follower.active != active.number and self._chosen(profile) != follower.began):
            follower = self._followers[profile] = self._begin(profile, n_clicks, active)
        follower.active = active.number
        if follower.position >= n_clicks:
            return False
        follower.learner.sample = self._collection.sample.codes
        for number, click in self._store.clicks_after(profile, follower.position, AT_ONCE):
            try:
                follower.learner.learn(_page(click))
            except ValueError:  # it stays in the log; the pages after it must still be learned
                logger.exception("page %s of profile %s cannot be learned from", number, profile)
            follower.position = number  # not before: who waits for it wants the weights of this page
            if follower.learner.due and number > follower.decided:
                self._decide(profile, follower, active)
                break  # another version may be active now
        return follower.position < n_clicks

    def _chosen(self, profile: str) -> int:
        return self._store.last_choice(profile).number

    def _begin(self, profile: str, n_clicks: int, active: Version) -> _Follower:
        # Who goes back or chooses another version does not want what was learned until then.
        choice = self._store.last_choice(profile)
        start = self._store.version(profile, choice.version)
        assert start is not None
        sample, n_bits = self._collection.sample.codes, self._collection.n_bits
        learner = feedback.ClickLearner(sample, n_bits=n_bits, weights=start.weights, random_state=0)
        learner.n_looks, decided = self._store.decisions(profile, choice.n_clicks)
        position = max(choice.n_clicks, n_clicks - MEMORY)
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
        self._store.decide(profile, follower.position, figures, active.number, candidate)
        follower.decided = follower.position
        self.alarms[profile] = bool(decision.alarm)


def _page(click: Click) -> feedback.Page:
    width = len(click.query_code)
    return feedback.Page(
        query_code=np.frombuffer(click.query_code, np.uint8),
        shown_codes=np.frombuffer(click.shown_codes, np.uint8).reshape(-1, width),
        clicked=np.array([shown["clicked"] for shown in click.shown], bool),
        explored=np.array([shown["explored"] for shown in click.shown], bool),
        magnitudes=None if click.magnitudes is None else np.frombuffer(click.magnitudes, "<f4").astype(np.float32),
    )
