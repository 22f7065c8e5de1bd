"""`Memory`: judged queries as codes, and the items that each of them names."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_codes
from bitrank.core.files import read_npz
from bitrank.core.types import Codes, Ids, Rows
from bitrank.index.snapshot import Snapshot

ENTRY, ITEM, GRADE, PINNED = range(4)  # columns of pairs


class Lists(NamedTuple):
    """What judged queries name, as the kernel reads it: row j names items[starts[j]:starts[j + 1]]."""

    starts: Rows
    items: Ids
    pinned: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, pairs: Rows, n: int) -> Self:
        """Lists of n judged queries."""
        starts = np.searchsorted(pairs[:, ENTRY], np.arange(n + 1))
        return cls(starts, np.ascontiguousarray(pairs[:, ITEM]), np.ascontiguousarray(pairs[:, PINNED], np.uint8))


class Memory:
    """Judged queries and what they name, at one moment: every change makes a new one.

    Parameters
    ----------
    codes : packed codes of the judged queries
    n_bits : int
    names : sequence of str or int
        What each judged query is called; unique.
    pairs : int64 array of shape (m, 4)
        Row of the judged query, number of the item, grade from 1, and whether an operator pinned it; sorted.
    judged : bool array
        Which of the judged queries a gate has judged in its turn.

    Examples
    --------
    >>> memory = Memory.empty(8).add(np.uint8([[3], [12]]), ["a", "b"], np.array([[0, 7, 1, 0], [1, 5, 2, 0]]))
    >>> len(memory), memory.items_of("b").tolist()
    (2, [[1, 5, 2, 0]])
    >>> memory.remove(["a"]).names
    ['b']
    """

    def __init__(
        self, codes: Codes, n_bits: int, names: Sequence[Any], pairs: Rows, judged: npt.NDArray[np.bool_]
    ) -> None:
        self.codes, self.n_bits, self.names, self.pairs, self.judged = codes, n_bits, list(names), pairs, judged
        self.places = {name: place for place, name in enumerate(self.names)}
        self.lists = Lists.of(pairs, len(codes))
        self.any_pinned = bool(self.lists.pinned.any())
        self._snapshot: Snapshot | None = None

    @classmethod
    def empty(cls, n_bits: int) -> Self:
        """A memory of nothing."""
        codes, pairs = np.empty((0, (n_bits + 7) // 8), np.uint8), np.empty((0, 4), np.int64)
        return cls(codes, n_bits, [], pairs, np.empty(0, bool))

    def of_codes(self, codes: Codes, n_bits: int) -> Self:
        """The same judged queries in other codes."""
        return type(self)(codes, n_bits, self.names, self.pairs, self.judged)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def snapshot(self) -> Snapshot:
        """The codes, to be searched by row number."""
        if self._snapshot is None:
            empty = Snapshot(self.n_bits, np.arange(self.n_bits, dtype=np.uint16))
            self._snapshot = empty.add(self.codes, np.arange(len(self)), None)
        return self._snapshot

    @property
    def n_bytes(self) -> int:
        """Bytes of codes and lists, without names."""
        return int(self.codes.nbytes) + sum(each.nbytes for each in self.lists)

    def items_of(self, name: Any) -> Rows:
        """Pairs of one judged query."""
        place = self.places[name]
        return self.pairs[self.lists.starts[place] : self.lists.starts[place + 1]]

    def add(self, codes: Codes, names: Sequence[Any], pairs: Rows) -> Self:
        """With more judgements: those of a known name join its list, and a later grade takes the place of an earlier.

        Parameters
        ----------
        codes, names : of the judged queries
        pairs : int64 array of shape (m, 4)
            With rows of `codes`; a grade of 0 takes an item out of the list.
        """
        new = list(dict.fromkeys(name for name in names if name not in self.places))
        places = self.places | {name: place for place, name in enumerate(new, len(self))}
        rows = np.array([places[name] for name in names], np.int64)
        all_codes = np.concatenate([self.codes, np.empty((len(new), self.codes.shape[1]), np.uint8)])
        all_codes[rows] = codes
        moved = np.column_stack([rows[pairs[:, ENTRY]], pairs[:, ITEM:]]) if len(pairs) else pairs
        both = np.concatenate([self.pairs, moved])
        both = both[np.lexsort((both[:, ITEM], both[:, ENTRY]))]  # stable: the later of two judgements comes last
        last = np.ones(len(both), bool)
        last[:-1] = (both[1:, :2] != both[:-1, :2]).any(axis=1)
        group = np.cumsum(last) - last
        pinned = np.bincount(group, both[:, PINNED]) > 0
        both = both[last]
        both[:, PINNED] = pinned[: len(both)]
        known = np.concatenate([self.judged, np.zeros(len(new), bool)])
        known[rows] = False
        out = type(self)(all_codes, self.n_bits, [*self.names, *new], both[both[:, GRADE] > 0], known)
        if self._snapshot is not None and np.array_equal(all_codes[: len(self)], self.codes):
            out._snapshot = self._snapshot.add(all_codes[len(self) :], np.arange(len(self), len(all_codes)), None)
        return out._without_empty()

    def remove(self, names: Sequence[Any]) -> Self:
        """Without some judged queries, all of which must exist."""
        kept = np.ones(len(self), bool)
        kept[[self.places[name] for name in names]] = False
        return self._take(kept)

    def without_items(self, numbers: Ids) -> Self:
        """Without some items in every list."""
        named = np.isin(self.lists.items, numbers)
        return self._with_pairs(self.pairs[~named]) if named.any() else self

    def renumbered(self, old: Ids, new: Ids) -> Self:
        """With new numbers for some items."""
        order = np.argsort(old)
        places = order[np.minimum(np.searchsorted(old, self.lists.items, sorter=order), max(0, len(old) - 1))]
        moved = old[places] == self.lists.items
        pairs = self.pairs.copy()
        pairs[moved, ITEM] = new[places[moved]]
        return self._with_pairs(pairs[np.lexsort((pairs[:, ITEM], pairs[:, ENTRY]))])

    def all_judged(self) -> Self:
        """The same after a gate has judged all entries."""
        out = type(self)(self.codes, self.n_bits, self.names, self.pairs, np.ones(len(self), bool))
        out._snapshot = self._snapshot
        return out

    def to_bytes(self) -> bytes:
        """The content of a file."""
        content = io.BytesIO()
        names = np.array(json.dumps(self.names))
        np.savez(content, allow_pickle=False, codes=self.codes, names=names, pairs=self.pairs, judged=self.judged)
        return content.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, n_bits: int) -> Self:
        """Read what `to_bytes` wrote; a ValueError where it is something else."""
        try:
            arrays = read_npz(io.BytesIO(data))
            names = json.loads(str(arrays["names"]))
            codes = check_codes(arrays["codes"], n_bits)
            pairs, judged = arrays["pairs"].astype(np.int64), arrays["judged"].astype(bool)
        except (KeyError, TypeError) as error:
            raise ValueError(f"expected a memory of judged queries, got {error}") from None
        lengths = {len(codes), len(judged), len(names), len(set(names))}
        ascending = pairs.ndim == 2 and pairs.shape[1] == 4 and bool((np.diff(pairs[:, ENTRY]) >= 0).all())
        if (
            len(lengths) > 1
            or not ascending
            or (len(pairs) and not 0 <= pairs[0, ENTRY] <= pairs[-1, ENTRY] < len(codes))
        ):
            raise ValueError(f"expected a memory of {len(codes)} judged queries, got others")
        return cls(codes, n_bits, names, pairs, judged)

    def _with_pairs(self, pairs: Rows) -> Self:
        out = type(self)(self.codes, self.n_bits, self.names, pairs, self.judged)
        out._snapshot = self._snapshot
        return out._without_empty()

    def _without_empty(self) -> Self:
        kept = np.diff(self.lists.starts) > 0
        return self if kept.all() else self._take(kept)

    def _take(self, kept: npt.NDArray[np.bool_]) -> Self:
        pairs = self.pairs[kept[self.pairs[:, ENTRY]]]
        pairs[:, ENTRY] = (np.cumsum(kept) - 1)[pairs[:, ENTRY]]
        names = [name for name, keep in zip(self.names, kept.tolist(), strict=True) if keep]
        return type(self)(self.codes[kept], self.n_bits, names, pairs, self.judged[kept])
