"""`PerQueryRanker`: base of rankers that learn for each query apart; adds trust."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from bitrank.core.archives import Archive
from bitrank.core.checks import check_codes
from bitrank.core.types import Codes, Weights
from bitrank.ranking.evidence.kinds import LabelEvidence, PairEvidence, QueryRows, as_codes
from bitrank.ranking.gate.folds import Validation
from bitrank.ranking.ranker import Ranker
from bitrank.ranking.trust import MOST_ROWS, Calibration, Calibrations, Doubt

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

    scoring: str = "guarded"
    validation: Validation = "rows"
    random_state: Any = None

    _facts: ClassVar[tuple[str, ...]] = ("learned_from_",)

    def _samples(self, evidence: LabelEvidence | PairEvidence, random: np.random.Generator) -> tuple[str, Codes, Codes]:
        """The kind of evidence, and codes to tell the trust of queries from: of the evidence, and of the collection."""
        # Points of codes are compared with each other, not with points of vectors.
        codes = evidence.queries.codes if evidence.codes.dtype == np.uint8 else as_codes(evidence.codes)
        if isinstance(evidence, PairEvidence):
            codes = evidence.queries.codes[np.unique(evidence.pairs[evidence.pairs[:, 2] > 0, 0])]
        sample = codes[random.permutation(len(codes))[:MOST_ROWS]]
        if isinstance(evidence, PairEvidence):
            return "pairs", sample, sample[:0]
        return "labels", sample, sample[:0] if evidence.collection is None else as_codes(evidence.collection)

    def _trust(self, queries: QueryRows, collection: Any, blend: float) -> Weights:
        """The trust in each query, of which this share was learned."""
        if blend == 0 or self.learned_from_ == "vectors":
            return np.ones(len(queries.codes), np.float32)  # nothing was learned of some queries alone
        return self.calibrate(collection).trust(queries.codes)

    def calibrate(self, collection: Any = None) -> Calibration:
        """What the trust in queries to a collection is told from, to give to `queries_for` in its place.

        It is made at the first call, for an `Index`, an engine or packed codes, and again when a twentieth of an index
        has changed, or ten minutes later for an engine.
        """
        if isinstance(collection, Calibration):
            if collection.sample is not self.sample_:
                raise ValueError("collection must be a calibration of this ranker, got another's")
            return collection
        kept: tuple[Codes, Calibrations] | None = self.__dict__.get("_calibrations")
        if kept is None or kept[0] is not self.sample_:  # the first call, or one after another fit
            kept = self._calibrations = self.sample_, Calibrations()

        def make(codes: Codes) -> Calibration:
            return Calibration(self.sample_, as_codes(codes), self.learned_from_, self._doubt())

        if collection is not None and self.learned_from_ != "pairs":
            return kept[1].of(collection, self.n_bits_, make)
        kept[1].own = kept[1].own or make(self.collection_)
        return kept[1].own

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_calibrations"}

    @abstractmethod
    def _doubt(self) -> Doubt:
        """Doubt about queries after learning from labels."""

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
