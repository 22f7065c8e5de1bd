"""`PlaneRanker`: what was learned in the space of vectors, for the service and evaluations, which ask codes."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitrank.collection.planes import PlaneQueries
from bitrank.core.codes import split_vectors
from bitrank.core.types import Queries
from bitrank.hashing import BitPlanes
from bitrank.ranking.ranker import Ranker


class PlaneRanker(Ranker):
    """A ranker in the space of vectors, for whoever asks codes: with the vectors as features, or decoded ones."""

    def __init__(self, planes: BitPlanes, ranker: Any) -> None:
        self.planes, self.ranker = planes, ranker
        self.n_bits_, self.n_features_ = planes.n_bits_, planes.n_features_in_
        self.blend_, self.report_, self.sample_ = ranker.blend_, ranker.report_, ranker.sample_

    def calibrate(self, collection: Any = None) -> Any:
        """What the trust in queries is told from, of packed codes."""
        return self.ranker.calibrate(None if collection is None else self.planes.points(collection))

    def queries_for(self, queries: Any, *, features: Any = None, collection: Any = None) -> Queries:
        """Codes and weights to search with."""
        if features is None:
            codes = queries if queries.dtype == np.uint8 else np.packbits(queries > 0, axis=1)
            features = self.planes.decode(codes)
        given = self.planes.points(collection) if isinstance(collection, np.ndarray) else collection
        asked, trust = PlaneQueries.of(self.planes, features).learned(self.ranker, given)
        return Queries(*split_vectors(asked.reals()), trust)

    def save(self, path: Any) -> None:
        """Write the ranker in the space of vectors."""
        self.ranker.save(path)
