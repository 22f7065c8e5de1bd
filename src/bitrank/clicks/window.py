"""`Window`: the newest entries, of which no client holds more than others; and how much each client's pages count."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator, Mapping
from typing import Generic, TypeVar

import numpy as np

# No client counts for more than one page and than this share of all.
SHARE = 0.02

T = TypeVar("T")


class Window(Generic[T]):
    """The newest entries of all clients. Where it is full, the busiest client loses its oldest entry.

    A client that sends more than others therefore pushes out its own entries only.

    Examples
    --------
    >>> window: Window[int] = Window(4)
    >>> for client, number in [("a", 1), ("b", 2), ("flood", 3), ("flood", 4), ("flood", 5)]:
    ...     window.add(client, number)
    >>> list(window)
    [('a', 1), ('b', 2), ('flood', 4), ('flood', 5)]
    """

    def __init__(self, size: int) -> None:
        self._size, self._last = size, 0
        self._entries: dict[int, tuple[str, T]] = {}
        self._numbers: dict[str, deque[int]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[str, T]]:
        """Clients and entries, oldest first."""
        return iter(list(self._entries.values()))

    @property
    def counts(self) -> dict[str, int]:
        """Number of entries of every client."""
        return {client: len(numbers) for client, numbers in self._numbers.items()}

    def add(self, client: str, entry: T) -> None:
        """Add the newest entry."""
        self._last += 1
        self._entries[self._last] = client, entry
        self._numbers.setdefault(client, deque()).append(self._last)
        if len(self._entries) > self._size:
            busiest = max(self._numbers, key=lambda name: (len(self._numbers[name]), -self._numbers[name][0]))
            del self._entries[self._numbers[busiest].popleft()]
            if not self._numbers[busiest]:
                del self._numbers[busiest]


def limit_of(n_pages: Mapping[str, int]) -> float:
    """For how many pages a client may count: the larger of one page and 2 % of all that count.

    Of fewer than 50 clients, who cannot all be within 2 %, none counts for more than the median client.

    Examples
    --------
    >>> round(limit_of({f"client {number}": 3 for number in range(100)} | {"flood": 14_000}), 2)
    6.12
    >>> limit_of({"a": 2, "b": 3, "flood": 1000})
    3.0
    """
    counts = np.sort(np.array([*n_pages.values()] or [1], np.float64))[::-1]
    if len(counts) * SHARE < 1:
        return max(1.0, float(np.median(counts)))
    # With the k busiest clients at the limit L: L = SHARE · (k L + the pages of the others).
    clipped = np.arange(int(1 / SHARE))
    limits = SHARE * (counts.sum() - np.concatenate([[0.0], counts.cumsum()]))[clipped] / (1 - SHARE * clipped)
    fits = counts[np.minimum(clipped, len(counts) - 1)] <= limits
    return max(1.0, float(limits[fits.argmax()])) if fits.any() else 1.0


def page_weights(n_pages: Mapping[str, int], left_out: Container[str] = ()) -> dict[str, float]:
    """Weight of each client's pages: 1, or less for clients with more pages than count; 0 where left out.

    Examples
    --------
    >>> page_weights({"a": 2, "b": 2, "c": 8, "d": 1}, left_out=["d"])
    {'a': 1.0, 'b': 1.0, 'c': 0.25, 'd': 0.0}
    """
    limit = limit_of({client: n for client, n in n_pages.items() if client not in left_out})
    return {client: 0.0 if client in left_out else min(1.0, limit / n) for client, n in n_pages.items()}


def shares(n_pages: Mapping[str, int], left_out: Container[str] = ()) -> dict[str, float]:
    """Share of each client in all that counts.

    Examples
    --------
    >>> shares({"a": 2, "b": 2, "c": 8, "d": 1}, left_out=["d"])["c"] < 0.4
    True
    """
    counted = {client: weight * n_pages[client] for client, weight in page_weights(n_pages, left_out).items()}
    total = sum(counted.values()) or 1.0
    return {client: n / total for client, n in counted.items()}


def n_counted(n_pages: Mapping[str, int]) -> float:
    """Number of pages that count."""
    limit = limit_of(n_pages)
    return sum(min(float(n), limit) for n in n_pages.values())
