from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

def weighted_hamming(
    queries: npt.NDArray[np.uint8],
    codes: npt.NDArray[np.uint8],
    weights: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
    threads: int = 1,
) -> None: ...
def weighted_hamming_to_rows(
    queries: npt.NDArray[np.uint8],
    codes: npt.NDArray[np.uint8],
    rows: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
    threads: int = 1,
) -> None: ...
def split_reals(
    reals: npt.NDArray[np.float32], codes: npt.NDArray[np.uint8], sizes: npt.NDArray[np.float32]
) -> bool: ...
def split_products(
    numbers: npt.NDArray[np.float32],
    columns: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float32],
    codes: npt.NDArray[np.uint8],
    sizes: npt.NDArray[np.float32],
) -> None: ...
def round_to_exact_sums(weights: npt.NDArray[np.float32]) -> None: ...
def center(
    vectors: npt.NDArray[np.float32] | npt.NDArray[np.float64],
    length: float,
    center: npt.NDArray[np.float64] | None,
    zeros: bool,
    out: npt.NDArray[np.float32],
    squares: npt.NDArray[np.float64],
) -> bool: ...
def shift(rows: npt.NDArray[np.float32], shift: npt.NDArray[np.float32], most: float) -> bool: ...
def hamming(
    queries: npt.NDArray[np.uint8],
    codes: npt.NDArray[np.uint8],
    out: npt.NDArray[np.uint16],
    threads: int = 1,
) -> None: ...

class Sample:
    def __init__(self, codes: npt.NDArray[np.uint8]) -> None: ...
    def __len__(self) -> int: ...
    def nearest_sums(
        self, queries: npt.NDArray[np.uint8], skipped: int, last: int, sums: npt.NDArray[np.uint64]
    ) -> None: ...

class Segments:
    def __init__(
        self,
        segments: Sequence[
            tuple[
                npt.NDArray[np.uint8],
                npt.NDArray[np.uint8],
                npt.NDArray[np.uint8],
                npt.NDArray[np.int64],
                npt.NDArray[np.int64],
                npt.NDArray[np.uint64] | None,
                npt.NDArray[np.uint8] | None,
            ]
        ],
        n_bytes: int,
        n_rest: int = 0,
    ) -> None: ...

class Weightings:
    def __init__(self, weights: npt.NDArray[np.float32], order: npt.NDArray[np.uint16]) -> None: ...

Chosen = tuple[
    npt.NDArray[np.int64], npt.NDArray[np.float32], int, npt.NDArray[np.int64]
]  # blocks, floors, n_sure, n_read

def search(
    queries: npt.NDArray[np.uint8],
    weights: Weightings,
    segments: Segments,
    ids: npt.NDArray[np.int64],
    distances: npt.NDArray[np.float32],
    threads: int,
    chosen: Chosen | None = None,
) -> None: ...
def search_whole(
    queries: npt.NDArray[np.uint8],
    weights: Weightings,
    segments: Segments,
    shortlist: int,
    whole_queries: npt.NDArray[np.uint8],
    whole_weights: npt.NDArray[np.float32],
    order: npt.NDArray[np.uint16],
    ids: npt.NDArray[np.int64],
    distances: npt.NDArray[np.float32],
    threads: int,
    chosen: Chosen | None = None,
    estimates: Estimates | None = None,
) -> None: ...

Estimates = tuple[int, float, float, bool, npt.NDArray[np.float64]]

def search_radius(
    queries: npt.NDArray[np.uint8], weights: Weightings, segments: Segments, radius: float, threads: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]: ...
def score(
    queries: npt.NDArray[np.uint8],
    weights: npt.NDArray[np.float32],
    order: npt.NDArray[np.uint16],
    segments: Segments,
    rows: npt.NDArray[np.int64],
    out: npt.NDArray[np.float32],
    threads: int,
) -> None: ...
def sorted_rows(
    codes: npt.NDArray[np.uint8],
    ids: npt.NDArray[np.int64],
    order: npt.NDArray[np.uint16],
    rows: npt.NDArray[np.uint32],
    threads: int,
) -> None: ...
def build(
    codes: npt.NDArray[np.uint8],
    rows: npt.NDArray[np.uint32],
    order: npt.NDArray[np.uint16],
    blocks: npt.NDArray[np.uint8],
    bounds: npt.NDArray[np.uint8],
    supers: npt.NDArray[np.uint8],
    threads: int,
) -> None: ...
def restore(
    blocks: npt.NDArray[np.uint8], order: npt.NDArray[np.uint16], codes: npt.NDArray[np.uint8], threads: int
) -> None: ...
def checksum(data: npt.NDArray[np.uint8]) -> int: ...
def kernel_paths() -> list[str]: ...
def margins(
    plus: npt.NDArray[np.uint8],
    minus: npt.NDArray[np.uint8],
    weights: npt.NDArray[np.float64],
    out: npt.NDArray[np.float64],
) -> None: ...
def combine(
    plus: npt.NDArray[np.uint8],
    minus: npt.NDArray[np.uint8],
    values: npt.NDArray[np.float64],
    out: npt.NDArray[np.float64],
) -> None: ...
def add_gram(
    plus: npt.NDArray[np.uint8],
    minus: npt.NDArray[np.uint8],
    signs: npt.NDArray[np.int8],
    factor: float,
    out: npt.NDArray[np.float64],
    total: npt.NDArray[np.float64],
) -> None: ...
def passive_aggressive(
    order: npt.NDArray[np.float64],
    tie: npt.NDArray[np.float64],
    c_order: float,
    c_tie: float,
    tolerance: float,
    max_sweeps: int,
    weights: npt.NDArray[np.float64],
) -> int: ...
def tied_groups(
    keys: npt.NDArray[np.uint32] | npt.NDArray[np.uint64],
    groups: npt.NDArray[np.int64],
    bounds: npt.NDArray[np.int64],
    totals: npt.NDArray[np.int64],
) -> int: ...
def lift_limits(
    distances: npt.NDArray[np.float32],
    totals: npt.NDArray[np.float64],
    units: npt.NDArray[np.float64],
    asked_totals: npt.NDArray[np.float64],
    asked_units: npt.NDArray[np.float64],
    offset: float,
    tie: float,
    pivot: float,
    pinned_share: float,
    any_pinned: bool,
) -> npt.NDArray[np.float32]: ...
def named(
    judged: npt.NDArray[np.int64],
    similarities: npt.NDArray[np.float32],
    floors: npt.NDArray[np.float32],
    pinned_floors: npt.NDArray[np.float32],
    offset: float,
    starts: npt.NDArray[np.int64],
    items: npt.NDArray[np.int64],
    pinned: npt.NDArray[np.uint8],
    threads: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32], npt.NDArray[np.int64]]: ...
def lift(
    ids: npt.NDArray[np.int64],
    distances: npt.NDArray[np.float32],
    by: npt.NDArray[np.int64],
    items: npt.NDArray[np.int64],
    similarities: npt.NDArray[np.float32],
    judged: npt.NDArray[np.int64],
    item_distances: npt.NDArray[np.float32],
    totals: npt.NDArray[np.float64],
    units: npt.NDArray[np.float64],
    tie: float,
    pivot: float,
    most: int,
    threads: int,
) -> None: ...
