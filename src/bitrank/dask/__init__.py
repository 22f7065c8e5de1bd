"""Collections larger than memory, on Dask: encode vectors, draw quadruplets, search, evaluate, Parquet folders.

Collections are Dask arrays with one row per vector, code or label. Results equal those of the functions of the same
name in memory.
"""

from bitrank.core.lazy import import_extra

import_extra("dask.array", "dask")
import_extra("pyarrow.dataset", "dask")

from bitrank.dask.evaluation import evaluate  # noqa: E402
from bitrank.dask.parquet import from_parquet, to_parquet  # noqa: E402
from bitrank.dask.quadruplets import draw_quadruplets  # noqa: E402
from bitrank.dask.search import search  # noqa: E402
from bitrank.dask.vectors import encode  # noqa: E402

__all__ = ["draw_quadruplets", "encode", "evaluate", "from_parquet", "search", "to_parquet"]
