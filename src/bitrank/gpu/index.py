"""`GpuIndex`: exact search by weighted Hamming distance over packed codes on a GPU."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import (
    check_codes,
    check_count,
    check_ids,
    check_index_weights,
    check_method,
    check_queries,
    check_radius,
)
from bitrank.core.codes import sample_rows
from bitrank.core.types import AnyQueries, Codes, Ids, Method, Queries, Results, Rows, Weights, n_bytes
from bitrank.gpu import search
from bitrank.gpu.chunks import (
    STREAMED_BYTES,
    Chunk,
    fill,
    first_of_run,
    flags,
    joined,
    live_ids,
    n_to_join,
    pieces_of,
    place,
    with_ids,
    words,
)
from bitrank.gpu.cuda import Device, DeviceError
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
        self._memory, self._stream = memory, overflow == "stream"
        self._chunks: tuple[Chunk, ...] = ()  # replaced whole: a search that holds it is not disturbed by writers
        if codes is not None:
            self.add(codes, ids)

    @classmethod
    def from_index(cls, index: Index, **options: Any) -> GpuIndex:
        """Copy rows and weights of a `bitrank.Index` piece by piece: a mapped one is not brought into host memory.

        Options are `device`, `memory` and `overflow`.
        """
        out = cls(n_bits=index.n_bits, weights=index.weights, **options)
        with out._writing, out._work():
            out._copy(index)
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
            return self._all_ids()

    def __len__(self) -> int:
        return sum(chunk.n_live for chunk in self._chunks)

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
            self._chunks = ()
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
            held = self._checked(codes)
            self._chunks = self._with(self._chunks, *held, self._new_ids(len(held[0]), ids))

    def remove(self, ids: npt.ArrayLike) -> None:
        """Remove rows by id; an id that is not there is a ValueError, and nothing is removed."""
        with self._writing, self._work():
            self._chunks = self._without(check_ids(ids))

    def update(self, ids: npt.ArrayLike, codes: Any) -> None:
        """Replace the codes of existing rows, for all of them at once."""
        with self._writing, self._work():
            checked, held = check_ids(ids), self._checked(codes)
            self._chunks = self._with(self._without(checked), *held, check_ids(checked, len(held[0])))

    def codes(self, ids: npt.ArrayLike) -> Codes:
        """Codes of the rows of the list `ids`, in its order; an unknown id is a ValueError."""
        with self._work():
            return self._codes_of(check_ids(ids))

    def sample(self, n: int) -> Codes:
        """Draw n codes, or all where there are fewer: those that an `Index` of the same rows draws."""
        n = check_count("n", n, 1)
        with self._work():
            ids = self._all_ids()
            return self._codes_of(ids[sample_rows(len(ids), n)])

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
            chunks = self._wanted(filter)
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
            chunks = self._wanted(filter)
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

    # Rows --------------------------------------------------------------------------------------------------------

    def _all_ids(self) -> Ids:
        parts = [live_ids(self._device, chunk) for chunk in self._chunks]
        return np.sort(np.concatenate([np.empty(0, np.int64), *parts]))

    def _codes_of(self, ids: Ids) -> Codes:
        """Codes of rows by ids, all of which must be there, in their order."""
        out = np.empty((len(ids), n_bytes(self._n_bits)), np.uint8)
        order = np.argsort(ids)
        for chunk, (marked, n_marked) in zip(self._chunks, self._marked(ids), strict=True):
            if n_marked:
                rows = np.flatnonzero(flags(self._device.download(marked), len(chunk)))
                stored = chunk.first_id + rows if chunk.ids is None else self._rows_of(chunk, chunk.ids, rows)
                places = order[np.searchsorted(ids, stored, sorter=order)]
                out[places] = self._rows_of(chunk, chunk.codes, rows)
        return out

    def _rows_of(self, chunk: Chunk, array: Any, rows: Rows) -> npt.NDArray[Any]:
        """Rows of an array of a chunk, on the host."""
        part = array[rows] if chunk.streamed else self._device.download(array[self._device.upload(rows)])
        return np.asarray(part)

    def _without(self, ids: Ids) -> tuple[Chunk, ...]:
        chunks = []
        for chunk, (marked, n_marked) in zip(self._chunks, self._marked(ids), strict=True):
            if n_marked == chunk.n_live:
                continue
            live = chunk.live if not n_marked else ~marked if chunk.live is None else chunk.live & ~marked
            chunks.append(replace(chunk, live=live, n_live=chunk.n_live - n_marked))
        return tuple(chunks)

    def _wanted(self, wanted: npt.ArrayLike | None) -> tuple[Chunk, ...]:
        """Chunks with only these rows live: a mask in the order of ids, or a list of ids; None wants all."""
        if wanted is None:
            return self._chunks
        array = np.asarray(wanted)
        if array.dtype == np.bool_:
            n = sum(chunk.n_live for chunk in self._chunks)
            if array.shape != (n,):
                raise ValueError(f"a filter mask must have one value for each of the {n} rows, got shape {array.shape}")
            if all(chunk.ids is None and chunk.live is None for chunk in self._chunks):
                return self._masked(array)
            array = self._all_ids()[array]
        elif array.ndim == 1:
            array = np.unique(array)
        marked = zip(self._chunks, self._marked(check_ids(array)), strict=True)
        return tuple(replace(chunk, live=live, n_live=n) for chunk, (live, n) in marked if n)

    def _copy(self, index: Index) -> None:
        """Take over the rows of an `Index`, piece by piece; ids 0 to n - 1 put rows in their order."""
        n, width = len(index), n_bytes(self._n_bits)
        if not n:
            return
        in_order = max(int(segment.ids.max()) for segment in index._snapshot.segments) == n - 1
        if not self._stream:
            self._check_room(n, width if in_order else width + 8)
        if in_order and self._n_fitting(width) >= n:
            codes = place(self._device, (n, width), np.uint8, streamed=False)
            for part, ids in pieces_of(index):
                codes[self._device.upload(ids)] = self._device.upload(part)
            self._chunks = (Chunk(codes, 0, None, None, n, streamed=False),)
            return
        chunks: tuple[Chunk, ...] = ()
        for part, ids in pieces_of(index):
            chunks = self._with(chunks, part, False, ids)
        self._chunks = chunks

    def _with(self, chunks: tuple[Chunk, ...], codes: Any, on_device: bool, ids: Ids) -> tuple[Chunk, ...]:
        """Chunks and more rows: those on the device as they are, of others as many there as fit."""
        if not len(codes):
            return chunks
        if on_device:
            if first_of_run(ids) is None:
                self._check_room(len(codes), 8, chunks)
            return self._appended(chunks, with_ids(self._device, codes, ids, streamed=False))
        row_bytes = codes.shape[1] + (8 if first_of_run(ids) is None else 0)
        if not self._stream:
            self._check_room(len(codes), row_bytes, chunks)
        n_resident = min(len(codes), self._n_fitting(row_bytes, chunks))
        step = max(1, STREAMED_BYTES // row_bytes)
        starts = [*([0] if n_resident else []), *range(n_resident, len(codes), step), len(codes)]
        for start, stop in itertools.pairwise(starts):
            streamed = start >= n_resident
            part = place(self._device, (stop - start, codes.shape[1]), np.uint8, streamed)
            fill(part, codes[start:stop])
            chunks = self._appended(chunks, with_ids(self._device, part, ids[start:stop], streamed))
        return chunks

    def _appended(self, chunks: tuple[Chunk, ...], chunk: Chunk) -> tuple[Chunk, ...]:
        """Chunks and one more, joined with small ones before it."""
        n_joined = n_to_join(chunks, chunk)
        if n_joined:
            chunk = joined(self._device, [*chunks[-n_joined:], chunk])
        return (*chunks[: len(chunks) - n_joined], chunk)

    def _n_fitting(self, row_bytes: int, chunks: tuple[Chunk, ...] | None = None) -> int:
        """Rows for which the device has room."""
        room = int(self._device.room())
        if self._memory is not None:
            chunks = self._chunks if chunks is None else chunks
            room = min(room, self._memory - sum(chunk.n_bytes for chunk in chunks if not chunk.streamed))
        return max(0, room // row_bytes)

    def _check_room(self, n: int, row_bytes: int, chunks: tuple[Chunk, ...] | None = None) -> None:
        n_fitting = self._n_fitting(row_bytes, chunks)
        if n > n_fitting:
            raise MemoryError(
                f"codes must fit in the memory of device {self._device.number}, which has room for {n_fitting} more "
                f"of {row_bytes} bytes, got {n}; overflow='stream' keeps the rest in host memory"
            )

    def _checked(self, codes: Any) -> tuple[Any, bool]:
        """Codes on the host, or where they are on the device, and whether they are: the checks of `check_codes`."""
        held = self._device.held(codes)
        if held is None:
            return check_codes(codes, self._n_bits), False
        codes, width = held, n_bytes(self._n_bits)
        if codes.dtype != np.uint8 or codes.ndim != 2:
            raise ValueError(f"codes must be a packed uint8 matrix, got {codes.dtype} of shape {codes.shape}")
        if codes.shape[1] != width:
            raise ValueError(f"codes of {self._n_bits} bits must be {width} bytes wide, got {codes.shape[1]}")
        spare = 8 * width - self._n_bits
        step = 1 << 26
        if spare and any(
            bool((codes[start : start + step, -1] & ((1 << spare) - 1)).any()) for start in range(0, len(codes), step)
        ):
            raise ValueError(f"codes of {self._n_bits} bits must have the last {spare} bits of a row zero, got ones")
        return codes, True

    def _new_ids(self, n: int, ids: npt.ArrayLike | None) -> Ids:
        """Ids for n more rows: those given, if none is taken, or those after the largest."""
        largest = max((self._largest_id(chunk) for chunk in self._chunks), default=-1)
        if ids is None:
            return np.arange(largest + 1, largest + 1 + n)
        array = check_ids(ids, n)
        if n and int(array.min()) <= largest:
            list_of_ids = self._device.upload(np.sort(array))
            if any(self._device.mark(chunk, list_of_ids)[1] for chunk in self._chunks):
                taken = np.intersect1d(array, self._all_ids())
                raise ValueError(f"ids must be new, got {taken[0]}, which is in the index")
        return array

    def _largest_id(self, chunk: Chunk) -> int:
        if chunk.ids is None and chunk.live is None:
            return chunk.first_id + len(chunk) - 1
        return int(live_ids(self._device, chunk).max())

    def _marked(self, ids: Ids) -> list[tuple[Any, int]]:
        """Per chunk, bits of the live rows with these ids, all of which must be there, and their number."""
        list_of_ids = self._device.upload(np.sort(ids))
        marked = [self._device.mark(chunk, list_of_ids) for chunk in self._chunks]
        if sum(n for _, n in marked) < len(ids):
            missing = ids[~np.isin(ids, self._all_ids())]
            raise ValueError(f"ids must be in the index, got {missing[0]}, which is not")
        return marked

    def _masked(self, mask: npt.NDArray[np.bool_]) -> tuple[Chunk, ...]:
        """Chunks whose ids all count up by one, with the rows of a mask."""
        out, start = [], 0
        for chunk in sorted(self._chunks, key=lambda chunk: chunk.first_id):
            part = mask[start : start + len(chunk)]
            start += len(chunk)
            if part.any():
                n_live = int(np.count_nonzero(part))
                out.append(replace(chunk, live=self._device.upload(words(part)), n_live=n_live))
        return tuple(out)


def _width(codes: Any) -> int:
    """Bytes of a code, of an array on the host or on a device."""
    shape = tuple(codes.shape) if hasattr(codes, "shape") else np.shape(codes)
    if len(shape) != 2 or not shape[1]:
        raise ValueError(f"codes must be a packed uint8 matrix with at least one byte per row, got shape {shape}")
    return int(shape[1])
