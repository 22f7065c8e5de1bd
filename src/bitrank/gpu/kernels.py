"""The kernels, compiled when first needed, and the memory that they share during a search."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.core.types import Codes, Ids, Weights
from bitrank.gpu import plan
from bitrank.gpu.chunks import Chunk
from bitrank.gpu.quantise import NOTHING, Quantised, fragments, offsets, words

THREADS = 256
DP4A_WIDTHS = (4, 8, 16, 32)  # bytes of codes that the kernel of one query takes
FOLDER = Path(__file__).parent

# Structures of state.cu.
CHUNK = np.dtype([(name, np.uint64) for name in ("codes", "ids", "live", "n", "first_id", "first_tile")])
POINTERS = (
    *("chunks", "fragments", "query_codes", "weights", "second_weights", "scales", "constants"),
    *("tables", "second_tables", "offsets", "limits", "limit_ids", "counts", "hits", "hit_ids", "hit_seconds"),
    *("top", "top_ids", "top_seconds", "n_top", "overflow", "out_ids", "out"),
)
NUMBERS = ("n_chunks", "n_queries", "n_bits", "n_bytes", "k", "n_out", "capacity")
STATE = np.dtype([(name, np.uint64) for name in POINTERS] + [(name, np.int32) for name in NUMBERS], align=True)


class Task(NamedTuple):
    """Queries that are searched for together, at most `plan.QUERIES`."""

    codes: Codes  # (n_queries, n_bytes)
    weights: Weights  # (n_queries, n_bits)
    second_weights: Weights | None  # as `weights`: distances that the best rows are returned by
    quantised: Quantised | None  # None when no phase scans by the bound
    limits: npt.NDArray[np.float32]  # per query: no hit is farther
    k: int  # rows to keep per query; 0 keeps hits alone
    n_out: int  # rows to return per query
    capacity: int  # hits per query and phase


class Kernels:
    """Kernels of one device; CuPy keeps what it compiles in its cache on disk."""

    def __init__(self, cp: Any, n_processors: int) -> None:
        self.cp = cp
        self._n_processors = n_processors
        self._compiling = threading.Lock()
        self._modules: dict[tuple[str, ...], Any] = {}
        self._kernels: dict[tuple[Any, ...], tuple[Any, int]] = {}

    def launch(
        self,
        name: str,
        n_blocks: int,
        *arguments: Any,
        macros: tuple[str, ...] = (),
        threads: int = THREADS,
        shared: int = 0,
        all_blocks: bool = False,
    ) -> None:
        """Launch a kernel with as many blocks, or with as many as run at once, over which it strides."""
        kernel, resident = self._compiled(name, macros, threads, shared)
        n_blocks = n_blocks if all_blocks else max(1, min(n_blocks, resident))
        kernel((n_blocks,), (threads,), arguments, shared_mem=shared)

    def _compiled(self, name: str, macros: tuple[str, ...], threads: int, shared: int) -> tuple[Any, int]:
        with self._compiling:
            if (name, macros) not in self._kernels:
                if macros not in self._modules:
                    files = ("state.cu", "scan.cu" if macros else "select.cu")
                    source = "".join((FOLDER / file).read_text() for file in files)
                    self._modules[macros] = self.cp.RawModule(code=source, options=("-std=c++17", *macros))
                kernel = self._modules[macros].get_function(name)
                if shared:
                    kernel.max_dynamic_shared_size_bytes = shared
                occupancy = self.cp.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
                resident = int(occupancy(kernel.kernel.ptr, threads, shared)) * self._n_processors
                self._kernels[name, macros] = kernel, resident
            return self._kernels[name, macros]


class Scratch:
    """Memory of a search: its queries, limits, hits and best rows, and the kernels' work on them."""

    def __init__(self, kernels: Kernels, task: Task) -> None:
        self._kernels, self._task = kernels, task
        self._half = 0
        self._chunks: tuple[Chunk, ...] = ()
        n_queries, width = task.codes.shape
        self._n_groups = next(groups for groups in (1, 2, 4) if n_queries <= 16 * groups)
        self._dp4a = n_queries == 1 and width in DP4A_WIDTHS
        self._state = state = np.zeros(1, STATE)
        state["n_queries"], state["n_bytes"], state["n_bits"] = n_queries, width, task.weights.shape[1]
        state["k"], state["n_out"], state["capacity"] = task.k, task.n_out, task.capacity
        self._allocate(self._inputs(), self._sizes())
        for stage in range(1 if task.second_weights is None else 2):
            self._launch("fill_tables", n_queries * width, np.int32(stage), all_blocks=True)

    def _inputs(self) -> dict[str, npt.NDArray[Any]]:
        """What is copied to the device, zeros last."""
        task, n_queries = self._task, len(self._task.codes)
        inputs: dict[str, npt.NDArray[Any]] = {
            "query_codes": task.codes,
            "weights": task.weights,
            "limits": task.limits,
            "limit_ids": np.full(n_queries, np.iinfo(np.int64).max),
        }
        if task.second_weights is not None:
            inputs["second_weights"] = task.second_weights
        if task.quantised is not None:
            starts = np.full(16 * self._n_groups, NOTHING, np.int32)
            starts[:n_queries] = offsets(task.quantised, task.limits, task.codes.shape[1])
            signed = task.quantised.signed
            inputs["fragments"] = words(signed) if self._dp4a else fragments(signed, self._n_groups)
            inputs["offsets"] = np.repeat(starts, 2)
            inputs["scales"], inputs["constants"] = task.quantised.scales, task.quantised.constants
        zeros = {name: np.zeros(n_queries, np.int32) for name in ("counts", "n_top", "overflow")}
        return inputs | zeros

    def _sizes(self) -> dict[str, int]:
        """Bytes of what the kernels fill, results first."""
        task, (n_queries, width) = self._task, self._task.codes.shape
        sizes = {"out_ids": 8 * n_queries * task.n_out, "out": 4 * n_queries * task.n_out}
        sizes |= {"hits": 4 * n_queries * task.capacity, "hit_ids": 8 * n_queries * task.capacity}
        sizes |= {"top": 8 * n_queries * task.k, "top_ids": 16 * n_queries * task.k}
        sizes["tables"] = 1024 * n_queries * width
        if task.second_weights is not None:
            sizes |= {f"{name}s": sizes[kind] for name, kind in (("hit_second", "hits"), ("top_second", "top"))}
            sizes["second_tables"] = sizes["tables"]
        return sizes

    def _allocate(self, inputs: dict[str, npt.NDArray[Any]], sizes: dict[str, int]) -> None:
        """One piece of memory for all, every array aligned to 16 bytes, and one copy of the inputs."""
        sizes = {name: array.nbytes for name, array in inputs.items()} | sizes
        starts = np.cumsum([0, *(-(-size // 16) * 16 for size in sizes.values())]).tolist()
        self._starts = dict(zip(sizes, starts[:-1], strict=True))
        self._memory = self._kernels.cp.empty(starts[-1], np.uint8)
        for name, start in self._starts.items():
            self._state[name] = self._memory.data.ptr + start
        blob = np.zeros(self._starts["out_ids"], np.uint8)
        for name, array in inputs.items():
            start = self._starts[name]
            blob[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self._memory[: len(blob)].set(blob, stream=self._kernels.cp.cuda.get_current_stream())

    def _download(self, name: str, start: int, n: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """n elements of an array, from one of them on."""
        size = np.dtype(dtype).itemsize
        first = self._starts[name] + start * size
        return np.asarray(self._kernels.cp.asnumpy(self._memory[first : first + n * size])).view(dtype)

    def _launch(self, name: str, n_blocks: int, *arguments: Any, **options: Any) -> None:
        self._kernels.launch(name, n_blocks, opaque(self._state), *arguments, **options)

    def restart(self) -> None:
        """Forget the best rows and the hits, but not the limits."""
        start, stop = self._starts["counts"], self._starts["out_ids"]
        self._memory[start:stop] = 0

    def scan(self, chunks: tuple[Chunk, ...], phase: plan.Phase) -> None:
        """Find the hits of a phase."""
        if not phase.n_tiles:
            return
        n_queries, width = self._task.codes.shape
        if chunks is not self._chunks:
            self._chunks, rows = chunks, table(chunks).view(np.uint8)
            self._table = self._kernels.cp.empty(rows.shape, np.uint8)
            self._table.set(rows, stream=self._kernels.cp.cuda.get_current_stream())
            self._state["chunks"], self._state["n_chunks"] = self._table.data.ptr, len(chunks)
        macros = {"N_BYTES": width, "QUERY_GROUPS": self._n_groups, "DP4A": int(self._dp4a), "TILE": plan.tile(width)}
        options = tuple(f"-D{name}={value}" for name, value in macros.items())
        numbers = [np.uint32(number) for number in (phase.n_tiles, phase.stride, phase.ratio)]
        if phase.scored:
            n_threads = phase.n_tiles * plan.tile(width) * n_queries
            self._launch("score", -(-n_threads // THREADS), *numbers, macros=options)
        else:
            shared = 0 if self._dp4a else shared_bytes(self._n_groups, width)
            self._launch("scan", -(-phase.n_tiles * 32 // THREADS), *numbers, macros=options, shared=shared)

    def keep_best(self) -> None:
        """Merge the hits into the best rows, and lower the limits to the k-th of them."""
        self._launch("keep_best", len(self._task.codes), np.int32(self._half), threads=1024, all_blocks=True)
        self._half = 1 - self._half

    def best(self) -> tuple[Ids, npt.NDArray[np.float32], bool]:
        """Ids and distances of the best rows in order, and whether hits were lost."""
        n_queries, n_out = len(self._task.codes), self._task.n_out
        n_blocks = n_queries * -(-self._task.k // THREADS)
        self._launch("sort_best", n_blocks, np.int32(self._half), all_blocks=True)
        first, ids, distances = (self._starts[name] for name in ("overflow", "out_ids", "out"))
        size = n_queries * n_out
        out = self._download("overflow", 0, distances - first + 4 * size, np.uint8)
        lost = bool(out[: ids - first].any())
        found = out[ids - first : ids - first + 8 * size].view(np.int64).reshape(n_queries, n_out)
        return found, out[distances - first :].view(np.float32).reshape(n_queries, n_out), lost

    def n_hits(self) -> npt.NDArray[np.uint32]:
        """Hits per query, those beyond the capacity included."""
        return self._download("counts", 0, len(self._task.codes), np.uint32)

    def hits_of(self, query: int, n: int) -> tuple[Ids, npt.NDArray[np.float32]]:
        """The first n hits of a query, in no order."""
        start = query * self._task.capacity
        return self._download("hit_ids", start, n, np.int64), self._download("hits", start, n, np.float32)


def shared_bytes(n_groups: int, width: int) -> int:
    """Shared memory for the signed weights, where they do not fit in registers: see FRAGMENTS_SHARED in scan.cu."""
    n_operands = n_groups * -(-width // 8)
    return 0 if n_operands <= (2 if n_groups == 1 else 4) else 1024 * n_operands


def opaque(structure: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A structure as a kernel's argument without names: CuPy would describe every field of it at every launch."""
    return structure.view(np.dtype((np.void, structure.itemsize)))


def table(chunks: tuple[Chunk, ...]) -> npt.NDArray[Any]:
    """Where chunks lie, and the tile that each begins with."""
    rows = np.zeros(len(chunks), CHUNK)
    size = plan.tile(chunks[0].codes.shape[1])
    starts = np.cumsum([0, *plan.n_tiles([len(chunk) for chunk in chunks], size)])
    for row, chunk, start in zip(rows, chunks, starts, strict=False):
        row["codes"], row["ids"], row["live"] = map(address, (chunk.codes, chunk.ids, chunk.live))
        row["n"], row["first_id"], row["first_tile"] = len(chunk), chunk.first_id, start
    return rows


def address(array: Any | None) -> int:
    """Where an array lies, on the device or in pinned host memory; 0 of None."""
    if array is None:
        return 0
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)
