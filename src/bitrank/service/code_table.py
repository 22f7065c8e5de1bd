"""`CodeTable`: the ids of a collection with their codes, for look-ups by array access; and a `Sample` of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.core.types import Codes, Ids, Rows


class CodeTable(NamedTuple):
    """Sorted ids and, where they are few enough to be held twice, their codes. A change makes another table.

    Examples
    --------
    >>> table = CodeTable(np.array([3, 5]), np.uint8([[1], [2]]))
    >>> table.has(5), table.codes_of([5]), table.codes_of([4])
    (True, array([[2]], dtype=uint8), None)
    >>> table.changed(np.array([], int), np.zeros((0, 1), np.uint8), [3], np.array([4]), np.uint8([[9]])).ids
    array([4, 5])
    """

    ids: Ids
    codes: Codes | None

    def has(self, item: int) -> bool:
        """Return whether an item is in the table."""
        at = int(np.searchsorted(self.ids, item))
        return at < len(self.ids) and int(self.ids[at]) == item

    def code_of(self, item: int) -> Codes | None:
        """Look up the code of one item; None where the table has none."""
        at = int(self.ids.searchsorted(item))
        known = self.codes is not None and at < len(self.ids) and int(self.ids[at]) == item
        return self.codes[at : at + 1] if self.codes is not None and known else None

    def codes_of(self, ids: Sequence[int] | Ids) -> Codes | None:
        """Look up codes; None where the table has none, or an item is not in it."""
        if self.codes is None or not len(self.ids):
            return None
        rows = self.ids.searchsorted(ids)
        if len(rows) and int(rows.max()) >= len(self.ids):
            return None
        return self.codes[rows] if (self.ids[rows] == ids).all() else None

    def changed(self, replaced: Ids, replacements: Codes, removed: npt.ArrayLike, new: Ids, codes: Codes) -> CodeTable:
        """Replace, remove and add items; new ids ascend. Copying a million takes a few milliseconds."""
        ids, table = self
        gone = ids.searchsorted(removed)
        if table is not None:
            if len(replaced):
                table = table.copy()
                table[ids.searchsorted(replaced)] = replacements
            table = _without(table, gone)
        ids = _without(ids, gone)
        places = ids.searchsorted(new)
        if table is not None:
            table = _with_rows(table, places, codes)
        return CodeTable(_with_rows(ids, places, new), table)


class Sample(NamedTuple):
    """Items drawn at random, for exploration and for learning."""

    ids: Ids
    codes: Codes


def is_in(ids: Ids, among: Ids) -> npt.NDArray[np.bool_]:
    """Tell which ids are in a sorted array."""
    if not len(among):
        return np.zeros(len(ids), bool)
    hits: npt.NDArray[np.bool_] = among[np.minimum(np.searchsorted(among, ids), len(among) - 1)] == ids
    return hits


def _with_rows(array: npt.NDArray[Any], places: Rows, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Insert rows before some places, ascending; `np.insert` takes ten times as long for a few."""
    if not len(places):
        return array
    parts = np.split(array, places)
    between = [part for pair in zip(parts, np.split(rows, len(rows)), strict=False) for part in pair]
    return np.concatenate([*between, parts[-1]])


def _without(array: npt.NDArray[Any], places: Rows) -> npt.NDArray[Any]:
    """Remove rows, at any places."""
    if not len(places):
        return array
    parts = np.split(array, np.sort(places))
    return np.concatenate([parts[0], *(part[1:] for part in parts[1:])])
