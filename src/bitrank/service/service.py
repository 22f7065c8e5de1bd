"""`Service`: a collection, its store and what was learned in one place, kept up to date with the store.

Routes call it: it searches, logs answered pages, and knows the active weights of every profile.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from sqlalchemy.exc import SQLAlchemyError

from bitrank import clicks
from bitrank.clicks.log import check_clicked
from bitrank.collection.planes import over_codes
from bitrank.core.checks import n_threads
from bitrank.core.types import Weights
from bitrank.index import Index
from bitrank.service.access_log import AccessLog
from bitrank.service.batching import Batches
from bitrank.service.candidates import Candidates
from bitrank.service.clients import Clients
from bitrank.service.code_table import Sample
from bitrank.service.collection import Collection, SearchQuery
from bitrank.service.engine_index import EngineIndex
from bitrank.service.learner import POLL_S, Learner
from bitrank.service.link import Link
from bitrank.service.page_tokens import Signer
from bitrank.service.remembered import Remembered
from bitrank.service.searching import Chosen, Searcher, VersionChoice
from bitrank.service.settings import Settings
from bitrank.service.sources import Source
from bitrank.service.store import Store
from bitrank.service.store.profiles import DEFAULT, HAMMING, Version
from bitrank.service.store.rankings import Ranking, ranking_of

if TYPE_CHECKING:
    from bitrank.ranking.ranker import Ranker

PROBE_S = 5.0  # between two writes that show whether the database takes any
LEAST_FREE = 2**20  # bytes on the disk of the database
MAX_LAG = 1000  # answered pages that are not yet learned from
MAX_LOGGED = 100  # places of a page that are logged: as many have a propensity of their own
MAX_CODES_ON_LOOP = 200_000  # A batch of searches over more codes than this together leaves the event loop.

logger = logging.getLogger("bitrank.service")


class UnknownVersionError(ValueError):
    """A profile or version that does not exist."""


class ReadOnlyError(ValueError):
    """A change of the profile hamming."""


class FullDiskError(Exception):
    """The disk of the database has no room."""


class Service:
    """A collection, its store, and the weights of every profile.

    Parameters
    ----------
    source : Source
    url : str
        The database.
    settings : Settings
    ranker : Ranker, optional
        The first version of the default profile, or a new one; by default what the collection learned, if anything.
    link : Link, optional
        Leads to a learner in another process. Without one, the service learns on a thread.
    """

    def __init__(
        self, source: Source, url: str, settings: Settings, ranker: Ranker | None = None, link: Link | None = None
    ) -> None:
        ranker = over_codes(source.ranker if ranker is None else ranker, source.hasher)
        if ranker is not None and ranker.n_bits_ != source.index.n_bits:
            raise ValueError(f"the ranker must rank codes of {source.index.n_bits} bits, got {ranker.n_bits_}")
        self.settings = settings
        self.access_log = None if settings.access_log is None else AccessLog(settings.access_log)
        self.store = Store(url, source.index.n_bits, source.index)  # last: it may migrate the database
        self.collection = Collection(source, self.store.items)
        self.searchers = ThreadPoolExecutor(n_threads(), "bitrank-search")
        self.store.profiles.add(HAMMING, Ranking(np.ones(source.index.n_bits, np.float32)), "uniform")
        self._add_default(source.index.weights, ranker)
        self._active: dict[str, Version] = {}
        self._applied = -1
        self._refreshing = threading.Lock()
        self.candidates = Candidates(self.store.candidates)
        self.candidates.refresh()
        self.refresh_active()
        self._probed = -PROBE_S
        self._kept_sample: Sample | None = None
        self._keep_sample()
        self.signer = Signer(self.store.secret)
        self.clients = Clients(self.store.secret, settings.proxies, settings.sessions)
        self.remembered = Remembered(source, self.collection, self.store.judgements)
        self.searcher = Searcher(self.collection, self.signer, settings, self.ranking, self.remembered)
        self.batches = Batches(self.searcher.run, self._is_long, self.searchers)
        self.link = Link() if link is None else link
        self._learner = Learner(self.store, settings, self.link) if link is None else None
        self._closed = threading.Event()
        tasks = [self._follow] if self._learner is None else [self._follow, self._learner.run]
        self._threads = [threading.Thread(target=task, daemon=True) for task in tasks]
        for thread in self._threads:
            thread.start()

    def _add_default(self, index_weights: Weights | None, ranker: Ranker | None) -> None:
        """Create the default profile, or add a ranker to it and activate that, once per ranker."""
        profiles, n_bits = self.store.profiles, self.collection.n_bits
        if ranker is None:
            weights = np.ones(n_bits, np.float32) if index_weights is None else index_weights
            profiles.add(DEFAULT, Ranking(weights), "uniform" if index_weights is None else "index")
            return
        ranking = ranking_of(ranker, self.collection.sample.codes)
        if not profiles.add(DEFAULT, ranking, "ranker"):
            profiles.begin_with(DEFAULT, ranking)

    def close(self) -> None:
        """Stop searching and learning, and close the database."""
        self._closed.set()
        if self._learner is not None:
            self._learner.close()
        for thread in self._threads:
            thread.join()
        if self._learner is not None:
            self.link.close()
        self.searchers.shutdown()
        self.store.close()
        if self.access_log is not None:
            self.access_log.close()

    def health(self) -> dict[str, str]:
        """Say what works: an error of the database or of the engine is raised, and learning may lag or fail.

        Whether the database takes writes is looked at every few seconds, since anybody may ask.
        """
        n_pages = self.store.profiles.n_pages()
        if isinstance(self.collection.index, EngineIndex):
            self.collection.index.check_reachable()
        if time.monotonic() > self._probed + PROBE_S:
            free = self.store.database.n_bytes_free()
            if free is not None and free < LEAST_FREE:
                raise FullDiskError
            self.store.database.check_writable()
            self._probed = time.monotonic()
        lag = sum(max(0, n - self.candidates.position(name)) for name, n in n_pages.items())
        learning = "failing" if self.link.failing else "behind" if lag > MAX_LAG else None
        return {"status": "ok"} | ({} if learning is None else {"learning": learning})

    def _is_long(self, n_searches: int) -> bool:
        return self.collection.is_remote or n_searches * len(self.collection) > MAX_CODES_ON_LOOP

    def _keep_sample(self) -> None:
        """Keep the sample of the collection where the learner reads it, if it changed."""
        sample = self.collection.sample
        if sample is not self._kept_sample:
            self.store.candidates.keep_sample(sample.codes)
            self._kept_sample = sample

    def _follow(self) -> None:
        """Poll the store for changes by other processes."""
        # The imports that the first choice and the first vector need take a second: do them now, while nobody waits.
        _ = clicks.adapt_to_choices, self.collection.source.hasher
        while not self._closed.wait(POLL_S):
            try:
                self.collection.refresh()
                self.remembered.refresh()
                self.collection.refresh_sample()
                self._keep_sample()
                self.candidates.refresh()
                self.refresh_active()
            except SQLAlchemyError as error:
                logger.warning("the database does not answer, trying again: %s", error)
            except Exception:  # whatever it is, it must not end this thread
                logger.exception("changes of others cannot be applied, trying again")

    # Weights

    def knows(self, profile: str, version: VersionChoice) -> bool:
        """Return whether the weights of a version are in memory."""
        active = self._active.get(profile)
        return active is not None and version in (None, "candidate", active.number)

    def active(self, profile: str) -> Version:
        """Return the active version of a profile."""
        version = self._active.get(profile)
        if version is None:
            self.refresh_active()  # another process may have created the profile just now
            version = self._active.get(profile)
        if version is None:
            raise UnknownVersionError(f"no profile {profile!r:.80}")
        return version

    def refresh_active(self) -> None:
        """Apply activations by this process or by others."""
        with self._refreshing:
            applied, active = self.store.profiles.active(self._applied)
            if applied == self._applied:
                return
            changed = [name for name, version in self._active.items() if active.get(name, version).key != version.key]
            self._active, self._applied = active, applied
        index = self.collection.index
        if isinstance(index, Index) and (index.weights is None or DEFAULT in changed):
            index.weights = active[DEFAULT].ranking.weights  # rows are sorted for it where that pays

    def ranking(self, profile: str, version: VersionChoice) -> Chosen:
        """Return the number of a version and how it ranks; None is the active version."""
        active = self.active(profile)
        if version is None or version == active.number:
            return Chosen(active.number, active.ranking, active.origin == "clicks")
        if version == "candidate":
            candidate = self.candidates.ranking(profile)
            return Chosen(version, active.ranking if candidate is None else candidate)
        stored = self.store.profiles.version(profile, version)
        if stored is None:
            raise UnknownVersionError(f"profile {profile!r} has no version {version}")
        return Chosen(stored.number, stored.ranking)

    # Pages

    def answer_page(self, token: str, clicked: list[int], profile: str | None) -> tuple[clicks.LoggedPage, bool, int]:
        """Log a page that this service showed; returns it, whether it is new, and the number of pages of its profile.

        A page of the profile hamming teaches the profile that the answer names.
        """
        page = self.signer.read(token)
        if profile is not None and page.profile not in (HAMMING, profile):
            raise ValueError(f"profile must be {page.profile!r}, as the page was ranked, got {profile!r}")
        check_clicked(page.shown, clicked)
        name = profile or page.profile
        version = page.version if page.profile == name else None
        kind = {"code": page.code.hex()} if page.item is None else {"item": page.item}
        logged = clicks.LoggedPage(
            page.id.hex(), kind, page.shown, page.explored, clicked, name, version, page.client or None
        )
        return logged, *self.log_page(logged, page.query, signed=page.teaches)

    def log_page(self, logged: clicks.LoggedPage, query: SearchQuery, *, signed: bool) -> tuple[bool, int]:
        """Log an answered page without the items that are gone; returns whether its key is new, and the count."""
        if logged.profile == HAMMING:
            raise ReadOnlyError("the profile hamming is read-only: name the profile that learns from the page")
        self.active(logged.profile or DEFAULT)
        missing = set(self.collection.missing(logged.shown))
        kept = [(item, flag) for item, flag in zip(logged.shown, logged.explored, strict=True) if item not in missing]
        if not kept:
            raise ValueError(f"shown must hold items of this collection, got {logged.shown[0]} and no other of it")
        kept = kept[:MAX_LOGGED]
        logged = logged._replace(shown=[item for item, _ in kept], explored=[flag for _, flag in kept])
        clicked = set(logged.clicked)
        page = clicks.Page(
            query.vector,
            self.collection.codes(logged.shown),
            np.array([item in clicked for item in logged.shown]),
            np.array(logged.explored),
        )
        answer = self.store.pages.add(logged, page, signed=signed)
        self.link.wake()
        return answer
