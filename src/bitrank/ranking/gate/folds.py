"""How labelled rows and judged pairs are split into what is learned from and what judges."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from bitrank.core.types import Rows
from bitrank.ranking.evidence.kinds import TooLittleEvidenceError

Validation = Literal["rows", "classes"]
# Labelled rows used at most: one weight per bit, or one blend, needs no more.
_MOST_ROWS = 50_000
# MAP is measured in a sample of the held-out items; precision at 10 varies more and is measured on more queries.
_MOST_QUERIES = 3000
_MOST_ITEMS = 4000
_MOST_PAIR_QUERIES = 1000
# Below this many rows, or queries of pairs, one held-out third is too noisy; use three folds.
_FEW_ROWS, _FEW_QUERIES = 10_000, 1500


class LabelFold(NamedTuple):
    """Row numbers: to learn from, to query with, a sample of unseen items to search, and the whole collection."""

    learn: Rows
    queries: Rows
    sample: Rows
    collection: Rows


class PairFold(NamedTuple):
    """Rows of pairs to learn from, queries to judge by, and items whose pairs are hidden."""

    learn: Rows
    queries: Rows
    new_items: Rows


def rare_rows(y: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Rows of the classes that have fewer than half of the items of the mean class.

    Examples
    --------
    >>> rare_rows(np.array([0, 0, 0, 0, 0, 0, 1])).tolist()
    [False, False, False, False, False, False, True]
    """
    _, places, counts = np.unique(y, return_inverse=True, return_counts=True)
    rare: npt.NDArray[np.bool_] = (counts < counts.mean() / 2)[places]
    return rare


def some_rows(n: int, random: np.random.Generator) -> Rows:
    """Draw row numbers in random order, at most 50 000 of them.

    Examples
    --------
    >>> some_rows(1_000_000, np.random.default_rng(0)).shape
    (50000,)
    """
    return random.permutation(n)[:_MOST_ROWS]


def split_labels(
    y: npt.NDArray[Any],
    validation: Validation,
    random: np.random.Generator,
    cross_validate: bool = False,
    first: npt.NDArray[np.bool_] | None = None,
) -> list[LabelFold]:
    """Hold out a third of the rows, or each third once where they are few; or half of the classes, then the other half.

    Queries are the held-out rows that come `first`, or any of them.

    Examples
    --------
    >>> y = np.repeat([0, 1, 2, 3], 50)
    >>> [fold.learn.size for fold in split_labels(y, "classes", np.random.default_rng(0))]
    [100, 100]
    """
    if validation not in get_args(Validation):
        raise ValueError(f"validation must be one of {get_args(Validation)}, got {validation!r}")
    rows = some_rows(len(y), random)
    if validation == "rows":
        thirds = np.array_split(rows, 3)
        folds = [_label_fold(np.setdiff1d(rows, third), third, rows, first) for third in thirds]
        return folds if cross_validate and len(rows) <= _FEW_ROWS else folds[:1]
    classes = random.permutation(np.unique(y))
    if len(classes) < 4:
        raise ValueError(f'validation="classes" needs at least four classes, got {len(classes)}')
    half = np.isin(y[rows], classes[: len(classes) // 2])
    sides = [rows[half], rows[~half]]
    return [_label_fold(learn, held_out, held_out, first) for learn, held_out in (sides, sides[::-1])]


def _label_fold(learn: Rows, held_out: Rows, collection: Rows, first: npt.NDArray[np.bool_] | None) -> LabelFold:
    queries = held_out if first is None else held_out[first[held_out]]
    return LabelFold(np.sort(learn), queries[:_MOST_QUERIES], held_out[:_MOST_ITEMS], np.sort(collection))


def split_pairs(pairs: Rows, new_share: float, random: np.random.Generator) -> list[PairFold]:
    """Hold out a third of the queries, or each third once where they are few; hide pairs of a share of the items.

    Examples
    --------
    >>> pairs = np.column_stack([np.repeat(np.arange(9), 4), np.arange(36), np.ones(36, int)])
    >>> [len(fold.queries) for fold in split_pairs(pairs, 0.0, np.random.default_rng(0))]
    [3, 3, 3]
    """
    queries = random.permutation(np.unique(pairs[pairs[:, 2] > 0, 0]))
    if len(queries) < 2:
        raise TooLittleEvidenceError("evidence must come from at least two queries to hold one out")
    folds = []
    for held_out in np.array_split(queries, min(3, len(queries)))[: 3 if len(queries) < _FEW_QUERIES else 1]:
        items = random.permutation(np.unique(pairs[:, 1]))
        new_items = items[: int(new_share * len(items))]
        hidden = np.isin(pairs[:, 0], held_out) | np.isin(pairs[:, 1], new_items)
        learn = np.flatnonzero(~hidden)
        if not (pairs[learn, 2] > 0).any():  # too few pairs to hide any: hold out queries alone
            learn, new_items = np.flatnonzero(~np.isin(pairs[:, 0], held_out)), new_items[:0]
        folds.append(PairFold(learn, held_out[:_MOST_PAIR_QUERIES], new_items))
    return folds
