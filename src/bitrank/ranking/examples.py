"""One query of many examples: a logistic vector over the bits, judged by leaving each example out.

The examples stand against named negatives and a background: rows of the collection, of which nearly all are others. For
costs c, ½|w|² + Σ c·log(1 + exp(−y·w·x)) is least where its gradient g vanishes. Its duality gap is ½|g|², and the best
vector is at most |g| away from w: what `gap` certifies.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from bitrank.core.checks import check_codes
from bitrank.core.codes import sample_rows, split_vectors, unpack
from bitrank.core.types import Queries

Kind = Literal["vector", "hamming", "tanimoto"]
Floats = npt.NDArray[Any]

# An example's cost: codes with few ones, as molecules have, want what separates; dense ones want the examples' mean,
# turned a little. Both chosen on splits that no report shows.
_DENSE_COST, _SPARSE_COST, _SPARSE = 0.5, 200.0, 1 / 8
_FULL_COST_FROM = 5  # fewer examples cost less, each
_TOLERANCE, _ROUGH = 0.01, 0.05  # |g| / |w| of what ranks, and of what is judged
_BIAS = 10.0  # the constant feature, so large that its weight is next to free
_MOST_LEFT_OUT = 10
_CERTAINTY = 0.975  # the nearest example ranks where Student's test is this sure that it is better than the vector
_MOST_STEPS, _MOST_DIRECTIONS, _MOST_HALVINGS = 50, 40, 20


class ExampleQuery(NamedTuple):
    """How to search for what is like some examples, and what leaving each of them out has shown.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> background = rng.integers(0, 256, (200, 8), dtype=np.uint8)
    >>> found = query_from(background[:3] | 1, None, background, 64)
    >>> found.kind, found.queries.codes.shape, found.gap < 0.01
    ('vector', (1, 8), True)
    """

    queries: Queries  # one row for "vector"; else one per example, and an item is as near as its nearest example
    kind: Kind
    gain: float  # of the vector over the nearest example: halvings of the rank of an example left out
    error: float  # of the gain; nan, as the gain, where nothing could be left out
    gap: float  # how far the best vector can be, as a share of this one's length


def query_from(
    positives: npt.ArrayLike,
    negatives: npt.ArrayLike | None,
    background: npt.ArrayLike,
    n_bits: int,
    *,
    judge: bool = True,
) -> ExampleQuery:
    """One query for what is like the positives and unlike the negatives.

    The vector ranks unless the nearest positive, by Hamming or by Tanimoto, surely finds the positives better that are
    left out. Both are asked among half of the background, and the vector learns from the other half.

    Parameters
    ----------
    positives : packed codes of shape (n, ceil(n_bits / 8))
    negatives : packed codes, or None
    background : packed codes
        A sample of what will be searched: 1000 rows are enough. Rows that equal a positive are left out.
    n_bits : int
    judge : bool, default=True
        Leave examples out; else the vector ranks in any case.

    Examples
    --------
    >>> query_from(np.uint8([[7], [5]]), None, np.uint8([[8], [16], [24]]), 8).queries.codes
    array([[7]], dtype=uint8)
    """
    right = check_codes(positives, n_bits, name="positives")
    wrong = None if negatives is None else check_codes(negatives, n_bits, name="negatives")
    others = check_codes(background, n_bits, name="background")
    if not len(right):
        raise ValueError("positives must hold at least one example, got none")
    known = {row.tobytes() for row in right}
    others = others[[row.tobytes() not in known for row in others]]
    wrong = right[:0] if wrong is None else wrong
    if not len(others) + len(wrong):
        raise ValueError("background must hold a row that is no positive, got none")
    bits = [unpack(codes, n_bits).astype(np.float32) for codes in (right, wrong, others)]
    centre = bits[2 if len(others) else 1].mean(axis=0)
    X = np.concatenate(bits) - centre
    X = np.concatenate([X, np.full((len(X), 1), _BIAS, np.float32)], axis=1)
    cost = _SPARSE_COST if centre.mean() < _SPARSE else _DENSE_COST
    cost *= min(1.0, len(right) / _FULL_COST_FROM)
    sides = tuple(map(len, bits))
    w, gap = solve(X, _signs(sides), _costs(sides, cost)[:, None], _TOLERANCE)
    codes, weights = split_vectors(w[:-1].T)
    kind, gain, error = _judge(bits[0], bits[2], X, sides, cost) if judge else ("vector", np.nan, np.nan)
    if kind == "vector":
        return ExampleQuery(Queries(codes, weights), kind, gain, error, float(gap[0]))
    return ExampleQuery(Queries(right, np.ones((len(right), n_bits), np.float32)), kind, gain, error, float(gap[0]))


def _signs(sides: tuple[int, ...]) -> Floats:
    return np.repeat(np.array([1, -1, -1], np.float32), sides)


def _costs(sides: tuple[int, ...], cost: float) -> Floats:
    """A cost per row: of negatives as of examples, but no more in sum; of the background as of all examples."""
    n, n_wrong, n_others = sides
    each = cost, cost * min(1.0, n / max(n_wrong, 1)), cost * n / max(n_others, 1)
    return np.repeat(np.array(each, np.float32), sides)


def _judge(right: Floats, others: Floats, X: Floats, sides: tuple[int, ...], cost: float) -> tuple[Kind, float, float]:
    """Which way finds left-out examples; how much better the vector does than the best plain way, and the error."""
    n, n_wrong = sides[:2]
    halves = [np.arange(half, len(others), 2) for half in (0, 1)]
    if n < 2 or len(halves[1]) < 2:
        return "vector", np.nan, np.nan
    left_out = sample_rows(n, _MOST_LEFT_OUT)
    ranks = np.empty((len(left_out), 3))
    plain = [(way(right, right), way(others, right)) for way in (lambda a, b: -_differing(a, b), _tanimoto)]
    for half in (0, 1):
        asked, learned, places = halves[half], halves[1 - half], np.arange(half, len(left_out), 2)
        if not len(places):
            continue
        rows = np.concatenate([np.arange(n + n_wrong), n + n_wrong + learned])
        part = n, n_wrong, len(learned)
        costs = np.repeat(_costs(part, cost)[:, None], len(places), axis=1)
        costs[left_out[places], np.arange(len(places))] = 0
        w, _ = solve(X[rows], _signs(part), costs, _ROUGH)
        mine, theirs = X[left_out[places]] @ w, X[n + n_wrong + asked] @ w
        for at, place in enumerate(places):
            i = left_out[place]
            rest = np.delete(np.arange(n), i)
            ranks[place] = (
                _rank(mine[at, at], theirs[:, at]),
                *(_rank(own[i, rest].max(), to[asked][:, rest].max(axis=1)) for own, to in plain),
            )
    best = 1 + int(ranks[:, 2].mean() < ranks[:, 1].mean())
    gains = ranks[:, best] - ranks[:, 0]
    gain, error = float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))
    kind: Kind = "vector" if gain >= -stdtrit(len(gains) - 1, _CERTAINTY) * error else ("hamming", "tanimoto")[best - 1]
    return kind, gain, error


def _rank(mine: float, theirs: Floats) -> float:
    """Logarithm of a rank among rows, in expectation over ties."""
    return float(np.log2(1 + (theirs > mine).sum() + (theirs == mine).sum() / 2))


def _differing(rows: Floats, right: Floats) -> Floats:
    out: Floats = rows.sum(axis=1)[:, None] + right.sum(axis=1) - 2 * rows @ right.T
    return out


def _tanimoto(rows: Floats, right: Floats) -> Floats:
    common = rows @ right.T
    out: Floats = common / np.maximum(common + _differing(rows, right), 1)
    return out


def solve(X: Floats, signs: Floats, costs: Floats, tolerance: float) -> tuple[Floats, Floats]:
    """Least logistic losses by Newton's method, a problem per column of costs.

    Returns
    -------
    w, gap : one vector per column, and |g| / |w|
    """
    w = np.zeros((X.shape[1], costs.shape[1]), np.float32)
    margins = np.zeros(costs.shape, np.float32)
    y = signs[:, None]
    for step in range(_MOST_STEPS + 1):
        p = 1 / (1 + np.exp(np.minimum(margins, 60)))
        g = w - X.T @ (costs * p * y)
        gap = np.linalg.norm(g, axis=0) / np.maximum(np.linalg.norm(w, axis=0), 1e-6)
        if step == _MOST_STEPS or (gap <= tolerance).all():
            break
        change = _newton(X, costs * p * (1 - p), g, np.minimum(0.3, np.sqrt(gap)))
        along = (X @ change) * y
        length = _lengths(w, change, margins, along, costs, (g * change).sum(axis=0))
        w, margins = w + length * change, margins + length * along
    return w, gap


def _newton(X: Floats, curvature: Floats, g: Floats, share: Floats) -> Floats:
    """Newton's steps by conjugate gradients, until the residual is a share of g."""
    change, residual = np.zeros_like(g), -g
    direction, square = residual, (g * g).sum(axis=0)
    enough = share**2 * square
    for _ in range(_MOST_DIRECTIONS):
        bent = direction + X.T @ (curvature * (X @ direction))
        length = np.where(square > enough, square / np.maximum((direction * bent).sum(axis=0), 1e-30), 0)
        change, residual = change + length * direction, residual - length * bent
        before, square = square, (residual * residual).sum(axis=0)
        if (square <= enough).all():
            break
        direction = residual + square / np.maximum(before, 1e-30) * direction
    return change


def _lengths(w: Floats, change: Floats, margins: Floats, along: Floats, costs: Floats, slope: Floats) -> Floats:
    """Lengths of steps, halved until each objective falls enough."""

    def objective(length: Floats) -> Any:
        losses = costs * np.logaddexp(np.float32(0), -(margins + length * along))
        return ((w + length * change) ** 2).sum(axis=0) / 2 + losses.sum(axis=0)

    length = np.ones(w.shape[1], np.float32)
    start = objective(0 * length)
    for _ in range(_MOST_HALVINGS):
        worse = objective(length) > start + 1e-4 * length * slope + 1e-6 * np.abs(start)
        if not worse.any():
            break
        length = np.where(worse, length / 2, length)
    return length
