"""The gate of a memory: do lists of judged queries rank queries that are left out surely better?

Three questions, each on queries whose own lists are left out. Do similar queries want the same items more than by
chance? Lists exchanged among the queries, many times, are the placebo that says what chance does. Which offset gains
most over the plain ranking? And what do items lose that no list names, which a third of all items plays in turn?
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bitrank.core.types import Ids, Queries, Rows
from bitrank.ranking.gate.judge import standard_error
from bitrank.ranking.memory.entries import ENTRY, GRADE, ITEM, Lists
from bitrank.ranking.memory.lifting import Floats, Limits, Scale, Search, lift

OFFSETS = (0.0, 0.06, 0.12, 0.18, 0.25)
NAMES = ("neither", "vector", "memory", "both")
_FOUND = 10  # results that nDCG looks at
_MOST_ASKED, _MOST_SIMILARITIES = 1000, 4_000_000
_FEWEST = 10  # judged queries
# Of so many exchanges none may limits what the lists limits: noise does once in two hundred times. With that known, one
# standard error over the plain ranking is enough: below a hundred queries true gains are rarely two.
_EXCHANGES, _MOST_EXCHANGED, _Z = 199, 500, 1.0
# What items that no list names may lose in their nDCG: this much, or this share of what is surely gained.
_LEAST_LOSS, _LOSS_SHARE, _SURELY, _PARTS = 0.01, 2 / 3, 1.0, 3


class Asking(NamedTuple):
    """How to search by some queries, and to compare them with items and with judged queries."""

    search: Callable[[Queries, int], tuple[Ids, npt.NDArray[np.float32]]]
    distances: Callable[[Queries, Ids], npt.NDArray[np.float32]]
    similarities: Callable[[Rows], Floats]  # of query rows to all judged queries
    plain: Callable[[Rows], tuple[Queries, Scale]]  # what ranks items for query rows
    learned: Callable[[Rows, Any], tuple[Queries, Scale]]  # the same by vectors that were learned for these rows


class HeldOut(NamedTuple):
    """What held-out queries find, how similar they are to judged ones, and what they want: (row, item, grade)."""

    search: Search
    judged: Rows
    similarities: Floats
    wanted: Rows

    @classmethod
    def of(cls, asking: Asking, ranked: tuple[Queries, Scale], rows: Rows, places: Rows, wanted: Rows) -> Self:
        """Search by queries; their own places among the judged queries are left out."""
        queries, scale = ranked
        similarities = asking.similarities(rows)
        judged = np.tile(np.arange(similarities.shape[1]), (len(rows), 1))
        judged[np.arange(len(rows)), places] = -1
        search = Search(*asking.search(queries, _FOUND), scale, lambda ids: asking.distances(queries, ids))
        return cls(search, judged, similarities, wanted)

    def judge(
        self, lists: Lists | None = None, offset: float = 0.0, some: Ids | None = None
    ) -> npt.NDArray[np.float64]:
        """nDCG@10 of every query, lifted by lists or not; NaN where nothing is wanted, of some items where given."""
        wanted = self.wanted if some is None else self.wanted[np.isin(self.wanted[:, 1], some)]
        found = self.search.ids
        if lists is not None:
            limits = Limits.of(self.search, self.search.scale, offset, any_pinned=False)
            found = lift(lists, offset, self.search, limits, self.judged, self.similarities, threads=1).ids
        return _ndcg(found, wanted)


class Judged(NamedTuple):
    """What a gate found of a memory.

    Attributes
    ----------
    offset : float or None
        What a lift costs; None where nothing is lifted.
    use : "neither", "vector", "memory" or "both"
        What ranks held-out queries best, of that which surely ranks better than the plain ranking.
    reason : str
    lines : list of dict
        One per offset: nDCG@10, its gain and standard error, what items lose that no list names; the first is plain.
    together : list of dict
        nDCG@10 of the plain ranking, what was learned, the memory and both, learned from the same folds.
    """

    offset: float | None
    use: str
    reason: str
    lines: list[dict[str, Any]]
    together: list[dict[str, Any]]


Scores = dict[tuple[str, float | None], npt.NDArray[np.float64]]
Fold = tuple[Rows, Rows, Any]  # pairs learned from, queries held out, and vectors that were learned for these


def judge(
    asking: Asking,
    pairs: Rows,
    places: Rows,
    entries: Rows,
    folds: list[Fold],
    accepted: bool,
    random: np.random.Generator,
) -> Judged:
    """Choose among the plain ranking, what was learned from pairs, the memory, and both.

    Parameters
    ----------
    asking : Asking
    pairs : int64 array of shape (m, 3)
        (query row, number of the item, grade) that were learned from.
    places : int64 array of shape (n_queries,)
        Row of each query among the judged ones.
    entries : int64 array of shape (m, 4)
        What all judged queries name, as in `Memory`.
    folds : of the gate that judged what was learned
    accepted : bool
        Whether that gate accepted it.
    random : numpy Generator
    """
    use, wanted = "vector" if accepted else "neither", pairs[pairs[:, 2] > 0]
    queries = np.unique(wanted[:, 0])
    queries = queries[np.unique(places[queries], return_index=True)[1]]
    if len(queries) < _FEWEST:
        reason = f"judgements of at least {_FEWEST} queries are needed, got {len(queries)}"
        return Judged(None, use, f"too little evidence: {reason}", [], [])
    n = int(places.max(initial=int(entries[:, ENTRY].max()))) + 1
    asked = random.permutation(queries)[: max(_FEWEST, min(_MOST_ASKED, _MOST_SIMILARITIES // n))]
    held_out = HeldOut.of(asking, asking.plain(asked), asked, places[asked], _of(wanted, asked))
    some = asked[:_MOST_EXCHANGED]
    if not _means_something(held_out.similarities[: len(some), places[some]], _of(wanted, some), random):
        return Judged(None, use, "lists exchanged among the queries, the placebo, say as much", [], [])
    lines = _lines(held_out, entries, n, random)
    surely = [line for line in lines[1:] if line["gain"] > _Z * line["error"] and line["loss"] <= _most_loss(line)]
    if not surely:
        return Judged(None, use, "no offset ranks queries that are left out surely better", lines, [])
    offset = max(surely, key=lambda line: line["gain"])["offset"]
    if not accepted or not folds:
        return Judged(offset, "memory", "queries that are left out rank surely better", lines, [])
    together = _together(asking, pairs, places, entries, folds, offset, n)
    best = max(together, key=lambda line: line["ndcg10"])
    return Judged(best["offset"], best["use"], "ranks held-out queries best", lines, together)


def _of(wanted: Rows, queries: Rows) -> Rows:
    """What some queries want, by their places among these; sorted by them."""
    order = np.argsort(queries)
    places = order[np.minimum(np.searchsorted(queries, wanted[:, 0], sorter=order), len(queries) - 1)]
    kept = queries[places] == wanted[:, 0]
    out = np.column_stack([places[kept], wanted[kept, 1:]])
    return out[np.lexsort((out[:, 1], out[:, 0]))]


def _means_something(similarities: Floats, wanted: Rows, random: np.random.Generator) -> bool:
    """Whether queries that want an item are nearer to each other than by chance, whatever is popular.

    For every wanted item, the similarity of the nearest other query that wants it; the mean over items and queries.
    """
    n = len(similarities)
    by_item = wanted[np.argsort(wanted[:, 1], kind="stable")]
    starts = np.searchsorted(by_item[:, 1], wanted[:, 1])
    counts = np.searchsorted(by_item[:, 1], wanted[:, 1], side="right") - starts
    ends = np.cumsum(counts)
    query = np.repeat(wanted[:, 0], counts)
    other = by_item[np.arange(ends[-1]) - np.repeat(ends - counts - starts, counts), 0]
    shares = 1 / np.bincount(wanted[:, 0], minlength=n)[wanted[:, 0]]

    def nearness(order: Rows) -> float:
        near = np.where(query == other, 0.0, similarities[order[query], order[other]])
        return float(shares @ np.maximum.reduceat(near, ends - counts))

    real = nearness(np.arange(n))
    return all(nearness(random.permutation(n)) < real for _ in range(_EXCHANGES))


def _lines(held_out: HeldOut, entries: Rows, n: int, random: np.random.Generator) -> list[dict[str, Any]]:
    """Figures of every offset, after those of the plain ranking."""
    plain, lists = held_out.judge(), Lists.of(entries, n)
    parts = np.array_split(random.permutation(np.unique(entries[:, ITEM])), _PARTS)
    hidden = [
        (part, Lists.of(entries[~np.isin(entries[:, ITEM], part)], n), held_out.judge(some=part)) for part in parts
    ]
    lines = [{"offset": None, "ndcg10": float(plain.mean()), "gain": 0.0, "error": 0.0, "loss": 0.0}]
    for offset in OFFSETS:
        gains = held_out.judge(lists, offset) - plain
        losses = np.concatenate([before - held_out.judge(others, offset, part) for part, others, before in hidden])
        loss = float(np.nanmean(losses)) if not np.isnan(losses).all() else 0.0
        figures = {"gain": float(gains.mean()), "error": standard_error(gains), "loss": loss}
        lines.append({"offset": offset, "ndcg10": float((plain + gains).mean()), **figures})
    return lines


def _most_loss(line: dict[str, Any]) -> float:
    """What items that no list names may lose."""
    return max(_LEAST_LOSS, _LOSS_SHARE * float(line["gain"] - _SURELY * line["error"]))


def _together(
    asking: Asking, pairs: Rows, places: Rows, entries: Rows, folds: list[Fold], offset: float, n: int
) -> list[dict[str, Any]]:
    """The plain ranking, what was learned, the memory and both, on queries that none of them knows."""
    scores: dict[tuple[str, float | None], list[npt.NDArray[np.float64]]] = {}
    size = int(max(pairs[:, 1].max(), entries[:, ITEM].max())) + 1
    learned_from = np.isin(entries[:, ENTRY], places[pairs[:, 0]])
    keys = entries[:, ENTRY] * size + entries[:, ITEM]
    for rows, queries, vectors in folds:
        of_fold = places[pairs[rows, 0]] * size + pairs[rows, 1]
        held_out = np.isin(entries[:, ENTRY], places[queries])
        lists = Lists.of(entries[~held_out & (~learned_from | np.isin(keys, of_fold))], n)
        wanted = _of(pairs[pairs[:, 2] > 0], queries)
        plain, learned = (
            HeldOut.of(asking, ranked, queries, places[queries], wanted)
            for ranked in (asking.plain(queries), asking.learned(queries, vectors))
        )
        figures: Scores = {("neither", None): plain.judge(), ("vector", None): learned.judge()}
        figures["memory", offset] = plain.judge(lists, offset)
        figures |= {("both", each): learned.judge(lists, each) for each in OFFSETS}
        for key, values in figures.items():
            scores.setdefault(key, []).append(values)
    rival = np.concatenate(scores["neither", None])
    lines = []
    for (use, each), parts in scores.items():
        values = np.concatenate(parts)
        error = standard_error(values - rival)
        lines.append({"use": use, "offset": each, "ndcg10": float(values.mean()), "error": error})
    return lines


def _ndcg(found: Ids, wanted: Rows) -> npt.NDArray[np.float64]:
    """nDCG@10 of results of every query for what it wants, sorted by query and item."""
    n, size = len(found), int(max(found.max(initial=0), wanted[:, 1].max(initial=0))) + 1
    discounts = 1 / np.log2(np.arange(2, _FOUND + 2))
    keys, worth = wanted[:, 0] * size + wanted[:, 1], np.exp2(wanted[:, GRADE]) - 1
    asked = np.where(found >= 0, np.arange(n)[:, None] * size + found, -1)
    places = np.minimum(np.searchsorted(keys, asked), max(0, len(keys) - 1))
    gains = np.where(keys[places] == asked, worth[places], 0.0) if len(keys) else np.zeros(found.shape)
    order = np.lexsort((-worth, wanted[:, 0]))
    ranks = np.arange(len(keys)) - np.searchsorted(wanted[:, 0], wanted[:, 0])
    best = np.bincount(
        wanted[order, 0], worth[order] * np.where(ranks < _FOUND, discounts[np.minimum(ranks, _FOUND - 1)], 0.0), n
    )
    out: npt.NDArray[np.float64] = np.divide(
        gains @ discounts[: found.shape[1]], best, out=np.full(n, np.nan), where=best > 0
    )
    return out
