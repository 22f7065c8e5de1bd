"""`ClickLearner`: candidate weights that follow the clicks page by page, with the click gate before their use.

Pages become a click graph, walks on it constraints, and constraints updates of `OnlineRankingSVM`. Every fifth page is
held out for the gate.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from bitrank.checks import check_codes, check_weights
from bitrank.feedback.click_gate import Decision, PageEvidence, decide, evidence_from, lower_bound
from bitrank.feedback.click_graph import ClickGraph
from bitrank.feedback.pages import Floats, Page
from bitrank.feedback.propensities import check_propensities, propensities_from_counts
from bitrank.ranking.near import mean_one
from bitrank.ranking.online import OnlineRankingSVM
from bitrank.vocabulary import Codes, Weights

_HOLD_OUT = 5  # every fifth page
_MAX_HELD_OUT = 1000
_MIN_NEW = 10  # held-out pages between two decisions
_N_UPDATES = 4  # per page; the online learner averages over 500 of them, which is 125 pages
_N_CONSTRAINTS = 64  # per update
# The share of what was learned in the candidate: see `blend`, and benchmarks/clicks.py for its effect.
_MIN_BLEND, _MAX_BLEND, _BLEND_SLOPE, _MANY_PAGES = 0.25, 0.75, 5.0, 700
_SCALE = 5.12  # sum of the starting weights: about where learning from simulated clicks ends up
_N_PLACES = 100  # places per page with a propensity of their own; those beyond share the last


class ClickLearner:
    """Learn from clicks, page by page.

    Parameters
    ----------
    sample : packed codes of the collection, or of about ten thousand of its items drawn at random
        May be replaced at any time as the collection changes: `learner.sample = codes`.
    n_bits : int, optional
        Eight per byte by default.
    weights : array of shape (n_bits,), optional
        Where to start, for example weights learned offline; uniform by default.
    propensities : array of shape (n_places,), optional
        Probability that each place of a page is looked at; estimated from clicks on explored items by default.
    C : float, default=0.003
        How far one page may move the candidate, see `OnlineRankingSVM`.
    blend : float, optional
        Share of what was learned in the candidate; the rest is the starting weights. By default it grows over the
        first 700 pages to between a quarter and three quarters: the more clearly explored clicks differ from random
        clicks, the larger.
    random_state : int, RandomState instance or None

    Attributes
    ----------
    weights : float32 array of shape (n_bits,)
        The candidate. Follows every page that is not held out.
    due : bool
        Whether enough held-out pages have come since the last decision for another one.
    n_pages, n_looks : int
        Number of pages seen and of decisions made. A service that restarts sets `n_looks` to its former value.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> codes = rng.integers(256, size=(500, 2), dtype=np.uint8)
    >>> learner = ClickLearner(codes, random_state=0)
    >>> learner.learn(Page(codes[0], codes[1:21], np.arange(20) == 3))
    >>> learner.n_pages, learner.weights.shape
    (1, (16,))
    >>> learner.decide().activate
    False
    """

    def __init__(
        self,
        sample: Codes,
        *,
        n_bits: int | None = None,
        weights: npt.ArrayLike | None = None,
        propensities: npt.ArrayLike | None = None,
        C: float = 0.003,
        blend: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_bits = 8 * int(check_codes(sample).shape[1]) if n_bits is None else n_bits
        self.sample = sample
        if blend is not None and not 0 <= blend <= 1:
            raise ValueError(f"blend must be from 0 to 1, got {blend}")
        self._blend = blend
        self._propensities = None if propensities is None else check_propensities(propensities)
        seeds = check_random_state(random_state).randint(2**31, size=2)
        self._graph = ClickGraph(self._sample.shape[1], seed=int(seeds[0]))
        self._random = np.random.default_rng(seeds[1])
        self._held_out: deque[tuple[Page, PageEvidence | None]] = deque()
        self._hamming_rates: deque[float] = deque(maxlen=_HOLD_OUT * _MAX_HELD_OUT)
        start = np.ones(self.n_bits) if weights is None else check_weights(weights, self.n_bits)
        self._start = mean_one(start)
        self._online = OnlineRankingSVM(_SCALE / self.n_bits * self._start, n_bits=self.n_bits, C=C)
        self._shown, self._clicks = np.zeros(_N_PLACES), np.zeros(_N_PLACES)
        self.n_pages = self.n_looks = self._n_new = 0

    @property
    def sample(self) -> Codes:
        """Codes to draw from."""
        return self._sample

    @sample.setter
    def sample(self, sample: Codes) -> None:
        self._sample = check_codes(sample, self.n_bits, name="sample")

    @property
    def propensities(self) -> Floats:
        """Probability that each place of a page is looked at: as passed in, or as estimated so far."""
        return propensities_from_counts(self._shown, self._clicks) if self._propensities is None else self._propensities

    @property
    def blend(self) -> float:
        """Share of what was learned in the candidate.

        Few or noisy clicks harm the top of a list, and moving only part of the way protects it. The share grows with
        the number of pages and with how clearly Hamming tells explored clicks from items drawn like them.
        """
        if self._blend is not None:
            return self._blend
        n = len(self._hamming_rates)
        excess = lower_bound(np.array(self._hamming_rates), 2.0) - 0.5 if n >= _MIN_NEW else 0.0
        return float(np.clip(_BLEND_SLOPE * excess, _MIN_BLEND, _MAX_BLEND)) * min(1.0, len(self._graph) / _MANY_PAGES)

    @property
    def weights(self) -> Weights:
        """The candidate."""
        learned, share = mean_one(getattr(self._online, "weights_", self._start)), self.blend
        return ((1 - share) * self._start + share * learned).astype(np.float32)

    @property
    def due(self) -> bool:
        """Whether a decision is due: ten new held-out pages since the last one, and a tenth of all."""
        return self._n_new >= max(_MIN_NEW, len(self._held_out) // 10)

    def learn(self, page: Page) -> None:
        """Take one page: hold it out, or update the candidate with it."""
        check_codes(page.shown_codes, self.n_bits, name="shown_codes")
        if page.query.dtype.kind != "f":
            check_codes(page.query[None], self.n_bits, name="query")
        elif len(page.query) != self.n_bits:
            raise ValueError(f"query must hold {self.n_bits} values, one per bit, got {len(page.query)}")
        self.n_pages += 1
        places = np.flatnonzero(page.explored[:_N_PLACES])
        self._shown[places] += 1
        self._clicks[places] += page.clicked[places]
        evidence = evidence_from(page, self._sample, self._random)
        if evidence is not None:
            self._hamming_rates.append(evidence.win_rate(None))
        if self.n_pages % _HOLD_OUT:
            self._update(page)
            return
        self._held_out.append((page, evidence))
        self._n_new += 1
        if len(self._held_out) > _MAX_HELD_OUT:
            self._update(self._held_out.popleft()[0])

    def _update(self, page: Page) -> None:
        if not self._graph.add(page, self.propensities):
            return
        for _ in range(_N_UPDATES):
            triplets = self._graph.draw(_N_CONSTRAINTS, self._sample)
            n = len(triplets.queries)
            if n == 0:
                continue
            rows = np.arange(n)
            self._online.partial_fit(
                np.concatenate([triplets.dissimilar, triplets.similar]),
                np.column_stack([rows, rows, rows + n]),
                queries=triplets.queries,
            )

    def decide(self, active_weights: npt.ArrayLike | None = None) -> Decision:
        """Replay the held-out pages under the candidate, the active weights (None: plain Hamming) and Hamming.

        Every call counts as a look at the data, and each look demands stronger evidence: call it when it is `due`.
        """
        active = None if active_weights is None else check_weights(active_weights, self.n_bits)
        self.n_looks += 1
        self._n_new = 0
        held_out = [evidence for _, evidence in self._held_out if evidence is not None]
        return decide(held_out, np.array(self._hamming_rates), self.weights, active, self.n_looks)
