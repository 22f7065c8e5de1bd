"""NumPy arrays of what people have: data frames and their columns, Arrow, tensors of any library, rows of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.core.lazy import import_extra
from bitrank.core.types import Codes

_READ_ERRORS = (TypeError, ValueError, RuntimeError, BufferError, AttributeError)


def to_array(values: Any, name: str = "values") -> npt.NDArray[Any]:
    """Read an array, without a copy where that is possible.

    Parameters
    ----------
    values : anything that holds numbers or texts
        NumPy arrays, also memory-mapped; lists; pandas and polars frames and series; Arrow arrays; tensors of PyTorch,
        JAX and others in the memory of the host (DLPack). A column whose values are lists, arrays or bytes of one
        length becomes a matrix with one row per value. A list of ImageHash, or of RDKit's ExplicitBitVect, becomes a
        matrix of booleans.
    name : str
        What errors call the values.

    Examples
    --------
    >>> to_array([b"ab", b"cd"])
    array([[ 97,  98],
           [ 99, 100]], dtype=uint8)
    """
    if type(values) is np.ndarray and values.dtype.kind in "biuf":
        return values
    if isinstance(values, str):
        raise ValueError(f"{name} must be an array, got the text {values!r:.60}: read a file first, as np.load does")
    if np.ma.is_masked(values):
        n_masked = np.ma.count_masked(values)
        raise ValueError(f"{name} must not be masked, got {n_masked} masked values: fill them, or leave their rows out")
    if type(values).__module__.partition(".")[0] == "pyarrow":
        array = _from_arrow(values, name)
    elif isinstance(values, list | tuple) and len(values) and _is_code(values[0]):
        array = _stacked(list(values), name)
    else:
        array = _read(values, name)
    if array.dtype.kind == "S":
        array = array[..., None].view(np.uint8) if array.ndim == 1 else array
    if array.dtype != object:
        return array
    if array.ndim == 1 and len(array):
        return _from_objects(array, name)
    if array.ndim == 2 and array.size:
        return _of_one_kind(array, name)
    if array.ndim == 0:
        hint = "call .toarray() first" if hasattr(values, "toarray") else "give rows of numbers"
        raise ValueError(f"{name} must be an array, got {type(values).__name__}: {hint}")
    return array


def to_rows(values: Any, name: str) -> Any:
    """Read a column of vectors; return frames, matrices and everything else for scikit-learn to read.

    Examples
    --------
    >>> to_rows([[1.5, 2.0], [3.0, 4.0]], "X")
    [[1.5, 2.0], [3.0, 4.0]]
    """
    package, shape = type(values).__module__.partition(".")[0], getattr(values, "shape", None)
    if package == "pyarrow" or (package in ("pandas", "polars") and len(shape or ()) == 1):
        return to_array(values, name)
    return values


def _read(values: Any, name: str) -> npt.NDArray[Any]:
    try:
        if hasattr(values, "detach"):  # a tensor that requires a gradient cannot be exported
            values = values.detach()
        if hasattr(values, "__dlpack__") and not isinstance(values, np.ndarray | np.generic):
            return np.from_dlpack(values)
        return np.asarray(values)
    except _READ_ERRORS as error:
        if isinstance(values, list | tuple):
            lengths = sorted({len(row) if hasattr(row, "__len__") else 0 for row in values})
            raise ValueError(f"{name} must have rows of one length, got lengths {lengths}") from None
        kind = f"{type(values).__module__.partition('.')[0]} {type(values).__name__}"
        of = ", ".join(str(getattr(values, fact)) for fact in ("dtype", "device") if hasattr(values, fact))
        raise ValueError(
            f"{name} must be an array that NumPy can read, got {kind}{f' of {of}' if of else ''}: "
            f"move it to the host as a plain dtype first, such as x.float().cpu() in PyTorch ({error})"
        ) from None


def _from_arrow(values: Any, name: str) -> npt.NDArray[Any]:
    if hasattr(values, "column_names"):
        raise ValueError(f"{name} must be one Arrow column, got a {type(values).__name__} of {values.column_names}")
    if hasattr(values, "combine_chunks"):
        values = values.combine_chunks()
    if hasattr(values, "chunks"):  # combine_chunks of old PyArrow
        values = values.chunk(0)
    if values.null_count:
        raise ValueError(f"{name} must have no nulls, got {values.null_count} of {len(values)}")
    kind = str(values.type)
    if len(values) and ("list" in kind or "binary" in kind):
        return matrix_of(values, name)
    array: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return array


def _from_objects(array: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """Texts as texts, values that are rows as a matrix, and everything else as it is, for the caller to refuse."""
    values = array.tolist()
    kinds = {type(value) for value in values}
    if kinds <= {str, np.str_}:
        return array.astype(np.str_)
    if any(hasattr(value, "__len__") and not isinstance(value, str) for value in values):
        return _stacked(values, name)
    return array


def _stacked(values: list[Any], name: str) -> npt.NDArray[Any]:
    rows: list[npt.NDArray[Any]] = []
    row: npt.NDArray[Any]
    for number, value in enumerate(values):
        if _is_code(value):
            row = _bits_of_code(value)
        elif isinstance(value, dict):
            raise ValueError(f"{name} must be one column, got rows of {sorted(value)}: choose one of them")
        else:
            row = np.asarray(value)
        if row.ndim != 1 or (rows and row.shape != rows[0].shape):
            wanted = f"rows of one length, {len(rows[0])} as in row 0" if rows else "rows of numbers"
            got = repr(value) if row.ndim == 0 else f"shape {row.shape}"
            raise ValueError(f"{name} must have {wanted}, got {got} in row {number}")
        rows.append(row)
    return np.stack(rows)


def _is_code(value: Any) -> bool:
    return isinstance(value, bytes | bytearray | memoryview) or type(value).__name__ in ("ImageHash", "ExplicitBitVect")


def _bits_of_code(value: Any) -> npt.NDArray[Any]:
    """Bytes as they are; the bits of an ImageHash, row by row, and of RDKit's ExplicitBitVect as booleans."""
    if isinstance(value, bytes | bytearray | memoryview):
        return np.frombuffer(value, np.uint8)
    if type(value).__name__ == "ImageHash":
        return np.asarray(value.hash, bool).ravel()
    text = import_extra("rdkit.DataStructs", "molecules").BitVectToBinaryText(value)
    return np.unpackbits(np.frombuffer(text, np.uint8), count=len(value), bitorder="little").astype(bool)


def _of_one_kind(array: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """A frame of columns of several kinds, as numbers if all of them are."""
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError):
        bad = next(value for value in array.ravel().tolist() if not isinstance(value, int | float))
        raise ValueError(f"{name} must hold numbers only, got {bad!r}: choose the columns of numbers") from None


# Arrow: PyArrow is an extra, imported when a function needs it --------------------------------------------------------


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
