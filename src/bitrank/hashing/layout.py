"""Which bit of a code stands for what: levels of axes, and two numbers per item, in the order of their weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse

from bitrank.core.codes import signs
from bitrank.core.types import Codes, Products, n_bytes
from bitrank.hashing.axes import Asked, Axes, Floats, Ints, Reals

# What bits stand for that are no levels of an axis: the head's number w, the whole code's, and the correction f.
HEAD_W, W, F, PAD = -1, -2, -3, -4
_ROWS_PER_BLOCK = 1 << 9


class Number(NamedTuple):
    """How a number per item is stored: in natural binary, `low` plus so many steps."""

    low: float = 0.0
    step: float = 0.0
    n_bits: int = 0

    def levels(self, values: Floats) -> npt.NDArray[np.uint16]:
        """Numbers as they are stored; what lies outside is clipped."""
        steps = np.rint((values - self.low) / (self.step or 1.0))
        stored: npt.NDArray[np.uint16] = np.clip(np.nan_to_num(steps), 0, (1 << self.n_bits) - 1).astype(np.uint16)
        return stored

    def values(self, levels: npt.NDArray[Any]) -> Floats:
        """Stored numbers as values."""
        return self.low + self.step * levels.astype(np.float64)

    @property
    def high(self) -> float:
        """The largest value."""
        return self.low + self.step * ((1 << self.n_bits) - 1)

    @property
    def middle(self) -> float:
        """The middle of the range, to which the weighted signs of the bits add."""
        return (self.low + self.high) / 2


@dataclass
class Layout:
    """The bits of a code.

    Parameters
    ----------
    axes : Axes
    places, exponents : int arrays of shape (n_bits,)
        What each bit belongs to, an axis or one of HEAD_W, W and F, and its power of two.
    head_w, w, f : Number
        Corrections of the head and of the whole code. A code that is scanned whole has no head_w.
    t0, slope : float
        The score of a typical k-th neighbour is β·t0 + slope·|q'|².
    n_scanned : int
        Bits of the head.
    n_bits : int
        Bits of a code: all of these, or the first.
    """

    axes: Axes
    places: Ints
    exponents: Ints
    head_w: Number
    w: Number
    f: Number
    t0: float
    slope: float
    n_scanned: int
    n_bits: int

    def __post_init__(self) -> None:
        axes, places, exponents = self.axes, self.places, self.exponents
        in_head = places[: self.n_scanned][places[: self.n_scanned] >= 0]
        self.head_bits = np.bincount(in_head, minlength=axes.m)
        self.bits = np.bincount(places[places >= 0], minlength=axes.m)
        places, exponents = places[: self.n_bits], exponents[: self.n_bits]
        self.n_scanned = min(self.n_scanned, self.n_bits)
        kept = W if (places == W).sum() == self.w.n_bits else HEAD_W
        self.used_w = self.w if kept == W else self.head_w
        power = 2.0 ** (exponents - 1)
        steps = np.append(axes.steps[: axes.m], 0.0)
        level = np.where(places >= 0, steps[np.maximum(places, -1)], 0) * power
        number = {HEAD_W: self.head_w.step, W: self.w.step}
        columns = np.where(places >= 0, places, axes.m)
        self._weights = (level + np.where(places == kept, number[kept], 0) * power).astype(np.float32)
        asked = HEAD_W if (places[: self.n_scanned] == HEAD_W).any() else W
        head = level + np.where(places == asked, number[asked], 0) * power
        self._head_weights = head[: self.n_scanned].astype(np.float32)
        # Rows of a block that bits are read from: axes, and the high and the low bytes of three numbers.
        self._sources = np.where(places >= 0, places, axes.m - 2 * (places + 1) + (exponents >= 8))
        self._shifts = (exponents % 8).astype(np.uint8)[:, None]
        # With a slope, queries weigh f: its bits stand in the head, and at the end for the whole code.
        of_f = np.flatnonzero(places == F) if self.slope else np.empty(0, np.int64)
        self._f_head, self._f_tail = of_f[of_f < self.n_scanned], of_f[of_f >= self.n_scanned]
        columns[of_f] = axes.m + 1
        f_weights = (-self.slope * self.f.step * power).astype(np.float32)
        self._weights[self._f_tail] = f_weights[self._f_tail]
        self._head_weights[self._f_head] = f_weights[self._f_head]
        self._columns = columns
        # The terms of estimates are linear in β and in |q'|², or the product of the query and the centre.
        slope, square = (self.slope if len(self._f_tail) else 0.0), axes.length**2
        by_beta = [-self.t0, 0.0, self.used_w.middle]
        if axes.metric == "l2":
            self._by_number = np.array([by_beta, [square - 2 * square * slope, 0, -slope * self.f.middle]])
            self._by_number[0, 0] *= 2 * square
            self._constant = np.array([0, -2 * square, 0])
        else:
            self._by_number = np.array([by_beta, [-1, 0, 0]])
            self._constant = np.array([axes.metric == "cosine", -1, 0])
        self.tail_bytes = self.f.n_bits // 8 if (places[self.n_scanned :] == F).any() else 0

    def encode(self, X: npt.NDArray[Any]) -> Codes:
        """Codes of vectors."""
        out = np.empty((len(X), n_bytes(self.n_bits)), np.uint8)
        for start in range(0, len(X), _ROWS_PER_BLOCK):
            measured = self.axes.measure(X[start : start + _ROWS_PER_BLOCK])
            if not np.isfinite(measured.a).all() or not np.isfinite(measured.g).all():
                raise OverflowError
            levels = self.axes.quantise(measured.a)
            decoded = self.axes.decoded(levels, self.bits)
            f = np.clip(self.axes.correction(measured, decoded), self.f.low, self.f.high)
            numbers = [self.head_w, self.w, self.f]
            values = [np.zeros(len(f)), f * (measured.g - self.t0), f]
            if self.head_w.n_bits:
                head_f = np.maximum(self.axes.correction(measured, self.axes.decoded(levels, self.head_bits)), 0)
                values[0] = head_f * (measured.g - self.t0)
            stored = [number.levels(each) for number, each in zip(numbers, values, strict=True)]
            halves = np.array([half for each in stored for half in (each & 0xFF, each >> 8)] + [0 * stored[0]])
            rows = np.vstack([levels.T, halves.astype(np.uint8)])
            out[start : start + _ROWS_PER_BLOCK] = self._pack(rows)
        return out

    def _pack(self, rows: npt.NDArray[np.uint8]) -> Codes:
        bits = rows[self._sources] >> self._shifts
        bits &= 1
        packed: Codes = np.packbits(bits, axis=0).T
        return packed

    def products(self, asked: Asked, head: bool = False) -> Products:
        """Queries as one real per bit."""
        if head:
            return Products(asked.z, self._columns[: self.n_scanned], self._head_weights, rounded=True)
        return Products(asked.z, self._columns, self._weights)

    def sums(self) -> tuple[Ints, Reals]:
        """Which sum each bit belongs to, an axis or a number, and what it adds to it or takes from it."""
        steps = self._weights.copy()
        of_head = np.flatnonzero(self.places[: self.n_scanned] == HEAD_W)
        steps[of_head] = self._head_weights[of_head]
        steps[self._f_tail] = 0
        steps[self._f_head] = np.abs(self._head_weights[self._f_head])
        places = self.places[: self.n_bits]
        return np.where(places >= 0, places, self.axes.m - 1 - places), steps

    def f_of(self, codes: Codes) -> Reals:
        """The stored corrections of codes of any shape (…, n_bytes)."""
        if not self.tail_bytes:
            return np.full(codes.shape[:-1], np.float32(self.f.middle))
        if self.tail_bytes == 1:
            levels = codes[..., -1].astype(np.float32)
        else:
            levels = codes[..., -2].astype(np.float32) * 256 + codes[..., -1]
        out: Reals = np.float32(self.f.low) + np.float32(self.f.step) * levels
        return out

    def terms(self, asked: Asked) -> Floats:
        """The terms of `core.types.Estimates`, by distances: minus the scores, or one less the cosine."""
        out: Floats = asked.z[:, -2:] @ self._by_number + self._constant
        if self.axes.metric == "dot":
            out[:, :2] *= asked.scale[:, None]
        return out

    def estimates(self, products: Floats | Reals, f: Reals, asked: Asked) -> Reals:
        """Scores of vectors, from the products of reals and signs, one row per query."""
        beta = asked.beta
        t = self.slope * asked.lengths2 if len(self._f_tail) else 0.0
        out = (products + beta * self.used_w.middle - t * self.f.middle) / f + beta * self.t0 + t
        scores: Reals = (out * asked.scale[:, None] + asked.offset[:, None]).astype(np.float32)
        return scores

    def coordinates(self, codes: Codes) -> Reals:
        """Items as queries meet them: products with z, of shape (n, m + 1), are what `estimates` scales."""
        out = np.empty((len(codes), self.axes.m + 1), np.float32)
        places = self._columns, np.arange(self.n_bits)
        place = scipy.sparse.csr_array((self._weights, places), shape=(self.axes.m + 2, self.n_bits))
        for start in range(0, len(codes), _ROWS_PER_BLOCK):
            block = codes[start : start + _ROWS_PER_BLOCK]
            values = (place @ signs(block, self.n_bits).T)[:-1].T
            values[:, -1] += self.used_w.middle
            values /= self.f_of(block)[:, None]
            values[:, -1] += self.t0
            out[start : start + _ROWS_PER_BLOCK] = values
        return out

    def decode(self, codes: Codes) -> Reals:
        """Vectors whose products with queries are the estimates."""
        axes, values = self.axes, self.coordinates(codes).astype(np.float64)
        out: Floats = values[:, :-1] @ axes.axes[:, : axes.m].T
        if axes.along:  # g, the product with the centre, is stored by itself
            length2 = axes.center @ axes.center
            out += (values[:, -1:] - (out @ axes.center)[:, None]) / length2 * axes.center
        vectors: Reals = ((out + axes.center) * axes.length).astype(np.float32)
        return vectors
