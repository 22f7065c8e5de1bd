"""The caller's ids: whole numbers, which the index keeps itself, or any other hashable values beside it.

Both kinds remember the order in which items were added, which is the order of labels, features and masks. They are
those of one moment: `add` and `remove` make new ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import repeat
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_ids
from bitrank.core.types import Ids
from bitrank.index import Index

AnyIds = npt.NDArray[Any]  # int64, or objects


class Numbers:
    """Whole numbers, which are the ids of the index.

    Parameters
    ----------
    order : int64 array, optional
        Ids in the order in which they were added; without it they ascend.
    """

    kind = "numbers"

    def __init__(self, order: Ids | None = None) -> None:
        self.order = order

    def ids(self, index: Index) -> Ids:
        """Ids in the order in which they were added."""
        return index.ids if self.order is None else self.order

    numbers = ids

    def find(self, ids: Any, index: Index) -> Ids:
        """Ids that the index holds, as they are; -1 for others."""
        if isinstance(ids, list | tuple):
            ids = np.array([each if _is_number(each) else -1 for each in ids], np.int64)
        array = np.asarray(ids)
        if array.dtype.kind not in "iu":
            return np.full(len(array), -1, np.int64)
        array = array.astype(np.int64)
        return np.where(index.holds(array), array, -1)

    def of(self, numbers: Ids) -> Ids:
        """The numbers themselves."""
        return numbers

    def add(self, ids: Any, n: int, index: Index) -> tuple[ItemIds, Ids]:
        """More ids; by default the numbers after the largest one."""
        largest = index.largest_id
        if ids is None:
            more = np.arange(largest + 1, largest + 1 + n)
        else:
            if not is_numbers(ids):
                if len(index):
                    raise ValueError("ids must be whole numbers as those of the collection, got others")
                return Names().add(ids, n, index)
            more = check_ids(ids, n)
            taken = more[index.holds(more)] if n and int(more.min()) <= largest else more[:0]
            if len(taken):
                raise ValueError(f"ids must be new, got {taken[0]}, which is in the collection")
        ascending = not n or (int(more[0]) > largest and bool((np.diff(more) > 0).all()))
        if self.order is None and (ascending or not isinstance(index, Index)):  # an engine lists ids in their order
            return self, more
        return Numbers(np.concatenate([self.ids(index), more])), more

    def remove(self, numbers: Ids) -> ItemIds:
        """Ids without some."""
        return self if self.order is None else Numbers(self.order[~np.isin(self.order, numbers)])

    def to_store(self, index: Index) -> Ids | None:
        """What a folder holds: their order, unless they ascend."""
        return self.order


class Names:
    """Hashable values of any kind; the index holds their row numbers, counted from the first item ever added."""

    kind = "names"

    def __init__(self, table: AnyIds | None = None, rows: dict[Hashable, int] | None = None) -> None:
        self.table = np.empty(0, object) if table is None else table
        self._rows: dict[Hashable, int] | None = rows

    @classmethod
    def of_rows(cls, names: list[Any]) -> Self:
        """The ids of rows, None of those that were removed."""
        table = np.empty(len(names), object)
        table[:] = names
        return cls(table)

    def ids(self, index: Index) -> AnyIds:
        """Ids in the order in which they were added."""
        return self.table[index.ids]

    def numbers(self, index: Index) -> Ids:
        """Row numbers of all items."""
        return index.ids

    def find(self, ids: Any, index: Index) -> Ids:
        """Row numbers of ids; -1 for those that the collection does not hold."""
        values = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        rows = self._lookup()
        try:
            out = np.fromiter(map(rows.get, values, repeat(-1)), np.int64, len(values))
        except TypeError:  # some value is not hashable
            out = np.array([rows.get(each, -1) if _is_hashable(each) else -1 for each in values], np.int64)
        # The dictionary is shared with later moments: an id may have been removed and added again since.
        later = np.flatnonzero(out >= len(self.table)).tolist()
        if later:
            own = {name: row for row, name in enumerate(self.table.tolist())}
            out[later] = [own.get(values[place], -1) for place in later]
        return np.where(index.holds(out), out, -1)

    def of(self, numbers: Ids) -> AnyIds:
        """Ids of row numbers, None where they are -1."""
        if len(self.table) and (numbers >= 0).all():
            return self.table[numbers]
        padded = np.empty(len(self.table) + 1, object)
        padded[:-1] = self.table
        return padded[numbers]

    def add(self, ids: Any, n: int, index: Index) -> tuple[ItemIds, Ids]:
        """More ids, all new."""
        if ids is None:
            raise ValueError("ids must be given for a collection with ids that are not whole numbers, got none")
        values = as_values(ids)
        values = values.tolist() if isinstance(values, np.ndarray) else values
        if len(values) != n:
            raise ValueError(f"ids must have one value for each of the {n} items, got {len(values)}")
        for value in values:
            if not _is_hashable(value) or value is None or value != value:
                raise ValueError(f"ids must be hashable values other than None, got {value!r:.60}")
        if len(set(values)) < n:
            seen: set[Hashable] = set()
            twice = next(value for value in values if value in seen or seen.add(value))  # type: ignore[func-returns-value]
            raise ValueError(f"ids must be unique, got {twice!r} more than once")
        taken = self.find(values, index) >= 0
        if taken.any():
            raise ValueError(f"ids must be new, got {values[int(taken.argmax())]!r}, which is in the collection")
        table = np.empty(len(self.table) + n, object)
        table[: len(self.table)] = self.table
        for row, value in enumerate(values, len(self.table)):
            table[row] = value
        numbers = np.arange(len(self.table), len(table))
        rows = self._lookup()
        rows.update(zip(values, numbers.tolist(), strict=True))
        return Names(table, rows), numbers

    def remove(self, numbers: Ids) -> Self:
        """The same: removed rows keep their place in the table, which nobody finds."""
        return self

    def to_store(self, index: Index) -> list[Any]:
        """What a folder holds: the ids of rows, None for those of removed items."""
        live = set(index.ids.tolist())
        ids = [name if row in live else None for row, name in enumerate(self.table.tolist())]
        wrong = [name for name in ids if name is not None and not isinstance(name, str | int)]
        if wrong:
            raise ValueError(f"ids must be texts or whole numbers to be saved, got {wrong[0]!r:.60}")
        return ids

    def _lookup(self) -> dict[Hashable, int]:
        if self._rows is None:
            self._rows = {name: row for row, name in enumerate(self.table.tolist())}
        return self._rows


ItemIds = Numbers | Names


def is_numbers(ids: Any) -> bool:
    """Return whether ids are whole numbers.

    Examples
    --------
    >>> is_numbers([3, 1]), is_numbers(["a", 1]), is_numbers(np.arange(3))
    (True, False, True)
    """
    if isinstance(ids, list | tuple):
        return all(map(_is_number, ids))
    array = np.asarray(ids)
    return array.dtype.kind in "iu" or (array.dtype == object and all(map(_is_number, array.ravel().tolist())))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_hashable(value: Any) -> bool:
    return isinstance(value, Hashable) and not (isinstance(value, tuple) and not all(map(_is_hashable, value)))


def as_values(ids: Any, name: str = "ids") -> npt.NDArray[Any] | list[Any]:
    """Ids as an array or a list, where they are several.

    Examples
    --------
    >>> as_values(("a", "b"))
    ['a', 'b']
    """
    if isinstance(ids, str | bytes | dict) or not isinstance(ids, Iterable):
        raise ValueError(f"{name} must be a list of ids, got {ids!r:.60}")
    if hasattr(ids, "to_numpy"):
        return np.asarray(ids.to_numpy())
    return ids if isinstance(ids, np.ndarray) and ids.ndim == 1 else list(ids)
