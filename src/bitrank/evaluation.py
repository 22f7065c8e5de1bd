"""Measure how several weight vectors rank the same labelled codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.checks import check_codes, check_labels, check_n_bits
from bitrank.codes import distances
from bitrank.metrics import evaluate
from bitrank.progress import progress
from bitrank.vocabulary import Codes, Rows


class Evaluation(NamedTuple):
    """The sizes of a comparison, and the figures of `bitrank.metrics.evaluate` per ranking."""

    n_queries: int
    n_items: int
    n_bits: int
    figures: dict[str, dict[str, float]]


def evaluate_weights(
    codes: Codes,
    y: npt.ArrayLike,
    weights: Mapping[str, npt.ArrayLike | None],
    *,
    queries: Codes | None = None,
    query_y: npt.ArrayLike | None = None,
    n_bits: int | None = None,
    max_queries: int | None = None,
    random_state: Any = None,
) -> Evaluation:
    """Rank labelled codes by each weight vector and measure the rankings; items of the query's class are relevant.

    Parameters
    ----------
    codes : packed codes of the collection
    y : array-like of shape (n,)
        One class per code.
    weights : mapping from a name to an array of shape (n_bits,), or to None for plain Hamming distance
    queries, query_y : packed codes and their classes, optional
        By default every code of the collection is a query for the others.
    n_bits : int, optional
        By default eight per byte.
    max_queries : int, optional
        Measure a random sample of this many queries.
    random_state : int or None
        Seed of the sample.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> from bitrank.codes import pack
    >>> codes = pack([[1, 0], [1, 1], [0, 0], [0, 1]])
    >>> weights = {"Hamming": None, "first bit": [1, 0]}
    >>> evaluation = evaluate_weights(codes, [1, 1, 0, 0], weights, n_bits=2)
    >>> {name: round(figures["map"], 3) for name, figures in evaluation.figures.items()}
    {'Hamming': 0.75, 'first bit': 1.0}
    """
    codes, n_bits = check_n_bits(codes, n_bits)
    labels = check_labels(y, len(codes))
    if (queries is None) != (query_y is None):
        raise ValueError("queries and query_y must be given together, got only one of them")
    if max_queries is not None and max_queries < 1:
        raise ValueError(f"max_queries must be at least 1, got {max_queries}")
    query_codes = codes if queries is None else check_codes(queries, n_bits, name="queries")
    query_labels = labels if query_y is None else check_labels(query_y, len(query_codes))
    sample = np.random.default_rng(random_state).permutation(len(query_codes))[:max_queries]
    relevant = query_labels[sample, None] == labels
    query_rows = sample if queries is None else None
    if query_rows is not None:
        relevant[np.arange(len(sample)), query_rows] = False
    figures = {
        name: evaluate(_distances(query_codes[sample], codes, vector, query_rows), relevant)
        for name, vector in progress(weights.items(), len(weights), label="ranking")
    }
    return Evaluation(len(sample), len(codes), n_bits, figures)


def _distances(
    queries: Codes, codes: Codes, weights: npt.ArrayLike | None, query_rows: Rows | None
) -> npt.NDArray[np.float32]:
    """Distances to the collection, infinite from a query to its own row."""
    values: npt.NDArray[np.float32] = distances(queries, codes, weights).astype(np.float32)
    if query_rows is not None:
        values[np.arange(len(query_rows)), query_rows] = np.inf
    return values
