"""Items whose codes stay in an engine, in the form in which a collection uses its own index."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.collection.ids import ItemIds, Numbers
from bitrank.core.checks import check_queries
from bitrank.core.codes import distances_to_rows
from bitrank.core.types import Codes, Ids, Results, n_bytes
from bitrank.engines.contract import Engine, UnknownIdError


class EngineItems:
    """An engine as the index of a collection; changes go to the engine at once.

    Parameters
    ----------
    engine : Engine
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._samples: dict[int, Codes] = {}  # drawn once: most engines read all ids for one

    @property
    def n_bits(self) -> int:
        """Bits per code."""
        return self._engine.n_bits

    @property
    def ids(self) -> Ids:
        """All ids, ascending, read from the engine."""
        return self._engine.ids

    @property
    def largest_id(self) -> int:
        """The largest id, or -1."""
        return int(self.ids[-1]) if len(self) else -1

    def __len__(self) -> int:
        return self._engine.count()

    def holds(self, ids: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Say for each number of a list whether it is an id."""
        numbers = np.asarray(ids, np.int64)
        try:
            self._engine.codes(numbers[numbers >= 0])
        except UnknownIdError:
            return np.isin(numbers, self.ids)
        out: npt.NDArray[np.bool_] = numbers >= 0
        return out

    def codes(self, ids: npt.ArrayLike) -> Codes:
        """Codes of ids, in their order."""
        return self._engine.codes(ids)

    def sample(self, n: int) -> Codes:
        """Codes of n items, drawn at the first call."""
        if n not in self._samples:
            self._samples[n] = self._engine.sample(n)
        return self._samples[n]

    def add(self, codes: Codes, ids: npt.ArrayLike) -> None:
        """Add codes to the engine."""
        self._engine.add(codes, ids)

    def remove(self, ids: npt.ArrayLike) -> None:
        """Remove codes from the engine."""
        self._engine.remove(ids)

    def search(
        self,
        queries: Any,
        k: int,
        *,
        filter: Ids | None,  # noqa: A002
        threads: int,
    ) -> Results:
        """Find the k nearest codes of each query: exactly where the engine can, else in two stages."""
        if filter is not None:
            raise ValueError("filter must be None for a collection in an engine, which searches all its codes, got one")
        exact = self._engine._no_exact is None
        return self._engine.search(queries, k, method="exact" if exact else "rerank")

    def distances(self, queries: Any, ids: Ids, *, threads: int) -> npt.NDArray[np.float32]:
        """Distances of each query to its own row of ids, infinite for -1 and ids that the engine does not hold."""
        numbers, places = np.unique(ids, return_inverse=True)
        held = self.holds(numbers) & (numbers >= 0)
        codes = np.zeros((len(numbers), n_bytes(self.n_bits)), np.uint8)
        codes[held] = self.codes(numbers[held])
        asked, weights = check_queries(queries, None, self.n_bits)
        places = places.reshape(ids.shape)
        rows = np.ascontiguousarray(np.broadcast_to(weights, (len(asked), self.n_bits)))
        out = distances_to_rows(asked, codes, places, rows, threads=threads)
        return np.where(held[places], out, np.float32(np.inf))

    def copy(self) -> EngineItems:
        """Return the same: an engine has no moments."""
        return self


class EngineIds(Numbers):
    """Ids in an engine, which lists them in ascending order."""

    def add(self, ids: Any, n: int, index: Any) -> tuple[ItemIds, Ids]:
        """More ids."""
        return self, super().add(ids, n, index)[1]
