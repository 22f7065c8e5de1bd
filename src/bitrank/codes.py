"""Binary codes as packed arrays, and the two distances between them, in NumPy.

Everything else is built on these arrays; `hamming` and `weighted_hamming` are the reference that the compiled
kernel is tested against, bit for bit.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank import _kernel

Codes = npt.NDArray[np.uint8]
Weights = npt.NDArray[np.float32]


def n_bytes(n_bits: int) -> int:
    """Bytes that a packed code of `n_bits` takes.

    Examples
    --------
    >>> n_bytes(98)
    13
    """
    return (n_bits + 7) // 8


def pack(bits: npt.ArrayLike) -> Codes:
    """Pack a matrix of zeros and ones, one code a row, into bytes.

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
    array = np.asarray(bits)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"bits must be a matrix with one code a row, got an array of shape {array.shape}")
    if array.dtype != np.bool_ and not np.isin(array, (0, 1)).all():
        raise ValueError(f"bits must be 0 or 1, got other values in an array of {array.dtype}")
    return np.packbits(array.astype(bool), axis=1)


def unpack(codes: Codes, n_bits: int) -> npt.NDArray[np.uint8]:
    """Bits of packed codes, one column a bit: the inverse of `pack`.

    Examples
    --------
    >>> unpack(pack([[1, 0, 1]]), n_bits=3)
    array([[1, 0, 1]], dtype=uint8)
    """
    return np.unpackbits(check_codes(codes, n_bits), axis=1, count=n_bits)


def signs(codes: Codes, n_bits: int) -> npt.NDArray[np.float32]:
    """Codes as +1 and -1, the form in which a weighted Hamming distance is an inner product.

    Examples
    --------
    >>> signs(pack([[1, 0, 1]]), n_bits=3)
    array([[ 1., -1.,  1.]], dtype=float32)
    """
    table = np.where(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1), np.float32(1), np.float32(-1))
    return np.ascontiguousarray(table[codes].reshape(len(codes), 8 * codes.shape[1])[:, :n_bits])


def split_vectors(vectors: npt.ArrayLike) -> tuple[Codes, Weights]:
    """Real vectors, one a query, as codes and weights: their signs and their sizes.

    By them a weighted Hamming distance orders items as minus the inner product of the vector and the item's ±1 does.

    Examples
    --------
    >>> codes, weights = split_vectors([[0.5, -2.0, 1.0]])
    >>> unpack(codes, n_bits=3), weights
    (array([[1, 0, 1]], dtype=uint8), array([[0.5, 2. , 1. ]], dtype=float32))
    """
    array = np.asarray(vectors, np.float32)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"vectors must be a matrix with one vector a row, got an array of shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("vectors must be finite, got NaN or infinity")
    return np.packbits(array > 0, axis=1), np.abs(array)


def acdv(a: Codes, b: Codes) -> Codes:
    """Absolute code difference vectors, packed: bits set where two codes differ (row by row, with broadcasting).

    Examples
    --------
    >>> unpack(acdv(pack([[1, 0, 1]]), pack([[1, 1, 0]])), n_bits=3)
    array([[0, 1, 1]], dtype=uint8)
    """
    a, b = check_codes(a, name="a"), check_codes(b, name="b")
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"a and b must have the same width, got {a.shape[1]} and {b.shape[1]} bytes")
    return np.bitwise_xor(a, b)


def hamming(queries: Codes, codes: Codes) -> npt.NDArray[np.int32]:
    """Hamming distance of every query to every code, shape (n_queries, n).

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
    """Weighted Hamming distance of every query to every code, shape (n_queries, n).

    The sum runs over the bytes of a code in order, in float32, each byte's bits first: equal codes get equal
    distances to the last bit, on every machine.

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
        for byte, table in enumerate(byte_tables(row)):
            distances += table[codes[:, byte] ^ query[byte]]
    return out


def byte_tables(weights: Weights) -> npt.NDArray[np.float32]:
    """For each byte of a code, the summed weight of every value of that byte, shape (n_bytes, 256).

    Examples
    --------
    >>> byte_tables(np.float32([4, 2, 1]))[0, 0b10100000]
    np.float32(5.0)
    """
    padded = np.zeros(n_bytes(len(weights)) * 8, np.float32)
    padded[: len(weights)] = weights
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32)
    tables = np.zeros((len(padded) // 8, 256), np.float32)
    for bit in range(8):
        tables += padded[bit::8, None] * bits[:, bit]
    return tables


def distances(
    queries: Codes, codes: Codes, weights: npt.ArrayLike | None = None, *, threads: int | None = None
) -> npt.NDArray[Any]:
    """The same distances from the compiled kernel: uint16 counts without weights, float32 with them.

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
    threads = _check_threads(threads)
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
    """The same from each query to rows of its own: float32 of the shape of `rows`, which has one row a query.

    Examples
    --------
    >>> codes = pack([[1, 1, 0], [1, 0, 1], [0, 0, 0]])
    >>> distances_to_rows(codes[:2], codes, np.array([[1, 2], [0, 1]]))
    array([[2., 2.],
           [2., 0.]], dtype=float32)
    """
    queries, codes = _check_pair(queries, codes)
    chosen = np.ascontiguousarray(rows, np.int64)
    if chosen.ndim != 2 or len(chosen) != len(queries):
        raise ValueError(f"rows must have one row for each of the {len(queries)} queries, got shape {chosen.shape}")
    if chosen.size and not 0 <= chosen.min() <= chosen.max() < len(codes):
        raise ValueError(f"rows must be from 0 to {len(codes) - 1}, got {chosen.min()} to {chosen.max()}")
    given = np.ones(8 * queries.shape[1]) if weights is None else weights
    each = np.atleast_2d(check_weights(given, width=queries.shape[1], n_queries=len(queries)))
    out = np.empty(chosen.shape, np.float32)
    _kernel.weighted_hamming_to_rows(queries, codes, chosen, np.ascontiguousarray(each), out, _check_threads(threads))
    return out


def _check_threads(threads: int | None) -> int:
    if threads is None:
        return os.cpu_count() or 1
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    return threads


def check_codes(codes: Any, n_bits: int | None = None, name: str = "codes") -> Codes:
    """Codes as a contiguous uint8 matrix, or a ValueError that says what came instead."""
    array = np.asarray(codes)
    if array.dtype != np.uint8 or array.ndim != 2:
        raise ValueError(
            f"{name} must be a packed uint8 matrix (see bitrank.codes.pack), got {array.dtype} of shape {array.shape}"
        )
    if array.shape[1] == 0:
        raise ValueError(f"{name} must have at least one byte a row, got shape {array.shape}")
    if n_bits is not None:
        if array.shape[1] != n_bytes(n_bits):
            raise ValueError(f"{name} of {n_bits} bits must be {n_bytes(n_bits)} bytes wide, got {array.shape[1]}")
        spare = 8 * array.shape[1] - n_bits
        if spare and (array[:, -1] & ((1 << spare) - 1)).any():
            raise ValueError(f"{name} of {n_bits} bits must have the last {spare} bits of a row zero, got ones there")
    return np.ascontiguousarray(array)


def check_n_bits(codes: Any, n_bits: int | None) -> tuple[Codes, int]:
    """Codes, checked, and their number of bits: as given, or eight a byte."""
    codes = check_codes(codes, n_bits)
    if len(codes) == 0:
        raise ValueError("codes must hold at least one row, got none")
    return codes, 8 * codes.shape[1] if n_bits is None else n_bits


def check_labels(y: Any, n: int) -> npt.NDArray[Any]:
    """Class labels, one for each of n codes, or a ValueError that says what came instead."""
    labels = np.asarray(y)
    if labels.shape != (n,):
        raise ValueError(f"y must hold one label for each of the {n} codes, got shape {labels.shape}")
    if np.issubdtype(labels.dtype, np.floating) and not np.isfinite(labels).all():
        raise ValueError("y must be finite, got NaN or infinity")
    return labels


def check_weights(
    weights: Any, n_bits: int | None = None, *, width: int | None = None, n_queries: int | None = None
) -> Weights:
    """Weights as float32, one vector or one a query, or a ValueError that says what came instead."""
    array = _as_float32(weights)
    if array.ndim not in (1, 2):
        raise ValueError(f"weights must have shape (n_bits,) or (n_queries, n_bits), got {array.shape}")
    if n_bits is not None and array.shape[-1] != n_bits:
        raise ValueError(f"weights must hold {n_bits} values, one a bit, got {array.shape[-1]}")
    if width is not None and n_bytes(array.shape[-1]) != width:
        raise ValueError(
            f"weights for codes of {width} bytes must hold {8 * width - 7} to {8 * width} values, got {array.shape[-1]}"
        )
    if array.ndim == 2 and n_queries is not None and len(array) != n_queries:
        raise ValueError(f"weights must have one row for each of the {n_queries} queries, got {len(array)}")
    if not np.isfinite(array).all() or (array < 0).any():
        raise ValueError("weights must be finite and not negative")
    return array


def check_queries(queries: Any, weights: npt.ArrayLike | None, n_bits: int) -> tuple[Codes, Weights]:
    """Queries as codes, and weights as rows, one for all or one a query; reals are a code and magnitudes."""
    array = np.asarray(queries)
    magnitudes = None
    if array.dtype.kind == "f":
        if array.ndim != 2 or array.shape[1] != n_bits or not np.isfinite(array).all():
            raise ValueError(
                f"queries of reals must be finite, of shape (n_queries, {n_bits}), got shape {array.shape}"
            )
        magnitudes = np.abs(array).astype(np.float32)
        array = pack(array > 0)
    codes = check_codes(array, n_bits, name="queries")
    given = np.ones(n_bits, np.float32) if weights is None else weights
    rows = np.atleast_2d(check_weights(given, n_bits, n_queries=len(codes)))
    if magnitudes is not None:
        rows = check_weights(rows * magnitudes)
    return codes, np.ascontiguousarray(rows)


def check_magnitudes(magnitudes: Any, n_queries: int, n_bits: int) -> Weights:
    """Magnitudes of float queries as float32, one row a query, or a ValueError that says what came instead."""
    array = _as_float32(magnitudes)
    if array.shape != (n_queries, n_bits):
        raise ValueError(f"magnitudes must have shape {(n_queries, n_bits)}, one row a query, got {array.shape}")
    if not np.isfinite(array).all() or (array < 0).any():
        raise ValueError("magnitudes must be finite and not negative: absolute values before the sign")
    return array


def weights_for_queries(
    weights: npt.NDArray[np.floating[Any]], query_codes: Any, magnitudes: Any | None, n_bits: int
) -> Weights:
    """Learned weights, one vector or one a query, as a row for each query; times the query's magnitudes, if given."""
    query_codes = check_codes(query_codes, n_bits, name="query_codes")
    shape = (len(query_codes), n_bits)
    if magnitudes is None:
        return np.broadcast_to(weights, shape).astype(np.float32)
    return (weights * check_magnitudes(magnitudes, *shape)).astype(np.float32)


def _as_float32(values: Any) -> Weights:
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as such
        return np.asarray(values, dtype=np.float32)


def _check_pair(queries: Any, codes: Any) -> tuple[Codes, Codes]:
    queries, codes = check_codes(queries, name="queries"), check_codes(codes)
    if queries.shape[1] != codes.shape[1]:
        raise ValueError(f"queries and codes must have the same width, got {queries.shape[1]} and {codes.shape[1]}")
    return queries, codes
