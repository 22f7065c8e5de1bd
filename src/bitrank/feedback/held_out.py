"""The gate of clicks: held-out pages replayed under several weights, and the `Decision` that follows.

The learner keeps pages back for it; a service activates what it lets pass, and watches its alarm.
"""

from __future__ import annotations

from collections import deque
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.codes import Codes, Weights, distances
from bitrank.feedback.exploration import draw_far
from bitrank.feedback.pages import Floats, Page

# Drawn beside the explored clicks of a page, in the same way: their share that is farther is the page's figure.
_N_DRAWN = 64
# Fewer pages than this say nothing: standard errors mean little.
LEAST_PAGES = 30
# The chance that clicks at random ever open the gate, over all decisions together.
ERROR_RATE = 0.01
# Order that a candidate may lose at most, as far as the error bars tell, against the active weights and Hamming.
TOLERANCE = 0.01
_NOT_WORSE = 2.0  # standard errors


class Decision(NamedTuple):
    """What held-out pages say about a candidate.

    The figures are shares: of items drawn from the collection like the explored ones, how many are farther than an
    explored item that was clicked; one half is chance. They are None as long as too few pages say anything.
    """

    activate: bool
    alarm: bool
    reason: str
    n_pages: int
    candidate: float | None = None
    active: float | None = None
    hamming: float | None = None


class _Held(NamedTuple):
    """A held-out page: who looks (the query, and what was clicked among the best), the explored clicks, and others."""

    lookers: Codes
    magnitudes: Weights | None
    clicked: Codes
    drawn: Codes


class HeldOutPages:
    """The newest held-out pages, replayed under any weights.

    Only explored items speak. They were put at random places, drawn in a way that does not depend on the version that
    ranked the page, and those drawn now to compare them with are drawn in the same way: if clicks mean nothing, a
    clicked one is as likely to be nearer as to be farther, under any weights, and the figure of a page is one half in
    the mean. Clicks on the best results are left out: those were there because the active version put them there.
    """

    def __init__(self, n_bits: int, random: np.random.Generator) -> None:
        self.n_bits, self._random = n_bits, random
        self._pages: deque[tuple[Page, _Held | None]] = deque()

    def __len__(self) -> int:
        return len(self._pages)

    def add(self, page: Page, sample: Codes) -> None:
        """Keep a page; the items to compare with are drawn at once."""
        explored, clicked = page.explored, page.clicked
        held = None
        if (explored & clicked).any():
            top = page.shown_codes[~explored]
            rows = draw_far(page.query_code, top, sample, _N_DRAWN, self._random)
            if len(rows):
                lookers = np.concatenate([page.query_code[None], page.shown_codes[clicked & ~explored]])
                held = _Held(lookers, page.magnitudes, page.shown_codes[explored & clicked], sample[rows])
        self._pages.append((page, held))

    def pop_oldest(self) -> Page:
        """Let go of the oldest page."""
        return self._pages.popleft()[0]

    def figures(self, weights: Weights | None) -> Floats:
        """For every page with an explored click, the share of drawn items that are farther; a tie counts half.

        Seen from the query and from the other items clicked on the page, in the mean: they are alike, and six
        views are steadier than one.
        """
        return np.array([self._figure(held, weights) for _, held in self._pages if held is not None])

    def _figure(self, held: _Held, weights: Weights | None) -> float:
        rows = None if weights is None else np.broadcast_to(weights, (len(held.lookers), self.n_bits)).copy()
        if held.magnitudes is not None:
            rows = np.ones((len(held.lookers), self.n_bits), np.float32) if rows is None else rows
            rows[0] *= held.magnitudes
        clicked, drawn = (
            distances(held.lookers, codes, rows, threads=1).astype(np.float32) for codes in (held.clicked, held.drawn)
        )
        margins = np.sign(drawn[:, None] - clicked[:, :, None])
        return float((margins.mean() + 1) / 2)


def decide(pages: HeldOutPages, candidate: Weights, active: Weights | None, n_looks: int) -> Decision:
    """Whether a candidate may replace the active weights (None: plain Hamming), by held-out pages.

    The candidate must put explored clicks above items drawn like them by more than chance, and must not lose more
    than a hundredth of order against the active weights or Hamming. Chance shrinks with every look, so that all of
    them together go wrong by chance in one case of a hundred.
    """
    figures = {"candidate": pages.figures(candidate), "hamming": pages.figures(None)}
    figures["active"] = figures["hamming"] if active is None else pages.figures(active)
    n = len(figures["candidate"])
    if n < LEAST_PAGES:
        return Decision(False, False, f"{n} of the {LEAST_PAGES} pages with explored clicks that a decision takes", n)
    sure = -NormalDist().inv_cdf(ERROR_RATE / (n_looks * (n_looks + 1)))
    means = {name: float(values.mean()) for name, values in figures.items()}
    alarm = _bound(figures["hamming"] - figures["active"], sure) > 0
    if _bound(figures["candidate"] - 0.5, sure) <= 0:
        return Decision(False, alarm, "explored clicks cannot be told from clicks at random", n, **means)
    for rival in ("active", "hamming"):
        if _bound(figures["candidate"] - figures[rival], _NOT_WORSE) <= -TOLERANCE:
            return Decision(False, alarm, f"the candidate may rank explored clicks worse than {rival}", n, **means)
    return Decision(True, alarm, "the candidate ranks explored clicks at least as well", n, **means)


def _bound(gains: npt.NDArray[np.float64], errors: float) -> float:
    """The mean less so many of its standard errors."""
    return float(gains.mean() - errors * gains.std(ddof=1) / np.sqrt(len(gains)))
