"""The gate of clicks: what held-out pages say about weights, and the `Decision` that follows.

The learner keeps pages back for it; a service activates what it lets pass, and watches its alarm.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from bitrank.codes import distances
from bitrank.feedback.exploration import draw_far
from bitrank.feedback.pages import Floats, Page
from bitrank.vocabulary import Codes, Weights

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


class Witness(NamedTuple):
    """What a page with explored clicks has to say.

    Who looks (the query, and what was clicked among the best results), the magnitudes of the query, the explored items
    that were clicked, and items that exploration might as well have drawn.
    """

    lookers: Codes
    magnitudes: Weights | None
    clicked: Codes
    drawn: Codes

    def figure(self, weights: Weights | None) -> float:
        """The share of drawn items that are farther than the clicked ones; a tie counts half.

        Seen from the query and from the other items clicked on the page, in the mean: they are alike, and six views
        are steadier than one.
        """
        rows = None
        if weights is not None or self.magnitudes is not None:
            one = np.ones(1, np.float32) if weights is None else weights
            n_bits = len(one) if self.magnitudes is None else len(self.magnitudes)
            rows = np.broadcast_to(one, (len(self.lookers), n_bits)).astype(np.float32)
            if self.magnitudes is not None:
                rows[0] *= self.magnitudes
        clicked, drawn = (
            distances(self.lookers, codes, rows, threads=1).astype(np.float32) for codes in (self.clicked, self.drawn)
        )
        return float((np.sign(drawn[:, None] - clicked[:, :, None]).mean() + 1) / 2)


def hear(page: Page, sample: Codes, random: np.random.Generator) -> Witness | None:
    """What a page has to say, or None where no explored item was clicked.

    Only explored items speak. They were put at random places and drawn in a way that does not depend on the version
    that ranked the page, and those drawn now to compare them with are drawn in the same way: if clicks mean nothing, a
    clicked one is as likely to be nearer as to be farther, under any weights, and the figure is one half in the mean.
    Clicks on the best results are not counted: those were there because the active version put them there.
    """
    explored, clicked = page.explored, page.clicked
    if not (explored & clicked).any():
        return None
    rows = draw_far(page.query_code, page.shown_codes[~explored], sample, _N_DRAWN, random)
    if len(rows) == 0:
        return None
    lookers = np.concatenate([page.query_code[None], page.shown_codes[clicked & ~explored]])
    return Witness(lookers, page.magnitudes, page.shown_codes[explored & clicked], sample[rows])


def decide(
    witnesses: Sequence[Witness], evidence: Floats, candidate: Weights, active: Weights | None, n_looks: int
) -> Decision:
    """Whether a candidate may replace the active weights (None: plain Hamming).

    Two things must hold. Clicks must mean something: over all newest pages, Hamming's figures (`evidence`; Hamming
    has learned nothing from them) must be above one half by more than chance. And on held-out pages (`witnesses`) the
    candidate must not lose more than a hundredth of order against the active weights or Hamming, by two standard
    errors. Chance shrinks with every look, so that all looks together go wrong by chance in one case of a hundred.
    """
    n = len(witnesses)
    if n < LEAST_PAGES:
        return Decision(False, False, f"{n} of the {LEAST_PAGES} pages with explored clicks that a decision takes", n)
    figures = {
        name: np.array([each.figure(w) for each in witnesses])
        for name, w in (("candidate", candidate), ("hamming", None))
    }
    figures["active"] = figures["hamming"] if active is None else np.array([each.figure(active) for each in witnesses])
    means = {name: float(values.mean()) for name, values in figures.items()}
    sure = -NormalDist().inv_cdf(ERROR_RATE / (n_looks * (n_looks + 1)))
    alarm = lower_bound(figures["hamming"] - figures["active"], sure) > 0
    if lower_bound(evidence - 0.5, sure) <= 0:
        return Decision(False, alarm, "explored clicks cannot be told from clicks at random", n, **means)
    for rival in ("active", "hamming"):
        if lower_bound(figures["candidate"] - figures[rival], _NOT_WORSE) <= -TOLERANCE:
            return Decision(False, alarm, f"the candidate may rank explored clicks worse than {rival}", n, **means)
    return Decision(True, alarm, "the candidate ranks explored clicks at least as well", n, **means)


def lower_bound(gains: Floats, errors: float) -> float:
    """The mean less so many of its standard errors.

    Examples
    --------
    >>> lower_bound(np.array([0.0, 2.0]), 1.0)
    0.0
    """
    return float(gains.mean() - errors * gains.std(ddof=1) / np.sqrt(len(gains)))
