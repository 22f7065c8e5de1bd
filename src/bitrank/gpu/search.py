"""Searches on a device: the k nearest rows in phases, and all rows within a radius."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.core.types import Codes, Ids, Results, Weights, empty_results
from bitrank.gpu import plan
from bitrank.gpu.chunks import Chunk
from bitrank.gpu.kernels import Task
from bitrank.gpu.quantise import quantise

Chunks = tuple[Chunk, ...]


def nearest(
    device: Any, chunks: Chunks, codes: Codes, weights: Weights, k: int, candidates: int | None = None
) -> Results:
    """The k nearest live rows of each query; with `candidates`, among that many by plain Hamming distance."""
    n_live, n_rows = sum(chunk.n_live for chunk in chunks), sum(map(len, chunks))
    out = empty_results(len(codes), k)
    n_kept = min(k if candidates is None else candidates, n_live)
    if n_kept == 0:
        return out
    n_out, capacity = min(k, n_kept), min(plan.capacity(n_kept), n_rows)
    bounded = capacity < n_rows or len(plan.phases(_n_tiles(chunks), n_kept, plan.tile(codes.shape[1]))) > 1
    for batch in _batches(len(codes), capacity):
        rows = _rows(weights, batch)
        first = rows if candidates is None else np.ones((1, weights.shape[1]), np.float32)
        task = Task(
            codes[batch],
            _per_query(first, len(codes[batch])),
            None if candidates is None else _per_query(rows, len(codes[batch])),
            quantise(codes[batch], first, n_rows, n_kept) if bounded else None,
            np.full(len(codes[batch]), np.inf, np.float32),
            n_kept,
            n_out,
            capacity,
        )
        out.ids[batch, :n_out], out.distances[batch, :n_out] = _best(device, chunks, task)
    return out


def _best(device: Any, chunks: Chunks, task: Task) -> tuple[Ids, npt.NDArray[np.float32]]:
    scratch = device.scratch(task)
    with closing(device.staged(chunks)) as groups:
        for group in groups:
            for phase in plan.phases(_n_tiles(group), task.k, plan.tile(task.codes.shape[1])):
                scratch.scan(group, phase)
                scratch.keep_best()
    ids, distances, lost = scratch.best()
    while lost:  # each time, the limits are lower
        scratch.restart()
        with closing(device.staged(chunks)) as groups:
            for group in groups:
                scratch.scan(group, plan.everything(_n_tiles(group)))
                scratch.keep_best()
        ids, distances, lost = scratch.best()
    return ids, distances


def within(device: Any, chunks: Chunks, codes: Codes, weights: Weights, radius: np.float32) -> Results:
    """All live rows within a distance of each query, nearest first."""
    n_rows, capacity = sum(map(len, chunks)), plan.CAPACITY
    hits: list[tuple[Ids, npt.NDArray[np.float32]]] = []
    while len(hits) < len(codes) and n_rows and radius >= 0:
        n_queries = plan.queries_together(len(codes) - len(hits), capacity)
        batch = slice(len(hits), len(hits) + n_queries)
        rows, n_queries = _rows(weights, batch), len(codes[batch])
        limits = np.full(n_queries, abs(radius), np.float32)  # -0.0 is 0.0
        quantised = quantise(codes[batch], rows, n_rows, 1)
        task = Task(codes[batch], _per_query(rows, n_queries), None, quantised, limits, 0, 0, min(capacity, n_rows))
        scratch = device.scratch(task)
        with closing(device.staged(chunks)) as groups:
            for group in groups:
                scratch.scan(group, plan.everything(_n_tiles(group)))
        counts = scratch.n_hits()
        incomplete = np.flatnonzero(counts > task.capacity)
        n_complete = int(incomplete[0]) if len(incomplete) else n_queries
        hits += [scratch.hits_of(query, int(counts[query])) for query in range(n_complete)]
        capacity = max(capacity, int(counts.max()))
    return _padded(hits, len(codes))


def _padded(hits: list[tuple[Ids, npt.NDArray[np.float32]]], n_queries: int) -> Results:
    out = empty_results(n_queries, max((len(ids) for ids, _ in hits), default=0))
    for query, (ids, distances) in enumerate(hits):
        order = np.lexsort((ids, distances.view(np.uint32)))  # subnormal distances too, whatever the processor's mode
        out.ids[query, : len(ids)], out.distances[query, : len(ids)] = ids[order], distances[order]
    return out


def _batches(n_queries: int, capacity: int) -> Iterator[slice]:
    step = plan.queries_together(n_queries, capacity)
    return (slice(start, start + step) for start in range(0, n_queries, step))


def _rows(weights: Weights, batch: slice) -> Weights:
    """Weights of a batch of queries: one row for all, or one per query."""
    return weights if len(weights) == 1 else weights[batch]


def _per_query(rows: Weights, n_queries: int) -> Weights:
    return np.ascontiguousarray(np.broadcast_to(rows, (n_queries, rows.shape[1])))


def _n_tiles(chunks: Chunks) -> int:
    return sum(plan.n_tiles([len(chunk) for chunk in chunks], plan.tile(chunks[0].codes.shape[1])))
