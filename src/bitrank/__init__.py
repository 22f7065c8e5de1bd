"""Ranking with binary codes: learn a weight per bit, rank by weighted Hamming distance."""

from typing import TYPE_CHECKING

from bitrank.lazy import attach

if TYPE_CHECKING:
    from bitrank.agreement import AgreementRanker
    from bitrank.engines import connect
    from bitrank.hashing import ITQ, LSH, IsotropicHashing, SignBits, SpectralHashing
    from bitrank.index import Index
    from bitrank.online import OnlineRankingSVM
    from bitrank.query_adaptive import QueryAdaptiveRanker
    from bitrank.query_vectors import QueryVectorRanker
    from bitrank.ranking_svm import RankingSVM
    from bitrank.storage import IndexFormatError
    from bitrank.whrank import WhRank

__all__ = [
    "ITQ",
    "LSH",
    "AgreementRanker",
    "Index",
    "IndexFormatError",
    "IsotropicHashing",
    "OnlineRankingSVM",
    "QueryAdaptiveRanker",
    "QueryVectorRanker",
    "RankingSVM",
    "SignBits",
    "SpectralHashing",
    "WhRank",
    "connect",
]

__version__ = "0.1.0"

__getattr__, __dir__ = attach(
    __name__,
    {
        "agreement": ("AgreementRanker",),
        "engines": ("connect",),
        "hashing": ("ITQ", "LSH", "IsotropicHashing", "SignBits", "SpectralHashing"),
        "index": ("Index",),
        "online": ("OnlineRankingSVM",),
        "query_adaptive": ("QueryAdaptiveRanker",),
        "query_vectors": ("QueryVectorRanker",),
        "ranking_svm": ("RankingSVM",),
        "storage": ("IndexFormatError",),
        "whrank": ("WhRank",),
    },
)
