"""Phases of a search: which tiles of the collection are scanned in which order, and how many hits there is room for.

The first phase scores a sample of tiles without a bound. Its k-th distance is the limit of the next phase, which scans
up to `RATIO` times as many tiles, and so on: a phase finds about k times the ratio of hits, whatever the order of rows,
unless it was made to defeat this. A phase with more hits than the capacity lowers the limit, and the search starts
again with it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

TILE = 512  # codes that a warp scans in one go, or as many as TILE_BYTES hold, in steps of 64
TILE_BYTES = 8192
SAMPLE = 8192  # rows of the first phase, or 4 k
RATIO = 32
CAPACITY = 16384  # hits per query and phase, or 4 k times the ratio
QUERIES = 64  # that are searched for together
MAX_HIT_BYTES = 1 << 28  # on the device, for all queries together
HIT_BYTES = 16


class Phase(NamedTuple):
    """Every `stride`-th tile, without every `ratio`-th of those unless the ratio is 0."""

    n_tiles: int
    stride: int
    ratio: int
    scored: bool  # without the integer bound


def tile(width: int) -> int:
    """Codes of this many bytes in a tile.

    Examples
    --------
    >>> tile(8), tile(32)
    (512, 256)
    """
    return min(TILE, max(64, TILE_BYTES // width // 64 * 64))


def phases(n_tiles: int, k: int, size: int) -> list[Phase]:
    """Phases that cover all tiles of a size, each once.

    Examples
    --------
    >>> phases(n_tiles=20, k=10, size=512)
    [Phase(n_tiles=20, stride=1, ratio=0, scored=True)]
    >>> [phase.n_tiles for phase in phases(n_tiles=10_000, k=10, size=512)]
    [16, 384, 9600]
    """
    first = -(-max(SAMPLE, 4 * k) // size)
    if n_tiles <= 2 * first:
        return [Phase(n_tiles, 1, 0, scored=True)]
    n_scans = max(1, int(np.ceil(np.log(n_tiles / first) / np.log(RATIO) - 1e-9)))
    ratio = max(2, int(np.ceil((n_tiles / first) ** (1 / n_scans) - 1e-9)))
    stride = ratio**n_scans
    out = [Phase(-(-n_tiles // stride), stride, 0, scored=True)]
    while stride > 1:
        stride //= ratio
        out.append(Phase(-(-n_tiles // stride) - -(-n_tiles // (stride * ratio)), stride, ratio, scored=False))
    return out


def everything(n_tiles: int) -> Phase:
    """All tiles in one phase."""
    return Phase(n_tiles, 1, 0, scored=False)


def capacity(k: int) -> int:
    """Hits that there is room for, per query and phase."""
    return max(CAPACITY, 4 * k * RATIO)


def queries_together(n_queries: int, hits: int) -> int:
    """Queries to search for together, with this many hits each."""
    return max(1, min(n_queries, QUERIES, MAX_HIT_BYTES // (HIT_BYTES * hits)))


def n_tiles(lengths: list[int], size: int) -> list[int]:
    """Tiles of a size in chunks of these lengths; no tile spans two chunks."""
    return [-(-length // size) for length in lengths]
