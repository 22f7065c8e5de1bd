"""The same ranking in databases and vector engines: one contract, `Engine`, and one module per engine.

A new engine is one new file and one line in `ENGINES`; `connect` and the tests of the contract find it there.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from bitrank.engines.contract import Engine
from bitrank.engines.planes import quantize_weights
from bitrank.engines.shards import PartialResults, Shards
from bitrank.engines.stages import rerank, suggest_candidates

__all__ = [
    "ENGINES",
    "Engine",
    "PartialResults",
    "Shards",
    "connect",
    "quantize_weights",
    "rerank",
    "suggest_candidates",
]

# Module and class by the scheme of the address. The class is called with the address, a name, and options.
ENGINES = {
    "memory": ("bitrank.engines.memory", "MemoryEngine"),
    "postgresql": ("bitrank.engines.postgres", "PostgresEngine"),
    "clickhouse": ("bitrank.engines.clickhouse", "ClickHouseEngine"),
    "chdb": ("bitrank.engines.clickhouse", "ClickHouseEngine"),
    "duckdb": ("bitrank.engines.duckdb", "DuckDBEngine"),
    "faiss": ("bitrank.engines.faiss", "FaissEngine"),
    "milvus": ("bitrank.engines.milvus", "MilvusEngine"),
    "usearch": ("bitrank.engines.usearch", "USearchEngine"),
}


def connect(url: str | Sequence[str], name: str = "codes", **options: Any) -> Engine:
    """Connect to the engine at an address.

    Parameters
    ----------
    url : str or list of str
        ``scheme://…``, with a scheme of `ENGINES`. A list is one collection on several servers, of which number
        ``id % n_shards`` stores the code of an id: pass the same list in the same order every time.
    name : str
        Table or collection of the codes; `Engine.create` makes it.
    **options
        Options of the engine; of a list also ``missing``: see `Shards`.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> with connect("memory://") as engine:
    ...     engine.create(n_bits=3)
    ...     engine.add(pack([[1, 0, 1], [1, 1, 0], [0, 0, 1]]), ids=[7, 8, 9])
    ...     engine.search(pack([[1, 0, 0]]), k=2, weights=[4, 2, 1]).ids
    array([[7, 8]])
    """
    if isinstance(url, list | tuple):
        missing = options.pop("missing", "raise")
        return Shards([connect(address, name, **options) for address in url], missing)
    if not isinstance(url, str):
        raise ValueError(f"url must be text or a list of it, got {url!r}")
    scheme = urlsplit(url).scheme
    if scheme not in ENGINES:
        raise ValueError(f"url must begin with one of {', '.join(f'{s}://' for s in ENGINES)}, got {url!r}")
    if not isinstance(name, str) or not name or "\0" in name:
        raise ValueError(f"name must be a text that is not empty, got {name!r}")
    module, class_name = ENGINES[scheme]
    engine: Engine = getattr(importlib.import_module(module), class_name)(url, name, **options)
    return engine
