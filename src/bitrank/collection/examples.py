"""Search for what is like some examples: items of the collection, codes or vectors."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from bitrank.collection.moment import Moment
from bitrank.core.codes import nearest
from bitrank.core.types import Codes, Ids
from bitrank.index import Index
from bitrank.ranking.examples import ExampleQuery, query_from

_N_BACKGROUND = 1000
_engine_samples: WeakKeyDictionary[Any, Codes] = WeakKeyDictionary()  # most engines read all ids for one


def read_examples(moment: Moment, given: Any, name: str) -> tuple[Ids, Codes]:
    """Numbers of examples that are items, and codes of examples: a matrix holds codes or vectors, a list ids."""
    none = np.empty(0, np.int64)
    if given is None:
        return none, np.empty((0, moment.n_bytes), np.uint8)
    first = given[0] if isinstance(given, list | tuple) and given else None
    if getattr(given, "ndim", 1) == 2 or isinstance(first, list | np.ndarray):
        try:
            return none, moment.codes_of(given)
        except ValueError as error:
            raise ValueError(str(error).replace("queries", name, 1)) from None
    numbers = np.unique(moment.find(given, name))
    return numbers, moment.index.codes(numbers)


def search_like(
    moment: Moment, right: tuple[Ids, Codes], wrong: tuple[Ids, Codes], k: int, wanted: Ids | None, threads: int
) -> tuple[Ids, npt.NDArray[np.float32], ExampleQuery]:
    """The k items most like the examples, without those that are examples themselves."""
    named = np.concatenate([right[0], wrong[0]])
    index = moment.index
    background = _engine_samples.get(index)
    if background is None:
        background = index.sample(_N_BACKGROUND)
        if not isinstance(index, Index):
            _engine_samples[index] = background
    query = query_from(right[1], wrong[1], background, index.n_bits)
    queries: Any = query.queries if query.kind == "vector" else query.queries.codes
    similarity = "tanimoto" if query.kind == "tanimoto" and isinstance(index, Index) else None
    numbers, distances = moment.search(queries, k + len(named), wanted, threads, similarity)
    numbers, distances = numbers.ravel(), distances.ravel()
    order = np.lexsort((distances, numbers))
    first = np.diff(numbers[order], prepend=-1) != 0  # each item by its nearest example
    kept = order[first][~np.isin(numbers[order][first], named)]
    return *nearest(numbers[kept][None], distances[kept][None], k), query
