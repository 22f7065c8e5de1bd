"""Search of codes of `BitPlanes`: heads find a shortlist, whole codes rank it, and estimates order the nearest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from bitrank.core.codes import signs
from bitrank.core.types import Ids, Weights
from bitrank.index import Index
from bitrank.index.index import ReadResults
from bitrank.index.reading import KS, Calibration, Searches

if TYPE_CHECKING:
    from bitrank.hashing import BitPlanes
    from bitrank.hashing.axes import Asked
    from bitrank.ranking.ranker import Ranker

_PER_RESULT = 4  # rows ordered by their estimates


class PlaneItems:
    """Items of an index as rankers in the space of vectors see them."""

    def __init__(self, planes: BitPlanes, index: Index) -> None:
        self._planes, self.index = planes, index

    def __len__(self) -> int:
        return len(self.index)

    def sample(self, n: int) -> npt.NDArray[np.float32]:
        """Draw n items."""
        return self._planes.points(self.index.sample(n))


@dataclass(frozen=True)
class PlaneQueries:
    """Vectors as an index in two parts asks for them."""

    planes: BitPlanes
    asked: Asked

    @classmethod
    def of(cls, planes: BitPlanes, vectors: npt.NDArray[Any]) -> Self:
        """Make queries of vectors."""
        return cls(planes, planes.ask(vectors))

    def __len__(self) -> int:
        return len(self.asked.z)

    def part(self, rows: slice | Ids) -> PlaneQueries:
        """Some of the queries."""
        z, scale, offset = self.asked
        return type(self)(self.planes, type(self.asked)(z[rows], scale[rows], offset[rows]))

    def learned(self, ranker: Ranker, collection: Any) -> tuple[PlaneQueries, Weights | None]:
        """What a ranker in the space of vectors asks in their place, and its trust in them."""
        queries = ranker.queries_for(self.planes.points_of(self.asked), collection=collection)
        points = signs(queries.codes, ranker.n_bits_) * queries.weights
        return self.at(points), queries.trust

    def at(self, points: npt.NDArray[np.float32]) -> PlaneQueries:
        """Queries at other points."""
        return type(self)(self.planes, self.planes.ask_at(points, self.asked))

    def reals(self) -> Weights:
        """One real per bit."""
        return self.planes.reals(self.asked)

    def scale(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """What turns distances of whole codes into similarities, 1 of a query with itself, for typical items."""
        first, second = self.planes.scale(self.asked)
        return first + np.abs(self.reals()).sum(axis=1, dtype=np.float64), second

    def search(
        self,
        index: Index,
        k: int,
        wanted: Ids | None = None,
        threads: int | None = None,
        reads: Mapping[str, Any] = MappingProxyType({}),
    ) -> ReadResults:
        """Ids and distances of the k nearest: one less the cosine, minus the product, or the Euclidean distance.

        Parameters
        ----------
        reads : dict
            What else `Index.search` is told, where it does not read all rows.
        """
        queries: Any = self.planes.products(self.asked, head=True), self.planes.products(self.asked)
        asked = {"shortlist": self._shortlist(k), "estimates": self.planes.estimating(self.asked), **reads}
        found = index.search(queries, _PER_RESULT * k, filter=wanted, threads=threads, **asked)
        results = ReadResults(found.ids[:, :k].copy(), found.distances[:, :k].copy())
        results.share = ReadResults.of(found).share
        return results

    def calibrate(self, index: Index, own: Ids | None = None) -> Calibration:
        """Measure what queries like these must read for promised recalls.

        Parameters
        ----------
        own : int array of shape (n_queries,), optional
            The items that the queries were made of, which they do not find.
        """
        whole = self.reals()
        queries: Any = self.planes.reals(self.asked, head=True), whole

        def estimated(ids: Ids) -> npt.NDArray[np.float32]:
            return self._estimated(index, whole, ids, index.distances(whole, ids))

        searches = Searches(tuple(_PER_RESULT * k for k in KS), KS, tuple(self._shortlist(k) for k in KS))
        return index.calibrate(queries, ids=own, searches=searches, order=estimated)

    def _shortlist(self, k: int) -> int:
        """How many rows the heads find."""
        shortlist = self.planes.shortlist_
        return max(shortlist, _PER_RESULT * (k - 10) + shortlist)

    def _estimated(
        self, index: Index, whole: Weights, ids: Ids, distances: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.float32]:
        """Distances of rows by their estimates, from those of their whole codes; inf for an id of -1."""
        planes = self.planes
        products = np.abs(whole).sum(axis=1, keepdims=True) - 2 * distances
        scores = planes.estimates(products, index.last_bytes(ids, planes.tail_bytes), self.asked)
        out = planes.distances(scores)
        out[ids < 0] = np.inf
        return out


def over_codes(ranker: Any, hasher: Any) -> Any:
    """A ranker as it ranks codes of a hasher: itself, unless it learned in the space of vectors."""
    if ranker is None or ranker.space != "vectors" or hasattr(ranker, "planes"):
        return ranker
    if getattr(hasher, "n_point_", None) != ranker.n_bits_:
        raise ValueError(f"ranker must have learned from the points of the hasher, got one of {ranker.n_bits_} numbers")
    from bitrank.collection.plane_ranker import PlaneRanker  # slow to import

    return PlaneRanker(hasher, ranker)
