"""The same ranking on engines that people already run: PostgreSQL and others hold the codes, learned weights rank them.

`connect` finds the engine of an address; every engine keeps one contract, `Engine`.
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

# Scheme of an address, the module that serves it, and the class in it: called with the address, a name, and options.
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
    """The engine at an address.

    Parameters
    ----------
    url : str or list of str
        ``scheme://…``: the scheme says which engine, see `ENGINES`. A list is one collection over several servers,
        which share the ids between them by ``id % n_shards``: the same list in the same order every time.
    name : str
        Table or collection that holds the codes; `Engine.create` makes it.
    **options
        Those of the engine, by name; of a list also ``missing``: ``"raise"`` (default) or ``"report"`` when a
        server does not answer a search, see `Shards`.

    Examples
    --------
    >>> from bitrank.codes import pack
    >>> with connect("memory://") as engine:
    ...     engine.create(n_bits=3)
    ...     engine.add(pack([[1, 0, 1], [1, 1, 0], [0, 0, 1]]), ids=[7, 8, 9])
    ...     engine.search(pack([[1, 0, 0]]), k=2, weights=[4, 2, 1]).ids
    array([[7, 8]])
    """
    if isinstance(url, list | tuple):
        missing = options.pop("missing", "raise")
        return Shards([connect(each, name, **options) for each in url], missing)
    if not isinstance(url, str):
        raise ValueError(f"url must be text or a list of it, got {url!r}")
    scheme = urlsplit(url).scheme
    if scheme not in ENGINES:
        raise ValueError(f"url must begin with one of {', '.join(f'{s}://' for s in ENGINES)}, got {url!r}")
    if not isinstance(name, str) or not name or "\0" in name:
        raise ValueError(f"name must be a text that is not empty, got {name!r}")
    module, engine = ENGINES[scheme]
    made: Engine = getattr(importlib.import_module(module), engine)(url, name, **options)
    return made
