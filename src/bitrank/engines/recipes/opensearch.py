"""OpenSearch: codes as a binary vector and as words of 64 bits, scored by a Painless script."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_count
from bitrank.core.types import Codes, Method, n_bytes
from bitrank.engines.planes import masks
from bitrank.engines.recipes.bodies import Json, check_code, check_search, hits

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
