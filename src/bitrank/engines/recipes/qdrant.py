"""Qdrant: bits as vectors of -1 and 1, scored by the dot product."""

from __future__ import annotations

import numpy.typing as npt

from bitrank.core.checks import check_count
from bitrank.core.codes import signs
from bitrank.core.types import Codes, Method
from bitrank.engines.recipes.bodies import Json, check_code, check_search, signed_weights


def qdrant_collection(n_bits: int) -> Json:
    """Write the body that creates a Qdrant collection: bits as -1 and 1 on disk, one bit each in memory.

    Examples
    --------
    >>> qdrant_collection(98)["vectors"]["size"]
    98
    """
    check_count("n_bits", n_bits, 1)
    return {
        "vectors": {"size": n_bits, "distance": "Dot", "datatype": "float16", "on_disk": True},
        "quantization_config": {"binary": {"always_ram": True}},
    }


def qdrant_point(row: int, code: Codes, n_bits: int) -> Json:
    """Write one row as a point of Qdrant.

    Examples
    --------
    >>> import numpy as np
    >>> qdrant_point(7, np.uint8([0b10100000]), 3)
    {'id': 7, 'vector': [1.0, -1.0, 1.0]}
    """
    return {"id": int(row), "vector": signs(check_code(code, n_bits)[None], n_bits)[0].tolist()}


def qdrant_search(
    query: Codes, k: int, weights: npt.ArrayLike, *, method: Method = "exact", candidates: int | None = None
) -> Json:
    """Write the body of `points/query`: the dot product of the weights, signed as the query's bits, with -1 and 1.

    Parameters are those of `elasticsearch_search`. For "rerank" Qdrant finds the candidates by their bits and scores
    them again by their vectors. A point's score is the sum of all weights less twice its distance, exact for whole
    numbers up to 2048, since vectors are float16.

    Examples
    --------
    >>> import numpy as np
    >>> qdrant_search(np.uint8([0b10100000]), 2, [4, 2, 1])
    {'query': [4.0, -2.0, 1.0], 'limit': 2, 'params': {'exact': True, 'quantization': {'ignore': True}}}
    """
    code, row, n_candidates = check_search(query, k, weights, method, candidates)
    params: Json = {"exact": True, "quantization": {"ignore": True}}
    if n_candidates is not None:
        params = {"quantization": {"rescore": True, "oversampling": max(1.0, n_candidates / k)}}
    return {"query": signed_weights(code, row).tolist(), "limit": k, "params": params}
