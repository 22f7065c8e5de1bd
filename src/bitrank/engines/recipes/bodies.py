"""Checks and values that the bodies of several engines share."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_codes, check_count, check_method, check_weights
from bitrank.core.codes import signs
from bitrank.core.types import Codes, Method, Weights

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
