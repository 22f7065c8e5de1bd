"""The path of data over collections larger than memory, on Dask: encode, draw quadruplets, evaluate, search.

Collections are Dask arrays, one row a vector, code or label; each function gives what its namesake gives in memory.
"""

try:
    import dask.array  # noqa: F401
    import pyarrow.dataset  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"this needs {error.name}: pip install 'bitrank[dask]'") from None

from bitrank.batch.evaluation import evaluate
from bitrank.batch.parquet import from_parquet, to_parquet
from bitrank.batch.quadruplets import draw_quadruplets
from bitrank.batch.search import search
from bitrank.batch.vectors import encode

__all__ = ["draw_quadruplets", "encode", "evaluate", "from_parquet", "search", "to_parquet"]
