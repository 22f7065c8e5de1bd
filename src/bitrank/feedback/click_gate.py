"""The click gate: evidence from held-out pages about candidate weights, and the `Decision` that follows from it.

`bitrank.ranking.gate` is its counterpart for labels; both use its standard error.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from bitrank.codes import signs
from bitrank.feedback.exploration import draw_far
from bitrank.feedback.pages import Floats, Page, QueryArray, query_distances
from bitrank.ranking.gate import standard_error
from bitrank.vocabulary import Codes, Weights

# Items drawn per page, as exploration draws them, to compare the explored clicks with.
_N_DRAWN = 64
# Below this many pages standard errors mean little, and the gate does not decide.
MIN_PAGES = 30
# The probability that random clicks ever open the gate, over all decisions together.
ERROR_RATE = 0.01
# The largest loss in win rate, up to its error bars, that a candidate may have against the active weights and Hamming.
TOLERANCE = 0.01
_NOT_WORSE_Z = 2.0  # standard errors


class Decision(NamedTuple):
    """What held-out pages say about a candidate.

    `candidate`, `active` and `hamming` are mean win rates: the share of items drawn like the explored ones that are
    farther than a clicked explored item; one half is chance. They are None while too few pages have explored clicks.

    Examples
    --------
    >>> decision = Decision(activate=False, alarm=False, reason="too few pages", n_pages=3)
    >>> decision.activate, decision.candidate
    (False, None)
    """

    activate: bool
    alarm: bool
    reason: str
    n_pages: int
    candidate: float | None = None
    active: float | None = None
    hamming: float | None = None


class PageEvidence(NamedTuple):
    """What one page with explored clicks says about any weights.

    `anchors` are the query and the clicked items among the best results, as packed codes or reals; `clicked` the
    explored items that were clicked; `drawn` items that exploration might equally have shown.
    """

    anchors: QueryArray
    clicked: Codes
    drawn: Codes

    def win_rate(self, weights: Weights | None) -> float:
        """Compute the share of drawn items that are farther than the clicked ones; a tie counts one half.

        Distances are averaged over all anchors: they are alike, and several views are steadier than one.
        """
        clicked, drawn = (query_distances(self.anchors, codes, weights) for codes in (self.clicked, self.drawn))
        return float((np.sign(drawn[:, None] - clicked[:, :, None]).mean() + 1) / 2)


def evidence_from(page: Page, sample: Codes, random: np.random.Generator) -> PageEvidence | None:
    """Collect what a page says about a ranking; None where no explored item was clicked.

    Only explored items count. They stand at random places and were drawn independently of the version that ranked the
    page, and the items they are compared with are drawn in the same way. If clicks mean nothing, a clicked item is as
    likely to be nearer as farther under any weights, and the expected win rate is one half. Clicks on the best results
    do not count: those results were shown because the active version ranked them first.
    """
    explored, clicked = page.explored, page.clicked
    if not (explored & clicked).any():
        return None
    rows = draw_far(page.query_code, page.shown_codes[~explored], sample, _N_DRAWN, random)
    if len(rows) == 0:
        return None
    return PageEvidence(
        _anchors(page.query, page.shown_codes[clicked & ~explored]), page.shown_codes[explored & clicked], sample[rows]
    )


def _anchors(query: QueryArray, items: Codes) -> QueryArray:
    if query.dtype.kind == "f":
        return np.concatenate([query[None], signs(items, len(query))])
    return np.concatenate([query[None], items])


def decide(
    held_out: Sequence[PageEvidence], hamming_rates: Floats, candidate: Weights, active: Weights | None, n_looks: int
) -> Decision:
    """Decide whether a candidate may replace the active weights (None: plain Hamming).

    Two conditions must hold. Clicks must mean something: Hamming's win rates on all newest pages (`hamming_rates`;
    Hamming has learned nothing from them) must exceed one half by more than chance. And the candidate must not be
    worse: on held-out pages its win rate may lose at most a hundredth against the active weights and against Hamming,
    by two standard errors. The error rate shrinks with every look, so that all looks together err in one case of a
    hundred.
    """
    n = len(held_out)
    if n < MIN_PAGES:
        return Decision(False, False, f"{n} of the {MIN_PAGES} pages with explored clicks that a decision needs", n)
    rates = {
        name: np.array([evidence.win_rate(weights) for evidence in held_out])
        for name, weights in (("candidate", candidate), ("hamming", None))
    }
    rates["active"] = (
        rates["hamming"] if active is None else np.array([evidence.win_rate(active) for evidence in held_out])
    )
    means = {name: float(values.mean()) for name, values in rates.items()}
    chance_z = -NormalDist().inv_cdf(ERROR_RATE / (n_looks * (n_looks + 1)))
    alarm = lower_bound(rates["hamming"] - rates["active"], chance_z) > 0
    if lower_bound(hamming_rates - 0.5, chance_z) <= 0:
        return Decision(False, alarm, "explored clicks cannot be told from clicks at random", n, **means)
    for rival in ("active", "hamming"):
        if lower_bound(rates["candidate"] - rates[rival], _NOT_WORSE_Z) <= -TOLERANCE:
            return Decision(False, alarm, f"the candidate may rank explored clicks worse than {rival}", n, **means)
    return Decision(True, alarm, "the candidate ranks explored clicks at least as well", n, **means)


def lower_bound(gains: Floats, z: float) -> float:
    """Compute the mean less z standard errors.

    Examples
    --------
    >>> lower_bound(np.array([0.0, 2.0, 0.0, 2.0]), 2.0)
    0.0
    """
    return float(gains.mean() - z * standard_error(gains))
