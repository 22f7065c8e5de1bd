"""`QueryVectorRanker`: learn a real vector per query, from its bits and whatever else is known of it.

Weights cannot repair a bit of the query that fell on the wrong side; a vector can. Its signs are a code and its sizes
are weights, so the same search answers it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bitrank.core.archives import Archive
from bitrank.core.checks import check_count
from bitrank.core.codes import signs, split_vectors
from bitrank.core.types import Codes, Queries, Rows, Weights
from bitrank.ranking.decoder import learn_decoder
from bitrank.ranking.evidence.kinds import (
    LabelEvidence,
    Matrix,
    PairEvidence,
    QueryRows,
    VectorEvidence,
    check_label_evidence,
)
from bitrank.ranking.gate import choose as gate
from bitrank.ranking.gate import pair_gate
from bitrank.ranking.gate.near import Factor, mean_one
from bitrank.ranking.networks.batches import Batch, LabelBatches, PairBatches
from bitrank.ranking.networks.inputs import Inputs, take
from bitrank.ranking.networks.loss import class_numbers
from bitrank.ranking.networks.network import Network, start_network, train
from bitrank.ranking.networks.query_parts import Part, StoredPart
from bitrank.ranking.networks.threads import one_blas_thread
from bitrank.ranking.per_query import PerQueryRanker
from bitrank.ranking.trust import MOST_ROWS, NO_DOUBT, Doubt, sample_collection, unlabelled_items

# Learning rates are divided by the number of bits.
_LABEL_RATE, _MOST_LABEL_RATE = 0.96, 0.03
_PAIR_RATE, _PAIR_SCALE, _PAIR_STEPS = 0.2, 1.5, 300
# Pairs are few beside the entries of A, which returns towards its start by this share per step: less of it the more
# queries there are.
_PAIR_DECAY, _PAIR_DECAY_QUERIES = 0.25, 62.0
_MAGNITUDES = 2000  # rows of magnitudes to lend to items that have none
# After learning without a collection. When half of the classes of digits, MNIST, CIFAR-10 and banking77 had been
# learned, two thirds of the gain and more stayed.
_DOUBT = Doubt(0.85)


@dataclass(eq=False, repr=False, kw_only=True)
class QueryVectorRanker(PerQueryRanker):
    """Learn a vector per query from labels, judged pairs, or the vectors that codes were made from.

    From labels it is f(q) = a∘q + b + B relu(C φ), from pairs f(q) = A φ + b; both start at the query q itself. φ is
    what is known of the query: its code as ±1, or its reals where it has them, and the leading components of its
    features. The vector is blended with the query, (1 − λt)·q + λt·f(q), both scaled to a mean size of 1. The gate
    chooses λ, and which of the inputs to use, on held-out data: more inputs are used only where they help. The
    trust t of each query, from 0 to 1, says how much it is like what was learned from (see `bitrank.ranking.trust`).
    Where nothing helps, or a query is unlike anything seen, the ranking is Hamming's or that of the asymmetric
    distance. The vector may flip bits of the query: `queries_for` gives a code beside the weights.

    Queries may come with less than was learned from. A network of the bits alone answers codes without reals or
    features, and a network without features answers reals that come alone; the gate judges each of them for such
    queries.

    Parameters
    ----------
    n_bits : int, optional
        Length of the codes; by default all bits of their bytes.
    n_hidden : int, default=256
        Rows of C.
    n_steps : int, default=400
        Gradient steps, each on 256 random queries against 1024 random items; from pairs at most 300.
    scoring : {"guarded", "map", "p10"}, default="guarded"
        What λ maximises: MAP among those that do not lower precision at 10, MAP alone, or precision at 10.
    validation : {"rows", "classes"}, default="rows"
        What is held out: rows of every class, or whole classes where future classes will be new.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    bits_part_, reals_part_, full_part_ : Part
        The networks with their inputs and λ: for queries that are codes, for reals without features, and for queries
        with all that was learned from. Parts are the same where queries are.
    blend_ : float
        λ of the full part.
    sample_ : packed codes
        Training rows, which the trust of a query is told from.
    report_ : list of dict
        Every λ and choice of inputs tried, with its held-out figures; the first line is the query itself.
    n_bits_ : int
    n_features_ : int
        Number of features per query; 0 where it learned without.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(4, size=400)
    >>> bits = np.column_stack([y // 2, y % 2, rng.integers(2, size=(400, 6))])
    >>> ranker = QueryVectorRanker(n_steps=50, random_state=0).fit(pack(bits), y)
    >>> queries = ranker.queries_for(pack(bits[:3]), collection=pack(bits))
    >>> queries.codes.shape, bool(queries.weights[:, :2].min() > queries.weights[:, 2:].max())
    ((3, 1), True)
    """

    learns_from = frozenset({"labels", "pairs", "vectors", "features"})
    _facts = ("learned_from_", "n_features_")

    bits_part_: Part = field(init=False)
    reals_part_: Part = field(init=False)
    full_part_: Part = field(init=False)
    n_features_: int = field(init=False)

    n_hidden: int = 256
    n_steps: int = 400

    @one_blas_thread
    def fit(
        self,
        codes: Codes,
        y: npt.ArrayLike,
        *,
        queries: npt.ArrayLike | None = None,
        features: npt.ArrayLike | None = None,
        collection: Any = None,
    ) -> Self:
        """Learn from class labels, as `Ranker.fit`.

        Parameters
        ----------
        codes, y, queries, features : as in `Ranker.fit`
        collection : packed codes, `Index` or engine, optional
            The collection that will be searched, or a sample of it. Its items need no labels: those unlike the rows
            of `codes` stand for classes that have none yet. Labelled queries learn to pass over them, and as queries
            they keep their own ranking.
        """
        evidence = check_label_evidence(codes, y, queries, features, self.n_bits)
        self._fit_labels(evidence._replace(collection=sample_collection(collection, evidence.n_bits)))
        return self

    def _fit_labels(self, evidence: LabelEvidence) -> None:
        self._check_sizes()
        seed, random = self._seeds()
        learner = _LabelLearner(self, evidence, random)

        def choose(some: LabelEvidence, kinds: list[str]) -> gate.Choice:
            return gate.choose(
                some,
                learner.candidates_of(kinds),
                scale_magnitudes=False,
                cross_validate=True,
                scoring=self.scoring,
                validation=self.validation,
                random=np.random.default_rng(seed),
            )

        self._fit_parts(learner, choose, evidence)

    def _fit_pairs(self, evidence: PairEvidence) -> None:
        self._check_sizes()
        seed, random = self._seeds()
        learner = _PairLearner(self, evidence, random)

        def choose(some: PairEvidence, kinds: list[str]) -> gate.Choice:
            candidates = learner.candidates_of(kinds)
            random = np.random.default_rng(seed)
            return pair_gate.choose(some, candidates, scale_magnitudes=False, blends=gate.BLENDS, random=random)

        self._fit_parts(learner, choose, evidence)

    def _fit_vectors(self, evidence: VectorEvidence) -> None:
        for name, value in learn_decoder(evidence, self._seeds()[1]).items():
            setattr(self, name, value)

    def _fit_parts(self, learner: _Learner, choose: Any, evidence: Any) -> None:
        """Choose and learn the parts for bare codes, for queries as they were given, and for reals alone."""
        codes_alone = evidence._replace(queries=QueryRows(evidence.queries.codes, None), features=None)
        choice = choose(codes_alone, ["bits"])
        bits_part = full_part = learner.part("bits", choice.blend)
        if len(learner.kinds) > 1:
            choice = choose(evidence, learner.kinds)
            kind = "bits" if choice.params is None else choice.params["inputs"]
            full_part = learner.part(kind, choice.blend)
        self._keep_sample(evidence, learner.random)
        reals_part = full_part
        if full_part.inputs.with_features:
            reals_part = bits_part
            if evidence.queries.magnitudes is not None:
                kinds = [kind for kind in learner.kinds if kind != "features"]
                without = choose(evidence._replace(features=None), kinds)
                kind = "bits" if without.params is None else without.params["inputs"]
                reals_part = learner.part(kind, without.blend)
        self.bits_part_, self.reals_part_, self.full_part_ = bits_part, reals_part, full_part
        self.n_bits_, self.blend_, self.report_ = evidence.n_bits, choice.blend, choice.report
        self.n_features_ = 0 if evidence.features is None else evidence.features.shape[1]

    def _doubt(self) -> Doubt:
        return NO_DOUBT if len(self.collection_) else _DOUBT

    def _part_for(self, queries: QueryRows, features: Matrix | None) -> Part:
        """The part that the gate judged for queries that come like these."""
        inputs = self.full_part_.inputs
        if queries.magnitudes is not None:
            return self.reals_part_ if features is None else self.full_part_
        with_features = features is not None and inputs.with_features and not inputs.reals
        return self.full_part_ if with_features else self.bits_part_

    def _blend_for(self, queries: QueryRows, features: Matrix | None) -> float:
        return self._part_for(queries, features).blend

    def _vectors_for(self, queries: QueryRows, features: Matrix | None, trust: Weights) -> Queries:
        part = self._part_for(queries, features)
        bits = signs(queries.codes, self.n_bits_)
        itself = mean_one(np.ones(bits.shape) if queries.magnitudes is None else queries.magnitudes)
        learned = mean_one(bits * part.network(part.inputs(queries, features, self.n_bits_)))
        share = part.blend * trust[:, None]
        return Queries(*split_vectors(bits * ((1 - share) * itself + share * learned)), trust)

    def _check_sizes(self) -> None:
        for name in ("n_steps", "n_hidden"):
            check_count(name, getattr(self, name), 1)

    def _parts(self) -> dict[str, Part]:
        parts = {"bits": self.bits_part_, "full": self.full_part_}
        return parts | ({"reals": self.reals_part_} if self.full_part_.inputs.with_features else {})

    def _to_archive(self) -> Archive:
        archive = super()._to_archive()
        for name, part in self._parts().items():
            part.write(archive, name)
        return archive

    @classmethod
    def _from_archive(cls, archive: Archive) -> Self:
        names = ["bits", "full", *(["reals"] if "reals_part" in archive.facts else [])]
        stored = {name: StoredPart.take(archive, name) for name in names}
        ranker = super()._from_archive(archive)
        parts = {name: part.check(ranker.n_bits_) for name, part in stored.items()}
        ranker.bits_part_, ranker.full_part_ = bits, full = parts["bits"], parts["full"]
        ranker.reals_part_ = parts.get("reals", full)
        if "reals" not in parts and full.inputs.with_features:  # an older file, without a part for reals alone
            ranker.reals_part_ = bits._replace(blend=0.0) if full.inputs.reals else bits
        return ranker


class _Learner:
    """Networks for every kind of inputs, each learned once from the same rows."""

    def __init__(self, ranker: QueryVectorRanker, evidence: Any, random: np.random.Generator) -> None:
        self.ranker, self.evidence, self.random = ranker, evidence, random
        self.inputs = {"bits": Inputs.learn(False, None, random)}
        if evidence.queries.magnitudes is not None:
            self.inputs["reals"] = Inputs.learn(True, None, random)
        if evidence.features is not None:
            reals = evidence.queries.magnitudes is not None
            self.inputs["features"] = Inputs.learn(reals, evidence.features, random)
        self.kinds = list(self.inputs)
        self._learned: dict[tuple[str, bytes], Network] = {}

    def candidates_of(self, kinds: list[str]) -> gate.Candidates:
        """Candidates for some kinds of inputs."""

        def candidates(rows: Rows) -> Iterator[tuple[dict[str, Any], Factor]]:
            for kind in kinds:
                key = kind, rows.tobytes()
                if key not in self._learned:
                    self._learned[key] = self.train(kind, rows, "query vectors, to choose the blend")
                yield {"inputs": kind}, self._factor(kind, self._learned[key])

        return candidates

    def part(self, kind: str, blend: float) -> Part:
        """The part for a kind of inputs, learned from all rows where it has a share."""
        inputs = self.inputs[kind]
        if blend > 0:
            return Part(inputs, self.train(kind, None, "query vectors"), blend)
        n_bits = self.evidence.n_bits
        return Part(inputs, start_network(n_bits, inputs.n_inputs(n_bits), self.random, n_hidden=1), 0.0)

    def train(self, kind: str, rows: Rows | None, label: str) -> Network:
        """Learn a network from some rows of the evidence, or from all."""
        raise NotImplementedError

    def inputs_of(self, kind: str, queries: Rows) -> Matrix:
        """φ of some queries."""
        evidence = self.evidence
        return self.inputs[kind](evidence.queries.take(queries), take(evidence.features, queries), evidence.n_bits)

    def inputs_of_batch(self, kind: str, batch: Batch) -> Matrix:
        """φ of the queries of a batch; unlabelled ones have no features."""
        phi = self.inputs_of(kind, batch.queries)
        if batch.unlabelled is None:
            return phi
        more = np.zeros((len(batch.unlabelled), phi.shape[1]), np.float32)
        more[:, : self.evidence.n_bits] = batch.unlabelled
        more[:, -1] = 1
        return np.vstack([phi, more])

    def _factor(self, kind: str, network: Network) -> Factor:
        def factor(queries: Rows) -> Weights:
            # As weights of the query's own bits: negative where the vector flips a bit.
            bits = signs(self.evidence.queries.codes[queries], self.evidence.n_bits)
            return bits * network(self.inputs_of(kind, queries))

        return factor


class _LabelLearner(_Learner):
    """Networks learned from labels."""

    def __init__(self, ranker: QueryVectorRanker, evidence: LabelEvidence, random: np.random.Generator) -> None:
        super().__init__(ranker, evidence, random)
        sample = evidence.codes[random.permutation(len(evidence.codes))[:MOST_ROWS]]
        self.unlabelled = unlabelled_items(sample, evidence.collection)

    def train(self, kind: str, rows: Rows | None, label: str) -> Network:
        evidence, n_bits = self.evidence, self.evidence.n_bits
        classes = class_numbers(evidence.y, len(evidence.codes))
        rows = np.arange(len(classes)) if rows is None else rows
        magnitudes = None
        if self.inputs[kind].reals and self.unlabelled is not None:
            sample = self.random.permutation(len(evidence.codes))[:_MAGNITUDES]
            magnitudes = mean_one(evidence.queries.magnitudes[sample]).astype(np.float32)
        batches = LabelBatches(evidence.codes, n_bits, classes, rows, self.unlabelled, magnitudes)
        n_inputs = self.inputs[kind].n_inputs(n_bits)
        network = start_network(n_bits, n_inputs, self.random, n_hidden=self.ranker.n_hidden)
        return train(
            network,
            batches,
            lambda batch: self.inputs_of_batch(kind, batch),
            rate=min(_MOST_LABEL_RATE, _LABEL_RATE / n_bits),
            n_steps=self.ranker.n_steps,
            random=self.random,
            label=label,
        )


class _PairLearner(_Learner):
    """Linear maps learned from judged pairs."""

    def train(self, kind: str, rows: Rows | None, label: str) -> Network:
        evidence, n_bits, inputs = self.evidence, self.evidence.n_bits, self.inputs[kind]
        pairs = evidence.pairs if rows is None else evidence.pairs[rows]
        scale = np.float32(_PAIR_SCALE / np.sqrt(n_bits))
        batches = PairBatches(
            evidence.codes, n_bits, pairs, lambda queries: scale * inputs.query(evidence.queries.take(queries), n_bits)
        )
        network = start_network(n_bits, inputs.n_inputs(n_bits), self.random, scale=_PAIR_SCALE)
        return train(
            network,
            batches,
            lambda batch: self.inputs_of_batch(kind, batch),
            rate=_PAIR_RATE / n_bits,
            decay=min(_PAIR_DECAY, _PAIR_DECAY_QUERIES / len(batches.queries)),
            n_steps=min(_PAIR_STEPS, self.ranker.n_steps),
            random=self.random,
            label=label,
        )
