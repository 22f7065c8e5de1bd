"""Statistics over clients: means that a fifth of them cannot move far, and clients who click against the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.clicks.page import Floats, Page
from bitrank.core.codes import distances, unpack

FEW_CLIENTS = 10  # Below this many clients every page counts by itself.
_TRIMMED = 0.2  # share of the clients that is cut off at either end
# A client is set aside when its agreement with Hamming distance is this many standard errors below the median client's.
_SUSPECT_Z = 3.5
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
        from scipy.special import ndtr, stdtrit

        return self.freedom > 0 and self.low(float(stdtrit(self.freedom, ndtr(z)))) > 0


def mean_over_clients(values: Floats, clients: Sequence[str], min_clients: int = 1) -> Estimate | None:
    """Trimmed mean of the clients' means, with Yuen's standard error; NaN values do not count.

    A fifth of the clients may say what they like: they can shift the mean only within the range of the others. Of fewer
    values than two, or of fewer clients than `min_clients`, there is no estimate.

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
    if len(distinct) < min_clients:
        return None
    if len(distinct) >= FEW_CLIENTS:
        units = np.bincount(numbers, units) / np.bincount(numbers)
    n = len(units)
    if n < 2:
        return None
    cut = int(_TRIMMED * n)
    ordered = np.sort(units)
    winsorized = np.clip(ordered, ordered[cut], ordered[n - 1 - cut])
    error = float(winsorized.std(ddof=1) / ((1 - 2 * _TRIMMED) * np.sqrt(n)))
    return Estimate(float(ordered[cut : n - cut].mean()), error, n - 2 * cut - 1)


def agreements(page: Page, propensities: Floats, near: float = np.inf) -> Floats:
    """Share of (clicked, skipped) pairs of a page that Hamming distance ranks alike: of all, and of near items only.

    Clicks count by the inverse of the propensity of their place and skipped items by the propensity, so that the order
    of the page itself earns no agreement. NaN without pairs.
    """
    to_items = distances(page.query_code[None], page.shown_codes, threads=1)[0].astype(np.float64)
    seen = propensities[np.minimum(np.arange(len(to_items)), len(propensities) - 1)]
    found = np.full(2, np.nan)
    for place, among in enumerate((np.inf, near)):
        clicked, skipped = page.clicked & (to_items <= among), ~page.clicked & (to_items <= among)
        if clicked.any() and skipped.any():
            shares = (np.sign(to_items[skipped] - to_items[clicked][:, None]) + 1) / 2
            weights = (1 / seen[clicked])[:, None] * seen[skipped]
            found[place] = (weights * shares).sum() / weights.sum()
    return found


def taste(page: Page, propensities: Floats, n_bits: int) -> Floats:
    """How much oftener clicked items share each bit of the query than skipped ones; weighted as in `agreement`."""
    clicked = page.clicked
    seen = propensities[np.minimum(np.arange(len(clicked)), len(propensities) - 1)]
    shared = unpack(page.shown_codes, n_bits) == unpack(page.query_code[None], n_bits)
    of_clicked = np.average(shared[clicked], axis=0, weights=1 / seen[clicked])
    of_skipped = np.average(shared[~clicked], axis=0, weights=seen[~clicked])
    return np.asarray(of_clicked - of_skipped)


@dataclass
class Facts:
    """What is known of a client: its pages; per kind of agreement, their number, sum and sum of squares; its tastes.

    `left_out` says whether its clicks go against the rest.
    """

    n_pages: int
    sums: Floats
    taste: npt.NDArray[np.float32]
    left_out: bool = False


class Clients:
    """What is known of every client, and the clients who click against the rest.

    Agreement finds clicks on what nobody else takes for alike, among all items or among near ones. Clicks that follow
    a few bits are consistent and agree as well as anybody's; but to others those bits matter little: taste finds them.
    """

    def __init__(self, n_bits: int, facts: Mapping[str, Facts] | None = None) -> None:
        self._n_bits = n_bits
        self.facts: dict[str, Facts] = dict(facts or {})
        self.changed: set[str] = set()  # clients of whom more is known than somebody has kept

    @property
    def n_pages(self) -> dict[str, int]:
        """Number of pages of every client."""
        return {client: facts.n_pages for client, facts in self.facts.items()}

    def add(self, client: str, page: Page, propensities: Floats, near: float = np.inf) -> None:
        """Add one page of a client; items up to a distance are near."""
        facts = self.facts.pop(client, None) or Facts(0, np.zeros((2, 3)), np.zeros(self._n_bits, np.float32))
        self.facts[client] = facts  # at the end: the first is the next to go
        if len(self.facts) > _MOST_CLIENTS:
            del self.facts[next(iter(self.facts))]
        self.changed.add(client)
        facts.n_pages += 1
        values = agreements(page, propensities, near)
        known = np.isfinite(values)
        facts.sums[known] += np.column_stack([np.ones(2), values, values**2])[known]
        if known[0]:
            facts.taste += taste(page, propensities, self._n_bits)

    def left_out(self) -> set[str]:
        """Clients who click against the rest, as far as is known now."""
        found = self._suspects()
        for client, facts in self.facts.items():
            if facts.left_out != (client in found):
                facts.left_out = client in found
                self.changed.add(client)
        return found

    def _suspects(self) -> set[str]:
        """Clients whose agreement is below that of the median client, or whose taste stands out, beyond chance."""
        found: set[str] = set()
        for kind in range(2):
            names = [client for client, facts in self.facts.items() if facts.sums[kind, 0] >= _FEWEST_PAGES]
            if len(names) < FEW_CLIENTS:
                continue
            counts, totals, squares = np.array([self.facts[name].sums[kind] for name in names]).T
            means = totals / counts
            spread = np.sqrt(np.median((squares / counts - means**2) * counts / (counts - 1)))
            standing_out = (np.median(means) - means) * np.sqrt(counts) > _SUSPECT_Z * spread
            if kind == 0:
                tastes = np.array([self.facts[name].taste for name in names]) / counts[:, None]
                standing_out |= _stand_out(tastes, counts)
            found |= {name for name, one in zip(names, standing_out, strict=True) if one}
        return found


def _stand_out(tastes: Floats, counts: Floats) -> npt.NDArray[np.bool_]:
    """Whether a bit matters to a client more than to the median client, beyond chance and the spread of the others."""
    above = tastes - np.median(tastes, axis=0)
    spread = _TO_DEVIATION * np.median(np.abs(above), axis=0)
    of_pages = _TO_DEVIATION * np.median(np.abs(above) * np.sqrt(counts)[:, None], axis=0) / np.sqrt(counts)[:, None]
    limit = _TASTE_Z + np.sqrt(2 * np.log(tastes.shape[1]))
    return np.asarray((above / np.maximum(np.maximum(spread, of_pages), 1e-9)).max(axis=1) > limit)
