"""Search of codes of `BitPlanes`: heads find a shortlist, whole codes rank it, and estimates order the nearest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from bitrank.core.types import Ids, Weights
from bitrank.index import Index

if TYPE_CHECKING:
    from bitrank.hashing import BitPlanes
    from bitrank.hashing.axes import Asked

_PER_RESULT = 4  # rows ordered by their estimates


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

    def part(self, rows: slice) -> PlaneQueries:
        """Some of the queries."""
        z, scale, offset = self.asked
        return type(self)(self.planes, type(self.asked)(z[rows], scale[rows], offset[rows]))

    def reals(self) -> Weights:
        """One real per bit."""
        return self.planes.reals(self.asked)

    def scale(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """What turns distances of whole codes into similarities, 1 of a query with itself, for typical items."""
        first, second = self.planes.scale(self.asked)
        return first + np.abs(self.reals()).sum(axis=1, dtype=np.float64), second

    def search(
        self, index: Index, k: int, wanted: Ids | None = None, threads: int | None = None
    ) -> tuple[Ids, npt.NDArray[np.float32]]:
        """Ids and distances of the k nearest: one less the cosine, minus the product, or the Euclidean distance."""
        planes, n = self.planes, _PER_RESULT * k
        shortlist = max(planes.shortlist_, n + planes.shortlist_ - _PER_RESULT * 10)
        whole = self.reals()
        head = planes.reals(self.asked, head=True)
        queries: Any = head, whole
        ids, distances = index.search(queries, n, shortlist=shortlist, filter=wanted, threads=threads)
        products = np.abs(whole).sum(axis=1, keepdims=True) - 2 * distances
        scores = planes.estimates(products, index.last_bytes(ids, planes.tail_bytes), self.asked)
        out = planes.distances(scores)
        out[ids < 0] = np.inf
        order = np.lexsort((ids, out), axis=1)[:, :k]
        return np.take_along_axis(ids, order, 1), np.take_along_axis(out, order, 1)
