"""`Remembered`: judged queries of the collection's folder and of the API, and searches that they lift."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from bitrank.collection import remembering
from bitrank.collection.ids import Numbers
from bitrank.collection.moment import Moment
from bitrank.collection.planes import PlaneQueries
from bitrank.collection.remembering import Linear
from bitrank.collection.report import Version
from bitrank.core.types import Ids, Queries, Results
from bitrank.ranking.memory.entries import ITEM, PINNED, Memory
from bitrank.ranking.memory.lifting import Lifted
from bitrank.service.collection import Collection, SearchQuery
from bitrank.service.sources import Source
from bitrank.service.store.judgements import Judged, JudgementStore, Named, put


class Remembered:
    """The memory of a service.

    Parameters
    ----------
    source : Source
        With what its collection remembers, and the verdict of the gate: judgements of the API join under it, and
        without one only those that are pinned lift anything.
    collection : Collection
    store : JudgementStore
    """

    def __init__(self, source: Source, collection: Collection, store: JudgementStore) -> None:
        self._collection, self._store = collection, store
        self._base, self._offset = source.memory or Memory.empty(collection.n_bits), source.offset
        self._changed: dict[str, Judged] = {}
        self._applied = 0
        self._refreshing = threading.Lock()
        self._take(self._base)
        self.refresh()

    def _take(self, memory: Memory) -> None:
        facts = {} if self._offset is None else {"memory": self._offset}
        self._moment = Moment(self._collection.index, Numbers(), Version(0, "plain", facts=facts), None, memory)

    def refresh(self) -> None:
        """Apply what changed in the store since the last time."""
        with self._refreshing:
            self._applied, changed = self._store.changed(self._applied)
            if not changed:
                return
            self._changed |= {each.query: each for each in changed}
            memory = self._base
            gone = [query for query in self._changed if query in memory.places]
            memory = memory.remove(gone) if gone else memory
            added = [each for each in self._changed.values() if each.items]
            pairs = [(row, item, *how) for row, each in enumerate(added) for item, how in each.items.items()]
            if added:
                codes = np.frombuffer(b"".join(each.code for each in added), np.uint8).reshape(len(added), -1)
                memory = memory.add(codes, [each.query for each in added], np.array(pairs, np.int64))
            self._take(memory)

    @property
    def is_active(self) -> bool:
        """Whether anything can be lifted."""
        return self._moment.lifts

    def __len__(self) -> int:
        return len(self._moment.memory or ())

    def listed(self, offset: int, limit: int) -> list[tuple[str, Named]]:
        """Some of the judged queries and the items that they name, in the order in which they joined."""
        memory: Any = self._moment.memory
        return [(str(name), _items_of(memory, name)) for name in memory.names[offset : offset + limit]]

    def name_of(self, query: SearchQuery) -> str:
        """What a query without a name is called: as the judged one of its code, or by its code."""
        memory: Any = self._moment.memory
        same = np.flatnonzero((memory.codes == query.code).all(axis=1))
        return str(memory.names[same[0]]) if len(same) else query.code.tobytes().hex()

    def join(self, connection: sa.Connection, batch: list[Judged]) -> None:
        """Add judgements to the lists of their queries, within a transaction; a grade of 0 takes an item out."""
        memory, merged = self._moment.memory, dict[str, Judged]()
        for query, code, items in batch:
            known: Named = {}
            if query in merged:
                known = merged[query].items
            elif memory is not None and query in memory.places:
                known = _items_of(memory, query)
            kept = {item: how for item, how in {**known, **items}.items() if how[0] > 0}
            merged[query] = Judged(query, code, kept)
        put(connection, list(merged.values()))

    def holds(self, query: str) -> bool:
        """Return whether a query is judged."""
        return self._moment.memory is not None and query in self._moment.memory.places

    def plain(self, query: SearchQuery) -> Linear:
        """A query as judged ones are compared with it, with its scale."""
        n_bits, hasher = self._collection.n_bits, self._collection.source.hasher
        if hasher is not None and hasattr(hasher, "ask"):
            planes: Any = hasher
            vectors = planes.decode(query.code) if query.features is None else query.features
            asked = PlaneQueries.of(planes, vectors)
            return remembering.with_weights(asked.reals(), n_bits), asked.scale()
        sign_bits = hasher is not None and hasher.n_features_in_ == n_bits
        return remembering.with_weights(query.vector, n_bits), remembering.scale_of(query.vector, n_bits, sign_bits)

    def lift(self, plain: list[Linear], queries: Queries, found: Results, wanted: Ids | None) -> Lifted:
        """Results of searches, lifted by what is remembered of items that are still there."""
        asked = Queries(*(np.concatenate([getattr(q, name) for q, _ in plain]) for name in ("codes", "weights")))
        first, second = (np.concatenate([scale[place] for _, scale in plain]) for place in (0, 1))
        both = asked, (first, second)
        present = self._collection.sorted_ids if wanted is None else wanted
        return remembering.lifted(self._moment, both, remembering.linear(both, queries), found, present, 1)

    def lifted_by(self, lifted: Lifted, row: int) -> dict[int, tuple[str, bool]]:
        """The judged query that lifted each item of a row of results, and whether the item is pinned to it."""
        memory, out = self._moment.memory, {}
        for item, place in zip(lifted.ids[row].tolist(), lifted.judged[row].tolist(), strict=True):
            if place >= 0 and memory is not None and place < len(memory):
                name = memory.names[place]
                how = _items_of(memory, name).get(item)
                out[item] = str(name), how is not None and how[1]
        return out

    def read(self, path: Path) -> None:
        """Remember a file in TREC's format, whose queries are judged ones, ids of items, or codes in hex."""
        batch: dict[str, Judged] = {}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            parts = line.split()
            if not parts:
                continue
            try:
                query, item, grade = parts[0], int(parts[-2]), int(parts[-1])
                if len(parts) not in (3, 4) or not 0 <= grade <= 30:
                    raise ValueError
                code = self._code_of(query)
                self._collection.codes([item])
            except ValueError as error:
                raise ValueError(
                    f"{path}, line {number} must be `query 0 item grade`, of items of the collection, got {line!r:.60}"
                    f"{': ' + str(error) if str(error) else ''}"
                ) from None
            batch.setdefault(query, Judged(query, code, {})).items[item] = grade, False
        self._store.join(list(batch.values()), self.join)
        self.refresh()

    def _code_of(self, query: str) -> bytes:
        memory: Any = self._moment.memory
        if query in memory.places:
            return bytes(memory.codes[memory.places[query]].tobytes())
        if query.isdecimal() and not self._collection.missing([int(query)]):
            return bytes(self._collection.codes([int(query)]).tobytes())
        return bytes(self._collection.read_code(query).tobytes())


def _items_of(memory: Memory, query: Any) -> Named:
    return {int(row[ITEM]): (int(row[2]), bool(row[PINNED])) for row in memory.items_of(query)}
