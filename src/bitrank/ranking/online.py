"""`OnlineRankingSVM`: learn one weight per bit from a stream of constraints or clicks.

It keeps two vectors and a count between updates; its weights take effect at the next search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bitrank import _kernel
from bitrank.core.checks import check_codes, check_weights
from bitrank.core.progress import progress
from bitrank.core.types import Codes, Rows, Weights
from bitrank.ranking.evidence.constraints import check_constraints, triplets_from_clicks
from bitrank.ranking.evidence.kinds import (
    ConstraintEvidence,
    LabelEvidence,
    QueryRows,
    TooLittleEvidenceError,
    check_query_rows,
)
from bitrank.ranking.evidence.sampling import SAMPLINGS, Params, Samples, constraint_samples, label_samples
from bitrank.ranking.gate import choose as gate
from bitrank.ranking.gate.folds import Validation, some_rows
from bitrank.ranking.gate.report import Report
from bitrank.ranking.gate.stream import StreamGate
from bitrank.ranking.ranker import Ranker
from bitrank.ranking.ranking_svm import constants, constraints_of
from bitrank.ranking.solvers.objective import Array, Constraints, Objective, best_scale
from bitrank.ranking.solvers.solvers import egd, exact

_SOLVERS = ("exact", "egd")
_BATCH = 10  # of `fit`
_EGD_STEPS = 3
# Single updates are noisy: the weights in use are a running mean over about this many updates.
_MEMORY = 500
# Batches of at most this many rows are solved in the dual, which has one variable per row; larger ones, and those for
# which the dual converges slowly (large C, contradictory rows), in the primal.
_MOST_DUAL_ROWS = 256
_MOST_SWEEPS = 1000
_TOLERANCE = 1e-9


class _State(NamedTuple):
    """What is kept between updates: the last weights, their running mean, and a count."""

    last: Array
    mean: Array
    n_updates: int


@dataclass(eq=False, repr=False)
class OnlineRankingSVM(Ranker):
    """Learn one weight per bit from a stream: passive-aggressive updates with order and tie constraints.

    Every update minimises the ranking objective of one batch, with the weights before it as the prior; the weights in
    use are the mean over the last few hundred updates.

    Parameters
    ----------
    weights : array of shape (n_bits,), optional
        The start, for example `weights_` of a `RankingSVM`; by default uniform weights.
    n_bits : int, optional
        Length of the codes; by default that of the weights, or all bits of the codes' bytes.
    C : float or (float, float), default=0.01
        How far one update may go, for order and for tie constraints.
    solver : {"exact", "egd"}, default="exact"
        "exact" solves each batch to its minimum; "egd" takes three steps of exponentiated gradient, as in the paper.
    hold_out : float, default=0.0
        Share of the queries that `partial_fit` and `learn_clicks` judge by in the place of learning from them. The
        weights in use are then a blend of the start with what was learned: the one with the best nDCG@10 for held-out
        queries in the collection, and the start until one surely gains. 0 is no gate.
    n_quadruplets : int, default=5000
        Quadruplets that `fit` draws; `partial_fit` and `learn_clicks` draw none.
    scoring : {"guarded", "rare", "map", "p10", "ndcg", "mrr", "bedroc", "recall@N"}, default="guarded"
        What `fit` maximises on held-out data, see `RankingSVM`.
    validation : {"rows", "classes"}, default="rows"
        What `fit` holds out, see `RankingSVM`.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    weights_ : float32 array of shape (n_bits,)
        The mean over recent updates, or what the gate made of it.
    last_, mean_ : float64 arrays of shape (n_bits,)
        The weights after the last update, and their mean.
    n_updates_ : int
    n_bits_ : int
    blend_ : float
        Share of the learned weights that `fit`, or the gate of the stream, chose; 1 for a stream without a gate.
    report_ : Report
        What `fit`, or the gate of the stream, tried, with held-out figures. Empty without a gate.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> codes = pack([[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0], [1, 0, 1, 0]])
    >>> online = OnlineRankingSVM(n_bits=4)
    >>> for _ in range(20):
    ...     online = online.partial_fit(codes, [[0, 1, 2, 3]])  # row 1 differs in the first bit: it must be far
    >>> int(np.argmax(online.weights_))
    0
    """

    learns_from = frozenset({"labels", "constraints"})
    _arrays: ClassVar[dict[str, str]] = {"weights_": "b", "last_": "b", "mean_": "b"}
    _facts = ("n_updates_",)

    weights_: Weights = field(init=False)
    last_: Array = field(init=False)
    mean_: Array = field(init=False)
    n_updates_: int = field(init=False)

    weights: Any = None
    _: KW_ONLY
    n_bits: int | None = None
    C: Any = 0.01
    solver: str = "exact"
    hold_out: float = 0.0
    n_quadruplets: int = 5000
    scoring: str = "guarded"
    validation: Validation = "rows"
    random_state: Any = None

    def partial_fit(self, codes: Codes, rows: npt.ArrayLike, *, queries: npt.ArrayLike | None = None) -> Self:
        """Update with one batch of constraints. No data are kept, except by the gate of `hold_out`.

        Parameters as in `Ranker.fit_constraints`; with `hold_out`, held-out queries are judged among `codes`.
        """
        codes = check_codes(codes)
        every_query = codes if queries is None else np.asarray(queries)
        n_bits = self._known_n_bits(codes)
        constraints = check_constraints(rows, len(codes), len(every_query))
        # Check only the rows of this batch: an update costs the same in a collection of any size.
        item_rows = constraints[:, 1:].ravel()
        batch_queries = check_query_rows(every_query[constraints[:, 0]], n_bits)
        items = check_codes(codes[item_rows], n_bits)
        batch = np.empty_like(constraints)
        batch[:, 0] = np.arange(len(constraints))
        batch[:, 1:] = np.arange(len(item_rows)).reshape(len(constraints), -1)
        update = Constraints(batch_queries.codes, items, batch, n_bits, batch_queries.magnitudes)
        state = self._state() if hasattr(self, "mean_") else self._start(n_bits, update)
        if self.hold_out == 0:
            self._set(self._update(state, update))
        else:
            self._update_gated(state, batch_queries, items, batch, codes)
        return self

    def _update_gated(self, state: _State, queries: QueryRows, items: Codes, batch: Rows, codes: Codes) -> None:
        """Update with the constraints that are not held out; the gate then says which weights to use."""
        stream: StreamGate | None = getattr(self, "_gated_stream", None)
        if stream is None or stream.learned is not getattr(self, "mean_", None):  # the first batch, or one after `fit`
            uniform = gate.blend_at_scale(state.mean, 0.0, float(state.mean.mean()))
            start = self.weights_ if hasattr(self, "weights_") else uniform if self.weights is None else state.mean
            stream = StreamGate(self.hold_out, start.astype(np.float64))
        learn = ~stream.hold_out(queries, items, batch)
        if learn.any():
            n_bits = len(state.mean)
            state = self._update(state, Constraints(queries.codes, items, batch[learn], n_bits, queries.magnitudes))
        weights = stream.weights(state.mean, codes)
        self._set(state)
        self._gated_stream, self.weights_ = stream, weights
        self.blend_, self.report_ = stream.report.blend, stream.report

    def learn_clicks(self, query: npt.ArrayLike, shown_codes: Codes, clicked: npt.ArrayLike) -> Self:
        """Update with one page of results: clicked items rank above items that were shown and not clicked.

        Parameters
        ----------
        query : packed code of shape (n_bytes,), or reals of shape (n_bits,)
            A matrix of one row is accepted too.
        shown_codes : packed codes of shape (n_shown, n_bytes)
        clicked : bool array of shape (n_shown,)
            A page with no click, or nothing but clicks, says nothing about an order and changes nothing.
        """
        queries = np.atleast_2d(np.asarray(query))
        if len(queries) != 1:
            raise ValueError(f"query must be one code or one vector of reals, got {len(queries)} rows")
        shown = check_codes(shown_codes, name="shown_codes")
        triplets = triplets_from_clicks(0, np.arange(len(shown)), clicked)
        if len(triplets):
            return self.partial_fit(shown, triplets, queries=queries)
        check_query_rows(queries, self._known_n_bits(shown), name="query")
        if not hasattr(self, "mean_") and self.weights is not None:
            self._set(self._given_start(self._known_n_bits(shown)))
        return self

    def _fit_labels(self, evidence: LabelEvidence) -> Report:
        random = self._random()

        def samples(some: LabelEvidence, random: np.random.Generator) -> Samples:
            return label_samples(
                some, self.n_quadruplets, SAMPLINGS, random, lambda: np.sort(some_rows(len(some.codes), random))
            )

        choose = partial(
            gate.choose_by_labels,
            evidence,
            lambda some, random: partial(samples(some, random).challengers, self._try),
            random=random,
            scoring=self.scoring,
            validation=self.validation,
            cross_validate=True,
        )
        return self._fit_samples(samples(evidence, random), choose)

    def _fit_constraints(self, evidence: ConstraintEvidence) -> Report:
        def learn(some: ConstraintEvidence, _: np.random.Generator) -> gate.Challengers:
            return partial(constraint_samples(some).challengers, self._try)

        choose = partial(gate.choose_by_constraints, evidence, learn, random=self._random(), scoring=self.scoring)
        return self._fit_samples(constraint_samples(evidence), choose)

    def _fit_samples(self, samples: Samples, choose: Callable[[], Report]) -> Report:
        """Choose on held-out data, then continue from all constraints, blended with uniform weights."""
        report = choose()
        try:
            state = self._stream(samples.chosen(report.params)[1])
        except TooLittleEvidenceError:
            ones = np.ones(samples.n_bits)
            state = self._given_start(samples.n_bits) if self.weights is not None else _State(ones, ones, 0)
        weights = gate.blend_at_scale(state.mean, report.blend, float(state.mean.mean()))
        self._set(_State(weights, weights, state.n_updates))
        return report

    def _try(self, drawn: ConstraintEvidence, wanted: list[Params] | None) -> Iterator[tuple[Params, Weights]]:
        yield {}, self._stream(drawn).mean.astype(np.float32)

    def _start(self, n_bits: int, constraints: Constraints) -> _State:
        """Start from `weights`, or from uniform ones at the scale that fits the first constraints best."""
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

    def _stream(self, evidence: ConstraintEvidence) -> _State:
        """Update with all constraints, one small batch after the other, from the start."""
        state = self._start(evidence.n_bits, constraints_of(evidence))
        for first in progress(range(0, len(evidence.rows), _BATCH), label="stream of updates"):
            state = self._update(state, constraints_of(evidence, slice(first, first + _BATCH)))
        return state

    def _state(self) -> _State:
        return _State(self.last_, self.mean_, self.n_updates_)

    def _set(self, state: _State) -> None:
        self.last_, self.mean_, self.n_updates_ = state
        self.weights_, self.n_bits_ = state.mean.astype(np.float32), len(state.mean)
        self.blend_ = getattr(self, "blend_", 1.0)
        self.report_ = getattr(self, "report_", None) or Report()

    def _n_bits(self) -> int | None:
        return self.n_bits if self.weights is None or self.n_bits is not None else check_weights(self.weights).shape[-1]

    def _known_n_bits(self, codes: Codes) -> int:
        if hasattr(self, "mean_"):
            return self.n_bits_
        n_bits = self._n_bits()
        return 8 * int(codes.shape[1]) if n_bits is None else n_bits
