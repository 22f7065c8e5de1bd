"""`Service`: the parts of a running service in one place, kept up to date with the store; routes call it.

It finds pages of results, logs answered ones, and knows the active weights of every profile.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sqlalchemy.exc import SQLAlchemyError

from bitrank import feedback
from bitrank.checks import n_threads
from bitrank.codes import distances as weighted_distances
from bitrank.service.collection import Collection, Query, tie_ranks
from bitrank.service.learning import Learning
from bitrank.service.sources import Source
from bitrank.service.store import DEFAULT, HAMMING, Click, Store, Version
from bitrank.vocabulary import Ids, Weights

MAX_PROFILES = 1000
POLL_S = 0.5  # what another process wrote is seen after so long at the most

Distances = npt.NDArray[np.float32]

logger = logging.getLogger("bitrank.service")


@dataclass(frozen=True)
class Settings:
    """What an operator may choose."""

    page_size: int = 20
    explore: int = 4
    rate: float = 500.0
    token: str | None = None
    image_origins: tuple[str, ...] = ()
    random_state: int | None = None


class UnknownVersionError(ValueError):
    """A profile or version that is not there."""


class Service:
    """A collection, its store, and the weights of every profile."""

    def __init__(self, source: Source, url: str, settings: Settings) -> None:
        self.settings = settings
        self.store = Store(url, source.index.n_bits)
        self.collection = Collection(source, self.store)
        self.searchers = ThreadPoolExecutor(n_threads(), "bitrank-search")
        n_bits, weights = source.index.n_bits, source.index.weights
        uniform = np.ones(n_bits, np.float32)
        self.store.add_profile(HAMMING, uniform, "uniform")
        self.store.add_profile(
            DEFAULT, uniform if weights is None else weights, "uniform" if weights is None else "index"
        )
        self._active: dict[str, Version] = {}
        self._applied = -1
        self._refreshing = threading.Lock()
        self.refresh_active()
        self.learning = Learning(self.store, self.collection)
        self._random, self._drawing = np.random.default_rng(settings.random_state), threading.Lock()
        self._woken, self._closed = threading.Event(), threading.Event()
        # Apart, since learning may take longer than a version may take to be active in every process.
        self._workers = [threading.Thread(target=work, daemon=True) for work in (self._follow, self._learn)]
        for worker in self._workers:
            worker.start()

    def close(self) -> None:
        """Stop searching and learning, and close the data base."""
        self._closed.set()
        self._woken.set()
        for worker in self._workers:
            worker.join()
        self.searchers.shutdown()
        self.store.close()

    def wake(self) -> None:
        """Have what is new in the store learned now, not at the next look at it."""
        self._woken.set()

    def _follow(self) -> None:
        """Look twice a second at what other processes wrote to the store."""
        while not self._closed.wait(POLL_S):
            try:
                self.collection.refresh()
                self.collection.refresh_sample()
                self.refresh_active()
            except SQLAlchemyError as error:
                logger.warning("the data base does not answer, trying again: %s", error)

    def _learn(self) -> None:
        """Learn from new clicks, at once where they were written here."""
        # What the first click and the first vector need takes a second to load: at once, but nobody waits for it.
        _ = feedback.ClickLearner, feedback.lean, self.collection.hasher
        more = False
        while not self._closed.is_set():
            if not more:
                self._woken.wait(POLL_S)
                self._woken.clear()
            try:
                self.refresh_active()
                start = time.monotonic()
                more = self.learning.step(self._active)
                self.refresh_active()
                if more:
                    # A long queue of clicks may take half of this thread's time: searches come first.
                    self._closed.wait(time.monotonic() - start)
            except SQLAlchemyError:
                more = False  # the other thread says so
                self._closed.wait(POLL_S)

    # Weights

    def active(self, profile: str) -> Version:
        """The active version of a profile."""
        version = self._active.get(profile)
        if version is None:
            self.refresh_active()  # another process may have made it just now
            version = self._active.get(profile)
        if version is None:
            raise UnknownVersionError(f"no profile {profile!r:.80}")
        return version

    def refresh_active(self) -> None:
        """Take up what was activated, by this process or by another."""
        with self._refreshing:
            applied, active = self.store.active_versions(self._applied)
            if applied == self._applied:
                return
            changed = [name for name, version in self._active.items() if active[name].number != version.number]
            self._active, self._applied = active, applied
        if self.collection.index.weights is None or DEFAULT in changed:
            self.collection.index.weights = active[DEFAULT].weights  # rows are sorted for it, where that pays

    def weights(self, profile: str, version: int | Literal["candidate"] | None) -> tuple[int | str, Weights]:
        """Weights to search with, and the number of their version: the active one unless another is named."""
        active = self.active(profile)
        if version is None or version == active.number:
            return active.number, active.weights
        if version == "candidate":
            candidate = self.learning.candidate(profile)
            return version, active.weights if candidate is None else candidate
        found = self.store.version(profile, version)
        if found is None:
            raise UnknownVersionError(f"profile {profile!r} has no version {version}")
        return found.number, found.weights

    # Searches

    def find(
        self,
        query: Query,
        k: int,
        profile: str,
        version: int | Literal["candidate"] | None,
        explore: int | None,
        chosen: Sequence[int] = (),
    ) -> dict[str, Any]:
        """A page of results for a query, without the item that it is the code of."""
        number, weights = self.weights(profile, version)
        if chosen:
            weights = self._lean(query, weights, profile, chosen)
        if explore is None:
            explore = 0 if profile == HAMMING else self.settings.explore * k // self.settings.page_size
        if query.magnitudes is not None and profile != HAMMING:
            weights = weights * query.magnitudes
        n_top = max(0, k - explore) + (query.item is not None)
        ids, distances = np.empty(0, np.int64), np.empty(0, np.float32)
        if n_top:
            found = self.collection.index.search(query.code, n_top, weights=weights, threads=1)
            keep = (found.ids[0] >= 0) & (found.ids[0] != query.item)
            ids, distances = found.ids[0][keep][: k - explore], found.distances[0][keep][: k - explore]
        explored = np.zeros(len(ids), bool)
        if explore:
            ids, distances, explored = self._explore(query, ids, distances, weights, min(explore, k))
        return {
            "query": {"code": query.code.tobytes().hex(), "item": query.item},
            "profile": profile,
            "version": number,
            "results": self._results(ids, distances, explored),
        }

    def _lean(self, query: Query, weights: Weights, profile: str, chosen: Sequence[int]) -> Weights:
        """Weights for this query alone, under which chosen items come before the others of its first page."""
        if profile == HAMMING:
            raise ValueError("the profile hamming weighs every bit the same: chosen goes with another")
        own = weights if query.magnitudes is None else weights * query.magnitudes
        found = self.collection.index.search(query.code, self.settings.page_size, weights=own, threads=1).ids[0]
        there = [item for item in chosen if self.collection.has(item) and item != query.item]
        passed = [item for item in found.tolist() if item >= 0 and item != query.item and item not in there]
        codes = self.collection.codes
        return feedback.lean(weights, query.code, codes(passed), codes(there), query.magnitudes)

    def _explore(
        self, query: Query, ids: Ids, distances: Distances, weights: Weights, n_slots: int
    ) -> tuple[Ids, Distances, npt.NDArray[np.bool_]]:
        """Mix items from deeper ranks into the best results."""
        sample = self.collection.sample
        with self._drawing:
            random = np.random.default_rng(self._random.integers(2**63))
        try:
            top = self.collection.index.codes(ids)
        except ValueError:  # one of them was removed just now
            return ids, distances, np.zeros(len(ids), bool)
        page = feedback.explore(query.code[0], top, sample.codes, n_slots, random)
        far = sample.ids[page.rows[page.explored]]
        mixed_ids, mixed = np.empty(len(page.rows), np.int64), np.empty(len(page.rows), np.float32)
        mixed_ids[~page.explored], mixed[~page.explored] = ids, distances
        mixed_ids[page.explored] = far
        mixed[page.explored] = weighted_distances(query.code, sample.codes[page.rows[page.explored]], weights)[0]
        there = ~page.explored
        there[page.explored] = [self.collection.has(item) for item in far.tolist()]
        return mixed_ids[there], mixed[there], page.explored[there]

    def _results(self, ids: Ids, distances: Distances, explored: npt.NDArray[np.bool_]) -> list[dict[str, Any]]:
        listed = ids.tolist()
        rows = zip(
            listed,
            distances.tolist(),
            tie_ranks(distances, explored),
            explored.tolist(),
            self.collection.about(listed),
            strict=True,
        )
        return [
            {
                "id": item,
                "rank": rank,
                "distance": distance,
                "tie": tie,
                "explored": apart,
                "title": about.title,
                "image": about.image,
                "payload": about.payload,
            }
            for rank, (item, distance, tie, apart, about) in enumerate(rows, 1)
        ]

    # Clicks

    def log(
        self,
        key: str,
        profile: str,
        version: int | None,
        query: Query,
        shown: list[tuple[int, bool]],
        clicked: set[int],
    ) -> tuple[bool, int]:
        """Log an answered page; items that are not there any more are left out of it."""
        gone = set(self.collection.missing([item for item, _ in shown]))
        there = [(item, explored) for item, explored in shown if item not in gone]
        if not there:
            raise ValueError(f"shown must hold items of this collection, got {shown[0][0]} and no other that is there")
        click = Click(
            key=key,
            profile=profile,
            version=version,
            query_item=query.item,
            query_code=query.code.tobytes(),
            magnitudes=None if query.magnitudes is None else query.magnitudes.astype("<f4").tobytes(),
            shown=[{"id": item, "explored": explored, "clicked": item in clicked} for item, explored in there],
            shown_codes=self.collection.codes([item for item, _ in there]).tobytes(),
        )
        logged = self.store.add_click(click)
        self.wake()
        return logged


def to_json(value: Any) -> bytes:
    """JSON as it goes over the wire."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
