"""The ranking objective over order and tie constraints, with its gradient and a certified gap.

Equations, with d_w(a, b) = wᵀ acdv(a, b) and m quadruplets (i, j, k, s):

    D_r = acdv(i, j) − acdv(i, k)    order: similar k before dissimilar j           (1)
    T_r = acdv(i, k) − acdv(i, s)    tie: two similar ones equally far              (2)
    J(w) = ½‖w − w₀‖² + C_ξ Σ max(0, 1 − D_r w)² + C_γ Σ (T_r w)²,   w ≥ 0          (3)
    ∇J(w) = w − w₀ − 2 C_ξ Dᵀ max(0, 1 − D w) + 2 C_γ TᵀT w                         (4)

w₀ = 0 gives the paper's objective; w₀ = w(t) with a small batch gives its online form. With the slacks at w as dual
variables, the dual point is u = max(0, w − ∇J(w)), and the duality gap has a closed form:

    J(w) − J* ≤ Σ_k { ½ g_k²  if g_k ≤ w_k;  w_k g_k − ½ w_k²  otherwise },  g = ∇J(w)   (5)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bitrank import _kernel
from bitrank.core.types import Codes

Array = npt.NDArray[np.float64]
Kind = Literal["order", "tie"]
_BLOCK_ROWS = 8192  # rows densified per block
_MOST_DENSE = 25_000_000  # numbers of a matrix that is kept dense


class Constraints:
    """Order rows (1) and tie rows (2) of quadruplets, held as packed bits.

    Parameters
    ----------
    queries, items : packed codes that the quadruplets' rows refer to
    quadruplets : int64 array of shape (m, 4), or (m, 3) without tie rows
    n_bits : int
    magnitudes : float array of shape (n_queries, n_bits), optional
        Multiply the bits of a query's rows, to learn on top of float queries.

    Attributes
    ----------
    precise : bool
        Whether products with magnitudes are in float64, the default; float32 takes half the time.

    Examples
    --------
    >>> codes = np.packbits([[1, 1], [0, 1], [1, 0]], axis=1)
    >>> Constraints(codes, codes, np.array([[0, 1, 2]]), n_bits=2).margins(np.array([1.0, 3.0]))
    array([-2.])
    """

    def __init__(
        self,
        queries: Codes,
        items: Codes,
        quadruplets: npt.NDArray[np.int64],
        n_bits: int,
        magnitudes: npt.NDArray[np.float32] | None = None,
    ) -> None:
        query = queries.take(quadruplets[:, 0], axis=0)
        scale: npt.NDArray[np.floating[Any]] | None = None
        if magnitudes is not None:
            # Scale the magnitudes of each query to mean 1, so that a margin of 1 means the same for all queries.
            mean = magnitudes.mean(axis=1, keepdims=True)
            scale = magnitudes / np.where(mean > 0, mean, 1)
        self.n_bits = n_bits
        self.n_rows = len(quadruplets)
        self.precise = True
        # The three differences of (1) and (2): to the dissimilar item, to the similar one, to the other similar one.
        self._differences = [query ^ items.take(column, axis=0) for column in quadruplets.T[1:]]
        self._scale = scale
        self._query_rows = quadruplets[:, 0]
        self._active: npt.NDArray[np.bool_] | None = None

    @property
    def has_ties(self) -> bool:
        """Whether there are tie rows: quadruplets, not triplets."""
        return len(self._differences) == 3

    def _pair(self, which: Kind) -> tuple[Codes, Codes]:
        near = self._differences[1]
        return (self._differences[0], near) if which == "order" else (near, self._differences[2])

    def dense(self, which: Kind, rows: slice = slice(None), dtype: Any = np.float64) -> npt.NDArray[Any]:
        """Rows of D or T as numbers; triplets have no T."""
        if which == "tie" and not self.has_ties:
            return np.zeros((0, self.n_bits), dtype)
        plus, minus = (np.unpackbits(bits[rows], axis=1, count=self.n_bits).view(np.int8) for bits in self._pair(which))
        dense: npt.NDArray[Any] = np.subtract(plus, minus).astype(dtype)
        if self._scale is not None:
            dense *= self._scale[self._query_rows[rows]]
        return dense

    def _blocks(self, which: Kind) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Blocks of rows with magnitudes, in float64 or, where that is enough, in float32."""
        dtype = np.float64 if self.precise else np.float32
        keep = which == "order" and self.n_rows * self.n_bits <= _MOST_DENSE
        for start in range(0, self.n_rows, _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            yield rows, self._dense_order[rows].astype(dtype, copy=False) if keep else self.dense(which, rows, dtype)

    @cached_property
    def _dense_order(self) -> npt.NDArray[Any]:
        parts = [slice(start, start + 1024) for start in range(0, self.n_rows, 1024)]
        return np.concatenate([self.dense("order", rows, np.float32) for rows in parts])  # exact: signed magnitudes

    # Without magnitudes rows hold only -1, 0 and 1; the kernel works on their packed bits.

    def margins(self, weights: Array) -> Array:
        """D w: how much farther the dissimilar item is than the similar one."""
        if self._scale is not None:
            parts = [block @ weights.astype(block.dtype, copy=False) for _, block in self._blocks("order")]
            return np.concatenate(parts).astype(np.float64, copy=False)
        out = np.empty(self.n_rows)
        _kernel.margins(*self._pair("order"), np.ascontiguousarray(weights, np.float64), out)
        return out

    @cached_property
    def even_margins(self) -> Array:
        """Margins of weights of 1, which every best scale asks for."""
        return self.margins(np.ones(self.n_bits))

    def combine(self, values: Array) -> Array:
        """Dᵀ v, with one value per row."""
        out = np.zeros(self.n_bits)
        if self._scale is None:
            _kernel.combine(*self._pair("order"), values, out)
        else:
            for rows, block in self._blocks("order"):
                out += values[rows].astype(block.dtype, copy=False) @ block
        return out

    def add_gram(
        self, signs: npt.NDArray[np.int8], factor: float, gram: Array, total: Array, which: Kind = "order"
    ) -> None:
        """Add factor · Σ ± DᵀD to `gram` and factor · Σ ± D to `total`, over the rows with their signs −1, 0 or 1."""
        if self._scale is None:
            _kernel.add_gram(*self._pair(which), signs, factor, gram, total)
            return
        for rows, block in self._blocks(which):
            for sign in (1, -1):
                part = block[signs[rows] == sign]
                gram += sign * factor * (part.T @ part)
                total += sign * factor * part.sum(axis=0, dtype=np.float64)

    def active_gram(self, active: npt.NDArray[np.bool_]) -> tuple[Array, Array]:
        """Σ DᵀD and Σ D over the active rows, from the last answer by the rows that differ; both hold until the next.

        Solutions for several constants share most of their active rows.
        """
        if self._active is None:
            self._active = np.zeros(self.n_rows, bool)
            self._gram, self._total = np.zeros((self.n_bits, self.n_bits)), np.zeros(self.n_bits)
        changed = active.view(np.int8) - self._active.view(np.int8)
        if changed.any():
            self.add_gram(changed, 1.0, self._gram, self._total)
        self._active = active
        return self._gram, self._total

    @cached_property
    def tie_gram(self) -> Array:
        """TᵀT of equation (2), all that the tie rows contribute to the objective; zero for triplets."""
        gram, total = np.zeros((self.n_bits, self.n_bits)), np.zeros(self.n_bits)
        if self.has_ties:
            self.add_gram(np.ones(self.n_rows, np.int8), 1.0, gram, total, "tie")
        return gram


class Objective:
    """Equation (3) for the constants and the prior.

    Parameters
    ----------
    constraints : Constraints
    c_order, c_tie : float
        C_ξ and C_γ.
    prior : array of shape (n_bits,)
        w₀.

    Examples
    --------
    >>> codes = np.packbits([[1, 1], [0, 1], [1, 0]], axis=1)
    >>> constraints = Constraints(codes, codes, np.array([[0, 1, 2]]), n_bits=2)
    >>> value, gradient = Objective(constraints, 1.0, 0.0, prior=np.ones(2)).value_and_gradient(np.ones(2))
    >>> value, gradient
    (1.0, array([-2.,  2.]))
    """

    def __init__(self, constraints: Constraints, c_order: float, c_tie: float, prior: Array) -> None:
        self.constraints, self.c_order, self.c_tie, self.prior = constraints, c_order, c_tie, prior
        self.tie_gram = constraints.tie_gram if c_tie > 0 else np.zeros((len(prior), len(prior)))

    def value(self, weights: Array, margins: Array) -> float:
        """J(w), given the margins D w."""
        slack = np.maximum(1.0 - margins, 0.0)
        step = weights - self.prior
        tie = self.c_tie * (weights @ (self.tie_gram @ weights))
        return float(0.5 * step @ step + self.c_order * (slack @ slack) + tie)

    def value_and_gradient(self, weights: Array) -> tuple[float, Array]:
        """J(w) and equation (4)."""
        margins = self.constraints.margins(weights)
        gradient = weights - self.prior - 2 * self.c_order * self.constraints.combine(np.maximum(1.0 - margins, 0.0))
        return self.value(weights, margins), gradient + 2 * self.c_tie * (self.tie_gram @ weights)


def duality_gap(weights: Array, gradient: Array) -> float:
    """Equation (5)."""
    return float(np.where(gradient <= weights, 0.5 * gradient**2, weights * gradient - 0.5 * weights**2).sum())


def best_scale(constraints: Constraints, c_order: float, c_tie: float, direction: Array | None = None) -> float:
    """The a that minimises the losses of (3) at w = a·direction; by default a direction of ones, the uniform prior.

    Examples
    --------
    >>> codes = np.packbits([[1, 1, 1], [0, 0, 1], [1, 1, 0]], axis=1)
    >>> best_scale(Constraints(codes, codes, np.array([[0, 1, 2]]), n_bits=3), c_order=1.0, c_tie=0.0)
    1.0
    """
    margins = constraints.even_margins if direction is None else constraints.margins(direction)
    direction = np.ones(constraints.n_bits) if direction is None else direction
    tie = c_tie * float(direction @ constraints.tie_gram @ direction) if c_tie > 0 else 0.0
    # Rows sorted by margin: the active rows of a scale come first.
    margins = np.sort(margins)
    sums, squares = np.cumsum(margins), np.cumsum(margins * margins)
    scale = 0.0
    for _ in range(100):  # Newton on a convex, piecewise quadratic function of one variable
        n_active = len(margins) if scale == 0 else int(np.searchsorted(margins, 1.0 / scale))
        if n_active == 0 and tie == 0:
            break  # every order constraint holds: no loss is left
        curvature = tie + (c_order * float(squares[n_active - 1]) if n_active > 0 else 0.0)
        new = max(0.0, c_order * float(sums[n_active - 1]) / curvature) if curvature > 0 and n_active > 0 else 0.0
        if abs(new - scale) <= 1e-12 * max(new, 1e-12):
            break
        scale = new
    # Where similar items are farther than dissimilar ones on the whole, any positive scale ranks as Hamming does.
    return scale if scale > 0 else 1.0 / constraints.n_bits
