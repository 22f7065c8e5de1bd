"""Judge rankings: figures, PR curves, and the records that become cells."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.core.codes import distances
from bitrank.core.metrics import evaluate, mean_precision_recall
from bitrank.core.types import Codes
from experiments.data import Coded, Rows

Record = dict[str, Any]
Records = Iterator[tuple[str, Record]]

RECALLS = np.linspace(0.02, 1, 50)


def judge(
    codes: Codes, y: npt.NDArray[Any], queries: Rows, weights: Any, query_codes: Codes | None = None
) -> dict[str, float]:
    """Evaluate a ranking of the codes by these weights (None: plain Hamming) for queries given by row number.

    `query_codes` replaces the queries' codes in the search.
    """
    to_all, relevant = _to_all(codes, queries, weights, query_codes), y[queries][:, None] == y
    return evaluate(to_all, relevant) | {"authors_map": authors_map(to_all, relevant)}


def authors_map(distances: npt.ArrayLike, relevant: npt.ArrayLike) -> float:
    """Compute what Feng, Liu and Wang report as MAP: one number from the mean PR curve, not a mean over queries.

    It is the sum over recall 0, 0.1, ..., 0.9 of the best precision of the mean curve at or beyond that recall, divided
    by eleven: a perfect ranking gets 10/11.
    """
    precision, recall = mean_precision_recall(distances, relevant)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    # The tolerance absorbs the rounding of a recall of 0.3.
    return float(best[np.searchsorted(recall, np.arange(10) / 10 - 1e-9)].sum() / 11)


def curve(
    codes: Codes, y: npt.NDArray[Any], queries: Rows, weights: Any, query_codes: Codes | None = None
) -> list[float]:
    """Return the mean precision at each value of `RECALLS`."""
    to_all = _to_all(codes, queries, weights, query_codes)
    precision, recall = mean_precision_recall(to_all, y[queries][:, None] == y)
    return np.interp(RECALLS, recall, precision).round(4).tolist()


def _to_all(codes: Codes, queries: Rows, weights: Any, query_codes: Codes | None) -> npt.NDArray[Any]:
    return distances(codes[queries] if query_codes is None else query_codes, codes, weights, threads=1)


def sizes(coded: Coded) -> Record:
    """Return the number of rows to learn from, of rows to search, and of queries."""
    return {"n_train": len(coded.codes), "n_items": len(coded.test_codes), "n_queries": len(coded.queries)}


def record(figures: dict[str, float], start: float, params: Record) -> Record:
    return {"figures": figures, "seconds": time.perf_counter() - start, "params": dict(params)}
