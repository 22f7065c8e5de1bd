"""`PerQueryRanker`: base of rankers that learn for each query apart; adds trust."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from bitrank.core.archives import Archive
from bitrank.core.checks import check_codes
from bitrank.core.types import Codes, Queries, Weights
from bitrank.ranking.evidence.kinds import LabelEvidence, Matrix, PairEvidence, QueryRows
from bitrank.ranking.gate.folds import Validation
from bitrank.ranking.gate.report import Scoring
from bitrank.ranking.ranker import Ranker
from bitrank.ranking.trust import (
    MOST_ROWS,
    Doubt,
    sample_collection,
    trust_in_classes,
    trust_in_clicks,
    trust_in_queries,
)

_EVIDENCE = ("labels", "pairs", "vectors", "clicks")


@dataclass(eq=False, repr=False, kw_only=True)
class PerQueryRanker(Ranker):
    """A ranker that treats every query by itself, and trusts what it learned as far as the query is like it.

    It keeps a sample of the codes that it learned from: training rows, or training queries where it learned from pairs.
    Where it learned beside a collection, it keeps a sample of that too, for queries whose collection is not named.
    """

    learned_from_: str = field(init=False)  # one of _EVIDENCE
    sample_: Codes = field(init=False)
    collection_: Codes = field(init=False)  # without rows where it learned without a collection

    scoring: Scoring = "guarded"
    validation: Validation = "rows"
    random_state: Any = None

    _facts: ClassVar[tuple[str, ...]] = ("learned_from_",)

    def _samples(self, evidence: LabelEvidence | PairEvidence, random: np.random.Generator) -> tuple[str, Codes, Codes]:
        """The kind of evidence, and codes to tell the trust of queries from: of the evidence, and of the collection."""
        codes = evidence.queries.codes
        if isinstance(evidence, PairEvidence):
            codes = codes[np.unique(evidence.pairs[evidence.pairs[:, 2] > 0, 0])]
        sample = codes[random.permutation(len(codes))[:MOST_ROWS]]
        if isinstance(evidence, PairEvidence):
            return "pairs", sample, sample[:0]
        return "labels", sample, sample[:0] if evidence.collection is None else evidence.collection

    def _queries_for(self, queries: QueryRows, features: Matrix | None, collection: Any) -> Queries:
        return self._vectors_for(queries, features, self._trust(queries, features, collection))

    def _trust(self, queries: QueryRows, features: Matrix | None, collection: Any) -> Weights:
        if self._blend_for(queries, features) == 0 or self.learned_from_ == "vectors":
            return np.ones(len(queries.codes), np.float32)  # nothing was learned of some queries alone
        if self.learned_from_ == "pairs":
            return trust_in_queries(queries.codes, self.sample_)
        codes = sample_collection(collection, self.n_bits_)
        if codes is None and len(self.collection_):
            codes = self.collection_
        if self.learned_from_ == "clicks":
            return trust_in_clicks(queries.codes, self.sample_, codes)
        return trust_in_classes(queries.codes, self.sample_, codes, self._doubt())

    def _blend_for(self, queries: QueryRows, features: Matrix | None) -> float:
        """λ of what answers queries that come like these."""
        return self.blend_

    @abstractmethod
    def _doubt(self) -> Doubt:
        """Doubt about queries after learning from labels."""

    @abstractmethod
    def _vectors_for(self, queries: QueryRows, features: Matrix | None, trust: Weights) -> Queries:
        """Answer for checked queries, each with its trust."""

    def _to_archive(self) -> Archive:
        archive = super()._to_archive()
        archive.arrays.update({name: getattr(self, name) for name in ("sample_", "collection_")})
        return archive

    @classmethod
    def _from_archive(cls, archive: Archive) -> Self:
        samples = {name: archive.arrays.pop(name, None) for name in ("sample_", "collection_")}
        ranker = super()._from_archive(archive)
        for name, codes in samples.items():
            setattr(ranker, name, check_codes(codes, ranker.n_bits_, name=name))
        if ranker.learned_from_ not in _EVIDENCE:
            raise ValueError(f"expected learned_from_ among {_EVIDENCE}, got {ranker.learned_from_!r:.80}")
        return ranker
