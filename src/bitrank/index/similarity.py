"""Tanimoto and Tversky similarity, exactly: Dinkelbach's iteration over searches by weighted Hamming distance.

With c common ones, d ones of the query alone and e ones of the row alone, T = c / (c + αd + βe). T ≥ τ where
(1 − τ + ατ)·d + βτ·e ≤ (1 − τ)·|query|: a search with one weight for the query's ones and another for its zeros. The
k-th best ratio among its hits is the next τ. Weights are whole numbers, which float32 sums exactly: ties go by id.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.core.arrays import to_array
from bitrank.core.checks import check_codes, is_one_column_per_bit
from bitrank.core.codes import nearest
from bitrank.core.types import Codes, Ids, Results, empty_results
from bitrank.index.snapshot import Snapshot

_EXACT = 1 << 24  # float32 holds whole numbers up to this
_HITS_PER_RESULT, _HITS = 4, 32  # rows looked at per result, and at least: what is beyond them is ruled out by a bound

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Tversky(NamedTuple):
    """α and β over their common denominator."""

    alpha: int
    beta: int
    unit: int


def check_similarity(similarity: Any) -> Tversky:
    """The whole numbers of "tanimoto" or ("tversky", α, β).

    Examples
    --------
    >>> check_similarity("tanimoto"), check_similarity(("tversky", 0.5, 0.25))
    (Tversky(alpha=1, beta=1, unit=1), Tversky(alpha=2, beta=1, unit=4))
    """
    if isinstance(similarity, str) and similarity == "tanimoto":
        return Tversky(1, 1, 1)
    wanted = '"tanimoto" or ("tversky", alpha, beta) with numbers from 0 to 1000, not both 0, of at most six decimals'
    named = isinstance(similarity, tuple | list) and len(similarity) == 3 and similarity[0] == "tversky"
    factors = [float(value) if isinstance(value, Real) else -1.0 for value in similarity[1:]] if named else []
    if not any(factors) or not all(0 <= factor <= 1000 for factor in factors):
        raise ValueError(f"similarity must be {wanted}, got {similarity!r:.60}")
    alpha, beta = (Fraction(repr(factor)) for factor in factors)
    unit = lcm(alpha.denominator, beta.denominator)
    if 10**6 % unit:
        raise ValueError(f"similarity must be {wanted}, got {similarity!r:.60}")
    return Tversky(int(alpha * unit), int(beta * unit), unit)


def check_plain(queries: Any, n_bits: int, *others: Any) -> Codes:
    """Queries that are codes, asked without anything that changes distances."""
    array = to_array(queries, "queries") if not isinstance(queries, tuple) else np.empty(0)
    if array.dtype != np.uint8 and not is_one_column_per_bit(array):
        raise ValueError(f"queries must be codes for a similarity, got {type(queries).__name__} of {array.dtype}")
    if any(other is not None for other in others):
        raise ValueError("weights, candidates and shortlist must be None for a similarity, got one of them")
    return check_codes(array, n_bits, name="queries")


def search_similar(
    snapshot: Snapshot, codes: Codes, k: int, tversky: Tversky, wanted: npt.ArrayLike | None, threads: int | None
) -> Results:
    """The k rows of largest similarity to each query, ties by id; distances are one minus the similarity."""
    alpha, beta, unit = tversky
    out = empty_results(len(codes), k)
    bits = np.unpackbits(codes, axis=1, count=snapshot.n_bits).astype(np.float32)
    sizes = bits.sum(axis=1).astype(np.int64)
    rows, n_hits = np.arange(len(codes)), max(_HITS, _HITS_PER_RESULT * k)
    best, whole = np.full(len(codes), unit), np.full(len(codes), 2 * unit)  # τ as a fraction of whole numbers
    while len(rows):
        ones, zeros = unit * (whole - best) + alpha * best, beta * best
        limit = sizes[rows] * unit * (whole - best)  # the distance of rows whose similarity is τ
        shared = np.maximum(np.gcd(np.gcd(ones, zeros), limit), 1)
        exact = np.maximum(limit, np.maximum(ones, zeros)) // shared <= _EXACT
        shared = np.where(exact, shared, np.maximum(ones, zeros)).astype(np.float64)
        weights = np.where(bits[rows] > 0, (ones / shared)[:, None], (zeros / shared)[:, None]).astype(np.float32)
        ids, distances = snapshot.search(codes[rows], weights, n_hits, wanted, threads)
        common, total = _parts_of(snapshot, codes[rows], bits[rows], sizes[rows], ids, tversky, threads)
        similarity = np.where(ids < 0, -np.inf, common / np.maximum(total, 1))
        order = np.lexsort((ids, -similarity), axis=1)
        kth = order[:, min(k, n_hits) - 1 : min(k, n_hits)]
        next_best, next_whole = (np.take_along_axis(part, kth, 1)[:, 0] for part in (common, np.maximum(total, 1)))
        same = next_best * whole == best * next_whole
        at_last = np.where(exact, distances[:, -1], distances[:, -1] * (1 - snapshot.n_bits / _EXACT))
        beyond = _least_beyond(best / whole, next_best / next_whole, sizes[rows], tversky)
        done = (ids[:, -1] < 0) | (same & exact & ((alpha > 0) | (sizes[rows] == 0)))
        done |= at_last > (limit - beyond * whole) / shared * (1 + 1e-9) + 1e-9
        found = nearest(ids[done], (1 - similarity[done]).astype(np.float64), k)
        out.ids[rows[done]], out.distances[rows[done]] = found
        if ((same | ~exact) & ~done).any():
            n_hits *= 4
        rows, best, whole = rows[~done], next_best[~done], next_whole[~done]
    return out


def _parts_of(
    snapshot: Snapshot, codes: Codes, bits: Any, sizes: Ints, ids: Ids, tversky: Tversky, threads: int | None
) -> tuple[Ints, Ints]:
    """Numerators and denominators of the similarities of hits."""
    numbers = np.full(ids.shape, -1, np.int64)
    numbers[ids >= 0] = snapshot.find(ids[ids >= 0])
    scores = (snapshot.score(codes, weights, numbers, threads) for weights in (bits, None))
    missed, differ = (np.where(ids < 0, 0, score).astype(np.int64) for score in scores)
    common = tversky.unit * (sizes[:, None] - missed)
    return common, common + tversky.alpha * missed + tversky.beta * (differ - missed)


def _least_beyond(tau: Floats, kth: Floats, sizes: Ints, tversky: Tversky) -> Floats:
    """Bound of c − τ·(c + αd + βe), times the unit, over rows at least as similar as the k-th hit.

    It is (T − τ) times the denominator, which lies between |query|·min(1, α) and |query|/T.
    """
    least = np.minimum(tversky.unit, tversky.alpha) * sizes
    with np.errstate(divide="ignore", invalid="ignore"):
        most = np.where(kth > 0, tversky.unit * sizes / kth, np.inf)
        return np.where(kth >= tau, (kth - tau) * least, (kth - tau) * most)
