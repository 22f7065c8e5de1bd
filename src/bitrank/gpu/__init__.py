"""Exact search by weighted Hamming distance on a GPU: the index, its chunks, the plan of a search, and the kernels."""

from typing import TYPE_CHECKING, Any

from bitrank.core.lazy import attach, import_extra

if TYPE_CHECKING:
    from bitrank.gpu.cuda import DeviceError
    from bitrank.gpu.index import GpuIndex

__all__ = ["DeviceError", "GpuIndex"]

_get, __dir__ = attach(__name__, {"DeviceError": "cuda", "GpuIndex": "index"}, __all__)


def __getattr__(name: str) -> Any:
    if name in __all__:
        import_extra("cupy", "gpu")
    return _get(name)
