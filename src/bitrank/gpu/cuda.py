"""The device: its memory, streams and copies, and the errors that they end with."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.core.lazy import import_extra
from bitrank.gpu.chunks import Chunk
from bitrank.gpu.kernels import THREADS, Kernels, Scratch, Task, opaque, table

# Device memory that is left free for searches.
RESERVED_BYTES = 1 << 30
DLPACK_CUDA = 2


class DeviceError(RuntimeError):
    """CUDA failed or is missing; an index that it failed for answers nothing more and can only be closed.

    Examples
    --------
    >>> issubclass(DeviceError, RuntimeError)
    True
    """


class Device:
    """One GPU, on which every thread works on a stream of its own."""

    def __init__(self, number: int) -> None:
        self.cp = cp = import_extra("cupy", "gpu")
        try:
            n_devices = cp.cuda.runtime.getDeviceCount()
        except cp.cuda.runtime.CUDARuntimeError as error:
            raise DeviceError(f"bitrank.gpu needs an NVIDIA GPU and its driver, got {error}") from None
        if not 0 <= number < n_devices:
            raise ValueError(f"device must be from 0 to {n_devices - 1}, got {number}")
        self.number = number
        self._device = cp.cuda.Device(number)
        if int(self._device.compute_capability) < 80:
            raise DeviceError(f"device must have compute capability 8.0, got {self._device.compute_capability}")
        self._kernels = Kernels(cp, int(self._device.attributes["MultiProcessorCount"]))
        self._local, self._staging = threading.local(), threading.Lock()

    @contextmanager
    def work(self) -> Iterator[None]:
        """Work on the device, complete at the end; errors of CUDA become `DeviceError`."""
        cp = self.cp
        try:
            with self._device:
                if not hasattr(self._local, "stream"):
                    self._local.stream = cp.cuda.Stream(non_blocking=True)
                with self._local.stream as stream:
                    yield
                    stream.synchronize()
        except (cp.cuda.runtime.CUDARuntimeError, cp.cuda.driver.CUDADriverError) as error:
            raise DeviceError(f"CUDA failed on device {self.number}: {error}") from error

    def room(self) -> int:
        """Bytes for more codes."""
        free = int(self._device.mem_info[0]) + int(self.cp.get_default_memory_pool().free_bytes())
        return max(0, free - RESERVED_BYTES)

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Any:
        """An array on the device."""
        return self.cp.empty(shape, dtype)

    def pinned(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Any:
        """An array in host memory that the device reads and copies from directly."""
        try:
            return import_extra("cupyx", "gpu").empty_pinned(shape, dtype)
        except self.cp.cuda.runtime.CUDARuntimeError as error:
            n_bytes = np.dtype(dtype).itemsize * math.prod(shape)
            raise MemoryError(f"codes must fit in pinned host memory, got {n_bytes} bytes: {error}") from None

    def upload(self, array: npt.NDArray[Any]) -> Any:
        """A copy of a host array on the device."""
        return self.cp.asarray(array)

    def download(self, array: Any) -> npt.NDArray[Any]:
        """A copy of a device array on the host."""
        return np.asarray(self.cp.asnumpy(array))

    def held(self, codes: Any) -> Any | None:
        """Codes that are on the device already, as they are if rows are contiguous and aligned; None of host arrays."""
        cp = self.cp
        if hasattr(codes, "__cuda_array_interface__"):
            array = cp.asarray(codes)
        elif hasattr(codes, "__dlpack_device__") and codes.__dlpack_device__()[0] == DLPACK_CUDA:
            array = cp.from_dlpack(codes)
        else:
            return None
        if int(array.device.id) != self.number:
            raise ValueError(f"codes must be on device {self.number}, got device {array.device.id}")
        self._device.synchronize()  # whatever stream wrote the codes
        if array.ndim != 2 or not array.size:
            return array
        width = array.shape[1] * array.itemsize
        aligned = array.flags.c_contiguous and array.data.ptr % min(16, width & -width) == 0
        return array if aligned else array.copy(order="C")

    def mark(self, chunk: Chunk, ids: Any) -> tuple[Any, int]:
        """Bits of a chunk's live rows whose ids are in an ascending list on the device, and their number."""
        marked, count = self.cp.empty(-(-len(chunk) // 32), np.uint32), self.cp.zeros(1, np.uint64)
        row = opaque(table((chunk,)))
        self._kernels.launch("mark", -(-len(chunk) // THREADS), row, ids, np.int64(len(ids)), marked, count)
        return marked, int(count[0])

    def scratch(self, task: Task) -> Scratch:
        """Memory of a search, with the queries in it."""
        return Scratch(self._kernels, task)

    def staged(self, chunks: tuple[Chunk, ...]) -> Iterator[tuple[Chunk, ...]]:
        """Chunks in groups whose codes are on the device: all that are held there, then the others one by one.

        While a chunk is searched, the next is copied. One search at a time does so.
        """
        resident = tuple(chunk for chunk in chunks if not chunk.streamed)
        streamed = [chunk for chunk in chunks if chunk.streamed]
        if resident:
            yield resident
        if streamed:
            with self._staging:
                yield from self._copied(streamed)

    def _copied(self, chunks: list[Chunk]) -> Iterator[tuple[Chunk, ...]]:
        cp = self.cp
        current, copying = cp.cuda.get_current_stream(), cp.cuda.Stream(non_blocking=True)
        buffers = [cp.empty(max(chunk.codes.nbytes for chunk in chunks), np.uint8) for _ in range(2)]
        copied, searched = ([cp.cuda.Event(), cp.cuda.Event()] for _ in range(2))
        copying.wait_event(current.record())  # the buffers' memory may have been in use

        def copy(i: int) -> None:
            codes = chunks[i].codes
            copying.wait_event(searched[i % 2])
            buffers[i % 2][: codes.nbytes].set(codes.reshape(-1), stream=copying)
            copied[i % 2].record(copying)

        try:
            copy(0)
            for i, chunk in enumerate(chunks):
                if i + 1 < len(chunks):
                    copy(i + 1)
                current.wait_event(copied[i % 2])
                codes = buffers[i % 2][: chunk.codes.nbytes].reshape(chunk.codes.shape)
                yield (replace(chunk, codes=codes),)
                searched[i % 2].record(current)
        finally:
            copying.synchronize()
