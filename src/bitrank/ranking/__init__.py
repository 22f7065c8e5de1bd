"""Learn how to ask: rankers, the evidence they learn from, the solvers, and the gate that judges what was learned."""

from typing import TYPE_CHECKING

from bitrank.core.lazy import attach
from bitrank.ranking.registry import RANKERS, load_ranker, ranker_class

if TYPE_CHECKING:
    from bitrank.ranking.baselines.agreement import AgreementRanker
    from bitrank.ranking.baselines.mdsh import MDSHRanker
    from bitrank.ranking.baselines.qa_rank import QaRank
    from bitrank.ranking.baselines.whrank import WhRank
    from bitrank.ranking.online import OnlineRankingSVM
    from bitrank.ranking.plain import AsymmetricRanker, UniformRanker
    from bitrank.ranking.query_adaptive import QueryAdaptiveRanker
    from bitrank.ranking.query_vector import QueryVectorRanker
    from bitrank.ranking.ranker import Ranker
    from bitrank.ranking.ranking_svm import RankingSVM

__all__ = [
    "RANKERS",
    "AgreementRanker",
    "AsymmetricRanker",
    "MDSHRanker",
    "OnlineRankingSVM",
    "QaRank",
    "QueryAdaptiveRanker",
    "QueryVectorRanker",
    "Ranker",
    "RankingSVM",
    "UniformRanker",
    "WhRank",
    "load_ranker",
    "ranker_class",
]

__getattr__, __dir__ = attach(__name__, RANKERS | {"Ranker": "ranker"}, __all__)
