"""`Store`: the rows of a GPU index, and what adding, removing and filtering do to them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_codes, check_ids
from bitrank.core.types import Codes, Ids, Rows, n_bytes
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
from bitrank.index import Index


class Store:
    """Chunks on a device, and in pinned host memory what does not fit there.

    `chunks` is replaced whole: a search that holds it is not disturbed by writers, which take turns.
    """

    def __init__(self, device: Any, n_bits: int, memory: int | None, stream: bool) -> None:
        self.chunks: tuple[Chunk, ...] = ()
        self._device, self._n_bits, self._memory, self._stream = device, n_bits, memory, stream

    def ids(self) -> Ids:
        """All ids, ascending."""
        parts = [live_ids(self._device, chunk) for chunk in self.chunks]
        return np.sort(np.concatenate([np.empty(0, np.int64), *parts]))

    def add(self, codes: Any, ids: npt.ArrayLike | None) -> None:
        """Add rows of a host array, or of an array on the device, which is held as it is."""
        held = self._checked(codes)
        self.chunks = self._with(self.chunks, *held, self._new_ids(len(held[0]), ids))

    def update(self, ids: Ids, codes: Any) -> None:
        """Replace the codes of rows, all of which must be there."""
        held = self._checked(codes)
        self.chunks = self._with(self._without(ids), *held, check_ids(ids, len(held[0])))

    def remove(self, ids: Ids) -> None:
        """Remove rows by ids, all of which must be there."""
        self.chunks = self._without(ids)

    def codes(self, ids: Ids) -> Codes:
        """Codes of rows by ids, all of which must be there, in their order."""
        out = np.empty((len(ids), n_bytes(self._n_bits)), np.uint8)
        order = np.argsort(ids)
        for chunk, (marked, n_marked) in zip(self.chunks, self._marked(ids), strict=True):
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
        for chunk, (marked, n_marked) in zip(self.chunks, self._marked(ids), strict=True):
            if n_marked == chunk.n_live:
                continue
            live = chunk.live if not n_marked else ~marked if chunk.live is None else chunk.live & ~marked
            chunks.append(replace(chunk, live=live, n_live=chunk.n_live - n_marked))
        return tuple(chunks)

    def wanted(self, wanted: npt.ArrayLike | None) -> tuple[Chunk, ...]:
        """Chunks with only these rows live: a mask in the order of ids, or a list of ids; None wants all."""
        if wanted is None:
            return self.chunks
        array = np.asarray(wanted)
        if array.dtype == np.bool_:
            n = sum(chunk.n_live for chunk in self.chunks)
            if array.shape != (n,):
                raise ValueError(f"a filter mask must have one value for each of the {n} rows, got shape {array.shape}")
            if all(chunk.ids is None and chunk.live is None for chunk in self.chunks):
                return self._masked(array)
            array = self.ids()[array]
        elif array.ndim == 1:
            array = np.unique(array)
        marked = zip(self.chunks, self._marked(check_ids(array)), strict=True)
        return tuple(replace(chunk, live=live, n_live=n) for chunk, (live, n) in marked if n)

    def copy(self, index: Index) -> None:
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
            self.chunks = (Chunk(codes, 0, None, None, n, streamed=False),)
            return
        chunks: tuple[Chunk, ...] = ()
        for part, ids in pieces_of(index):
            chunks = self._with(chunks, part, False, ids)
        self.chunks = chunks

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
            chunks = self.chunks if chunks is None else chunks
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
        largest = max((self._largest_id(chunk) for chunk in self.chunks), default=-1)
        if ids is None:
            return np.arange(largest + 1, largest + 1 + n)
        array = check_ids(ids, n)
        if n and int(array.min()) <= largest:
            list_of_ids = self._device.upload(np.sort(array))
            if any(self._device.mark(chunk, list_of_ids)[1] for chunk in self.chunks):
                taken = np.intersect1d(array, self.ids())
                raise ValueError(f"ids must be new, got {taken[0]}, which is in the index")
        return array

    def _largest_id(self, chunk: Chunk) -> int:
        if chunk.ids is None and chunk.live is None:
            return chunk.first_id + len(chunk) - 1
        return int(live_ids(self._device, chunk).max())

    def _marked(self, ids: Ids) -> list[tuple[Any, int]]:
        """Per chunk, bits of the live rows with these ids, all of which must be there, and their number."""
        list_of_ids = self._device.upload(np.sort(ids))
        marked = [self._device.mark(chunk, list_of_ids) for chunk in self.chunks]
        if sum(n for _, n in marked) < len(ids):
            missing = ids[~np.isin(ids, self.ids())]
            raise ValueError(f"ids must be in the index, got {missing[0]}, which is not")
        return marked

    def _masked(self, mask: npt.NDArray[np.bool_]) -> tuple[Chunk, ...]:
        """Chunks whose ids all count up by one, with the rows of a mask."""
        out, start = [], 0
        for chunk in sorted(self.chunks, key=lambda chunk: chunk.first_id):
            part = mask[start : start + len(chunk)]
            start += len(chunk)
            if part.any():
                n_live = int(np.count_nonzero(part))
                out.append(replace(chunk, live=self._device.upload(words(part)), n_live=n_live))
        return tuple(out)
