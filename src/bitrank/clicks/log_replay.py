"""`replay`: learn page by page, with the click gate, and compare the ranking before and after."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.clicks.exploration import SAMPLE_SIZE
from bitrank.clicks.gate import Decision, ask
from bitrank.clicks.learn import ClickLearner
from bitrank.clicks.page import Page
from bitrank.core.checks import check_codes
from bitrank.core.codes import distances
from bitrank.core.types import Codes
from bitrank.ranking.ranker import Ranker

N_COMPARED = 200  # newest pages whose rankings are compared
TOP = 20


class Look(NamedTuple):
    """A decision and the number of pages before it."""

    n_pages: int
    decision: Decision


class Move(NamedTuple):
    """A clicked item with its rank before and after; ties take the middle of their places."""

    page: int
    place: int
    before: float
    after: float


class Replay(NamedTuple):
    """What a log would have done to the ranking.

    `active` would rank at the end (None: plain Hamming, nothing was activated); `candidate` is what was learned.
    `overlap` is the share of the first twenty results that stay, and `moves` the ranks of clicked items, from the
    ranker at the start to the candidate, largest move first; both over the newest pages.

    Examples
    --------
    >>> codes = np.random.default_rng(0).integers(256, size=(500, 2), dtype=np.uint8)
    >>> replayed = replay([Page(codes[0], codes[1:21], np.arange(20) == 3)], codes, random_state=0)
    >>> replayed.n_clicks, replayed.candidate.n_bits_, replayed.active is None
    (1, 16, True)
    """

    n_pages: int
    n_clicks: int
    n_explored_clicks: int
    looks: list[Look]
    active: Ranker | None
    candidate: Ranker
    overlap: float
    moves: list[Move]


def replay(
    pages: Iterable[Page],
    codes: Codes,
    n_bits: int | None = None,
    *,
    ranker: Ranker | None = None,
    propensities: npt.ArrayLike | None = None,
    random_state: Any = None,
) -> Replay:
    """Learn from pages in order, decide whenever a decision is due, and compare the ranking before and after.

    Parameters
    ----------
    pages : iterable of Page
    codes : packed codes of the collection
    n_bits : int, optional
        Eight per byte by default.
    ranker : Ranker, optional
        Active at the start; plain Hamming by default.
    propensities, random_state : as in `ClickLearner`

    Examples
    --------
    >>> codes = np.random.default_rng(0).integers(256, size=(500, 2), dtype=np.uint8)
    >>> pages = [Page(codes[row], codes[row + 1 : row + 21], np.arange(20) == 3) for row in range(30)]
    >>> replayed = replay(pages, codes, random_state=0)
    >>> replayed.n_pages, replayed.n_clicks, replayed.active is None
    (30, 30, True)
    """
    codes = check_codes(codes, n_bits)
    n_bits = 8 * codes.shape[1] if n_bits is None else n_bits
    active = ranker
    random = np.random.default_rng(random_state)
    sample = codes
    if len(codes) > SAMPLE_SIZE:
        sample = codes[np.sort(random.choice(len(codes), SAMPLE_SIZE, replace=False))]
    learner = ClickLearner(
        sample,
        n_bits=n_bits,
        propensities=propensities,
        secret=random.bytes(8),
        random_state=int(random.integers(2**31)),
    )
    looks: list[Look] = []
    newest: deque[tuple[int, Page]] = deque(maxlen=N_COMPARED)
    n_clicks = n_explored_clicks = 0
    for number, page in enumerate(pages):
        learner.learn(page)
        newest.append((number, page))
        n_clicks += int(page.clicked.sum())
        n_explored_clicks += int((page.clicked & page.explored).sum())
        if learner.due:
            decision = learner.decide(active)
            looks.append(Look(learner.n_pages, decision))
            active = learner.candidate if decision.activate else active
    if newest:
        learner.update()
    overlap, moves = _compare(newest, codes, sample, ranker, learner.candidate)
    return Replay(learner.n_pages, n_clicks, n_explored_clicks, looks, active, learner.candidate, overlap, moves)


def _compare(
    pages: Iterable[tuple[int, Page]], codes: Codes, sample: Codes, before: Ranker | None, after: Ranker
) -> tuple[float, list[Move]]:
    kept, moves = [], []
    for number, page in pages:
        clicked = page.shown_codes[page.clicked]
        rankings = [_distances(page, codes, sample, ranker) for ranker in (before, after)]
        first, then = (set(np.argsort(ranking, kind="stable")[:TOP].tolist()) for ranking in rankings)
        kept.append(len(first & then) / len(first))
        to_clicked = [_distances(page, clicked, sample, ranker) for ranker in (before, after)]
        for place, *found in zip(np.flatnonzero(page.clicked).tolist(), *to_clicked, strict=True):
            moves.append(Move(number, place, *map(_rank, rankings, found)))
    moves.sort(key=lambda move: -abs(np.log(move.before / move.after)))
    return float(np.mean(kept)) if kept else 1.0, moves


def _distances(page: Page, codes: Codes, sample: Codes, ranker: Ranker | None) -> npt.NDArray[Any]:
    query_codes, weights = ask(ranker, page.query[None], sample)
    return np.asarray(distances(query_codes, codes, weights, threads=1)[0])


def _rank(distances: npt.NDArray[Any], item_distance: Any) -> float:
    return float((distances < item_distance).sum() + ((distances == item_distance).sum() + 1) / 2)
