"""Checks of Dask arrays, their blocks as delayed values, and the tree that merges the results of blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np

from bitrank.core.types import n_bytes

# Results per merge: a worker holds this many, never those of all blocks.
FAN_IN = 8


def check_dask_array(array: Any, name: str, ndim: int) -> da.Array:
    """A Dask array with whole rows and chunks of known size."""
    if not isinstance(array, da.Array):
        raise ValueError(f"{name} must be a Dask array, got {type(array).__name__}: see bitrank.dask.from_parquet")
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got shape {array.shape}")
    if any(np.isnan(size) for sizes in array.chunks for size in sizes):
        raise ValueError(f"{name} must have chunks of known size, got unknown ones: call compute_chunk_sizes() first")
    if len(array) == 0:
        raise ValueError(f"{name} must hold at least one row, got none")
    return array if ndim == 1 else array.rechunk({1: -1})


def check_dask_codes(codes: Any, n_bits: int | None) -> tuple[da.Array, int]:
    """A Dask array of packed codes, and their number of bits: `n_bits`, or eight per byte."""
    codes = check_dask_array(codes, "codes", 2)
    if codes.dtype != np.uint8 or codes.shape[1] == 0:
        raise ValueError(f"codes must be a packed uint8 matrix, got {codes.dtype} of shape {codes.shape}")
    n_bits = 8 * codes.shape[1] if n_bits is None else n_bits
    if n_bits < 1 or codes.shape[1] != n_bytes(n_bits):
        raise ValueError(f"codes of {n_bits} bits must be {n_bytes(n_bits)} bytes wide, got {codes.shape[1]}")
    return codes, n_bits


def check_column(values: Any, name: str, codes: da.Array) -> da.Array:
    """A Dask array with one value per code, in the same blocks."""
    values = check_dask_array(values, name, 1)
    if len(values) != len(codes):
        raise ValueError(f"{name} must hold one value for each of the {len(codes)} codes, got {len(values)}")
    return values.rechunk((codes.chunks[0],))


def blocks(array: da.Array) -> list[Any]:
    """The blocks of an array, by rows, as delayed values."""
    return list(array.to_delayed().ravel())


def merged(parts: Sequence[Any], merge: Callable[[list[Any]], Any]) -> Any:
    """Merge the results of all blocks in a tree, on the workers, and compute the result."""
    parts = list(parts)
    join = dask.delayed(merge)
    while len(parts) > 1:
        parts = [join(parts[start : start + FAN_IN]) for start in range(0, len(parts), FAN_IN)]
    return dask.compute(parts[0])[0]
