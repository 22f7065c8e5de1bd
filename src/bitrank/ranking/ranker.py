"""`Ranker`, the contract of all rankers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bitrank.core.archives import Archive, write_archive
from bitrank.core.estimators import PlainMethods
from bitrank.core.metrics import average_precision
from bitrank.core.types import Codes, Queries, Rows, Weights
from bitrank.ranking.evidence.kinds import (
    Matrix,
    QueryRows,
    blocks,
    check_constraint_evidence,
    check_features,
    check_label_evidence,
    check_pair_evidence,
    check_query_rows,
    check_vector_evidence,
)
from bitrank.ranking.examples import ExampleQuery, query_from
from bitrank.ranking.gate.judge import distances_between
from bitrank.ranking.gate.report import Report, check_scoring
from bitrank.ranking.networks.threads import one_blas_thread
from bitrank.ranking.registry import FORMAT, RANKERS, VERSION, check_archive, ranker_class
from bitrank.ranking.trust import sample_collection

_SCORED_QUERIES = 1024  # per block of `score`


@dataclass(eq=False, repr=False)
class Ranker(PlainMethods, BaseEstimator):
    """Turn queries into codes and weights to search with.

    A ranker learns from class labels (`fit`), judged pairs (`fit_pairs`) or constraints (`fit_constraints`), or says
    which of them it cannot learn from. Queries are packed codes, or reals of one column per bit
    (`hasher.project(X)`): their signs are a code and their sizes say how sure each bit is.

    Attributes
    ----------
    n_bits_ : int
        Length of the codes.
    blend_ : float
        Share of what was learned in the ranking, from 0 (the plain distance) to 1.
    report_ : Report
        What was tried on held-out data, with its figures and the winner; the first line is the plain distance. Empty
        without a gate.

    Examples
    --------
    >>> ranker = ranker_class("AsymmetricRanker")().fit(np.uint8([[160], [96]]))
    >>> isinstance(ranker, Ranker), ranker.queries_for(np.ones((1, 8))).codes
    (True, array([[255]], dtype=uint8))
    """

    learns_from: ClassVar[frozenset[str]] = frozenset({"labels"})
    space: str = field(init=False, default="codes")  # what items are: codes, or vectors
    _ungated_blend: ClassVar[float] = 1.0  # where no gate decides
    # Learned arrays that a file keeps, with a letter per side: "b" for bits. Further facts are JSON values.
    _arrays: ClassVar[dict[str, str]] = {}
    _facts: ClassVar[tuple[str, ...]] = ()

    n_bits_: int = field(init=False)
    blend_: float = field(init=False)
    report_: Report = field(init=False)

    n_bits: int | None = None

    def fit(
        self,
        codes: Codes,
        y: npt.ArrayLike,
        *,
        queries: npt.ArrayLike | None = None,
        features: npt.ArrayLike | None = None,
        collection: Any = None,
    ) -> Self:
        """Learn from class labels.

        Parameters
        ----------
        codes : uint8 array of shape (n, ceil(n_bits / 8))
            Packed codes.
        y : array-like of shape (n,)
            Class of each code.
        queries : packed codes, or float array of shape (n, n_bits), optional
            The same rows as they will come as queries; by default the codes.
        features : float array of shape (n, n_features), optional
            What else is known of a query, for rankers that use it.
        collection : packed codes, `Index` or engine, optional
            The collection that will be searched, or a sample of it; its items need no labels. For rankers per query
            those unlike the rows of `codes` stand for classes that have no label yet: as queries they keep their own
            ranking, and a `QueryVectorRanker` teaches labelled queries to pass over them.
        """
        evidence = check_label_evidence(codes, y, queries, features, self._n_bits(), self.space)
        sample = None if collection is None else sample_collection(collection, evidence.n_bits)
        return self._learn("labels", evidence._replace(collection=sample), features)

    def fit_pairs(
        self,
        codes: Codes,
        pairs: Any,
        *,
        queries: npt.ArrayLike,
        features: npt.ArrayLike | None = None,
        beside: Callable[[Rows, Rows, Weights], None] | None = None,
    ) -> Self:
        """Learn from relevance judgements.

        Parameters
        ----------
        codes : uint8 array of shape (n, ceil(n_bits / 8))
            Packed codes of the items.
        pairs : int array of shape (m, 2) or (m, 3), or scipy sparse matrix of shape (n_queries, n)
            Row numbers (query, item) or (query, item, grade); `bitrank.ranking.evidence.pairs.read_qrels` reads files.
        queries : packed codes, or float array of shape (n_queries, n_bits)
            The queries that the first column numbers; they need not be in the collection.
        features : float array of shape (n_queries, n_features), optional
            What else is known of a query, for rankers that use it.
        beside : callable, optional
            Told what the gate accepted, for every fold: the pairs learned from (rows of those that `check_pairs`
            returns), the queries held out, and what was learned for these, as reals per bit.
        """
        evidence = check_pair_evidence(codes, pairs, queries, features, self._n_bits(), self.space)
        return self._learn("pairs", evidence._replace(beside=beside), features)

    def fit_constraints(self, codes: Codes, rows: npt.ArrayLike, *, queries: npt.ArrayLike | None = None) -> Self:
        """Learn from triplets or quadruplets of row numbers.

        Parameters
        ----------
        codes : uint8 array of shape (n, ceil(n_bits / 8))
            Packed codes of the items.
        rows : int array of shape (m, 3) or (m, 4)
            (query, dissimilar, similar), or (query, dissimilar, similar, similar).
        queries : packed codes, or float array of shape (n_queries, n_bits), optional
            The queries that the first column numbers; by default the codes.
        """
        return self._learn("constraints", check_constraint_evidence(codes, rows, queries, self._n_bits()))

    def fit_vectors(
        self,
        codes: Codes,
        vectors: npt.ArrayLike,
        *,
        queries: npt.ArrayLike | None = None,
        query_vectors: npt.ArrayLike | None = None,
    ) -> Self:
        """Learn without labels: rank codes as the vectors they were made from.

        Parameters
        ----------
        codes, vectors : packed codes, and float array of shape (n, n_dimensions)
        queries, query_vectors : the same for queries as they will come; queries may be float, one column per bit
            By default the items themselves; queries alone are the items in another form.
        """
        return self._learn("vectors", check_vector_evidence(codes, vectors, queries, query_vectors, self._n_bits()))

    def queries_for(
        self, queries: npt.ArrayLike, *, features: npt.ArrayLike | None = None, collection: Any = None
    ) -> Queries:
        """Codes and weights to search with: `index.search(ranker.queries_for(queries, collection=index), k=10)`.

        Parameters
        ----------
        queries : packed codes, or float array of shape (n_queries, n_bits)
        features : float array of shape (n_queries, n_features), optional
            Features of the kind that was learned from; queries without are answered by what needs none.
        collection : packed codes, `Index` or engine, optional
            What will be searched, or a sample. Rankers per query tell from it which queries they have learned for.

        Returns
        -------
        Queries
            A named tuple of packed codes, float32 weights of shape (n_queries, n_bits), and the trust in each query
            (None for rankers that treat all queries alike).
        """
        check_is_fitted(self, "n_bits_")
        rows = check_query_rows(queries, self.n_bits_)
        matrix = None
        if features is not None:
            n_features = getattr(self, "n_features_", 0)
            if n_features == 0:
                name = type(self).__name__
                raise ValueError(f"features must be None for a {name} that learned without them, got some")
            matrix = check_features(features, len(rows.codes), n_features)
        return self._queries_for(rows, matrix, collection)

    def query_from(self, positives: Codes, negatives: Codes | None, background: Codes) -> ExampleQuery:
        """One query for what is like some codes and unlike others; `bitrank.ranking.examples` says how.

        Parameters
        ----------
        positives, negatives : packed codes
        background : packed codes
            A sample of what will be searched.
        """
        check_is_fitted(self, "n_bits_")
        return query_from(positives, negatives, background, self.n_bits_)

    def one_weight_per_bit(self) -> Weights | None:
        """The weights of a ranker that has the same for all queries, times their magnitudes; None for others."""
        return getattr(self, "weights_", None)

    def features_of(self, vectors: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
        """The vectors of queries as their features, or None where the ranker learned without features of this width."""
        return vectors if getattr(self, "n_features_", 0) == vectors.shape[1] else None

    def score(
        self,
        codes: Codes,
        y: npt.ArrayLike,
        *,
        queries: npt.ArrayLike | None = None,
        features: npt.ArrayLike | None = None,
    ) -> float:
        """Mean average precision of every row's search among the other rows, in expectation over ties."""
        check_is_fitted(self, "n_bits_")
        evidence = check_label_evidence(codes, y, queries, features, self.n_bits_, self.space)
        asked = evidence.codes if queries is None else queries
        weighted = self.queries_for(asked, features=features, collection=evidence.codes)
        precisions = []
        for part in blocks(len(evidence.codes), _SCORED_QUERIES):
            to_items = distances_between(weighted.codes[part], evidence.codes, weighted.weights[part], self.n_bits_)
            relevant = evidence.y[part, None] == evidence.y
            itself = np.arange(part.stop - part.start), np.arange(part.start, part.stop)
            to_items[itself], relevant[itself] = np.inf, False
            precisions.append(average_precision(to_items, relevant))
        return float(np.nanmean(np.concatenate(precisions)))

    def save(self, path: str | os.PathLike[str] | IO[bytes]) -> None:
        """Write the fitted ranker to a file, whole or not at all, for `bitrank.load_ranker` to read.

        A `random_state` that is not an int is stored as None.
        """
        check_is_fitted(self, "n_bits_")
        write_archive(path, FORMAT, VERSION, self._to_archive())

    def _to_archive(self) -> Archive:
        facts = {name: getattr(self, name) for name in ("n_bits_", "blend_", *self._facts)}
        facts["report_"] = self.report_.stored()
        arrays = {name: np.asarray(getattr(self, name)) for name in self._arrays}
        return Archive(type(self).__name__, self.get_params(deep=False), facts, arrays)

    @classmethod
    def _from_archive(cls, archive: Archive) -> Self:
        """Rebuild a fitted ranker, or raise a ValueError that says what is wrong with the archive."""
        if archive.params.keys() != cls().get_params(deep=False).keys():
            raise ValueError(f"expected the parameters of {cls.__name__}, got {sorted(archive.params)}")
        check_archive(archive, {"n_bits_", "blend_", "report_", *cls._facts}, cls._arrays)
        ranker = cls(**archive.params)
        archive.facts["report_"] = Report.load(archive.facts["report_"], getattr(ranker, "scoring", "guarded"))
        for name, value in (*archive.facts.items(), *archive.arrays.items()):
            setattr(ranker, name, value)
        ranker._loaded()
        return ranker

    def _loaded(self) -> None:
        """Derive what is not in the file from what is."""

    def _n_bits(self) -> int | None:
        """Bits of a code as the parameters say, or None."""
        return self.n_bits

    def _random(self) -> np.random.Generator:
        """A generator from `random_state`."""
        return np.random.default_rng(check_random_state(getattr(self, "random_state", None)).randint(2**31))

    def _check_learns_from(self, kind: str, features: npt.ArrayLike | None) -> None:
        """Refuse evidence, features or a way to judge that this ranker does not have."""
        for name in (kind,) if features is None else (kind, "features"):
            if name not in self.learns_from:
                able = [other for other in RANKERS if name in ranker_class(other).learns_from]
                what = "class labels" if name == "labels" else name
                raise ValueError(f"{type(self).__name__} cannot learn from {what}; {', '.join(able)} can")
        check_scoring(getattr(self, "scoring", "guarded"), kind)
        if kind != "labels" and getattr(self, "validation", "rows") != "rows":
            raise ValueError(f'validation must be "rows" for {kind}, got {self.validation!r}')

    @one_blas_thread
    def _learn(self, kind: str, evidence: Any, features: npt.ArrayLike | None = None) -> Self:
        """Learn from checked evidence, by `_fit_labels`, `_fit_pairs`, `_fit_constraints` or `_fit_vectors`.

        They return the report of the gate, or None where there is no gate.
        """
        self._check_learns_from(kind, features)
        started = time.perf_counter()
        report: Report | None = getattr(self, f"_fit_{kind}")(evidence)
        self.n_bits_, self.report_ = evidence.n_bits, Report() if report is None else report
        self.blend_ = self._ungated_blend if report is None else report.blend
        self.report_.seconds = time.perf_counter() - started
        return self

    def _queries_for(self, queries: QueryRows, features: Matrix | None, collection: Any) -> Queries:
        """Answer for checked queries: by default with one weight per bit."""
        return scaled(queries, self.weights_)


def scaled(queries: QueryRows, weights: npt.NDArray[Any]) -> Queries:
    """Weights per bit or per query as `Queries`, times the magnitudes of queries that are reals."""
    rows = weights if queries.magnitudes is None else weights * queries.magnitudes
    return Queries(queries.codes, np.broadcast_to(rows, (len(queries.codes), weights.shape[-1])).astype(np.float32))
