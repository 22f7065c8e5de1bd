"""Packed binary codes, and both distances between them: the NumPy reference, and the same from the compiled kernel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank import _kernel
from bitrank.core.arrays import to_array
from bitrank.core.checks import as_float32, check_codes, check_finite, check_weights, n_threads, split_reals
from bitrank.core.embeddings import from_embeddings as from_embeddings
from bitrank.core.embeddings import read_fps as read_fps
from bitrank.core.types import Codes, Ids, Results, Rows, Weights, empty_results


def pack(bits: npt.ArrayLike) -> Codes:
    """Pack a matrix of zeros and ones, one code per row, into bytes.

    Parameters
    ----------
    bits : array-like of shape (n, n_bits)
        Booleans, or numbers that are 0 or 1.

    Returns
    -------
    codes : uint8 array of shape (n, ceil(n_bits / 8))
        In the order of `np.packbits`; spare bits of the last byte are zero.

    Examples
    --------
    >>> pack([[1, 0, 0, 0, 0, 0, 0, 1, 1]])
    array([[129, 128]], dtype=uint8)
    """
    array = to_array(bits, "bits")
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"bits must be a matrix with one code per row, got an array of shape {array.shape}")
    if array.dtype != np.bool_ and not np.isin(array, (0, 1)).all():
        raise ValueError(
            f"bits must be 0 or 1, got other values in an array of {array.dtype}: "
            f"see bitrank.core.codes.from_embeddings for signs, reals and bytes"
        )
    return np.packbits(array.astype(bool), axis=1)


def unpack(codes: Codes, n_bits: int) -> npt.NDArray[np.uint8]:
    """Unpack codes into bits, one column per bit: the inverse of `pack`.

    Examples
    --------
    >>> unpack(pack([[1, 0, 1]]), n_bits=3)
    array([[1, 0, 1]], dtype=uint8)
    """
    return np.unpackbits(check_codes(codes, n_bits), axis=1, count=n_bits)


_SIGNS = np.where(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1), np.float32(1), np.float32(-1))


def signs(codes: Codes, n_bits: int) -> npt.NDArray[np.float32]:
    """Unpack codes into +1 and -1, for which a weighted Hamming distance is an inner product.

    Examples
    --------
    >>> signs(pack([[1, 0, 1]]), n_bits=3)
    array([[ 1., -1.,  1.]], dtype=float32)
    """
    bits = np.take(_SIGNS, codes, axis=0, mode="clip")  # without a check of every byte
    return np.ascontiguousarray(bits.reshape(len(codes), 8 * codes.shape[1])[:, :n_bits])


def split_vectors(vectors: npt.ArrayLike) -> tuple[Codes, Weights]:
    """Split real vectors, one per query, into codes and weights: signs and magnitudes.

    The weighted Hamming distance then orders items like minus the inner product of the vector with the item's ±1.

    Examples
    --------
    >>> codes, weights = split_vectors([[0.5, -2.0, 1.0]])
    >>> unpack(codes, n_bits=3), weights
    (array([[1, 0, 1]], dtype=uint8), array([[0.5, 2. , 1. ]], dtype=float32))
    """
    array = as_float32(vectors, "vectors")
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"vectors must be a matrix with one vector per row, got an array of shape {array.shape}")
    plain = split_reals(array, array.shape[1])
    if plain is None:
        check_finite(array, "vectors")
        plain = np.packbits(array > 0, axis=1), np.abs(array)
    return plain


def hamming(queries: Codes, codes: Codes) -> npt.NDArray[np.int32]:
    """Compute the Hamming distance of every query to every code, shape (n_queries, n), in NumPy.

    Examples
    --------
    >>> hamming(pack([[1, 0, 1]]), pack([[1, 1, 0], [1, 0, 1]]))
    array([[2, 0]], dtype=int32)
    """
    queries, codes = _check_pair(queries, codes)
    out = np.empty((len(queries), len(codes)), np.int32)
    for row, query in zip(out, queries, strict=True):
        np.sum(np.bitwise_count(codes ^ query), axis=1, dtype=np.int32, out=row)
    return out


def weighted_hamming(queries: Codes, codes: Codes, weights: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Compute the weighted Hamming distance of every query to every code, shape (n_queries, n), in NumPy.

    Bits are summed within a byte and then over the bytes in order, in float32: equal codes get equal distances to the
    last bit, on every machine.

    Parameters
    ----------
    queries, codes : uint8 arrays, packed
    weights : float array of shape (n_bits,) or (n_queries, n_bits)
        Non-negative and finite.

    Examples
    --------
    >>> weighted_hamming(pack([[1, 0, 1]]), pack([[1, 1, 0], [1, 0, 1]]), [4, 2, 1])
    array([[3., 0.]], dtype=float32)
    """
    queries, codes = _check_pair(queries, codes)
    weights = check_weights(weights, width=queries.shape[1], n_queries=len(queries))
    rows = np.broadcast_to(np.atleast_2d(weights), (len(queries), weights.shape[-1]))
    out = np.zeros((len(queries), len(codes)), np.float32)
    for distances, query, row in zip(out, queries, rows, strict=True):
        differ = np.unpackbits((codes ^ query).T, axis=0, count=len(row))
        for first in range(0, len(row), 8):
            of_byte = zip(row[first : first + 8], differ[first : first + 8], strict=True)
            distances += sum(weight * bits for weight, bits in of_byte)
    return out


def distances(
    queries: Codes, codes: Codes, weights: npt.ArrayLike | None = None, *, threads: int | None = None
) -> npt.NDArray[Any]:
    """Compute either distance in the compiled kernel: uint16 counts without weights, float32 with them.

    Parameters
    ----------
    queries, codes : uint8 arrays, packed
    weights : float array of shape (n_bits,) or (n_queries, n_bits), optional
        None is plain Hamming distance.
    threads : int, optional
        All cores by default.

    Examples
    --------
    >>> distances(pack([[1, 0, 1]]), pack([[1, 1, 0], [1, 0, 1]]))
    array([[2, 0]], dtype=uint16)
    """
    queries, codes = _check_pair(queries, codes)
    threads = n_threads(threads)
    shape = (len(queries), len(codes))
    if weights is None:
        counts = np.empty(shape, np.uint16)
        _kernel.hamming(queries, codes, counts, threads)
        return counts
    rows = np.atleast_2d(check_weights(weights, width=queries.shape[1], n_queries=len(queries)))
    out = np.empty(shape, np.float32)
    _kernel.weighted_hamming(queries, codes, np.ascontiguousarray(rows), out, threads)
    return out


def distances_to_rows(
    queries: Codes,
    codes: Codes,
    rows: npt.NDArray[np.int64],
    weights: npt.ArrayLike | None = None,
    *,
    threads: int | None = None,
) -> npt.NDArray[np.float32]:
    """Compute distances of each query to its own row of row numbers: float32 of the shape of `rows`.

    Examples
    --------
    >>> codes = pack([[1, 1, 0], [1, 0, 1], [0, 0, 0]])
    >>> distances_to_rows(codes[:2], codes, np.array([[1, 2], [0, 1]]))
    array([[2., 2.],
           [2., 0.]], dtype=float32)
    """
    queries, codes = _check_pair(queries, codes)
    numbers = np.ascontiguousarray(rows, np.int64)
    if numbers.ndim != 2 or len(numbers) != len(queries):
        raise ValueError(f"rows must have one row for each of the {len(queries)} queries, got shape {numbers.shape}")
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < len(codes):
        raise ValueError(f"rows must be from 0 to {len(codes) - 1}, got {numbers.min()} to {numbers.max()}")
    weights = np.ones(8 * queries.shape[1]) if weights is None else weights
    weight_rows = np.atleast_2d(check_weights(weights, width=queries.shape[1], n_queries=len(queries)))
    out = np.empty(numbers.shape, np.float32)
    _kernel.weighted_hamming_to_rows(
        queries, codes, numbers, np.ascontiguousarray(weight_rows), out, n_threads(threads)
    )
    return out


def _check_pair(queries: Any, codes: Any) -> tuple[Codes, Codes]:
    queries, codes = check_codes(queries, name="queries"), check_codes(codes)
    if queries.shape[1] != codes.shape[1]:
        raise ValueError(f"queries and codes must have the same width, got {queries.shape[1]} and {codes.shape[1]}")
    return queries, codes


def sample_rows(n: int, most: int) -> Rows:
    """Draw row numbers out of n, ascending and at most `most`: the same at every call.

    Examples
    --------
    >>> sample_rows(1_000_000, 3)
    array([511136, 636961, 850622])
    """
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, most, replace=False, shuffle=False))


def nearest(ids: Ids, distances: npt.NDArray[np.float32], k: int) -> Results:
    """Select the k nearest of scored candidates, one row per query, ties by id; an id of -1 is no candidate.

    Examples
    --------
    >>> nearest(np.array([[5, 3, 9]]), np.float32([[1, 1, 0]]), k=2).ids
    array([[9, 3]])
    """
    best = np.lexsort((ids, distances, ids < 0), axis=1)[:, :k]
    out = empty_results(len(ids), k)
    out.ids[:, : best.shape[1]] = np.take_along_axis(ids, best, 1)
    out.distances[:, : best.shape[1]] = np.take_along_axis(distances, best, 1)
    return out


def merge(parts: Iterable[Results], k: int) -> Results:
    """Select the k nearest of the results of several indexes, which share no id, searched with the same queries.

    Examples
    --------
    >>> near, far = (Results(np.array([[i]]), np.float32([[i]])) for i in (1, 2))
    >>> merge([far, near], k=1).ids
    array([[1]])
    """
    ids, distances = zip(*parts, strict=True)
    return nearest(np.concatenate(ids, axis=1), np.concatenate(distances, axis=1), k)
