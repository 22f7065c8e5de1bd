"""From the evidence that people have to a ranker that passed its gate: one function per kind of evidence."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.collection.planes import PlaneItems
from bitrank.collection.report import Learned
from bitrank.collection.vectors import GivenVectors, check_vectors
from bitrank.core.arrays import to_array
from bitrank.core.types import Rows, Weights
from bitrank.ranking.evidence.kinds import TooLittleEvidenceError, as_vectors
from bitrank.ranking.gate.folds import rare_rows
from bitrank.ranking.gate.report import Report

if TYPE_CHECKING:
    from bitrank.collection.moment import Moment
    from bitrank.collection.planes import PlaneQueries
    from bitrank.ranking import Ranker

KINDS = ("labels", "pairs", "constraints", "clicks", "unjudged")
DEFAULTS = dict.fromkeys(KINDS, "QueryVectorRanker") | {"constraints": "RankingSVM"}
_FEW = 0.1  # share of the labels that rare classes have together where they are few
_NEEDS = {"clicks": "pairs", "unjudged": "vectors"}  # the kind of evidence that a ranker learns from


class Items(NamedTuple):
    """The items of a collection that something is learned about, in the order in which they were added."""

    codes: Any  # or points, in the space of vectors
    n_bits: int  # or numbers of a point
    vectors: npt.NDArray[Any] | None  # where they are at hand
    collection: Any  # what will be searched, for rankers that compare queries with it
    project: Any  # from vectors to reals of queries, or None
    rows_of: Callable[[Any], Rows]  # row in this order of ids; -1 for unknown ones
    ids: npt.NDArray[Any]


def items_of(moment: Moment, features: npt.ArrayLike | None, given: GivenVectors, space: str) -> Items:
    """The items of a moment in the order of ids, with their vectors where they are at hand."""
    numbers, hasher = moment.numbers(), moment.get_hasher()
    if features is None:
        vectors = None if hasher is None else given.of(numbers)
    elif hasher is None:
        raise ValueError("features must be None for a collection of codes, got some")
    else:
        vectors = check_vectors(features, "features")
        wanted = len(numbers), moment.n_dimensions
        if vectors.shape != wanted:
            raise ValueError(f"features must hold the vectors of all items, of shape {wanted}, got {vectors.shape}")
    places = np.argsort(numbers, kind="stable")

    def rows_of(ids: Any) -> Rows:
        found = moment.ids.find(ids, moment.index)
        rows = places[np.searchsorted(numbers, np.maximum(found, 0), sorter=places) % max(1, len(numbers))]
        return np.where(found < 0, -1, rows)

    codes, more = moment.index.codes(numbers), (rows_of, moment.all_ids())
    if space == "vectors":
        points, items = hasher.points(codes), PlaneItems(hasher, moment.index)
        return Items(points, hasher.n_point_, vectors, items, lambda X: hasher.points_of(hasher.ask(X)), *more)
    project = None if hasher is None else hasher.project
    return Items(codes, moment.n_bits, vectors, moment.index, project, *more)


class Taught(NamedTuple):
    """Judged pairs that were learned from, as rows (query, item, grade), and the folds of the gate that accepted it."""

    pairs: Rows
    folds: list[tuple[Rows, Rows, Weights]]

    def of_planes(self, queries: PlaneQueries) -> Taught:
        """What was learned at points, as reals per bit."""
        folds = [(rows, some, queries.part(some).at(points).reals()) for rows, some, points in self.folds]
        return self._replace(folds=folds)


class Evidence(NamedTuple):
    """Evidence as it was given, queries checked: vectors with their reals, or codes or reals alone."""

    kind: str
    value: Any
    queries: npt.NDArray[Any] | None = None  # as rankers take them
    query_vectors: npt.NDArray[Any] | None = None
    query_ids: Sequence[Any] | None = None
    ignore_unknown: bool = False


def make_ranker(ranker: Any, kind: str, has_points: bool, random_state: Any) -> Ranker:
    """A new ranker, by name or as a copy of one, that learns from a kind of evidence: from points, where it can."""
    from sklearn.base import clone

    from bitrank.ranking.ranker import Ranker
    from bitrank.ranking.registry import RANKERS, ranker_class

    ranker = DEFAULTS[kind] if ranker is None else ranker
    if isinstance(ranker, str):
        if ranker not in RANKERS:
            raise ValueError(f"ranker must be one of {', '.join(RANKERS)}, got {ranker!r}")
        made: Ranker = ranker_class(ranker)()
        if "random_state" in made.get_params():
            made.set_params(random_state=random_state)
        if has_points and kind in ("labels", "pairs") and "space" in made.get_params():
            made.set_params(space="vectors")
    elif isinstance(ranker, Ranker):
        made = clone(ranker)
    else:
        raise ValueError(f"ranker must be a ranker or the name of one, got {ranker!r:.60}")
    needs = _NEEDS.get(kind, kind)
    if needs not in made.learns_from:
        able = [name for name in RANKERS if needs in ranker_class(name).learns_from]
        raise ValueError(f"ranker must learn from {kind}, as {', '.join(able)} do, got {type(made).__name__}")
    if made.space == "vectors" and not has_points:
        raise ValueError('space must be "codes" for a collection whose hasher has no points, got "vectors"')
    return made


def learn(ranker: Ranker, items: Items, evidence: Evidence) -> tuple[Ranker | None, Learned, Taught | None]:
    """Learn and judge; the ranker is None where the gate, or too little evidence, refuses what was learned."""
    start, notes, refusal, gate, taught = time.perf_counter(), list[str](), None, Report(), None
    if ranker.n_bits not in (None, items.n_bits):
        raise ValueError(f"ranker must be for the {items.n_bits} bits of the collection, got one for {ranker.n_bits}")
    ranker.set_params(n_bits=items.n_bits)
    try:
        taught = _FITS[evidence.kind](ranker, items, evidence, notes)
        gate = ranker.report_
    except TooLittleEvidenceError as error:
        refusal = f"too little evidence: {error}"
    accepted = refusal is None and ranker.blend_ > 0
    if accepted:
        reason = "held-out data rank surely better" if gate.accepted else "this ranker has no gate"
    else:
        reason = refusal or gate.refusal or "nothing ranked held-out data surely better than the plain ranking"
    seconds = time.perf_counter() - start
    learned = Learned(evidence.kind, type(ranker).__name__, accepted, reason, gate, seconds, notes)
    return ranker if accepted else None, learned, taught


def _fit_labels(ranker: Ranker, items: Items, evidence: Evidence, notes: list[str]) -> None:
    y, labelled = check_labels(evidence.value, len(items.codes))
    codes = items.codes[labelled]
    classes, counts = np.unique(y, return_counts=True)
    n_pairs = int((counts > 1).sum())
    if len(classes) < 2 or n_pairs < 1:
        raise TooLittleEvidenceError(f"labels name {len(classes)} classes, of which {n_pairs} have two items")
    options: dict[str, Any] = {}
    if items.vectors is not None and items.project is not None:
        vectors = items.vectors[labelled]
        options["queries"] = items.project(vectors)
        if "features" in ranker.learns_from and ranker.space == "codes":
            options["features"] = vectors
    elif items.project is not None:
        options["queries"] = as_vectors(codes, items.n_bits)
        notes.append("the vectors are not at hand: labels were learned from reals decoded from the codes")
    if len(y) < len(items.codes):
        notes.append(f"{len(items.codes) - len(y)} of {len(items.codes)} items have no label")
    rare = rare_rows(y)
    if 0 < rare.mean() < _FEW and getattr(ranker, "scoring", "rare") != "rare":
        notes.append(
            f"{len(np.unique(y[rare]))} of {len(classes)} classes have {rare.mean():.1%} of the labels: held-out "
            'queries are nearly all of the others, unless the ranker has scoring="rare"'
        )
    ranker.fit(codes, y, collection=items.collection, **options)


def check_labels(labels: Any, n: int) -> tuple[npt.NDArray[Any], Rows]:
    """Labels of the items that have one, and which items these are: None, NaN and −1 are no label.

    Examples
    --------
    >>> check_labels(["a", None, "b"], 3)
    (array(['a', 'b'], dtype='<U1'), array([0, 2]))
    >>> check_labels([3, -1, 5], 3)
    (array([3, 5]), array([0, 2]))
    """
    if isinstance(labels, list | tuple):
        if any(np.ndim(label) for label in labels):
            raise ValueError(
                "labels must hold one label per item, got rows of several: give one column of them, or pairs with a "
                "grade for each label that two items share"
            )
        array = np.empty(len(labels), object)
        array[:] = labels
    else:
        array = labels.to_numpy() if hasattr(labels, "to_numpy") else to_array(labels, "labels")
    if array.ndim != 1 or len(array) != n:
        raise ValueError(f"labels must hold one label for each of the {n} items, got shape {array.shape}")
    known = np.array([not _is_missing(label) for label in array.tolist()], bool)
    rows = np.flatnonzero(known)
    values = array[rows].tolist()
    kinds = {bool if isinstance(v, bool) else float if isinstance(v, int | float) else type(v) for v in values}
    if len(kinds) > 1:
        raise ValueError(f"labels must be of one kind, got {', '.join(sorted(kind.__name__ for kind in kinds))}")
    return np.array(values) if values else np.empty(0, np.int64), rows


def _is_missing(label: Any) -> bool:
    return label is None or label != label or (isinstance(label, int | float) and label == -1)


def _fit_pairs(ranker: Ranker, items: Items, evidence: Evidence, notes: list[str]) -> Taught:
    if evidence.queries is None:
        raise ValueError("queries must be given with pairs, got none")
    pairs, n_unknown = read_pairs(evidence, len(evidence.queries), items.ids, items.rows_of)
    _note_unknown(n_unknown, "judgements", notes)
    return _fit_checked_pairs(ranker, items.codes, pairs, evidence.queries, evidence.query_vectors)


def _fit_checked_pairs(
    ranker: Ranker, codes: Any, pairs: Rows, queries: Any, vectors: npt.NDArray[Any] | None = None
) -> Taught:
    from bitrank.ranking.evidence.pairs import check_pairs

    relevant = pairs[pairs[:, 2] > 0] if pairs.shape[1] == 3 else pairs
    informative = np.bincount(relevant[:, 0]) if len(relevant) else np.zeros(0, int)
    n = int(((informative > 0) & (informative < len(codes))).sum())
    if n < 2:
        raise TooLittleEvidenceError(f"judgements of at least two queries are needed to hold one out, got {n}")
    with_features = vectors is not None and "features" in ranker.learns_from and ranker.space == "codes"
    features = {"features": vectors} if with_features else {}
    taught = Taught(check_pairs(pairs, len(codes), len(queries)), [])
    ranker.fit_pairs(codes, taught.pairs, queries=queries, beside=lambda *fold: taught.folds.append(fold), **features)
    return taught


def read_pairs(
    evidence: Evidence, n_queries: int, ids: npt.NDArray[Any], rows_of: Callable[[Any], Rows]
) -> tuple[Rows, int]:
    """Judgements as row numbers (query, item, grade), and how many name unknown ids.

    Parameters
    ----------
    ids : array of shape (n_items,)
    rows_of : callable
        Rows of some ids in it, -1 for unknown ones.
    """
    from bitrank.ranking.evidence.pairs import check_pairs, read_qrels

    value = evidence.value
    if isinstance(value, str | os.PathLike):
        names = range(n_queries) if evidence.query_ids is None else evidence.query_ids
        return read_qrels(value, list(names), ids.tolist(), strict=not evidence.ignore_unknown)
    if hasattr(value, "tocoo"):
        return check_pairs(value, len(ids), n_queries), 0
    rows = _as_rows(value)
    if not rows or any(len(row) not in (2, 3) for row in rows):
        raise ValueError("pairs must be rows of (query, id) or (query, id, grade), a qrels file or a sparse matrix")
    queries = _rows_of_queries([row[0] for row in rows], evidence, n_queries)
    numbers = rows_of([row[1] for row in rows])
    grades = [row[2] if len(row) == 3 else 1 for row in rows]
    if not all(isinstance(grade, int) and 0 <= grade <= 30 for grade in grades):
        raise ValueError("grades must be whole numbers from 0 (not relevant) to 30, got others")
    table = np.column_stack([queries, numbers, grades]).astype(np.int64)
    known = _known(table, rows, evidence)
    return np.unique(table[known], axis=0), int((~known).sum())


def _known(table: Rows, rows: list[list[Any]], evidence: Evidence) -> npt.NDArray[np.bool_]:
    """Which rows of evidence name ids of the collection; the others have a −1 in the table."""
    known: npt.NDArray[np.bool_] = np.all(table >= 0, axis=1)
    if not known.all() and not evidence.ignore_unknown:
        row, column = np.argwhere(table < 0)[0]
        raise ValueError(
            f"{evidence.kind} must name ids of the collection, got {rows[row][column]!r}; "
            f"ignore_unknown=True leaves such out"
        )
    return known


def _note_unknown(n: int, what: str, notes: list[str]) -> None:
    if n:
        notes.append(f"{n} {what} name unknown ids and were left out")


def _as_rows(value: Any) -> list[list[Any]]:
    """Rows of a table; empty ones in place of what is no row."""
    rows = value.tolist() if hasattr(value, "tolist") else value
    rows = rows if isinstance(rows, list) else list(rows) if isinstance(rows, Iterable) else [rows]
    return [list(row) if isinstance(row, list | tuple) else [] for row in rows]


def _rows_of_queries(values: list[Any], evidence: Evidence, n_queries: int) -> Rows:
    if evidence.query_ids is not None:
        if len(set(evidence.query_ids)) < len(evidence.query_ids) or len(evidence.query_ids) != n_queries:
            raise ValueError(
                f"query_ids must be one name for each of the {n_queries} queries, got {len(evidence.query_ids)} with "
                f"{len(set(evidence.query_ids))} different ones"
            )
        places = {name: row for row, name in enumerate(evidence.query_ids)}
        unknown = [value for value in values if value not in places]
        if unknown:
            raise ValueError(f"the first column must name ids of query_ids, got {unknown[0]!r}")
        return np.array([places[value] for value in values], np.int64)
    wrong = [v for v in values if not isinstance(v, int) or isinstance(v, bool) or not 0 <= v < n_queries]
    if wrong:
        raise ValueError(f"the first column must name rows of queries from 0 to {n_queries - 1}, got {wrong[0]!r}")
    return np.array(values, np.int64)


def _fit_constraints(ranker: Ranker, items: Items, evidence: Evidence, notes: list[str]) -> None:
    rows = _as_rows(evidence.value)
    widths = {len(row) for row in rows}
    if widths not in ({3}, {4}):
        raise ValueError(
            "constraints must be rows of (query, dissimilar, similar[, similar]) of one length, got others"
        )
    columns = list(map(list, zip(*rows, strict=True)))
    numbers = list(map(items.rows_of, columns))
    if evidence.queries is not None:
        numbers[0] = _rows_of_queries(columns[0], evidence, len(evidence.queries))
    table = np.column_stack(numbers)
    known = _known(table, rows, evidence)
    _note_unknown(int((~known).sum()), "constraints", notes)
    table = table[known]
    if len(np.unique(table[:, 0])) < 2:
        raise TooLittleEvidenceError("constraints of at least two queries are needed to hold one out")
    ranker.fit_constraints(items.codes, table, queries=evidence.queries)


def _fit_clicks(ranker: Ranker, items: Items, evidence: Evidence, notes: list[str]) -> None:
    from bitrank.clicks import LoggedPage, pairs_from_log, read_log

    value = evidence.value
    pages: list[Any] = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    if all(isinstance(page, str | os.PathLike) for page in pages):
        pages = list(read_log(pages))
    if not pages or not all(isinstance(page, LoggedPage) for page in pages):
        raise ValueError(f"clicks must be the path of a log, paths, or pages of a log, got {value!r:.60}")
    log = pairs_from_log(pages, items.codes, items.ids, items.n_bits, items.project)
    if log.n_left_out:
        notes.append(f"{log.n_left_out} pages name nothing in the collection and were left out")
    _fit_checked_pairs(ranker, items.codes, log.pairs, log.queries)


def _fit_unjudged(ranker: Ranker, items: Items, evidence: Evidence, notes: list[str]) -> None:
    if items.vectors is None:
        raise ValueError("features must hold the vectors of all items to learn from queries alone, got none")
    vectors, query_vectors = items.vectors, evidence.query_vectors
    if query_vectors is None:
        raise ValueError("unjudged must hold vectors of queries, got codes")
    if len(query_vectors) < 2:
        raise TooLittleEvidenceError(f"at least two queries are needed to hold one out, got {len(query_vectors)}")
    ranker.fit_vectors(items.codes, vectors, queries=evidence.queries, query_vectors=query_vectors)


_FITS: dict[str, Callable[[Any, Items, Evidence, list[str]], Taught | None]] = {
    "labels": _fit_labels,
    "pairs": _fit_pairs,
    "constraints": _fit_constraints,
    "clicks": _fit_clicks,
    "unjudged": _fit_unjudged,
}
