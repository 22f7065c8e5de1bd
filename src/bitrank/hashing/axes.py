"""Axes of vectors, the bits that each of them gets, and the correction per item that knows how much queries share."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank import _kernel
from bitrank.hashing.pca import random_rotation

Reals = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

Spectra = dict[bool, tuple[Floats, Floats]]  # variances and axes of vectors as they are, and of one length

MOST_BITS = 8
# Of a uniform quantiser with b bits on a normal value of variance 1: its mean squared error, and its step.
_ERROR = (1, 0.3634, 0.1188, 0.03744, 0.01154, 0.00349, 0.00104, 0.0003, 0.00009)
_STEP = np.array((0, 1.596, 0.9957, 0.586, 0.335, 0.188, 0.1041, 0.0569, 0.0308))
_ROWS_OF_COVARIANCE, _ROWS_OF_NEIGHBOURS, _QUERIES, _NEIGHBOURS = 50_000, 20_000, 400, 10
_SMOOTHED = 9  # axes over which the share of a query and its neighbours is averaged
_MOST_SHARE = 3.0  # of the centre in a query
_LEAST_CENTER = 0.05  # squared length beside a typical vector's, below which a query's share of the centre is noise
_BLOCK = 1 << 18  # numbers per block of rows: they stay in the cache

FAMILIES = ("principal", "unit", "random")


class Measured(NamedTuple):
    """What vectors are beside their centre."""

    a: Reals  # (n, d): coordinates on all axes, of length 1 where axes are of the family "unit"
    g: Floats  # (n,): what the score owes to the item alone
    size: Floats  # (n,): length that `a` was divided by, or 1


class Asked(NamedTuple):
    """What queries are: ⟨y, x̂⟩ + β·w ranks; estimates times `scale` plus `offset` are scores."""

    z: Reals  # (n, m + 2): y, coordinates on the axes that have bits; β; and |q'|², by distance only
    scale: Floats
    offset: Floats

    @property
    def y(self) -> Reals:
        """Coordinates on the axes that have bits."""
        return self.z[:, :-2]

    @property
    def beta(self) -> Reals:
        """Share of the centre, one column."""
        return self.z[:, -2:-1]

    @property
    def lengths2(self) -> Reals:
        """Squared lengths of q', one column, of queries by distance."""
        return self.z[:, -1:]


@dataclass
class Axes:
    """Orthonormal axes, those with most bits first, with levels of a uniform quantiser on each that has bits.

    The score of a query and an item is ⟨q', A⟩ + β·g: A the item less the centre c; q' = q − β·c; g = ⟨c, A⟩ and
    β = ⟨q, c⟩/|c|², or by distance g = −|A|²/2 and β = 1.
    """

    metric: str
    length: float  # of a typical vector: the unit of everything else
    center: Floats
    unit: bool  # A is scaled to length 1
    axes: Reals  # (d, d)
    bits: Ints  # (d,), descending
    steps: Reals  # (d,): the width of a level, 0 without bits
    alpha: Reals  # (d,): how much of an item's coordinate its queries share

    def __post_init__(self) -> None:
        self.m = m = int((self.bits > 0).sum())
        length2 = float(self.center @ self.center)
        self.along = self.metric != "l2" and length2 > _LEAST_CENTER
        columns = self.axes[:, :m]
        self._shift = (self.center @ columns * (self.metric != "l2")).astype(np.float32)
        share = self.center / length2 if self.along else np.zeros(len(self.center))
        # The last columns compute β and the product with the centre.
        self._asking = np.asfortranarray(np.column_stack([columns, share, self.center]), np.float32)

    def measure(self, X: npt.NDArray[Any]) -> Measured:
        """Coordinates of vectors on all axes."""
        n, d = X.shape
        out = Measured(np.empty((n, d), np.float32), np.empty(n), np.ones(n))
        for start in range(0, n, rows := max(1, _BLOCK // d)):
            part = slice(start, start + rows)
            A = scaled(X[part], self.metric, self.length) - self.center
            out.g[part] = -0.5 * np.einsum("ij,ij->i", A, A) if self.metric == "l2" else A @ self.center
            if self.unit:
                size = np.linalg.norm(A, axis=1)
                out.size[part] = np.where(size > 0, size, 1)
                A /= out.size[part, None]
            np.matmul(A.astype(np.float32), self.axes, out=out.a[part])
        return out

    def quantise(self, a: Reals) -> npt.NDArray[np.uint8]:
        """Levels on the axes that have bits."""
        half = np.float32(2) ** (self.bits[: self.m] - 1).astype(np.float32)
        values = a[:, : self.m] * (1 / self.steps[: self.m])
        values += half
        np.clip(values, 0, 2 * half - np.float32(0.5), out=values)
        return values.astype(np.uint8)

    def decoded(self, levels: npt.NDArray[np.uint8], kept: Ints | None = None) -> Reals:
        """Coordinates of the levels' middles; with `kept`, of the levels that the first bits of each axis tell."""
        bits = self.bits[: self.m]
        dropped = bits - (bits if kept is None else kept)
        middle = (2.0**dropped - 1) / 2 - 2.0 ** (bits - 1) + 0.5
        if kept is not None:
            levels = levels & (0xFF << dropped & 0xFF).astype(np.uint8)
        out: Reals = levels.astype(np.float32)
        out += middle.astype(np.float32)
        out *= self.steps[: self.m]
        return out

    def correction(self, measured: Measured, decoded: Reals) -> Floats:
        """The factor f of each item: ⟨q', x̂⟩/f estimates ⟨q', A⟩ for the queries that matter to it."""
        m, a = self.m, measured.a
        up = np.einsum("ij,ij,j->i", a[:, :m], decoded, self.alpha[:m], dtype=np.float64)
        down = np.einsum("ij,ij,j->i", a, a, self.alpha, dtype=np.float64)
        f: Floats = up / np.maximum(down, 1e-30) / measured.size
        return f

    def ask(self, Q: npt.NDArray[Any]) -> Asked:
        """Coordinates of queries; those of a score by products have the length of a typical vector."""
        by_distance = self.metric == "l2"
        Q = np.ascontiguousarray(Q if Q.dtype == np.float32 else Q.astype(np.float64))
        units, squares = np.empty(Q.shape, np.float32), np.empty(len(Q))
        center, zeros = (self.center if by_distance else None), self.metric != "cosine"
        good = _kernel.center(Q, self.length, center, zeros, units, squares)
        z: Reals = units @ self._asking
        if not self.along:
            z[:, -2] = 1
        scale = np.ones(len(Q)) if self.metric == "cosine" else np.sqrt(squares) * self.length
        offset = z[:, -1] * scale
        if by_distance:
            z[:, -1] = squares
            scale[:], offset = 2 * self.length**2, -(self.length**2) * squares
        if not (good and _kernel.shift(z, self._shift, _MOST_SHARE)):
            raise OverflowError
        return Asked(z, scale, offset)


def scaled(X: npt.NDArray[Any], metric: str, length: float) -> Floats:
    """Vectors in float64, divided by a typical length; by cosine, vectors of length 1."""
    out: Floats = X.astype(np.float64)
    out /= np.sqrt(_squares(out))[:, None] if metric == "cosine" else length
    return out


def _squares(X: npt.NDArray[Any]) -> Floats:
    out: Floats = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    return out


def fit_axes(
    X: npt.NDArray[Any],
    metric: str,
    family: str,
    budget: int,
    random: np.random.RandomState,
    spectra: Spectra | None = None,
) -> Axes:
    """Learn axes of a family, and distribute `budget` bits over them; `spectra` keeps those of X for other budgets."""
    n, d = X.shape
    length, center = _center(X, metric)
    rows = _some(n, _ROWS_OF_COVARIANCE, random)
    spectra, unit = {} if spectra is None else spectra, family == "unit"
    spectra[unit] = spectra.get(unit) or _spectrum(X, rows, metric, length, center, unit)
    values, axes = spectra[unit]
    if family == "random":
        values, axes = np.full(d, values.mean()), random_rotation(d, random)
    bits = allocate(values, _power(budget / d), budget)
    order = np.argsort(-bits, kind="stable")
    values, axes, bits = values[order], axes[:, order], bits[order]
    for b in np.unique(bits[bits > 0]):
        group = np.flatnonzero(bits == b)
        axes[:, group] = axes[:, group] @ random_rotation(len(group), random)
        values[group] = values[group].mean()
    steps = (_STEP[bits] * np.sqrt(values)).astype(np.float32)
    steps[bits > 0] = np.maximum(steps[bits > 0], np.finfo(np.float32).tiny * 1e8)
    ones = np.ones(d, np.float32)
    out = Axes(metric, length, center, family == "unit", axes.astype(np.float32), bits, steps, ones)
    out.alpha = _shares(out, X, random)
    return out


def allocate(values: Floats, power: float, budget: int) -> Ints:
    """Bits per axis, one after the other to the axis where the error falls most: reverse water-filling.

    Examples
    --------
    >>> allocate(np.array([9.0, 1.0, 0.1]), 1.0, 4)
    array([3, 1, 0])
    """
    bits = np.zeros(len(values), np.int64)
    weights = np.maximum(values, 0) ** power
    heap = [(-weight * (_ERROR[0] - _ERROR[1]), axis) for axis, weight in enumerate(weights.tolist()) if weight > 0]
    heapq.heapify(heap)
    for _ in range(budget):
        if not heap:
            break
        _, axis = heapq.heappop(heap)
        bits[axis] += 1
        if bits[axis] < MOST_BITS:
            saved = _ERROR[bits[axis]] - _ERROR[bits[axis] + 1]
            heapq.heappush(heap, (-float(weights[axis]) * saved, axis))
    return bits


def _power(bits_per_axis: float) -> float:
    """The exponent of variances. What counts is the order of near items, to which small axes add least."""
    return 1.25 + 0.25 * min(1.0, max(0.0, bits_per_axis - 1))


def _some(n: int, most: int, random: np.random.RandomState) -> Ints:
    """Row numbers, ascending, at most so many."""
    return np.arange(n) if n <= most else np.sort(random.permutation(n)[:most])


def _center(X: npt.NDArray[Any], metric: str) -> tuple[float, Floats]:
    """The length of a typical vector, by l2 of one less the mean, and the mean in units of it."""
    total, squares, blocks = np.zeros(X.shape[1]), 0.0, max(1, _BLOCK // X.shape[1])
    for start in range(0, len(X), blocks):
        block = scaled(X[start : start + blocks], metric, 1.0)
        total += block.sum(axis=0)
        squares += float(_squares(block).sum())
    center = total / len(X)
    square = squares / len(X) - (float(center @ center) if metric == "l2" else 0.0)
    if metric == "cosine" or square <= 1e-12 * squares / len(X):
        return 1.0, center
    return float(np.sqrt(square)), center / np.sqrt(square)


def _spectrum(
    X: npt.NDArray[Any], rows: Ints, metric: str, length: float, center: Floats, unit: bool
) -> tuple[Floats, Floats]:
    """Variances along principal axes, descending, and the axes."""
    d = X.shape[1]
    covariance = np.zeros((d, d))
    for start in range(0, len(rows), size := max(1, 8 * _BLOCK // d)):
        A = scaled(X[rows[start : start + size]], metric, length) - center
        if unit:
            A /= np.maximum(np.sqrt(_squares(A)), 1e-300)[:, None]
        covariance += A.T @ A
    if not np.isfinite(covariance).all():
        raise ValueError("X must hold values that can be squared and summed, got values too large for float64")
    values, axes = np.linalg.eigh(covariance / len(rows))
    values, axes = values[::-1], axes[:, ::-1].copy()
    # The sign of an axis is arbitrary: make its largest entry positive, so that fits are repeatable.
    axes *= np.where(axes[np.abs(axes).argmax(axis=0), np.arange(d)] < 0, -1.0, 1.0)
    rounding = 1e-28 * float(center @ center)  # of vectors that are equal
    return np.where(values > max(1e-10 * values[0], rounding), values, 0), axes


def _shares(axes: Axes, X: npt.NDArray[Any], random: np.random.RandomState) -> Reals:
    """How much of each axis queries and their neighbours share: 1 is all, 0 is nothing."""
    rows = random.permutation(len(X))[:_QUERIES]
    others = _some(len(X), _ROWS_OF_NEIGHBOURS, random)
    items = axes.measure(X[others])
    near = true_neighbours(axes, X, rows, items, others, min(_NEIGHBOURS, len(others) - 1))
    asked = _with_all(axes).ask(X[rows])
    together = np.einsum("ij,ikj->j", asked.y, items.a[near], dtype=np.float64)
    energy = np.einsum("ikj,ikj->j", items.a[near], items.a[near], dtype=np.float64)
    order = np.argsort(-energy, kind="stable")
    smooth = np.ones(min(_SMOOTHED, len(order)))
    out = np.empty(len(order))
    energy = np.maximum(energy, max(1e-9 * energy.max(), 1e-30))
    out[order] = np.convolve(together[order], smooth, "same") / np.convolve(energy[order], smooth, "same")
    out = np.maximum(out, 0)
    return (out if out.any() else np.ones(len(out))).astype(np.float32)


def _with_all(axes: Axes) -> Axes:
    """The same axes, all of which have bits: coordinates of queries on all of them."""
    return replace(axes, bits=np.ones(len(axes.bits), np.int64))


def true_scores(axes: Axes, X: npt.NDArray[Any], rows: Ints, items: Measured, others: Ints) -> Reals:
    """Scores of rows as queries with other rows, computed without codes; -inf for a row itself."""
    asked = _with_all(axes).ask(X[rows])
    scores = (asked.y @ items.a.T) * items.size.astype(np.float32)
    scores += asked.beta * items.g.astype(np.float32)
    scores[rows[:, None] == others] = -np.inf
    return scores


def true_neighbours(axes: Axes, X: npt.NDArray[Any], rows: Ints, items: Measured, others: Ints, k: int) -> Ints:
    """Places of the nearest among other rows."""
    scores = true_scores(axes, X, rows, items, others)
    return np.argpartition(-scores, k - 1, axis=1)[:, :k] if k else np.empty((len(rows), 0), np.int64)
