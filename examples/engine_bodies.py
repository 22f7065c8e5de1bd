"""Request bodies that make other engines rank by weighted Hamming distance: plain dicts, lists and text, to copy.

One section per engine for which bitrank has no client; `docs/recipes/` says how to send the bodies and which were run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_codes, check_count, check_method, check_weights
from bitrank.core.codes import signs
from bitrank.core.types import Codes, Method, Weights, n_bytes
from bitrank.engines.planes import check_whole, masks

Json = dict[str, Any]


def check_search(
    query: Codes, k: int, weights: npt.ArrayLike, method: Method = "exact", candidates: int | None = None
) -> tuple[Codes, Weights, int | None]:
    """One query code, its weights, and the number of candidates, which must be at least k, or None for all codes."""
    k = check_count("k", k, 1)
    n_candidates = check_method(method, k, candidates)
    if n_candidates is not None and n_candidates < k:
        raise ValueError(f"candidates must be at least k, which is {k}, got {n_candidates}")
    code = check_code(query, None)
    row = check_weights(weights, width=len(code))
    if row.ndim != 1:
        raise ValueError(f"weights must be one vector, got shape {row.shape}")
    return check_code(code, len(row)), row, n_candidates


def check_code(code: Codes, n_bits: int | None) -> Codes:
    """One packed code."""
    array = np.asarray(code)
    if array.ndim != 1:
        raise ValueError(f"a code must be one row of packed bytes, got shape {array.shape}")
    row: Codes = check_codes(array[None], n_bits, name="code")[0]
    return row


def signed_weights(code: Codes, weights: Weights) -> Weights:
    """Weights times the query's bits as ±1: the inner product with an item's ±1 is all weights less two distances."""
    signed: Weights = weights * signs(code[None], len(weights))[0]
    return signed


def mask_values(code: Codes, weights: Weights) -> list[float]:
    """Signed weights for stored bits 0 and 1, one per bit of whole bytes; spare bits weigh nothing."""
    values = np.zeros(8 * len(code), np.float32)
    values[: len(weights)] = signed_weights(code, weights)
    return [float(value) for value in values + 0.0]  # no -0.0


def hits(k: int, query: Json) -> Json:
    """Body of `_search` for the ids of the first k, ties by id."""
    return {"size": k, "query": query, "sort": [{"_score": "desc"}, {"id": "asc"}], "fields": ["id"], "_source": False}


# Elasticsearch: codes as a `bit` vector, scored by a script -----------------------------------------------------------


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


# OpenSearch: codes as a binary vector and as words of 64 bits, scored by a Painless script ----------------------------

# Per word of 64 bits and per plane of the weights: one masked popcount.
OPENSEARCH_SCRIPT = """
long distance = 0;
for (int i = 0; i < params.query.size(); i++) {
  long differ = doc[params.field + i].value ^ ((Number) params.query[i]).longValue();
  for (int b = 0; b < params.masks.size(); b++) {
    distance += ((long) Long.bitCount(differ & ((Number) params.masks[b][i]).longValue())) << b;
  }
}
return params.total - distance;
""".strip()


def opensearch_mapping(n_bits: int, *, field: str = "code") -> Json:
    """Write the mapping of an OpenSearch index (2.16 or newer): a binary vector to find, words of 64 bits to weigh.

    Examples
    --------
    >>> list(opensearch_mapping(98)["mappings"]["properties"])
    ['id', 'code', 'code_0', 'code_1']
    """
    check_count("n_bits", n_bits, 1)
    method = {"name": "hnsw", "space_type": "hamming", "engine": "faiss"}
    vector = {"type": "knn_vector", "dimension": 8 * n_bytes(n_bits), "data_type": "binary", "method": method}
    words = {f"{field}_{i}": {"type": "long", "index": False} for i in range((n_bits + 63) // 64)}
    properties = {"id": {"type": "long"}, field: vector, **words}
    return {"settings": {"index": {"knn": True}}, "mappings": {"properties": properties}}


def opensearch_document(row: int, code: Codes, *, field: str = "code") -> Json:
    """Write one row as a document of OpenSearch: the code as signed bytes, and again as signed words.

    Examples
    --------
    >>> opensearch_document(7, np.uint8([129]))
    {'id': 7, 'code': [-127], 'code_0': -9151314442816847872}
    """
    one = check_code(code, None)
    words = {f"{field}_{i}": word for i, word in enumerate(_words(one))}
    return {"id": int(row), field: one.view(np.int8).tolist(), **words}


def opensearch_search(
    query: Codes,
    k: int,
    weights: npt.ArrayLike,
    *,
    method: Method = "exact",
    candidates: int | None = None,
    field: str = "code",
) -> Json:
    """Write the body of `_search`: a Painless script counts the bit planes of whole-number weights.

    Parameters and result are those of `elasticsearch_search`, except that weights must be whole numbers: see
    `quantize_weights`.

    Examples
    --------
    >>> body = opensearch_search(np.uint8([0b10100000]), 2, [4, 2, 1])
    >>> len(body["query"]["script_score"]["script"]["params"]["masks"])
    3
    """
    code, row, n_candidates = check_search(query, k, weights, method, candidates)
    planes = [_words(mask) for mask in masks(row)]
    stage: Json = {"match_all": {}}
    if n_candidates is not None:
        stage = {"knn": {field: {"vector": code.view(np.int8).tolist(), "k": n_candidates}}}
    params = {"field": f"{field}_", "query": _words(code), "masks": planes, "total": int(row.sum())}
    return hits(k, {"script_score": {"query": stage, "script": {"source": OPENSEARCH_SCRIPT, "params": params}}})


def _words(code: Codes) -> list[int]:
    """A code as signed words of 64 bits, the first bit highest; spare bits are zero."""
    padded = np.zeros(8 * ((len(code) + 7) // 8), np.uint8)
    padded[: len(code)] = code
    words: list[int] = padded.view(">i8").tolist()
    return words


# Qdrant: bits as vectors of -1 and 1, scored by the dot product -------------------------------------------------------


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
    >>> qdrant_search(np.uint8([0b10100000]), 2, [4, 2, 1])
    {'query': [4.0, -2.0, 1.0], 'limit': 2, 'params': {'exact': True, 'quantization': {'ignore': True}}}
    """
    code, row, n_candidates = check_search(query, k, weights, method, candidates)
    params: Json = {"exact": True, "quantization": {"ignore": True}}
    if n_candidates is not None:
        params = {"quantization": {"rescore": True, "oversampling": max(1.0, n_candidates / k)}}
    return {"query": signed_weights(code, row).tolist(), "limit": k, "params": params}


# Redis: bits as INT8 vectors of -1 and 1 in a FLAT index, scored by the inner product ---------------------------------


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


# Vespa: codes as a tensor of int8, unpacked and scored by a rank profile ----------------------------------------------


def vespa_schema(n_bits: int, *, name: str = "codes") -> str:
    """Write the schema of a Vespa document type, with a rank profile that unpacks the stored bits.

    Examples
    --------
    >>> print(vespa_schema(16).splitlines()[5].strip())
    field code type tensor<int8>(x[2]) {
    """
    check_count("n_bits", n_bits, 1)
    width = n_bytes(n_bits)
    return f"""schema {name} {{
  document {name} {{
    field id type long {{
      indexing: attribute | summary
    }}
    field code type tensor<int8>(x[{width}]) {{
      indexing: attribute | index
      attribute {{
        distance-metric: hamming
      }}
    }}
  }}
  rank-profile weighted {{
    inputs {{
      query(q) tensor<int8>(x[{width}])
      query(w) tensor<float>(x[{8 * width}])
      query(offset) double
    }}
    first-phase {{
      expression: query(offset) + sum(query(w) * unpack_bits(attribute(code)))
    }}
  }}
}}
"""


def vespa_document(row: int, code: Codes) -> Json:
    """Write one row as the fields of a Vespa document, the code as signed bytes.

    Examples
    --------
    >>> vespa_document(7, np.uint8([129, 0]))
    {'fields': {'id': 7, 'code': {'values': [-127, 0]}}}
    """
    return {"fields": {"id": int(row), "code": {"values": check_code(code, None).view(np.int8).tolist()}}}


def vespa_search(
    query: Codes,
    k: int,
    weights: npt.ArrayLike,
    *,
    method: Method = "exact",
    candidates: int | None = None,
    name: str = "codes",
) -> Json:
    """Write the body of a query to Vespa, for the rank profile of `vespa_schema`.

    Parameters and result are those of `elasticsearch_search`: relevance is the sum of all weights less the distance.

    Examples
    --------
    >>> vespa_search(np.uint8([0b10100000]), 2, [4, 2, 1], method="rerank", candidates=100)["yql"]
    'select id from codes where {targetHits:100}nearestNeighbor(code, q)'
    """
    code, row, n_candidates = check_search(query, k, weights, method, candidates)
    values = mask_values(code, row)
    where = "true" if n_candidates is None else f"{{targetHits:{n_candidates}}}nearestNeighbor(code, q)"
    return {
        "yql": f"select id from {name} where {where}",
        "hits": k,
        "ranking.profile": "weighted",
        "input.query(q)": code.view(np.int8).tolist(),
        "input.query(w)": values,
        "input.query(offset)": -sum(value for value in values if value < 0),
    }
