"""Checks of arguments: codes, queries, weights, labels, ids, counts, methods of search and threads.

Every check returns the argument in canonical form, or raises a ValueError that says what was expected and what came.
"""

from __future__ import annotations

import os
from numbers import Integral, Real
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from bitrank import _kernel
from bitrank.core.arrays import to_array
from bitrank.core.types import Codes, Ids, Method, Products, Queries, Weights, bits_of, n_bytes

# Candidates per query of method "rerank" by default: this many per result, and at least MIN_CANDIDATES.
CANDIDATES_PER_RESULT = 10
MIN_CANDIDATES = 1000

METHODS = get_args(Method)


# The matrices of booleans inside of ImageHash, which are one code each, have these shapes.
_SIDES_OF_HASHES = (8, 12, 16, 24, 32)
# A uint8 matrix of at least this many values, all 0 or 1 and some of them 1, holds one bit per byte.
_MIN_UNPACKED = 64

_SIGNED = (
    'one byte per 8 bits as form="binary" (sentence-transformers, Cohere) or "int8" (Elasticsearch, Vespa), '
    'one number per bit as form="float"'
)


def check_codes(codes: Any, n_bits: int | None = None, name: str = "codes") -> Codes:
    """Packed codes as a contiguous uint8 matrix. Booleans, or +1 and -1, one column per bit, are packed."""
    array = to_array(codes, name)
    if array.ndim != 2:
        hint = ": for one code, give a matrix of one row" if array.ndim == 1 and array.dtype == np.uint8 else ""
        raise ValueError(
            f"{name} must be a packed uint8 matrix (see bitrank.pack), got {array.dtype} of shape {array.shape}{hint}"
        )
    if array.shape[1] == 0:
        raise ValueError(f"{name} must have at least one byte per row, got shape {array.shape}")
    if is_one_column_per_bit(array):
        if n_bits not in (None, array.shape[1]):
            raise ValueError(f"{name} must have {n_bits} columns, one per bit, got {array.shape[1]}")
        return np.packbits(array > 0, axis=1)
    if array.dtype != np.uint8:
        raise ValueError(
            f"{name} must be a packed uint8 matrix (see bitrank.pack), got {array.dtype} of shape {array.shape}: "
            f"{_remedy(array)}"
        )
    if n_bits is None and _is_unpacked(array):
        raise ValueError(
            f"{name} must be packed, eight bits per byte, got shape {array.shape} with all values 0 or 1: "
            f"pack them with bitrank.pack, or give n_bits if they are packed"
        )
    if not (n_bits is None or isinstance(n_bits, Integral)):
        raise ValueError(f"n_bits must be an int, got {n_bits!r}")
    width = 8 * array.shape[1] if n_bits is None else int(n_bits)
    if array.shape[1] != n_bytes(width):
        bits = array.shape[1] == width and (array <= 1).all()
        hint = ": they look like bits, so pack them with bitrank.pack" if bits else ""
        raise ValueError(f"{name} of {width} bits must be {n_bytes(width)} bytes wide, got {array.shape[1]}{hint}")
    spare = 8 * array.shape[1] - width
    if spare and (array[:, -1] & ((1 << spare) - 1)).any():
        raise ValueError(
            f"{name} of {width} bits must have the last {spare} bits of a row zero, got ones there: "
            f"another n_bits, or another bit order (see bitrank.core.codes.from_embeddings)"
        )
    return np.ascontiguousarray(array)


def is_one_column_per_bit(array: npt.NDArray[Any]) -> bool:
    """Return whether a matrix holds booleans, or numbers that are all +1 or -1, both of them."""
    if array.dtype == np.bool_:
        return True
    if array.dtype.kind not in "if" or not array.size or array.dtype == np.uint8:
        return False
    return bool((array == -1).any() and (np.abs(array) == 1).all())


def _is_unpacked(array: Codes) -> bool:
    if array.size < _MIN_UNPACKED or (array[:1024] > 1).any():
        return False
    return bool((array <= 1).all() and array.any())


def _remedy(array: npt.NDArray[Any]) -> str:
    """Say how to convert a matrix that is not packed uint8."""
    if array.dtype.kind not in "iuf" or not array.size:
        return "give one byte per 8 bits"
    if ((array == 0) | (array == 1)).all():
        return "they look like bits, so pack them with bitrank.pack"
    if array.dtype.kind == "f" and (array != np.rint(array)).any():
        return "make codes of embeddings with bitrank.core.codes.from_embeddings, or with a hasher's transform"
    if array.min() >= 0 and array.max() <= 255:
        return "convert bytes that came as whole numbers with bitrank.core.codes.from_embeddings"
    return f"convert them with bitrank.core.codes.from_embeddings, {_SIGNED}"


def check_n_bits(codes: Any, n_bits: int | None) -> tuple[Codes, int]:
    """Packed codes, at least one, and their number of bits: `n_bits`, one per column of bits, or eight per byte."""
    checked, n_bits = check_any_rows(codes, n_bits)
    if len(checked) == 0:
        raise ValueError("codes must hold at least one row, got none")
    return checked, n_bits


def check_any_rows(codes: Any, n_bits: int | None) -> tuple[Codes, int]:
    """The same for any number of codes, also none."""
    array = to_array(codes, "codes")
    if n_bits is None:
        n_bits = bits_of(codes)
    if n_bits is None and array.ndim == 2 and is_one_column_per_bit(array):
        n_bits, n_rows = int(array.shape[1]), len(array)
        if isinstance(codes, np.ndarray) and array.dtype == np.bool_ and n_rows == n_bits in _SIDES_OF_HASHES:
            raise ValueError(
                f"codes must have one row per item, got {n_bits} × {n_bits} booleans, which may be the hash of one "
                f"picture: give a list of ImageHash, or n_bits={n_bits} for {n_bits} codes of {n_bits} bits"
            )
    checked = check_codes(array, n_bits)
    return checked, 8 * checked.shape[1] if n_bits is None else n_bits


def check_labels(y: Any, n: int) -> npt.NDArray[Any]:
    """Class labels, one for each of n codes."""
    labels = check_classes(y, "y")
    if labels.shape != (n,):
        header = len(labels) == n + 1 and labels.dtype.kind == "U"
        hint = f": is the first, {labels[0]}, a header?" if header else ""
        raise ValueError(f"y must hold one label for each of the {n} codes, got shape {labels.shape}{hint}")
    return labels


def class_numbers(y: Any, n: int, fewest: int = 1) -> npt.NDArray[np.int64]:
    """Class labels of n rows as numbers from 0 on, or a ValueError where there are too few classes."""
    classes, numbers = np.unique(check_labels(y, n), return_inverse=True)
    if len(classes) < fewest:
        raise ValueError(f"y must hold at least {'two' if fewest == 2 else fewest} classes, got {len(classes)}")
    return numbers.astype(np.int64)


def check_classes(y: Any, name: str) -> npt.NDArray[Any]:
    """A vector of class labels: numbers or texts, all of one kind, none missing."""
    labels = np.asarray(y) if y is None else to_array(y, name)
    if labels.ndim != 1:
        raise ValueError(f"{name} must hold one label for each code, got {y if y is None else labels.shape}")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        row = int(np.argmin(np.isfinite(labels)))
        raise ValueError(f"{name} must be finite, got {labels[row]} in row {row}")
    if labels.dtype == object:
        for row, label in enumerate(labels):
            if label is None or label != label:
                raise ValueError(f"{name} must hold one label per code, got {label} in row {row}: leave such rows out")
            if type(label) is not type(labels[0]):
                raise ValueError(f"{name} must hold labels of one kind, got {labels[0]!r} and {label!r} in row {row}")
    return labels


def check_weights(
    weights: Any, n_bits: int | None = None, *, width: int | None = None, n_queries: int | None = None
) -> Weights:
    """Weights as float32: one vector, or one row per query."""
    array = as_float32(weights, "weights")
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
    if array.size and array.min() >= 0 and array.max() < np.inf:  # neither with a value that is not a number
        return array
    wrong = ~np.isfinite(array) | (array < 0)
    if wrong.any():
        at = np.unravel_index(int(wrong.argmax()), array.shape)
        where = f"bit {at[-1]}" if array.ndim == 1 else f"bit {at[-1]} of row {at[0]}"
        raise ValueError(f"weights must be finite and not negative, got {array[at]:g} for {where}")
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
    if isinstance(queries, Products) and weights is None:
        return split_products(queries)
    array = to_array(queries, "queries")
    plain = split_reals(array, n_bits) if weights is None else None
    if plain is not None:
        return plain
    magnitudes = None
    if are_reals(array, n_bits):
        magnitudes = check_reals(array, n_bits)
        array = np.packbits(array > 0, axis=1)
    codes = check_codes(array, n_bits, name="queries")
    weights = np.ones(n_bits, np.float32) if weights is None else weights
    rows = np.atleast_2d(check_weights(weights, n_bits, n_queries=len(codes)))
    if magnitudes is not None:
        with np.errstate(over="ignore"):  # check_weights refuses infinite weights
            rows = check_weights(rows * magnitudes)
    return codes, np.ascontiguousarray(rows)


def is_in_parts(queries: Any) -> bool:
    """Return whether queries are a plain tuple, (head, whole)."""
    return isinstance(queries, tuple) and not isinstance(queries, Queries | Products)


def check_parts(
    queries: Any, weights: npt.ArrayLike | None, n_bits: int, n_scanned: int
) -> tuple[tuple[Codes, Weights], tuple[Codes, Weights] | None]:
    """Heads of queries and whole ones, None where the heads rank alone."""
    if weights is not None:
        raise ValueError("weights must be None for queries in two parts, got both")
    if len(queries) != 2:
        raise ValueError(f"queries in parts must be a tuple of two, (head, whole), got {len(queries)}")
    head = check_queries(queries[0], None, n_scanned)
    if queries[1] is None:
        return head, None
    whole = check_queries(queries[1], None, n_bits)
    if len(head[0]) != len(whole[0]):
        raise ValueError(f"queries must have as many heads as whole ones, got {len(head[0])} and {len(whole[0])}")
    return head, whole


def are_reals(array: npt.NDArray[Any], n_bits: int) -> bool:
    """Return whether queries are reals: floats, or whole numbers of both signs with one column per bit."""
    if array.dtype.kind == "i" and array.ndim == 2 and array.shape[1] == n_bits:
        return bool((array < 0).any())
    return array.dtype.kind == "f"


def split_reals(array: npt.NDArray[Any], n_bits: int) -> tuple[Codes, Weights] | None:
    """Codes and magnitudes of finite float32 with signs, in one pass; None for what `check_reals` must look at."""
    if array.dtype != np.float32 or array.ndim != 2 or array.shape[1] != n_bits or not array.flags.c_contiguous:
        return None
    codes, magnitudes = np.empty((len(array), n_bytes(n_bits)), np.uint8), np.empty(array.shape, np.float32)
    return (codes, magnitudes) if _kernel.split_reals(array, codes, magnitudes) else None


def split_products(queries: Products) -> tuple[Codes, Weights]:
    """Codes and magnitudes of queries as products."""
    n, n_bits = len(queries.numbers), len(queries.columns)
    codes, magnitudes = np.empty((n, n_bytes(n_bits)), np.uint8), np.empty((n, n_bits), np.float32)
    _kernel.split_products(*queries[:3], codes, magnitudes)
    if queries.rounded:
        _kernel.round_to_exact_sums(magnitudes)
    return codes, magnitudes


def check_reals(array: npt.NDArray[Any], n_bits: int, name: str = "queries") -> Weights:
    """Magnitudes of queries that are reals, one column per bit, finite in float32."""
    if array.ndim != 2 or array.shape[1] != n_bits:
        one = ": for one query, give a matrix of one row" if array.shape == (n_bits,) else ""
        raise ValueError(f"{name} of reals must have shape (n_queries, {n_bits}), got {array.shape}{one}")
    magnitudes: Weights = np.abs(as_float32(array, name))
    wrong = ~np.isfinite(magnitudes)
    if wrong.any():
        row, bit = np.unravel_index(int(wrong.argmax()), array.shape)
        raise ValueError(f"{name} of reals must be finite in float32, got {array[row, bit]} in row {row}, bit {bit}")
    if n_bits >= 8 and (array == 1).any() and (array == 0).any() and ((array == 0) | (array == 1)).all():
        raise ValueError(
            f"{name} of reals must have signs, got only 0 and 1: they look like bits, so pack them with bitrank.pack"
        )
    return magnitudes


def check_finite(array: npt.NDArray[Any], name: str) -> None:
    """Refuse a matrix with a value that is not finite."""
    finite = np.isfinite(array)
    if not finite.all():
        row, column = np.unravel_index(int(finite.argmin()), array.shape)
        raise ValueError(f"{name} must be finite, got {array[row, column]} in row {row}, column {column}")


def check_ids(ids: Any, n: int | None = None, name: str = "ids") -> Ids:
    """Ids as an int64 vector, unique and not negative."""
    array = to_array(ids, name)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        texts = ": keep your texts in a list, and use row numbers as ids" if array.dtype.kind in "UO" else ""
        raise ValueError(f"{name} must be a vector of ints, got {array.dtype} of shape {array.shape}{texts}")
    if n is not None and len(array) != n:
        raise ValueError(f"{name} must have one value for each of the {n} codes, got {len(array)}")
    if array.size and (int(array.min()) < 0 or int(array.max()) > np.iinfo(np.int64).max):
        raise ValueError(f"{name} must be from 0 to 2**63 - 1, got {array.min()} to {array.max()}")
    array = array.astype(np.int64)
    if len(array) > 1 and not (np.diff(array) > 0).all():
        ordered = np.sort(array)
        repeated = ordered[1:][np.diff(ordered) == 0]
        if len(repeated):
            raise ValueError(f"{name} must be unique, got {repeated[0]} more than once")
    return array


def check_count(name: str, value: Any, least: int) -> int:
    """An int that is at least `least`."""
    if not isinstance(value, int | Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be an int of at least {least}, got {value!r}")
    return int(value)


def check_radius(radius: Any) -> float:
    """The largest float32 within a radius: distances are float32, so none lies between the two.

    Examples
    --------
    >>> check_radius(0.5), check_radius(0.1) <= 0.1
    (0.5, True)
    """
    number = float(radius) if isinstance(radius, Real) else np.nan
    if np.isnan(number):
        raise ValueError(f"radius must be a number, got {radius!r}")
    with np.errstate(over="ignore"):  # beyond float32 is infinite
        limit = np.float32(number)
    return float(limit if float(limit) <= number else np.nextafter(limit, np.float32(-np.inf)))


def check_method(method: Method, k: int, candidates: int | None, most: int | None = None) -> int | None:
    """Number of candidates to fetch and re-rank, at most `most`, or None for an exact search.

    Examples
    --------
    >>> check_method("exact", 10, None), check_method("rerank", 10, None), check_method("rerank", 10, 50)
    (None, 1000, 50)
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {METHODS}, got {method!r}")
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
    return check_count("threads", threads, 1)


def as_float32(values: Any, name: str) -> Weights:
    """Numbers as float32."""
    array = to_array(values, name)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be numbers, got {array.dtype} of shape {array.shape}")
    if array.dtype == np.float32:
        return array.copy()
    with np.errstate(over="ignore"):  # too large values become infinite, which the callers refuse
        return array.astype(np.float32)
