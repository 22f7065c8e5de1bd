"""Replaying a log: what clicks would have done to the ranking, had they come one page after another.

The whole path of `feedback` on a collection in memory: learner, gate, and a comparison of the ranking before and after.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.checks import check_codes, check_weights
from bitrank.codes import distances
from bitrank.feedback.held_out import Decision
from bitrank.feedback.learner import ClickLearner
from bitrank.feedback.pages import Page
from bitrank.vocabulary import Codes, Weights

N_SAMPLE = 16_384  # codes that a learner draws from, where the collection is larger
N_COMPARED = 200  # newest pages whose rankings are compared
TOP = 20


class Look(NamedTuple):
    """A decision and the number of pages before it."""

    n_pages: int
    decision: Decision


class Move(NamedTuple):
    """A clicked item and its rank before and after, ties at the middle of their places."""

    page: int
    place: int
    before: float
    after: float


class Replay(NamedTuple):
    """What a log would have done.

    `weights` are what would be active at the end (None: plain Hamming, nothing was activated), `candidate` what was
    learned; `overlap` is the share of the first twenty that stay, and `moves` the ranks of clicked items, from the
    starting weights to the candidate, the biggest first, over the newest pages.
    """

    n_pages: int
    n_clicks: int
    n_explored_clicks: int
    looks: list[Look]
    weights: Weights | None
    candidate: Weights
    overlap: float
    moves: list[Move]


def replay(
    pages: Iterable[Page],
    codes: Codes,
    n_bits: int | None = None,
    *,
    weights: npt.ArrayLike | None = None,
    propensities: npt.ArrayLike | None = None,
    random_state: Any = None,
) -> Replay:
    """Learn from pages in order, decide whenever it is due, and compare the ranking before and after.

    Parameters
    ----------
    pages : iterable of Page
    codes : packed codes of the collection
    n_bits : int, optional
        Eight a byte by default.
    weights : array of shape (n_bits,), optional
        Active at the start; plain Hamming by default.
    propensities, random_state : as in `ClickLearner`

    Examples
    --------
    >>> codes = np.random.default_rng(0).integers(256, size=(500, 2), dtype=np.uint8)
    >>> pages = [Page(codes[row], codes[row + 1 : row + 21], np.arange(20) == 3) for row in range(30)]
    >>> replayed = replay(pages, codes, random_state=0)
    >>> replayed.n_pages, replayed.n_clicks, replayed.weights is None
    (30, 30, True)
    """
    codes = check_codes(codes, n_bits)
    n_bits = 8 * codes.shape[1] if n_bits is None else n_bits
    start = active = None if weights is None else check_weights(weights, n_bits)
    random = np.random.default_rng(random_state)
    sample = codes if len(codes) <= N_SAMPLE else codes[np.sort(random.choice(len(codes), N_SAMPLE, replace=False))]
    learner = ClickLearner(
        sample,
        n_bits=n_bits,
        weights=start,
        propensities=propensities,
        random_state=int(random.integers(2**31)),
    )
    looks: list[Look] = []
    newest: list[tuple[int, Page]] = []
    n_clicks = n_explored_clicks = 0
    for number, page in enumerate(pages):
        learner.learn(page)
        newest = [*newest[1 - N_COMPARED :], (number, page)]
        n_clicks += int(page.clicked.sum())
        n_explored_clicks += int((page.clicked & page.explored).sum())
        if learner.due:
            decision = learner.decide(active)
            looks.append(Look(learner.n_pages, decision))
            active = learner.weights if decision.activate else active
    overlap, moves = _compare(newest, codes, start, learner.weights)
    return Replay(learner.n_pages, n_clicks, n_explored_clicks, looks, active, learner.weights, overlap, moves)


def _compare(
    pages: list[tuple[int, Page]], codes: Codes, before: Weights | None, after: Weights
) -> tuple[float, list[Move]]:
    kept, moves = [], []
    for number, page in pages:
        found = [_distances(page, codes, weights) for weights in (before, after)]
        first, then = (set(np.argsort(each, kind="stable")[:TOP].tolist()) for each in found)
        kept.append(len(first & then) / len(first))
        for place in np.flatnonzero(page.clicked).tolist():
            item = page.shown_codes[place]
            own = [_distances(page, item[None], weights)[0] for weights in (before, after)]
            ranks = [_rank(each, at) for each, at in zip(found, own, strict=True)]
            moves.append(Move(number, place, *ranks))
    moves.sort(key=lambda move: -abs(np.log(move.before / move.after)))
    return float(np.mean(kept)) if kept else 1.0, moves


def _distances(page: Page, codes: Codes, weights: Weights | None) -> npt.NDArray[np.float32]:
    if page.magnitudes is not None:
        weights = page.magnitudes if weights is None else weights * page.magnitudes
    found: npt.NDArray[np.float32] = distances(page.query_code[None], codes, weights, threads=1)[0].astype(np.float32)
    return found


def _rank(found: npt.NDArray[np.float32], own: np.float32) -> float:
    return float((found < own).sum() + ((found == own).sum() + 1) / 2)
