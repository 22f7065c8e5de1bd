"""`GpuIndex`: exact search by weighted Hamming distance over packed codes on a GPU."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_count, check_ids, check_index_weights, check_method, check_queries, check_radius
from bitrank.core.codes import sample_rows
from bitrank.core.types import AnyQueries, Codes, Ids, Method, Queries, Results, Weights
from bitrank.gpu import search
from bitrank.gpu.cuda import Device, DeviceError
from bitrank.gpu.store import Store
from bitrank.index import Index

MAX_BITS = 1024


class GpuIndex:
    """Exact top-k search by weighted Hamming distance on a GPU: ids and distances of `bitrank.Index`, to the last bit.

    All methods may be called from several threads at once; a search sees the rows of the moment it began.

    Parameters
    ----------
    codes : uint8 array of shape (n, ceil(n_bits / 8)), optional
        Packed codes: a NumPy array, or an array on the device (CuPy, or any with DLPack), which is held as it is and
        must not be changed afterwards.
    n_bits : int, optional
        1 to 1024; eight per byte of `codes` by default.
    ids : int64 array of shape (n,), optional
        Unique and not negative; 0 to n - 1 by default, which takes no memory.
    weights : float array of shape (n_bits,), optional
        Default weights of searches; None is plain Hamming distance.
    device : int
        Number of the GPU.
    memory : int, optional
        Bytes of device memory for codes and ids; by default all that is free, less what searches need.
    overflow : {"raise", "stream"}
        What to do with codes beyond that: a MemoryError that says how many fit; or keep them in pinned host memory and
        copy them to the device at every search.

    Examples
    --------
    >>> index = GpuIndex(np.uint8([[160], [192], [32]]), n_bits=3, ids=[7, 8, 9])
    >>> index.search(np.uint8([[128]]), k=2, weights=[4, 2, 1]).ids
    array([[7, 8]])
    """

    def __init__(
        self,
        codes: Any | None = None,
        *,
        n_bits: int | None = None,
        ids: npt.ArrayLike | None = None,
        weights: npt.ArrayLike | None = None,
        device: int = 0,
        memory: int | None = None,
        overflow: Literal["raise", "stream"] = "raise",
    ) -> None:
        if codes is None and n_bits is None:
            raise ValueError("n_bits must be an int for an index without codes, got None")
        if codes is None and ids is not None:
            raise ValueError("ids must be None for an index without codes, got ids")
        if overflow not in ("raise", "stream"):
            raise ValueError(f'overflow must be "raise" or "stream", got {overflow!r}')
        self._n_bits = n_bits if n_bits is not None else 8 * _width(codes)
        if not 0 < self._n_bits <= MAX_BITS:
            raise ValueError(f"n_bits must be from 1 to {MAX_BITS}, got {self._n_bits}")
        self._weights = check_index_weights(weights, self._n_bits)
        self._writing = threading.RLock()
        self._failure: str | None = None
        self._device = Device(device)
        self._store = Store(self._device, self._n_bits, memory, stream=overflow == "stream")
        if codes is not None:
            self.add(codes, ids)

    @classmethod
    def from_index(cls, index: Index, **options: Any) -> GpuIndex:
        """Copy rows and weights of a `bitrank.Index` piece by piece: a mapped one is not brought into host memory.

        Options are `device`, `memory` and `overflow`.
        """
        out = cls(n_bits=index.n_bits, weights=index.weights, **options)
        with out._writing, out._work():
            out._store.copy(index)
        return out

    @classmethod
    def load(cls, path: str | os.PathLike[str], **options: Any) -> GpuIndex:
        """Copy rows and weights of an index that `bitrank.Index.save` wrote; options as in `from_index`."""
        return cls.from_index(Index.load(path), **options)

    @property
    def n_bits(self) -> int:
        """Bits per code."""
        return self._n_bits

    @property
    def weights(self) -> Weights | None:
        """Default weights of searches; new ones take effect at the next search."""
        return self._weights

    @weights.setter
    def weights(self, weights: npt.ArrayLike | None) -> None:
        self._weights = check_index_weights(weights, self._n_bits)

    @property
    def ids(self) -> Ids:
        """All ids, ascending."""
        with self._work():
            return self._store.ids()

    def __len__(self) -> int:
        return sum(chunk.n_live for chunk in self._store.chunks)

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids.tolist())

    def __repr__(self) -> str:
        weighted = "weighted" if self._weights is not None else "plain"
        return f"GpuIndex({len(self)} codes of {self._n_bits} bits, {weighted}, device {self._device.number})"

    def __enter__(self) -> GpuIndex:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the device's memory back; also after a failure of CUDA. The index answers nothing more."""
        with self._writing:
            self._store.chunks = ()
            self._failure = self._failure or "the index is closed"

    def add(self, codes: Any, ids: npt.ArrayLike | None = None) -> None:
        """Add rows, all or none.

        Parameters
        ----------
        codes : as for the class
        ids : int64 array of shape (n,), optional
            Not yet in the index; by default those after the largest.

        Raises
        ------
        MemoryError
            When codes do not fit on the device; it says how many do.
        """
        with self._writing, self._work():
            self._store.add(codes, ids)

    def remove(self, ids: npt.ArrayLike) -> None:
        """Remove rows by id; an id that is not there is a ValueError, and nothing is removed."""
        with self._writing, self._work():
            self._store.remove(check_ids(ids))

    def update(self, ids: npt.ArrayLike, codes: Any) -> None:
        """Replace the codes of existing rows, for all of them at once."""
        with self._writing, self._work():
            self._store.update(check_ids(ids), codes)

    def codes(self, ids: npt.ArrayLike) -> Codes:
        """Codes of the rows of the list `ids`, in its order; an unknown id is a ValueError."""
        with self._work():
            return self._store.codes(check_ids(ids))

    def sample(self, n: int) -> Codes:
        """Draw n codes, or all where there are fewer: those that an `Index` of the same rows draws."""
        n = check_count("n", n, 1)
        with self._work():
            ids = self._store.ids()
            return self._store.codes(ids[sample_rows(len(ids), n)])

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
        """Find the k nearest rows of each query; arguments and results are those of `bitrank.Index.search`.

        `threads` has no effect.
        """
        k = check_count("k", k, 1)
        n_candidates = check_method(method, k, candidates)
        codes, rows = self._check_queries(queries, weights)
        with self._work():
            chunks = self._store.wanted(filter)
            return search.nearest(self._device, chunks, codes, rows, k, n_candidates)

    def search_radius(
        self,
        queries: AnyQueries,
        radius: float,
        weights: npt.ArrayLike | None = None,
        *,
        filter: npt.ArrayLike | None = None,  # noqa: A002
        threads: int | None = None,
    ) -> Results:
        """Find all rows within a distance of each query; arguments and results are those of `bitrank.Index`.

        `threads` has no effect.
        """
        limit = np.float32(check_radius(radius))
        codes, rows = self._check_queries(queries, weights)
        with self._work():
            chunks = self._store.wanted(filter)
            return search.within(self._device, chunks, codes, rows, limit)

    @contextmanager
    def _work(self) -> Iterator[None]:
        """Work on the device; a failure of CUDA breaks the index."""
        if self._failure is not None:
            raise DeviceError(self._failure)
        try:
            with self._device.work():
                yield
        except DeviceError as error:
            self._failure = f"the index is broken and can only be closed: {error}"
            raise DeviceError(self._failure) from error

    def _check_queries(self, queries: Any, weights: npt.ArrayLike | None) -> tuple[Codes, Weights]:
        if weights is None and not isinstance(queries, Queries):
            weights = self._weights
        return check_queries(queries, weights, self._n_bits)


def _width(codes: Any) -> int:
    """Bytes of a code, of an array on the host or on a device."""
    shape = tuple(codes.shape) if hasattr(codes, "shape") else np.shape(codes)
    if len(shape) != 2 or not shape[1]:
        raise ValueError(f"codes must be a packed uint8 matrix with at least one byte per row, got shape {shape}")
    return int(shape[1])
