"""What a search of a collection returns: results that unpack into ids and distances, and know more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.core.types import Results, Weights

if TYPE_CHECKING:
    from bitrank.ranking.examples import ExampleQuery

Floats = npt.NDArray[np.float64]


class Lift(NamedTuple):
    """Why a result stands higher than its own distance puts it: somebody asked nearly the same and wanted it.

    Examples
    --------
    >>> Lift("opening hours", 0.94, 12, False)
    Lift(query='opening hours', similarity=0.94, plain_rank=12, pinned=False)
    """

    query: Any  # the judged query's id
    similarity: float  # of the query to it
    plain_rank: int | None  # from 1, without the memory; None beyond the first thousand
    pinned: bool  # by an operator


class Explanation(NamedTuple):
    """How queries were answered: one value per query, and one per result for what was lifted.

    Examples
    --------
    >>> Explanation(np.float32([1, 0]), ["QueryVectorRanker", "plain"]).ranking
    ['QueryVectorRanker', 'plain']
    """

    trust: Weights  # 0 to 1: how far what was learned ranks for the query
    ranking: list[str]  # the ranker that answered, or "plain"
    lifted: list[list[Lift | None]] | None = None  # per result, where the collection remembers judged queries
    read: Floats | None = None  # share of the collection
    promise: str | None = None  # what recall was measured on, "queries" or "items"; None: not for queries of this kind


class CollectionResults(Results):
    """Ids and distances, nearest first; ids that are no whole numbers are objects, padded with None.

    Attributes
    ----------
    explanation : Explanation or None
        With ``explain=True``.
    examples : ExampleQuery or None
        What `search_examples` asked.

    Examples
    --------
    >>> ids, distances = CollectionResults(np.array([[7, 9]]), np.float32([[0.5, 2]]))
    >>> ids
    array([[7, 9]])
    """

    ids: Any
    explanation: Explanation | None = None
    examples: ExampleQuery | None = None
    scale: tuple[Floats, Floats] | None = None  # similarity = (first − 2·distance)·second, per query
