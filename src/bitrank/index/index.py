"""`Index`: exact search by weighted Hamming distance over packed codes, with weights that may change at every query.

It stands at the end of the path: codes come from `hashing`, weights from a ranker, both as plain arrays.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.checks import check_codes, check_ids, check_queries, check_weights
from bitrank.codes import nearest
from bitrank.index import storage
from bitrank.index.rows import Rows
from bitrank.index.segments import order_quality
from bitrank.vocabulary import Codes, Ids, Queries, Results, Weights

# Below this quality of the order for new weights, a sort pays: see docs/search.md for the measurement.
POOR_ORDER = 0.7


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
        self._n_bits = n_bits if n_bits is not None else 8 * int(check_codes(codes).shape[1])
        self._writing = threading.RLock()
        self._rows = Rows(self._n_bits)
        self._mapped = False
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
        return self._rows.ids()

    def __len__(self) -> int:
        return len(self._rows)

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
            self._rows = self._rows.add(codes, self._rows.new_ids(len(codes), ids), self._weights)

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
            self._rows = self._rows.remove(check_ids(ids))

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
        checked = check_ids(ids, len(codes))
        with self._writing:
            self._rows = self._rows.remove(checked).add(codes, checked, self._weights)

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
        rows = self._rows
        codes, weights = self._check_queries(queries, weights)
        if candidates is None:
            return Results(*rows.search(codes, weights, k, np.inf, filter, threads)[:2])
        if candidates < 1:
            raise ValueError(f"candidates must be at least 1, got {candidates}")
        plain = np.ones((1, self._n_bits), np.float32)
        ids, _, numbers = rows.search(codes, plain, candidates, np.inf, filter, threads)
        return nearest(ids, rows.score(codes, weights, numbers, threads), k)

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
        codes, weights = self._check_queries(queries, weights)
        # Distances are float32: none lies between the radius and the largest float32 within it.
        limit = np.float32(radius)
        if float(limit) > radius:
            limit = np.nextafter(limit, np.float32(-np.inf))
        return Results(*self._rows.search(codes, weights, 0, float(limit), filter, threads)[:2])

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
        rows = self._rows
        codes, weights = self._check_queries(queries, weights)
        ids = np.asarray(candidate_ids)
        if ids.ndim != 2 or len(ids) != len(codes) or (ids.size and ids.dtype.kind not in "iu"):
            raise ValueError(
                f"candidate_ids must be an int matrix with one row for each of the {len(codes)} queries, "
                f"got {ids.dtype} of shape {ids.shape}"
            )
        ids = np.sort(ids.astype(np.int64), axis=1)
        ids[:, 1:][ids[:, 1:] == ids[:, :-1]] = -1
        numbers = np.full(ids.shape, -1, np.int64)
        numbers[ids != -1] = rows.numbers(ids[ids != -1])
        return nearest(ids, rows.score(codes, weights, numbers, threads), k)

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
        rows = self._rows
        codes, weights = self._check_queries(queries, weights)
        numbers = rows.numbers(check_ids(ids))
        return rows.score(codes, weights, np.tile(numbers, (len(codes), 1)), threads)

    def codes(self, ids: npt.ArrayLike) -> Codes:
        """Codes of the rows of the list `ids`, in its order; an id that is not there is a ValueError.

        Examples
        --------
        >>> from bitrank.codes import pack
        >>> Index(pack([[1, 0], [0, 1]]), ids=[7, 3]).codes([3])
        array([[64]], dtype=uint8)
        """
        return self._rows.codes(check_ids(ids))

    def optimize(self) -> None:
        """Sort all rows for the present weights, and drop what was removed. Searches go on meanwhile.

        Examples
        --------
        >>> from bitrank.codes import pack
        >>> Index(pack([[1, 0], [0, 1]])).optimize()
        """
        with self._writing:
            codes, ids = self._rows.export()
            self._rows = Rows(self._n_bits).add(codes, ids, self._weights)
            self._mapped = False

    def order_quality(self) -> float:
        """How well the present order of the rows suits the weights, from 0 to 1; below 0.7 a new sort pays.

        It is the weight in the bits that the sort settles, as a share of what the best order would settle.

        Examples
        --------
        >>> from bitrank.codes import pack
        >>> Index(pack([[1, 0], [0, 1]])).order_quality()
        1.0
        """
        if self._weights is None or not len(self):
            return 1.0
        return order_quality(self._rows.order, self._weights, len(self))

    def export(self) -> tuple[Codes, Ids]:
        """All codes, packed as they came, and their ids, in no particular order.

        Examples
        --------
        >>> from bitrank.codes import pack
        >>> Index(pack([[1, 0], [0, 1]])).export()
        (array([[ 64],
               [128]], dtype=uint8), array([1, 0]))
        """
        return self._rows.export()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a folder; one that is there stays whole until the new one is complete.

        Examples
        --------
        >>> from bitrank.codes import pack
        >>> Index(pack([[1, 0], [0, 1]])).save("patches.index")
        >>> len(Index.load("patches.index"))
        2
        """
        storage.save(path, self._rows, self._weights)

    @classmethod
    def load(cls, path: str | os.PathLike[str], mmap: bool = True) -> Index:
        """Open an index that `save` wrote.

        Parameters
        ----------
        path : str or path
        mmap : bool
            Leave the arrays in their files, mapped into memory; or read them. A mapped index is only sorted anew
            when `optimize` is called, since that brings it into memory.

        Raises
        ------
        IndexFormatError
            When a file is missing, damaged, or of a format that this version does not know.

        Examples
        --------
        >>> from bitrank.codes import pack
        >>> Index(pack([[1, 0], [0, 1]]), weights=[3, 1, 0, 0, 0, 0, 0, 0]).save("patches.index")
        >>> Index.load("patches.index").search(pack([[1, 1]]), k=1).distances
        array([[1.]], dtype=float32)
        """
        rows, weights = storage.load(path, mmap)
        index = cls(n_bits=rows.n_bits)
        index._rows, index._weights, index._mapped = rows, weights, mmap
        return index

    def _sort_if_poor(self) -> None:
        busy = self._sorter is not None and self._sorter.is_alive()
        if not busy and not self._mapped and self.order_quality() < POOR_ORDER:
            self._sorter = threading.Thread(target=self.optimize, name="bitrank-sort")
            self._sorter.start()

    def _check_queries(self, queries: Any, weights: npt.ArrayLike | None) -> tuple[Codes, Weights]:
        if weights is None and not isinstance(queries, Queries):
            weights = self._weights
        return check_queries(queries, weights, self._n_bits)

    def _one_vector(self, weights: npt.ArrayLike | None) -> Weights | None:
        if weights is None:
            return None
        array = check_weights(weights, self._n_bits).copy()
        if array.ndim != 1:
            raise ValueError(f"weights of an index must be one vector of {self._n_bits}, got shape {array.shape}")
        array.flags.writeable = False
        return array
