"""Offline learning: `RankingSVM` turns labelled codes, or quadruplets of them, into one weight a bit.

It draws quadruplets, solves the ranking objective for them, and lets the gate choose the constants on held-out data;
its weights go to a search, or start an online learner.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bitrank.checks import check_codes, check_labels, check_magnitudes, check_n_bits, check_weights, weights_for_queries
from bitrank.ranking import gate, held_out
from bitrank.ranking.constraints import check_quadruplets
from bitrank.ranking.objective import Constraints, Objective, best_scale
from bitrank.ranking.quadruplets import WAYS, draw_ways
from bitrank.ranking.solvers import SOLVERS, Solution
from bitrank.vocabulary import Codes, Rows, Weights

# C="auto" tries these constants: the sum of C over all order constraints, and the share of it that ties get.
_TOTALS = (2.0, 200.0)
_TIE_SHARES = (0.0, 1.0)


class RankingSVM(BaseEstimator):
    """Learn a weight per bit from labels or quadruplets: the ranking SVM with order and tie constraints.

    Parameters
    ----------
    n_bits : int, optional
        Length of the codes; by default all bits of their bytes.
    C : "auto", float or (float, float), default="auto"
        Weight of the order and of the tie constraints against the prior (one number stands for both). "auto" picks
        both, the way quadruplets are drawn and a blend with uniform weights on held-out data; uniform weights remain
        where nothing beats them there. A number is taken as it is: nothing held out, no fall-back.
    prior : "uniform", "zero" or array of shape (n_bits,), default="uniform"
        Where weights stay that nothing speaks about: the best uniform ones, zero (the paper), or those given.
    solver : {"exact", "pgd", "egd"}, default="exact"
    n_quadruplets : int, default=50000
        Quadruplets that `fit` draws.
    strategy : {"auto", "uniform", "near"}, default="auto"
        How `fit` draws them, see `bitrank.ranking.quadruplets.draw_quadruplets`. "auto" tries "near" in several
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
        What was used: strategy, n_neighbors, C_order, C_tie and blend (0: uniform weights).
    report_ : list of dict
        What was tried, with its held-out figures; the first line is uniform weights. Empty where C was given.
    solution_ : bitrank.ranking.solvers.Solution
        Objective, optimality gap and iterations. None where uniform weights were kept.
    n_bits_ : int

    References
    ----------
    J. Feng, W. Liu, Y. Wang: Learning to rank binary codes.

    Examples
    --------
    >>> from bitrank.codes import pack
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=400)
    >>> bits = np.column_stack([y, rng.integers(2, size=(400, 7))])  # one bit is the class, the others are noise
    >>> ranker = RankingSVM(n_quadruplets=1000, random_state=0).fit(pack(bits), y)
    >>> int(np.argmax(ranker.weights_))
    0
    """

    def __init__(
        self,
        n_bits: int | None = None,
        *,
        C: Any = "auto",
        prior: Any = "uniform",
        solver: str = "exact",
        n_quadruplets: int = 50_000,
        strategy: str = "auto",
        scoring: gate.Scoring = "guarded",
        validation: held_out.Validation = "rows",
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.C = C
        self.prior = prior
        self.solver = solver
        self.n_quadruplets = n_quadruplets
        self.strategy = strategy
        self.scoring = scoring
        self.validation = validation
        self.random_state = random_state

    def fit(self, codes: Codes, y: npt.ArrayLike, magnitudes: npt.ArrayLike | None = None) -> RankingSVM:
        """Learn from class labels.

        Parameters
        ----------
        codes : packed codes, shape (n, ceil(n_bits / 8))
        y : array-like of shape (n,)
        magnitudes : array of shape (n, n_bits), optional
            |project(X)| of the rows: learn on top of the magnitudes of float queries.
        """
        codes, n_bits = check_n_bits(codes, self.n_bits)
        labels = check_labels(y, len(codes))
        values = None if magnitudes is None else check_magnitudes(magnitudes, len(codes), n_bits)
        random = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        ways = [way for way in WAYS if self.strategy in ("auto", way["strategy"])]
        if not ways:
            raise ValueError(f'strategy must be "auto", "uniform" or "near", got {self.strategy!r}')

        def draw(rows: Rows, ways: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], Constraints]]:
            part, part_values = codes[rows], None if values is None else values[rows]
            for way, drawn in draw_ways(labels[rows], self.n_quadruplets, codes=part, ways=ways, random=random):
                yield way, Constraints(part, part, drawn, n_bits, part_values)

        def learn(rows: Rows) -> Iterator[tuple[dict[str, Any], Weights]]:
            for way, constraints in draw(rows, ways):
                for some in _constants_to_try(self.n_quadruplets):
                    yield {**way, **some}, self._solve(constraints, **some).weights.astype(np.float32)

        everything = np.sort(held_out.some_rows(len(codes), random))
        if self.C != "auto":
            way, constraints = next(draw(everything, ways[-1:] if self.strategy == "auto" else ways[:1]))
            return self._learn(constraints, {**way, **constants(self.C)})
        choice = gate.choose(
            codes,
            labels,
            learn,
            n_bits=n_bits,
            magnitudes=values,
            in_turn=True,
            blends=gate.COARSE_BLENDS,
            scoring=self.scoring,
            validation=self.validation,
            random=random,
        )
        chosen = {name: (choice.params or ways[-1])[name] for name in ways[-1]}
        return self._learn(next(draw(everything, [chosen]))[1], choice.params, choice)

    def fit_quadruplets(
        self,
        codes: Codes,
        quadruplets: npt.ArrayLike,
        queries: Codes | None = None,
        magnitudes: npt.ArrayLike | None = None,
    ) -> RankingSVM:
        """Learn from quadruplets or triplets of row numbers.

        With C="auto", one query in three is held out with their quadruplets, and the constants and the blend are
        chosen by the share of held-out order constraints that hold (a tie holds by half).

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
        codes, n_bits = check_n_bits(codes, self.n_bits)
        queries = codes if queries is None else check_codes(queries, n_bits, name="queries")
        rows = check_quadruplets(quadruplets, len(codes), len(queries))
        values = None if magnitudes is None else check_magnitudes(magnitudes, len(queries), n_bits)
        if self.C != "auto":
            return self._learn(Constraints(queries, codes, rows, n_bits, values), constants(self.C))
        random = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        held_out = gate.hold_out_queries(rows[:, 0], random)
        learn = Constraints(queries, codes, rows[~held_out], n_bits, values)
        candidates = ((some, self._solve(learn, **some).weights) for some in _constants_to_try(len(rows)))
        judge = Constraints(queries, codes, rows[held_out], n_bits, values)
        choice = gate.choose_by_order(judge.margins, candidates, n_bits)
        return self._learn(Constraints(queries, codes, rows, n_bits, values), choice.params, choice)

    def weights_for(self, query_codes: Codes, magnitudes: npt.ArrayLike | None = None) -> Weights:
        """Weights for every query, ready for a search: the learned ones, times the magnitudes where given.

        Returns
        -------
        float32 array of shape (n_queries, n_bits)
        """
        check_is_fitted(self)
        return weights_for_queries(self.weights_, query_codes, magnitudes, self.n_bits_)

    def _solve(self, constraints: Constraints, C_order: float, C_tie: float) -> Solution:
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
        return SOLVERS[self.solver](Objective(constraints, C_order, C_tie, prior))

    def _learn(
        self, constraints: Constraints, params: dict[str, Any] | None, choice: gate.Choice | None = None
    ) -> RankingSVM:
        """Solve with all constraints and the parameters that were given or chosen (None: uniform weights)."""
        solution, weights = None, np.ones(constraints.n_bits)
        if params is not None:
            solution = self._solve(constraints, params["C_order"], params["C_tie"])
            weights = solution.weights
        if choice is not None:
            # A ranking knows no scale, but an online learner that goes on from these weights does.
            scale = best_scale(constraints, 1.0, 1.0, gate.blend(weights, choice.blend))
            weights = gate.blend_at_scale(weights, choice.blend, scale)
        self.n_bits_ = constraints.n_bits
        self.weights_: Weights = weights.astype(np.float32)
        self.solution_ = solution
        self.params_ = {**(params or {}), "blend": 1.0 if choice is None else choice.blend}
        self.report_ = [] if choice is None else choice.report
        return self


def constants(C: Any) -> dict[str, float]:
    """C_order and C_tie from one number or two."""
    try:
        pair = np.atleast_1d(np.asarray(C, dtype=np.float64))
    except (TypeError, ValueError):
        pair = np.array([np.nan])
    if pair.shape not in ((1,), (2,)) or not np.isfinite(pair).all() or (pair < 0).any():
        raise ValueError(f'C must be a number or two, finite and not negative (or "auto", offline), got {C!r}')
    return {"C_order": float(pair[0]), "C_tie": float(pair[-1])}


def _constants_to_try(n: int) -> list[dict[str, float]]:
    return [{"C_order": total / n, "C_tie": share * total / n} for total in _TOTALS for share in _TIE_SHARES]
