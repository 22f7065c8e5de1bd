"""Online learning: `OnlineRankingSVM` moves the weights a little with every batch of quadruplets or page of clicks.

It starts from uniform weights or from those of an offline learner, keeps two vectors and a count and nothing else, and
its weights take effect at the next search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bitrank import _kernel
from bitrank.checks import check_codes, check_labels, check_magnitudes, check_n_bits, check_weights, weights_for_queries
from bitrank.ranking import gate, held_out
from bitrank.ranking.constraints import check_quadruplets, triplets_from_clicks
from bitrank.ranking.objective import Array, Constraints, Objective, best_scale
from bitrank.ranking.quadruplets import WAYS, draw_ways
from bitrank.ranking.ranking_svm import constants
from bitrank.ranking.solvers import egd, exact
from bitrank.vocabulary import Codes, Rows, Weights

_SOLVERS = ("exact", "egd")
_BATCH = 10  # of `fit`
_EGD_STEPS = 3
# Single updates are noisy: the weights in use are their mean, over all of them at first and over about so many later.
_MEMORY = 500
# A batch of at most so many rows is solved in the dual, which has one variable a row; a larger one in the primal.
# So is one for which the dual converges slowly: large C, rows that contradict each other.
_MOST_DUAL_ROWS = 256
_MOST_SWEEPS = 1000
_TOLERANCE = 1e-9


class _State(NamedTuple):
    """All that is kept between updates: the weights after the last one, their mean, and a count."""

    last: Array
    mean: Array
    n_updates: int


class OnlineRankingSVM(BaseEstimator):
    """Learn a weight per bit from a stream: passive-aggressive updates with order and tie constraints.

    Every update solves the ranking objective for the batch at hand, with the squared distance from the weights before
    it in place of the prior; the weights in use are the mean over the last few hundred updates.

    Parameters
    ----------
    weights : array of shape (n_bits,), optional
        Where to start, e.g. `weights_` of a `RankingSVM`; by default uniform weights.
    n_bits : int, optional
        Length of the codes; by default that of the weights, or all bits of the codes' bytes.
    C : float or (float, float), default=0.01
        How far one update may go for its order and its tie constraints.
    solver : {"exact", "egd"}, default="exact"
        "exact" solves each batch to its minimum; "egd" takes three steps of exponentiated gradient, as in the paper.
    n_quadruplets : int, default=5000
        Quadruplets that `fit` draws; `partial_fit` and `learn_clicks` draw none.
    scoring : {"guarded", "map", "p10"}, default="guarded"
        What `fit` maximises on held-out data, see `RankingSVM`.
    validation : {"rows", "classes"}, default="rows"
        What `fit` holds out, see `RankingSVM`.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    weights_ : float32 array of shape (n_bits,)
    n_updates_ : int
    n_bits_ : int
    report_ : list of dict
        What `fit` tried, with its held-out figures. Empty without `fit`.

    Examples
    --------
    >>> from bitrank.codes import pack
    >>> codes = pack([[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0], [1, 0, 1, 0]])
    >>> online = OnlineRankingSVM(n_bits=4)
    >>> for _ in range(20):
    ...     online = online.partial_fit(codes, [[0, 1, 2, 3]])  # row 1 differs in the first bit: it must be far
    >>> int(np.argmax(online.weights_))
    0
    """

    def __init__(
        self,
        weights: Any = None,
        *,
        n_bits: int | None = None,
        C: Any = 0.01,
        solver: str = "exact",
        n_quadruplets: int = 5000,
        scoring: gate.Scoring = "guarded",
        validation: held_out.Validation = "rows",
        random_state: Any = None,
    ) -> None:
        self.weights = weights
        self.n_bits = n_bits
        self.C = C
        self.solver = solver
        self.n_quadruplets = n_quadruplets
        self.scoring = scoring
        self.validation = validation
        self.random_state = random_state

    def fit(self, codes: Codes, y: npt.ArrayLike, magnitudes: npt.ArrayLike | None = None) -> OnlineRankingSVM:
        """Learn from class labels: stream quadruplets drawn from them, and let the gate choose how far to trust it.

        Forgets what was learned before. Parameters as in `RankingSVM.fit`.
        """
        codes, n_bits = check_n_bits(codes, self._given_n_bits())
        labels = check_labels(y, len(codes))
        values = None if magnitudes is None else check_magnitudes(magnitudes, len(codes), n_bits)
        random = np.random.default_rng(check_random_state(self.random_state).randint(2**31))

        def stream(rows: Rows, ways: Sequence[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], _State]]:
            part, part_values = codes[rows], None if values is None else values[rows]
            for way, drawn in draw_ways(labels[rows], self.n_quadruplets, codes=part, ways=ways, random=random):
                state = self._start(n_bits, Constraints(part, part, drawn, n_bits, part_values))
                for first in range(0, len(drawn), _BATCH):
                    batch = Constraints(part, part, drawn[first : first + _BATCH], n_bits, part_values)
                    state = self._update(state, batch)
                yield way, state

        def learn(rows: Rows) -> Iterator[tuple[dict[str, Any], Weights]]:
            for way, state in stream(rows, WAYS):
                yield way, state.mean.astype(np.float32)

        choice = gate.choose(
            codes,
            labels,
            learn,
            n_bits=n_bits,
            magnitudes=values,
            in_turn=True,
            scoring=self.scoring,
            validation=self.validation,
            random=random,
        )
        _, state = next(stream(np.sort(held_out.some_rows(len(codes), random)), [choice.params or WAYS[-1]]))
        blended = gate.blend_at_scale(state.mean, choice.blend, float(state.mean.mean()))
        return self._learned(_State(blended, blended, state.n_updates), choice.report)

    def partial_fit(
        self,
        codes: Codes,
        quadruplets: npt.ArrayLike,
        queries: Codes | None = None,
        magnitudes: npt.ArrayLike | None = None,
    ) -> OnlineRankingSVM:
        """Update with one batch of quadruplets or triplets, and nothing else: no data is kept, nothing is held out.

        Parameters
        ----------
        codes : packed codes that items are rows of
        quadruplets : int array of shape (m, 4) or (m, 3)
            (query, dissimilar, similar, similar) or (query, dissimilar, similar).
        queries : packed codes that queries are rows of, optional
            By default `codes`.
        magnitudes : array of shape (n_queries, n_bits), optional
            Of the query rows.
        """
        codes = check_codes(codes)
        queries = codes if queries is None else check_codes(queries, name="queries")
        n_bits = self._known_n_bits(codes)
        rows = check_quadruplets(quadruplets, len(codes), len(queries))
        # Only the rows of this batch are looked at: an update costs the same in a collection of any size.
        query_rows, item_rows = rows[:, 0], rows[:, 1:].ravel()
        used_queries = check_codes(queries[query_rows], n_bits, name="queries")
        used_items = check_codes(codes[item_rows], n_bits)
        batch = np.empty_like(rows)
        batch[:, 0] = np.arange(len(rows))
        batch[:, 1:] = np.arange(len(item_rows)).reshape(len(rows), -1)
        values = None
        if magnitudes is not None:
            every = np.asarray(magnitudes)
            if every.shape != (len(queries), n_bits):
                raise ValueError(f"magnitudes must have shape {(len(queries), n_bits)}, got {every.shape}")
            values = check_magnitudes(every[query_rows], len(rows), n_bits)
        constraints = Constraints(used_queries, used_items, batch, n_bits, values)
        state = self._state if hasattr(self, "_state") else self._start(n_bits, constraints)
        return self._learned(self._update(state, constraints), getattr(self, "report_", []))

    def learn_clicks(
        self,
        query_code: Codes,
        shown_codes: Codes,
        clicked: npt.ArrayLike,
        magnitudes: npt.ArrayLike | None = None,
    ) -> OnlineRankingSVM:
        """Update with one page of results: what was clicked goes above what was shown and not clicked.

        Parameters
        ----------
        query_code : packed code, shape (1, n_bytes) or (n_bytes,)
        shown_codes : packed codes, shape (n_shown, n_bytes)
        clicked : bool array of shape (n_shown,)
            A page with no click, or nothing but clicks, says nothing about an order and changes nothing.
        magnitudes : array of shape (n_bits,) or (1, n_bits), optional
            Of the query.
        """
        query = check_codes(np.atleast_2d(query_code), name="query_code")
        if len(query) != 1:
            raise ValueError(f"query_code must be one code, got {len(query)}")
        shown = check_codes(shown_codes, name="shown_codes")
        triplets = triplets_from_clicks(0, np.arange(len(shown)), clicked)
        if len(triplets) == 0:
            if not hasattr(self, "_state") and self.weights is not None:
                self._learned(self._given_start(self._known_n_bits(shown)), [])
            return self
        values = None if magnitudes is None else np.atleast_2d(magnitudes)
        return self.partial_fit(shown, triplets, queries=query, magnitudes=values)

    def weights_for(self, query_codes: Codes, magnitudes: npt.ArrayLike | None = None) -> Weights:
        """Weights for every query, ready for a search: the learned ones, times the magnitudes where given.

        Returns
        -------
        float32 array of shape (n_queries, n_bits)
        """
        check_is_fitted(self, "weights_")
        return weights_for_queries(self.weights_, query_codes, magnitudes, self.n_bits_)

    def to_dict(self) -> dict[str, Any]:
        """Everything that was learned, as numbers and lists that JSON can hold."""
        check_is_fitted(self, "weights_")
        return {
            "n_bits": self.n_bits_,
            "n_updates": self._state.n_updates,
            "last": self._state.last.tolist(),
            "mean": self._state.mean.tolist(),
            "C": list(constants(self.C).values()),
            "solver": self.solver,
        }

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> OnlineRankingSVM:
        """A learner that goes on where the one that wrote the dictionary was.

        Examples
        --------
        >>> codes = np.packbits([[1, 1], [0, 1], [1, 0]], axis=1)
        >>> online = OnlineRankingSVM([1.0, 2.0]).partial_fit(codes, [[0, 1, 2]])
        >>> again = OnlineRankingSVM.from_dict(online.to_dict())
        >>> bool((again.weights_ == online.weights_).all())
        True
        """
        expected = {"n_bits", "n_updates", "last", "mean", "C", "solver"}
        if not isinstance(state, dict) or set(state) != expected:
            raise ValueError(f"state must be a dictionary with {sorted(expected)}, got {state!r:.80}")
        n_bits, n_updates = state["n_bits"], state["n_updates"]
        if not (isinstance(n_bits, int) and n_bits > 0 and isinstance(n_updates, int) and n_updates >= 0):
            raise ValueError(f"n_bits and n_updates must be whole numbers, got {n_bits!r} and {n_updates!r}")
        try:
            last, mean = (np.asarray(state[name], np.float64) for name in ("last", "mean"))
        except (TypeError, ValueError) as error:
            raise ValueError(f"last and mean must be lists of {n_bits} numbers: {error}") from None
        for vector in (last, mean):
            if vector.ndim != 1:
                raise ValueError(f"last and mean must be lists of {n_bits} numbers, got shape {vector.shape}")
            check_weights(vector, n_bits)
        if state["solver"] not in _SOLVERS:
            raise ValueError(f"solver must be one of {_SOLVERS}, got {state['solver']!r}")
        online = cls(n_bits=n_bits, C=tuple(constants(state["C"]).values()), solver=state["solver"])
        return online._learned(_State(last, mean, n_updates), [])

    def _start(self, n_bits: int, constraints: Constraints) -> _State:
        """The weights given, or uniform ones at the scale that fits the first constraints best."""
        if self.weights is not None:
            return self._given_start(n_bits)
        weights = np.full(n_bits, best_scale(constraints, 1.0, 1.0))
        return _State(weights, weights, 0)

    def _given_start(self, n_bits: int) -> _State:
        weights = check_weights(self.weights, n_bits).astype(np.float64)
        if weights.ndim != 1:
            raise ValueError(f"weights must be one vector to start from, got shape {weights.shape}")
        return _State(weights, weights, 0)

    def _update(self, state: _State, batch: Constraints) -> _State:
        c = constants(self.C)
        if self.solver not in _SOLVERS:
            raise ValueError(f"solver must be one of {_SOLVERS}, got {self.solver!r}")
        if self.solver == "egd":
            objective = Objective(batch, c["C_order"], c["C_tie"], state.last)
            last = egd(objective, state.last, max_iter=_EGD_STEPS).weights
        else:
            last, n_sweeps = state.last.copy(), _MOST_SWEEPS
            if batch.n_rows <= _MOST_DUAL_ROWS:
                n_sweeps = _kernel.passive_aggressive(
                    batch.dense("order"), batch.dense("tie"), c["C_order"], c["C_tie"], _TOLERANCE, _MOST_SWEEPS, last
                )
            if n_sweeps == _MOST_SWEEPS:
                last = exact(Objective(batch, c["C_order"], c["C_tie"], state.last), last).weights
        n_updates = state.n_updates + 1
        mean = state.mean + (last - state.mean) / min(n_updates, _MEMORY)
        return _State(last, mean, n_updates)

    def _learned(self, state: _State, report: list[dict[str, Any]]) -> OnlineRankingSVM:
        self._state = state
        self.n_bits_, self.n_updates_ = len(state.mean), state.n_updates
        self.weights_: Weights = state.mean.astype(np.float32)
        self.report_ = report
        return self

    def _given_n_bits(self) -> int | None:
        return self.n_bits if self.weights is None or self.n_bits is not None else check_weights(self.weights).shape[-1]

    def _known_n_bits(self, codes: Codes) -> int:
        if hasattr(self, "_state"):
            return self.n_bits_
        given = self._given_n_bits()
        return 8 * int(codes.shape[1]) if given is None else given
