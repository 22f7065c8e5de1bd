"""`PerQueryRanker`: what rankers share that learn for every query apart, the trust in each query above all."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import check_random_state

from bitrank.archives import Archive
from bitrank.checks import check_codes
from bitrank.ranking.evidence import LabelEvidence, Matrix, PairEvidence, QueryRows
from bitrank.ranking.ranker import GatedRanker
from bitrank.ranking.trust import DOUBT, MOST_ROWS, sample_collection, trust_in_classes, trust_in_queries
from bitrank.vocabulary import Codes, Queries, Weights


class PerQueryRanker(GatedRanker):
    """A ranker that treats every query by itself, and trusts what it learned as far as the query is like it.

    It keeps a sample of the codes that it learned from: training rows, or training queries where it learned from pairs.
    """

    learned_from_: str  # "labels" or "pairs"
    knows_collection_: bool
    sample_: Codes

    _facts: ClassVar[tuple[str, ...]] = ("learned_from_", "knows_collection_")

    def _keep_sample(self, evidence: LabelEvidence | PairEvidence, random: np.random.Generator) -> None:
        """Keep codes to tell the trust of queries from."""
        codes = evidence.queries.codes
        if isinstance(evidence, PairEvidence):
            codes = codes[np.unique(evidence.pairs[evidence.pairs[:, 2] > 0, 0])]
        self.learned_from_ = "pairs" if isinstance(evidence, PairEvidence) else "labels"
        self.knows_collection_ = isinstance(evidence, LabelEvidence) and evidence.unlabelled is not None
        self.sample_ = codes[np.sort(random.permutation(len(codes))[:MOST_ROWS])]

    def _queries_for(self, queries: QueryRows, features: Matrix | None, collection: Any) -> Queries:
        codes = sample_collection(collection, self.n_bits_)
        if self.blend_ == 0:
            trust = np.ones(len(queries.codes), np.float32)  # the query itself is all there is
        elif self.learned_from_ == "pairs":
            trust = trust_in_queries(queries.codes, self.sample_)
        else:
            # What was learned beside unlabelled items does little harm to queries that are like these.
            doubt = 0.0 if self.knows_collection_ else DOUBT
            trust = trust_in_classes(queries.codes, self.sample_, codes, doubt)
        return self._vectors_for(queries, features, trust)

    @abstractmethod
    def _vectors_for(self, queries: QueryRows, features: Matrix | None, trust: Weights) -> Queries:
        """Answer for checked queries, each with its trust."""

    def _to_archive(self) -> Archive:
        archive = super()._to_archive()
        archive.arrays["sample_"] = self.sample_
        return archive

    @classmethod
    def _from_archive(cls, archive: Archive) -> Self:
        sample = archive.arrays.pop("sample_", None)
        ranker = super()._from_archive(archive)
        ranker.sample_ = check_codes(sample, ranker.n_bits_, name="sample_")
        if ranker.learned_from_ not in ("labels", "pairs"):
            raise ValueError(f'expected learned_from_ "labels" or "pairs", got {ranker.learned_from_!r:.80}')
        return ranker

    def _seeds(self) -> tuple[int, np.random.Generator]:
        """A seed for the folds of the gate, and a generator for all else."""
        random = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        return int(random.integers(2**31)), random
