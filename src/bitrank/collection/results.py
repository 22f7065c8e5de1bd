"""What a search of a collection returns: results that unpack into ids and distances, and know more."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.core.types import Results, Weights

Floats = npt.NDArray[np.float64]


class Explanation(NamedTuple):
    """How queries were answered: one value per query.

    Examples
    --------
    >>> Explanation(np.float32([1, 0]), ["QueryVectorRanker", "plain"]).ranking
    ['QueryVectorRanker', 'plain']
    """

    trust: Weights  # 0 to 1: how far what was learned ranks for the query
    ranking: list[str]  # the ranker that answered, or "plain"


class CollectionResults(Results):
    """Ids and distances, nearest first; ids that are no whole numbers are objects, padded with None.

    Attributes
    ----------
    explanation : Explanation or None
        With ``explain=True``.

    Examples
    --------
    >>> ids, distances = CollectionResults(np.array([[7, 9]]), np.float32([[0.5, 2]]))
    >>> ids
    array([[7, 9]])
    """

    ids: Any
    explanation: Explanation | None = None
    scale: tuple[Floats, Floats] | None = None  # similarity = (first − 2·distance)·second, per query
