"""Rows of a GPU index: chunks of packed codes with their ids, and which rows are live."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import n_threads
from bitrank.core.types import Codes, Ids, n_bytes
from bitrank.index import Index
from bitrank.index.segments import LANES, restore

# Neighbours are merged into chunks of up to this size: every chunk is a row of the kernels' table.
MERGED_BYTES = 1 << 26
# Codes that do not fit on the device are streamed in chunks of up to this size.
STREAMED_BYTES = 1 << 28


@dataclass(frozen=True, eq=False)
class Chunk:
    """Rows that lie together. Nothing in it is changed after it was made."""

    codes: Any  # uint8 (n, n_bytes), on the device or in pinned host memory
    first_id: int  # ids are first_id + row, unless `ids` holds them
    ids: Any | None  # int64 (n,), beside the codes
    live: Any | None  # uint32, one bit per row, on the device; None when all rows are live
    n_live: int
    streamed: bool  # in host memory, copied to the device at every search

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def n_bytes(self) -> int:
        """Bytes of codes and ids."""
        return int(self.codes.nbytes) + (0 if self.ids is None else int(self.ids.nbytes))


def live_ids(device: Any, chunk: Chunk) -> Ids:
    """Ids of a chunk's live rows, in the order of rows."""
    if chunk.ids is None:
        ids = np.arange(chunk.first_id, chunk.first_id + len(chunk))
    else:
        ids = np.asarray(chunk.ids) if chunk.streamed else device.download(chunk.ids)
    return ids if chunk.live is None else ids[flags(device.download(chunk.live), len(chunk))]


def joined(device: Any, chunks: list[Chunk]) -> Chunk:
    """Neighbours as one chunk of their live rows."""
    streamed = chunks[0].streamed
    ids = np.concatenate([live_ids(device, chunk) for chunk in chunks])
    codes = place(device, (len(ids), chunks[0].codes.shape[1]), np.uint8, streamed)
    start = 0
    for chunk in chunks:
        part = chunk.codes
        if chunk.live is not None:
            mask = flags(device.download(chunk.live), len(chunk))
            part = part[mask if streamed else device.upload(mask)]
        codes[start : start + len(part)] = part
        start += len(part)
    return with_ids(device, codes, ids, streamed)


def with_ids(device: Any, codes: Any, ids: Ids, streamed: bool) -> Chunk:
    """A chunk of codes, all live; ids that count up by one take no memory."""
    first = first_of_run(ids)
    if first is not None:
        return Chunk(codes, first, None, None, len(ids), streamed)
    stored = place(device, ids.shape, np.int64, streamed)
    fill(stored, ids)
    return Chunk(codes, 0, stored, None, len(ids), streamed)


def place(device: Any, shape: tuple[int, ...], dtype: npt.DTypeLike, streamed: bool) -> Any:
    """An array where a chunk's codes or ids go: on the device, or in pinned host memory."""
    return device.pinned(shape, dtype) if streamed else device.empty(shape, dtype)


def fill(target: Any, source: npt.NDArray[Any]) -> None:
    """Copy a host array into an array of a chunk."""
    if isinstance(target, np.ndarray):
        target[...] = source
    else:
        target.set(np.ascontiguousarray(source))


def n_to_join(chunks: tuple[Chunk, ...], new: Chunk) -> int:
    """How many of the last chunks to join with a new one: those up to twice as large.

    So a row is moved about log2(n) times in its life, and chunks stay few.
    """
    count, total = 0, new.n_bytes
    for chunk in reversed(chunks):
        size = chunk.n_bytes
        if chunk.streamed != new.streamed or size > 2 * total or size + total > MERGED_BYTES:
            break
        count, total = count + 1, total + size
    return count


def first_of_run(ids: Ids) -> int | None:
    """The first of ids that count up by one; None of others.

    Examples
    --------
    >>> first_of_run(np.array([7, 8, 9])), first_of_run(np.array([7, 9, 8]))
    (7, None)
    """
    if len(ids) and ids[-1] - ids[0] == len(ids) - 1 and bool((np.diff(ids) == 1).all()):
        return int(ids[0])
    return None


def flags(words: npt.NDArray[np.uint32], n: int) -> npt.NDArray[np.bool_]:
    """Whether each of n rows is live, of words of 32 bits."""
    return np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little", count=n).view(np.bool_)


def words(live: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    """Words of 32 bits, of whether each row is live.

    Examples
    --------
    >>> words(np.array([True, False, True]))
    array([5], dtype=uint32)
    """
    padded = np.zeros(-(-len(live) // 32) * 32, np.bool_)
    padded[: len(live)] = live
    return np.packbits(padded, bitorder="little").view("<u4").astype(np.uint32)


def pieces_of(index: Index, size: int = MERGED_BYTES) -> Iterator[tuple[Codes, Ids]]:
    """Codes and ids of the rows of an `Index`, at most so many bytes at once: a mapped index is read piece by piece."""
    snapshot = index._snapshot
    step = max(1, size // (n_bytes(snapshot.n_bits) * LANES))
    for segment in snapshot.segments:
        for start in range(0, len(segment.blocks), step):
            blocks, rows = slice(start, start + step), slice(start * LANES, (start + step) * LANES)
            wanted = None if segment.wanted is None else segment.wanted[blocks]
            rest = None if segment.rest is None else segment.rest[rows]
            part = segment._replace(blocks=segment.blocks[blocks], ids=segment.ids[rows], wanted=wanted, rest=rest)
            yield restore(part, snapshot.order, n_threads())
