"""Vespa: codes as a tensor of int8, unpacked and scored by a rank profile."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_count
from bitrank.core.types import Codes, Method, n_bytes
from bitrank.engines.recipes.bodies import Json, check_code, check_search, mask_values


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
