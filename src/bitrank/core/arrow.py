"""Packed codes and vectors as Arrow arrays, and back. PyArrow is an extra, imported when a function needs it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.core.lazy import import_extra
from bitrank.core.types import Codes


def binary_of(codes: Codes) -> Any:
    """Codes as an Arrow array of binary values, the inverse of `matrix_of`."""
    arrow = import_extra("pyarrow", "parquet")
    codes = np.ascontiguousarray(codes)
    kind = arrow.binary(codes.shape[1])
    return arrow.FixedSizeBinaryArray.from_buffers(kind, len(codes), [None, arrow.py_buffer(codes)])


def matrix_of(values: Any, column: str) -> npt.NDArray[Any]:
    """An Arrow array of binary values or of lists of numbers, all of one length, as a matrix with one row per value."""
    arrow, compute = import_extra("pyarrow", "parquet"), import_extra("pyarrow.compute", "parquet")
    kind = values.type
    if arrow.types.is_binary(kind) or arrow.types.is_large_binary(kind):
        width = len(values[0].as_py())
        try:
            values = values.cast(arrow.binary(width))
        except arrow.ArrowInvalid:
            raise ValueError(f"codes of the column {column!r} must have one length, got others than {width}") from None
        kind = values.type
    if arrow.types.is_fixed_size_binary(kind):
        width = kind.byte_width
        flat = np.frombuffer(values.buffers()[1], np.uint8)
        return flat[values.offset * width :][: len(values) * width].reshape(len(values), width)
    if not hasattr(values, "flatten") or not arrow.types.is_primitive(kind.value_type):
        raise ValueError(f"the column {column!r} must hold binary values or lists of numbers, got {kind}")
    lengths = compute.min_max(compute.list_value_length(values)).as_py()
    if lengths["min"] != lengths["max"]:
        raise ValueError(
            f"lists of the column {column!r} must have one length, got {lengths['min']} to {lengths['max']}"
        )
    matrix: npt.NDArray[Any] = values.flatten().to_numpy(zero_copy_only=False).reshape(len(values), lengths["min"])
    return matrix
