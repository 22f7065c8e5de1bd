"""`MemoryEngine`: an `Index` behind the contract of the engines, for code that should run without one.

`connect("memory://")` makes it; each connection has codes of its own, and they end with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.checks import check_ids
from bitrank.engines.contract import Candidates, Closing, check_add, check_created, check_search
from bitrank.engines.planes import check_whole
from bitrank.index import Index
from bitrank.vocabulary import Codes, Results


class MemoryEngine(Closing):
    """Codes in the memory of this process; the methods are those of `Engine`."""

    def __init__(self, url: str, name: str) -> None:
        if url != "memory://":
            raise ValueError(f"the address must be memory://, got {url!r}")
        self._name = name
        self._index: Index | None = None

    @property
    def n_bits(self) -> int:
        """Bits of a code."""
        return self._made().n_bits

    def create(self, n_bits: int) -> None:
        """Make the table."""
        n_bits = check_created(n_bits)
        if self._index is None:
            self._index = Index(n_bits=n_bits)
        elif self._index.n_bits != n_bits:
            raise ValueError(f"{self._name!r} must have codes of {n_bits} bits, got one of {self._index.n_bits}")

    def add(self, codes: Codes, ids: npt.ArrayLike) -> None:
        """Add codes, or replace them."""
        index = self._made()
        codes, checked = check_add(codes, ids, index.n_bits)
        known = np.isin(checked, index.ids)
        index.update(checked[known], codes[known])
        index.add(codes[~known], checked[~known])

    def remove(self, ids: npt.ArrayLike) -> None:
        """Remove what is there of these ids."""
        index = self._made()
        index.remove(np.intersect1d(check_ids(ids), index.ids))

    def optimize(self) -> None:
        """Sort the rows."""
        self._made().optimize()

    def search(
        self, queries: npt.NDArray[Any], k: int, weights: npt.ArrayLike | None = None, candidates: Candidates = None
    ) -> Results:
        """The k nearest codes of each query."""
        index = self._made()
        codes, rows, n_candidates = check_search(queries, k, weights, candidates, index.n_bits)
        if n_candidates is None:
            return index.search(codes, k, check_whole(rows))
        return index.search(codes, k, rows, candidates=n_candidates)

    def count(self) -> int:
        """Number of codes."""
        return len(self._made())

    def close(self) -> None:
        """Forget the codes."""
        self._index = None

    def _made(self) -> Index:
        if self._index is None:
            raise ValueError(f"there is no table {self._name!r}: make it with create(n_bits)")
        return self._index
