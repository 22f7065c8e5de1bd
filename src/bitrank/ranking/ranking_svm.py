"""`RankingSVM`: learn one weight per bit offline, from labels or constraints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from bitrank.core.checks import check_count, check_weights
from bitrank.core.progress import progress
from bitrank.core.types import Queries, Rows, Weights
from bitrank.ranking.evidence.kinds import ConstraintEvidence, LabelEvidence, Matrix, PairEvidence, QueryRows
from bitrank.ranking.evidence.sampling import NEGATIVES, SAMPLINGS, constraints_of, draw_constraints, draw_triplets
from bitrank.ranking.gate import choose as gate
from bitrank.ranking.gate.gated import GatedRanker
from bitrank.ranking.gate.held_out import some_rows
from bitrank.ranking.gate.near import Factor
from bitrank.ranking.ranker import scaled
from bitrank.ranking.solvers.objective import Constraints, Objective, best_scale
from bitrank.ranking.solvers.solvers import SOLVERS, Solution

# C="auto" tries these constants: the sum of C over all order constraints, and the share of it for ties.
_TOTALS = (2.0, 200.0)
_TIE_SHARES = (0.0, 1.0)
_CANDIDATE_TOLERANCE = 1e-5  # gap of candidates, which are only compared; the winner is solved to the solver's own


@dataclass(eq=False, repr=False, kw_only=True)
class RankingSVM(GatedRanker):
    """Learn one weight per bit from labels or constraints: the ranking SVM with order and tie constraints.

    Parameters
    ----------
    n_bits : int, optional
        Length of the codes; by default all bits of their bytes.
    C : "auto", float or (float, float), default="auto"
        Weight of the order and of the tie constraints against the prior (one number stands for both). "auto" picks
        both on held-out data, with the sampling of quadruplets and a blend with uniform weights; uniform weights remain
        where nothing beats them. A number is used as it is: nothing is held out, and there is no fallback.
    prior : "uniform", "zero" or array of shape (n_bits,), default="uniform"
        The value that weights shrink towards: the best uniform weights, zero (the paper), or an array.
    solver : {"exact", "pgd", "egd"}, default="exact"
    n_quadruplets : int, default=50000
        Quadruplets that `fit` draws, or triplets that `fit_pairs` draws.
    strategy : {"auto", "uniform", "near"}, default="auto"
        How `fit` draws them, see `draw_quadruplets`. "auto" tries "near" in several
        widths and "uniform" where C is "auto", and is "uniform" where C is given.
    scoring : {"guarded", "map", "p10"}, default="guarded"
        What C="auto" maximises: MAP among those that do not lower precision at 10, MAP alone, or precision at 10.
    validation : {"rows", "classes"}, default="rows"
        What C="auto" holds out: rows of every class, or whole classes (where future classes will be new).
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    weights_ : float32 array of shape (n_bits,)
    params_ : dict
        The chosen strategy, n_neighbors, C_order and C_tie; empty where uniform weights were kept.
    blend_ : float
        Share of the learned weights, the rest being uniform ones.
    report_ : list of dict
        What was tried, with its held-out figures; the first line is uniform weights. Empty where C was given.
    solution_ : bitrank.ranking.solvers.solvers.Solution
        Objective, optimality gap and iterations. None where uniform weights were kept, and after loading.
    n_bits_ : int

    References
    ----------
    J. Feng, W. Liu, Y. Wang: Learning to rank binary codes.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=400)
    >>> bits = np.column_stack([y, rng.integers(2, size=(400, 7))])  # one bit is the class, the others are noise
    >>> ranker = RankingSVM(n_quadruplets=1000, random_state=0).fit(pack(bits), y)
    >>> int(np.argmax(ranker.weights_))
    0
    """

    learns_from = frozenset({"labels", "pairs", "constraints"})
    _arrays: ClassVar[dict[str, str]] = {"weights_": "b"}
    _facts = ("params_",)
    _gate: ClassVar[dict[str, Any]] = {"cross_validate": True, "race": True, "blends": gate.COARSE_BLENDS}

    weights_: Weights = field(init=False)

    C: Any = "auto"
    prior: Any = "uniform"
    solver: str = "exact"
    n_quadruplets: int = 50_000
    strategy: str = "auto"

    def _label_learner(self, evidence: LabelEvidence, random: np.random.Generator) -> gate.Learner:
        check_count("n_quadruplets", self.n_quadruplets, 1)
        samplings = [way for way in SAMPLINGS if self.strategy in ("auto", way["strategy"])]
        if not samplings:
            raise ValueError(f'strategy must be "auto", "uniform" or "near", got {self.strategy!r}')
        if self.C != "auto":
            samplings = samplings[-1:] if self.strategy == "auto" else samplings[:1]
        return _LabelLearner(self, evidence, samplings, random)

    def _pair_learner(self, evidence: PairEvidence, random: np.random.Generator) -> gate.Learner:
        check_count("n_quadruplets", self.n_quadruplets, 1)
        return _PairLearner(self, evidence, random)

    def _constraint_learner(self, evidence: ConstraintEvidence) -> gate.Learner:
        return _ConstraintLearner(self, evidence)

    def _fixed_choice(self) -> dict[str, Any] | None:
        return None if isinstance(self.C, str) and self.C == "auto" else constants(self.C)

    def _queries_for(self, queries: QueryRows, features: Matrix | None, collection: Any) -> Queries:
        return scaled(queries, self.weights_)

    def _solve(self, constraints: Constraints, C_order: float, C_tie: float, **options: Any) -> Solution:
        """Minimise the objective for these constants; further options go to the solver."""
        if self.solver not in SOLVERS:
            raise ValueError(f"solver must be one of {tuple(SOLVERS)}, got {self.solver!r}")
        named = isinstance(self.prior, str)
        if named and self.prior == "uniform":
            prior = np.full(constraints.n_bits, best_scale(constraints, C_order, C_tie))
        elif named and self.prior == "zero":
            prior = np.zeros(constraints.n_bits)
        elif named:
            raise ValueError(f'prior must be "uniform", "zero" or an array, got {self.prior!r}')
        else:
            prior = check_weights(self.prior, constraints.n_bits).astype(np.float64)
            if prior.ndim != 1:
                raise ValueError(f"prior must be one vector, got shape {prior.shape}")
        return SOLVERS[self.solver](Objective(constraints, C_order, C_tie, prior), **options)

    def _candidates(
        self, constraints: Constraints, tried: list[dict[str, float]]
    ) -> Iterator[tuple[dict[str, Any], Factor]]:
        """Weights for several constants, each solved from the weights before."""
        start, constraints.precise = None, False
        for some in progress(tried, label="weights per bit, to choose the constants"):
            start = self._solve(constraints, **some, start=start, tol=_CANDIDATE_TOLERANCE).weights
            yield some, start.astype(np.float32)

    def _learn(
        self, constraints: Constraints, choice: gate.Choice, sampling: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Solve with all constraints for the chosen parameters (None: uniform weights)."""
        solution, weights = None, np.ones(constraints.n_bits)
        if choice.params is not None:
            solution = self._solve(constraints, choice.params["C_order"], choice.params["C_tie"])
            weights = solution.weights
        if choice.report:
            # A ranking knows no scale, but an online learner that continues from these weights does.
            scale = best_scale(constraints, 1.0, 1.0, gate.blend(weights, choice.blend))
            weights = gate.blend_at_scale(weights, choice.blend, scale)
        params = {} if choice.params is None else {**(sampling or {}), **choice.params}
        return {"weights_": weights.astype(np.float32), "solution_": solution, "params_": params}

    def _loaded(self) -> None:
        self.solution_ = None


class _LabelLearner:
    """Quadruplets drawn from labels by several samplings, and weights for several constants."""

    def __init__(
        self,
        ranker: RankingSVM,
        evidence: LabelEvidence,
        samplings: list[dict[str, Any]],
        random: np.random.Generator,
    ) -> None:
        self.ranker, self.evidence, self.samplings, self.random = ranker, evidence, samplings, random
        self.everything = np.sort(some_rows(len(evidence.codes), random))

    def candidates(
        self, rows: Rows, wanted: list[dict[str, Any]] | None = None
    ) -> Iterator[tuple[dict[str, Any], Factor]]:
        samplings = [sampling for sampling in self.samplings if self._tried(sampling, wanted)]
        try:
            for sampling, constraints in self._draw(rows, samplings):
                for some, weights in self.ranker._candidates(constraints, self._tried(sampling, wanted)):
                    yield {**sampling, **some}, weights
        except ValueError:
            if wanted is None:
                raise  # later, a sampling with nothing to draw just drops out of the race

    def _tried(self, sampling: dict[str, Any], wanted: list[dict[str, Any]] | None) -> list[dict[str, float]]:
        """Constants to try with a sampling."""
        tried = _constants_to_try(self.ranker.n_quadruplets)
        return [some for some in tried if wanted is None or {**sampling, **some} in wanted]

    def learn(self, choice: gate.Choice) -> dict[str, Any]:
        last, params = self.samplings[-1], choice.params or {}
        sampling = {name: params.get(name, last[name]) for name in last}
        _, constraints = next(self._draw(self.everything, [sampling]))
        return self.ranker._learn(constraints, choice, sampling)

    def _draw(self, rows: Rows, samplings: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], Constraints]]:
        n, evidence = self.ranker.n_quadruplets, self.evidence
        return draw_constraints(evidence, rows, n, samplings, self.random)


class _PairLearner:
    """Triplets drawn from judged pairs, and weights for several constants."""

    def __init__(self, ranker: RankingSVM, evidence: PairEvidence, random: np.random.Generator) -> None:
        self.ranker, self.evidence, self.random = ranker, evidence, random

    def candidates(self, rows: Rows) -> Iterator[tuple[dict[str, Any], Factor]]:
        for negatives in NEGATIVES:
            constraints = self._draw(self.evidence.pairs[rows], negatives)
            for some, weights in self.ranker._candidates(constraints, _constants_to_try(constraints.n_rows)):
                yield {"negatives": negatives, **some}, weights

    def learn(self, choice: gate.Choice) -> dict[str, Any]:
        params = choice.params or {}
        negatives = params.get("negatives", NEGATIVES[0])
        return self.ranker._learn(self._draw(self.evidence.pairs, negatives), choice, {"negatives": negatives})

    def _draw(self, pairs: Rows, negatives: str) -> Constraints:
        return draw_triplets(self.evidence, pairs, self.ranker.n_quadruplets, negatives, self.random)


class _ConstraintLearner:
    """Constraints as they came, and weights for several constants."""

    def __init__(self, ranker: RankingSVM, evidence: ConstraintEvidence) -> None:
        self.ranker, self.evidence = ranker, evidence

    def candidates(self, rows: Rows) -> Iterator[tuple[dict[str, Any], Factor]]:
        tried = _constants_to_try(len(self.evidence.rows))
        return self.ranker._candidates(constraints_of(self.evidence, rows), tried)

    def learn(self, choice: gate.Choice) -> dict[str, Any]:
        return self.ranker._learn(constraints_of(self.evidence), choice)


def constants(C: Any) -> dict[str, float]:
    """C_order and C_tie from one number or two."""
    try:
        pair = np.atleast_1d(np.asarray(C, dtype=np.float64))
    except (TypeError, ValueError):
        pair = np.array([np.nan])
    if pair.shape not in ((1,), (2,)) or not np.isfinite(pair).all() or (pair < 0).any():
        raise ValueError(f'C must be one or two numbers, finite and not negative (or "auto", offline), got {C!r}')
    return {"C_order": float(pair[0]), "C_tie": float(pair[-1])}


def _constants_to_try(n: int) -> list[dict[str, float]]:
    return [{"C_order": total / n, "C_tie": share * total / n} for total in _TOTALS for share in _TIE_SHARES]
