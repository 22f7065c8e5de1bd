"""Ranking with binary codes: learn a weight per bit, rank by weighted Hamming distance."""

from typing import TYPE_CHECKING

from bitrank.lazy import attach_packages

if TYPE_CHECKING:
    from bitrank.engines import connect
    from bitrank.hashing import (
        ITQ,
        LSH,
        BinaryReconstructiveEmbeddings,
        IsotropicHashing,
        KernelSupervisedHashing,
        MinimalLossHashing,
        MultidimensionalSpectralHashing,
        OnlineKernelHashing,
        RankingSupervisedHashing,
        SignBits,
        SpectralHashing,
    )
    from bitrank.index import Index, IndexFormatError
    from bitrank.ranking import (
        AgreementRanker,
        AsymmetricRanker,
        MDSHRanker,
        OnlineRankingSVM,
        QaRank,
        QueryAdaptiveRanker,
        QueryVectorRanker,
        Ranker,
        RankingSVM,
        UniformRanker,
        WhRank,
        load_ranker,
    )

__all__ = [
    "ITQ",
    "LSH",
    "AgreementRanker",
    "AsymmetricRanker",
    "BinaryReconstructiveEmbeddings",
    "Index",
    "IndexFormatError",
    "IsotropicHashing",
    "KernelSupervisedHashing",
    "MDSHRanker",
    "MinimalLossHashing",
    "MultidimensionalSpectralHashing",
    "OnlineKernelHashing",
    "OnlineRankingSVM",
    "QaRank",
    "QueryAdaptiveRanker",
    "QueryVectorRanker",
    "Ranker",
    "RankingSVM",
    "RankingSupervisedHashing",
    "SignBits",
    "SpectralHashing",
    "UniformRanker",
    "WhRank",
    "connect",
    "load_ranker",
]

__version__ = "0.1.0"

__getattr__, __dir__ = attach_packages(__name__, __all__, ("index", "hashing", "ranking", "engines"))
