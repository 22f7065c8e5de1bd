"""`search`: exact top-k over a Dask array of codes, from one `Index` per block."""

from __future__ import annotations

from functools import partial

import dask
import dask.array as da
import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_count, check_queries
from bitrank.core.codes import merge
from bitrank.core.types import AnyQueries, Codes, Ids, Results, Weights
from bitrank.dask.blocks import blocks, check_column, check_dask_codes, merged
from bitrank.index import Index


def search(
    codes: da.Array,
    queries: AnyQueries,
    k: int,
    weights: npt.ArrayLike | None = None,
    *,
    n_bits: int | None = None,
    ids: da.Array | None = None,
) -> Results:
    """Find the k nearest rows of each query: the results of one `Index` of all codes, to the last bit.

    Parameters
    ----------
    codes : Dask array of uint8, of shape (n, ceil(n_bits / 8))
    queries : Queries, uint8 array of shape (n_queries, ceil(n_bits / 8)), or float array (n_queries, n_bits)
        In memory; as in `Index.search`.
    k : int
    weights : float array of shape (n_bits,) or (n_queries, n_bits), optional
        None is plain Hamming distance; must be None for `Queries`.
    n_bits : int, optional
        Eight per byte of `codes` by default.
    ids : Dask array of int64, of shape (n,), optional
        Unique and not negative; 0 to n - 1 by default. Repeated ids are refused within a block and within a result;
        other repetitions are not noticed, since all ids may not fit in memory.

    Returns
    -------
    results : as `bitrank.Index.search` returns them

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> codes = da.from_array(pack([[1, 0, 1], [1, 1, 0], [0, 0, 1]]), chunks=(2, 1))
    >>> search(codes, pack([[1, 0, 0]]), k=2, weights=[4, 2, 1], n_bits=3)
    Results(ids=array([[0, 1]]), distances=array([[1., 2.]], dtype=float32))
    """
    codes, n_bits = check_dask_codes(codes, n_bits)
    k = check_count("k", k, 1)
    checked = check_queries(queries, weights, n_bits)
    ids = da.arange(len(codes), chunks=(codes.chunks[0],)) if ids is None else check_column(ids, "ids", codes)
    shared = dask.delayed(checked, traverse=False)
    task = dask.delayed(_search_block)
    parts = [task(*block, shared, k, n_bits) for block in zip(blocks(codes), blocks(ids), strict=True)]
    return Results(*merged(parts, partial(_merge, k=k)))


def _search_block(codes: Codes, ids: Ids, checked: tuple[Codes, Weights], k: int, n_bits: int) -> Results:
    query_codes, rows = checked
    if len(rows) == 1:
        index = Index(codes, n_bits=n_bits, ids=ids, weights=rows[0])
        return index.search(query_codes, k, threads=1)  # Dask runs one task per core
    return Index(codes, n_bits=n_bits, ids=ids).search(query_codes, k, rows, threads=1)


def _merge(parts: list[Results], k: int) -> Results:
    results = merge(parts, k)
    ordered = np.sort(results.ids, axis=1)
    repeated = ordered[:, 1:][(ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)]
    if len(repeated):
        raise ValueError(f"ids must be unique, got {repeated[0]} more than once")
    return results
