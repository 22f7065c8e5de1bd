"""What a search reads once and a writer swaps: items, their ids, and the ranking in use."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from bitrank.collection.ids import ItemIds
from bitrank.collection.planes import PlaneQueries
from bitrank.collection.promises import Promises
from bitrank.collection.report import Version
from bitrank.core.types import Ids, Queries, n_bytes
from bitrank.index import Index
from bitrank.index.index import ReadResults
from bitrank.ranking.memory.entries import Memory

# A search is cut into calls of the kernel of about this many bytes of codes, so that Ctrl-C ends it.
_BYTES_PER_CALL = 2 << 30


class Lazy:
    """A hasher or a ranker, read from its bytes when it is first needed: scikit-learn takes a second to load."""

    def __init__(self, kind: str, value: Any = None, data: bytes | None = None) -> None:
        self._kind, self._value, self._data = kind, value, data

    def get(self) -> Any:
        """The object."""
        if self._value is None:
            from bitrank.hashing import load_hasher
            from bitrank.ranking import load_ranker

            self._value = (load_hasher if self._kind == "hasher" else load_ranker)(io.BytesIO(self.data()))
        return self._value

    def data(self) -> bytes:
        """The bytes of its file."""
        if self._data is None:
            stream = io.BytesIO()
            self._value.save(stream)
            self._data = stream.getvalue()
        return self._data

    def __getstate__(self) -> dict[str, Any]:
        return {"_kind": self._kind, "_value": None, "_data": self.data()}


@dataclass(frozen=True, slots=True)
class Moment:
    """Items, ids, ranking and memory of one moment."""

    index: Any  # an Index, or an Engine, which has no moments: changes go there at once
    ids: ItemIds
    version: Version
    ranker: Lazy | None = None
    memory: Memory | None = None
    promises: Promises | None = None  # of recall, where there are cells or may be
    hasher: Lazy | None = None

    def get_hasher(self) -> Any:
        """What makes the codes of vectors, or None."""
        return None if self.hasher is None else self.hasher.get()

    def search(
        self,
        queries: Any,
        k: int,
        wanted: Ids | None,
        threads: int,
        similarity: Any = None,
        reads: Mapping[str, Any] = MappingProxyType({}),
    ) -> ReadResults:
        """Search in calls that are short enough for Ctrl-C to be noticed between them.

        Parameters
        ----------
        reads : dict
            What `promises.reading` tells the index, where it need not read all items.
        """
        rows = len(queries.codes if isinstance(queries, Queries) else queries)
        if not isinstance(self.index, Index):
            if similarity is not None:
                raise ValueError(f"similarity must be None for a collection in an engine, got {similarity!r:.60}")
            if wanted is not None:
                raise ValueError("filter must be None for a collection in an engine, which searches all codes, got one")
            queries = queries.reals() if isinstance(queries, PlaneQueries) else queries
            return ReadResults(*self.index.search(queries, k)[:2])
        size = max(64, _BYTES_PER_CALL // max(1, len(self.index) * n_bytes(self.index.n_bits)))
        parts: list[Any] = []
        for start in range(0, max(rows, 1), size):
            part = slice(start, start + size)
            if isinstance(queries, PlaneQueries):
                parts.append(queries.part(part).search(self.index, k, wanted, threads, reads))
                continue
            if isinstance(queries, Queries):
                some: Any = Queries(queries.codes[part], queries.weights[part])
            else:
                some = queries[part]
            parts.append(self.index.search(some, k, similarity=similarity, filter=wanted, threads=threads, **reads))
        out = ReadResults(*parts[0] if len(parts) == 1 else map(np.concatenate, zip(*parts, strict=True)))
        out.share = np.concatenate([part.share for part in parts]) if reads else np.ones(len(out.ids))
        return out
