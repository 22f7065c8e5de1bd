"""Parquet folders as Dask arrays, with one block per row group, and back."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import numpy.typing as npt
import pyarrow
import pyarrow.dataset
import pyarrow.parquet

from bitrank.core.arrays import binary_of, matrix_of
from bitrank.core.files import replacing
from bitrank.dask.blocks import blocks, check_dask_array


def from_parquet(path: str | os.PathLike[str], column: str = "code") -> da.Array:
    """Read a column of a Parquet file, or of a folder of them in the order of their names, as a Dask array.

    Parameters
    ----------
    path : str or path
        A path that exists on this machine and on every worker, or a URI that PyArrow knows: ``s3://bucket/codes``.
    column : str
        Binary values of one length (codes), lists of numbers of one length (vectors), or numbers (ids, labels).

    Returns
    -------
    array : Dask array of shape (n, width), or (n,) for a column of numbers
        One block per row group, read by the task that needs it.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> to_parquet({"code": da.from_array(pack([[1, 0], [0, 1], [1, 1]]), chunks=(2, 1))}, "codes")
    >>> from_parquet("codes").compute()
    array([[128],
           [ 64],
           [192]], dtype=uint8)
    """
    source = os.fspath(path)
    # Workers have other working directories.
    dataset = pyarrow.dataset.dataset(source if "://" in source else os.path.abspath(source), format="parquet")
    if column not in dataset.schema.names:
        raise ValueError(f"the files must have a column {column!r}, got {dataset.schema.names}")
    files = sorted(dataset.get_fragments(), key=lambda file: file.path)
    # num_rows is that of the row group; count_rows() would return that of the file.
    groups = [group for file in files for group in file.split_by_row_group() if group.row_groups[0].num_rows]
    if not groups:
        raise ValueError(f"the files of {source} must hold at least one row, got none")
    first = _values(groups[0].head(1, columns=[column]), column)
    read = dask.delayed(_read, pure=False)
    parts = [
        da.from_delayed(
            read(group, column, first.shape[1:], first.dtype),
            shape=(group.row_groups[0].num_rows, *first.shape[1:]),
            dtype=first.dtype,
        )
        for group in groups
    ]
    return da.concatenate(parts)


def to_parquet(columns: Mapping[str, da.Array], path: str | os.PathLike[str]) -> None:
    """Write Dask arrays of one length as the columns of a new Parquet folder, with one file per block.

    The folder appears when it is complete.

    Parameters
    ----------
    columns : dict of Dask arrays
        Matrices of uint8 become binary values, other matrices lists, vectors plain columns.
    path : str or path
        A new folder, on a file system that this machine and the workers share.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> codes = da.from_array(pack([[1, 0], [0, 1], [1, 1]]), chunks=(2, 1))
    >>> to_parquet({"id": da.arange(3), "code": codes}, "codes-with-ids")
    >>> sorted(os.listdir("codes-with-ids"))
    ['part-000000.parquet', 'part-000001.parquet']
    """
    target = Path(path).absolute()
    if target.exists():
        raise ValueError(f"path must be a new folder, got {target}, which exists")
    if not columns:
        raise ValueError("columns must name at least one array, got none")
    arrays = {name: check_dask_array(array, name, 1 if array.ndim == 1 else 2) for name, array in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"columns must have one length, got {lengths}")
    # Files have the rows of the blocks of the widest column.
    rows = max(arrays.values(), key=lambda array: array.ndim).chunks[0]
    parts = [blocks(array.rechunk({0: rows})) for array in arrays.values()]
    folder = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    folder.mkdir(parents=True)
    try:
        write = dask.delayed(_write, pure=False)
        names = list(arrays)
        dask.compute(
            [
                write(dict(zip(names, part, strict=True)), str(folder / f"part-{number:06}.parquet"))
                for number, part in enumerate(zip(*parts, strict=True))
            ]
        )
        for temporary in folder.glob(".*"):  # of workers that died during a write
            temporary.unlink()
        folder.rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read(group: Any, column: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    values = _values(group.to_table(columns=[column], use_threads=False), column)
    if values.shape[1:] != shape or values.dtype != dtype:
        raise ValueError(
            f"the column {column!r} must hold {dtype} of shape {shape} in every file, "
            f"got {values.dtype} of shape {values.shape[1:]} in {group.path}"
        )
    return values


def _values(table: Any, column: str) -> npt.NDArray[Any]:
    values = table[column].combine_chunks()
    if values.null_count:
        raise ValueError(f"the column {column!r} must hold no nulls")
    if pyarrow.types.is_integer(values.type) or pyarrow.types.is_floating(values.type):
        numbers: npt.NDArray[Any] = values.to_numpy()
        return numbers
    return matrix_of(values, column)


def _write(columns: dict[str, npt.NDArray[Any]], path: str) -> None:
    table = pyarrow.table({name: _column(array) for name, array in columns.items()})
    # A task may run on two workers: each writes a temporary file, and either may replace the target.
    with replacing(path) as file:
        pyarrow.parquet.write_table(table, file, row_group_size=max(1, len(table)))


def _column(array: npt.NDArray[Any]) -> Any:
    if array.ndim == 1:
        return pyarrow.array(array)
    if array.dtype == np.uint8:
        return binary_of(array)
    return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(np.ascontiguousarray(array).ravel()), array.shape[1])
