"""`EngineIndex`: codes that stay in an engine, with the methods of an `Index` that the service calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_queries
from bitrank.core.codes import nearest
from bitrank.core.types import AnyQueries, Codes, Ids, Method, Results
from bitrank.engines import Engine
from bitrank.engines.contract import UnknownIdError

MAX_ASKED = 1000  # results of an engine, for those among them that match a filter


class UnreachableEngineError(ConnectionError):
    """An engine that does not answer, or no longer has the table; its next call tries again."""


class EngineIndex:
    """A table of an engine as a collection; its ids are read once, its codes when they are needed.

    Parameters
    ----------
    engine : Engine
    method : {"exact", "rerank"}, optional
        See `Engine.search`; "rerank" by default with `candidates`.
    candidates : int, optional

    Examples
    --------
    >>> import numpy as np
    >>> import bitrank
    >>> engine = bitrank.connect("duckdb://")
    >>> engine.create(n_bits=8)
    >>> engine.add(np.uint8([[1], [2]]), ids=[7, 8])
    >>> index = EngineIndex(engine)
    >>> index.ids, index.codes([8])
    (array([7, 8]), array([[2]], dtype=uint8))
    """

    weights = None

    def __init__(self, engine: Engine, method: Method | None = None, candidates: int | None = None) -> None:
        self._engine, self._candidates = engine, candidates
        self._method = "rerank" if method is None and candidates is not None else method
        engine.check_method(self._method, candidates=candidates)
        self.n_bits = engine.n_bits
        self.ids: Ids = engine.ids

    def __len__(self) -> int:
        return len(self.ids)

    def search(
        self,
        queries: AnyQueries,
        k: int,
        weights: npt.ArrayLike | None = None,
        *,
        filter: Ids | None = None,  # noqa: A002
        threads: int | None = None,
    ) -> Results:
        """Search in the engine, which has its own threads.

        With a filter, a list of ids, the engine is asked for the codes of these where they are few, and otherwise for
        more results until enough of them are among the ids.
        """
        with _failures():
            if filter is None:
                return self._engine.search(queries, k, weights, method=self._method, candidates=self._candidates)
            n = len(check_queries(queries, weights, self.n_bits)[0])
            all_ids, n_asked = np.broadcast_to(filter, (n, len(filter))), k
            while True:
                n_asked = min(len(self), 2 * n_asked * max(1, len(self) // len(filter)))
                if n_asked >= min(len(filter), MAX_ASKED):
                    values = self._engine.distances(queries, all_ids, weights)
                    return nearest(np.where(np.isfinite(values), all_ids, -1), values, k)
                ids, values = self._engine.search(queries, n_asked, weights, method=self._method)
                ids = np.where(np.isin(ids, filter), ids, -1)
                if ((ids >= 0).sum(axis=1) >= k).all():
                    return nearest(ids, values, k)

    def distances(self, queries: AnyQueries, ids: Ids, *, threads: int | None = None) -> npt.NDArray[np.float32]:
        """Distances of each query to its own row of ids, infinite for ids that the engine does not hold."""
        with _failures():
            return self._engine.distances(queries, ids)

    def sample(self, n: int) -> Codes:
        """Draw codes."""
        with _failures():
            return self._engine.sample(n)

    def codes(self, ids: npt.ArrayLike) -> Codes:
        """Look up codes by id."""
        with _failures():
            return self._engine.codes(ids)

    def check_reachable(self) -> None:
        """Raise an UnreachableEngineError unless the engine answers."""
        with suppress(UnknownIdError):  # an answer, too: the item is gone
            self.codes(self.ids[:1])


@contextmanager
def _failures() -> Iterator[None]:
    """Tell what is wrong with the engine; what the service asks for was checked before, but for ids that are gone."""
    try:
        yield
    except UnknownIdError:
        raise
    except (ConnectionError, ValueError) as error:
        raise UnreachableEngineError(str(error)) from error
