"""Segments: sorted, byte-sliced codes as the kernel scans them, and the order of bits they share."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank import _kernel
from bitrank.core.types import Codes, Ids, Weights, n_bytes
from bitrank.index.cells import Cells

Order = npt.NDArray[np.uint16]
LANES = 64
_HUGE_PAGE = 1 << 21


class Segment(NamedTuple):
    """Rows built together, as arrays of the kernel, which never change."""

    blocks: npt.NDArray[np.uint8]  # (n_blocks, n_bytes, 64): 64 rows per block, one cache line per byte
    bounds: npt.NDArray[np.uint8]  # (n_supers, n_bytes, 2, 64): bits that all rows of a block share
    supers: npt.NDArray[np.uint8]  # (n_supers, n_bytes, 2): bits that all rows of a super-block share
    ids: Ids
    least_ids: Ids  # one per block
    wanted: npt.NDArray[np.uint64] | None = None  # one bit per row, unset for removed rows; None if none is removed
    rest: Codes | None = None  # (n_rows, n_bytes_of_rest): the bytes after those in blocks, row by row
    means: Codes | None = None  # coded means, one per block; None where rows are sorted


def of_kernel(segments: Sequence[Segment]) -> list[Any]:
    """Segments as the kernel takes them, which knows no means."""
    return [segment[:7] for segment in segments]


def bit_order(weights: Weights) -> Order:
    """Bits in the order by which rows are sorted: the heaviest first."""
    return np.argsort(-weights, kind="stable").astype(np.uint16)


def order_quality(order: Order, weights: Weights, n_rows: int) -> float:
    """Weight in the bits that the sort settles, as a share of the weight that the best order would settle."""
    n_settled = max(1, min(len(order), int(np.ceil(np.log2(max(2, n_rows / LANES))))))
    best = float(np.sort(weights.astype(np.float64))[-n_settled:].sum())
    return float(weights[order[:n_settled]].astype(np.float64).sum()) / best if best else 1.0


def build(codes: Codes, ids: Ids, order: Order, threads: int, cells: Cells | None = None) -> Segment:
    """Sort codes by the bits of `order`, or by cells, and lay them out for the kernel."""
    n, width = len(codes), n_bytes(len(order))
    head, rest = np.ascontiguousarray(codes[:, :width]), codes[:, width:]
    if n >= 1 << 32:
        raise ValueError(f"an index must have fewer than 2**32 rows, got {n}")
    n_blocks = -(-n // LANES)
    n_supers = -(-n_blocks // LANES)
    rows = np.empty(n, np.uint32) if cells is None else cells.order(codes)
    if cells is None:
        _kernel.sorted_rows(head, ids, order, rows, threads)
    blocks = _aligned((n_blocks, width, LANES))
    bounds = _aligned((n_supers, width, 2, LANES))
    supers = _aligned((n_supers, width, 2))
    _kernel.build(head, rows, order, blocks, bounds, supers, threads)
    ids = ids[rows]
    least_ids = np.minimum.reduceat(ids, np.arange(0, n, LANES))
    means = None if cells is None else cells.means(head[rows])
    return Segment(blocks, bounds, supers, ids, least_ids, None, rest[rows] if rest.shape[1] else None, means)


def restore(segment: Segment, order: Order, threads: int) -> tuple[Codes, Ids]:
    """Codes, as they were added, and ids of the rows that are not removed."""
    codes = np.empty((len(segment.ids), n_bytes(len(order))), np.uint8)
    _kernel.restore(segment.blocks, order, codes, threads)
    if segment.rest is not None:
        codes = np.concatenate([codes, segment.rest], axis=1)
    if segment.wanted is None:
        return codes, segment.ids
    kept = flags(segment)
    return codes[kept], segment.ids[kept]


def pick(segment: Segment, order: Order, numbers: Ids) -> Codes:
    """Codes, as they were added, of a few rows by their numbers in the segment."""
    codes = np.empty((len(numbers), n_bytes(len(order))), np.uint8)
    if len(numbers):
        rows = np.zeros((-(-len(numbers) // LANES) * LANES, codes.shape[1]), np.uint8)
        rows[: len(numbers)] = segment.blocks[numbers // LANES, :, numbers % LANES]
        blocks = np.ascontiguousarray(rows.reshape(-1, LANES, codes.shape[1]).swapaxes(1, 2))
        _kernel.restore(blocks, order, codes, 1)
    return codes if segment.rest is None else np.concatenate([codes, segment.rest[numbers]], axis=1)


def flags(segment: Segment) -> npt.NDArray[np.bool_]:
    """Per row, whether it is not removed."""
    words = np.full(len(segment.blocks), ~np.uint64(0)) if segment.wanted is None else segment.wanted
    bits = np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little", count=len(segment.ids))
    return bits.view(np.bool_)


def words(segment: Segment, rows: npt.NDArray[np.bool_] | Ids) -> npt.NDArray[np.uint64]:
    """Flags or row numbers as the kernel takes them: one bit per row."""
    if rows.dtype == np.bool_:
        padded = np.zeros(len(segment.blocks) * LANES, bool)
        padded[: len(rows)] = rows
        return np.packbits(padded, bitorder="little").view("<u8").astype(np.uint64)
    out = np.zeros(len(segment.blocks), np.uint64)
    np.bitwise_or.at(out, rows // LANES, np.uint64(1) << (rows % LANES).astype(np.uint64))
    return out


def count(segment: Segment) -> int:
    """Number of rows that are not removed."""
    return len(segment.ids) if segment.wanted is None else int(np.bitwise_count(segment.wanted).sum())


def _aligned(shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """An empty array that starts at a cache line; a large one lies in huge pages, where the system has them.

    Memory that was used before often lies in small pages: a scan of it takes up to half longer.
    """
    size, line = int(np.prod(shape)), LANES
    buffer: npt.NDArray[np.uint8]
    if size >= _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        room = (1 - -size // _HUGE_PAGE) * _HUGE_PAGE  # whole pages, wherever the first one starts
        mapping = mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # a kernel without huge pages
            mapping.madvise(mmap.MADV_HUGEPAGE)
        buffer, line = np.frombuffer(mapping, np.uint8), _HUGE_PAGE
    else:
        buffer = np.empty(size + LANES, np.uint8)
    start = -buffer.ctypes.data % line
    return buffer[start : start + size].reshape(shape)
