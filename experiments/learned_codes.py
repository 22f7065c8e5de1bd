"""Codes that were learned: what weights add to them, and how our hashers compare with published figures."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.core.codes import distances
from bitrank.core.metrics import mean_average_precision
from bitrank.ranking import MDSHRanker
from experiments.data import Data, draw_queries, encode_with, make_hasher, split
from experiments.judging import Records, judge, record, sizes
from experiments.plan import Group
from experiments.rankings import Rankings

RANKINGS = ("Hamming", "WhRank", "asymmetric", "paper-exact", "RankingSVM", "QaRank")
DEPTH = 5000  # of the published MAP, as the survey describes it


def fit_hasher(group: Group, X: npt.NDArray[Any], y: npt.NDArray[Any]) -> tuple[Any, float]:
    """Fit the hasher of a group; return it with the CPU seconds that it took."""
    start = time.process_time()
    hasher = make_hasher(group.hasher, group.n_bits, group.seed).fit(X, y)
    return hasher, time.process_time() - start


def compare(group: Group, wanted: list[str], data: Data) -> Records:
    """Measure rankings on codes that were learned, on the split of the full protocol."""
    rows = split("full", data.y, group.seed)
    hasher, hasher_seconds = fit_hasher(group, data.X[rows.train], data.y[rows.train])
    coded = encode_with(hasher, data, rows)
    rankings = Rankings(coded, group.dataset, group.seed)
    for name in wanted:
        start, cpu_start = time.perf_counter(), time.process_time()
        queries = rankings.queries(name)
        seconds = {"fit_seconds": time.process_time() - cpu_start, "hasher_seconds": hasher_seconds}
        figures = judge(coded.test_codes, coded.test_y, coded.queries, queries.weights, queries.codes)
        yield name, record(figures, start, {**sizes(coded), **seconds})


def eigenvalues(group: Group, wanted: list[str], data: Data) -> Records:
    """Rank codes of multidimensional spectral hashing by its eigenvalues."""
    start = time.perf_counter()
    rows = split("full", data.y, group.seed)
    hasher, hasher_seconds = fit_hasher(group, data.X[rows.train], data.y[rows.train])
    coded = encode_with(hasher, data, rows)
    ranker = MDSHRanker(hasher.eigenvalues_).fit(coded.codes)
    figures = judge(coded.test_codes, coded.test_y, coded.queries, ranker.weights_)
    yield wanted[0], record(figures, start, {**sizes(coded), "hasher_seconds": hasher_seconds})


def published(group: Group, wanted: list[str], data: Data) -> Records:
    """Search all rows for 1000 that were held out, a hundred per class, by Hamming distance, as in the surveys."""
    start = time.perf_counter()
    random = np.random.default_rng(group.seed)
    queries = draw_queries(data.y, random)
    items = np.setdiff1d(np.arange(len(data.y)), queries)
    hasher, hasher_seconds = fit_hasher(group, data.X[items], data.y[items])
    items = random.permutation(items)  # ties are in random order
    to_items = distances(hasher.transform(data.X[queries]), hasher.transform(data.X[items]), threads=1)
    relevant = data.y[queries][:, None] == data.y[items]
    figures = {
        "map": mean_average_precision(to_items, relevant),
        f"map{DEPTH}": mean_average_precision_within(to_items, relevant, DEPTH),
    }
    params = {"n_items": len(items), "n_queries": len(queries), "hasher_seconds": hasher_seconds}
    yield wanted[0], record(figures, start, params)


def mean_average_precision_within(to_items: npt.NDArray[Any], relevant: npt.NDArray[np.bool_], depth: int) -> float:
    """MAP among the first items of each list alone, divided by the number of relevant items among them."""
    values = []
    for row, is_relevant in zip(to_items, relevant, strict=True):
        hits = is_relevant[np.argsort(row, kind="stable")[:depth]]
        precisions = np.cumsum(hits) / np.arange(1, len(hits) + 1)
        values.append(precisions[hits].mean() if hits.any() else 0.0)
    return float(np.mean(values))
