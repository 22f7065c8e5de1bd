"""Statistics over clients: means that a fifth of them cannot move far, and clients who click against the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, stdtrit

from bitrank.clicks.page import Floats, Page
from bitrank.core.codes import distances, unpack

FEW_CLIENTS = 10  # Below this many clients every page counts by itself.
_TRIMMED = 0.2  # share of the clients that is cut off at either end
# A client is set aside when its agreement with Hamming distance is this many standard errors below the median client's.
_SUSPECT_Z = 4.0
_FEWEST_PAGES = 3  # of a client that may be set aside
# A client is set aside when one bit matters to it this many deviations more than to the median client, and a little
# more the more bits there are to stand out in.
_TASTE_Z = 1.6
_TO_DEVIATION = 1.4826  # from the median deviation to the standard deviation of a normal distribution
_MOST_CLIENTS = 10_000  # whose tastes are kept, the last to click


class Estimate(NamedTuple):
    """A mean, its standard error, and the degrees of freedom of that."""

    mean: float
    error: float
    freedom: int = 0

    def low(self, z: float) -> float:
        """The mean less z standard errors."""
        return self.mean - z * self.error

    def exceeds(self, z: float) -> bool:
        """Whether the mean is above 0 with the certainty of z standard errors, also where few values tell the error.

        Examples
        --------
        >>> Estimate(3.0, 1.0, freedom=100).exceeds(2.9), Estimate(3.0, 1.0, freedom=5).exceeds(2.9)
        (True, False)
        """
        return self.freedom > 0 and self.low(float(stdtrit(self.freedom, ndtr(z)))) > 0


def mean_over_clients(values: Floats, clients: Sequence[str]) -> Estimate:
    """Trimmed mean of the clients' means, with Yuen's standard error; NaN values do not count.

    A fifth of the clients may say what they like: they can shift the mean only within the range of the others.

    Examples
    --------
    >>> clients = [str(number) for number in range(20)]
    >>> honest = mean_over_clients(np.linspace(0.4, 0.6, 20), clients).mean
    >>> forged = mean_over_clients(np.append(np.linspace(0.4, 0.6, 20)[:16], [99.0] * 4), clients).mean
    >>> round(honest, 3), round(forged, 3)
    (0.5, 0.5)
    """
    known = np.isfinite(values)
    names = np.asarray(clients)[known]
    units = values[known]
    distinct, numbers = np.unique(names, return_inverse=True)
    if len(distinct) >= FEW_CLIENTS:
        units = np.bincount(numbers, units) / np.bincount(numbers)
    n = len(units)
    if n < 2:
        return Estimate(float(units.mean()) if n else float("nan"), float("inf"))
    cut = int(_TRIMMED * n)
    ordered = np.sort(units)
    winsorized = np.clip(ordered, ordered[cut], ordered[n - 1 - cut])
    error = float(winsorized.std(ddof=1) / ((1 - 2 * _TRIMMED) * np.sqrt(n)))
    return Estimate(float(ordered[cut : n - cut].mean()), error, n - 2 * cut - 1)


def page_weights(n_pages: Mapping[str, int], left_out: Iterable[str]) -> dict[str, float]:
    """Weight of each client's pages: 1, or less for clients with more pages than the median client; 0 where left out.

    Examples
    --------
    >>> page_weights({"a": 2, "b": 2, "c": 8, "d": 1}, left_out=["d"])
    {'a': 1.0, 'b': 1.0, 'c': 0.25, 'd': 0.0}
    """
    bound, without = float(np.median([*n_pages.values()] or [1])), set(left_out)
    return {client: 0.0 if client in without else min(1.0, bound / n) for client, n in n_pages.items()}


def agreement(page: Page, propensities: Floats) -> float:
    """Share of (clicked, skipped) pairs of a page that Hamming distance ranks alike, by propensity; NaN without pairs.

    Clicks count by the inverse of the propensity of their place and skipped items by the propensity, so that the order
    of the page itself earns no agreement.
    """
    clicked = page.clicked
    if not clicked.any() or clicked.all():
        return float("nan")
    seen = propensities[np.minimum(np.arange(len(clicked)), len(propensities) - 1)]
    to_items = distances(page.query_code[None], page.shown_codes, threads=1)[0].astype(np.float64)
    shares = (np.sign(to_items[~clicked] - to_items[clicked][:, None]) + 1) / 2
    weights = (1 / seen[clicked])[:, None] * seen[~clicked]
    return float((weights * shares).sum() / weights.sum())


class Agreements:
    """Agreement of every client's clicks with Hamming distance, and the clients who stand out."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[int, float, float]] = {}

    def add(self, client: str, value: float) -> None:
        """Add the agreement of one page; NaN says nothing."""
        if np.isfinite(value):
            n, total, squares = self._sums.get(client, (0, 0.0, 0.0))
            self._sums[client] = n + 1, total + value, squares + value * value

    def suspects(self) -> set[str]:
        """Clients whose clicks go against distances more than those of the median client, beyond chance."""
        counts, totals, squares = np.array([*self._sums.values()] or np.zeros((0, 3))).T
        judged = counts >= _FEWEST_PAGES
        if judged.sum() < FEW_CLIENTS:
            return set()
        means = totals / np.maximum(counts, 1)
        variances = (squares / np.maximum(counts, 1) - means**2)[judged] * (counts / np.maximum(counts - 1, 1))[judged]
        spread = float(np.sqrt(np.median(variances)))
        below = judged & (means < np.median(means[judged]) - _SUSPECT_Z * spread / np.sqrt(np.maximum(counts, 1)))
        return {client for client, is_below in zip(self._sums, below, strict=True) if is_below}


def taste(page: Page, propensities: Floats, n_bits: int) -> Floats | None:
    """How much oftener clicked items share each bit of the query than skipped ones; None without both.

    They are weighted as in `agreement`.
    """
    clicked = page.clicked
    if not clicked.any() or clicked.all():
        return None
    seen = propensities[np.minimum(np.arange(len(clicked)), len(propensities) - 1)]
    shared = unpack(page.shown_codes, n_bits) == unpack(page.query_code[None], n_bits)
    of_clicked = np.average(shared[clicked], axis=0, weights=1 / seen[clicked])
    of_skipped = np.average(shared[~clicked], axis=0, weights=seen[~clicked])
    return np.asarray(of_clicked - of_skipped)


class Tastes:
    """Which bits matter to every client, and the clients to whom one matters out of all proportion.

    Clicks that follow a few bits are consistent, and agree with Hamming distance as well as anybody's: no measure of
    agreement tells them from clicks on what users look for. But to other clients those bits matter little.
    """

    def __init__(self, n_bits: int) -> None:
        self._n_bits = n_bits
        self._sums: dict[str, tuple[int, npt.NDArray[np.float32]]] = {}
        self._n, self._squares = 0, np.zeros(n_bits)

    def add(self, client: str, page: Page, propensities: Floats) -> None:
        """Add one page of a client."""
        found = taste(page, propensities, self._n_bits)
        if found is None:
            return
        n, total = self._sums.pop(client, (0, np.zeros(self._n_bits, np.float32)))
        self._sums[client] = n + 1, (total + found).astype(np.float32)  # at the end: the first is the next to go
        if len(self._sums) > _MOST_CLIENTS:
            del self._sums[next(iter(self._sums))]
        self._n += 1
        self._squares += found**2

    def suspects(self) -> set[str]:
        """Clients to whom a bit matters more than to the median client, beyond chance and the spread of the others."""
        judged = {client: entry for client, entry in self._sums.items() if entry[0] >= _FEWEST_PAGES}
        if len(judged) < FEW_CLIENTS:
            return set()
        counts = np.array([n for n, _ in judged.values()])
        means = np.array([total for _, total in judged.values()]) / counts[:, None]
        median = np.median(means, axis=0)
        spread = _TO_DEVIATION * np.median(np.abs(means - median), axis=0)
        of_pages = np.sqrt(np.maximum(self._squares / self._n - median**2, 0))
        deviations = (means - median) / np.maximum(np.maximum(spread, of_pages / np.sqrt(counts)[:, None]), 1e-9)
        limit = _TASTE_Z + np.sqrt(2 * np.log(self._n_bits))
        return {client for client, most in zip(judged, deviations.max(axis=1), strict=True) if most > limit}
