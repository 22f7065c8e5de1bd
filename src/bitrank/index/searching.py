"""`Searching`: the queries of an index against its snapshot: nearest rows, rows in a radius, re-ranking, distances."""

from __future__ import annotations

from numbers import Real

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_codes, check_count, check_ids, check_method, check_queries
from bitrank.core.codes import nearest
from bitrank.core.types import AnyQueries, Codes, Method, Queries, Results, Weights
from bitrank.index.snapshot import Snapshot


class Searching:
    """Queries by weighted Hamming distance; every call sees the rows and the weights of one moment."""

    _n_bits: int
    _snapshot: Snapshot
    _weights: Weights | None

    def search(
        self,
        queries: AnyQueries,
        k: int,
        weights: npt.ArrayLike | None = None,
        *,
        method: Method = "exact",
        candidates: int | None = None,
        filter: npt.ArrayLike | None = None,  # noqa: A002
        threads: int | None = None,
    ) -> Results:
        """Find the k nearest rows of each query.

        Parameters
        ----------
        queries : Queries, uint8 array of shape (n_queries, ceil(n_bits / 8)), or float array (n_queries, n_bits)
            What a ranker's `queries_for` returns; packed codes; or reals, whose signs are the code and whose
            magnitudes multiply the weights (the asymmetric distance).
        k : int
        weights : float array of shape (n_bits,) or (n_queries, n_bits), optional
            Those of the index by default; must be None for `Queries`, which have their own.
        method : {"exact", "rerank"}
            "exact" ranks all rows by weight. "rerank" ranks the `candidates` nearest by plain Hamming distance only;
            it is neither exact nor faster here, and exists to compare with engines that have no other method.
        candidates : int, optional
            Rows that "rerank" fetches per query; ten times k by default, and at least 1000.
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
        >>> from bitrank import Index
        >>> from bitrank.core.codes import pack
        >>> index = Index(pack([[1, 0, 1], [1, 1, 0], [0, 0, 1]]), n_bits=3)
        >>> index.search(pack([[1, 0, 0]]), k=2).ids
        array([[0, 1]])
        >>> index.search(pack([[1, 0, 0]]), k=2, weights=[0, 2, 1]).ids
        array([[0, 2]])
        """
        k = check_count("k", k, 1)
        n_candidates = check_method(method, k, candidates)
        snapshot = self._snapshot
        codes, rows = self._check_queries(queries, weights)
        if n_candidates is None:
            return Results(*snapshot.search(codes, rows, k, filter, threads))
        plain = np.ones((1, self._n_bits), np.float32)
        ids, numbers = snapshot.search_numbers(codes, plain, n_candidates, filter, threads)
        return nearest(ids, snapshot.score(codes, rows, numbers, threads), k)

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
        >>> from bitrank import Index
        >>> from bitrank.core.codes import pack
        >>> index = Index(pack([[1, 0, 1], [1, 1, 0], [0, 0, 1]]), n_bits=3)
        >>> index.search_radius(pack([[1, 0, 0], [1, 1, 0]]), radius=1).ids
        array([[ 0,  1],
               [ 1, -1]])
        """
        if not isinstance(radius, Real) or np.isnan(radius):
            raise ValueError(f"radius must be a number, got {radius!r}")
        codes, rows = self._check_queries(queries, weights)
        # Distances are float32: none lies between the radius and the largest float32 within it.
        limit = np.float32(radius)
        if float(limit) > radius:
            limit = np.nextafter(limit, np.float32(-np.inf))
        return Results(*self._snapshot.search_radius(codes, rows, float(limit), filter, threads))

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
        >>> from bitrank import Index
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
        numbers = np.full(ids.shape, -1, np.int64)
        numbers[ids != -1] = snapshot.numbers(ids[ids != -1])
        return nearest(ids, snapshot.score(codes, rows, numbers, threads), k)

    def distances(
        self,
        queries: AnyQueries,
        ids: npt.ArrayLike,
        weights: npt.ArrayLike | None = None,
        *,
        threads: int | None = None,
    ) -> npt.NDArray[np.float32]:
        """Compute the distance of every query to every row of the list `ids`, shape (n_queries, n_ids).

        Examples
        --------
        >>> from bitrank import Index
        >>> from bitrank.core.codes import pack
        >>> index = Index(pack([[1, 0, 1], [1, 1, 0]]), n_bits=3, weights=[4, 2, 1])
        >>> index.distances(pack([[1, 0, 0]]), [1, 0])
        array([[2., 1.]], dtype=float32)
        """
        snapshot = self._snapshot
        codes, rows = self._check_queries(queries, weights)
        numbers = snapshot.numbers(check_ids(ids))
        return snapshot.score(codes, rows, np.tile(numbers, (len(codes), 1)), threads)

    def _check_queries(self, queries: AnyQueries, weights: npt.ArrayLike | None) -> tuple[Codes, Weights | None]:
        """Codes and rows of weights, or the weights of the index themselves, which have been checked."""
        if weights is None and not isinstance(queries, Queries):
            array = np.asarray(queries)
            if array.dtype == np.uint8:
                return check_codes(array, self._n_bits, name="queries"), self._weights
            weights = self._weights
        return check_queries(queries, weights, self._n_bits)
