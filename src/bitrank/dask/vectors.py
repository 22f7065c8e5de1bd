"""`encode`: vectors of a Dask array into packed codes, block by block."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import numpy.typing as npt

from bitrank.core.types import Codes, n_bytes
from bitrank.dask.blocks import check_dask_array
from bitrank.hashing.hasher import Hasher


def encode(hasher: Hasher, X: da.Array) -> da.Array:
    """Encode vectors as packed codes, lazily: `hasher.transform` of each block.

    Parameters
    ----------
    hasher : a fitted hasher
    X : Dask array of shape (n, n_features)

    Returns
    -------
    codes : Dask array of uint8, of shape (n, ceil(n_bits / 8)), with the row chunks of X

    Examples
    --------
    >>> from bitrank import SignBits
    >>> X = np.random.default_rng(0).normal(size=(1000, 16))
    >>> hasher = SignBits().fit(X[:100])
    >>> encode(hasher, da.from_array(X, chunks=(250, 16)))
    dask.array<_transform, shape=(1000, 2), dtype=uint8, chunksize=(250, 2), chunktype=numpy.ndarray>
    """
    X = check_dask_array(X, "X", 2)
    if X.shape[1] != hasher.n_features_in_:
        raise ValueError(f"X must have the {hasher.n_features_in_} features of the hasher, got {X.shape[1]}")
    width = n_bytes(hasher.n_bits_)
    # Delayed, the hasher is one entry of the graph instead of one per block.
    shared = dask.delayed(hasher, traverse=False)
    return X.map_blocks(
        _transform, hasher=shared, chunks=(X.chunks[0], (width,)), dtype=np.uint8, meta=np.empty((0, 0), np.uint8)
    )


def _transform(block: npt.NDArray[Any], hasher: Hasher) -> Codes:
    return hasher.transform(block) if len(block) else np.empty((0, n_bytes(hasher.n_bits_)), np.uint8)
