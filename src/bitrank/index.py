"""`Index`: exact search by weighted Hamming distance over packed codes, with weights that may change at every query.

It stands at the end of the path: codes come from `hashing`, weights from a ranker, both as plain arrays.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank import _kernel
from bitrank.codes import Codes, Weights, check_codes, check_n_bits, check_weights, pack
from bitrank.segments import (
    Ids,
    Order,
    Segment,
    bit_order,
    build,
    count,
    flags,
    n_threads,
    order_quality,
    restore,
    with_flags,
)

# Below this quality of the order for new weights, a sort pays: see docs/search.md for the measurement.
POOR_ORDER = 0.7


class Results(NamedTuple):
    """What a search found: one row a query, nearest first, padded with -1 and inf."""

    ids: Ids
    distances: npt.NDArray[np.float32]


class _State(NamedTuple):
    """All that a search reads. It is replaced, never changed."""

    order: Order | None
    segments: tuple[Segment, ...]


class Index:
    """Exact top-k search by weighted Hamming distance.

    Results equal those of `bitrank.codes.weighted_hamming`, sorted by distance and then by id, to the last bit.
    All methods may be called from several threads at once; a search sees the rows and the weights of one moment.

    Parameters
    ----------
    codes : uint8 array of shape (n, ceil(n_bits / 8)), optional
        Packed codes; an empty index without.
    n_bits : int, optional
        Eight a byte of `codes` by default; must be given when there are no codes.
    ids : int64 array of shape (n,), optional
        The caller's own, unique and not negative; 0 to n - 1 by default.
    weights : float array of shape (n_bits,), optional
        Weights of searches that bring none of their own; None is plain Hamming distance.

    Examples
    --------
    >>> from bitrank.codes import pack
    >>> index = Index(pack([[1, 0, 1], [1, 1, 0], [0, 0, 1]]), n_bits=3, weights=[4, 2, 1])
    >>> index.search(pack([[1, 0, 0]]), k=2)
    Results(ids=array([[0, 1]]), distances=array([[1., 2.]], dtype=float32))
    """

    def __init__(
        self,
        codes: Codes | None = None,
        *,
        n_bits: int | None = None,
        ids: npt.ArrayLike | None = None,
        weights: npt.ArrayLike | None = None,
    ) -> None:
        if codes is None and n_bits is None:
            raise ValueError("an index without codes needs n_bits")
        if codes is None and ids is not None:
            raise ValueError("ids were given without codes")
        if n_bits is not None and not 0 < n_bits < 1 << 16:
            raise ValueError(f"n_bits must be from 1 to 65535, got {n_bits}")
        self._n_bits = n_bits if codes is None and n_bits is not None else check_n_bits(check_codes(codes), n_bits)
        self._writing = threading.RLock()
        self._state = _State(None, ())
        self._lookups: dict[int, _Lookup] = {}
        self._weights = self._one_vector(weights)
        self._sorter: threading.Thread | None = None
        if codes is not None:
            self.add(codes, ids)

    @property
    def n_bits(self) -> int:
        """Bits of a code.

        Examples
        --------
        >>> Index(n_bits=98).n_bits
        98
        """
        return self._n_bits

    @property
    def weights(self) -> Weights | None:
        """Weights of searches that bring none of their own; new ones take effect at the next search.

        Setting them never needs a rebuild. When the rows' order suits them badly, a thread sorts the rows anew
        behind the searches.

        Examples
        --------
        >>> index = Index(n_bits=3)
        >>> index.weights = [4, 2, 1]
        >>> index.weights
        array([4., 2., 1.], dtype=float32)
        """
        return self._weights

    @weights.setter
    def weights(self, weights: npt.ArrayLike | None) -> None:
        self._weights = self._one_vector(weights)
        self._sort_if_poor()

    @property
    def ids(self) -> Ids:
        """All ids, ascending.

        Examples
        --------
        >>> from bitrank.codes import pack
        >>> Index(pack([[1, 0], [0, 1]]), ids=[7, 3]).ids
        array([3, 7])
        """
        return _ids(self._state)

    def __len__(self) -> int:
        return sum(map(count, self._state.segments))

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids.tolist())

    def __repr__(self) -> str:
        weighted = "weighted" if self._weights is not None else "plain"
        return f"Index({len(self)} codes of {self._n_bits} bits, {weighted})"

    def add(self, codes: Codes, ids: npt.ArrayLike | None = None) -> None:
        """Add rows.

        Parameters
        ----------
        codes : uint8 array of shape (n, ceil(n_bits / 8))
        ids : int64 array of shape (n,), optional
            Not yet in the index; by default those after the largest.

        Examples
        --------
        >>> from bitrank.codes import pack
        >>> index = Index(n_bits=2)
        >>> index.add(pack([[1, 0], [0, 1]]))
        >>> list(index)
        [0, 1]
        """
        codes = check_codes(codes, self._n_bits)
        with self._writing:
            self._state = self._added(self._state, codes, self._new_ids(self._state, len(codes), ids))

    def remove(self, ids: npt.ArrayLike) -> None:
        """Remove rows by id; an id that is not there is a ValueError, and nothing is removed.

        Examples
        --------
        >>> from bitrank.codes import pack
        >>> index = Index(pack([[1, 0], [0, 1]]))
        >>> index.remove([0])
        >>> list(index)
        [1]
        """
        with self._writing:
            self._state = self._removed(self._state, _check_ids(ids))

    def update(self, ids: npt.ArrayLike, codes: Codes) -> None:
        """Replace the codes of rows that are there, at once for every search.

        Examples
        --------
        >>> from bitrank.codes import pack
        >>> index = Index(pack([[1, 0], [0, 1]]))
        >>> index.update([0], pack([[1, 1]]))
        >>> index.distances(pack([[1, 1]]), [0])
        array([[0.]], dtype=float32)
        """
        codes = check_codes(codes, self._n_bits)
        checked = _check_ids(ids, len(codes))
        with self._writing:
            state = self._removed(self._state, checked)
            self._state = self._added(state, codes, self._new_ids(state, len(codes), checked))

    def search(
        self,
        queries: npt.NDArray[Any],
        k: int,
        weights: npt.ArrayLike | None = None,
        filter: npt.ArrayLike | None = None,  # noqa: A002
        candidates: int | None = None,
        threads: int | None = None,
    ) -> Results:
        """The k nearest rows of each query.

        Parameters
        ----------
        queries : uint8 array of shape (n_queries, ceil(n_bits / 8)), or float array of shape (n_queries, n_bits)
            Packed codes; or reals, which are a code (what is above zero) and magnitudes, by which the weights are
            multiplied: the asymmetric distance.
        k : int
        weights : float array of shape (n_bits,) or (n_queries, n_bits), optional
            Those of the index by default.
        filter : bool array of shape (len(index),) or int array, optional
            Rows to consider: a mask in the order of `ids`, or a list of ids.
        candidates : int, optional
            Rank only this many rows, the nearest by plain Hamming distance.
        threads : int, optional
            All cores by default.

        Returns
        -------
        results : named tuple of arrays ``(ids, distances)`` of shape (n_queries, k)
            Nearest first, ties by id, padded with -1 and inf where fewer than k rows are there.

        Examples
        --------
        >>> from bitrank.codes import pack
        >>> index = Index(pack([[1, 0, 1], [1, 1, 0], [0, 0, 1]]), n_bits=3)
        >>> index.search(pack([[1, 0, 0]]), k=2).ids
        array([[0, 1]])
        >>> index.search(pack([[1, 0, 0]]), k=2, weights=[0, 2, 1]).ids
        array([[0, 2]])
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        state = self._state
        codes, rows = self._check_queries(queries, weights)
        if candidates is None:
            return Results(*self._nearest(state, codes, rows, k, np.inf, filter, threads)[:2])
        if candidates < 1:
            raise ValueError(f"candidates must be at least 1, got {candidates}")
        plain = np.ones((1, self._n_bits), np.float32)
        ids, _, found = self._nearest(state, codes, plain, candidates, np.inf, filter, threads)
        return self._ranked(state, codes, rows, ids, found, k, threads)

    def search_radius(
        self,
        queries: npt.NDArray[Any],
        radius: float,
        weights: npt.ArrayLike | None = None,
        filter: npt.ArrayLike | None = None,  # noqa: A002
        threads: int | None = None,
    ) -> Results:
        """All rows within a distance of each query, padded to the most that any query has.

        Examples
        --------
        >>> from bitrank.codes import pack
        >>> index = Index(pack([[1, 0, 1], [1, 1, 0], [0, 0, 1]]), n_bits=3)
        >>> index.search_radius(pack([[1, 0, 0], [1, 1, 0]]), radius=1).ids
        array([[ 0,  1],
               [ 1, -1]])
        """
        if np.isnan(radius):
            raise ValueError("radius must be a number, got nan")
        codes, rows = self._check_queries(queries, weights)
        # Distances are float32: none lies between the radius and the largest float32 within it.
        limit = np.float32(radius)
        if float(limit) > radius:
            limit = np.nextafter(limit, np.float32(-np.inf))
        return Results(*self._nearest(self._state, codes, rows, 0, float(limit), filter, threads)[:2])

    def rerank(
        self,
        queries: npt.NDArray[Any],
        candidate_ids: npt.ArrayLike,
        k: int,
        weights: npt.ArrayLike | None = None,
        threads: int | None = None,
    ) -> Results:
        """The k nearest of given candidates, which came from elsewhere: a FAISS index, a data base.

        Parameters
        ----------
        queries : as in `search`
        candidate_ids : int array of shape (n_queries, n_candidates)
            -1 is skipped, and so is an id that comes again; an id that is not in the index is a ValueError.
        k, weights, threads : as in `search`

        Examples
        --------
        >>> from bitrank.codes import pack
        >>> index = Index(pack([[1, 0, 1], [1, 1, 0], [0, 0, 1]]), n_bits=3, weights=[4, 2, 1])
        >>> index.rerank(pack([[1, 0, 0]]), [[2, 1]], k=2).ids
        array([[1, 2]])
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        state = self._state
        codes, rows = self._check_queries(queries, weights)
        ids = np.asarray(candidate_ids)
        if ids.ndim != 2 or len(ids) != len(codes) or (ids.size and ids.dtype.kind not in "iu"):
            raise ValueError(
                f"candidate_ids must be an int matrix with one row for each of the {len(codes)} queries, "
                f"got {ids.dtype} of shape {ids.shape}"
            )
        ids = np.sort(ids.astype(np.int64), axis=1)
        ids[:, 1:][ids[:, 1:] == ids[:, :-1]] = -1
        found = np.full(ids.shape, -1, np.int64)
        found[ids != -1] = self._rows(state, ids[ids != -1])
        return self._ranked(state, codes, rows, ids, found, k, threads)

    def distances(
        self,
        queries: npt.NDArray[Any],
        ids: npt.ArrayLike,
        weights: npt.ArrayLike | None = None,
        threads: int | None = None,
    ) -> npt.NDArray[np.float32]:
        """Distance of every query to every row of the list `ids`, shape (n_queries, n_ids).

        Examples
        --------
        >>> from bitrank.codes import pack
        >>> index = Index(pack([[1, 0, 1], [1, 1, 0]]), n_bits=3, weights=[4, 2, 1])
        >>> index.distances(pack([[1, 0, 0]]), [1, 0])
        array([[2., 1.]], dtype=float32)
        """
        state = self._state
        codes, rows = self._check_queries(queries, weights)
        found = self._rows(state, _check_ids(ids))
        return self._scored(state, codes, rows, np.tile(found, (len(codes), 1)), threads)

    def optimize(self) -> None:
        """Sort all rows for the present weights, and drop what was removed. Searches go on meanwhile.

        Examples
        --------
        >>> from bitrank.codes import pack
        >>> Index(pack([[1, 0], [0, 1]])).optimize()
        """
        with self._writing:
            codes, ids = self.export()
            self._state = self._added(_State(None, ()), codes, ids)
            self._lookups = {}

    def export(self) -> tuple[Codes, Ids]:
        """All codes, packed as they came, and their ids, in no particular order.

        Examples
        --------
        >>> from bitrank.codes import pack
        >>> Index(pack([[1, 0], [0, 1]])).export()
        (array([[ 64],
               [128]], dtype=uint8), array([1, 0]))
        """
        order, segments = self._state
        if order is None:
            return np.empty((0, -(-self._n_bits // 8)), np.uint8), np.empty(0, np.int64)
        parts = [restore(segment, order, n_threads()) for segment in segments]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([codes for codes, _ in parts]), np.concatenate([ids for _, ids in parts])

    def _nearest(
        self,
        state: _State,
        codes: Codes,
        weights: Weights,
        k: int,
        radius: float,
        filter: npt.ArrayLike | None,  # noqa: A002
        threads: int | None,
    ) -> tuple[Ids, npt.NDArray[np.float32], Ids]:
        segments = state.segments if filter is None else self._filtered(state, filter)
        order = np.arange(self._n_bits, dtype=np.uint16) if state.order is None else state.order
        path = os.environ.get("BITRANK_KERNEL", "")
        found = _kernel.search(codes, weights, order, list(segments), k, radius, n_threads(threads), path)
        return found[0].view(np.int64), found[1], found[2].view(np.int64)

    def _scored(
        self, state: _State, codes: Codes, weights: Weights, rows: Ids, threads: int | None
    ) -> npt.NDArray[np.float32]:
        out = np.full(rows.shape, np.inf, np.float32)
        if state.order is not None:
            _kernel.score(codes, weights, state.order, list(state.segments), rows, out, n_threads(threads))
        return out

    def _ranked(
        self, state: _State, codes: Codes, weights: Weights, ids: Ids, rows: Ids, k: int, threads: int | None
    ) -> Results:
        distances = self._scored(state, codes, weights, np.ascontiguousarray(rows), threads)
        # Padding comes last: a row's distance may be inf as well.
        best = np.lexsort((ids, distances, rows < 0), axis=1)[:, :k]
        out = Results(np.full((len(codes), k), -1, np.int64), np.full((len(codes), k), np.inf, np.float32))
        width = best.shape[1]
        out.ids[:, :width] = np.where(np.take_along_axis(rows, best, 1) < 0, -1, np.take_along_axis(ids, best, 1))
        out.distances[:, :width] = np.take_along_axis(distances, best, 1)
        return out

    def _filtered(self, state: _State, filter: npt.ArrayLike) -> tuple[Segment, ...]:  # noqa: A002
        array = np.asarray(filter)
        if array.dtype == np.bool_:
            n = sum(map(count, state.segments))
            if array.shape != (n,):
                raise ValueError(f"a filter mask must have one value for each of the {n} rows, got {array.shape}")
            if all(segment.wanted is None and segment.ids.max() < n for segment in state.segments):
                return tuple(with_flags(segment, array[segment.ids]) for segment in state.segments)
            array = _ids(state)[array]
        rows = self._rows(state, _check_ids(array))
        out, start = [], 0
        for segment in state.segments:
            there = np.zeros(len(segment.ids), bool)
            there[rows[(rows >= start) & (rows < start + len(there))] - start] = True
            out.append(with_flags(segment, there))
            start += len(there)
        return tuple(out)

    def _rows(self, state: _State, ids: Ids) -> Ids:
        """Row numbers, counted through all segments, of ids that must be there."""
        out = np.full(len(ids), -1, np.int64)
        start = 0
        for segment in state.segments:
            key = id(segment.ids)
            lookup = self._lookups.get(key)
            if lookup is None or lookup.ids is not segment.ids:
                lookup = self._lookups[key] = _Lookup(segment.ids)
            rows = lookup.rows(ids)
            if segment.wanted is not None:
                rows[~flags(segment)[rows]] = -1
            out[rows >= 0] = start + rows[rows >= 0]
            start += len(segment.ids)
        if (out < 0).any():
            raise ValueError(f"ids must be in the index, got {ids[out < 0][0]}, which is not")
        return out

    def _new_ids(self, state: _State, n: int, ids: npt.ArrayLike | None) -> Ids:
        largest = max((int(segment.ids.max()) for segment in state.segments), default=-1)
        if ids is None:
            return np.arange(largest + 1, largest + 1 + n)
        array = _check_ids(ids, n)
        if n and int(array.min()) <= largest:
            taken = np.intersect1d(array, _ids(state))
            if len(taken):
                raise ValueError(f"ids must be new, got {taken[0]}, which is in the index")
        return array

    def _added(self, state: _State, codes: Codes, ids: Ids) -> _State:
        """The state with more rows. Segments up to twice as long as the new one are merged into it."""
        order, segments = state
        segments = tuple(segment for segment in segments if count(segment))
        parts = [(codes, ids)] if len(ids) else []
        while order is not None and segments and len(segments[-1].ids) <= 2 * sum(len(i) for _, i in parts):
            parts.append(restore(segments[-1], order, n_threads()))
            segments = segments[:-1]
        if not parts:
            return _State(order, segments)
        if len(parts) > 1:
            codes, ids = np.concatenate([c for c, _ in parts]), np.concatenate([i for _, i in parts])
        if order is None or not segments:
            order = bit_order(codes, self._n_bits, self._weights)
        return _State(order, (*segments, build(codes, ids, order, n_threads())))

    def _removed(self, state: _State, ids: Ids) -> _State:
        rows = self._rows(state, ids)
        out, start = [], 0
        for segment in state.segments:
            mine = rows[(rows >= start) & (rows < start + len(segment.ids))] - start
            start += len(segment.ids)
            if len(mine):
                there = flags(segment).copy()
                there[mine] = False
                segment = with_flags(segment, there)  # noqa: PLW2901
            out.append(segment)
        return _State(state.order, tuple(out))

    def _sort_if_poor(self) -> None:
        order, segments = self._state
        weights = self._weights
        if order is None or weights is None or (self._sorter is not None and self._sorter.is_alive()):
            return
        n = sum(len(segment.ids) for segment in segments)
        if order_quality(order, weights, n) < POOR_ORDER:
            self._sorter = threading.Thread(target=self.optimize, name="bitrank-sort", daemon=True)
            self._sorter.start()

    def _check_queries(self, queries: Any, weights: npt.ArrayLike | None) -> tuple[Codes, Weights]:
        array = np.asarray(queries)
        magnitudes = None
        if array.dtype.kind == "f":
            if array.ndim != 2 or array.shape[1] != self._n_bits or not np.isfinite(array).all():
                raise ValueError(
                    f"queries of reals must be finite, of shape (n_queries, {self._n_bits}), got shape {array.shape}"
                )
            magnitudes = np.abs(array).astype(np.float32)
            array = pack(array > 0)
        codes = check_codes(array, self._n_bits, name="queries")
        own = self._weights if weights is None else weights
        if own is None:
            rows = np.ones((1, self._n_bits), np.float32)
        else:
            rows = np.atleast_2d(check_weights(own, self._n_bits, n_queries=len(codes)))
        if magnitudes is not None:
            rows = check_weights(rows * magnitudes)
        return codes, np.ascontiguousarray(rows)

    def _one_vector(self, weights: npt.ArrayLike | None) -> Weights | None:
        if weights is None:
            return None
        array = check_weights(weights, self._n_bits).copy()
        if array.ndim != 1:
            raise ValueError(f"weights of an index must be one vector of {self._n_bits}, got shape {array.shape}")
        array.flags.writeable = False
        return array


class _Lookup:
    """Rows of a segment by id; four bytes a row, made when first needed."""

    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        self._dense = bool(len(ids)) and int(ids.max()) == len(ids) - 1
        if self._dense:
            self._order = np.empty(len(ids), np.uint32)
            self._order[ids] = np.arange(len(ids), dtype=np.uint32)
        else:
            self._order = np.argsort(ids).astype(np.uint32)

    def rows(self, wanted: Ids) -> Ids:
        """Row of each id, or -1."""
        n = len(self.ids)
        if self._dense:
            inside = (wanted >= 0) & (wanted < n)
            return np.where(inside, self._order[np.where(inside, wanted, 0)].astype(np.int64), -1)
        at = np.searchsorted(self.ids, wanted, sorter=self._order)
        rows = self._order[np.minimum(at, n - 1)].astype(np.int64)
        return np.where(self.ids[rows] == wanted, rows, -1)


def _ids(state: _State) -> Ids:
    parts = [s.ids if s.wanted is None else s.ids[flags(s)] for s in state.segments]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)


def _check_ids(ids: npt.ArrayLike, n: int | None = None) -> Ids:
    """Ids as an int64 vector, unique and not negative, or a ValueError that says what came instead."""
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"ids must be a vector of ints, got {array.dtype} of shape {array.shape}")
    if n is not None and len(array) != n:
        raise ValueError(f"ids must have one value for each of the {n} codes, got {len(array)}")
    if array.size and (array.min() < 0 or array.max() > np.iinfo(np.int64).max):
        raise ValueError(f"ids must be from 0 to 2**63 - 1, got {array.min()} to {array.max()}")
    array = array.astype(np.int64)
    if len(array) > 1 and not (np.diff(array) > 0).all():
        ordered = np.sort(array)
        repeated = ordered[1:][np.diff(ordered) == 0]
        if len(repeated):
            raise ValueError(f"ids must be unique, got {repeated[0]} more than once")
    return array
