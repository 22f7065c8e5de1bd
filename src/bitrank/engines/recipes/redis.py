"""Redis: bits as INT8 vectors of -1 and 1 in a FLAT index, scored by the inner product."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_count
from bitrank.core.codes import signs
from bitrank.core.types import Codes
from bitrank.engines.planes import check_whole
from bitrank.engines.recipes.bodies import check_code, check_search, signed_weights


def redis_create(n_bits: int, *, index: str = "codes", prefix: str = "code:") -> list[str]:
    """Write the arguments of `FT.CREATE` (Redis 8): bits as -1 and 1 in bytes, for `FLAT`, which is exact.

    Examples
    --------
    >>> " ".join(redis_create(98))
    'FT.CREATE codes ON HASH PREFIX 1 code: SCHEMA code VECTOR FLAT 6 TYPE INT8 DIM 98 DISTANCE_METRIC IP'
    """
    check_count("n_bits", n_bits, 1)
    kind = ["VECTOR", "FLAT", "6", "TYPE", "INT8", "DIM", str(n_bits), "DISTANCE_METRIC", "IP"]
    return ["FT.CREATE", index, "ON", "HASH", "PREFIX", "1", prefix, "SCHEMA", "code", *kind]


def redis_document(row: int, code: Codes, n_bits: int, *, prefix: str = "code:") -> list[str | bytes]:
    """Write the arguments of `HSET` for one row.

    Examples
    --------
    >>> redis_document(7, np.uint8([0b10100000]), 3)
    ['HSET', 'code:7', 'code', b'\\x01\\xff\\x01']
    """
    values = signs(check_code(code, n_bits)[None], n_bits)[0].astype(np.int8)
    return ["HSET", f"{prefix}{int(row)}", "code", values.tobytes()]


def redis_search(query: Codes, k: int, weights: npt.ArrayLike, *, index: str = "codes") -> list[str | bytes]:
    """Write the arguments of `FT.SEARCH`: the inner product with the weights, signed as the query's bits.

    Weights must be whole numbers up to 127, as ``quantize_weights(weights, bits=7)`` returns them. The field `distance`
    of a result is 1 less the sum of all weights plus twice the weighted Hamming distance.

    Examples
    --------
    >>> redis_search(np.uint8([0b10100000]), 2, [4, 2, 1])[2:7]
    ['*=>[KNN 2 @code $q AS distance]', 'PARAMS', '2', 'q', b'\\x04\\xfe\\x01']
    """
    code, row, _ = check_search(query, k, weights)
    if check_whole(row).max() > 127:
        raise ValueError(f"weights for Redis must be whole numbers up to 127, got {row.max():.0f}")
    vector = signed_weights(code, row).astype(np.int8).tobytes()
    knn = f"*=>[KNN {k} @code $q AS distance]"
    options = ["SORTBY", "distance", "RETURN", "1", "distance", "LIMIT", "0", str(k), "DIALECT", "2"]
    return ["FT.SEARCH", index, knn, "PARAMS", "2", "q", vector, *options]
