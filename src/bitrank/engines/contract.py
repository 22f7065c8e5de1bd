"""`Engine`: the contract of all engines, with the one `search` that they share, and the checks of their input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_codes, check_count, check_ids, check_method, check_queries
from bitrank.core.codes import distances_to_rows, sample_rows
from bitrank.core.types import AnyQueries, Codes, Ids, Method, Queries, Results, Weights, n_bytes
from bitrank.engines.stages import Fetched, rank_all, rerank


class UnknownIdError(ValueError):
    """An id that an engine does not have."""


class Engine(ABC):
    """Codes that an engine stores, searched by weighted Hamming distance.

    Invalid input is a ValueError and changes nothing. A connection that is lost and cannot be restored is a
    ConnectionError; an interrupted `add` then added all codes or none, and repeating it is safe.

    A subclass implements the abstract methods and `_scan`; it also implements `_fetch` where the engine finds the
    nearest codes by plain Hamming distance faster than by a scan. An engine that cannot weigh bits implements `_fetch`
    only and says so in `_no_exact`.

    Examples
    --------
    >>> import bitrank
    >>> with bitrank.connect("memory://") as engine:
    ...     engine.create(n_bits=3)
    ...     engine.add(np.uint8([[160], [192]]), ids=[7, 8])
    ...     isinstance(engine, Engine), engine.count(), engine.search(np.uint8([[128]]), k=1, weights=[4, 2, 1]).ids
    (True, 2, array([[7]]))
    """

    # Why this engine has no exact search, as a noun phrase, or None.
    _no_exact: ClassVar[str | None] = None
    # Limit of candidates and results per query, or None.
    _max_candidates: ClassVar[int | None] = None

    @property
    @abstractmethod
    def n_bits(self) -> int:
        """Bits per code; a ValueError when there is no table yet."""

    @abstractmethod
    def create(self, n_bits: int) -> None:
        """Create the table; keep an existing one of the same shape, and refuse another shape with a ValueError."""

    def add(self, codes: Codes, ids: npt.ArrayLike) -> None:
        """Add packed codes with their ids, all or none; replace the codes of ids that exist."""
        checked = check_codes(codes, self.n_bits)
        self._add(checked, check_ids(ids, len(checked)))

    def remove(self, ids: npt.ArrayLike) -> None:
        """Remove ids; skip those that do not exist."""
        self._check_table()
        self._remove(check_ids(ids))

    def optimize(self) -> None:
        """Build what makes searches fast, once many codes were added; search works without it."""
        self._check_table()
        self._optimize()

    def count(self) -> int:
        """Number of codes."""
        self._check_table()
        return self._count()

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True  # without asking a server

    def sample(self, n: int) -> Codes:
        """Draw n codes, or all where there are fewer: the same ones while the collection stays the same.

        Rankers tell from them which queries are like what they learned from. `queries_for(…, collection=engine)` draws
        a sample at the first call, for which most engines read all ids, and again after ten minutes.
        """
        return self._sample(check_count("n", n, 1))

    def _sample(self, n: int) -> Codes:
        """Draw codes evenly, not those that were added first."""
        ids = self.ids
        return self.codes(ids[sample_rows(len(ids), n)])

    @property
    def ids(self) -> Ids:
        """All ids, ascending, read from the engine."""
        return np.sort(self._ids())

    def codes(self, ids: npt.ArrayLike) -> Codes:
        """Look up the codes of ids, in their order; an unknown id is an UnknownIdError, which is a ValueError."""
        asked = np.asarray(ids, np.int64)
        stored, codes = self._stored(asked)
        missing = np.setdiff1d(asked, stored)
        if len(missing):
            raise UnknownIdError(f"ids must be in the engine, got {missing[0]}, which is not")
        return codes[np.searchsorted(stored, asked)]

    @property
    def largest_id(self) -> int:
        """The largest id, or -1 without codes."""
        return int(self._ids().max(initial=-1))

    def holds(self, ids: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Say for each number of a list whether the engine has it as an id."""
        asked = np.asarray(ids, np.int64)
        return np.isin(asked, self._stored(asked)[0])

    def distances(
        self, queries: AnyQueries, ids: Ids, weights: npt.ArrayLike | None = None, *, threads: int | None = None
    ) -> npt.NDArray[np.float32]:
        """Distances of each query to its own row of ids, infinite for -1 and ids that the engine does not have."""
        codes, rows = check_queries(queries, weights, self.n_bits)
        stored, stored_codes = self._stored(ids)
        is_known = np.isin(ids, stored)
        if not is_known.any():
            return np.full(ids.shape, np.inf, np.float32)
        places = np.where(is_known, np.searchsorted(stored, ids), 0)
        out = distances_to_rows(codes, stored_codes, places, np.broadcast_to(rows, (len(codes), self.n_bits)))
        return np.where(is_known, out, np.float32(np.inf))

    def _stored(self, ids: Ids) -> Fetched:
        """Those of some ids that exist, ascending, with their codes."""
        unique = np.unique(ids[ids >= 0])
        if not len(unique):
            return unique, np.empty((0, n_bytes(self.n_bits)), np.uint8)
        stored, codes = self._lookup(unique)
        order = np.argsort(stored)
        return stored[order], np.ascontiguousarray(codes[order])

    def _check_table(self) -> None:
        """Refuse to work without a table."""
        _ = self.n_bits

    @abstractmethod
    def _add(self, codes: Codes, ids: Ids) -> None:
        """Add or replace codes that were checked."""

    @abstractmethod
    def _remove(self, ids: Ids) -> None:
        """Remove those of some ids that exist."""

    def _optimize(self) -> None:  # noqa: B027
        """Build an index, where the engine has any."""

    @abstractmethod
    def _count(self) -> int:
        """Count the codes."""

    @abstractmethod
    def _ids(self) -> Ids:
        """Read all ids, in any order."""

    @abstractmethod
    def _lookup(self, ids: Ids) -> Fetched:
        """Read those of some ids that exist, with their codes, in any order."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection, as leaving a ``with`` block does."""

    def search(
        self,
        queries: AnyQueries,
        k: int,
        weights: npt.ArrayLike | None = None,
        *,
        method: Method | None = None,
        candidates: int | None = None,
    ) -> Results:
        """Find the k nearest codes of each query.

        Parameters
        ----------
        queries : Queries, uint8 array of shape (n_queries, ceil(n_bits / 8)), or float array (n_queries, n_bits)
            What a ranker's `queries_for` returns; packed codes; or reals, whose signs are the code and whose
            magnitudes multiply the weights.
        k : int
        weights : float array of shape (n_bits,) or (n_queries, n_bits), optional
            None is plain Hamming distance; must be None for `Queries`, which have their own.
        method : {"exact", "rerank"}, optional
            "exact" ranks every code inside the engine, with the same results as an `Index`. "rerank" fetches the
            `candidates` nearest codes by plain Hamming distance and ranks those here: faster where the engine has an
            index for it, and the only method of engines that cannot weigh bits, which it is the default of.
        candidates : int, optional
            Codes that "rerank" fetches per query; ten times k by default, and at least 1000.

        Returns
        -------
        results : named tuple of arrays ``(ids, distances)`` of shape (n_queries, k)
            Nearest first, ties by id, padded with -1 and inf.
        """
        return self._search(queries, k, weights, method, candidates)

    def _search(
        self, queries: AnyQueries, k: int, weights: npt.ArrayLike | None, method: Method | None, candidates: int | None
    ) -> Results:
        n_bits = self.n_bits
        k = check_count("k", k, 1)
        codes, rows = check_queries(queries, weights, n_bits)
        n_candidates = self.check_method(method, k, candidates)
        checked = Queries(codes, np.broadcast_to(rows, (len(codes), n_bits)))
        return self._exact(checked, k) if n_candidates is None else self._rerank(checked, k, n_candidates)

    def check_method(self, method: Method | None, k: int = 1, candidates: int | None = None) -> int | None:
        """Return how many candidates `search` fetches, None for all codes; a ValueError says what it cannot do."""
        if method is None:
            method = "exact" if self._no_exact is None else "rerank"
        n_candidates = check_method(method, k, candidates, self._max_candidates)
        if n_candidates is None and self._no_exact is not None:
            raise ValueError(f'method must be "rerank" for {self._no_exact}, got "exact"')
        return n_candidates

    def _exact(self, queries: Queries, k: int) -> Results:
        return rank_all(queries, self._scan, k)

    def _rerank(self, queries: Queries, k: int, n_candidates: int) -> Results:
        return rerank(queries, self._fetch(queries.codes, n_candidates), k)

    def _scan(self, codes: Codes, weights: Weights, n: int) -> Iterable[Fetched]:
        """Yield per query the n nearest codes by whole-number weights, one row per query, ties by id."""
        raise NotImplementedError

    def _fetch(self, codes: Codes, n: int) -> Iterable[Fetched]:
        """Yield per query the n nearest codes by plain Hamming distance; ties are the engine's choice."""
        return self._scan(codes, np.ones((len(codes), self.n_bits), np.float32), n)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def check_created(n_bits: int) -> int:
    """Bits per code of a new table."""
    if not isinstance(n_bits, int) or not 0 < n_bits < 1 << 16:
        raise ValueError(f"n_bits must be an int from 1 to 65535, got {n_bits!r}")
    return n_bits


def check_same_width(stored: int, n_bits: int, table: str) -> None:
    """Refuse to treat a table of `stored` bits per code as one of `n_bits`.

    A table that knows only bytes reports a multiple of eight, which fits every number of bits in as many bytes.
    """
    if n_bytes(stored) != n_bytes(n_bits) or (stored != n_bits and stored % 8):
        raise ValueError(f"{table} must hold codes of {n_bits} bits, got one of {stored}")
