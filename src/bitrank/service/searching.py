"""`Searcher`: pages of results as JSON, for several queries at once."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import numpy.typing as npt

from bitrank import clicks
from bitrank.clicks.exploration import draw_far, place_at_random
from bitrank.clicks.page import CANARY
from bitrank.collection.planes import over_codes
from bitrank.collection.remembering import Linear
from bitrank.core.codes import split_vectors
from bitrank.core.types import Ids, Queries, Results, Weights
from bitrank.service import schemas
from bitrank.service.code_table import is_in
from bitrank.service.collection import Collection, SearchQuery
from bitrank.service.filtering import Filter
from bitrank.service.page_tokens import MAX_SHOWN, PageToken, Signer
from bitrank.service.remembered import Remembered
from bitrank.service.settings import Settings
from bitrank.service.store.profiles import DEFAULT, HAMMING
from bitrank.service.store.rankings import Ranking

Distances = npt.NDArray[np.float32]
LiftedBy = dict[int, tuple[str, bool]]  # the judged query that lifted an item, and whether it is pinned
VersionChoice = int | Literal["candidate"] | None

_N_SAMPLED = 4000  # Codes that tell the trust in a query.
_NOT_EXPLORED = 3  # The first places of a page are never explored.
_FEW = 64  # Searches for at most this many results share a call of the index.


class PageRequest(NamedTuple):
    """What a page of results should hold, and who asks for it."""

    k: int = 20
    profile: str = DEFAULT
    version: VersionChoice = None
    explore: int = 0  # places for items from deeper ranks
    chosen: Sequence[int] = ()
    client: str = ""
    continues: str | None = None  # token of the last page for the same query
    filter: Filter | None = None
    offset: int = 0
    recall: float | None = None  # None leaves it to the settings


class Chosen(NamedTuple):
    """The number of a version, how it ranks, and whether a canary may take its place."""

    number: int | str
    ranking: Ranking
    may_be_canary: bool = False


class Plan(NamedTuple):
    """A search that can run: nothing is left to look up."""

    query: SearchQuery
    request: PageRequest
    version: int | str
    ranked_by: int | str  # the version, or CANARY where the page is ranked by Hamming distance
    queries: Queries  # one row, as the version ranks it
    n_top: int
    n_explored: int
    continued: PageToken | None
    allowed: Ids | None  # that match the filter
    plain: Linear | None  # the query as judged ones are compared with it, where they may lift results
    start: float

    @property
    def n_wanted(self) -> int:
        """Results to ask the index for: the query itself may be one of them."""
        return self.request.offset + self.n_top + len(self.query.known)

    @property
    def teaches(self) -> bool:
        """Whether clicks on the page may teach: a client puts any item on one with a filter, an offset or examples."""
        return self.allowed is None and not self.request.offset and not self.query.examples


class Searcher:
    """Plan and run searches.

    Parameters
    ----------
    collection : Collection
    signer : Signer
        Signs the pages.
    settings : Settings
    ranking : callable
        Returns the number of a version of a profile, and how it ranks.
    remembered : Remembered
        Lifts results of all but the profile hamming and the canary.
    """

    def __init__(
        self,
        collection: Collection,
        signer: Signer,
        settings: Settings,
        ranking: Callable[[str, VersionChoice], Chosen],
        remembered: Remembered,
    ) -> None:
        self._remembered = remembered
        self._collection, self._signer, self._settings, self._ranking = collection, signer, settings, ranking
        if settings.recall is not None and collection.calibration is None:
            raise ValueError(f"recall must be None for a collection without cells, got {settings.recall}")
        self._random = np.random.default_rng(settings.random_state)
        self._draw_key = signer.key_of("explored items") if settings.random_state is None else self._random.bytes(32)
        self._sampled: Any = None  # what calibrations were made from
        self._calibrations: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def plan(self, query: SearchQuery, request: PageRequest) -> Plan:
        """Look up what a search needs; a ValueError says what is wrong with it."""
        start = time.perf_counter()
        profile, k, explore = request.profile, request.k, request.explore
        continued = None if request.continues is None else self._continued(query, request)
        number, ranking, may_be_canary = self._ranking(profile, request.version)
        if profile == HAMMING:
            if request.chosen:
                raise ValueError("the profile hamming weighs every bit the same: chosen needs another profile")
            query = query._replace(vector=query.code, features=None)
        if request.recall is not None and self._collection.calibration is None:
            raise ValueError(f"recall must be null for a collection without cells, got {request.recall}")
        allowed = None if request.filter is None else self._collection.matching(request.filter)
        if allowed is not None or request.offset or query.examples:
            explore = 0
        ranked_by = number
        may_be_canary = may_be_canary and request.version is None and not request.chosen and continued is None
        may_be_canary = may_be_canary and not query.examples
        if may_be_canary and self._random.random() < self._settings.canary:
            ranked_by, ranking = CANARY, Ranking(np.ones(self._collection.n_bits, np.float32))
        queries = self._queries_for(query, ranking)
        if request.chosen:
            queries = self._adapt_to_choices(query, queries, request.chosen)
        n_top, n_explored = max(0, k - explore), min(explore, k)
        lifts = self._remembered.is_active and not query.examples and profile != HAMMING and ranked_by != CANARY
        plain = self._remembered.plain(query) if lifts else None
        return Plan(query, request, number, ranked_by, queries, n_top, n_explored, continued, allowed, plain, start)

    def _queries_for(self, query: SearchQuery, ranking: Ranking) -> Queries:
        """Turn a query into its code and its weights under a version."""
        if query.examples:
            return _weighted(query, np.ones(self._collection.n_bits, np.float32))
        if ranking.ranker is None:
            return _weighted(query, ranking.weights)
        ranker = over_codes(ranking.ranker, self._collection.source.hasher)
        features = None if query.features is None else ranker.features_of(query.features)
        calibration = self._calibration(ranking.ranker)
        return _check_finite(ranker.queries_for(query.vector, features=features, collection=calibration))

    def _calibration(self, ranker: Any) -> Any:
        """What the trust in a query is told from: made once per ranker and sample of the collection."""
        if not hasattr(ranker, "calibrate") or not len(ranker.sample_):  # all queries are treated alike
            return None
        sample = self._collection.sample
        if sample is not self._sampled:
            self._sampled, self._calibrations = sample, WeakKeyDictionary()
        if ranker not in self._calibrations:
            step = max(1, len(sample.codes) // _N_SAMPLED)
            asked = over_codes(ranker, self._collection.source.hasher)
            self._calibrations[ranker] = asked.calibrate(np.ascontiguousarray(sample.codes[::step]))
        return self._calibrations[ranker]

    def run(self, plans: list[Plan]) -> list[bytes]:
        """Search for one page per plan; returns their JSON."""
        tops = self._search(plans)
        return [self._body(plan, top, *self._explore(plan, top)) for plan, top in zip(plans, tops, strict=True)]

    def _continued(self, query: SearchQuery, request: PageRequest) -> PageToken:
        """Read the token of the last page for the same query."""
        page = self._signer.read(request.continues or "")
        if (page.profile, page.item, page.code) != (request.profile, query.item, query.code.tobytes()):
            raise ValueError("continues must be the token of a page of the same query and profile, got another")
        if len(page.shown) + request.k > MAX_SHOWN:
            raise ValueError(f"pages that continue each other must show at most {MAX_SHOWN} items, got more")
        return page

    def _adapt_to_choices(self, query: SearchQuery, queries: Queries, chosen: Sequence[int]) -> Queries:
        """Compute weights for this query alone that rank chosen items before the others of its first page."""
        collection = self._collection
        chosen = [item for item in dict.fromkeys(chosen) if collection.has(item) and item != query.item]
        results = collection.index.search(queries, self._settings.page_size, threads=1)
        passed = [item for item in results.ids[0].tolist() if item >= 0 and item not in (query.item, *chosen)]
        weights, code = queries.weights[0], queries.codes[0]
        adapted = clicks.adapt_to_choices(weights, code, collection.codes(passed), collection.codes(chosen))
        return Queries(queries.codes, adapted[None])

    def _search(self, plans: list[Plan]) -> list[_Top]:
        """Find the best results of each plan, without the item that is its query."""
        found = [_NO_RESULTS] * len(plans)
        order = sorted(
            (plan.n_wanted > _FEW, -1 if plan.allowed is None else at, self._recall_of(plan), at)
            for at, plan in enumerate(plans)
            if plan.n_top and (plan.allowed is None or len(plan.allowed))
        )
        for _, group in groupby(order, key=lambda known: known[:3]):
            rows = [at for *_, at in group]
            recall = self._recall_of(plans[rows[0]])
            queries = _stack([plans[at].queries for at in rows])
            n_wanted = max(plans[at].n_wanted for at in rows)
            options: dict[str, Any] = {"filter": plans[rows[0]].allowed, "threads": 1}
            if recall < 1:
                options |= {"recall": recall, "calibration": self._collection.calibration}
            results = self._collection.index.search(queries, n_wanted, **options)
            lifted = self._lift([plans[at] for at in rows], queries, results)
            keep = results.ids >= 0
            for row, at in enumerate(rows):
                for item in plans[at].query.known:
                    keep[row] &= results.ids[row] != item
                offset = plans[at].request.offset
                places = keep[row].nonzero()[0]
                values, kept = results.distances[row, places], places[offset : offset + plans[at].n_top]
                n_tied = int((values[:offset] == values[offset]).sum()) if len(kept) else 0
                found[at] = _Top(results.ids[row, kept], results.distances[row, kept], n_tied, lifted.get(row, {}))
        return found

    def _lift(self, plans: list[Plan], queries: Queries, results: Results) -> dict[int, LiftedBy]:
        """Lift what judged queries name in the results, in place; returns why, by row."""
        rows = [row for row, plan in enumerate(plans) if plan.plain is not None]
        if not rows:
            return {}
        some = Queries(queries.codes[rows], queries.weights[rows])
        found = Results(results.ids[rows], results.distances[rows])
        plain = [plans[row].plain for row in rows]
        lifted = self._remembered.lift(plain, some, found, plans[0].allowed)  # type: ignore[arg-type]
        results.ids[rows], results.distances[rows] = lifted.ids, lifted.distances
        return {row: self._remembered.lifted_by(lifted, at) for at, row in enumerate(rows)}

    def _recall_of(self, plan: Plan) -> float:
        """The share of the exact results that a search finds; 1 reads all."""
        return plan.request.recall or self._settings.recall or 1.0

    def _explore(self, plan: Plan, top: _Top) -> tuple[list[int], Distances, list[bool]]:
        """Mix items from deeper ranks into the best results."""
        sample, rows, n_top = self._collection.sample, np.empty(0, np.int64), len(top.ids)
        if plan.n_explored:
            random = self._draw_of(plan)
            with suppress(ValueError):  # one of the best results was removed just now
                code, top_codes = plan.query.code[0], self._collection.rows_of(top.ids)
                rows = draw_far(code, top_codes, sample.codes, plan.n_explored, random, distinct=True)
                rows = rows[is_in(sample.ids[rows], self._collection.sorted_ids)]
        if not len(rows):
            return top.ids.tolist(), top.distances, [False] * n_top
        first = min(n_top, _NOT_EXPLORED)
        explored = np.pad(place_at_random(n_top - first, len(rows), random), (first, 0))
        ids, item_distances = np.empty(len(explored), np.int64), np.empty(len(explored), np.float32)
        ids[~explored], item_distances[~explored] = top.ids, top.distances
        ids[explored] = sample.ids[rows]
        code, weights = plan.queries.codes, plan.queries.weights[0]
        item_distances[explored] = np.unpackbits(sample.codes[rows] ^ code, axis=1, count=len(weights)) @ weights
        return ids.tolist(), item_distances, explored.tolist()

    def _draw_of(self, plan: Plan) -> np.random.Generator:
        """One draw per client, query and hour: whoever searches again sees the same items explored."""
        n_shown = 0 if plan.continued is None else len(plan.continued.shown)
        what = (plan.request.client, plan.request.profile, n_shown, int(time.time() // 3600), plan.query.code.tobytes())
        digest = hashlib.blake2b(repr(what).encode(), key=self._draw_key, digest_size=16).digest()
        return np.random.Generator(np.random.SFC64(int.from_bytes(digest, "little")))

    def _body(self, plan: Plan, top: _Top, ids: list[int], item_distances: Distances, explored: list[bool]) -> bytes:
        query, request = plan.query, plan.request
        version = plan.ranked_by if isinstance(plan.ranked_by, int) else None
        token = self._signer.sign(
            query, request.client, request.profile, version, ids, explored, plan.continued, plan.teaches
        )
        values = item_distances.tolist()
        ties = tie_ranks(values, explored, request.offset, top.n_tied)
        places = zip(ids, values, ties, explored, self._collection.shown(ids), strict=True)
        page = {
            "query": {"code": query.code.tobytes().hex(), "item": query.item},
            "profile": request.profile,
            "version": plan.version,
            "results": [
                _Result(item, rank, value, tie, flag, *shown, _lift_of(top, item))
                for rank, (item, value, tie, flag, shown) in enumerate(places, request.offset + 1)
            ],
            "page_token": token,
            "took_ms": round((time.perf_counter() - plan.start) * 1e3, 3),
        }
        return _encode(page)


# Results as `schemas` describes them, encoded faster.
_Result = msgspec.defstruct("_Result", [*schemas.Result.model_fields], gc=False)
_Lift = msgspec.defstruct("_Lift", [*schemas.Lift.model_fields], gc=False)


def _lift_of(top: _Top, item: int) -> msgspec.Struct | None:
    return _Lift(*top.lifted[item]) if item in top.lifted else None


_encode = msgspec.json.Encoder().encode


def _weighted(query: SearchQuery, weights: Weights) -> Queries:
    """Turn a query into its code and its weights, one per bit times the magnitudes."""
    if query.vector.dtype.kind != "f":
        return Queries(query.vector, weights[None])
    codes, magnitudes = split_vectors(query.vector)
    with np.errstate(over="ignore"):
        return _check_finite(Queries(codes, weights * magnitudes))


def _check_finite(queries: Queries) -> Queries:
    """Refuse weights with which a distance may be infinite, which JSON cannot hold."""
    with np.errstate(over="ignore", invalid="ignore"):
        largest = queries.weights.sum(dtype=np.float32)
    if not np.isfinite(largest):
        raise ValueError("the vector times the weights must sum to a finite value in float32, got infinity")
    return queries


def _stack(rows: list[Queries]) -> Queries:
    if len(rows) == 1:
        return rows[0]
    return Queries(np.concatenate([row.codes for row in rows]), np.concatenate([row.weights for row in rows]))


class _Top(NamedTuple):
    """Results after an offset, and how many before it have the distance of the first."""

    ids: Ids
    distances: Distances
    n_tied: int = 0
    lifted: LiftedBy = {}  # noqa: RUF012


_NO_RESULTS = _Top(np.empty(0, np.int64), np.empty(0, np.float32))


def tie_ranks(distances: list[float], explored: list[bool], offset: int = 0, n_tied: int = 0) -> list[int]:
    """Number each place of a page by the first place with the same distance, from 1; explored items stand alone.

    The page begins after an offset, with items before it tied with its first.

    Examples
    --------
    >>> tie_ranks([1.0, 2.0, 5.0, 2.0, 3.0], [False, False, True, False, False])
    [1, 2, 3, 2, 5]
    >>> tie_ranks([2.0, 2.0, 3.0], [False] * 3, offset=10, n_tied=4)
    [7, 7, 13]
    """
    first = {distances[0]: offset + 1 - n_tied} if distances and n_tied else {}
    return [
        rank if is_explored else first.setdefault(distance, rank)
        for rank, (distance, is_explored) in enumerate(zip(distances, explored, strict=True), offset + 1)
    ]
