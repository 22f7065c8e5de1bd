"""The click gate: evidence from held-out pages about rankers, and the `Decision` that follows from it.

Every statistic is a mean over clients that a fifth of them cannot move far. `bitrank.ranking.gate` is the
counterpart for labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.clicks.exploration import draw_far
from bitrank.clicks.page import Floats, Page, QueryArray, stack_queries
from bitrank.clicks.robust import Estimate, mean_over_clients
from bitrank.core.codes import distances, split_vectors
from bitrank.core.types import Codes, Weights
from bitrank.ranking.ranker import Ranker

# Items drawn per page, as exploration draws them, to compare the explored clicks with.
_N_DRAWN = 64
_MOST_ANCHORS = 3
# Items within this share of the collection, by Hamming distance, count as the top of the list.
_NEAR = 0.02
# Below this many pages standard errors mean little, and the gate does not decide.
MIN_PAGES = 30
# The probability that random clicks ever open the gate, over all decisions together.
ERROR_RATE = 0.01
# A candidate whose win rate is this many standard errors below another's is worse.
_WORSE_Z = 1.0


class Decision(NamedTuple):
    """What held-out pages say about a candidate.

    `candidate`, `active` and `hamming` are mean win rates: the share of items drawn like the explored ones that are
    farther than a clicked explored item; one half is chance. They are None while too few pages have explored clicks.
    `error` is the largest of their standard errors over clients, and `top` the candidate's gain over Hamming in the win
    rate among near items alone.

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
    error: float | None = None
    top: float | None = None


class PageEvidence(NamedTuple):
    """What one page with explored clicks says about any ranking.

    `anchors` are the query and clicked items among the best results, as packed codes or reals; `clicked` the explored
    items that were clicked; `drawn` items that exploration might equally have shown. The flags say which are near.
    """

    client: str
    anchors: QueryArray
    clicked: Codes
    drawn: Codes
    clicked_near: npt.NDArray[np.bool_]
    drawn_near: npt.NDArray[np.bool_]


def evidence_from(page: Page, client: str, sample: Codes, random: np.random.Generator) -> PageEvidence | None:
    """Collect what a page says about a ranking; None where no explored item was clicked.

    Only explored items count. They stand at random places and were drawn independently of the version that ranked the
    page, and the items they are compared with are drawn in the same way. If clicks mean nothing, a clicked item is as
    likely to be nearer as farther under any ranking, and the expected win rate is one half. Clicks on the best results
    do not count: those results were shown because the active version ranked them first.
    """
    explored, clicked = page.explored, page.clicked
    if not (explored & clicked).any():
        return None
    rows = draw_far(page.query_code, page.shown_codes[~explored], sample, _N_DRAWN, random)
    if len(rows) == 0:
        return None
    items, drawn = page.shown_codes[explored & clicked], sample[rows]
    limit = near_limit(page.query_code, sample)
    near = (distances(page.query_code[None], codes, threads=1)[0] <= limit for codes in (items, drawn))
    clicked_best = page.shown_codes[clicked & ~explored][: _MOST_ANCHORS - 1]
    anchors = stack_queries([page.query[None], clicked_best])
    return PageEvidence(client, anchors, items, drawn, *near)


def near_limit(query_code: Codes, sample: Codes) -> float:
    """The Hamming distance up to which items are near a query."""
    place = int(_NEAR * len(sample))
    return float(np.partition(distances(query_code[None], sample, threads=1)[0], place)[place])


def top_gain(page: Page, sample: Codes) -> float:
    """How much oftener explored items that Hamming ranks first were clicked than the results shown beside them.

    A version that ranks worse than Hamming leaves Hamming's best items to exploration. Explored items stand at random
    places, so a comparison with the nearest result before and the nearest after favours neither. Relevant items that
    both rank first count for the version: a version like Hamming, or better, is at or below 0 in the mean.

    NaN where the page explored no such item.
    """
    explored, n_best = page.explored, int((~page.explored).sum())
    if not explored.any() or n_best == 0:
        return float("nan")
    to_sample = distances(page.query_code[None], sample, threads=1)[0]
    rank = min(n_best, len(sample) - 1)
    limit = np.partition(to_sample, rank)[rank]
    is_near = distances(page.query_code[None], page.shown_codes, threads=1)[0] <= limit
    best = np.flatnonzero(~explored)
    places = np.flatnonzero(explored & is_near)
    places = places[(best[0] < places) & (places < best[-1])]
    after = best.searchsorted(places)
    beside = (page.clicked[best[after - 1]].astype(float) + page.clicked[best[after]]) / 2
    return float((page.clicked[places] - beside).mean()) if len(places) else float("nan")


def ask(ranker: Ranker | None, queries: QueryArray, sample: Codes) -> tuple[Codes, Weights | None]:
    """Return the codes and weights that a ranker asks with; None is plain Hamming, and reals bring their magnitudes."""
    if ranker is not None:
        return ranker.queries_for(queries, collection=sample)[:2]
    return split_vectors(queries) if queries.dtype.kind == "f" else (queries, None)


def win_rates(evidence: Sequence[PageEvidence], ranker: Ranker | None, sample: Codes) -> Floats:
    """Win rates of a ranker (None: plain Hamming) on every page: over all items, and over the near ones.

    A win rate is the share of drawn items that are farther than the clicked ones; a tie counts one half. Distances are
    averaged over all anchors: they are alike, and several views are steadier than one.

    Returns
    -------
    float64 array of shape (n_pages, 2); NaN where a page has no near items
    """
    rates, start = np.full((len(evidence), 2), np.nan), 0
    if not evidence:
        return rates
    codes, weights = ask(ranker, stack_queries([page.anchors for page in evidence]), sample)
    for place, page in enumerate(evidence):
        part = slice(start, start + len(page.anchors))
        start = part.stop
        of_part = None if weights is None else weights[part]
        clicked, drawn = (
            distances(codes[part], items, of_part, threads=1).astype(np.float32) for items in (page.clicked, page.drawn)
        )
        wins = (np.sign(drawn[:, None] - clicked[:, :, None]) + 1) / 2
        rates[place, 0] = wins.mean()
        if page.clicked_near.any() and page.drawn_near.any():
            rates[place, 1] = wins[:, page.clicked_near][:, :, page.drawn_near].mean()
    return rates


def decide(
    held_out: Sequence[PageEvidence],
    hamming_gain: Estimate | None,
    candidate: Ranker,
    active: Ranker | None,
    sample: Codes,
    n_looks: int,
    n_activated: int = 0,
    behind: Sequence[Estimate] = (),
    min_clients: int = 1,
) -> Decision:
    """Decide whether a candidate may replace the active ranker (None: plain Hamming).

    Two conditions must hold. Clicks must mean something: Hamming's win rate on all newest pages, less one half
    (`hamming_gain`; Hamming has learned nothing from them), must exceed chance; the error rate shrinks with every look,
    so that all looks together err in one case of a hundred. And the candidate must not look worse on held-out pages
    than the active ranker or Hamming, over all explored clicks or over those near the top of the list: no win rate may
    lie more than a standard error below the other's.

    The alarm rings where Hamming is ahead of the active ranker beyond chance: on held-out pages, or by one of the
    estimates in `behind`. The replacement of a ranker is the last chance to say so: it has an error rate of its own,
    which shrinks with `n_activated`, the number of replacements before it.

    Nothing is decided by fewer clients than `min_clients`.
    """
    n, z = len(held_out), chance_z(n_looks)
    clients = [page.client for page in held_out]
    n_clients = len(set(clients))
    if n < MIN_PAGES or n_clients < min_clients:
        alarm = any(ahead.exceeds(z) for ahead in behind)
        few = f"{n} of the {MIN_PAGES} pages" if n < MIN_PAGES else f"pages of {n_clients} of the {min_clients} clients"
        return Decision(False, alarm, f"{few} with explored clicks that a decision needs", n)
    rates = {
        "candidate": win_rates(held_out, candidate, sample),
        "hamming": win_rates(held_out, None, sample),
    }
    rates["active"] = rates["hamming"] if active is None else win_rates(held_out, active, sample)

    def mean(values: Floats) -> Estimate | None:
        return mean_over_clients(values, clients, min_clients)

    def gain(name: str, rival: str, column: int = 0) -> Estimate | None:
        return mean(rates[name][:, column] - rates[rival][:, column])

    estimates = {name: mean(values[:, 0]) for name, values in rates.items()}
    means = {name: None if estimate is None else estimate.mean for name, estimate in estimates.items()}
    means["error"] = max((estimate.error for estimate in estimates.values() if estimate is not None), default=None)
    top = gain("candidate", "hamming", 1)
    means["top"] = None if top is None else top.mean
    behind = [ahead for ahead in (gain("hamming", "active"), *behind) if ahead is not None]
    alarm = any(ahead.exceeds(z) for ahead in behind)
    if hamming_gain is None or hamming_gain.low(z) <= 0:
        return Decision(False, alarm, "explored clicks cannot be told from clicks at random", n, **means)
    for rival in ("active", "hamming"):
        for column, where in ((0, "explored"), (1, "near")):
            estimate = gain("candidate", rival, column)
            if estimate is None and column == 0:
                return Decision(False, alarm, "too few clicks to compare the candidate", n, **means)
            if estimate is not None and estimate.low(-_WORSE_Z) < 0:
                return Decision(False, alarm, f"the candidate ranks {where} clicks worse than {rival}", n, **means)
    alarm |= any(ahead.exceeds(chance_z(n_activated + 1)) for ahead in behind)
    return Decision(True, alarm, "the candidate ranks explored clicks at least as well", n, **means)


def chance_z(n_looks: int) -> float:
    """Standard errors that chance exceeds at any of all looks together with the error rate."""
    return -NormalDist().inv_cdf(ERROR_RATE / (n_looks * (n_looks + 1)))
