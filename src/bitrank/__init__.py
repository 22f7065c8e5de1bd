"""Search and rank with bits: weighted Hamming distance, with weights that are learned."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bitrank.collection import Collection
    from bitrank.core.codes import pack
    from bitrank.core.embeddings import from_embeddings, read_fps
    from bitrank.core.types import Queries, Results
    from bitrank.engines import connect
    from bitrank.hashing import ITQ, BitPlanes, SignBits, load_hasher
    from bitrank.index import Index, IndexFormatError
    from bitrank.ranking import AsymmetricRanker, OnlineRankingSVM, QueryVectorRanker, RankingSVM, load_ranker

__all__ = [
    "ITQ",
    "AsymmetricRanker",
    "BitPlanes",
    "Collection",
    "Index",
    "IndexFormatError",
    "OnlineRankingSVM",
    "Queries",
    "QueryVectorRanker",
    "RankingSVM",
    "Results",
    "SignBits",
    "connect",
    "from_embeddings",
    "load_hasher",
    "load_ranker",
    "pack",
    "read_fps",
]

__version__ = "0.1.0"

_ROOMS = ("hashing", "ranking", "core.types", "core.codes", "index", "engines", "collection")


def __getattr__(name: str) -> Any:
    """A name of `__all__`, from the first room that has it: rooms are imported when a name of theirs is first used."""
    if name in __all__:
        for room in _ROOMS:
            if hasattr(module := import_module(f"{__name__}.{room}"), name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
