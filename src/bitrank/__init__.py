"""Search and rank with bits: weighted Hamming distance, with weights that are learned."""

from typing import TYPE_CHECKING

from bitrank.core.lazy import attach

if TYPE_CHECKING:
    from bitrank.collection import Collection
    from bitrank.core.codes import pack
    from bitrank.core.embeddings import from_embeddings
    from bitrank.core.types import Queries, Results
    from bitrank.engines import connect
    from bitrank.hashing import ITQ, SignBits, load_hasher
    from bitrank.index import Index, IndexFormatError
    from bitrank.ranking import AsymmetricRanker, OnlineRankingSVM, QueryVectorRanker, RankingSVM, load_ranker

__all__ = [
    "ITQ",
    "AsymmetricRanker",
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
]

__version__ = "0.1.0"

# The room of each name, imported when the name is first used: the rest is found in the rooms themselves.
_ROOMS = {
    "collection": ("Collection",),
    "core.types": ("Queries", "Results"),
    "core.codes": ("pack",),
    "core.embeddings": ("from_embeddings",),
    "hashing": ("ITQ", "SignBits", "load_hasher"),
    "index": ("Index", "IndexFormatError"),
    "ranking": ("AsymmetricRanker", "OnlineRankingSVM", "QueryVectorRanker", "RankingSVM", "load_ranker"),
    "engines": ("connect",),
}
__getattr__, __dir__ = attach(__name__, {name: room for room, names in _ROOMS.items() for name in names}, __all__)
