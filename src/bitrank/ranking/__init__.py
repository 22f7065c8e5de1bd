"""Learn how to ask: rankers, the evidence they learn from, the solvers, and the gate that judges what was learned."""

from typing import TYPE_CHECKING

from bitrank.lazy import attach

if TYPE_CHECKING:
    from bitrank.ranking.agreement import AgreementRanker
    from bitrank.ranking.online import OnlineRankingSVM
    from bitrank.ranking.query_adaptive import QueryAdaptiveRanker
    from bitrank.ranking.query_vector import QueryVectorRanker
    from bitrank.ranking.ranking_svm import RankingSVM
    from bitrank.ranking.whrank import WhRank

__all__ = [
    "AgreementRanker",
    "OnlineRankingSVM",
    "QueryAdaptiveRanker",
    "QueryVectorRanker",
    "RankingSVM",
    "WhRank",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "agreement": ("AgreementRanker",),
        "online": ("OnlineRankingSVM",),
        "query_adaptive": ("QueryAdaptiveRanker",),
        "query_vector": ("QueryVectorRanker",),
        "ranking_svm": ("RankingSVM",),
        "whrank": ("WhRank",),
    },
)
