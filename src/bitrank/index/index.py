"""`Index`: exact search by weighted Hamming distance over packed codes, with weights that may change at every query."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from numbers import Integral

import numpy.typing as npt

from bitrank.core.checks import check_any_rows, check_codes, check_count, check_ids, check_index_weights
from bitrank.core.codes import sample_rows
from bitrank.core.types import Codes, Ids, Weights
from bitrank.index import storage
from bitrank.index.searching import Searching
from bitrank.index.segments import order_quality
from bitrank.index.snapshot import Snapshot

# Sort the rows again when new weights bring the order's quality below this: docs/search.md has the measurement.
POOR_ORDER = 0.7


class Index(Searching):
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

    Examples
    --------
    >>> from bitrank.core.codes import pack
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
            raise ValueError("n_bits must be an int for an index without codes, got None")
        if codes is None and ids is not None:
            raise ValueError("ids must be None for an index without codes, got ids")
        if n_bits is not None and not (isinstance(n_bits, Integral) and 0 < n_bits < 1 << 16):
            raise ValueError(f"n_bits must be from 1 to 65535, got {n_bits!r}")
        codes, self._n_bits = (None, int(n_bits or 0)) if codes is None else check_any_rows(codes, n_bits)
        self._writing = threading.RLock()
        self._snapshot = Snapshot(self._n_bits)
        self._mapped = False
        self._weights = check_index_weights(weights, self._n_bits)
        self._sorter: threading.Thread | None = None
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

    def __len__(self) -> int:
        return len(self._snapshot)

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
            self._snapshot = self._snapshot.remove(check_ids(ids))

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

    def codes(self, ids: npt.ArrayLike) -> Codes:
        """Codes of the rows of the list `ids`, in its order; an unknown id is a ValueError.

        Examples
        --------
        >>> from bitrank.core.codes import pack
        >>> Index(pack([[1, 0], [0, 1]]), ids=[7, 3]).codes([3])
        array([[64]], dtype=uint8)
        """
        return self._snapshot.codes(check_ids(ids))

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

    def optimize(self) -> None:
        """Sort all rows for the current weights and drop removed ones, while searches continue.

        Examples
        --------
        >>> from bitrank.core.codes import pack
        >>> Index(pack([[1, 0], [0, 1]])).optimize()
        """
        with self._writing:
            codes, ids = self._snapshot.export()
            self._snapshot = Snapshot(self._n_bits).add(codes, ids, self._weights)
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
        return order_quality(self._snapshot.order, self._weights, len(self))

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
        snapshot, weights = storage.load(path, mmap)
        index = cls(n_bits=snapshot.n_bits)
        index._snapshot, index._weights, index._mapped = snapshot, weights, mmap
        return index

    def _sort_if_poor(self) -> None:
        busy = self._sorter is not None and self._sorter.is_alive()
        if not busy and not self._mapped and self.order_quality() < POOR_ORDER:
            self._sorter = threading.Thread(target=self.optimize, name="bitrank-sort")
            self._sorter.start()
