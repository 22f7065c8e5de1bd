"""`MemoryEngine`: an `Index` in this process behind the contract of the engines."""

from __future__ import annotations

from bitrank.core.types import Codes, Ids, Queries, Results
from bitrank.engines.contract import Engine, check_created
from bitrank.engines.stages import Fetched
from bitrank.index import Index


class MemoryEngine(Engine):
    """Codes in the memory of this process; each connection has its own, and closing it drops them."""

    def __init__(self, url: str, name: str) -> None:
        if url != "memory://":
            raise ValueError(f"the address must be memory://, got {url!r}")
        self._name = name
        self._index: Index | None = None

    @property
    def n_bits(self) -> int:
        """Bits per code."""
        return self._open().n_bits

    def create(self, n_bits: int) -> None:
        """Create the index."""
        n_bits = check_created(n_bits)
        if self._index is None:
            self._index = Index(n_bits=n_bits)
        elif self._index.n_bits != n_bits:
            raise ValueError(f"{self._name!r} must hold codes of {n_bits} bits, got one of {self._index.n_bits}")

    def _add(self, codes: Codes, ids: Ids) -> None:
        index = self._open()
        known = index.holds(ids)
        index.update(ids[known], codes[known])
        index.add(codes[~known], ids[~known])

    def _remove(self, ids: Ids) -> None:
        index = self._open()
        index.remove(ids[index.holds(ids)])

    def _optimize(self) -> None:
        self._open().optimize()

    def _count(self) -> int:
        return len(self._open())

    def close(self) -> None:
        """Drop the codes."""
        self._index = None

    def _ids(self) -> Ids:
        return self._open().ids

    def _lookup(self, ids: Ids) -> Fetched:
        index = self._open()
        stored = ids[index.holds(ids)]
        return stored, index.codes(stored)

    def _exact(self, queries: Queries, k: int) -> Results:
        return self._open().search(queries, k)

    def _rerank(self, queries: Queries, k: int, n_candidates: int) -> Results:
        return self._open().search(queries, k, method="rerank", candidates=n_candidates)

    def _open(self) -> Index:
        if self._index is None:
            raise ValueError(f"there is no index {self._name!r}: create it with create(n_bits)")
        return self._index
