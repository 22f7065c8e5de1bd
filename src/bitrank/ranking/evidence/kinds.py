"""What rankers learn from, checked: queries, class labels, constraints, judged pairs, and vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.core.arrays import to_array
from bitrank.core.checks import (
    are_reals,
    as_float32,
    check_codes,
    check_finite,
    check_labels,
    check_n_bits,
    check_reals,
    split_reals,
)
from bitrank.core.codes import signs
from bitrank.core.types import Codes, Rows, Weights
from bitrank.ranking.evidence.constraints import check_constraints
from bitrank.ranking.evidence.pairs import check_pairs

Matrix = npt.NDArray[np.float32]


class TooLittleEvidenceError(ValueError):
    """Evidence that is well formed, but too little to learn from or to hold any out."""


class QueryRows(NamedTuple):
    """Queries as packed codes, with magnitudes where they came as reals."""

    codes: Codes
    magnitudes: Weights | None

    def take(self, rows: Rows) -> QueryRows:
        """Some of the queries."""
        return QueryRows(self.codes[rows], None if self.magnitudes is None else self.magnitudes[rows])


class LabelEvidence(NamedTuple):
    """Codes with one class per row, the same rows as queries, and a sample of the collection to be searched.

    In the space of vectors, items are rows of reals in place of codes, here and in `PairEvidence`.
    """

    codes: Codes
    y: npt.NDArray[Any]
    queries: QueryRows
    features: Matrix | None
    n_bits: int
    collection: Codes | None = None


class ConstraintEvidence(NamedTuple):
    """Triplets or quadruplets of row numbers; the first column numbers queries, the others codes."""

    codes: Codes
    rows: Rows
    queries: QueryRows
    n_bits: int


class PairEvidence(NamedTuple):
    """Judged pairs (query, item, grade) of row numbers, sorted by query.

    `beside` is told what the gate accepted, to judge more by the same folds: for each the pairs learned from, the
    queries held out, and what was learned for these, as reals per bit.
    """

    codes: Codes
    pairs: Rows
    queries: QueryRows
    features: Matrix | None
    n_bits: int
    beside: Callable[[Rows, Rows, Weights], None] | None = None


class VectorEvidence(NamedTuple):
    """Codes with the vectors they were made from, and queries with theirs; `itself`: queries are the items."""

    codes: Codes
    vectors: Matrix
    queries: QueryRows
    query_vectors: Matrix
    itself: bool
    n_bits: int


def as_vectors(items: Any, n_bits: int) -> Matrix:
    """Items as vectors that queries are multiplied with: the ±1 of codes, or the rows of reals that they are."""
    vectors: Matrix = signs(items, n_bits) if items.dtype == np.uint8 else items
    return vectors


def as_codes(items: Any) -> Codes:
    """Items as codes: the signs of rows of reals."""
    codes: Codes = items if items.dtype == np.uint8 else np.packbits(items > 0, axis=1)
    return codes


def check_query_rows(queries: Any, n_bits: int, name: str = "queries") -> QueryRows:
    """Check queries: packed codes, or reals of one column per bit, whose signs are a code.

    Examples
    --------
    >>> check_query_rows(np.array([[0.5, -2.0, 1.0]]), n_bits=3)
    QueryRows(codes=array([[160]], dtype=uint8), magnitudes=array([[0.5, 2. , 1. ]], dtype=float32))
    """
    array = to_array(queries, name)
    plain = split_reals(array, n_bits)
    if plain is not None:
        return QueryRows(*plain)
    if not are_reals(array, n_bits):
        return QueryRows(check_codes(array, n_bits, name=name), None)
    magnitudes = check_reals(array, n_bits, name)
    return QueryRows(np.packbits(array > 0, axis=1), magnitudes)


def check_features(
    features: Any, n: int, n_features: int | None = None, *, name: str = "features", row: str = "query"
) -> Matrix:
    """Check features, or vectors: finite numbers, one row per query or per code."""
    array = as_float32(features, name)
    if array.ndim != 2 or len(array) != n or n_features not in (None, array.shape[1]):
        wanted = "n_features" if n_features is None else n_features
        raise ValueError(f"{name} must have shape ({n}, {wanted}), one row per {row}, got {array.shape}")
    if array.shape[1] == 0:
        raise ValueError(f"{name} must have at least one column, got shape {array.shape}")
    check_finite(array, name)
    return array


def check_label_evidence(
    codes: Any, y: Any, queries: Any, features: Any, n_bits: int | None, space: str = "codes"
) -> LabelEvidence:
    """Check labelled codes, the rows as queries (the codes by default) and their features."""
    codes, n_bits, query_rows = _check_codes_and_queries(codes, queries, n_bits, space)
    labels = check_labels(y, len(codes))
    if len(query_rows.codes) != len(codes):
        raise ValueError(f"queries must have one row for each of the {len(codes)} codes, got {len(query_rows.codes)}")
    matrix = None if features is None else check_features(features, len(codes))
    return LabelEvidence(codes, labels, query_rows, matrix, n_bits)


def check_constraint_evidence(codes: Any, rows: Any, queries: Any, n_bits: int | None) -> ConstraintEvidence:
    """Check constraints, and the queries that their first column numbers (the codes by default)."""
    codes, n_bits, query_rows = _check_codes_and_queries(codes, queries, n_bits)
    return ConstraintEvidence(codes, check_constraints(rows, len(codes), len(query_rows.codes)), query_rows, n_bits)


def check_pair_evidence(
    codes: Any, pairs: Any, queries: Any, features: Any, n_bits: int | None, space: str = "codes"
) -> PairEvidence:
    """Check judged pairs, the queries that their first column numbers, and the queries' features."""
    codes, n_bits, query_rows = _check_codes_and_queries(codes, to_array(queries, "queries"), n_bits, space)
    matrix = None if features is None else check_features(features, len(query_rows.codes))
    return PairEvidence(codes, check_pairs(pairs, len(codes), len(query_rows.codes)), query_rows, matrix, n_bits)


def check_vector_evidence(
    codes: Any, vectors: Any, queries: Any, query_vectors: Any, n_bits: int | None
) -> VectorEvidence:
    """Check codes with their vectors, and queries with theirs (the items by default)."""
    codes, n_bits, query_rows = _check_codes_and_queries(codes, queries, n_bits)
    matrix = check_features(vectors, len(codes), name="vectors", row="code")
    if query_vectors is not None:
        if queries is None:
            raise ValueError("query_vectors must come with queries, got vectors alone")
        query_matrix = check_features(query_vectors, len(query_rows.codes), matrix.shape[1], name="query_vectors")
        return VectorEvidence(codes, matrix, query_rows, query_matrix, False, n_bits)
    if len(query_rows.codes) != len(codes):
        raise ValueError(
            f"queries without query_vectors must be the {len(codes)} items themselves, got {len(query_rows.codes)} rows"
        )
    return VectorEvidence(codes, matrix, query_rows, matrix, True, n_bits)


def pairs_of_constraints(evidence: ConstraintEvidence) -> PairEvidence:
    """The similar items of constraints as relevant ones: what a ranking learned from them should find."""
    queries = np.repeat(evidence.rows[:, 0], evidence.rows.shape[1] - 2)
    pairs = np.unique(np.column_stack([queries, evidence.rows[:, 2:].ravel()]), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]] if evidence.queries.codes is evidence.codes else pairs
    graded = np.column_stack([pairs, np.ones(len(pairs), np.int64)])
    return PairEvidence(evidence.codes, graded, evidence.queries, None, evidence.n_bits)


def blocks(n: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` rows.

    Examples
    --------
    >>> list(blocks(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def _check_codes_and_queries(
    codes: Any, queries: Any, n_bits: int | None, space: str = "codes"
) -> tuple[Any, int, QueryRows]:
    """Codes, their bits (by default one per column of queries that are reals) and queries (by default the codes)."""
    if space == "vectors":
        items = check_features(codes, len(codes), n_bits, name="codes", row="item")
        return items, items.shape[1], check_query_rows(items if queries is None else queries, items.shape[1])
    if n_bits is None and queries is not None:
        array = to_array(queries, "queries")
        n_bits = array.shape[1] if array.dtype.kind == "f" and array.ndim == 2 else None
    codes, n_bits = check_n_bits(codes, n_bits)
    return codes, n_bits, QueryRows(codes, None) if queries is None else check_query_rows(queries, n_bits)
