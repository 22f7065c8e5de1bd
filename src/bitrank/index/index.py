"""`Index`: exact search by weighted Hamming distance over packed codes, with weights that may change at every query."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import (
    check_any_rows,
    check_codes,
    check_count,
    check_ids,
    check_index_weights,
    check_method,
    check_parts,
    check_queries,
    check_radius,
    check_weights,
    is_in_parts,
    n_threads,
)
from bitrank.core.codes import nearest, sample_rows
from bitrank.core.types import AnyQueries, Codes, Estimates, Ids, Method, Queries, Results, Weights, n_bytes
from bitrank.index import storage
from bitrank.index.cells import Axes, learn_cells, rows_to_fit
from bitrank.index.reading import KS, Calibration, Chosen, Searches, check_recall
from bitrank.index.segments import LANES, Order, bit_order, order_quality
from bitrank.index.similarity import check_plain, check_similarity, search_similar
from bitrank.index.snapshot import Asked, Snapshot

# Sort the rows again when new weights bring the order's quality below this: docs/search.md has the measurement.
POOR_ORDER = 0.7
# Rows whose rest is read by default: this many per result, and at least SHORTLIST.
SHORTLIST, SHORTLIST_PER_RESULT = 100, 4

_alive: weakref.WeakSet[Index] = weakref.WeakSet()


# Queries that tell what must be read for a promised recall.
MOST_QUERIES = 1000


class ReadResults(Results):
    """Results of a search with `recall`, and the share of the blocks that each query has read."""

    share: Any = None  # float64 array; None: all

    @classmethod
    def of(cls, results: Results) -> ReadResults:
        """Results of any search."""
        return results if isinstance(results, cls) else cls(*results)


class _Origin:
    """What an index and its copies have in common."""


class Index:
    """Exact top-k search by weighted Hamming distance.

    Results equal those of `bitrank.core.codes.weighted_hamming`, sorted by distance and then by id, to the last bit.
    All methods may be called from several threads at once; a search sees the rows and the weights of one moment.

    Parameters
    ----------
    codes : uint8 array of shape (n, ceil(n_bits / 8)), optional
        Packed codes; without them the index is empty.
    n_bits : int, optional
        Eight per byte of `codes` by default; required without codes.
    ids : int64 array of shape (n,), optional
        Unique and not negative; 0 to n - 1 by default.
    weights : float array of shape (n_bits,), optional
        Default weights of searches; None is plain Hamming distance.
    n_scanned : int, optional
        Scan the first bits of every code only, the head, a multiple of 8. The rest lies row by row, on disk if the
        index is loaded so, and is read for a shortlist. By default all bits are scanned, and search is exact.
    query_weights : float array of shape (n_scanned,), optional
        Mean weight that queries give each scanned bit: bits and rows are sorted by it where there are no `weights`.
        Results do not depend on it.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> index = Index(pack([[1, 0, 1], [1, 1, 0], [0, 0, 1]]), n_bits=3, weights=[4, 2, 1])
    >>> index.search(pack([[1, 0, 0]]), k=2)
    Results(ids=array([[0, 1]]), distances=array([[1., 2.]], dtype=float32))
    >>> codes = np.random.default_rng(0).integers(0, 256, (1000, 16), dtype=np.uint8)
    >>> Index(codes, n_scanned=32).search(codes[:2], k=1, shortlist=50).ids
    array([[0],
           [1]])
    """

    def __init__(
        self,
        codes: Codes | None = None,
        *,
        n_bits: int | None = None,
        ids: npt.ArrayLike | None = None,
        weights: npt.ArrayLike | None = None,
        n_scanned: int | None = None,
        query_weights: npt.ArrayLike | None = None,
    ) -> None:
        if codes is None and n_bits is None:
            raise ValueError("n_bits must be an int for an index without codes, got None")
        if codes is None and ids is not None:
            raise ValueError("ids must be None for an index without codes, got ids")
        if n_bits is not None and not (isinstance(n_bits, Integral) and 0 < n_bits < 1 << 16):
            raise ValueError(f"n_bits must be from 1 to 65535, got {n_bits!r}")
        codes, self._n_bits = (None, int(n_bits or 0)) if codes is None else check_any_rows(codes, n_bits)
        n_scanned = self._n_bits if n_scanned is None else check_count("n_scanned", n_scanned, 1)
        if n_scanned > self._n_bits or (n_scanned % 8 and n_scanned < self._n_bits):
            raise ValueError(
                f"n_scanned must be a multiple of 8 up to {self._n_bits}, the bits of a code, got {n_scanned}"
            )
        self._snapshot = Snapshot(self._n_bits, _order(n_scanned, query_weights))
        self._mapped, self._origin, self._n_changes = False, _Origin(), 0
        self._calibration: Calibration | None = None
        self._weights = check_index_weights(weights, self._n_bits)
        self._unlock()
        _alive.add(self)
        if codes is not None:
            self.add(codes, ids)

    @property
    def n_bits(self) -> int:
        """Bits per code.

        Examples
        --------
        >>> Index(n_bits=98).n_bits
        98
        """
        return self._n_bits

    @property
    def n_scanned(self) -> int:
        """Bits of a code that are scanned; all, or its first.

        Examples
        --------
        >>> Index(n_bits=98).n_scanned, Index(n_bits=98, n_scanned=32).n_scanned
        (98, 32)
        """
        return len(self._snapshot.order)

    @property
    def weights(self) -> Weights | None:
        """Default weights of searches; new ones take effect at the next search, without a rebuild.

        When the order of the rows suits new weights badly, a background thread sorts the rows again.

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
        self._weights = check_index_weights(weights, self._n_bits)
        self._sort_if_poor()

    @property
    def ids(self) -> Ids:
        """All ids, ascending.

        Examples
        --------
        >>> from bitrank.core.codes import pack
        >>> Index(pack([[1, 0], [0, 1]]), ids=[7, 3]).ids
        array([3, 7])
        """
        return self._snapshot.ids()

    @property
    def age(self) -> tuple[object, int]:
        """What the rows began as, the same object for copies, and how many were added or removed since."""
        return self._origin, self._n_changes

    @property
    def largest_id(self) -> int:
        """The largest id, or -1 without rows: rows added without ids get the numbers after it.

        Examples
        --------
        >>> from bitrank.core.codes import pack
        >>> Index(pack([[1, 0], [0, 1]]), ids=[7, 3]).largest_id
        7
        """
        return self._snapshot.largest

    def holds(self, ids: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Say for each number of a list whether it is the id of a row.

        Examples
        --------
        >>> from bitrank.core.codes import pack
        >>> Index(pack([[1, 0], [0, 1]]), ids=[7, 3]).holds([3, 4, 7])
        array([ True, False,  True])
        """
        array = np.asarray(ids)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ValueError(f"ids must be a vector of ints, got {array.dtype} of shape {array.shape}")
        return self._snapshot.find(array.astype(np.int64)) >= 0

    def copy(self) -> Index:
        """Return another index of the same rows and weights, at once; what changes in one does not change the other.

        Examples
        --------
        >>> from bitrank.core.codes import pack
        >>> index = Index(pack([[1, 0], [0, 1]]))
        >>> other = index.copy()
        >>> other.remove([0])
        >>> len(index), len(other)
        (2, 1)
        """
        other = self._of(self._snapshot, self._weights, self._mapped)
        other._origin, other._n_changes = self._origin, self._n_changes
        return other

    def __copy__(self) -> Index:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Index:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return self._of, (self._snapshot, self._weights)

    def __len__(self) -> int:
        return len(self._snapshot)

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids.tolist())

    def __repr__(self) -> str:
        weighted = "weighted" if self._weights is not None else "plain"
        scanned = f", {self.n_scanned} scanned" if self.n_scanned < self._n_bits else ""
        return f"Index({len(self)} codes of {self._n_bits} bits{scanned}, {weighted})"

    def add(self, codes: Codes, ids: npt.ArrayLike | None = None) -> None:
        """Add rows.

        Parameters
        ----------
        codes : uint8 array of shape (n, ceil(n_bits / 8))
        ids : int64 array of shape (n,), optional
            Not yet in the index; by default the numbers after the largest id.

        Examples
        --------
        >>> from bitrank.core.codes import pack
        >>> index = Index(n_bits=2)
        >>> index.add(pack([[1, 0], [0, 1]]))
        >>> list(index)
        [0, 1]
        """
        codes = check_codes(codes, self._n_bits)
        with self._writing:
            self._snapshot = self._snapshot.add(codes, self._snapshot.new_ids(len(codes), ids), self._weights)
            self._n_changes += len(codes)

    def remove(self, ids: npt.ArrayLike) -> None:
        """Remove rows by id; an unknown id is a ValueError, and nothing is removed.

        Examples
        --------
        >>> from bitrank.core.codes import pack
        >>> index = Index(pack([[1, 0], [0, 1]]))
        >>> index.remove([0])
        >>> list(index)
        [1]
        """
        with self._writing:
            checked = check_ids(ids)
            self._snapshot = self._snapshot.remove(checked)
            self._n_changes += len(checked)

    def update(self, ids: npt.ArrayLike, codes: Codes) -> None:
        """Replace the codes of existing rows, for all of them at once.

        Examples
        --------
        >>> from bitrank.core.codes import pack
        >>> index = Index(pack([[1, 0], [0, 1]]))
        >>> index.update([0], pack([[1, 1]]))
        >>> index.distances(pack([[1, 1]]), [0])
        array([[0.]], dtype=float32)
        """
        codes = check_codes(codes, self._n_bits)
        checked = check_ids(ids, len(codes))
        with self._writing:
            self._snapshot = self._snapshot.remove(checked).add(codes, checked, self._weights)
            self._n_changes += 2 * len(checked)

    def codes(self, ids: npt.ArrayLike) -> Codes:
        """Codes of the rows of the list `ids`, in its order; an unknown id is a ValueError.

        Examples
        --------
        >>> from bitrank.core.codes import pack
        >>> Index(pack([[1, 0], [0, 1]]), ids=[7, 3]).codes([3])
        array([[64]], dtype=uint8)
        """
        return self._snapshot.codes(check_ids(ids))

    def last_bytes(self, ids: Ids, n: int) -> Codes:
        """Last bytes of codes, where these are not scanned: of ids of any shape, zeros for -1.

        Examples
        --------
        >>> Index(np.uint8([[1, 2, 3], [4, 5, 6]]), n_scanned=8).last_bytes(np.array([[1, 1, -1]]), 2)
        array([[[5, 6],
                [5, 6],
                [0, 0]]], dtype=uint8)
        """
        if n > n_bytes(self._n_bits) - n_bytes(self.n_scanned):
            raise ValueError(f"n must be at most the bytes that are not scanned, got {n}")
        return self._snapshot.last_bytes(ids, n)

    def sample(self, n: int) -> Codes:
        """Draw n codes, or all where there are fewer: the same ones while the rows stay the same.

        Examples
        --------
        >>> from bitrank.core.codes import pack
        >>> Index(pack([[1, 0], [0, 1]])).sample(10)
        array([[128],
               [ 64]], dtype=uint8)
        """
        snapshot = self._snapshot
        ids = snapshot.ids()
        return snapshot.codes(ids[sample_rows(len(ids), check_count("n", n, 1))])

    def search(
        self,
        queries: AnyQueries,
        k: int,
        weights: npt.ArrayLike | None = None,
        *,
        method: Method = "exact",
        candidates: int | None = None,
        shortlist: int | None = None,
        similarity: Any = None,
        recall: float | None = None,
        calibration: Calibration | None = None,
        estimates: Estimates | None = None,
        filter: npt.ArrayLike | None = None,  # noqa: A002
        threads: int | None = None,
    ) -> Results:
        """Find the k nearest rows of each query.

        With `n_scanned`, find the rows nearest by their heads, exactly, and of these, the shortlist, the k nearest by
        whole codes.

        Parameters
        ----------
        queries : Queries, uint8 array of shape (n_queries, ceil(n_bits / 8)), or float array (n_queries, n_bits)
            What a ranker's `queries_for` returns; packed codes; or reals, whose signs are the code and whose
            magnitudes multiply the weights (the asymmetric distance). With `n_scanned` also a tuple of two, the first
            over the scanned bits, which chooses the shortlist, and the second over all, which ranks it: without one,
            None, the head ranks alone.
        k : int
        weights : float array of shape (n_bits,) or (n_queries, n_bits), optional
            Those of the index by default; must be None for `Queries`, which have their own.
        method : {"exact", "rerank"}
            "exact" ranks all rows by weight. "rerank" ranks the `candidates` nearest by plain Hamming distance only;
            it is neither exact nor faster here, and exists to compare with engines that have no other method.
        candidates : int, optional
            Rows that "rerank" fetches per query; ten times k by default, and at least 1000.
        shortlist : int, optional
            Rows whose rest is read, at least k; four times k by default, and at least 100. With `n_scanned` only.
        similarity : "tanimoto" or ("tversky", alpha, beta), optional
            Rank by c / (c + alpha·d + beta·e), exactly: c ones that query and row share, d of the query alone, e of the
            row alone; both factors are 1 for Tanimoto. Queries are codes; distances are one minus the similarity.
        recall : float, optional
            Read only the cells that hold this share of the k nearest rows in the mean over queries, from 0.8 to 0.999;
            by default all are read, and search is exact. Needs `make_cells`.
        calibration : Calibration, optional
            What `calibrate` measured on queries like these. Without it, and with a filter, more is read.
        estimates : Estimates, optional
            Order the k nearest by these, which take the place of their distances. For queries in two parts.
        filter : bool array of shape (len(index),) or int array, optional
            Rows to consider: a mask in the order of `ids`, or a list of ids.
        threads : int, optional
            All cores by default.

        Returns
        -------
        results : named tuple of arrays ``(ids, distances)`` of shape (n_queries, k)
            Nearest first, ties by id, padded with -1 and inf where there are fewer than k rows.

        Examples
        --------
        >>> from bitrank.core.codes import pack
        >>> index = Index(pack([[1, 0, 1], [1, 1, 0], [0, 0, 1]]), n_bits=3)
        >>> index.search(pack([[1, 0, 0]]), k=2).ids
        array([[0, 1]])
        >>> index.search(pack([[1, 0, 0]]), k=2, weights=[0, 2, 1]).ids
        array([[0, 2]])
        """
        k = check_count("k", k, 1)
        n_candidates = check_method(method, k, candidates)
        check_recall(recall)
        snapshot = self._snapshot
        if similarity is not None:
            if recall is not None:
                raise ValueError(f"recall must be None for a similarity, got {recall!r}")
            tversky = check_similarity(similarity)
            codes = check_plain(queries, self._n_bits, weights, n_candidates, shortlist)
            if self.n_scanned < self._n_bits:
                raise ValueError("similarity must be None for an index that scans some bits only, got one")
            return search_similar(snapshot, codes, k, tversky, filter, threads)
        head, whole = self._check_parts(queries, weights, self.n_scanned < self._n_bits)
        if (
            shortlist is not None
            and whole is not None
            and (head is whole or check_count("shortlist", shortlist, 1) < k)
        ):
            wanted = "None for an index that scans all bits" if head is whole else f"at least k, {k}"
            raise ValueError(f"shortlist must be {wanted}, got {shortlist!r}")
        n_kept = max(SHORTLIST, SHORTLIST_PER_RESULT * k) if shortlist is None else shortlist
        if n_candidates is not None and whole is not None:
            head, n_kept = (head[0], np.ones((1, self.n_scanned), np.float32)), n_candidates
            if recall is not None:
                raise ValueError(f'recall must be None for the method "rerank", got {recall!r}')

        if estimates is not None and (whole is None or head is whole or len(estimates.terms) != len(whole[0])):
            raise ValueError("estimates must be None but for as many queries in two parts, got some")

        def nearest_rows(
            head: Asked, whole: Asked | None, chosen: Chosen | None = None, order: Estimates | None = estimates
        ) -> Results:
            if whole is None or (head is whole and n_candidates is None):
                return snapshot.search(*head, k, filter, threads, chosen)
            return snapshot.search_whole(head, whole, n_kept, k, filter, threads, chosen, order)

        if recall is None:
            return nearest_rows(head, whole)
        chosen = self._choose(snapshot, head, k, recall, calibration, filter is None, threads)
        if chosen is None:
            results = ReadResults(*nearest_rows(head, whole))
            results.share = np.ones(len(results.ids))
            return results
        out = nearest_rows(head, whole, chosen)
        short = (out.ids >= 0).sum(axis=1) < (k if calibration is None else k // calibration.ks[0])
        if short.any():  # too few of the rows that were read are wanted
            part = _part(head, short)
            order = None if estimates is None else estimates._replace(terms=estimates.terms[short])
            rest = part if head is whole else None if whole is None else _part(whole, short)
            again = nearest_rows(part, rest, None, order)
            out.ids[short], out.distances[short] = again
            chosen[3][short] = snapshot.ranking().n_blocks
        results = ReadResults(*out)
        results.share = chosen[3] / snapshot.ranking().n_blocks
        return results

    def make_cells(self, *, axes: Axes | None = None, random_state: int = 0) -> None:
        """Order rows by cells, sets of similar codes that a search with `recall` reads or leaves out.

        Exact search stays exact. Rows that are added join the nearest cells. Rows are held in memory afterwards.

        Parameters
        ----------
        axes : Axes, optional
            What the bits stand for, where some are those of one number; by default each bit is a number of its own.
        random_state : int

        Examples
        --------
        >>> codes = np.random.default_rng(0).integers(0, 256, (2000, 8), dtype=np.uint8)
        >>> index = Index(codes)
        >>> index.make_cells()
        >>> index.search(codes[:3], k=1, recall=0.9).ids
        array([[0],
               [1],
               [2]])
        """
        with self._writing:
            codes, ids = self._snapshot.export()
            if len(codes) < LANES:
                raise ValueError(f"the index must hold at least {LANES} rows to make cells of, got {len(codes)}")
            rows = sample_rows(len(codes), rows_to_fit(len(codes)))
            cells = learn_cells(codes[rows], self._n_bits, self.n_scanned, len(codes), axes, random_state)
            self._snapshot = Snapshot(self._n_bits, self._snapshot.order, cells=cells).add(codes, ids, None)
            self._mapped, self._calibration = False, None

    @property
    def has_cells(self) -> bool:
        """Whether `search` takes `recall`.

        Examples
        --------
        >>> Index(n_bits=8).has_cells
        False
        """
        return self._snapshot.cells is not None

    def calibrate(
        self,
        queries: AnyQueries | None = None,
        weights: npt.ArrayLike | None = None,
        *,
        ids: npt.ArrayLike | None = None,
        searches: Searches | None = None,
        order: Callable[[Ids], npt.NDArray[Any]] | None = None,
        threads: int | None = None,
    ) -> Calibration:
        """Measure what queries like these must read for each promised recall; pass it to `search`.

        Parameters
        ----------
        queries : as in `search`
            About a thousand; by default rows of the index, with a margin.
        weights : as in `search`
        ids : int array of shape (n_queries,), optional
            The rows that the queries were made of, which they do not find.
        searches : Searches, optional
            What counts of searches whose shortlist is ordered by something else than whole codes.
        order : callable, optional
            What their shortlist is ordered by, for ids of shape (n_queries, n_rows); inf for -1.

        Examples
        --------
        >>> codes = np.random.default_rng(0).integers(0, 256, (2000, 8), dtype=np.uint8)
        >>> index = Index(codes)
        >>> index.make_cells()
        >>> index.calibrate().on
        'items'
        """
        snapshot = self._snapshot
        if snapshot.cells is None:
            raise ValueError("the index must have cells to be calibrated: call make_cells, got none")
        own = None if ids is None else check_ids(ids)
        if queries is None:
            own = snapshot.ids()
            own = own[sample_rows(len(own), self.n_to_calibrate)]
            queries = snapshot.codes(own)
        head, whole = self._check_parts(queries, weights, self.n_scanned < self._n_bits)
        if own is not None and len(own) != len(head[0]):
            raise ValueError(f"ids must have one value for each of the {len(head[0])} queries, got {len(own)}")
        if own is None and order is None and len(head[0]) > self.n_to_calibrate:
            kept = np.zeros(len(head[0]), bool)
            kept[sample_rows(len(kept), self.n_to_calibrate)] = True
            in_parts = whole is not head
            head, whole = _part(head, kept), whole and _part(whole, kept)
            whole = whole if in_parts else head
        if order is None and whole is not None and head is not whole:
            codes, rows = whole
            order = lambda ids: snapshot.score(codes, rows, _numbers(snapshot, ids), threads)  # noqa: E731
            searches = Searches(kept=tuple(max(SHORTLIST, SHORTLIST_PER_RESULT * k) for k in KS))
        return snapshot.calibrate(head, order, searches or Searches(), own, threads)

    @property
    def n_to_calibrate(self) -> int:
        """How many queries `calibrate` takes: a thousand, fewer of many millions of rows."""
        return max(200, min(MOST_QUERIES, 20_000_000 * LANES // max(1, len(self))))

    def search_radius(
        self,
        queries: AnyQueries,
        radius: float,
        weights: npt.ArrayLike | None = None,
        *,
        filter: npt.ArrayLike | None = None,  # noqa: A002
        threads: int | None = None,
    ) -> Results:
        """Find all rows within a distance of each query, padded to the longest list.

        Examples
        --------
        >>> from bitrank.core.codes import pack
        >>> index = Index(pack([[1, 0, 1], [1, 1, 0], [0, 0, 1]]), n_bits=3)
        >>> index.search_radius(pack([[1, 0, 0], [1, 1, 0]]), radius=1).ids
        array([[ 0,  1],
               [ 1, -1]])
        """
        limit = check_radius(radius)
        snapshot = self._snapshot
        codes, rows = self._check_queries(queries, weights)
        if self.n_scanned == self._n_bits:
            return snapshot.search_radius(codes, rows, limit, filter, threads)
        # No head is farther than the whole code: of their sums in float32 neither.
        ids = snapshot.search_radius(*self._head_of(codes, rows), limit, filter, threads).ids
        distances = snapshot.score(codes, rows, _numbers(snapshot, ids), threads)
        out = ids.copy(), distances.copy()
        out[0][distances > limit], out[1][distances > limit] = -1, np.inf
        return nearest(*out, int((out[0] >= 0).sum(axis=1).max(initial=0)))

    def rerank(
        self,
        queries: AnyQueries,
        candidate_ids: npt.ArrayLike,
        k: int,
        weights: npt.ArrayLike | None = None,
        *,
        threads: int | None = None,
    ) -> Results:
        """Find the k nearest among candidates from elsewhere, such as a FAISS index or a database.

        Parameters
        ----------
        queries : as in `search`
        candidate_ids : int array of shape (n_queries, n_candidates)
            -1 and repeated ids are skipped; an id that is not in the index is a ValueError.
        k, weights, threads : as in `search`

        Examples
        --------
        >>> from bitrank.core.codes import pack
        >>> index = Index(pack([[1, 0, 1], [1, 1, 0], [0, 0, 1]]), n_bits=3, weights=[4, 2, 1])
        >>> index.rerank(pack([[1, 0, 0]]), [[2, 1]], k=2).ids
        array([[1, 2]])
        """
        k = check_count("k", k, 1)
        snapshot = self._snapshot
        codes, rows = self._check_queries(queries, weights)
        ids = np.asarray(candidate_ids)
        if ids.ndim != 2 or len(ids) != len(codes) or (ids.size and ids.dtype.kind not in "iu"):
            raise ValueError(
                f"candidate_ids must be an int matrix with one row for each of the {len(codes)} queries, "
                f"got {ids.dtype} of shape {ids.shape}"
            )
        ids = np.sort(ids.astype(np.int64), axis=1)
        ids[:, 1:][ids[:, 1:] == ids[:, :-1]] = -1
        return nearest(ids, snapshot.score(codes, rows, _numbers(snapshot, ids), threads), k)

    def distances(
        self,
        queries: AnyQueries,
        ids: npt.ArrayLike,
        weights: npt.ArrayLike | None = None,
        *,
        threads: int | None = None,
    ) -> npt.NDArray[np.float32]:
        """Compute the distance of every query to every row of the list `ids`, shape (n_queries, n_ids).

        A matrix of ids has a list for each query; distances to an id of -1 are infinite.

        Examples
        --------
        >>> from bitrank.core.codes import pack
        >>> index = Index(pack([[1, 0, 1], [1, 1, 0]]), n_bits=3, weights=[4, 2, 1])
        >>> index.distances(pack([[1, 0, 0]]), [1, 0])
        array([[2., 1.]], dtype=float32)
        """
        snapshot = self._snapshot
        codes, rows = self._check_queries(queries, weights)
        array = np.asarray(ids)
        if array.ndim == 2 and len(array) == len(codes) and array.dtype.kind in "iu":
            return snapshot.score(codes, rows, _numbers(snapshot, array.astype(np.int64)), threads)
        numbers = snapshot.numbers(check_ids(ids))
        return snapshot.score(codes, rows, np.tile(numbers, (len(codes), 1)), threads)

    def optimize(self, query_weights: npt.ArrayLike | None = None) -> None:
        """Sort all rows for the current weights, or for others, and drop removed ones, while searches continue.

        Parameters
        ----------
        query_weights : float array of shape (n_scanned,), optional
            As for the class.

        Examples
        --------
        >>> from bitrank.core.codes import pack
        >>> Index(pack([[1, 0], [0, 1]])).optimize()
        """
        with self._writing:
            codes, ids = self._snapshot.export()
            order = self._snapshot.order if query_weights is None else _order(self.n_scanned, query_weights)
            weights = self._weights if query_weights is None else None
            self._snapshot = Snapshot(self._n_bits, order, cells=self._snapshot.cells).add(codes, ids, weights)
            self._mapped = False

    def order_quality(self) -> float:
        """How well the order of the rows suits the weights, from 0 to 1; below 0.7 sorting again pays.

        It is the weight in the bits that the sort settles, as a share of what the best order would settle.

        Examples
        --------
        >>> from bitrank.core.codes import pack
        >>> Index(pack([[1, 0], [0, 1]])).order_quality()
        1.0
        """
        if self._weights is None or not len(self):
            return 1.0
        return order_quality(self._snapshot.order, self._weights[: self.n_scanned], len(self))

    def export(self) -> tuple[Codes, Ids]:
        """All codes, packed as they were added, and their ids, in no particular order.

        Examples
        --------
        >>> from bitrank.core.codes import pack
        >>> Index(pack([[1, 0], [0, 1]])).export()
        (array([[ 64],
               [128]], dtype=uint8), array([1, 0]))
        """
        return self._snapshot.export()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a folder; an older index there stays whole until the new one is complete.

        Examples
        --------
        >>> from bitrank.core.codes import pack
        >>> Index(pack([[1, 0], [0, 1]])).save("patches.index")
        >>> len(Index.load("patches.index"))
        2
        """
        storage.save(path, self._snapshot, self._weights)

    @classmethod
    def load(cls, path: str | os.PathLike[str], mmap: bool = True) -> Index:
        """Load an index that `save` wrote.

        Parameters
        ----------
        path : str or path
        mmap : bool
            Map the arrays into memory instead of reading them. A mapped index is sorted again by `optimize` only,
            which brings it into memory.

        Raises
        ------
        IndexFormatError
            If a file is missing, damaged, or of an unknown format.

        Examples
        --------
        >>> from bitrank.core.codes import pack
        >>> Index(pack([[1, 0], [0, 1]]), weights=[3, 1, 0, 0, 0, 0, 0, 0]).save("patches.index")
        >>> Index.load("patches.index").search(pack([[1, 1]]), k=1).distances
        array([[1.]], dtype=float32)
        """
        return cls._of(*storage.load(path, mmap), mapped=mmap)

    @classmethod
    def _of(cls, snapshot: Snapshot, weights: Weights | None, mapped: bool = False) -> Index:
        index = cls(n_bits=snapshot.n_bits, n_scanned=len(snapshot.order), weights=weights)
        index._snapshot, index._mapped = snapshot, mapped
        return index

    def _unlock(self) -> None:
        """Begin without a writer: a fork leaves the threads of the parent behind, but not their locks."""
        self._writing = threading.RLock()
        self._sorter: threading.Thread | None = None

    def _sort_if_poor(self) -> None:
        busy = self._sorter is not None and self._sorter.is_alive()
        if not busy and not self._mapped and not self.has_cells and self.order_quality() < POOR_ORDER:
            self._sorter = threading.Thread(target=self.optimize, name="bitrank-sort")
            self._sorter.start()

    def _choose(
        self,
        snapshot: Snapshot,
        head: Asked,
        k: int,
        recall: float,
        calibration: Calibration | None,
        all_wanted: bool,
        threads: int | None,
    ) -> Chosen | None:
        """Blocks to read: those of one rule for queries that were measured, of both for others, or None for all."""
        if snapshot.cells is None:
            raise ValueError(f"recall must be None for an index without cells (see make_cells), got {recall!r}")
        known = calibration is not None and calibration.known and all_wanted
        if calibration is None:
            if self._calibration is None:
                self._calibration = self.calibrate(threads=threads)
            calibration = self._calibration
        ranking = snapshot.ranking()
        if not (known or ranking.tells(*head)):
            return None
        reading = calibration.reading(recall, k, known)
        least = 1 + -(-k // (calibration.ks[0] * LANES))
        return ranking.choose(*head, reading, least, n_threads(threads))

    def _check_parts(self, queries: Any, weights: npt.ArrayLike | None, in_parts: bool) -> tuple[Asked, Asked | None]:
        """Heads of queries and whole ones: the same where all bits are scanned, None where the heads rank alone."""
        if in_parts and is_in_parts(queries):
            return check_parts(queries, weights, self._n_bits, self.n_scanned)
        whole = self._check_queries(queries, weights)
        return self._head_of(*whole) if in_parts else whole, whole

    def _head_of(self, codes: Codes, weights: Weights | None) -> Asked:
        """The part of queries that asks the scanned bits."""
        weights = None if weights is None else np.ascontiguousarray(np.atleast_2d(weights)[:, : self.n_scanned])
        return np.ascontiguousarray(codes[:, : self.n_scanned // 8]), weights

    def _check_queries(self, queries: AnyQueries, weights: npt.ArrayLike | None) -> tuple[Codes, Weights | None]:
        """Codes and rows of weights, or the weights of the index themselves, which have been checked."""
        if weights is None and not isinstance(queries, Queries):
            array = np.asarray(queries)
            if array.dtype == np.uint8:
                return check_codes(array, self._n_bits, name="queries"), self._weights
            weights = self._weights
        return check_queries(queries, weights, self._n_bits)


def _order(n_scanned: int, query_weights: npt.ArrayLike | None) -> Order:
    """Bits in the order of the weight that queries give them, or as they are."""
    if query_weights is None:
        return np.arange(n_scanned, dtype=np.uint16)
    weights = check_weights(query_weights, n_scanned)
    if weights.ndim != 1:
        raise ValueError(f"query_weights must be one vector of {n_scanned}, got shape {weights.shape}")
    return bit_order(weights)


def _part(asked: Asked, queries: npt.NDArray[np.bool_]) -> Asked:
    """Some of the queries."""
    codes, weights = asked
    per_query = weights is not None and weights.ndim == 2 and len(weights) == len(codes)
    return codes[queries], weights[queries] if per_query and weights is not None else weights


def _numbers(snapshot: Snapshot, ids: Ids) -> Ids:
    """Row numbers of ids, -1 for -1."""
    numbers = snapshot.find(ids.ravel()).reshape(ids.shape)
    unknown = (numbers < 0) & (ids != -1)
    if unknown.any():
        snapshot.numbers(ids[unknown])
    return numbers


def _unlock_all() -> None:
    for index in _alive:
        index._unlock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_all)
