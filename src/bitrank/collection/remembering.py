"""What a collection remembers: judgements that join and leave its memory, and searches that it lifts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.collection.folder import Change
from bitrank.collection.ids import as_values
from bitrank.collection.report import MemoryReport
from bitrank.collection.results import Lift
from bitrank.core.checks import split_reals
from bitrank.core.codes import distances, distances_to_rows, split_vectors
from bitrank.core.types import Codes, Ids, Queries, Rows
from bitrank.ranking.memory.entries import GRADE, ITEM, PINNED, Memory
from bitrank.ranking.memory.lifting import Lifted, Limits, Scale, Search, lift

if TYPE_CHECKING:
    from bitrank.collection.learning import Taught
    from bitrank.collection.moment import Moment
    from bitrank.ranking.memory.judge import Judged

Linear = tuple[Queries, Scale]  # queries that are linear in the bits, and what turns distances into similarities

_WITHIN = 1 + 1e-5  # limits of distances, which rounding may change
_RANKED = 1000  # results among which `explain` looks for the plain rank of what was lifted


class Judgements(NamedTuple):
    """Judged queries, checked: codes, names and pairs as in `Memory`."""

    codes: Codes
    names: list[Any]
    pairs: Rows


def lifted(
    moment: Moment,
    asked: Linear,
    ranked: Linear,
    found: tuple[Ids, npt.NDArray[np.float32]],
    wanted: Ids | None,
    threads: int,
) -> Lifted:
    """Results of a search, lifted by the memory of its moment.

    Parameters
    ----------
    asked, ranked : queries with their scales
        What judged queries are compared with, and what ranked the items.
    found : ids and distances
    wanted : ids, optional
        Ascending: what a filter leaves.
    """
    memory: Memory = moment.memory  # type: ignore[assignment]
    offset, (queries, (totals, units)) = moment.lift_offset, asked
    if not len(found[0]) or found[0][0, 0] < 0:  # nothing to search in
        return Lifted(*found, np.full(found[0].shape, -1))

    def distances_to(items: Ids) -> npt.NDArray[np.float32]:
        if wanted is not None:
            items = np.where(np.isin(items, wanted), items, -1)
        distances: npt.NDArray[np.float32] = moment.index.distances(ranked[0], items, threads=threads)
        return distances

    search = Search(*found, ranked[1], distances_to)
    limits = Limits.of(search, asked[1], offset, memory.any_pinned)
    # Queries have one radius: divided by its own radius, the weights of each have the radius 1.
    radii = limits.distances[:, None]
    judged, shares = memory.snapshot.search_radius(queries.codes, queries.weights / radii, _WITHIN, None, threads)
    similarities = (totals[:, None] - 2.0 * shares * radii) * units[:, None]
    return lift(memory.lists, offset, search, limits, judged, similarities, threads)


def linear(plain: Linear, queries: Queries) -> Linear:
    """Queries that were learned for others, on the scale of these: as if both were of one length."""
    lengths, own = (np.linalg.norm(each.weights, axis=1).astype(np.float64) for each in (plain[0], queries))
    ratio = np.where((own > 0) & (lengths > 0), lengths, 1) / np.where((own > 0) & (lengths > 0), own, 1)
    more = plain[1][0] - plain[0].weights.sum(axis=1, dtype=np.float64)  # what is not linear in the bits
    return queries, (queries.weights.sum(axis=1, dtype=np.float64) + more / ratio, plain[1][1] * ratio)


def judge(moment: Moment, judgements: Judgements, taught: Taught, plain: Linear, accepted: bool, seed: Any) -> Judged:
    """What a gate finds of the memory with judgements that join it, beside what was learned from them."""
    from bitrank.ranking.memory import judge as gate

    memory = (moment.memory or Memory.empty(moment.index.n_bits)).add(*judgements)
    queries, (totals, units) = plain
    numbers = moment.ids.numbers(moment.index)
    pairs = np.column_stack([taught.pairs[:, 0], numbers[taught.pairs[:, 1]], taught.pairs[:, 2]])

    def of(rows: Rows) -> Linear:
        return Queries(queries.codes[rows], queries.weights[rows]), (totals[rows], units[rows])

    def similarities(rows: Rows) -> npt.NDArray[Any]:
        some, (total, unit) = of(rows)
        return (total[:, None] - 2.0 * distances(some.codes, memory.codes, some.weights)) * unit[:, None]

    asking = gate.Asking(
        lambda some, k: moment.search(some, k, None, 1),
        lambda some, ids: moment.index.distances(some, ids, threads=1),
        similarities,
        of,
        lambda rows, vectors: linear(of(rows), Queries(*split_vectors(vectors))),
    )
    places = np.array([memory.places.get(name, -1) for name in judgements.names], np.int64)
    return gate.judge(asking, pairs, places, memory.pairs, taught.folds, accepted, np.random.default_rng(seed))


def judged_pairs(then: Moment, now: Moment, codes: Codes, taught: Taught, query_ids: Any) -> Judgements:
    """What was learned from at one moment, as it joins the memory of another; removed items are left out."""
    numbers = then.ids.numbers(then.index)[taught.pairs[:, 1]]
    pairs = np.column_stack([taught.pairs[:, 0], numbers, taught.pairs[:, 2], np.zeros(len(numbers), np.int64)])
    names = _names(query_ids, codes, now.memory or Memory.empty(now.index.n_bits))
    return Judgements(codes, names, pairs[now.index.holds(numbers)])


def with_weights(queries: Any, n_bits: int) -> Queries:
    """Codes and weights, which several searches take."""
    if isinstance(queries, Queries):
        return queries
    if queries.dtype == np.uint8:
        return Queries(queries, np.ones((len(queries), n_bits), np.float32))
    reals = np.ascontiguousarray(queries, np.float32)
    split = split_reals(reals, n_bits)
    return Queries(*(split or (np.packbits(reals > 0, axis=1), np.abs(reals))))


def scale_of(queries: Any, n_bits: int, sign_bits: bool) -> Scale:
    """What turns distances into similarities: the sum of a query's weights, and the unit of their scale."""
    if isinstance(queries, Queries):
        weights = queries.weights
    elif queries.dtype == np.uint8:
        total = np.full(len(queries), float(n_bits))
        return total, 1 / total
    else:
        weights = np.abs(queries)
    total = weights.sum(axis=1, dtype=np.float64)
    if sign_bits:  # ⟨q, s⟩ / (|q|·√n) is √(2/π) of the cosine where the values of an item are normal
        lengths = np.sqrt(np.einsum("qb,qb->q", weights, weights, dtype=np.float64) * (2 * n_bits / np.pi))
        return total, 1 / np.where(lengths > 0, lengths, 1)
    return total, 1 / np.where(total > 0, total, 1)


def constant_scale(n: int, total: float = 2.0) -> Scale:
    """The scale of distances that are one less a similarity, or minus one where the total is 0."""
    return np.full(n, total), np.full(n, 0.5)


def explain(moment: Moment, results: Lifted, asked: Linear, plain: Callable[[int], Ids]) -> list[list[Lift | None]]:
    """Why results were lifted; `plain` finds that many ids of every query without the memory."""
    memory: Memory = moment.memory  # type: ignore[assignment]
    out: list[list[Lift | None]] = [[None] * results.ids.shape[1] for _ in results.ids]
    if (results.judged < 0).all():
        return out
    ranked = plain(min(_RANKED, len(moment.index)))
    queries, (total, unit) = asked
    similarities = (
        total[:, None]
        - 2.0 * distances_to_rows(queries.codes, memory.codes, np.maximum(results.judged, 0), queries.weights)
    ) * unit[:, None]
    for row, place in np.argwhere(results.judged >= 0).tolist():
        name, item = memory.names[results.judged[row, place]], results.ids[row, place]
        rank, pairs = np.flatnonzero(ranked[row] == item), memory.items_of(name)
        pinned = bool(pairs[pairs[:, ITEM] == item, PINNED].any())
        plain_rank = int(rank[0]) + 1 if len(rank) else None
        out[row][place] = Lift(name, float(similarities[row, place]), plain_rank, pinned)
    return out


def check_judgements(
    codes: Codes, items: Any, grades: Any, query_ids: Any, pinned: bool, memory: Memory, find: Callable[[Any], Ids]
) -> Judgements:
    """Judgements as they join a memory: one list of items per query, each item with a grade from 0 to 30."""
    if not isinstance(pinned, bool):
        raise ValueError(f"pinned must be True or False, got {pinned!r:.60}")
    lists = _lists(items, len(codes), "items")
    lengths = [len(each) for each in lists]
    graded = [[1] * length for length in lengths] if grades is None else _lists(grades, len(codes), "grades")
    if [len(each) for each in graded] != lengths or not all(lengths):
        raise ValueError("items must name at least one item per query, and grades one grade per item, got others")
    values = [grade for each in graded for grade in each]
    if not all(isinstance(v, int | np.integer) and not isinstance(v, bool) and 0 <= v <= 30 for v in values):
        raise ValueError("grades must be whole numbers from 0 (not relevant) to 30, got others")
    numbers = find([item for each in lists for item in each])
    pairs = np.column_stack(
        [np.repeat(np.arange(len(codes)), lengths), numbers, np.array(values, np.int64), np.full(len(values), pinned)]
    ).astype(np.int64)
    return Judgements(codes, _names(query_ids, codes, memory), pairs)


def nothing(n_bits: int) -> Judgements:
    """No judgements, which join where a gate has judged the others."""
    return Judgements(np.empty((0, (n_bits + 7) // 8), np.uint8), [], np.empty((0, 4), np.int64))


def change_of(judgements: Judgements, judged: bool = False) -> Change:
    """A change of the journal that adds judgements."""
    return Change(judgements.pairs, judgements.codes, {"judged": judgements.names, "by_gate": judged})


def changed(moment: Moment, change: Change) -> Memory:
    """The memory after judgements were forgotten, or joined it, perhaps judged by a gate together with the others."""
    names: dict[str, Any] = change.names  # type: ignore[assignment]
    memory = moment.memory or Memory.empty(moment.n_bits)
    if change.codes is None:
        return memory.remove(names["forgotten"])
    memory = memory.add(change.codes, names["judged"], change.numbers)
    return memory.all_judged() if names["by_gate"] else memory


def judgements(moment: Moment) -> list[dict[str, Any]]:
    """What is remembered, by judged query."""
    memory = moment.memory
    if memory is None:
        return []
    items = moment.ids.of(memory.lists.items).tolist()
    grades, pinned = memory.pairs[:, GRADE].tolist(), memory.lists.pinned.astype(bool).tolist()
    lists = [slice(*bounds) for bounds in pairwise(memory.lists.starts.tolist())]
    return [
        {"query": name, "items": items[part], "grades": grades[part], "pinned": pinned[part], "judged": judged}
        for name, part, judged in zip(memory.names, lists, memory.judged.tolist(), strict=True)
    ]


def summary(moment: Moment) -> MemoryReport | None:
    """What a report says of the memory, or None where nothing is remembered."""
    memory = moment.memory
    if memory is None or not len(memory):
        return None
    n_unjudged, n_pinned = int((~memory.judged).sum()), int(memory.lists.pinned.sum())
    return MemoryReport(len(memory), len(memory.lists.items), n_unjudged, n_pinned, memory.n_bytes, moment.lift_offset)


def _names(query_ids: Any, codes: Codes, memory: Memory) -> list[Any]:
    """Names of judged queries: as they are called, or those of the same codes, or new numbers."""
    if query_ids is None:
        known = {code.tobytes(): name for code, name in zip(memory.codes, memory.names, strict=True)}
        number = max((name for name in memory.names if isinstance(name, int)), default=-1)
        for code in codes:
            if code.tobytes() not in known:
                number += 1
                known[code.tobytes()] = number
        return [known[code.tobytes()] for code in codes]
    names = [name.item() if isinstance(name, np.generic) else name for name in as_values(query_ids, "query_ids")]
    if len(names) != len(codes) or not all(isinstance(n, str | int) and not isinstance(n, bool) for n in names):
        raise ValueError(f"query_ids must be a text or a whole number for each of the {len(codes)} queries, got others")
    return names


def _lists(values: Any, n: int, name: str) -> list[list[Any]]:
    """A list per query; a flat list for a single one."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if isinstance(values, str | bytes | dict) or not isinstance(values, Sequence):
        raise ValueError(f"{name} must be a list per query, got {values!r:.60}")
    if n == 1 and not any(isinstance(each, list | np.ndarray) for each in values):
        values = [list(values)]
    if len(values) != n or not all(isinstance(each, list | tuple | np.ndarray) for each in values):
        raise ValueError(f"{name} must be a list for each of the {n} queries, got {len(values)} of other kinds")
    return [each.tolist() if isinstance(each, np.ndarray) else list(each) for each in values]
