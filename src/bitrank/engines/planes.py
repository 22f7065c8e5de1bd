"""Whole-number weights as bit planes: an exact weighted Hamming distance in any engine with a popcount, also as SQL.

``d_w(q, h) = Σ_b 2^b · popcount((q xor h) & mask_b)``, where bit k of mask_b is bit b of the weight of bit k.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_weights
from bitrank.core.codes import pack
from bitrank.core.types import Codes, Weights


class Dialect(NamedTuple):
    """SQL of an engine for a code and for counts of differing bits."""

    code: Callable[[str, int], str]  # a constant, from its hexadecimal digits and the number of bits
    differing: str  # number of bits in which {a} and {b} differ
    differing_within: str  # number of bits of {mask} in which they differ


DIALECTS = {
    "postgresql": Dialect(
        # The cast drops the spare bits at the end.
        lambda digits, n_bits: f"X'{digits}'::bit({n_bits})",
        "bit_count({a} # {b})",
        "bit_count(({a} # {b}) & {mask})",
    ),
    "clickhouse": Dialect(
        lambda digits, n_bits: f"toFixedString(unhex('{digits}'), {len(digits) // 2})",
        "bitCount(bitXor({a}, {b}))",
        "bitCount(bitAnd(bitXor({a}, {b}), {mask}))",
    ),
    "duckdb": Dialect(
        lambda digits, n_bits: f"'{f'{int(digits, 16):0{4 * len(digits)}b}'[:n_bits]}'::BIT",
        "bit_count(xor({a}, {b}))",
        "bit_count(xor({a}, {b}) & {mask})",
    ),
}


def quantize_weights(weights: npt.ArrayLike, bits: int = 8) -> Weights:
    """Round weights to whole numbers from 0 to ``2**bits - 1``, the largest weight of a vector to the largest number.

    An engine ranks exactly by them in one scan, and an `Index` ranks by them like by any others.

    Parameters
    ----------
    weights : float array of shape (n_bits,) or (n_queries, n_bits)
        Each row is scaled on its own.
    bits : int
        1 to 16.

    Returns
    -------
    weights : float32 array of the same shape

    Examples
    --------
    >>> quantize_weights([0.5, 1.0, 0.0], bits=8)
    array([128., 255.,   0.], dtype=float32)
    """
    if not isinstance(bits, int) or not 1 <= bits <= 16:
        raise ValueError(f"bits must be an int from 1 to 16, got {bits!r}")
    array = check_weights(weights).astype(np.float64)
    largest = array.max(axis=-1, keepdims=True, initial=0)
    largest[largest == 0] = 1
    whole: Weights = np.rint(array / largest * (2**bits - 1)).astype(np.float32)
    return whole


def masks(weights: npt.ArrayLike) -> Codes:
    """Packed masks of one vector of whole-number weights, the plane of ones first, shape (n_planes, n_bytes).

    Examples
    --------
    >>> from bitrank.core.codes import unpack
    >>> unpack(masks([4, 2, 3]), n_bits=3)
    array([[0, 0, 1],
           [0, 1, 1],
           [1, 0, 0]], dtype=uint8)
    """
    array = check_whole(check_weights(weights))
    if array.ndim != 1 or not len(array):
        raise ValueError(f"weights must be one vector, got shape {array.shape}")
    whole = array.astype(np.int64)
    n_planes = int(whole.max()).bit_length()
    return pack((whole >> np.arange(n_planes)[:, None]) & 1)


def are_whole(weights: Weights) -> bool:
    """Whether all weights are whole numbers whose sums float32 holds exactly."""
    sums = weights.sum(axis=-1, dtype=np.float64)
    return bool((weights == np.rint(weights)).all() and sums.max(initial=0) < 1 << 24)


def check_whole(weights: Weights) -> Weights:
    """Weights that are whole numbers whose sums float32 holds exactly."""
    if not are_whole(weights):
        raise ValueError(
            "weights must be whole numbers with a sum below 2**24, see bitrank.engines.quantize_weights, got others"
        )
    return weights


def distance_sql(column: str, query: Codes, weights: npt.ArrayLike, dialect: str) -> str:
    """Write the weighted distance of a column to one query code as an SQL expression.

    Its literals hold nothing but digits, so it needs no quoting.

    Parameters
    ----------
    column : str
        Quoted where it needs quotes.
    query : uint8 array of shape (ceil(n_bits / 8),)
    weights : array of shape (n_bits,)
        Whole numbers.
    dialect : str
        One of `DIALECTS`.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> distance_sql("code", pack([[1, 0, 0, 0]])[0], [2, 3, 0, 0], "postgresql")
    "bit_count((code # X'80'::bit(4)) & X'40'::bit(4)) + 2 * bit_count((code # X'80'::bit(4)) & X'c0'::bit(4))"
    """
    forms = DIALECTS[dialect]
    n_bits = len(np.asarray(weights))
    every = pack(np.ones((1, n_bits), bool))[0]
    a, b = column, forms.code(query.tobytes().hex(), n_bits)
    terms = []
    for power, mask in enumerate(masks(weights)):
        if not mask.any():
            continue
        form = forms.differing if (mask == every).all() else forms.differing_within
        count = form.format(a=a, b=b, mask=forms.code(mask.tobytes().hex(), n_bits))
        terms.append(f"{1 << power} * {count}" if power else count)
    return " + ".join(terms) or "0"


def quoted(name: str) -> str:
    """A name as an identifier of standard SQL, with any characters.

    Examples
    --------
    >>> print(quoted('my "best" codes'))
    "my ""best"" codes"
    """
    return '"' + name.replace('"', '""') + '"'
