"""Integer weights of the scan: a lower bound of every distance, in the order in which the kernels read bits.

A query's weights become integers from 0 to 127, rounded down, negative where the query's bit is set: their sum over the
bits that are set in a code, plus a constant per query, never exceeds the weighted distance in the same unit.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.core.types import Codes, Weights

LARGEST = 127
SCALE = 8  # the kernels expand a set bit to this value
EVERYTHING = -(1 << 30)  # an offset at which every sum is a hit
NOTHING = 1 << 30

# Clips to choose from, as shares of the largest weight: weights above the clip count as the clip.
_CLIPS = np.float32(0.5) ** np.arange(8, dtype=np.float32)
_HEAVIEST = 32  # bits that the choice looks at one by one; of the others it looks at a sample
_SAMPLE = 4096
_EVEN = 4  # up to this largest weight, in units of the mean, no clip pays
# Products that floating point puts just below an integer are rounded up to it; `offsets` allows for far more.
_EPSILON = 1e-9


class Quantised(NamedTuple):
    """Integer weights of some queries."""

    signed: npt.NDArray[np.int8]  # (n_queries, 8 * n_bytes): negative where the query's bit is set
    constants: npt.NDArray[np.int32]  # per query: sum of the weights of bits that are set in it
    scales: npt.NDArray[np.float64]  # per query: integer weight per unit of weight


def quantise(codes: Codes, weights: Weights, n_rows: int, k: int) -> Quantised:
    """Integer weights for a search for the k nearest of n rows.

    Examples
    --------
    >>> quantise(np.uint8([[0b10100000]]), np.float32([[4, 2, 1]]), n_rows=12, k=10).signed[0, :4]
    array([-127,   63,  -31,    0], dtype=int8)
    """
    scales = _scales(weights, max(1.0, n_rows / k))
    integers = np.minimum(np.floor(weights * scales[:, None] + _EPSILON), LARGEST).astype(np.int16)
    integers = np.broadcast_to(integers, (len(codes), weights.shape[1]))
    padded = np.zeros((len(codes), 8 * codes.shape[1]), np.int16)
    padded[:, : weights.shape[1]] = integers
    bits = np.unpackbits(codes, axis=1).astype(bool)
    constants = np.where(bits, padded, 0).sum(axis=1, dtype=np.int32)
    signed = np.where(bits, -padded, padded).astype(np.int8)
    return Quantised(signed, constants, np.broadcast_to(scales, len(codes)).copy())


def offsets(quantised: Quantised, limits: npt.NDArray[np.float32], width: int) -> npt.NDArray[np.int32]:
    """Start of each query's integer sums: every code within its limit gets a negative sum.

    The slack exceeds the rounding of a float32 sum over the bytes of a code.
    """
    slack = 1 + 1e-6 * (width + 16)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled_limit = np.floor(limits.astype(np.float64) * quantised.scales * slack)
    out = SCALE * (quantised.constants - 1 - np.clip(scaled_limit, -1, 1 << 26).astype(np.int32))
    return np.where(limits == np.inf, EVERYTHING, np.where(limits < 0, NOTHING, out)).astype(np.int32)


def _scales(weights: Weights, rarity: float) -> npt.NDArray[np.float64]:
    """Per row of weights, the scale at which fewest codes beyond the limit are expected within the integer bound.

    For fair and independent bits, the share of codes with a sum of weights w up to L is at most the product of
    (1 + exp(-t w)) / 2 times exp(t L) (Chernoff), here with the t at which one code in `rarity` is within L.
    """
    largest = weights.max(axis=1, keepdims=True)
    largest[largest == 0] = 1
    if (largest <= _EVEN * weights.mean(axis=1, keepdims=True, dtype=np.float64)).all():
        return np.asarray(LARGEST / largest[:, 0].astype(np.float64))
    step = max(1, weights.size // _SAMPLE)
    n_bits = weights.shape[1]
    taken = np.r_[:_HEAVIEST, _HEAVIEST:n_bits:step][: n_bits if step == 1 else None]
    counts = np.where(taken < _HEAVIEST, np.float32(1), np.float32(step))
    ordered = np.sort(weights, axis=1)[:, ::-1][:, taken]
    relative = (ordered / largest.astype(np.float64)).astype(np.float32)
    tilts = _tilts(relative, counts, np.log(rarity))
    units = LARGEST / _CLIPS[:, None, None]
    kept = np.minimum(np.floor(relative * units + np.float32(1e-4)), LARGEST) / units
    shares = np.log1p(np.exp(-np.minimum(tilts * kept, 80))) @ counts
    chosen = LARGEST / _CLIPS[np.argmin(shares, axis=0)].astype(np.float64) / largest[:, 0]
    return np.asarray(chosen, np.float64)


def _tilts(relative: Weights, counts: Weights, information: float) -> Weights:
    """Tilts at which all bits together carry this information (in nats) about being near, by bisection."""
    exponents = np.full((len(relative), 1), 4, np.float32)
    for step in (3, 1.5, 0.75, 0.375):
        x = np.minimum(np.exp2(exponents) * relative, 80)
        decay = np.exp(-x)
        carried = (np.log(2 / (1 + decay)) - x * decay / (1 + decay)) @ counts
        exponents += np.where(carried < information, np.float32(step), np.float32(-step))[:, None]
    return np.exp2(exponents)


@lru_cache
def bit_positions(width: int) -> npt.NDArray[np.int64]:
    """Bit of the code behind every element of a lane's operand, shape (n_steps, 2 registers, 4 lanes, 4 bytes).

    A lane holds a quarter of a code, two bytes per unit of 64 bits. Units in pairs are expanded from words of 32 bits,
    register j taking bits j, j + 8, j + 16 and j + 24; a single unit from z = x | x << 12, register j taking bits j,
    j + 8, j + 4 and j + 12 of x. Positions past the code's end are the code's number of bits.
    """
    n_units = -(-width // 8)
    in_pairs = width % 8 == 0 and n_units % 2 == 0
    step, register, lane, byte = np.meshgrid(
        np.arange(2 * n_units), np.arange(2), np.arange(4), np.arange(4), indexing="ij"
    )
    if in_pairs:
        j = 2 * (step % 4) + register
        place, bit = 4 * (step // 4) + byte, j
    else:
        j = 2 * (step % 2) + register
        x_bit = j + np.array([0, 8, 4, 12])[byte]
        place, bit = 2 * (step // 2) + x_bit // 8, x_bit % 8
    at = 2 * n_units * lane + place
    return np.where(at < width, 8 * at + 7 - bit, 8 * width)


def fragments(signed: npt.NDArray[np.int8], n_groups: int) -> npt.NDArray[np.int8]:
    """Signed weights as operands of the matrix operation, shape (n_groups, n_steps, 32 lanes, 4 registers, 4 bytes).

    Lane 4 g + t holds queries g and g + 8 of its group of 16, elements 4 t to 4 t + 3 of both halves of a step.
    """
    n_queries, n_bits = signed.shape
    padded = np.zeros((16 * n_groups, n_bits + 1), np.int8)
    padded[:n_queries, :n_bits] = signed
    positions = bit_positions(n_bits // 8)
    taken = padded.reshape(n_groups, 2, 8, n_bits + 1)[..., positions]  # group, half, g, step, register, t, byte
    return np.ascontiguousarray(taken.transpose(0, 3, 2, 5, 4, 1, 6)).reshape(n_groups, len(positions), 32, 4, 4)


def words(signed: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Signed weights of one query for dp4a, shape (n_words, 8, 4): of bit j of the four bytes of every word."""
    bits = signed[0].reshape(-1, 4, 8)[:, :, ::-1]  # word, byte, bit from the lowest
    return np.ascontiguousarray(bits.transpose(0, 2, 1))
