"""Checks of arguments: codes, queries, weights, labels, ids, counts, methods of search and threads.

Every check returns the argument in canonical form, or raises a ValueError that says what was expected and what came.
"""

from __future__ import annotations

import os
from numbers import Integral
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from bitrank.vocabulary import Codes, Ids, Method, Queries, Weights, n_bytes

# Candidates per query of method "rerank" by default: this many per result, and at least MIN_CANDIDATES.
CANDIDATES_PER_RESULT = 10
MIN_CANDIDATES = 1000


def check_codes(codes: Any, n_bits: int | None = None, name: str = "codes") -> Codes:
    """Packed codes as a contiguous uint8 matrix."""
    array = np.asarray(codes)
    if array.dtype != np.uint8 or array.ndim != 2:
        raise ValueError(
            f"{name} must be a packed uint8 matrix (see bitrank.codes.pack), got {array.dtype} of shape {array.shape}"
        )
    if array.shape[1] == 0:
        raise ValueError(f"{name} must have at least one byte per row, got shape {array.shape}")
    if n_bits is not None:
        if array.shape[1] != n_bytes(n_bits):
            raise ValueError(f"{name} of {n_bits} bits must be {n_bytes(n_bits)} bytes wide, got {array.shape[1]}")
        spare = 8 * array.shape[1] - n_bits
        if spare and (array[:, -1] & ((1 << spare) - 1)).any():
            raise ValueError(f"{name} of {n_bits} bits must have the last {spare} bits of a row zero, got ones there")
    return np.ascontiguousarray(array)


def check_n_bits(codes: Any, n_bits: int | None) -> tuple[Codes, int]:
    """Packed codes, at least one, and their number of bits: `n_bits`, or eight per byte."""
    codes = check_codes(codes, n_bits)
    if len(codes) == 0:
        raise ValueError("codes must hold at least one row, got none")
    return codes, 8 * codes.shape[1] if n_bits is None else n_bits


def check_labels(y: Any, n: int) -> npt.NDArray[Any]:
    """Class labels, one for each of n codes."""
    labels = np.asarray(y)
    if labels.shape != (n,):
        raise ValueError(f"y must hold one label for each of the {n} codes, got shape {labels.shape}")
    if np.issubdtype(labels.dtype, np.floating) and not np.isfinite(labels).all():
        raise ValueError("y must be finite, got NaN or infinity")
    return labels


def check_weights(
    weights: Any, n_bits: int | None = None, *, width: int | None = None, n_queries: int | None = None
) -> Weights:
    """Weights as float32: one vector, or one row per query."""
    array = _as_float32(weights)
    if array.ndim not in (1, 2):
        raise ValueError(f"weights must have shape (n_bits,) or (n_queries, n_bits), got {array.shape}")
    if n_bits is not None and array.shape[-1] != n_bits:
        raise ValueError(f"weights must hold {n_bits} values, one per bit, got {array.shape[-1]}")
    if width is not None and n_bytes(array.shape[-1]) != width:
        raise ValueError(
            f"weights for codes of {width} bytes must hold {8 * width - 7} to {8 * width} values, got {array.shape[-1]}"
        )
    if array.ndim == 2 and n_queries is not None and len(array) != n_queries:
        raise ValueError(f"weights must have one row for each of the {n_queries} queries, got {len(array)}")
    if not np.isfinite(array).all() or (array < 0).any():
        raise ValueError("weights must be finite and not negative")
    return array


def check_index_weights(weights: Any, n_bits: int) -> Weights | None:
    """Check the weights of an index: one vector, which nobody can change, or None."""
    if weights is None:
        return None
    array = check_weights(weights, n_bits).copy()
    if array.ndim != 1:
        raise ValueError(f"weights of an index must be one vector of {n_bits}, got shape {array.shape}")
    array.flags.writeable = False
    return array


def check_queries(queries: Any, weights: npt.ArrayLike | None, n_bits: int) -> tuple[Codes, Weights]:
    """Codes of queries, and rows of weights: one row for all queries, or one per query.

    `Queries` have their own weights. The signs of reals are the code, and their magnitudes multiply the weights.
    """
    if isinstance(queries, Queries):
        if weights is not None:
            raise ValueError("weights must be None for queries of a ranker, which bring their own, got both")
        codes = check_codes(queries.codes, n_bits, name="queries")
        rows = np.atleast_2d(check_weights(queries.weights, n_bits, n_queries=len(codes)))
        return codes, np.ascontiguousarray(rows)
    array = np.asarray(queries)
    magnitudes = None
    if array.dtype.kind == "f":
        if array.ndim != 2 or array.shape[1] != n_bits or not np.isfinite(array).all():
            raise ValueError(
                f"queries of reals must be finite, of shape (n_queries, {n_bits}), got shape {array.shape}"
            )
        magnitudes = np.abs(array).astype(np.float32)
        array = np.packbits(array > 0, axis=1)
    codes = check_codes(array, n_bits, name="queries")
    weights = np.ones(n_bits, np.float32) if weights is None else weights
    rows = np.atleast_2d(check_weights(weights, n_bits, n_queries=len(codes)))
    if magnitudes is not None:
        with np.errstate(over="ignore"):  # check_weights refuses infinite weights
            rows = check_weights(rows * magnitudes)
    return codes, np.ascontiguousarray(rows)


def check_ids(ids: Any, n: int | None = None) -> Ids:
    """Ids as an int64 vector, unique and not negative."""
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"ids must be a vector of ints, got {array.dtype} of shape {array.shape}")
    if n is not None and len(array) != n:
        raise ValueError(f"ids must have one value for each of the {n} codes, got {len(array)}")
    if array.size and (int(array.min()) < 0 or int(array.max()) > np.iinfo(np.int64).max):
        raise ValueError(f"ids must be from 0 to 2**63 - 1, got {array.min()} to {array.max()}")
    array = array.astype(np.int64)
    if len(array) > 1 and not (np.diff(array) > 0).all():
        ordered = np.sort(array)
        repeated = ordered[1:][np.diff(ordered) == 0]
        if len(repeated):
            raise ValueError(f"ids must be unique, got {repeated[0]} more than once")
    return array


def check_count(name: str, value: Any, least: int) -> int:
    """An int that is at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be an int of at least {least}, got {value!r}")
    return int(value)


def check_method(method: Method, k: int, candidates: int | None, most: int | None = None) -> int | None:
    """Number of candidates to fetch and re-rank, at most `most`, or None for an exact search.

    Examples
    --------
    >>> check_method("exact", 10, None), check_method("rerank", 10, None), check_method("rerank", 10, 50)
    (None, 1000, 50)
    """
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {get_args(Method)}, got {method!r}")
    if method == "exact":
        if candidates is not None:
            raise ValueError(f'candidates must be None unless method is "rerank", got {candidates!r}')
        return None
    default = max(MIN_CANDIDATES, CANDIDATES_PER_RESULT * k)
    default = default if most is None else min(default, most)
    n = default if candidates is None else check_count("candidates", candidates, 1)
    if most is not None and max(n, k) > most:
        raise ValueError(f"candidates and k must be at most {most} in this engine, got {n} and {k}")
    return n


def n_threads(threads: int | None = None) -> int:
    """Number of threads: `threads`, or the cores that this process may use."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    return threads


def _as_float32(values: Any) -> Weights:
    with np.errstate(over="ignore"):  # too large values become infinite, which the callers refuse
        return np.asarray(values, dtype=np.float32)
