"""Indexes from .npy files, FAISS binary indexes and Parquet columns, and back.

FAISS and PyArrow are extras, imported when a function needs them.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.core.arrays import binary_of, matrix_of
from bitrank.core.files import replacing
from bitrank.core.lazy import import_extra
from bitrank.core.types import Codes, Ids
from bitrank.index.index import Index

Path = str | os.PathLike[str]


def from_file(
    path: Path,
    *,
    n_bits: int | None = None,
    ids: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    column: str = "code",
    id_column: str | None = None,
) -> Index:
    """Build an index of the packed codes in a file: .npy, .parquet or, with any other suffix, a FAISS binary index.

    Parameters
    ----------
    path : path of the file
    n_bits : int, optional
        Eight per byte by default; a FAISS index has its own.
    ids : int array of shape (n,), optional
        For codes in a .npy file only; the other two hold their ids.
    weights : float array of shape (n_bits,), optional
    column, id_column : str
        Parquet columns of the codes and, optionally, of their ids.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> np.save("codes.npy", pack([[1, 0], [0, 1]]))
    >>> from_file("codes.npy", n_bits=2, ids=[5, 6]).ids
    array([5, 6])
    """
    suffix = os.path.splitext(path)[1]
    if suffix == ".npy":
        return from_npy(path, n_bits=n_bits, ids=ids, weights=weights)
    if ids is not None:
        raise ValueError(f"ids must be None unless the codes are in a .npy file, got ids for {os.fspath(path)}")
    if suffix == ".parquet":
        return from_parquet(path, column, id_column=id_column, n_bits=n_bits, weights=weights)
    return from_faiss(path, weights=weights)


def from_npy(
    path: Path, *, n_bits: int | None = None, ids: npt.ArrayLike | None = None, weights: npt.ArrayLike | None = None
) -> Index:
    """Build an index of the packed codes in a .npy file.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> np.save("codes.npy", pack([[1, 0], [0, 1]]))
    >>> from_npy("codes.npy")
    Index(2 codes of 8 bits, plain)
    """
    codes = np.load(path, mmap_mode="r", allow_pickle=False)
    return Index(codes.view(np.ndarray), n_bits=n_bits, ids=ids, weights=weights)


def to_npy(index: Index, path: Path) -> None:
    """Write the codes of an index to a .npy file, by ascending id: the order of `index.ids`.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> to_npy(Index(pack([[1, 0], [0, 1]])), "codes.npy")
    >>> np.load("codes.npy")
    array([[128],
           [ 64]], dtype=uint8)
    """
    with replacing(path) as file:
        np.save(file, _by_id(index)[0], allow_pickle=False)


def from_faiss(source: Any, *, weights: npt.ArrayLike | None = None) -> Index:
    """Build an index of the codes in a FAISS binary index, an object or a file.

    Parameters
    ----------
    source : faiss.IndexBinary, str or path
        `IndexBinaryFlat` or `IndexBinaryHNSW`, or one of them in an `IndexBinaryIDMap`.
    weights : float array of shape (n_bits,), optional

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> from_faiss(to_faiss(Index(pack([[1, 0], [0, 1]]), ids=[5, 6]))).ids
    array([5, 6])
    """
    faiss = import_extra("faiss", "faiss")
    outer = faiss.read_index_binary(os.fspath(source)) if isinstance(source, (str, os.PathLike)) else source
    inner, ids = faiss.downcast_IndexBinary(outer), None
    if isinstance(inner, (faiss.IndexBinaryIDMap, faiss.IndexBinaryIDMap2)):
        ids = faiss.vector_to_array(inner.id_map)
        inner = faiss.downcast_IndexBinary(inner.index)
    if isinstance(inner, faiss.IndexBinaryHNSW):
        inner = faiss.downcast_IndexBinary(inner.storage)
    if not isinstance(inner, faiss.IndexBinaryFlat):
        raise ValueError(f"source must be an IndexBinaryFlat, IndexBinaryHNSW or IDMap of one, got {type(inner)}")
    codes = faiss.vector_to_array(inner.xb).reshape(inner.ntotal, inner.code_size)
    return Index(codes, n_bits=inner.d, ids=ids, weights=weights)


def to_faiss(index: Index) -> Any:
    """Build a FAISS `IndexBinaryIDMap` of an `IndexBinaryFlat` with the same codes and ids.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> to_faiss(Index(pack([[1, 0], [0, 1]]))).ntotal
    2
    """
    faiss = import_extra("faiss", "faiss")
    codes, ids = _by_id(index)
    out = faiss.IndexBinaryIDMap(faiss.IndexBinaryFlat(8 * codes.shape[1]))
    out.add_with_ids(codes, ids)
    return out


def from_parquet(
    path: Path,
    column: str = "code",
    *,
    id_column: str | None = None,
    n_bits: int | None = None,
    weights: npt.ArrayLike | None = None,
) -> Index:
    """Build an index of a Parquet column of packed codes: binary values of one length, or lists of uint8.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> to_parquet(Index(pack([[1, 0], [0, 1]]), ids=[5, 6]), "codes.parquet")
    >>> from_parquet("codes.parquet", id_column="id").ids
    array([5, 6])
    """
    arrow = import_extra("pyarrow", "parquet")
    parquet = import_extra("pyarrow.parquet", "parquet")
    columns = [column] if id_column is None else [column, id_column]
    missing = set(columns) - set(parquet.read_schema(path).names)
    if missing:
        raise ValueError(f"the file must have the columns {columns}, got none named {sorted(missing)[0]!r}")
    table = parquet.read_table(path, columns=columns)
    if len(table) == 0 or any(table[name].null_count for name in columns):
        raise ValueError(f"the columns {columns} must have values and no nulls, got none or nulls")
    codes = matrix_of(arrow.concat_arrays(table[column].chunks), column)
    if codes.dtype != np.uint8:
        raise ValueError(f"the column {column!r} must hold binary values or lists of uint8, got {table[column].type}")
    ids = None if id_column is None else table[id_column].to_numpy()
    return Index(codes, n_bits=n_bits, ids=ids, weights=weights)


def to_parquet(index: Index, path: Path, column: str = "code", id_column: str = "id") -> None:
    """Write codes as binary values, with their ids, to a Parquet file, by ascending id.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> to_parquet(Index(pack([[1, 0], [0, 1]])), "codes.parquet")
    """
    arrow = import_extra("pyarrow", "parquet")
    codes, ids = _by_id(index)
    table = arrow.table({id_column: ids, column: binary_of(codes)})
    with replacing(path) as file:
        import_extra("pyarrow.parquet", "parquet").write_table(table, file)


def _by_id(index: Index) -> tuple[Codes, Ids]:
    codes, ids = index.export()
    order = np.argsort(ids)
    return np.ascontiguousarray(codes[order]), ids[order]
