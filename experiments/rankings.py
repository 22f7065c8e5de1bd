"""The rankings that are compared: from the codes of a split to weights for its queries, by name.

Learners that are needed twice are fitted once; `run` asks for one ranking after the other and judges it.
"""

from __future__ import annotations

import copy
from functools import cached_property
from typing import Any

import numpy as np

from bitrank import (
    AgreementRanker,
    AsymmetricRanker,
    OnlineRankingSVM,
    QueryAdaptiveRanker,
    QueryVectorRanker,
    Ranker,
    RankingSVM,
    UniformRanker,
    WhRank,
)
from bitrank.ranking import gate
from bitrank.ranking.held_out import Validation
from bitrank.ranking.quadruplets import draw_quadruplets
from bitrank.vocabulary import Queries
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

    def queries(self, name: str) -> Queries:
        """Codes and weights of a ranking for the queries of the split."""
        validation: Validation = "classes" if name.endswith("-classes") else "rows"
        codes, values = self.query_codes, self.query_values
        match name.removesuffix("-classes"):
            case "Hamming":
                return self.learn(UniformRanker()).queries_for(codes)
            case "asymmetric":
                return self.learn(AsymmetricRanker()).queries_for(values)
            case "WhRank":
                return self.whrank.queries_for(codes)
            case "WhRank-adaptive":
                return self.whrank.queries_for(values)
            case "Agreement":
                return self.learn(AgreementRanker(), queries=self.coded.values).queries_for(values)
            case "paper-EGD" | "paper-PGD" | "paper-exact":
                return self.paper(name.removeprefix("paper-").lower(), self.n_paper).queries_for(codes)
            case "RankingSVM" if validation == "rows":
                return self.ranking_svm.queries_for(codes)
            case "RankingSVM":
                return self.learn(RankingSVM(validation=validation)).queries_for(codes)
            case "RankingSVM-map":
                return self.ranking_svm_map().queries_for(codes)
            case "RankingSVM-float":
                return self.learn(RankingSVM(), queries=self.coded.values).queries_for(values)
            case "Online":
                return self.learn(OnlineRankingSVM(C=ONLINE_C)).queries_for(codes)
            case "QueryAdaptive" if validation == "rows":
                return self.with_blend("guarded").queries_for(codes)
            case "QueryAdaptive":
                return self.learn(QueryAdaptiveRanker(validation=validation)).queries_for(codes)
            case "QueryAdaptive-map":
                return self.query_adaptive.queries_for(codes)
            case "QueryAdaptive-float":
                return self.learn(QueryAdaptiveRanker(), queries=self.coded.values).queries_for(values)
            case "QueryVector":
                learner = QueryVectorRanker(validation=validation)
                self.learn(learner, queries=self.coded.values, features=self.coded.features)
                return learner.queries_for(values, features=self.coded.query_features)
        raise ValueError(f"no ranking is called {name!r}")

    def learn(self, learner: Ranker, **evidence: Any) -> Any:
        """Fit a ranker with default settings to the codes and labels of the training rows."""
        settings = {"n_bits": self.coded.n_bits, "random_state": self.seed}
        learner.set_params(**{name: value for name, value in settings.items() if name in learner.get_params()})
        return learner.fit(self.coded.codes, self.coded.y, **evidence)

    def paper(self, solver: str, n_quadruplets: int) -> RankingSVM:
        """The paper's objective, constants and draw."""
        return self.learn(RankingSVM(C=100, prior="zero", n_quadruplets=n_quadruplets, solver=solver))

    @cached_property
    def whrank(self) -> WhRank:
        """WhRank, from the values before the sign."""
        return self.learn(WhRank(), queries=self.coded.values)

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

    def ranking_svm_map(self) -> Ranker:
        """What scoring="map" chooses, from the report of the default fit, learned from a fresh draw of all rows."""
        line = gate.pick(self.ranking_svm.report_, "map")
        if line is None:
            return self.learn(UniformRanker())
        drawn = draw_quadruplets(
            self.coded.y,
            self.ranking_svm.n_quadruplets,
            strategy=line["strategy"],
            n_neighbors=line["n_neighbors"],
            codes=self.coded.codes,
            random_state=self.seed,
        )
        ranker = RankingSVM(self.coded.n_bits, C=(line["C_order"], line["C_tie"]))
        ranker.fit_constraints(self.coded.codes, drawn)
        ranker.weights_ = gate.blend(ranker.weights_, line["blend"]).astype(np.float32)
        return ranker
