"""`ClickLearner`: candidate weights that follow the clicks page by page, and a gate in front of their use.

It puts the rooms of `feedback` together: pages become a graph, walks on it constraints, constraints an update of
`OnlineRankingSVM`; every fifth page is held out for the decision.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from bitrank.checks import check_codes, check_weights
from bitrank.codes import signs
from bitrank.feedback.graph import ClickGraph
from bitrank.feedback.held_out import Decision, Witness, decide, hear, lower_bound
from bitrank.feedback.pages import Floats, Page
from bitrank.feedback.propensities import check_propensities, propensities_from_counts
from bitrank.ranking import held_out
from bitrank.ranking.online import OnlineRankingSVM
from bitrank.vocabulary import Codes, Weights

_HOLD_OUT = 5  # every fifth page
_MOST_HELD_OUT = 1000
_LEAST_NEW = 10  # held-out pages between two decisions
_N_UPDATES = 4  # for a page; the online learner's mean over 500 of them reaches back 125 pages
_N_CONSTRAINTS = 64  # of an update
# How much of what was learned goes into the candidate: see `blend`, and benchmarks/clicks.py for what it does.
_LEAST_BLEND, _MOST_BLEND, _TRUST, _MANY_PAGES = 0.25, 0.75, 5.0, 700
_SCALE = 5.12  # sum of the weights to start from: about where learning from simulated clicks ends up
_PLACES = 100  # of a page that propensities are estimated for; those beyond count as the last


class ClickLearner:
    """Learn from clicks, page by page.

    Parameters
    ----------
    sample : packed codes of the collection, or of some ten thousand of its items drawn at random
        May be replaced at any time, as the collection changes: `learner.sample = codes`.
    n_bits : int, optional
        Eight a byte by default.
    weights : array of shape (n_bits,), optional
        Where to start, e.g. those of an offline learner; uniform by default.
    propensities : array of shape (n_places,), optional
        How likely each place of a page is looked at; estimated from clicks on explored items by default.
    C : float, default=0.003
        How far one page may move the candidate, see `OnlineRankingSVM`.
    blend : float, optional
        Share of what was learned in the candidate, the rest being the weights that it started from. By default it grows
        over the first 700 pages, to between a quarter and three quarters: the more, the more surely explored clicks
        differ from clicks at random.
    random_state : int, RandomState instance or None

    Attributes
    ----------
    weights : float32 array of shape (n_bits,)
        The candidate. Follows every page that is not held out.
    due : bool
        Whether enough held-out pages came since the last decision for another one.
    n_pages, n_looks : int
        Pages seen and decisions made. A service that starts again sets `n_looks` to what it was.

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
        self._given = None if propensities is None else check_propensities(propensities)
        seeds = check_random_state(random_state).randint(2**31, size=2)
        self._graph = ClickGraph(self._sample.shape[1], seed=int(seeds[0]))
        self._random = np.random.default_rng(seeds[1])
        self._held_out: deque[tuple[Page, Witness | None]] = deque()
        self._evidence: deque[float] = deque(maxlen=_HOLD_OUT * _MOST_HELD_OUT)
        given = np.ones(self.n_bits) if weights is None else check_weights(weights, self.n_bits)
        self._start = held_out.mean_one(given)
        self._online = OnlineRankingSVM(_SCALE / self.n_bits * self._start, n_bits=self.n_bits, C=C)
        self._shown, self._clicks = np.zeros(_PLACES), np.zeros(_PLACES)
        self.n_pages = self.n_looks = self._n_new = 0

    @property
    def sample(self) -> Codes:
        """Codes that are drawn from."""
        return self._sample

    @sample.setter
    def sample(self, sample: Codes) -> None:
        self._sample = check_codes(sample, self.n_bits, name="sample")

    @property
    def propensities(self) -> Floats:
        """How likely each place of a page is looked at: as given, or as estimated so far."""
        return propensities_from_counts(self._shown, self._clicks) if self._given is None else self._given

    @property
    def blend(self) -> float:
        """Share of what was learned in the candidate.

        Few or noisy clicks teach the top of a list less than nothing, and moving only part of the way protects it: the
        more pages, and the more clearly Hamming tells explored clicks from items drawn like them, the farther.
        """
        if self._blend is not None:
            return self._blend
        n = len(self._evidence)
        sure = lower_bound(np.array(self._evidence), 2.0) - 0.5 if n >= _LEAST_NEW else 0.0
        return float(np.clip(_TRUST * sure, _LEAST_BLEND, _MOST_BLEND)) * min(1.0, len(self._graph) / _MANY_PAGES)

    @property
    def weights(self) -> Weights:
        """The candidate."""
        learned, share = held_out.mean_one(getattr(self._online, "weights_", self._start)), self.blend
        return ((1 - share) * self._start + share * learned).astype(np.float32)

    @property
    def due(self) -> bool:
        """Whether enough held-out pages came since the last decision: ten, and a tenth of all."""
        return self._n_new >= max(_LEAST_NEW, len(self._held_out) // 10)

    def learn(self, page: Page) -> None:
        """Take one page: hold it out, or update the candidate with it."""
        check_codes(page.shown_codes, self.n_bits, name="shown_codes")
        check_codes(page.query_code[None], self.n_bits, name="query_code")
        if page.magnitudes is not None and len(page.magnitudes) != self.n_bits:
            raise ValueError(f"magnitudes must hold {self.n_bits} values, one a bit, got {len(page.magnitudes)}")
        self.n_pages += 1
        places = np.flatnonzero(page.explored[:_PLACES])
        self._shown[places] += 1
        self._clicks[places] += page.clicked[places]
        witness = hear(page, self._sample, self._random)
        if witness is not None:
            self._evidence.append(witness.figure(None))
        if self.n_pages % _HOLD_OUT:
            self._update(page)
            return
        self._held_out.append((page, witness))
        self._n_new += 1
        if len(self._held_out) > _MOST_HELD_OUT:
            self._update(self._held_out.popleft()[0])

    def _update(self, page: Page) -> None:
        if not self._graph.add(page, self.propensities):
            return
        for _ in range(_N_UPDATES):
            drawn = self._graph.draw(_N_CONSTRAINTS, self._sample)
            n = len(drawn.queries)
            if n == 0:
                continue
            rows = np.arange(n)
            self._online.partial_fit(
                np.concatenate([drawn.dissimilar, drawn.similar]),
                np.column_stack([rows, rows, rows + n]),
                queries=(
                    drawn.queries if drawn.magnitudes is None else signs(drawn.queries, self.n_bits) * drawn.magnitudes
                ),
            )

    def decide(self, active_weights: npt.ArrayLike | None = None) -> Decision:
        """Replay the held-out pages under the candidate, the active weights (None: plain Hamming) and Hamming.

        Every call counts as a look at the data, and the next one asks for more: call it when it is `due`.
        """
        active = None if active_weights is None else check_weights(active_weights, self.n_bits)
        self.n_looks += 1
        self._n_new = 0
        witnesses = [witness for _, witness in self._held_out if witness is not None]
        return decide(witnesses, np.array(self._evidence), self.weights, active, self.n_looks)
