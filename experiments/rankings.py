"""The rankings that are compared: from the codes of a split to weights for its queries, by name.

Learners that are needed twice are fitted once; `run` asks for one ranking after the other and judges it.
"""

from __future__ import annotations

import copy
from functools import cached_property
from typing import Any

import numpy as np

from bitrank import AgreementRanker, OnlineRankingSVM, QueryAdaptiveRanker, QueryVectorRanker, RankingSVM, WhRank
from bitrank.ranking import gate
from bitrank.ranking.quadruplets import draw_quadruplets
from bitrank.ranking.whrank import asymmetric_weights
from bitrank.vocabulary import Codes
from experiments.data import Coded

# Quadruplets that the paper drew; as many as for MNIST where it says nothing.
PAPER_QUADRUPLETS = {"mnist": 5000, "cifar10": 8000, "youtube_faces": 10_000}

# How far ten quadruplets may move the online weights. A click is worth more than one of 5000 draws from labels: a third
# of what ships, which serves clicks, came closer to offline learning on the two sets on which it was tried.
ONLINE_C = 0.003


class Rankings:
    """Weights of every ranking for the queries of a split.

    Parameters
    ----------
    coded : Coded
    dataset : str
        Its name: the paper draws a number of quadruplets for each.
    seed : int
    """

    def __init__(self, coded: Coded, dataset: str, seed: int) -> None:
        self.coded, self.seed = coded, seed
        self.n_paper = PAPER_QUADRUPLETS.get(dataset, 5000)
        self.query_codes = coded.test_codes[coded.queries]
        self.query_values = coded.test_values[coded.queries]

    def queries(self, name: str) -> tuple[Codes, Any]:
        """Codes to search for and their weights: one vector, one a query, or None for plain Hamming."""
        if name.startswith("QueryVector"):
            learner = QueryVectorRanker(validation="classes" if name.endswith("-classes") else "rows")
            self.learn(learner, self.coded.features, np.abs(self.coded.values))
            return learner.queries_for(self.query_codes, self.coded.query_features, np.abs(self.query_values))
        return self.query_codes, self.weights(name)

    def weights(self, name: str) -> Any:
        """The weights of a ranking that leaves the queries' codes as they are."""
        if name == "Hamming":
            return None
        if name == "asymmetric":
            return asymmetric_weights(self.query_values)
        if name == "WhRank":
            return self.whrank.weights_
        if name == "WhRank-adaptive":
            return self.whrank.weights_for(self.query_codes, magnitudes=np.abs(self.query_values))
        if name == "Agreement":
            ranker = AgreementRanker(random_state=self.seed).fit(self.coded.values, self.coded.y)
            return ranker.weights_for(self.query_codes, magnitudes=np.abs(self.query_values))
        if name.startswith("paper-"):
            return self.paper(name.removeprefix("paper-").lower(), self.n_paper)
        if name == "RankingSVM":
            return self.ranking_svm.weights_
        if name == "RankingSVM-map":
            return self.ranking_svm_map()
        if name == "RankingSVM-classes":
            return self.learn(RankingSVM(validation="classes")).weights_
        if name == "Online":
            return self.learn(OnlineRankingSVM(C=ONLINE_C)).weights_
        if name == "QueryAdaptive":
            return self.with_blend("guarded").weights_for(self.query_codes)
        if name == "QueryAdaptive-map":
            return self.query_adaptive.weights_for(self.query_codes)
        if name == "QueryAdaptive-classes":
            return self.learn(QueryAdaptiveRanker(validation="classes")).weights_for(self.query_codes)
        if name == "RankingSVM-float":
            return self.on_magnitudes(RankingSVM())
        if name == "QueryAdaptive-float":
            return self.on_magnitudes(QueryAdaptiveRanker())
        raise ValueError(f"no ranking is called {name!r}")

    def learn(self, learner: Any, *more: Any) -> Any:
        """Fit a learner of bitrank, otherwise as it comes, to codes, labels, and magnitudes or vectors."""
        learner.set_params(n_bits=self.coded.n_bits, random_state=self.seed)
        return learner.fit(self.coded.codes, self.coded.y, *more)

    def on_magnitudes(self, learner: Any) -> Any:
        """Weights for float queries, from a learner that has seen the magnitudes of the rows."""
        learner = self.learn(learner, np.abs(self.coded.values))
        return learner.weights_for(self.query_codes, magnitudes=np.abs(self.query_values))

    def paper(self, solver: str, n_quadruplets: int) -> Any:
        """The paper's objective, constants and draw."""
        learner = RankingSVM(C=100, prior="zero", n_quadruplets=n_quadruplets, solver=solver)
        return self.learn(learner).weights_

    @cached_property
    def whrank(self) -> WhRank:
        """WhRank, from the values before the sign."""
        return WhRank(random_state=self.seed).fit(self.coded.values, self.coded.y)

    @cached_property
    def ranking_svm(self) -> RankingSVM:
        """RankingSVM as it ships."""
        return self.learn(RankingSVM())

    @cached_property
    def query_adaptive(self) -> QueryAdaptiveRanker:
        """QueryAdaptiveRanker by MAP: what it learns serves the guarded one, which ships, too."""
        return self.learn(QueryAdaptiveRanker(scoring="map"))

    def with_blend(self, scoring: gate.Scoring) -> QueryAdaptiveRanker:
        """What another scoring gives: the same weights per query, and another share of them."""
        line = gate.pick(self.query_adaptive.report_, scoring)
        ranker = copy.copy(self.query_adaptive)
        ranker.blend_ = 0.0 if line is None else line["blend"]
        return ranker

    def ranking_svm_map(self) -> Any:
        """What scoring="map" chooses, from the report of the default fit, and learned from a fresh draw of all rows."""
        line = gate.pick(self.ranking_svm.report_, "map")
        if line is None:
            return np.ones(self.coded.n_bits, np.float32)
        drawn = draw_quadruplets(
            self.coded.y,
            self.ranking_svm.n_quadruplets,
            strategy=line["strategy"],
            n_neighbors=line["n_neighbors"],
            codes=self.coded.codes,
            random_state=self.seed,
        )
        learner = RankingSVM(self.coded.n_bits, C=(line["C_order"], line["C_tie"]))
        return gate.blend(learner.fit_quadruplets(self.coded.codes, drawn).weights_, line["blend"])
