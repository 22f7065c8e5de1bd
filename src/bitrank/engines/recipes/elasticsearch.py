"""Elasticsearch: codes as a `bit` vector, scored by a script."""

from __future__ import annotations

import numpy.typing as npt

from bitrank.core.checks import check_count
from bitrank.core.types import Codes, Method, n_bytes
from bitrank.engines.recipes.bodies import Json, check_code, check_search, hits, mask_values


def elasticsearch_mapping(n_bits: int, *, field: str = "code") -> Json:
    """Write the mapping of an Elasticsearch index with ids and codes as a `bit` vector.

    Examples
    --------
    >>> elasticsearch_mapping(98)["mappings"]["properties"]["code"]["dims"]
    104
    """
    check_count("n_bits", n_bits, 1)
    vector = {"type": "dense_vector", "element_type": "bit", "dims": 8 * n_bytes(n_bits), "similarity": "l2_norm"}
    return {"mappings": {"properties": {"id": {"type": "long"}, field: vector | {"index_options": {"type": "hnsw"}}}}}


def elasticsearch_document(row: int, code: Codes, *, field: str = "code") -> Json:
    """Write one row as a document of Elasticsearch, the code in hexadecimal.

    Examples
    --------
    >>> import numpy as np
    >>> elasticsearch_document(7, np.uint8([129, 0]))
    {'id': 7, 'code': '8100'}
    """
    return {"id": int(row), field: check_code(code, None).tobytes().hex()}


def elasticsearch_search(
    query: Codes,
    k: int,
    weights: npt.ArrayLike,
    *,
    method: Method = "exact",
    candidates: int | None = None,
    field: str = "code",
) -> Json:
    """Write the body of `_search`: `dotProduct` sums the weights, signed as the query's bits, over the stored ones.

    Parameters
    ----------
    query : uint8 array of shape (ceil(n_bits / 8),)
    k : int
    weights : float array of shape (n_bits,)
    method : {"exact", "rerank"}
        "exact" scores every document; "rerank" only the `candidates` nearest by plain Hamming distance.
    candidates : int, optional
        Per shard, at least k; ten times k by default, and at least 1000.
    field : str

    Returns
    -------
    body : dict
        A hit's score is the sum of all weights less its distance.

    Examples
    --------
    >>> import numpy as np
    >>> body = elasticsearch_search(np.uint8([0b10100000]), 2, [4, 2, 1])
    >>> body["query"]["script_score"]["script"]["params"]
    {'query': [4.0, -2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0], 'offset': 2.0}
    """
    code, row, n_candidates = check_search(query, k, weights, method, candidates)
    values = mask_values(code, row)
    stage: Json = {"match_all": {}}
    if n_candidates is not None:
        near = {"field": field, "query_vector": code.tobytes().hex(), "k": n_candidates, "num_candidates": n_candidates}
        stage = {"knn": near}
    script = {
        "source": f"params.offset + dotProduct(params.query, {_painless(field)})",
        "params": {"query": values, "offset": -sum(value for value in values if value < 0)},
    }
    return hits(k, {"script_score": {"query": stage, "script": script}})


def _painless(text: str) -> str:
    """A string literal of Painless."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
