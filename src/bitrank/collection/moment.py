"""What a search reads once and a writer swaps: items, their ids, the ranking in use, and how queries are read."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.collection import remembering
from bitrank.collection.ids import AnyIds, ItemIds, as_values
from bitrank.collection.planes import PlaneItems, PlaneQueries
from bitrank.collection.promises import Promises
from bitrank.collection.report import Version
from bitrank.collection.vectors import check_vectors
from bitrank.core.arrays import to_array
from bitrank.core.checks import check_codes
from bitrank.core.types import Codes, Ids, Queries, Weights, n_bytes
from bitrank.index import Index
from bitrank.index.index import ReadResults
from bitrank.ranking.memory.entries import Memory
from bitrank.ranking.memory.lifting import Scale

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
    """Items, ids, ranking and memory of one moment, and the hasher, which reads vectors of so many dimensions."""

    index: Any  # an Index, or an Engine, which has no moments: changes go there at once
    ids: ItemIds
    version: Version
    ranker: Lazy | None = None
    memory: Memory | None = None
    promises: Promises | None = None  # of recall, where there are cells or may be
    hasher: Lazy | None = None
    n_dimensions: int | None = None
    metric: str = "cosine"

    @property
    def n_bits(self) -> int:
        """Bits per code."""
        return int(self.index.n_bits)

    @property
    def n_bytes(self) -> int:
        """Bytes per code."""
        return n_bytes(self.n_bits)

    def get_hasher(self) -> Any:
        """What makes the codes of vectors, or None."""
        return None if self.hasher is None else self.hasher.get()

    @property
    def lift_offset(self) -> float | None:
        """What a lift costs, by the verdict of the gate on the memory; None lifts pinned items alone."""
        offset: float | None = self.version.facts.get("memory")
        return offset

    @property
    def lifts(self) -> bool:
        """Whether the memory can lift anything."""
        memory = self.memory
        return memory is not None and len(memory) > 0 and (self.lift_offset is not None or memory.any_pinned)

    # Items -----------------------------------------------------------------------------------------------------------

    def with_items(self, codes: Codes, ids: Any, replaced: Ids | None = None) -> tuple[Moment, Ids]:
        """The moment after items were added, in place of others where ids are theirs, and the numbers of the new ones.

        Parameters
        ----------
        ids : as `Collection.add` takes them
        replaced : int array, optional
            Numbers of the items whose place is taken.
        """
        index, ids_before, memory = self._index_to_change(), self.ids, self.memory
        if replaced is not None and len(replaced):
            index.remove(replaced)
            ids_before = ids_before.remove(replaced)
        known, numbers = ids_before.add(ids, len(codes), index)
        index.add(codes, numbers)
        if memory is not None and replaced is not None and len(replaced):
            memory = memory.renumbered(replaced, known.find(self.ids.of(replaced), index))
        return replace(self, index=index, ids=known, memory=memory), numbers

    def without_items(self, numbers: Ids) -> Moment:
        """The moment after items were removed, also from what is remembered."""
        index = self._index_to_change()
        index.remove(numbers)
        memory = self.memory and self.memory.without_items(numbers)
        return replace(self, index=index, ids=self.ids.remove(numbers), memory=memory)

    def _index_to_change(self) -> Any:
        return self.index.copy() if isinstance(self.index, Index) else self.index

    def all_ids(self) -> AnyIds:
        """Ids in the order in which items were added."""
        return self.ids.ids(self.index)

    def numbers(self) -> Ids:
        """Numbers of the items in the index, in the order of ids."""
        return self.ids.numbers(self.index)

    def find(self, ids: Any, name: str) -> Ids:
        """Numbers of ids, all of which must exist."""
        values = as_values(ids, name)
        numbers = self.ids.find(values, self.index)
        if (numbers < 0).any():
            unknown = values[int((numbers < 0).argmax())]
            raise ValueError(f"{name} must be in the collection, got {unknown!r}, which is not")
        return numbers

    def filtered(self, wanted: Any) -> Ids | None:
        """Numbers of the items to consider, by a mask or a list of ids; None considers all."""
        if wanted is None:
            return None
        array = wanted if isinstance(wanted, list | tuple) else to_array(wanted, "filter")
        if isinstance(array, list | tuple) and array and all(isinstance(value, bool) for value in array):
            array = np.array(array)
        if isinstance(array, np.ndarray) and array.dtype == np.bool_:
            if array.shape != (len(self.index),):
                raise ValueError(
                    f"filter must be a list of ids, or a mask with one value for each of the {len(self.index)} "
                    f"items, got a mask of shape {array.shape}"
                )
            kept: Ids = self.numbers()[array]
            return kept
        return np.unique(self.find(array, "filter"))

    # Queries ---------------------------------------------------------------------------------------------------------

    def read_queries(self, Q: Any) -> tuple[Any, npt.NDArray[Any] | None]:
        """Queries as codes or reals, or as the vectors that codes are made of."""
        array = to_array(Q, "queries")
        if array.ndim == 1 and array.dtype != object:
            array = array[None]
        width = array.shape[1] if array.ndim == 2 else None
        if self.hasher is not None and width == self.n_dimensions:
            return None, check_vectors(array, "queries")
        if width is not None and (array.dtype == np.bool_ or (array.dtype == np.uint8 and width == self.n_bytes)):
            codes = check_codes(array, self.n_bits, name="queries")
            decode = getattr(self.get_hasher(), "decode", None)
            return (codes, None) if decode is None else (None, decode(codes))
        is_real = array.dtype.kind in "fiu" and array.dtype != np.uint8
        if self.hasher is not None or width != self.n_bits or not is_real:
            wanted = f"packed codes of {self.n_bytes} bytes"
            if self.hasher is None:
                wanted = f"{wanted}, or reals of {self.n_bits} numbers"
            else:
                wanted = f"vectors of {self.n_dimensions} numbers, or {wanted}"
            raise ValueError(f"queries must be {wanted}, got shape {array.shape} of {array.dtype}")
        return check_vectors(array, "queries"), None

    def codes_of(self, Q: Any) -> Codes:
        """Queries as codes."""
        if isinstance(Q, Queries):
            return Q.codes
        queries, vectors = self.read_queries(Q)
        if vectors is not None:
            queries = self.get_hasher().transform(vectors)
        codes: Codes = queries if queries.dtype == np.uint8 else np.packbits(queries > 0, axis=1)
        return codes

    def ask(self, Q: Any) -> tuple[Any, Any, Weights | None]:
        """What the memory is asked, what the index is asked, and the trust in each query."""
        if isinstance(Q, Queries):
            return Q, Q, Q.trust
        queries, vectors = self.read_queries(Q)
        ranker: Any = None if self.ranker is None else self.ranker.get()
        in_vectors = ranker is not None and ranker.space == "vectors"
        needs_plain = ranker is None or in_vectors or self.lifts
        plain = self.plain(queries, vectors) if needs_plain else None
        if ranker is None:
            return plain, plain, None
        hasher = self.get_hasher()
        if in_vectors and vectors is not None:
            asked = plain if isinstance(plain, PlaneQueries) else PlaneQueries.of(hasher, vectors)
            learned, trust = asked.learned(ranker, PlaneItems(hasher, self.index))
            return plain, learned if asked is plain else learned.reals(), trust
        reals = queries if vectors is None else hasher.project(vectors)
        features = None if vectors is None else ranker.features_of(vectors)
        queries = ranker.queries_for(reals, features=features, collection=self.index)
        return plain, queries, queries.trust

    def plain(self, queries: Any, vectors: npt.NDArray[Any] | None) -> Any:
        """What the plain ranking asks the index, for queries as `read_queries` returns them."""
        hasher = self.get_hasher()
        if vectors is not None and hasattr(hasher, "ask") and isinstance(self.index, Index):
            return PlaneQueries.of(hasher, vectors)
        return queries if vectors is None else hasher.project(vectors)

    def linear(self, queries: Any) -> remembering.Linear:
        """Plain queries that are linear in the bits, and what turns their distances into similarities."""
        if isinstance(queries, PlaneQueries):
            return remembering.with_weights(queries.reals(), self.n_bits), queries.scale()
        queries = remembering.with_weights(queries, self.n_bits)
        return queries, self.scale_of(queries)

    def scale_of(self, queries: Any) -> Scale:
        """What turns distances of queries into similarities."""
        if isinstance(queries, PlaneQueries):  # one less the cosine, or minus a score
            return remembering.constant_scale(len(queries), 2.0 if self.metric == "cosine" else 0.0)
        return remembering.scale_of(queries, self.n_bits, self.hasher is not None and self.n_dimensions == self.n_bits)

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
                some: Any = queries.part(part) if rows > size else queries
                parts.append(some.search(self.index, k, wanted, threads, reads))
                continue
            if isinstance(queries, Queries):
                some = Queries(queries.codes[part], queries.weights[part])
            else:
                some = queries[part]
            parts.append(self.index.search(some, k, similarity=similarity, filter=wanted, threads=threads, **reads))
        if len(parts) == 1:
            return ReadResults.of(parts[0])
        out = ReadResults(*map(np.concatenate, zip(*parts, strict=True)))
        out.share = np.concatenate([part.share for part in parts]) if reads else None
        return out
