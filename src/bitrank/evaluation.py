"""Measure how several weight vectors and rankers rank the same judged collection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.core import metrics
from bitrank.core.checks import check_labels, check_n_bits, check_queries
from bitrank.core.codes import distances
from bitrank.core.metrics import ndcg_at
from bitrank.core.progress import progress
from bitrank.core.ties import Floats, by_chunk
from bitrank.core.types import Codes, Queries, Rows
from bitrank.ranking.evidence.kinds import check_features, check_query_rows
from bitrank.ranking.evidence.pairs import check_pairs
from bitrank.ranking.networks.network import take
from bitrank.ranking.ranker import Ranker

FIGURES = ("map", "p10", "ndcg10", "mrr10", "recall100", "p100", "voc11")
_OF_TIES = ("map", "voc11", "p10", "p100", "recall100", "mrr10")
_BLOCK = 1 << 24  # distances at a time

# From numbers of queries to the grades of all items for each of them.
_Grades = Callable[[Rows], npt.NDArray[np.int64]]


class Group(NamedTuple):
    """Figures of some of the queries, by name of the ranking.

    Examples
    --------
    >>> codes = np.uint8([[0], [1], [3]])
    >>> evaluation = evaluate_rankings(codes, {"Hamming": None}, y=[0, 0, 0], groups=["a", "a", "b"])
    >>> evaluation.groups["a"].n_queries
    2
    """

    n_queries: int
    figures: dict[str, dict[str, float]]


class Evaluation(NamedTuple):
    """The sizes of a comparison, the figures in `FIGURES` by name of the ranking, and the same per group of queries.

    Examples
    --------
    >>> codes = np.uint8([[0], [1], [254], [255]])
    >>> evaluation = evaluate_rankings(codes, {"Hamming": None}, y=[0, 0, 1, 1])
    >>> evaluation.n_queries, evaluation.figures["Hamming"]["map"]
    (4, 1.0)
    """

    n_queries: int
    n_items: int
    n_bits: int
    figures: dict[str, dict[str, float]]
    groups: dict[str, Group]


def evaluate_rankings(
    codes: Codes,
    rankings: Mapping[str, Ranker | npt.ArrayLike | None],
    *,
    y: npt.ArrayLike | None = None,
    query_y: npt.ArrayLike | None = None,
    pairs: Any = None,
    queries: npt.ArrayLike | None = None,
    features: npt.ArrayLike | None = None,
    groups: npt.ArrayLike | None = None,
    n_bits: int | None = None,
    max_queries: int | None = None,
    random_state: Any = None,
) -> Evaluation:
    """Rank judged codes by each ranking and measure it, in expectation over ties.

    Parameters
    ----------
    codes : packed codes of the collection
    rankings : mapping from a name to a `Ranker`, to weights of shape (n_bits,), or to None for plain Hamming distance
        The magnitudes of queries that are reals multiply weights: ones are the asymmetric distance.
    y, query_y : array-like, optional
        One class per code and per query: items of the query's class are relevant.
    pairs : rows (query, item[, grade]) or sparse matrix, optional
        Judgements in the place of classes, as in `Ranker.fit_pairs`. Queries without a relevant item do not count.
    queries : packed codes, or reals of one column per bit, optional
        By default every code of the collection is a query for the others.
    features : float array of shape (n_queries, n_features), optional
        For rankers that learned with features.
    groups : array-like of shape (n_queries,), optional
        Name of each query's group. Groups without a relevant item are left out.
    n_bits : int, optional
        By default one per column of reals, or eight per byte.
    max_queries : int, optional
        Measure a random sample of this many queries.
    random_state : int or None
        Seed of the sample.

    Returns
    -------
    Evaluation
        MAP, precision at 10 and 100, nDCG at 10 with the gain 2^grade − 1, MRR at 10, recall at 100, and VOC-11.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> codes = pack([[1, 0], [1, 1], [0, 0], [0, 1]])
    >>> rankings = {"Hamming": None, "first bit": [1, 0]}
    >>> evaluation = evaluate_rankings(codes, rankings, y=[1, 1, 0, 0], n_bits=2)
    >>> {name: round(figures["map"], 3) for name, figures in evaluation.figures.items()}
    {'Hamming': 0.75, 'first bit': 1.0}
    """
    if (y is None) == (pairs is None):
        raise ValueError("judgements must be either y or pairs, got both or none")
    if max_queries is not None and max_queries < 1:
        raise ValueError(f"max_queries must be at least 1, got {max_queries}")
    array: npt.NDArray[Any] = np.asarray(codes if queries is None else queries)
    if n_bits is None and array.dtype.kind == "f" and array.ndim == 2:
        n_bits = array.shape[1]
    codes, n_bits = check_n_bits(codes, n_bits)
    rows = check_query_rows(array, n_bits)
    matrix = None if features is None else check_features(features, len(array))
    names = None if groups is None else _check_groups(groups, len(array))
    if pairs is None:
        grades, judged = _class_grades(codes, y, query_y, None if queries is None else len(array))
    else:
        if queries is None or query_y is not None:
            raise ValueError("pairs must come with queries and without query_y, got others")
        grades, judged = _pair_grades(check_pairs(pairs, len(codes), len(array)), len(codes))
    sample = judged[np.random.default_rng(random_state).permutation(len(judged))[:max_queries]]
    itself = sample if queries is None else None
    values = {}
    for name, ranking in rankings.items():
        asked = _ask(ranking, array[sample], rows.codes[sample], take(matrix, sample), codes, n_bits)
        values[name] = _measure(asked, codes, grades, sample, itself, name)
    figures = {name: _means(part) for name, part in values.items()}
    by_group = {} if names is None else _by_group(values, names[sample])
    return Evaluation(len(sample), len(codes), n_bits, figures, by_group)


def _check_groups(groups: npt.ArrayLike, n: int) -> npt.NDArray[np.str_]:
    """Names of groups as text, one for each of n queries."""
    names = np.asarray(groups)
    if names.shape != (n,):
        raise ValueError(f"groups must hold one name for each of the {n} queries, got shape {names.shape}")
    return names.astype(np.str_)


def _class_grades(codes: Codes, y: Any, query_y: Any, n_queries: int | None) -> tuple[_Grades, Rows]:
    if (n_queries is None) != (query_y is None):
        raise ValueError("queries and query_y must be given together, got only one of them")
    labels = check_labels(y, len(codes))
    query_labels = labels if n_queries is None else check_labels(query_y, n_queries)
    return lambda numbers: (query_labels[numbers, None] == labels).astype(np.int64), np.arange(len(query_labels))


def _pair_grades(pairs: Rows, n_items: int) -> tuple[_Grades, Rows]:
    def grades(numbers: Rows) -> npt.NDArray[np.int64]:
        out = np.zeros((len(numbers), n_items), np.int64)
        for row, number in zip(out, numbers, strict=True):
            first, last = np.searchsorted(pairs[:, 0], [number, number + 1])
            row[pairs[first:last, 1]] = pairs[first:last, 2]
        return out

    return grades, np.unique(pairs[pairs[:, 2] > 0, 0])


def _ask(
    ranking: Any, queries: npt.NDArray[Any], query_codes: Codes, features: Any, codes: Codes, n_bits: int
) -> Queries:
    """Codes and weights of the queries by one ranking."""
    if isinstance(ranking, Ranker):
        if ranking.n_bits_ != n_bits:
            raise ValueError(f"a ranker for codes of {n_bits} bits must have learned from such, got {ranking.n_bits_}")
        return ranking.queries_for(
            queries, features=features if getattr(ranking, "n_features_", 0) else None, collection=codes
        )
    asked, weights = check_queries(query_codes if ranking is None else queries, ranking, n_bits)
    return Queries(asked, np.broadcast_to(weights, (len(asked), n_bits)))


def _measure(asked: Queries, codes: Codes, grades: _Grades, sample: Rows, itself: Rows | None, label: str) -> Floats:
    """Every figure of every query: one row per query."""
    step, parts = max(1, _BLOCK // len(codes)), []
    for start in progress(range(0, len(sample), step), label=f"ranking by {label}"):
        block = slice(start, start + step)
        found = distances(asked.codes[block], codes, asked.weights[block]).astype(np.float32)
        worth = grades(sample[block])
        if itself is not None:
            own = np.arange(len(found)), itself[block]
            found[own], worth[own] = np.inf, 0
        ndcg = ndcg_at(found, np.exp2(worth) - 1, 10)
        parts.append(np.column_stack([_of_ties(found, worth > 0), ndcg]))
    table = dict(zip((*_OF_TIES, "ndcg10"), np.concatenate(parts).T, strict=True))
    return np.column_stack([table[name] for name in FIGURES])


def _of_ties(found: npt.NDArray[np.float32], relevant: npt.NDArray[np.bool_]) -> Floats:
    """The figures of `_OF_TIES`: one row per query."""

    def values(groups: Any) -> Floats:
        recall = metrics.expected_hits(groups, 100) / groups.totals
        return np.vstack([metrics.values_of(groups, (10, 100)), recall, metrics.expected_reciprocal_rank(groups, 10)])

    return np.concatenate(by_chunk(values, found, relevant), axis=1).T


def _means(values: Floats) -> dict[str, float]:
    return {name: metrics.mean_over_queries(column) for name, column in zip(FIGURES, values.T, strict=True)}


def _by_group(values: dict[str, Floats], names: npt.NDArray[np.str_]) -> dict[str, Group]:
    groups = {}
    for group in np.unique(names):
        inside = names == group
        if not np.isnan(next(iter(values.values()))[inside]).all():
            groups[str(group)] = Group(int(inside.sum()), {name: _means(part[inside]) for name, part in values.items()})
    return groups
