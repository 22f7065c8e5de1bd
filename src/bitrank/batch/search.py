"""`search`: exact top-k over a Dask array of codes, an `Index` a block, merged with ties by id.

The end of the path of data at scale: the answer is what one `Index` of all codes would give, to the last bit.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import numpy.typing as npt

from bitrank.batch.blocks import blocks, check_codes, check_column, merged
from bitrank.codes import nearest
from bitrank.index import Index
from bitrank.vocabulary import Codes, Ids, Results, Weights


def search(
    codes: da.Array,
    queries: npt.NDArray[Any],
    k: int,
    weights: npt.ArrayLike | None = None,
    *,
    n_bits: int | None = None,
    ids: da.Array | None = None,
) -> Results:
    """The k nearest rows of each query.

    Parameters
    ----------
    codes : Dask array of uint8, of shape (n, ceil(n_bits / 8))
    queries : uint8 array of shape (n_queries, ceil(n_bits / 8)), or float array of shape (n_queries, n_bits)
        In memory; as in `Index.search`.
    k : int
    weights : float array of shape (n_bits,) or (n_queries, n_bits), optional
        None is plain Hamming distance.
    n_bits : int, optional
        Eight a byte of `codes` by default.
    ids : Dask array of int64, of shape (n,), optional
        Unique and not negative; 0 to n - 1 by default. Looking for repetitions in all of them would take them into
        memory: they are refused within a block and where they meet in a result.

    Returns
    -------
    results : named tuple of arrays ``(ids, distances)`` of shape (n_queries, k)
        Nearest first, ties by id, padded with -1 and inf where fewer than k rows are there.

    Examples
    --------
    >>> from bitrank.codes import pack
    >>> codes = da.from_array(pack([[1, 0, 1], [1, 1, 0], [0, 0, 1]]), chunks=(2, 1))
    >>> search(codes, pack([[1, 0, 0]]), k=2, weights=[4, 2, 1], n_bits=3)
    Results(ids=array([[0, 1]]), distances=array([[1., 2.]], dtype=float32))
    """
    codes, n_bits = check_codes(codes, n_bits)
    # An empty index refuses bad queries, weights and k here, before any work is sent out.
    Index(n_bits=n_bits).search(queries, k, weights)
    ids = da.arange(len(codes), chunks=(codes.chunks[0],)) if ids is None else check_column(ids, "ids", codes)
    rows = None if weights is None else np.asarray(weights, np.float32)
    asked = dask.delayed((np.asarray(queries), rows), traverse=False)
    task = dask.delayed(_search_block)
    parts = [task(*block, asked, k, n_bits) for block in zip(blocks(codes), blocks(ids), strict=True)]
    return Results(*merged(parts, partial(_merge, k=k)))


def _search_block(
    codes: Codes, ids: Ids, asked: tuple[npt.NDArray[Any], Weights | None], k: int, n_bits: int
) -> Results:
    queries, weights = asked
    own = weights if weights is not None and weights.ndim == 1 else None
    # The cores are Dask's to give: a task keeps to one.
    return Index(codes, n_bits=n_bits, ids=ids, weights=own).search(queries, k, weights, threads=1)


def _merge(parts: list[Results], k: int) -> Results:
    ids = np.concatenate([part.ids for part in parts], axis=1)
    found = nearest(ids, np.concatenate([part.distances for part in parts], axis=1), k)
    ordered = np.sort(found.ids, axis=1)
    repeated = ordered[:, 1:][(ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)]
    if len(repeated):
        raise ValueError(f"ids must be unique, got {repeated[0]} more than once")
    return found
