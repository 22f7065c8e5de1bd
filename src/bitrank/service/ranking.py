"""`Service`: the parts of a running service in one place, kept up to date with the store; routes call it.

It finds pages of results, logs answered ones, and knows the active weights of every profile.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bitrank.codes import Weights
from bitrank.segments import n_threads
from bitrank.service.collection import Collection, Query, tie_ranks
from bitrank.service.sources import Source
from bitrank.service.store import DEFAULT, HAMMING, Click, Store, Version

MAX_PROFILES = 1000


@dataclass(frozen=True)
class Settings:
    """What an operator may choose."""

    page_size: int = 20
    explore: int = 4
    rate: float = 500.0
    token: str | None = None
    image_origins: tuple[str, ...] = ()


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

    def close(self) -> None:
        """Stop searching, and close the data base."""
        self.searchers.shutdown()
        self.store.close()

    # Weights

    def active(self, profile: str) -> Version:
        """The active version of a profile."""
        version = self._active.get(profile)
        if version is None:
            raise UnknownVersionError(f"no profile {profile!r:.80}")
        return version

    def refresh_active(self) -> None:
        """Take up what was activated, by this process or by another."""
        with self._refreshing:
            applied, active = self.store.active_versions(self._applied)
            if applied != self._applied:
                self._active, self._applied = active, applied

    def weights(self, profile: str, version: int | Literal["candidate"] | None) -> tuple[int | str, Weights]:
        """Weights to search with, and the number of their version: the active one unless another is named."""
        active = self.active(profile)
        if version is None or version == active.number:
            return active.number, active.weights
        if version == "candidate":
            return version, active.weights
        found = self.store.version(profile, version)
        if found is None:
            raise UnknownVersionError(f"profile {profile!r} has no version {version}")
        return found.number, found.weights

    # Searches

    def find(
        self, query: Query, k: int, profile: str, version: int | Literal["candidate"] | None, explore: int | None
    ) -> dict[str, Any]:
        """A page of results for a query, without the item that it is the code of."""
        number, weights = self.weights(profile, version)
        if query.magnitudes is not None and profile != HAMMING:
            weights = weights * query.magnitudes
        extra = query.item is not None
        found = self.collection.index.search(query.code, k + extra, weights=weights, threads=1)
        keep = (found.ids[0] >= 0) & (found.ids[0] != (-1 if query.item is None else query.item))
        ids, distances = found.ids[0][keep][:k], found.distances[0][keep][:k]
        return {
            "query": {"code": query.code.tobytes().hex(), "item": query.item},
            "profile": profile,
            "version": number,
            "results": self._results(ids, distances, np.zeros(len(ids), bool)),
        }

    def _results(
        self, ids: npt.NDArray[np.int64], distances: npt.NDArray[np.float32], explored: npt.NDArray[np.bool_]
    ) -> list[dict[str, Any]]:
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
        there = [(item, explored) for item, explored in shown if self.collection.has(item)]
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
        return self.store.add_click(click)


def to_json(value: Any) -> bytes:
    """JSON as it goes over the wire."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
