"""`Collection`: items as bits, a way to ask for them that learns, and one folder that holds both."""

from __future__ import annotations

import copy
import dataclasses
import os
import threading
import warnings
import weakref
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from bitrank.collection import folder as files
from bitrank.collection import promises, remembering
from bitrank.collection.drift import Drift, Fit
from bitrank.collection.folder import Change, State, Stored
from bitrank.collection.ids import AnyIds, ItemIds, Names, Numbers, as_values, is_numbers
from bitrank.collection.moment import Lazy, Moment
from bitrank.collection.planes import PlaneQueries
from bitrank.collection.report import PLAIN, CollectionReport, Learned, Version
from bitrank.collection.results import CollectionResults, Explanation
from bitrank.collection.vectors import GivenVectors, check_vectors
from bitrank.core.arrays import to_array
from bitrank.core.checks import check_any_rows, check_codes, check_count, n_threads
from bitrank.core.types import Codes, Ids, Queries, bits_of
from bitrank.index import Index
from bitrank.index.reading import check_recall
from bitrank.ranking.memory.entries import Memory

if TYPE_CHECKING:
    from bitrank.engines.contract import Engine
    from bitrank.hashing.hasher import Hasher
    from bitrank.ranking import Ranker

METRICS = ("cosine", "dot", "l2")
_MOST_VERSIONS = 10


class Collection:
    """Items as bits, searched by a ranking that learns from labels, judgements, constraints or clicks.

    Make one with `from_vectors` or `from_codes`. What is learned is judged on held-out data before it ranks, and
    queries unlike anything learned from keep the plain ranking. The stored codes never change. All methods may be
    called from several threads; a search sees the items and the ranking of one moment.

    Attributes
    ----------
    attachments : dict of bytes by name
        What the caller keeps beside the items: saved together with them, or not at all, and loaded with them. New ones
        cost an append to the journal, a changed one a full save.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 32))
    >>> collection = Collection.from_vectors(X, ids=[f"item {row}" for row in range(100)])
    >>> ids, distances = collection.search(X[7] + 0.01, k=3)
    >>> ids[0, 0]
    'item 7'
    """

    def __init__(
        self,
        index: Index | Engine,
        ids: ItemIds,
        *,
        hasher: Hasher | None = None,
        n_dimensions: int | None = None,
        metric: str = "cosine",
        cells: str | None = None,
        random_state: int | None = None,
    ) -> None:
        self._random_state = _check_seed(random_state)
        if cells not in (None, "auto"):
            raise ValueError(f'cells must be None or "auto", got {cells!r:.60}')
        lazy = None if hasher is None else Lazy("hasher", hasher)
        self._moment = Moment(index, ids, PLAIN, hasher=lazy, n_dimensions=n_dimensions, metric=metric)
        if cells is not None:
            self._set(promises=promises.Promises())
        self._versions: tuple[tuple[Version, Lazy | None], ...] = ((PLAIN, None),)
        self._learned: Learned | None = None
        self._recall: float | None = None
        self._fit: Fit | None = None
        self._vectors = GivenVectors()
        self._state: State | None = None  # of the folder that holds this, but for the changes since
        self._changes: list[Change] | None = []  # None: too many for the journal
        self.attachments: dict[str, bytes] = {}
        self._make_locks()

    def _make_locks(self) -> None:
        self._writing, self._learning = threading.RLock(), threading.Lock()
        _collections.add(self)

    @classmethod
    def from_vectors(
        cls,
        X: npt.ArrayLike,
        ids: Iterable[Any] | None = None,
        *,
        bits: float | None = None,
        bytes: int | None = None,  # noqa: A002
        float_recall: float | None = None,
        queries: npt.ArrayLike | None = None,
        hasher: Hasher | None = None,
        metric: str = "cosine",
        cells: str | None = None,
        random_state: int | None = None,
    ) -> Self:
        """Make a collection of vectors: their codes are kept, the vectors are not.

        Codes are those of `BitPlanes`, of 4 bits per dimension unless there is a wish; `report` has a table of what
        other numbers of bits cost.

        Parameters
        ----------
        X : array of shape (n, n_dimensions)
        ids : n hashable values, optional
            Whole numbers are fastest; row numbers by default.
        bits : float, optional
            A wish: bits per dimension, from 0.25 to 8.
        bytes : int, optional
            Or bytes per item, at most.
        float_recall : float, optional
            Or the share of the ten nearest vectors that a search finds, at least, on held-out rows of a sample.
        queries : array of shape (n_queries, n_dimensions), optional
            Queries to measure recall with in place of held-out rows, which items are more like.
        hasher : Hasher, optional
            Makes the codes in place of `BitPlanes`. One that is not fitted learns from X.
        metric : {"cosine", "dot", "l2"}
            What makes vectors near. Vectors of length zero have no cosine and are refused.
        cells : "auto", optional
            Call `make_cells` at the first search with `recall`, once there are 200 000 items; until then it reads all.
        random_state : int, optional
            Seed of everything random, also of `learn`.

        Returns
        -------
        Collection

        Examples
        --------
        >>> from bitrank import SignBits
        >>> Collection.from_vectors([[0.5, -2.0], [1.0, 0.25], [-1.0, 0.5]], hasher=SignBits())
        Collection(3 items of 2 bits from 2 dimensions, plain ranking)
        """
        from bitrank.collection import choosing

        if metric not in METRICS:
            raise ValueError(f"metric must be one of {METRICS}, got {metric!r}")
        vectors = check_vectors(X, "X")
        asked = None if queries is None else check_vectors(queries, "queries")
        if asked is not None and asked.shape[1] != vectors.shape[1]:
            raise ValueError(f"queries must have {vectors.shape[1]} columns, as X has, got {asked.shape[1]}")
        wishes = {"bits": bits, "bytes": bytes, "float_recall": float_recall}
        made, fit = choosing.fit_hasher(vectors, asked, hasher, wishes, metric, _check_seed(random_state))
        index = _new_index(made)
        known, numbers = _start_ids(ids, len(vectors), index)
        index.add(made.transform(vectors), numbers)
        n = vectors.shape[1]
        collection = cls(
            index, known, hasher=made, n_dimensions=n, metric=metric, cells=cells, random_state=random_state
        )
        collection._vectors, collection._fit = GivenVectors(((numbers, vectors),)), fit
        collection._recall = choosing.recall_on_held_out(made, vectors, metric, asked)
        return collection

    @classmethod
    def from_codes(
        cls,
        codes: npt.ArrayLike,
        ids: Iterable[Any] | None = None,
        *,
        n_bits: int | None = None,
        hasher: Hasher | None = None,
        cells: str | None = None,
        random_state: int | None = None,
    ) -> Self:
        """Make a collection of binary codes; queries are codes, or reals with one column per bit.

        Parameters
        ----------
        codes : uint8 array of shape (n, ceil(n_bits / 8))
        ids : n hashable values, optional
        n_bits : int, optional
            Eight per byte by default.
        hasher : fitted Hasher, optional
            What made the codes: queries and new items are then vectors.
        cells : "auto", optional
            As in `from_vectors`.
        random_state : int, optional

        Examples
        --------
        >>> collection = Collection.from_codes([[3], [12], [255]], ids=["a", "b", "c"])
        >>> collection.search(np.uint8([[7]]), k=2).ids
        array([['a', 'b']], dtype=object)
        """
        array = to_array(codes, "codes")
        if array.dtype.kind in "iu" and array.size and 0 <= array.min() <= array.max() < 256:
            array = array.astype(np.uint8, copy=False)
        given = codes if array.dtype == np.bool_ else array
        checked, width = check_any_rows(given, bits_of(codes) if n_bits is None else n_bits)
        n_dimensions = None if hasher is None else _check_fitted(hasher, checked, width)
        index = Index(n_bits=width) if hasher is None else _new_index(hasher)
        known, numbers = _start_ids(ids, len(checked), index)
        index.add(checked, numbers)
        return cls(index, known, hasher=hasher, n_dimensions=n_dimensions, cells=cells, random_state=random_state)

    @classmethod
    def from_engine(cls, engine: Engine, hasher: Hasher | None = None, *, random_state: int | None = None) -> Self:
        """Make a collection of codes that stay in an engine, such as a table of PostgreSQL.

        Items that are added or removed change the engine at once. What is learned is kept here: `save` writes it with
        the hasher and without the codes, and `load(path, engine=...)` reads it.

        Parameters
        ----------
        engine : Engine
            What `bitrank.connect` returns.
        hasher : fitted Hasher, optional
            What made the codes: queries and new items are then vectors.
        random_state : int, optional

        Examples
        --------
        >>> import bitrank
        >>> engine = bitrank.connect("memory://")
        >>> engine.create(n_bits=8)
        >>> engine.add(np.uint8([[3], [12]]), ids=[7, 5])
        >>> Collection.from_engine(engine).search(np.uint8([[8]]), k=1).ids
        array([[5]])
        """
        from bitrank.engines.contract import Engine

        if not isinstance(engine, Engine):
            raise ValueError(f"engine must be what bitrank.connect returns, got {engine!r:.60}")
        n_dimensions = None if hasher is None else _check_fitted(hasher, engine.sample(1), engine.n_bits)
        return cls(engine, Numbers(), hasher=hasher, n_dimensions=n_dimensions, random_state=random_state)

    @property
    def ids(self) -> AnyIds:
        """Ids in the order in which items were added: int64, or objects.

        Examples
        --------
        >>> Collection.from_codes([[3], [12]], ids=[7, 5]).ids
        array([7, 5])
        """
        return self._moment.all_ids()

    @property
    def n_bits(self) -> int:
        """Bits per item."""
        return self._moment.n_bits

    @property
    def bytes_per_item(self) -> int:
        """Bytes per code as stored, head and rest, without ids, entries of the index and cells."""
        return self._moment.n_bytes

    @property
    def metric(self) -> str:
        """What makes vectors near."""
        return self._moment.metric

    @property
    def index(self) -> Any:
        """The `Index` that holds the codes of this moment, or an engine; change it through the collection.

        Where ids are no whole numbers, it knows items by row numbers, ascending in the order of `ids`.

        Examples
        --------
        >>> Collection.from_codes([[3], [12]], ids=["a", "b"]).index.ids
        array([0, 1])
        """
        return self._moment.index

    @property
    def n_dimensions(self) -> int | None:
        """Numbers per vector, or None for a collection of codes alone.

        Examples
        --------
        >>> Collection.from_vectors([[0.5, -2.0], [1.0, 0.25]]).n_dimensions
        2
        """
        return self._moment.n_dimensions

    @property
    def hasher(self) -> Hasher | None:
        """What makes the codes of vectors, or None."""
        hasher: Hasher | None = self._moment.get_hasher()
        return hasher

    @property
    def ranker(self) -> Ranker | None:
        """What was learned and is in use, or None."""
        moment = self._moment
        return None if moment.ranker is None else moment.ranker.get()

    @property
    def memory(self) -> Memory | None:
        """What is remembered at this moment, with items as `index` numbers them; None before the first judgement.

        Examples
        --------
        >>> Collection.from_codes([[3], [12]]).memory is None
        True
        """
        return self._moment.memory

    @property
    def versions(self) -> tuple[Version, ...]:
        """The last rankings that were in use, the newest last; `roll_back` returns to one.

        Examples
        --------
        >>> Collection.from_codes([[3], [12]]).versions
        (Version(number=0, kind='plain', ranker=None, blend=0.0, facts={}),)
        """
        return tuple(version for version, _ in self._versions)

    def __len__(self) -> int:
        return len(self._moment.index)

    def __contains__(self, item: object) -> bool:
        moment = self._moment
        return bool(moment.ids.find([item], moment.index)[0] >= 0)

    def __repr__(self) -> str:
        moment = self._moment
        source = "" if moment.n_dimensions is None else f" from {moment.n_dimensions} dimensions"
        ranking = "plain ranking"
        if moment.version.ranker is not None:
            ranking = f"{moment.version.ranker} learned from {moment.version.kind}"
        return f"Collection({len(moment.index)} items of {moment.n_bits} bits{source}, {ranking})"

    def search(
        self,
        Q: Any,
        k: int = 10,
        *,
        similarity: Any = None,
        recall: float | None = None,
        filter: Any = None,  # noqa: A002
        explain: bool = False,
        threads: int | None = None,
    ) -> CollectionResults:
        """Find the k nearest items of each query: learned where that is trusted, plain elsewhere.

        Parameters
        ----------
        Q : array of shape (n_queries, n_dimensions) or (n_dimensions,)
            Vectors; packed codes; for a collection of codes also reals, one column per bit; or what a ranker returned.
        k : int
        similarity : "tanimoto" or ("tversky", alpha, beta), optional
            Rank codes by it, exactly, whatever was learned; distances are one minus the similarity.
        recall : float, optional
            Read only the cells that hold this share, from 0.8 to 0.999, of what an exact search finds, in the mean over
            queries; by default all items are read. See `make_cells`.
        filter : bool array in the order of `ids`, or list of ids, optional
            Items to consider.
        explain : bool
            Give the results an `explanation`: the trust in each query, which ranking answered it, how much of the
            collection was read, and for each result that a judged query lifted, which one, and its rank without.
        threads : int, optional
            All cores by default.

        Returns
        -------
        CollectionResults
            ``(ids, distances)`` of shape (n_queries, k), nearest first, padded with -1 (None where ids are no whole
            numbers) and inf. Distances compare within one query.

        Examples
        --------
        >>> collection = Collection.from_codes([[3], [12], [255]])
        >>> collection.search(np.uint8([[7]]), k=2)
        CollectionResults(ids=array([[0, 1]]), distances=array([[1., 3.]], dtype=float32))
        """
        if recall is not None:
            self._keep_promises(recall)
        moment = self._moment
        k = check_count("k", k, 1)
        wanted = moment.filtered(filter)
        threads = n_threads(threads)
        if similarity is not None and recall is not None:
            raise ValueError(f"recall must be None for a similarity, got {recall!r}")
        if similarity is not None and moment.hasher is None and np.asarray(Q).dtype.kind == "f":
            raise ValueError("queries must be codes for a similarity, got reals")
        queries: Any
        asked, queries, trust = moment.ask(Q) if similarity is None else (None, moment.codes_of(Q), None)
        remembers = similarity is None and moment.lifts
        lifted, form = None, queries
        if remembers:  # lifted by linear scores
            plain = moment.linear(asked)
            if asked is not queries and isinstance(queries, PlaneQueries):
                queries = remembering.with_weights(queries.reals(), moment.n_bits)
            queries, scale = ranked = plain if asked is queries else remembering.linear(plain, queries)
            form = queries if isinstance(form, PlaneQueries) else form
        else:
            scale = moment.scale_of(queries) if similarity is None else remembering.constant_scale(len(queries))
        reads = promises.reading(moment, form, isinstance(Q, Queries), recall)
        found = moment.search(form, k, wanted, threads, similarity, reads)
        numbers, distances = found
        if remembers:
            lifted = remembering.lifted(moment, plain, ranked, (numbers, distances), wanted, threads)
            numbers, distances = lifted.ids, lifted.distances
        out = CollectionResults(moment.ids.of(numbers), distances)
        out.scale = scale
        if explain:
            name, lifts = moment.version.ranker if similarity is None else None, None
            trust = np.full(len(numbers), 0 if name is None else 1, np.float32) if trust is None else trust
            ranking = [name if name and t > 0 else "plain" for t in trust.tolist()]
            read = np.ones(len(numbers)) if found.share is None else found.share
            if lifted is not None:
                lifts = remembering.explain(
                    moment, lifted, plain, lambda n: moment.search(queries, n, wanted, threads)[0]
                )
            out.explanation = Explanation(trust, ranking, lifts, read, promises.promised(reads))
        return out

    def search_examples(
        self,
        positives: Any,
        negatives: Any = None,
        k: int = 10,
        *,
        filter: Any = None,  # noqa: A002
        threads: int | None = None,
    ) -> CollectionResults:
        """Find what is like some examples, and unlike others.

        One vector over the bits separates the examples from a sample of the collection, and is searched exactly. Where
        leaving each example out shows that the nearest example finds the others better, that ranks instead.

        Parameters
        ----------
        positives : list of ids, or matrix of codes or vectors
            What is right. Items named by their ids are not among the results.
        negatives : the same, optional
            What is wrong.
        k : int
        filter : list of ids, or mask, optional
            Items to search.
        threads : int, optional

        Returns
        -------
        CollectionResults
            One row; its `examples` is the `ExampleQuery` that was asked.

        Examples
        --------
        >>> from bitrank import SignBits
        >>> from bitrank.datasets import digits
        >>> images, y = digits()
        >>> collection = Collection.from_vectors(images.reshape(len(images), -1), hasher=SignBits())
        >>> sevens = np.flatnonzero(y == 7)
        >>> y[collection.search_examples(sevens[:5], k=6).ids[0]].tolist()
        [7, 7, 7, 7, 7, 7]
        """
        from bitrank.collection.examples import read_examples, search_like

        moment = self._moment
        k, threads = check_count("k", k, 1), n_threads(threads)
        wanted = moment.filtered(filter)
        right, wrong = read_examples(moment, positives, "positives"), read_examples(moment, negatives, "negatives")
        numbers, distances, query = search_like(moment, right, wrong, k, wanted, threads)
        out = CollectionResults(moment.ids.of(numbers), distances)
        out.examples, out.scale = query, remembering.scale_of(query.queries, moment.n_bits, False)
        if query.kind == "tanimoto":
            out.scale = remembering.constant_scale(1)
        return out

    def queries_for(self, Q: Any) -> Queries:
        """What `search` asks the codes: a code, weights and trust per query, for an engine or for `bitrank.evaluation`.

        Examples
        --------
        >>> Collection.from_codes([[3], [12]]).queries_for(np.uint8([[7]])).weights
        array([[1., 1., 1., 1., 1., 1., 1., 1.]], dtype=float32)
        """
        moment = self._moment
        _, queries, trust = moment.ask(Q)
        if isinstance(queries, Queries):
            return queries
        if isinstance(queries, PlaneQueries):
            queries = queries.reals()
        return remembering.with_weights(queries, moment.n_bits)._replace(trust=trust)

    def similarity(self, results: CollectionResults) -> npt.NDArray[np.float32]:
        """Similarities that distances stand for: the estimated cosine for sign bits, else 1 where all bits agree.

        Parameters
        ----------
        results : CollectionResults
            Of `search`.

        Returns
        -------
        float32 array of shape (n_queries, k)
            From −1 to 1, descending; −inf where results are padded.

        Examples
        --------
        >>> collection = Collection.from_codes([[3], [12], [255]])
        >>> collection.similarity(collection.search(np.uint8([[3]]), k=2))
        array([[1., 0.]], dtype=float32)
        """
        if getattr(results, "scale", None) is None:
            raise ValueError("results must come from a search of this collection, got others")
        total, unit = results.scale  # type: ignore[misc]
        return ((total[:, None] - 2.0 * results.distances) * unit[:, None]).astype(np.float32)

    def learn(
        self,
        labels: Any = None,
        *,
        pairs: Any = None,
        constraints: Any = None,
        clicks: Any = None,
        unjudged: Any = None,
        queries: Any = None,
        query_ids: Sequence[Any] | None = None,
        features: npt.ArrayLike | None = None,
        ranker: Any = None,
        ignore_unknown: bool = False,
    ) -> CollectionReport:
        """Learn how to ask, from one kind of evidence, and use it if held-out data surely rank better.

        Parameters
        ----------
        labels : array-like of shape (n,)
            A label per item, in the order of `ids`; None, NaN or −1 for items that have none.
        pairs : rows of (row of queries, id of an item[, grade]), a qrels file, or a sparse matrix
            Judgements; the columns of a sparse matrix are in the order of `ids`.
        constraints : rows of (query, dissimilar id, similar id[, similar id])
            The query is a row of `queries`, or an id where these are not given.
        clicks : path of a log, paths, or pages
        unjudged : array of vectors
            Queries without judgements: learn to rank as the vectors do.
        queries : array
            What the first column of pairs and constraints numbers, as `search` takes them.
        query_ids : sequence, optional
            Names of the queries in pairs and qrels; row numbers by default.
        features : array of shape (n, n_dimensions), optional
            Vectors of all items in the order of `ids`, where the process that made the collection has ended.
        ranker : Ranker or str, optional
            By default the one that ranks best: `QueryVectorRanker`, or `RankingSVM` for constraints.
        ignore_unknown : bool
            Leave out evidence about ids that the collection does not hold, which is else a ValueError.

        Returns
        -------
        CollectionReport

        Examples
        --------
        >>> from bitrank import SignBits
        >>> from bitrank.datasets import digits
        >>> images, y = digits()
        >>> collection = Collection.from_vectors(images[:600].reshape(600, -1), hasher=SignBits(), random_state=0)
        >>> report = collection.learn(labels=y[:600], ranker="WhRank")
        >>> report.version.ranker, report.learned.accepted
        ('WhRank', True)
        """
        from bitrank.collection import learning

        given = {"labels": labels, "pairs": pairs, "constraints": constraints, "clicks": clicks, "unjudged": unjudged}
        kinds = [kind for kind, value in given.items() if value is not None]
        if len(kinds) != 1:
            raise ValueError(f"learn must get one kind of evidence, got {', '.join(kinds) or 'none'}")
        kind = kinds[0]
        if queries is not None and kind not in ("pairs", "constraints"):
            raise ValueError(f"queries must be None for {kind}, got some")
        with self._learning:
            moment = self._moment
            if not len(moment.index):
                raise ValueError("the collection must hold items to learn about, got none")
            made = learning.make_ranker(ranker, kind, hasattr(self.hasher, "points"), self._random_state)
            items = learning.items_of(moment, features, self._vectors, made.space)
            asked = unjudged if kind == "unjudged" else queries
            reals, vectors = (None, None) if asked is None else moment.read_queries(asked)
            reals = reals if vectors is None else items.project(vectors)
            evidence = learning.Evidence(kind, given[kind], reals, vectors, query_ids, ignore_unknown)
            learned_ranker, learned, taught = learning.learn(made, items, evidence)
            offset: float | None = None
            if taught is not None:
                codes = moment.codes_of(queries)
                if made.space == "vectors" and vectors is not None:
                    hasher: Any = self.hasher
                    taught = taught.of_planes(PlaneQueries.of(hasher, vectors))
                plain = moment.linear(moment.plain(reals, vectors))
                judgements = remembering.judged_pairs(moment, moment, codes, taught, query_ids)
                accepted = learned_ranker is not None
                judged = remembering.judge(moment, judgements, taught, plain, accepted, self._random_state)
                learned, offset = dataclasses.replace(learned, memory=judged._asdict()), judged.offset
                learned_ranker = learned_ranker if judged.use in ("vector", "both") else None
            with self._writing:
                self._learned = learned
                if taught is not None and (offset is not None or self._moment.memory is not None):
                    judgements = remembering.judged_pairs(moment, self._moment, codes, taught, query_ids)
                    judgements = judgements if offset is not None else remembering.nothing(self.n_bits)
                    self._change_memory(remembering.change_of(judgements, judged=True))
                withdrawn = taught is not None and self._moment.lift_offset is not None
                real_queries = learned_ranker is not None and asked is not None
                if real_queries and self._moment.promises is not None:
                    kept = self._moment.promises.with_queries(reals if vectors is None else vectors)
                    self._changes = None
                    self._set(promises=kept)
                if learned_ranker is not None or offset is not None or withdrawn:
                    facts = {"gain": learned.gate.gain} if learned.gate else {}
                    facts |= {} if offset is None else {"memory": offset}
                    self._use(kind, None if learned_ranker is None else Lazy("ranker", learned_ranker), facts)
        return self.report()

    def use(self, ranker: Ranker) -> Version:
        """Rank by a ranker that learned elsewhere; nothing judges it here.

        Examples
        --------
        >>> from bitrank import AsymmetricRanker
        >>> collection = Collection.from_codes([[3], [12]])
        >>> collection.use(AsymmetricRanker().fit(np.uint8([[3], [12]])))
        Version(number=1, kind='elsewhere', ranker='AsymmetricRanker', blend=0.0, facts={})
        """
        n_bits = getattr(ranker, "n_bits_", None)
        if n_bits is None:
            raise ValueError(f"ranker must be a fitted ranker, got {ranker!r:.60}")
        hasher: Any = self.hasher
        if ranker.space == "vectors" and hasattr(hasher, "n_point_"):
            wanted, unit = hasher.n_point_, "numbers of a point"
        else:
            wanted, unit = self.n_bits, "bits"
        if n_bits != wanted:
            raise ValueError(f"ranker must be of the {wanted} {unit} of the collection, got one of {n_bits} {unit}")
        new = Lazy("ranker", copy.deepcopy(ranker))
        with self._writing:
            moment = self._moment
            if moment.ranker is not None and moment.ranker.data() == new.data():
                return moment.version
            return self._use("elsewhere", new)

    def remember(
        self,
        queries: Any,
        items: Any,
        *,
        grades: Any = None,
        query_ids: Sequence[Any] | None = None,
        pinned: bool = False,
    ) -> list[Any]:
        """Remember what was wanted by whoever asked these queries; a search of the next moment knows it.

        Once `learn(pairs=...)` has found that remembering ranks held-out queries surely better, a query near a judged
        one lifts up to five of the items that it names. Until then judgements are kept and lift nothing, except those
        that are pinned: an operator's word, for queries of a similarity of at least .95.

        Parameters
        ----------
        queries : as `search` takes them
        items : list of ids per query, or one list for a single query
        grades : list of whole numbers per query, optional
            0 takes an item out of the query's list; 1 by default.
        query_ids : texts or whole numbers, optional
            What `forget`, `explain` and `judgements` call the queries. A known one joins its list. By default a query
            with the code of a known one is the same, and others get new numbers.
        pinned : bool

        Returns
        -------
        list
            The ids of the queries.

        Examples
        --------
        >>> collection = Collection.from_codes([[3], [12], [255]], ids=["a", "b", "c"])
        >>> collection.remember(np.uint8([3]), ["c"], query_ids=["three"], pinned=True)
        ['three']
        >>> results = collection.search(np.uint8([3]), k=2, explain=True)
        >>> results.ids.tolist(), results.explanation.lifted[0][0].query
        ([['c', 'a']], 'three')
        """
        with self._writing:
            moment = self._moment
            codes, memory = moment.codes_of(queries), moment.memory or Memory.empty(moment.n_bits)
            find = partial(moment.find, name="items")
            judgements = remembering.check_judgements(codes, items, grades, query_ids, pinned, memory, find)
            self._change_memory(remembering.change_of(judgements))
            return judgements.names

    def judgements(self) -> list[dict[str, Any]]:
        """What is remembered: for each judged query its id, items, grades, and which of them are pinned.

        Examples
        --------
        >>> collection = Collection.from_codes([[3], [12]], ids=["a", "b"])
        >>> collection.remember(np.uint8([3]), ["b"], query_ids=["three"])
        ['three']
        >>> collection.judgements()
        [{'query': 'three', 'items': ['b'], 'grades': [1], 'pinned': [False], 'judged': False}]
        """
        return remembering.judgements(self._moment)

    def forget(self, queries: Sequence[Any] | None = None) -> None:
        """Forget judged queries by id; without any, return to the plain ranking, bit for bit.

        What was in use stays among `versions`. Judgements that `remember` keeps stay and lift nothing, except pinned
        ones, which only their ids forget.

        Examples
        --------
        >>> collection = Collection.from_codes([[3], [12]])
        >>> collection.forget()
        >>> collection.versions[-1].kind
        'plain'
        """
        with self._writing:
            if queries is None:
                self._use("plain", None)
                return
            moment, names = self._moment, list(dict.fromkeys(as_values(queries, "queries")))
            memory = moment.memory or Memory.empty(self.n_bits)
            unknown = [name for name in names if name not in memory.places]
            if unknown:
                raise ValueError(f"queries must be ids of judged queries, got {unknown[0]!r}, which is none")
            self._change_memory(Change(np.empty(0, np.int64), None, {"forgotten": names}))

    def _change_memory(self, change: Change) -> None:
        self._note(change)
        self._set(memory=remembering.changed(self._moment, change))

    def roll_back(self, number: int | None = None) -> Version:
        """Use an earlier version again, by default the one before; it becomes the newest version.

        Examples
        --------
        >>> collection = Collection.from_codes([[3], [12]])
        >>> collection.forget()
        >>> collection.roll_back(0).number
        2
        """
        with self._writing:
            kept = {version.number: (version, ranker) for version, ranker in self._versions}
            if number is None and len(self._versions) < 2:
                raise ValueError("versions must hold an earlier one to roll back to, got one version")
            number = self._versions[-2][0].number if number is None else number
            if number not in kept:
                raise ValueError(f"number must be that of a version in {sorted(kept)}, got {number!r}")
            version, ranker = kept[number]
            return self._use(version.kind, ranker, dict(version.facts))

    def report(self) -> CollectionReport:
        """What the collection holds, what the last `learn` found on held-out data, and what is in use.

        Examples
        --------
        >>> print(Collection.from_codes([[3], [12]]).report())
        2 items of 8 bits: 1 byte per item
        in use: the plain ranking (nothing was learned yet)
        """
        moment = self._moment
        return CollectionReport(
            n_items=len(moment.index),
            n_bits=moment.n_bits,
            bytes_per_item=moment.n_bytes,
            n_dimensions=moment.n_dimensions,
            hasher=None if moment.hasher is None else type(moment.get_hasher()).__name__,
            metric=moment.metric,
            n_scanned=getattr(moment.index, "n_scanned", moment.n_bits),
            recall=self._recall,
            costs=[] if self._fit is None else self._fit.costs,
            drift=self._drift(),
            version=moment.version,
            learned=self._learned,
            memory=remembering.summary(moment),
            curve=promises.curve(moment),
        )

    @property
    def takes_recall(self) -> bool:
        """Whether `search` takes `recall`: there are cells, or they are made when they are first needed."""
        return self._moment.promises is not None

    @property
    def calibration(self) -> Any:
        """What `index.search` takes beside `recall` for queries that nobody measured, or None without cells."""
        measured = () if self._moment.promises is None else tuple(self._moment.promises.measured.values())
        return measured[-1].calibration.for_others() if measured else None

    def make_cells(self, queries: Any = None) -> CollectionReport:
        """Order items by cells, sets of similar ones, so that a search with `recall` reads the nearest cells alone.

        What must be read is measured for the ranking in use, now and whenever another one is put in use or a tenth of
        the items was added or removed; `report` has the figures. Searches go on meanwhile. Exact search stays exact.

        Parameters
        ----------
        queries : array, optional
            Real ones, as `search` takes them; a thousand are kept. Items stand for them, with a margin, where there are
            none here and none that `learn` was given. Cells that exist are kept, and measured on them.

        Examples
        --------
        >>> X = np.random.default_rng(0).normal(size=(3000, 16))
        >>> collection = Collection.from_vectors(X[:2000])
        >>> report = collection.make_cells(queries=X[2000:])
        >>> collection.search(X[2000:], k=10, recall=0.95).ids.shape
        (1000, 10)
        """
        if queries is not None:
            reals, vectors = self._moment.read_queries(queries)
            queries = reals if vectors is None else vectors
        with self._writing:
            moment = self._moment
            if not isinstance(moment.index, Index):
                raise ValueError("the collection must hold its codes to make cells of them, got one in an engine")
            index, kept = moment.index, moment.promises or promises.Promises()
            if queries is None or not index.has_cells:
                index = promises.make_cells(index, self.hasher, self._random_state)
                kept = promises.Promises(kept.queries)
            self._set(measure=True, index=index, promises=kept.with_queries(queries))
            self._changes = None
        return self.report()

    def _keep_promises(self, recall: float) -> None:
        """Make cells where the first search with `recall` shall, and measure what was not."""
        check_recall(recall)
        moment = self._moment
        if moment.promises is None:
            raise ValueError(f"recall must be None for a collection without cells (see make_cells), got {recall!r}")
        if not moment.index.has_cells and len(moment.index) >= promises.LEAST_ITEMS:
            with self._writing:
                if not self._moment.index.has_cells:
                    self.make_cells()
        if not promises.is_ready(self._moment):
            with self._writing:
                self._set(measure=True)

    def _set(self, *, measure: bool = False, **changes: Any) -> None:
        """Search another moment from now on, one that knows what its ranking must read for a promise of recall."""
        moment = dataclasses.replace(self._moment, **changes)
        if measure and moment.promises is not None and isinstance(moment.index, Index):
            moment = promises.measure(moment, self._vectors)
        self._moment = moment

    def add(self, X: Any, ids: Iterable[Any] | None = None, *, replace: bool = False) -> None:
        """Add items.

        Parameters
        ----------
        X : array of shape (n, n_dimensions)
            Vectors, or packed codes.
        ids : n values, optional
            New ones, of the kind of the others; by default the numbers after the largest.
        replace : bool
            Take the place of items that have these ids, which is else a ValueError.

        Examples
        --------
        >>> collection = Collection.from_codes([[3], [12]])
        >>> collection.add(np.uint8([[255]]))
        >>> len(collection)
        3
        """
        codes, vectors = self._read_items(X)
        hasher: Any = self.hasher
        error = None if self._fit is None or vectors is None or not len(vectors) else hasher.error(vectors)
        with self._writing:
            moment, removed = self._moment, np.empty(0, np.int64)
            if replace and ids is not None:
                ids = as_values(ids)
                removed = moment.ids.find(ids, moment.index)
                removed = removed[removed >= 0]
            moment, numbers = moment.with_items(codes, ids, removed)
            if len(removed):
                self._note(Change(removed, None, {"replaced": True}))
            names = None if isinstance(moment.ids, Numbers) else moment.ids.of(numbers).tolist()
            self._note(Change(numbers, codes, names))
            self._vectors = self._vectors.remove(removed).add(numbers, vectors)
            self._change_items(moment, len(codes) + len(removed))
            if error is not None and self._fit is not None:
                self._notice_drift(self._fit.with_added(error, len(codes)))

    def _change_items(self, moment: Moment, n: int) -> None:
        """Search other items from now on, n of which are new or gone."""
        kept = moment.promises and moment.promises.changed(n)
        self._moment = dataclasses.replace(moment, promises=kept)
        self._set(measure=kept is not None and bool(kept.measured))

    def _drift(self) -> Drift | None:
        """How much worse codes hold items that were added than those that they were fitted on."""
        hasher: Any = self.hasher
        return None if self._fit is None else self._fit.drift(hasher.bits)

    def _notice_drift(self, fit: Fit) -> None:
        """Take the error of new items into account, and warn when it first costs too much."""
        before = self._drift()
        self._fit = fit
        drift = self._drift()
        if drift is not None and drift.is_large and not (before is not None and before.is_large):
            warnings.warn(f"{drift}; refit(vectors) makes the codes again", stacklevel=3)

    def refit(self, vectors: npt.ArrayLike) -> CollectionReport:
        """Make the codes again, fitted on the vectors of all items as they are today.

        The ranking is the plain one afterwards: what was learned was learned of the old codes. Judged queries that
        `remember` keeps are translated.

        Parameters
        ----------
        vectors : array of shape (n, n_dimensions)
            In the order of `ids`.

        Examples
        --------
        >>> X = np.random.default_rng(0).normal(size=(200, 16))
        >>> collection = Collection.from_vectors(X[:100], random_state=0)
        >>> collection.add(3 * X[100:])
        >>> collection.refit(np.vstack([X[:100], 3 * X[100:]])).drift is None
        True
        """
        from sklearn.base import clone

        from bitrank.collection import choosing

        hasher: Any = self.hasher
        if hasher is None or not isinstance(self._moment.index, Index):
            raise ValueError("refit must be of a collection of vectors, got one of codes or of an engine")
        X = check_vectors(vectors, "vectors")
        with self._learning, self._writing:
            moment = self._moment
            wanted = (len(moment.index), moment.n_dimensions)
            if X.shape != wanted:
                raise ValueError(f"vectors must hold those of all items, of shape {wanted}, got {X.shape}")
            memory, decode = moment.memory, getattr(hasher, "decode", None)
            if memory is not None and len(memory) and decode is None:
                raise ValueError(f"a {type(hasher).__name__} cannot translate judged queries: forget them before refit")
            new = clone(hasher).fit(X)
            index = _new_index(new)
            index.add(new.transform(X), moment.numbers())
            if memory is not None and decode is not None:
                codes = new.transform(decode(memory.codes)) if len(memory) else memory.codes[:0]
                memory = memory.of_codes(codes, new.n_bits_) if len(memory) else None
            kept = moment.promises and promises.Promises()
            self._set(index=index, hasher=Lazy("hasher", new), memory=memory, promises=kept)
            self._vectors, self._recall = GivenVectors(), choosing.recall_on_held_out(new, X, moment.metric)
            self._fit = self._fit and Fit(self._fit.costs, new.error(X))
            self._changes = None
            self._use("plain", None)
        return self.report()

    def remove(self, ids: Iterable[Any]) -> None:
        """Remove items; an unknown id is a ValueError, and nothing is removed.

        Examples
        --------
        >>> collection = Collection.from_codes([[3], [12]], ids=["a", "b"])
        >>> collection.remove(["a"])
        >>> "a" in collection
        False
        """
        with self._writing:
            moment = self._moment
            numbers = moment.find(ids, "ids")
            if len(np.unique(numbers)) < len(numbers):
                raise ValueError("ids must be unique, got one more than once")
            moment = moment.without_items(numbers)
            self._note(Change(numbers, None, None))
            self._vectors = self._vectors.remove(numbers)
            self._change_items(moment, len(numbers))

    def codes(self, ids: Iterable[Any] | None = None) -> Codes:
        """Packed codes of some ids, or of all in the order of `ids`.

        Examples
        --------
        >>> Collection.from_codes([[3], [12]], ids=["a", "b"]).codes(["b"])
        array([[12]], dtype=uint8)
        """
        moment = self._moment
        numbers = moment.numbers() if ids is None else moment.find(ids, "ids")
        codes: Codes = moment.index.codes(numbers)
        return codes

    def save(self, path: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Write the collection to a folder, whole or not at all; a small change costs one append to a journal.

        Parameters
        ----------
        path : str or path
        replace : bool
            Take the place of another collection there. Without it, a folder that holds one that this was not loaded
            from, or that another process has saved since, is a ValueError.

        Examples
        --------
        >>> Collection.from_codes([[3], [12]]).save("shop.bitrank")
        >>> len(Collection.load("shop.bitrank"))
        2
        """
        target = Path(path)
        with self._writing:
            state = self._state if self._state is not None and self._state.is_at(target) else None
            attachments = dict(self.attachments)
            wrong = [each for each in attachments.items() if list(map(type, each)) != [str, bytes]]
            if wrong:
                raise ValueError(f"attachments must be bytes by name, got {wrong[0]!r:.60}")
            if state is None or replace or self._changes is None or not state.keeps(attachments):
                self._state = files.write(target, self._to_store(attachments), state, replace=replace)
            else:
                self._state = files.append(state, self._changes, self._facts(), self._rankers(), attachments)
            self._changes = []

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, mmap: bool = True, engine: Engine | None = None) -> Self:
        """Read a collection that `save` wrote, or the folder of an `Index`; nothing is unpickled.

        Parameters
        ----------
        path : str or path
        mmap : bool
            Map the codes into memory instead of reading them.
        engine : Engine, optional
            What holds the codes, for a collection that was made by `from_engine`.

        Examples
        --------
        >>> Collection.from_codes([[3], [12]]).save("codes.bitrank")
        >>> Collection.load("codes.bitrank").search(np.uint8([[8]]), k=1).ids
        array([[1]])
        """
        if not files.is_collection(path):
            from bitrank.collection.older import read_older

            older = read_older(Path(path), cls, mmap)
            if older is not None:
                return older  # type: ignore[return-value]
        stored, state = files.read(path, mmap)
        facts = stored.facts
        if stored.index is None and engine is None:
            raise ValueError("engine must be the engine that holds the codes, got None")
        if stored.index is not None and engine is not None:
            raise ValueError(f"engine must be None, since the folder has the codes, got {engine!r:.60}")
        ids = Names.of_rows(stored.ids) if isinstance(stored.ids, list) else Numbers(stored.ids)
        collection = cls(engine if stored.index is None else stored.index, ids)  # type: ignore[arg-type]
        collection._random_state = facts["random_state"]
        if facts["learned"] is not None:
            collection._learned = Learned.from_json(facts["learned"])
        collection._recall, collection._state = facts["recall"], state
        collection._fit = Fit.from_json(facts.get("fit", {}))
        collection.attachments = dict(stored.attachments)
        rankers = {number: Lazy("ranker", data=data) for number, data in stored.rankers.items()}
        versions = [Version(**value) for value in facts["versions"]]
        collection._versions = tuple((version, rankers.get(str(version.number))) for version in versions)
        version, ranker = collection._versions[-1]
        memory = None if stored.memory is None else Memory.from_bytes(stored.memory, collection.n_bits)
        collection._moment = _replay(dataclasses.replace(collection._moment, memory=memory), stored.changes)
        collection._set(
            version=version,
            ranker=ranker,
            promises=promises.Promises.of_facts(facts.get("promises"), stored.queries),
            hasher=None if stored.hasher is None else Lazy("hasher", data=stored.hasher),
            n_dimensions=facts["n_dimensions"],
            metric=facts["metric"],
        )
        return collection

    def __copy__(self) -> Self:
        out = type(self).__new__(type(self))
        out.__setstate__(self._everything())
        return out

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__copy__()  # moments are frozen, and every change makes a new one

    def __getstate__(self) -> dict[str, Any]:
        return self._everything() | {"_vectors": GivenVectors()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_locks()

    def _everything(self) -> dict[str, Any]:
        with self._writing:
            state = {name: value for name, value in self.__dict__.items() if name not in ("_writing", "_learning")}
            changes = None if self._changes is None else list(self._changes)
            return state | {"_changes": changes, "attachments": dict(self.attachments)}

    # What is held ----------------------------------------------------------------------------------------------------

    def _read_items(self, X: Any) -> tuple[Codes, npt.NDArray[Any] | None]:
        """Codes of items, and the vectors that they were made from."""
        moment, shape = self._moment, (getattr(X, "dtype", None), *getattr(X, "shape", ())[1:])
        is_code = shape == (np.uint8, moment.n_bytes) and moment.n_bytes != moment.n_dimensions
        if moment.hasher is None or is_code:
            return check_codes(X, moment.n_bits), None
        vectors = check_vectors(X, "X")
        if vectors.shape[1] != moment.n_dimensions:
            raise ValueError(f"X must have {moment.n_dimensions} columns, got {vectors.shape[1]}")
        return moment.get_hasher().transform(vectors), vectors

    def _use(self, kind: str, ranker: Lazy | None, facts: dict[str, Any] | None = None) -> Version:
        """Rank by a new version from the next search on."""
        number = self._versions[-1][0].number + 1
        version = Version(number, kind, facts=facts or {})
        if ranker is not None:
            learned = ranker.get()
            version = Version(number, kind, type(learned).__name__, float(learned.blend_), version.facts)
        self._versions = (*self._versions, (version, ranker))[-_MOST_VERSIONS:]
        self._set(measure=True, version=version, ranker=ranker)
        return version

    # Files -----------------------------------------------------------------------------------------------------------

    def _note(self, change: Change) -> None:
        """Remember a change for the journal, while the journal stays small beside what a full save writes."""
        of_items = not isinstance(change.names, dict) or "replaced" in change.names
        in_engine = of_items and not isinstance(self._moment.index, Index)
        if self._state is not None and self._changes is not None and not in_engine:
            self._changes.append(change)
            if not files.fits_journal(self._state, self._changes, len(self), self.bytes_per_item):
                self._changes = None

    def _rankers(self) -> dict[str, Lazy]:
        return {str(version.number): ranker for version, ranker in self._versions if ranker is not None}

    def _facts(self) -> dict[str, Any]:
        moment = self._moment
        return {
            "n_dimensions": moment.n_dimensions,
            "metric": moment.metric,
            "random_state": self._random_state,
            "recall": self._recall,
            "fit": {} if self._fit is None else self._fit.to_json(),
            "ids": moment.ids.kind,
            "versions": [dataclasses.asdict(version) for version, _ in self._versions],
            "learned": None if self._learned is None else self._learned.to_json(),
            "promises": None if moment.promises is None else moment.promises.to_json(),
        }

    def _to_store(self, attachments: dict[str, bytes]) -> Stored:
        moment = self._moment
        hasher = None if moment.hasher is None else moment.hasher.data()
        rankers = {number: ranker.data() for number, ranker in self._rankers().items()}
        index = moment.index if isinstance(moment.index, Index) else None
        memory = None if moment.memory is None else moment.memory.to_bytes()
        queries = None if moment.promises is None else moment.promises.to_bytes()
        ids = moment.ids.to_store(moment.index)
        return Stored(index, self._facts(), ids, hasher, rankers, [], attachments, memory, queries)


_collections: weakref.WeakSet[Collection] = weakref.WeakSet()


def _renew_locks() -> None:
    """A fork copies locks that threads of the parent hold, and not the threads."""
    for collection in list(_collections):
        collection._make_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


def _check_seed(random_state: Any) -> int | None:
    if random_state is not None and (not isinstance(random_state, int) or isinstance(random_state, bool)):
        raise ValueError(f"random_state must be an int or None, got {random_state!r:.60}")
    return random_state


def _check_fitted(hasher: Hasher, codes: Codes, n_bits: int) -> int:
    """Dimensions of a hasher that may have made some codes."""
    if getattr(hasher, "n_bits_", None) is None:
        raise ValueError(f"hasher must be a fitted Hasher, got {hasher!r:.60}")
    if hasher.n_bits_ != n_bits:
        raise ValueError(f"hasher must make codes of {n_bits} bits, got one of {hasher.n_bits_} bits")
    hasher.check_codes(codes)
    return int(hasher.n_features_in_)


def _new_index(hasher: Hasher) -> Index:
    """An index for codes of a hasher: in two parts, where they have a head."""
    n_scanned = getattr(hasher, "n_scanned_", None)
    weights = None if n_scanned is None else hasher.bit_weights_[:n_scanned]
    return Index(n_bits=hasher.n_bits_, n_scanned=n_scanned, query_weights=weights)


def _start_ids(ids: Any, n: int, index: Index) -> tuple[ItemIds, Ids]:
    """Ids of the first items."""
    ids = None if ids is None else as_values(ids)
    start: ItemIds = Numbers() if ids is None or is_numbers(ids) else Names()
    return start.add(ids, n, index)


def _replay(moment: Moment, changes: list[Change]) -> Moment:
    """The items and the memory after the changes of a journal."""
    replaced = None
    for change in changes:
        names = change.names
        if isinstance(names, dict) and "replaced" not in names:
            moment = dataclasses.replace(moment, memory=remembering.changed(moment, change))
        elif change.codes is not None:
            moment, _ = moment.with_items(change.codes, change.numbers if names is None else names, replaced)
            replaced = None
        elif names is None:
            moment = moment.without_items(change.numbers)
        else:
            replaced = change.numbers
    return moment
