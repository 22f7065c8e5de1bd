"""`RankingSVM`: learn one weight per bit offline, from labels, judged pairs or constraints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_count, check_weights
from bitrank.core.progress import progress
from bitrank.core.types import Weights
from bitrank.ranking.evidence.kinds import ConstraintEvidence, LabelEvidence, PairEvidence, TooLittleEvidenceError
from bitrank.ranking.evidence.sampling import (
    SAMPLINGS,
    Params,
    Samples,
    constraint_samples,
    label_samples,
    pair_samples,
)
from bitrank.ranking.gate import choose as gate
from bitrank.ranking.gate.folds import Validation, some_rows
from bitrank.ranking.gate.report import Report
from bitrank.ranking.ranker import Ranker
from bitrank.ranking.solvers.objective import Constraints, Objective, best_scale
from bitrank.ranking.solvers.solvers import SOLVERS, Solution

# C="auto" tries these constants: the sum of C over all order constraints, and the share of it for ties.
_TOTALS = (2.0, 200.0)
_TIE_SHARES = (0.0, 1.0)
_TOLERANCE = 1e-5  # gap of challengers, which are only compared; the winner is solved to the solver's own


@dataclass(eq=False, repr=False, kw_only=True)
class RankingSVM(Ranker):
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
    scoring : {"guarded", "rare", "map", "p10", "ndcg", "mrr", "bedroc", "recall@N"}, default="guarded"
        What C="auto" maximises: MAP among those that do not lower precision at 10; the same for queries of classes with
        fewer than half of the items of the mean class; MAP alone; precision, nDCG or MRR at 10; BEDROC (α = 20); or the
        share of what is relevant before the N-th false match. From pairs and constraints "guarded", the usual nDCG at
        10, "ndcg", "mrr" or "recall@N".
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
    report_ : Report
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

    weights_: Weights = field(init=False)

    C: Any = "auto"
    prior: Any = "uniform"
    solver: str = "exact"
    n_quadruplets: int = 50_000
    strategy: str = "auto"
    scoring: str = "guarded"
    validation: Validation = "rows"
    random_state: Any = None

    @classmethod
    def from_weights(cls, weights: npt.ArrayLike) -> Self:
        """Wrap one weight per bit, learned anywhere, as a ranker.

        Examples
        --------
        >>> RankingSVM.from_weights([2.0, 1.0]).queries_for(np.uint8([[64]])).weights
        array([[2., 1.]], dtype=float32)
        """
        vector = check_weights(weights)
        if vector.ndim != 1 or len(vector) == 0:
            raise ValueError(f"weights must be one vector, got shape {vector.shape}")
        ranker = cls(n_bits=len(vector))
        ranker.weights_, ranker.n_bits_, ranker.params_ = vector, len(vector), {}
        ranker.blend_, ranker.report_, ranker.solution_ = 1.0, Report(), None
        return ranker

    def _fit_labels(self, evidence: LabelEvidence) -> Report | None:
        check_count("n_quadruplets", self.n_quadruplets, 1)
        samplings = [way for way in SAMPLINGS if self.strategy in ("auto", way["strategy"])]
        if not samplings:
            raise ValueError(f'strategy must be "auto", "uniform" or "near", got {self.strategy!r}')
        if not self._is_auto():
            samplings = samplings[-1:] if self.strategy == "auto" else samplings[:1]
        random = self._random()
        everything = np.sort(some_rows(len(evidence.codes), random))
        samples = label_samples(evidence, self.n_quadruplets, samplings, random, lambda: everything)

        def learn(some: LabelEvidence, random: np.random.Generator) -> gate.Challengers:
            drawn = label_samples(some, self.n_quadruplets, samplings, random, lambda: everything)
            return partial(drawn.challengers, partial(self._try, self.n_quadruplets))

        choose = partial(
            gate.choose_by_labels,
            evidence,
            learn,
            random=random,
            scoring=self.scoring,
            validation=self.validation,
            cross_validate=True,
            blends=gate.COARSE_BLENDS,
            race=True,
        )
        return self._fit_samples(samples, choose)

    def _fit_pairs(self, evidence: PairEvidence) -> Report | None:
        check_count("n_quadruplets", self.n_quadruplets, 1)
        random = self._random()

        def learn(some: PairEvidence, random: np.random.Generator) -> gate.Challengers:
            return partial(pair_samples(some, self.n_quadruplets, random).challengers, partial(self._try, None))

        samples = pair_samples(evidence, self.n_quadruplets, random)
        return self._fit_samples(
            samples, partial(gate.choose_by_pairs, evidence, learn, random=random, scoring=self.scoring)
        )

    def _fit_constraints(self, evidence: ConstraintEvidence) -> Report | None:
        n = len(evidence.rows)

        def learn(some: ConstraintEvidence, _: np.random.Generator) -> gate.Challengers:
            return partial(constraint_samples(some).challengers, partial(self._try, n))

        choose = partial(gate.choose_by_constraints, evidence, learn, random=self._random(), scoring=self.scoring)
        return self._fit_samples(constraint_samples(evidence), choose)

    def _fit_samples(self, samples: Samples, choose: Callable[[], Report]) -> Report | None:
        """Choose on held-out data unless C says it all, then learn from all."""
        report = choose() if self._is_auto() else None
        params = constants(self.C) if report is None else report.params
        try:
            sampling, drawn = samples.chosen(params)
        except TooLittleEvidenceError:
            if report is None:
                raise
            self.weights_, self.solution_, self.params_ = np.ones(samples.n_bits, np.float32), None, {}
            return report
        constraints = constraints_of(drawn)
        solution, weights = None, np.ones(constraints.n_bits)
        if params:
            solution = self._solve(constraints, params["C_order"], params["C_tie"])
            weights = solution.weights
        if report is not None:
            # A ranking knows no scale, but an online learner that continues from these weights does.
            scale = best_scale(constraints, 1.0, 1.0, gate.blend(weights, report.blend))
            weights = gate.blend_at_scale(weights, report.blend, scale)
        self.weights_, self.solution_ = weights.astype(np.float32), solution
        self.params_ = {**sampling, **params} if params else {}
        return report

    def _is_auto(self) -> bool:
        return isinstance(self.C, str) and self.C == "auto"

    def _try(
        self, n: int | None, drawn: ConstraintEvidence, wanted: list[Params] | None
    ) -> Iterator[tuple[Params, Weights]]:
        """Weights for several constants, or for those that are wanted, each solved from the weights before.

        Constants are divided by n constraints, those drawn by default.
        """
        start, constraints = None, constraints_of(drawn)
        constraints.precise = False
        n = len(drawn.rows) if n is None else n
        every = [{"C_order": total / n, "C_tie": share * total / n} for total in _TOTALS for share in _TIE_SHARES]
        tried = [params for params in every if wanted is None or params in wanted]
        for params in progress(tried, label="weights per bit, to choose the constants"):
            start = self._solve(constraints, **params, start=start, tol=_TOLERANCE).weights
            yield params, start.astype(np.float32)

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

    def _loaded(self) -> None:
        self.solution_ = None


def constraints_of(evidence: ConstraintEvidence, rows: slice = slice(None)) -> Constraints:
    """Constraints for a solver, all or some of them."""
    queries = evidence.queries
    return Constraints(queries.codes, evidence.codes, evidence.rows[rows], evidence.n_bits, queries.magnitudes)


def constants(C: Any) -> dict[str, float]:
    """C_order and C_tie from one number or two."""
    try:
        pair = np.atleast_1d(np.asarray(C, dtype=np.float64))
    except (TypeError, ValueError):
        pair = np.array([np.nan])
    if pair.shape not in ((1,), (2,)) or not np.isfinite(pair).all() or (pair < 0).any():
        raise ValueError(f'C must be one or two numbers, finite and not negative (or "auto", offline), got {C!r}')
    return {"C_order": float(pair[0]), "C_tie": float(pair[-1])}
