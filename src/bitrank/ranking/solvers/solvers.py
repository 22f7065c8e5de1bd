"""Three ways to the minimum of the ranking objective: `exact`, `pgd` and `egd`, with one signature."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dposv

from bitrank.ranking.solvers.objective import Array, Objective, best_scale, duality_gap


class Solution(NamedTuple):
    """What a solver returns: the gap is an upper bound on objective − minimum, from equation (5).

    Examples
    --------
    >>> Solution(np.ones(2), objective=0.5, gap=0.0, n_iter=1).weights
    array([1., 1.])
    """

    weights: Array
    objective: float
    gap: float
    n_iter: int


def exact(objective: Objective, start: Array | None = None, *, tol: float = 1e-8, max_iter: int = 200) -> Solution:
    """Newton's method on the pieces of (3): each step solves one K×K quadratic programme under w ≥ 0.

    It ends when the gap is at most `tol` times the objective, usually after four to eight steps.

    Examples
    --------
    >>> from bitrank.ranking.solvers.objective import Constraints
    >>> codes = np.packbits([[1, 1], [0, 1], [1, 0]], axis=1)
    >>> constraints = Constraints(codes, codes, np.array([[0, 1, 2]]), n_bits=2)
    >>> exact(Objective(constraints, 1.0, 0.0, prior=np.ones(2))).weights.round(3)
    array([1.4, 0.6])
    """
    weights = _feasible(objective, start)
    margins = objective.constraints.margins(weights)
    value = objective.value(weights, margins)
    tie_hessian = np.eye(len(weights)) + 2 * objective.c_tie * objective.tie_gram
    for n_iter in range(max_iter + 1):
        gram, total = objective.constraints.active_gram(margins < 1.0)
        # The piece of J with these margins is ½ vᵀHv − bᵀv + const.
        hessian, linear = tie_hessian + 2 * objective.c_order * gram, objective.prior + 2 * objective.c_order * total
        gradient = hessian @ weights - linear
        gap = duality_gap(weights, gradient)
        if gap <= tol * value or n_iter == max_iter:
            break
        # The first piece is left at once: what two solves find there is near enough.
        step = _non_negative_minimum(hessian, linear, weights, enough=2 if n_iter == 0 else None) - weights
        margin_step = objective.constraints.margins(weights + step) - margins
        slope = gradient @ step
        # A full step where it helps; otherwise shorter ones, for which the margins are known.
        length = 1.0
        while (new := objective.value(weights + length * step, margins + length * margin_step)) > (
            value + 1e-4 * length * slope
        ) and length > 1e-10:
            length *= 0.5
        if new >= value:
            break  # as far as floating point goes
        weights, margins, value = weights + length * step, margins + length * margin_step, new
    return Solution(weights, value, gap, n_iter)


def _non_negative_minimum(hessian: Array, linear: Array, start: Array, enough: int | None = None) -> Array:
    """Minimum of ½ vᵀHv − bᵀv under v ≥ 0, from a feasible start whose support is the first guess.

    After `enough` solves a point below the start will do.

    All wrong signs are exchanged at once, which mostly ends after a few solves (block principal pivoting). Where their
    number stops falling it may not end, and one at a time is exchanged along points that only descend (Lawson and
    Hanson, 1974).
    """

    def value(point: Array) -> float:
        return float(point @ (0.5 * (hessian @ point) - linear))

    tolerance = 1e-12 * (np.abs(linear) + 1.0)
    support = start > 0
    fewest, patience, n_solves = len(start) + 1, 3, 0
    while patience >= 0:
        solution = _minimum_on(support, hessian, linear)
        wrong = np.where(support, solution < 0, hessian @ solution - linear < -tolerance)
        n_wrong = int(wrong.sum())
        if n_wrong == 0:
            return solution
        n_solves += 1
        if n_solves == enough and value(near := np.maximum(solution, 0.0)) < value(start):
            return near
        patience = 3 if n_wrong < fewest else patience - 1
        fewest = min(fewest, n_wrong)
        support ^= wrong
    point, support = start.copy(), start > 0
    for _ in range(3 * len(start)):  # whatever rounding does, there is an end, and no point worse than the start
        solution = _minimum_on(support, hessian, linear)
        below = np.flatnonzero(support & (solution < 0))
        if len(below) > 0:
            lengths = point[below] / (point[below] - solution[below])
            point += lengths.min() * (solution - point)
            out = below[lengths == lengths.min()]
            point[out], support[out] = 0.0, False
            continue
        point = solution
        excess = np.where(support, 0.0, hessian @ point - linear + tolerance)
        if excess.min() >= 0:
            break
        support[np.argmin(excess)] = True
    return np.maximum(point, 0.0)


def _minimum_on(support: npt.NDArray[np.bool_], hessian: Array, linear: Array) -> Array:
    """Minimum of ½ vᵀHv − bᵀv with v zero off the support."""
    solution = np.zeros_like(linear)
    chosen = np.flatnonzero(support)
    if len(chosen) > 0:
        inner, right = hessian.take(chosen, axis=0).take(chosen, axis=1), linear.take(chosen)
        # The Hessian is at least the identity, so that Cholesky's method applies, but for rounding. Its transpose is
        # itself, in the order of memory that LAPACK takes without a copy; the lower half is the faster one.
        _, found, failed = dposv(inner.T, right, lower=1, overwrite_a=True)
        solution[chosen] = np.linalg.solve(hessian[np.ix_(chosen, chosen)], right) if failed else found
    return solution


def pgd(objective: Objective, start: Array | None = None, *, tol: float = 1e-6, max_iter: int = 20_000) -> Solution:
    """Projected gradient, w ← max(0, w − η∇J), with spectral step lengths and a non-monotone line search.

    Examples
    --------
    >>> from bitrank.ranking.solvers.objective import Constraints
    >>> codes = np.packbits([[1, 1], [0, 1], [1, 0]], axis=1)
    >>> constraints = Constraints(codes, codes, np.array([[0, 1, 2]]), n_bits=2)
    >>> pgd(Objective(constraints, 1.0, 0.0, prior=np.ones(2))).weights.round(3)
    array([1.4, 0.6])
    """

    def move(weights: Array, gradient: Array, step: float, length: float) -> Array:
        return weights + length * (np.maximum(weights - step * gradient, 0.0) - weights)

    return _descend(objective, _feasible(objective, start), 1.0, move, np.positive, tol, max_iter)


def egd(objective: Objective, start: Array | None = None, *, tol: float = 1e-6, max_iter: int = 20_000) -> Solution:
    """Exponentiated gradient, w ← w·exp(−η∇J): the paper's solver, its η found anew at every step.

    Examples
    --------
    >>> from bitrank.ranking.solvers.objective import Constraints
    >>> codes = np.packbits([[1, 1], [0, 1], [1, 0]], axis=1)
    >>> constraints = Constraints(codes, codes, np.array([[0, 1, 2]]), n_bits=2)
    >>> egd(Objective(constraints, 1.0, 0.0, prior=np.ones(2))).weights.round(3)
    array([1.4, 0.6])
    """

    def move(weights: Array, gradient: Array, step: float, length: float) -> Array:
        return weights * np.exp(np.clip(-step * length * gradient, -2.0, 2.0))

    return _descend(objective, np.maximum(_feasible(objective, start), 1e-6), 0.1, move, np.log, tol, max_iter)


def _descend(
    objective: Objective,
    weights: Array,
    first: float,
    move: Callable[[Array, Array, float, float], Array],
    measure: Callable[[Array], Array],
    tol: float,
    max_iter: int,
) -> Solution:
    """Descend with spectral steps and a non-monotone line search.

    `move` goes from weights against a gradient, by a step and a share of it; `measure` gives the coordinates of the
    geometry that curvature is measured in: w, or log w for the entropy's. The first step is `first` over the largest
    slope.
    """
    value, gradient = objective.value_and_gradient(weights)
    step = first / max(float(np.abs(gradient).max()), 1e-12)
    recent = [value]
    for n_iter in range(max_iter + 1):
        gap = duality_gap(weights, gradient)
        if gap <= tol * value or n_iter == max_iter:
            break
        length = 1.0
        while True:
            new = move(weights, gradient, step, length)
            new_value, new_gradient = objective.value_and_gradient(new)
            if new_value <= max(recent) + 1e-4 * float(gradient @ (new - weights)) or length < 1e-12:
                break
            length *= 0.5
        moved, curvature = new - weights, float((new - weights) @ (new_gradient - gradient))
        if curvature > 0:
            step = float(moved @ (measure(new) - measure(weights))) / curvature
        weights, value, gradient = new, new_value, new_gradient
        recent = [*recent[-9:], value]
    return Solution(weights, value, gap, n_iter)


SOLVERS: dict[str, Callable[..., Solution]] = {"exact": exact, "pgd": pgd, "egd": egd}


def _feasible(objective: Objective, start: Array | None) -> Array:
    if start is not None:
        return np.maximum(np.asarray(start, np.float64), 0.0)
    if objective.prior.any():
        return objective.prior.copy()
    scale = best_scale(objective.constraints, objective.c_order, objective.c_tie)
    return np.full(len(objective.prior), scale)
