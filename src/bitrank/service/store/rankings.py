"""`Ranking`: how a version ranks, and its bytes in the database."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

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


def ranking_of(ranker: Ranker, sample: Codes) -> Ranking:
    """How a ranker ranks; its weights are a mean over items of the collection as queries."""
    one_vector = ranker.one_weight_per_bit()
    if one_vector is not None:
        return Ranking(np.asarray(one_vector, np.float32))
    weights = ranker.queries_for(sample[:1000], collection=sample).weights
    return Ranking(np.asarray(weights.mean(axis=0), np.float32), ranker)


def is_same(one: Ranking, other: Ranking) -> bool:
    """Tell whether two rankings are of the same file, whatever the collection was over which weights are means."""
    if one.ranker is None or other.ranker is None:
        return one.ranker is other.ranker and np.array_equal(one.weights, other.weights)
    return to_bytes(one.ranker) == to_bytes(other.ranker)


def to_bytes(ranker: Ranker | None) -> bytes | None:
    """A ranker as its file."""
    if ranker is None:
        return None
    with _file() as path:
        ranker.save(path)
        return path.read_bytes()


def from_bytes(data: bytes | None) -> Ranker | None:
    """The ranker of a file."""
    if data is None:
        return None
    with _file() as path:
        path.write_bytes(data)
        return load_ranker(path)


def kind_of(data: bytes | None) -> str:
    """The class of the ranker of a file, without its arrays; "weights" where there is none."""
    if data is None:
        return "weights"
    header = json.loads(str(read_npz(io.BytesIO(data), names=["header"])["header"]))
    return str(header["name"])


@contextmanager
def _file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "version.ranker"
