"""`Learner`: learn from new pages of every profile, decide at the gate, and publish candidates.

It runs in a process of its own, or on a thread of the service. It follows the log in the store, not the requests: pages
that other processes logged reach it as well, and after a restart it catches up by itself.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from bitrank import clicks
from bitrank.ranking.networks.threads import one_blas_thread
from bitrank.service.link import Link
from bitrank.service.settings import Settings
from bitrank.service.store import Store
from bitrank.service.store.candidates import PageSetAside, Progress, Publication
from bitrank.service.store.database import UnknownOutcomeError
from bitrank.service.store.page_log import read_page
from bitrank.service.store.profiles import Activation, Version
from bitrank.service.store.rankings import Ranking, ranking_of

logger = logging.getLogger("bitrank.service")

POLL_S = 0.5  # Pages that another service logged are seen after this long at the latest.
PRUNE_S = 600.0  # between two looks at the limits of the log
MEMORY = 5000  # Newest pages of a log that a new learner reads, of every client as many but for those who have fewer.
BATCH = 4  # Pages learned before another profile has its turn.
MAX_FAILURES = 3  # or deaths, one after the other at one page, before it is set aside
PUBLISH_S = 0.2  # Candidates are published this often at most.


@dataclass
class _Follower:
    """A learner on its way along a profile's log."""

    learner: clicks.ClickLearner
    choice: Activation  # by a user, that it started from
    active: tuple[int, float]  # the version that was active at its last step, and its time
    position: int  # last page that it learned from
    decided: int  # last page that the gate decided at
    published: Progress | None  # by this learner, or by one before it
    is_new: bool  # whether the candidate is not yet published
    candidate: Ranking | None = None
    known: int = 0  # last page that what is known of clients counts
    again: deque[int] = field(default_factory=deque)  # pages to read after a start, before those after `position`
    relearns: bool = False  # whether the gate decides as soon as all is read, since a client was blocked

    @property
    def progress(self) -> Progress:
        return Progress(self.choice.number, self.position)

    @property
    def is_ahead(self) -> bool:
        """Whether there is something to publish; a learner that catches up first publishes nothing."""
        if self.published is None or self.progress > self.published:
            return True
        return self.is_new and self.progress == self.published


class Learner:
    """The learners of all profiles.

    Parameters
    ----------
    store : Store
        Holds the log, and a sample of the collection.
    settings : Settings
    link : Link
        Its bell says that a page was logged. The learner tells it which page it is at, and whether learning fails.
    """

    def __init__(self, store: Store, settings: Settings, link: Link) -> None:
        self._store, self._settings, self._link = store, settings, link
        self._closed = False
        self._secret = hmac.digest(store.secret, b"held-out pages", "sha256")
        self._followers: dict[str, _Follower] = {}
        self._active: dict[str, Version] = {}
        self._active_read = self._sample_read = self._blocked_read = -1
        self._blocked: set[str] = set()
        self._relearns = False
        self._aside: dict[str, set[int]] = {}  # numbers of pages that could not be learned from, by profile
        self._aside_unsaved: list[PageSetAside] = []
        self._published_at = -PUBLISH_S
        self._pruned_at = time.monotonic()
        self._restart()

    def close(self) -> None:
        """Let `run` end after the page that it is at."""
        self._closed = True
        self._link.wake()

    def run(self) -> None:
        """Learn until closed; a step that fails is reported, and learning starts again from the log."""
        _ = clicks.ClickLearner  # the imports that the first page needs take a second: do them now
        pause = 0.0
        while not self._closed:
            self._link.wait(pause)
            try:
                more = self.step()
                pause = PUBLISH_S if self.publish() else POLL_S
                pause = 0.0 if more else pause
                self._prune()
                self._link.failing = False
            except SQLAlchemyError as error:
                logger.warning("learning waits for the database: %s", getattr(error, "orig", None) or error)
                self._link.end()
                self._link.failing = True
                time.sleep(POLL_S)
            except Exception as error:
                logger.exception("learning failed, starting again from the log")
                if isinstance(error, UnknownOutcomeError | MemoryError | OSError):
                    self._link.end()  # no page is to blame
                self._link.fail()
                self._restart()
                time.sleep(POLL_S)

    def _restart(self) -> None:
        """Start again from the log after a failure or a death, without the pages that are to blame.

        After some failures at one page it is set aside, and with every further one twice as many of the pages before
        it: one of them is the cause.
        """
        self._followers.clear()
        profile, last, n_failures = self._link.failed
        if n_failures >= MAX_FAILURES:
            for number in range(max(1, last + 1 - 2 ** (n_failures - MAX_FAILURES)), last + 1):
                if number not in self._aside.get(profile, ()):
                    self._set_aside(profile, number, f"learning failed {n_failures} times at page {last}")

    def _set_aside(self, profile: str, number: int, reason: str) -> None:
        """Never learn from a page again."""
        self._aside.setdefault(profile, set()).add(number)
        self._aside_unsaved.append(PageSetAside(profile, number, reason))

    @one_blas_thread
    def step(self) -> bool:
        """Learn some new pages of every profile, and decide where due; returns whether there are more."""
        more, n_pages_of = False, self._store.profiles.n_pages()
        self._refresh()  # only now: a user's choice that came before a page is then known with the page
        self._followers = {profile: one for profile, one in self._followers.items() if profile in n_pages_of}
        for profile, n_pages in n_pages_of.items():
            if profile in self._active and n_pages and not self._closed:
                more |= self._learn(profile, n_pages, self._active[profile])
        self._link.end()
        return more

    def _prune(self) -> None:
        """Forget pages beyond the limits of the log, now and then."""
        if time.monotonic() >= self._pruned_at + PRUNE_S:
            self._pruned_at = time.monotonic()
            for profile in self._store.profiles.n_pages():
                self._store.pages.prune(profile, self._settings.retention)

    def publish(self) -> bool:
        """Publish what is new, unless that was done a moment ago; returns whether something is left to publish."""
        ahead = {profile: follower for profile, follower in self._followers.items() if follower.is_ahead}
        if not ahead and not self._aside_unsaved:
            return False
        if time.monotonic() < self._published_at + PUBLISH_S:
            return True
        publications = []
        for name, one in ahead.items():
            clients = one.learner.clients
            facts = {client: clients.facts[client] for client in clients.changed if client in clients.facts}
            publications.append(Publication(name, one.progress, one.is_new, one.candidate, facts))
        self._store.candidates.publish(publications, self._aside_unsaved)
        self._published_at = time.monotonic()
        self._aside_unsaved = []
        for follower in ahead.values():
            follower.published, follower.is_new = follower.progress, False
            follower.learner.clients.changed.clear()
        return False

    def _refresh(self) -> None:
        """Read activations, the sample of the collection and the blocked clients, where they changed."""
        read, active = self._store.profiles.active(self._active_read)
        if read != self._active_read:
            self._active_read, self._active = read, active
        read, sample = self._store.candidates.sample(self._sample_read)
        if sample is not None:
            self._sample_read, self._sample = read, sample
        read, blocked = self._store.clients.blocked(self._blocked_read)
        if blocked is not None:
            if blocked != self._blocked:  # learn again without them, or with them
                self._followers.clear()
                self._relearns = self._blocked_read >= 0
            self._blocked_read, self._blocked = read, blocked

    def _learn(self, profile: str, n_pages: int, active: Version) -> bool:
        follower = self._followers.get(profile)
        last_choice = self._store.profiles.last_choice
        if follower is None or (follower.active != active.key and last_choice(profile) != follower.choice):
            follower = self._followers[profile] = self._start(profile, n_pages, active)
        follower.active = active.key
        if follower.position >= n_pages and not follower.again:
            if follower.relearns:
                self._decide(profile, follower, active)
            return False
        follower.learner.sample = self._sample
        rows = self._next(profile, follower)
        if not rows and not follower.again:
            follower.position = n_pages  # the pages after it were forgotten
        for row in rows:
            if self._closed:
                break
            self._link.begin(profile, row.number)
            try:
                learnable = row.number not in self._aside[profile] and row.client not in self._blocked
                if learnable and (row.signed or self._settings.learn_imported):
                    is_known = row.number <= follower.known
                    follower.learner.learn(read_page(row), number=row.number, version=row.version, is_known=is_known)
            except Exception as error:  # it stays in the log, and the pages after it are still learned
                logger.exception("page %s of profile %s cannot be learned from", row.number, profile)
                self._set_aside(profile, int(row.number), f"{error!r:.500}")
            if follower.learner.due and row.number > follower.decided:
                follower.position = row.number
                self._decide(profile, follower, active)
                break  # another version may be active now
            if row.number == n_pages and follower.learner.stale:
                follower.learner.update()
                self._take_candidate(follower)
            follower.position = row.number  # only now: whoever waits for it wants the candidate of this page
        return follower.position < n_pages or follower.relearns

    def _next(self, profile: str, follower: _Follower) -> Sequence[Any]:
        """Read the next pages."""
        if not follower.again:
            return self._store.pages.after(profile, follower.position, BATCH)
        numbers = [follower.again.popleft() for _ in range(min(BATCH, len(follower.again)))]
        return self._store.pages.rows(profile, numbers)

    def _take_candidate(self, follower: _Follower) -> None:
        follower.candidate, follower.is_new = ranking_of(follower.learner.candidate, self._sample), True

    def _start(self, profile: str, n_pages: int, active: Version) -> _Follower:
        # A user who rolls back or activates another version does not want what was learned until then.
        choice = self._store.profiles.last_choice(profile)
        facts, published = self._store.clients.facts(profile), self._store.candidates.progress(profile)
        known = published.position if published is not None and facts else 0
        n_looks, n_activated, decided = self._store.gate.count(profile, choice.n_pages)
        learner = clicks.ClickLearner(
            self._sample,
            n_bits=self._store.n_bits,
            secret=self._secret,
            min_clients=self._settings.min_clients,
            facts=facts,
            undecided=self._store.pages.n_of_clients(profile, decided, known),
            random_state=0,
        )
        learner.n_looks, learner.n_activated = n_looks, n_activated
        again = deque(self._store.pages.newest(profile, choice.n_pages, MEMORY))
        position = again[0] - 1 if again else n_pages
        self._aside.setdefault(profile, set()).update(self._store.candidates.set_aside(profile))
        is_new = published is None or published.choice != choice.number  # no candidate instead of the one before
        return _Follower(
            learner, choice, active.key, position, decided, published, is_new, None, known, again, self._relearns
        )

    def _decide(self, profile: str, follower: _Follower, active: Version) -> None:
        decision = follower.learner.decide(active.ranking.as_ranker(), active.number)
        self._take_candidate(follower)
        undo = decision.alarm and active.origin == "clicks" and self._settings.auto_rollback
        if decision.alarm:
            logger.warning("version %s of profile %s ranks clicks worse than Hamming", active.number, profile)
        names = ("active", "candidate", "hamming", "error", "top", "reason")
        figures: dict[str, Any] = {name: getattr(decision, name) for name in names} | {
            "decision": "roll back" if undo else "activate" if decision.activate else "keep",
            "n_held_out": decision.n_pages,
            "n_left_out": len(follower.learner.dropped),
            "alarm": bool(decision.alarm),
        }
        candidate = follower.candidate if decision.activate and not undo else None
        teachers = {client: round(share, 4) for client, share in follower.learner.teachers.items()}
        self._store.gate.record(
            profile, follower.position, figures, active.number, candidate, teachers, undo, again=follower.relearns
        )
        follower.decided, follower.relearns = follower.position, False
