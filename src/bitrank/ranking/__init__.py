"""Learn how to ask: rankers, the evidence they learn from, the solvers, and the gate that judges what was learned."""

from typing import TYPE_CHECKING

from bitrank.core.lazy import attach
from bitrank.ranking.registry import RANKERS, load_ranker, ranker_class

if TYPE_CHECKING:
    from bitrank.ranking.online import OnlineRankingSVM as OnlineRankingSVM
    from bitrank.ranking.plain import AsymmetricRanker as AsymmetricRanker
    from bitrank.ranking.plain import UniformRanker as UniformRanker
    from bitrank.ranking.query_adaptive import QueryAdaptiveRanker as QueryAdaptiveRanker
    from bitrank.ranking.query_vector import QueryVectorRanker as QueryVectorRanker
    from bitrank.ranking.ranker import Ranker as Ranker
    from bitrank.ranking.ranking_svm import RankingSVM as RankingSVM
    from bitrank_papers.agreement import AgreementRanker as AgreementRanker
    from bitrank_papers.mdsh import MDSHRanker as MDSHRanker
    from bitrank_papers.qa_rank import QaRank as QaRank
    from bitrank_papers.whrank import WhRank as WhRank

__all__ = ["RANKERS", "Ranker", "ranker_class", "load_ranker", *RANKERS]

__getattr__, __dir__ = attach(__name__, RANKERS | {"Ranker": "ranker"}, __all__)
