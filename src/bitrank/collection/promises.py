"""Promises of recall: what was measured of a collection in cells, for each ranking, and what a search then reads."""

from __future__ import annotations

import dataclasses
import io
import time
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bitrank.collection.planes import PlaneQueries
from bitrank.core.codes import sample_rows
from bitrank.core.types import Queries
from bitrank.index import Index
from bitrank.index.cells import Axes
from bitrank.index.reading import PROMISES, Calibration

if TYPE_CHECKING:
    from bitrank.collection.moment import Moment
    from bitrank.collection.vectors import GivenVectors
    from bitrank.hashing.hasher import Hasher

# A search with `recall` makes cells by itself from this many items on; fewer are read in no time.
LEAST_ITEMS = 200_000
# Once this share of the items was added or removed, promises are measured again.
_CHANGED = 0.1
_TIMED, _K = 9, 10  # queries whose searches are timed, and their results


class Curve(NamedTuple):
    """What promises of recall cost: one value per promise, and the exact search last.

    Examples
    --------
    >>> print(Curve("queries", 1000, 300_000, (0.9, 1.0), (0.004, 1.0), (0.1, 1.25), 0))
    recall promised to the plain ranking, measured on 1000 queries over 300000 items (k = 10, one thread):
      recall    0.9    all
      % read    0.4    100
      ms        0.1   1.25
    """

    on: str  # "queries", or "items" where there were none
    n_queries: int
    n_items: int
    recall: tuple[float, ...]
    read: tuple[float, ...]  # share of the items
    milliseconds: tuple[float, ...]  # one query, one thread
    n_changed: int  # items added or removed since
    ranking: str = "the plain ranking"

    def __str__(self) -> str:
        head = f"recall promised to {self.ranking}, measured on {self.n_queries} {self.on} over {self.n_items} items"
        since = f"; {self.n_changed} items were added or removed since" if self.n_changed else ""
        rows = {
            "recall": [*(f"{value:g}" for value in self.recall[:-1]), "all"],
            "% read": [f"{100 * value:.2g}" if value < 1 else "100" for value in self.read],
            "ms": [f"{value:.3g}" for value in self.milliseconds],
        }
        lines = (f"  {name:<6}" + "".join(f"{value:>7}" for value in values) for name, values in rows.items())
        return "\n".join([f"{head} (k = {_K}, one thread){since}:", *lines])


@dataclass(frozen=True)
class Measured:
    """What was measured for one ranking.

    Attributes
    ----------
    form : {"codes", "reals", "estimates", "weights"}
        What the index was asked.
    calibration : Calibration
    milliseconds : tuple of float
        Per promise of `PROMISES`, and without one.
    """

    form: str
    calibration: Calibration
    milliseconds: tuple[float, ...]

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """From plain values."""
        return cls(values["form"], Calibration.from_json(values["calibration"]), tuple(values["milliseconds"]))


@dataclass(frozen=True)
class Promises:
    """What a collection with cells knows of them, or that it may make them when they are first needed.

    Attributes
    ----------
    queries : array, optional
        Real ones, as `search` takes them, to measure on.
    measured : dict by ranking
    n_changed : int
        Items added or removed since the cells were made or promises measured.
    """

    queries: npt.NDArray[Any] | None = None
    measured: dict[str, Measured] = field(default_factory=dict)
    n_changed: int = 0

    def changed(self, n: int) -> Promises:
        """After items were added or removed."""
        return dataclasses.replace(self, n_changed=self.n_changed + n)

    def with_queries(self, queries: npt.NDArray[Any] | None) -> Promises:
        """With other real queries; what was measured on fewer is forgotten."""
        if queries is None or not len(queries):
            return self
        return Promises(queries[sample_rows(len(queries), 1000)], {}, self.n_changed)

    def to_json(self) -> dict[str, Any]:
        """Plain values of all but the queries."""
        return {"n_changed": self.n_changed, "measured": {k: dataclasses.asdict(v) for k, v in self.measured.items()}}

    def to_bytes(self) -> bytes | None:
        """The queries as a file."""
        if self.queries is None:
            return None
        stream = io.BytesIO()
        np.save(stream, self.queries, allow_pickle=False)
        return stream.getvalue()

    @classmethod
    def of_facts(cls, values: dict[str, Any] | None, queries: bytes | None) -> Promises | None:
        """What `to_json` and `to_bytes` wrote."""
        if values is None:
            return None
        measured = {name: Measured.from_json(each) for name, each in values["measured"].items()}
        rows = None if queries is None else np.load(io.BytesIO(queries), allow_pickle=False)
        return cls(rows, measured, values["n_changed"])


def make_cells(index: Index, hasher: Hasher | None, random_state: int | None) -> Index:
    """A copy of an index in cells; bits of codes of `BitPlanes` add up to the numbers of an item."""
    out, sums = index.copy(), getattr(hasher, "sums", None)
    out.make_cells(axes=None if sums is None else Axes(*sums), random_state=random_state or 0)
    return out


def is_ready(moment: Moment) -> bool:
    """Whether what the ranking in use must read for a promise is known."""
    return not moment.index.has_cells or (moment.promises is not None and _ranking(moment) in moment.promises.measured)


def measure(moment: Moment, vectors: GivenVectors) -> Moment:
    """Measure what the ranking in use must read, on real queries or on items, where that is not known or too old.

    Items as queries are their vectors where these are at hand or decoded, else their codes.
    """
    promises: Promises = moment.promises  # type: ignore[assignment]
    index: Index = moment.index
    if not index.has_cells or len(index) < 2:
        return moment
    before, name = promises.measured, _ranking(moment)
    if promises.n_changed > _CHANGED * len(index):
        before, promises = {}, dataclasses.replace(promises, n_changed=0)
    if name in before:
        return moment
    numbers, queries = None, promises.queries
    if queries is None:
        ids = index.ids
        numbers = ids[sample_rows(len(ids), index.n_to_calibrate)]
        codes, decode = index.codes(numbers), getattr(moment.get_hasher(), "decode", lambda codes: codes)
        given = vectors.of(numbers)
        queries = decode(codes) if given is None else given
    else:
        queries = queries[: index.n_to_calibrate]
    asked = _as_searched(moment, queries)
    if isinstance(asked, PlaneQueries):
        calibration = asked.calibrate(index, numbers)
    else:
        calibration = index.calibrate(asked, ids=numbers)
    milliseconds = _times(moment, [_as_searched(moment, query[None]) for query in queries[:_TIMED]], calibration)
    measured = {key: each for key, each in before.items() if key == "plain"}
    measured[name] = Measured(_form(asked), calibration, milliseconds)
    return dataclasses.replace(moment, promises=dataclasses.replace(promises, measured=measured))


def reading(moment: Moment, asked: Any, is_own: bool, recall: float | None) -> dict[str, Any]:
    """What a search passes to the index for a promise: nothing where all items are read.

    Parameters
    ----------
    asked : queries as the index takes them
    is_own : bool
        Whether the caller brought weights of their own, which nobody measured.
    """
    if recall is None or moment.promises is None or not moment.index.has_cells:
        return {}
    measured = moment.promises.measured.get(_ranking(moment))
    if measured is None:  # fewer than two items
        return {}
    known = measured.form == _form(asked) and not is_own
    return {"recall": recall, "calibration": measured.calibration if known else measured.calibration.for_others()}


def promised(reads: dict[str, Any]) -> str | None:
    """What a promise was measured on, or None where it was not measured for queries of this kind."""
    return reads["calibration"].on if reads and reads["calibration"].known else None


def curve(moment: Moment) -> Curve | None:
    """What promises cost the ranking in use, or None where nothing was measured."""
    found = None if moment.promises is None else moment.promises.measured.get(_ranking(moment))
    if moment.promises is None or found is None:
        return None
    made, ranker = found.calibration, moment.version.ranker
    read = (*(made.reading(recall, _K * made.ks[0]).share for recall in PROMISES), 1.0)
    name = "the plain ranking" if ranker is None else f"version {moment.version.number}, {ranker}"
    sizes = made.n_queries, made.n_rows
    return Curve(made.on, *sizes, (*PROMISES, 1.0), read, found.milliseconds, moment.promises.n_changed, name)


def _ranking(moment: Moment) -> str:
    return "plain" if moment.version.kind == "plain" else f"version {moment.version.number}"


def _as_searched(moment: Moment, queries: Any) -> Any:
    """Queries of a caller as the index takes them: what a memory may lift is ranked by linear scores."""
    asked = moment.ask(queries)[1]
    return asked.reals() if isinstance(asked, PlaneQueries) and moment.lifts else asked


def _form(asked: Any) -> str:
    if isinstance(asked, PlaneQueries):
        return "estimates"
    return "weights" if isinstance(asked, Queries) else "codes" if asked.dtype == np.uint8 else "reals"


def _times(moment: Moment, queries: list[Any], calibration: Calibration) -> tuple[float, ...]:
    """Milliseconds of a search for each promise, and without one."""
    out = []
    for recall in (*PROMISES, None):
        reads = {} if recall is None else {"recall": recall, "calibration": calibration}
        times = []
        for query in queries:
            start = time.perf_counter()
            moment.search(query, _K, None, 1, reads=reads)
            times.append((time.perf_counter() - start) * 1e3)
        out.append(round(median(times), 4))
    return tuple(out)
