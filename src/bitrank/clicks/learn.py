"""`ClickLearner`: a candidate ranker that follows the clicks, with the click gate before its use.

Pages become a click graph, walks on it pairs of items, and pairs a vector per query. A fifth of the pages, chosen by a
secret, is held out for the gate. No client counts for more than the median client, and clients who click against the
rest are left out. `adapt_to_choices` learns from the clicks on one page, for that query alone.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from sklearn.isotonic import IsotonicRegression
from sklearn.utils import check_random_state

from bitrank.clicks import gate as click_gate
from bitrank.clicks.gate import Decision, PageEvidence, decide, evidence_from, near_limit, top_gain, win_rates
from bitrank.clicks.page import CANARY, Floats, Page, QueryArray
from bitrank.clicks.robust import FEW_CLIENTS, Clients, Estimate, Facts, mean_over_clients
from bitrank.clicks.walks import ClickLog, learn_vectors
from bitrank.clicks.window import Window, limit_of, n_counted, shares
from bitrank.core.checks import check_codes
from bitrank.core.types import Codes, Weights
from bitrank.ranking.online import OnlineRankingSVM
from bitrank.ranking.plain import UniformRanker
from bitrank.ranking.ranker import Ranker

T = TypeVar("T")

_HELD_OUT = 0.2  # share of the pages
_MAX_EVIDENCE = 1000  # held-out pages
_MIN_NEW = 100  # pages between two decisions
# Gradient steps of an update, and at most this many per page. Many more, as of a network that is trained on and on, fit
# the pages at hand and not the next ones.
_N_STEPS, _FEW_STEPS = 300, 5
# The share of what was learned in the candidate: see `blend`, and benchmarks/clicks.py for its effect.
_MIN_BLEND, _MAX_BLEND, _BLEND_SLOPE, _MANY_PAGES = 0.25, 0.75, 6.0, 1000
_N_PLACES = 100  # places per page with a propensity of their own; those beyond share the last
_TOP = 10  # best results whose clicks compare versions with the canary
_MIN_PROPENSITY = 0.1  # A click counts at most tenfold.
_PRIOR_SHOWN = 10.0  # Prior of propensities, in explored items per place that are clicked at the mean rate.
_CHOICE_C = 0.1  # One choice among twenty results moves most of them, and the weights keep their shape.


class _Result(NamedTuple):
    """How a page was received: Hamming's win rate, the share of its best results that was clicked, and `top_gain`."""

    version: int | None
    hamming: float
    clicked: float
    top_gain: float


class ClickLearner:
    """Learn from clicks, page by page.

    Parameters
    ----------
    sample : packed codes of the collection, or of about ten thousand of its items drawn at random
        May be replaced at any time as the collection changes: `learner.sample = codes`.
    n_bits : int, optional
        Eight per byte by default.
    propensities : array of shape (n_places,), optional
        Probability that each place of a page is looked at; estimated from clicks on explored items by default.
    secret : bytes, optional
        Chooses the pages that are held out, together with their numbers; random by default.
    min_clients : int, default=1
        Nothing is decided by clicks of fewer clients. With 1, one person may teach all.
    facts : mapping, optional
        What is known of clients from before, as `learner.clients.facts`.
    undecided : mapping, optional
        Of the pages that `facts` counts, how many of each client came after the last decision.
    random_state : int, RandomState instance or None

    Attributes
    ----------
    candidate : Ranker
        What was learned until the last `decide` or `update`.
    due : bool
        Whether enough pages have come since the last decision for another one.
    n_pages, n_looks, n_activated : int
        Number of pages seen, of decisions made, and of those for the candidate. A service that restarts sets the last
        two to their former values.
    clients : Clients
        What is known of every client.
    dropped : set of str
        Clients who click against the rest; their pages are not learned from.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> codes = rng.integers(256, size=(500, 2), dtype=np.uint8)
    >>> learner = ClickLearner(codes, random_state=0)
    >>> learner.learn(Page(codes[0], codes[1:21], np.arange(20) == 3))
    >>> learner.n_pages, learner.decide().activate
    (1, False)
    """

    def __init__(
        self,
        sample: Codes,
        *,
        n_bits: int | None = None,
        propensities: npt.ArrayLike | None = None,
        secret: bytes | None = None,
        min_clients: int = 1,
        facts: Mapping[str, Facts] | None = None,
        undecided: Mapping[str, int] | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_bits = 8 * int(check_codes(sample).shape[1]) if n_bits is None else n_bits
        self.sample = sample
        self._propensities = None if propensities is None else _check_propensities(propensities)
        self._secret = secrets.token_bytes(32) if secret is None else hashlib.blake2b(secret, digest_size=32).digest()
        self._min_clients = min_clients
        self._seed = int(check_random_state(random_state).randint(2**31))
        self._random = np.random.default_rng(self._seed)
        self._log = ClickLog(self._sample.shape[1])
        self.clients = Clients(self.n_bits, facts)
        self._held_out: Window[PageEvidence] = Window(_MAX_EVIDENCE)
        # All pages, held out or not, with the versions that ranked them.
        self._newest: Window[tuple[int | None, PageEvidence]] = Window(_MAX_EVIDENCE)
        self._results: Window[_Result] = Window(round(_MAX_EVIDENCE / _HELD_OUT))
        self._shown, self._clicks = np.zeros(_N_PLACES), np.zeros(_N_PLACES)
        self.dropped: set[str] = self.clients.left_out()
        self.n_pages = self.n_looks = self.n_activated = self._n_unread = 0
        later = undecided or {}
        decided = {client: n - later.get(client, 0) for client, n in self.clients.n_pages.items()}
        self._n_decided = n_counted({client: n for client, n in decided.items() if n > 0})
        self._was_refused = False
        self.candidate: Ranker = UniformRanker(self.n_bits).fit(self._sample)

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
        return estimate_propensities(self._shown, self._clicks) if self._propensities is None else self._propensities

    @property
    def hamming_gain(self) -> Estimate | None:
        """Hamming's win rate on explored clicks, less one half, over all clients that are not left out."""
        return self._mean([(client, result.hamming - 0.5) for client, result in self._kept(self._results)])

    @property
    def blend(self) -> float:
        """Share of what was learned in the candidate.

        Few or noisy clicks harm the top of a list, and moving only part of the way protects it. The share grows with
        the number of pages that count and with how clearly Hamming tells explored clicks from items drawn like them.
        """
        gain = self.hamming_gain
        clear = _MIN_BLEND if gain is None else float(np.clip(_BLEND_SLOPE * gain.low(2.0), _MIN_BLEND, _MAX_BLEND))
        return clear * min(1.0, float(np.sqrt(n_counted(self._log.n_pages) / _MANY_PAGES)))

    @property
    def teachers(self) -> dict[str, float]:
        """Shares of the clients in what the candidate was learned from."""
        return {client: share for client, share in shares(self._log.n_pages, self.dropped).items() if share}

    @property
    def due(self) -> bool:
        """Whether a decision is due: a hundred new pages that count since the last one, and a tenth of all.

        A candidate that was refused gets another chance after half as many.
        """
        n = n_counted(self.clients.n_pages)
        return n - self._n_decided >= max(_MIN_NEW, n // (20 if self._was_refused else 10))

    @property
    def stale(self) -> bool:
        """Whether the candidate lacks a twentieth of the pages, or one of the first."""
        return self._n_unread > self.n_pages // 20

    def _kept(self, window: Window[T]) -> list[tuple[str, T]]:
        return [(client, entry) for client, entry in window if client not in self.dropped]

    def _mean(self, values: list[tuple[str, float]]) -> Estimate | None:
        return mean_over_clients(
            np.array([value for _, value in values]), [name for name, _ in values], self._min_clients
        )

    def learn(
        self, page: Page, *, number: int | None = None, version: int | None = None, is_known: bool = False
    ) -> None:
        """Take one page, to learn from or to hold out.

        Parameters
        ----------
        page : Page
            Pages without a client count as pages of different clients.
        number : int, optional
            Its number in the log, which decides with the secret whether it is held out; by default pages are counted.
        version : int, optional
            The version that ranked it; `CANARY` for plain Hamming.
        is_known : bool, default=False
            Whether what is known of its client counts it already: a page that is read again after a restart.
        """
        check_codes(page.shown_codes, self.n_bits, name="shown_codes")
        if page.query.dtype.kind != "f":
            check_codes(page.query[None], self.n_bits, name="query")
        elif len(page.query) != self.n_bits:
            raise ValueError(f"query must hold {self.n_bits} values, one per bit, got {len(page.query)}")
        self.n_pages += 1
        self._n_unread += 1
        number = self.n_pages if number is None else number
        client = f"page {number}" if page.client is None else page.client
        propensities = self.propensities
        if not is_known:
            self.clients.add(client, page, propensities, near_limit(page.query_code, self._sample))
        n_pages = self._results.counts
        if n_pages.get(client, 0) < limit_of(n_pages):
            places = np.flatnonzero(page.explored[:_N_PLACES])
            self._shown[places] += 1
            self._clicks[places] += page.clicked[places]
        evidence, hamming = evidence_from(page, client, self._sample, self._random), float("nan")
        if evidence is not None:
            hamming = float(win_rates([evidence], None, self._sample)[0, 0])
            self._newest.add(client, (version, evidence))
        best = page.clicked[~page.explored][:_TOP]
        clicked = float(best.mean()) if len(best) else float("nan")
        self._results.add(client, _Result(version, hamming, clicked, top_gain(page, self._sample)))
        if not self._is_held_out(number):
            self._log.add(page, client, propensities, self._random)
        elif evidence is not None:
            self._held_out.add(client, evidence)

    def _is_held_out(self, number: int) -> bool:
        digest = hashlib.blake2b(number.to_bytes(8, "little"), key=self._secret, digest_size=4).digest()
        return int.from_bytes(digest, "little") < _HELD_OUT * 2**32

    def decide(self, active: Ranker | None = None, version: int | None = None) -> Decision:
        """Learn, then judge the candidate, the active ranker (None: plain Hamming) and Hamming on held-out pages.

        Every call counts as a look at the data, and each look demands stronger evidence: call it when it is `due`.
        The alarm also reads all pages that `version` ranked, none of which it can have learned from, and compares the
        clicks on them with those on canary pages.
        """
        self.n_looks += 1
        self._n_decided = n_counted(self.clients.n_pages)
        self.update()
        held_out = [evidence for _, evidence in self._kept(self._held_out)]
        behind = self._behind_hamming(active, version)
        gain, looks = self.hamming_gain, (self.n_looks, self.n_activated)
        decision = decide(
            held_out, gain, self.candidate, active, self._sample, *looks, behind, min_clients=self._min_clients
        )
        self._was_refused = not decision.activate
        self.n_activated += decision.activate
        return decision

    def update(self) -> None:
        """Leave out clients who click against the rest, and learn the candidate from the others' pages."""
        self.dropped = self.clients.left_out()
        walks = self._log.walks(self.dropped)
        self._n_unread = 0
        if len(walks) == 0:
            return
        n_steps = min(_N_STEPS, _FEW_STEPS * len(walks))
        # The same pages give the same candidate, however often it was learned before.
        random = np.random.default_rng([self._seed, self.n_pages])
        self.candidate = learn_vectors(
            walks, self._sample, self.n_bits, blend=self.blend, n_steps=n_steps, random=random
        )

    def _behind_hamming(self, active: Ranker | None, version: int | None) -> list[Estimate]:
        """By how much Hamming is ahead of a version: in win rates, near the top of its pages, and on canary pages."""
        if version in (None, CANARY):
            return []
        gains = []
        pages = [page for _, (ranked_by, page) in self._kept(self._newest) if ranked_by == version]
        if active is not None and len(pages) >= click_gate.MIN_PAGES:
            hamming, ranked = (win_rates(pages, ranker, self._sample)[:, 0] for ranker in (None, active))
            gains.append(self._mean([(page.client, gain) for page, gain in zip(pages, hamming - ranked, strict=True)]))
        results = self._kept(self._results)
        tops = [(client, result.top_gain) for client, result in results if result.version == version]
        if np.isfinite([top for _, top in tops]).sum() >= click_gate.MIN_PAGES:
            gains.append(self._mean(tops))
        shares: dict[str, dict[int | None, list[float]]] = {}
        for client, result in results:
            if np.isfinite(result.clicked):
                shares.setdefault(client, {}).setdefault(result.version, []).append(result.clicked)
        # Paired by client: some click more than others, whatever they see.
        both = {client: share for client, share in shares.items() if version in share and CANARY in share}
        if len(both) >= FEW_CLIENTS:
            gains.append(
                self._mean([(name, float(np.mean(s[CANARY]) - np.mean(s[version]))) for name, s in both.items()])
            )
        return [gain for gain in gains if gain is not None]


def estimate_propensities(shown: Floats, clicks: Floats) -> Floats:
    """Estimate the probability that each place is looked at, relative to the first, from clicks on explored items.

    Explored items stand at random places: where one place gets more of their clicks than another, only the place can
    be the reason. Isotonic regression makes the rates fall from the first place to the last.

    Parameters
    ----------
    shown, clicks : float arrays of shape (n_places,)
        How often each place showed an explored item, and how often that was clicked.

    Examples
    --------
    >>> estimate_propensities(np.array([100.0, 100.0]), np.array([100.0, 0.0]))
    array([1. , 0.1])
    """
    if clicks.sum() == 0:
        return np.ones(len(shown))
    mean = clicks.sum() / shown.sum()
    rates = (clicks + mean * _PRIOR_SHOWN) / (shown + _PRIOR_SHOWN)
    regression = IsotonicRegression(increasing=False)
    falling = regression.fit_transform(np.arange(len(rates)), rates, sample_weight=shown + _PRIOR_SHOWN)
    return np.asarray(np.maximum(falling / falling[0], _MIN_PROPENSITY), np.float64)


def _check_propensities(propensities: npt.ArrayLike) -> Floats:
    """Check propensities: numbers above 0 and up to 1, one per place."""
    array = np.asarray(propensities, np.float64)
    if array.ndim != 1 or len(array) == 0 or not ((array > 0) & (array <= 1)).all():
        raise ValueError(f"propensities must be numbers above 0 and up to 1, one per place, got {array!r:.80}")
    return np.maximum(array, _MIN_PROPENSITY)


def adapt_to_choices(weights: npt.ArrayLike, query: QueryArray, passed: Codes, chosen: Codes) -> Weights:
    """Move weights so that the items chosen for a query rank before those passed over.

    They serve that query alone and are then forgotten, so they pass no gate.

    Parameters
    ----------
    weights : array of shape (n_bits,)
        Where to start.
    query : packed code of shape (n_bytes,) or (1, n_bytes), or reals of shape (n_bits,) or (1, n_bits)
    passed, chosen : packed codes, shape (n, n_bytes)
        Results that were passed over, and results that were chosen. The weights stay where either is empty.

    Returns
    -------
    float32 array of shape (n_bits,)

    Examples
    --------
    >>> query, near, far = np.uint8([0b11110000]), np.uint8([[0b11110001]]), np.uint8([[0b10010000]])
    >>> adapted = adapt_to_choices(np.ones(8), query, passed=near, chosen=far)  # the chosen item is two bits away
    >>> bool(adapted[7] > adapted[1] == adapted[2])
    True
    """
    start = np.asarray(weights, np.float32)
    clicked = np.arange(len(passed) + len(chosen)) >= len(passed)
    online = OnlineRankingSVM(start, n_bits=len(start), C=_CHOICE_C)
    return online.learn_clicks(query, np.concatenate([passed, chosen]), clicked).weights_
