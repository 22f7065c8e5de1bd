"""`Ranking`: how a version ranks, and its columns in the database."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bitrank.core.files import read_npz
from bitrank.core.types import Codes, Weights
from bitrank.ranking import load_ranker

if TYPE_CHECKING:
    from bitrank.ranking.ranker import Ranker


class Ranking(NamedTuple):
    """One weight per bit; or a ranker of any kind, of which the weights are a mean over queries, to show and compare.

    Examples
    --------
    >>> Ranking(np.ones(8, np.float32)).kind
    'weights'
    """

    weights: Weights
    ranker: Ranker | None = None

    @property
    def kind(self) -> str:
        """The class of the ranker, or "weights"."""
        return "weights" if self.ranker is None else type(self.ranker).__name__

    def as_ranker(self) -> Ranker:
        """The ranker, also where it is one weight per bit."""
        from bitrank.ranking import RankingSVM  # slow to import

        return RankingSVM.from_weights(self.weights) if self.ranker is None else self.ranker

    def columns(self) -> dict[str, bytes | None]:
        """Columns of a table: the weights, and the file of the ranker, if any."""
        file = io.BytesIO()
        if self.ranker is not None:
            self.ranker.save(file)
        return {"weights": self.weights.astype("<f4").tobytes(), "ranker": file.getvalue() or None}

    @classmethod
    def of_row(cls, row: Any) -> Ranking:
        """Read the columns of a row."""
        ranker = None if row.ranker is None else load_ranker(io.BytesIO(row.ranker))
        return cls(np.frombuffer(row.weights, "<f4").astype(np.float32), ranker)


def ranking_of(ranker: Ranker, sample: Codes) -> Ranking:
    """How a ranker ranks; its weights are a mean over items of the collection as queries."""
    one_vector = ranker.one_weight_per_bit()
    if one_vector is not None:
        return Ranking(np.asarray(one_vector, np.float32))
    weights = ranker.queries_for(sample[:1000], collection=sample).weights
    return Ranking(np.asarray(weights.mean(axis=0), np.float32), ranker)


def kind_of(data: bytes | None) -> str:
    """The class of the ranker of a file, without its arrays; "weights" where there is none."""
    if data is None:
        return "weights"
    header = json.loads(str(read_npz(io.BytesIO(data), names=["header"])["header"]))
    return str(header["name"])
