"""`QueryVectorRanker`: learn a real vector per query, from its bits and whatever else is known of it.

Weights cannot repair a bit of the query that fell on the wrong side; a vector can. Its signs are a code and its sizes
are weights, so the same search answers it.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Self

import numpy as np

from bitrank.core.archives import Archive
from bitrank.core.checks import check_count, class_numbers
from bitrank.core.codes import signs, split_vectors
from bitrank.core.types import Codes, Queries, Rows, Weights
from bitrank.ranking.decoder import learn_decoder
from bitrank.ranking.evidence.kinds import (
    LabelEvidence,
    Matrix,
    PairEvidence,
    QueryRows,
    VectorEvidence,
    as_codes,
    as_vectors,
)
from bitrank.ranking.gate import choose as gate
from bitrank.ranking.gate.judge import Factor, mean_one
from bitrank.ranking.gate.report import Report
from bitrank.ranking.networks.batches import Batch, Draw, PairBatches, class_batches
from bitrank.ranking.networks.classes import logistic, some_rows
from bitrank.ranking.networks.network import Inputs, Network, start_network, take, train
from bitrank.ranking.per_query import PerQueryRanker
from bitrank.ranking.trust import MOST_ROWS, NO_DOUBT, Calibration, Doubt

# Learning rates are divided by the number of bits.
_LABEL_RATE, _MOST_LABEL_RATE = 1.2, 0.01
_PAIR_RATE, _PAIR_SCALE, _PAIR_STEPS = 0.2, 1.5, 300
# Pairs are few beside the entries of A, which returns towards its start by this share per step: less of it the more
# queries there are.
_PAIR_DECAY, _PAIR_DECAY_QUERIES = 0.25, 62.0
# Where this share of a collection and more looks new, queries are trusted from the lower to the upper probability of a
# known class. On halves of the classes of four data sets, seeds of their own, queries of new classes lost .005 in MAP.
_NEW_SHARE, _LEAST_KNOWN, _SURELY_KNOWN = 0.25, 0.6, 0.8
# After learning without a collection. When half of the classes of digits, MNIST, CIFAR-10 and banking77 had been
# learned, two thirds of the gain and more stayed.
_DOUBT = Doubt(0.85)


@dataclass(eq=False, repr=False, kw_only=True)
class QueryVectorRanker(PerQueryRanker):
    """Learn a vector per query from labels, judged pairs, or the vectors that codes were made from.

    From labels it is f(q) = Σ_c p(c|q)·w_c: w_c tells items of class c from the rest by their bits, and p is what a
    network makes of φ, starting from a logistic regression. From pairs it is f(q) = A φ + b, starting at the query q
    itself. φ is what is known of the query: its code as ±1, or its reals where it has them, and the leading components
    of its features. The vector is blended with the query, (1 − λt)·q + λt·f(q), both scaled to a mean size of 1. The
    gate chooses λ, and which of the inputs to use, on held-out data: more inputs are used only where they help. The
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
        Hidden units of the network that tells classes.
    n_steps : int, default=400
        Gradient steps, each on 256 random queries; from pairs at most 300.
    scoring : {"guarded", "rare", "map", "p10", "ndcg", "mrr", "bedroc", "recall@N"}, default="guarded"
        What λ maximises on held-out data, see `RankingSVM`.
    validation : {"rows", "classes"}, default="rows"
        What is held out: rows of every class, or whole classes where future classes will be new.
    random_state : int, RandomState instance or None, default=None
    space : {"codes", "vectors"}, default="codes"
        "vectors": items and queries are rows of reals whose products rank, `BitPlanes.points` and
        `BitPlanes.points_of`; n_bits is the length of these rows. A map of them has as many parameters at any number
        of bits, and learns from what the codes tell of the items.

    Attributes
    ----------
    bits_part_, reals_part_, full_part_ : Network
        The networks with their inputs and λ: for queries that are codes, for reals without features, and for queries
        with all that was learned from. Parts are the same where queries are.
    blend_ : float
        λ of the full part.
    sample_ : packed codes
        Training rows, which the trust of a query is told from.
    report_ : Report
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

    bits_part_: Network = field(init=False)
    reals_part_: Network = field(init=False)
    full_part_: Network = field(init=False)
    n_features_: int = field(init=False)

    n_hidden: int = 256
    n_steps: int = 400
    space: Literal["codes", "vectors"] = "codes"

    @classmethod
    def from_network(cls, network: Network, sample: Codes, collection: Codes, *, learned_from: str) -> Self:
        """Wrap a network of the bits, learned elsewhere, with the samples that trust is told from."""
        n_bits, n_hidden = len(network.shift), max(1, len(network.inner))
        ranker = cls(n_bits, n_hidden=n_hidden)
        ranker._keep(network, network, network, learned_from, sample, collection)
        ranker.n_bits_, ranker.blend_, ranker.report_ = n_bits, network.blend, Report()
        return ranker

    def _fit_labels(self, evidence: LabelEvidence) -> Report:
        return self._fit_networks(_LabelLearner(self, evidence))

    def _fit_pairs(self, evidence: PairEvidence) -> Report:
        return self._fit_networks(_PairLearner(self, evidence))

    def _fit_vectors(self, evidence: VectorEvidence) -> Report:
        if self.space != "codes":
            raise ValueError(f'space must be "codes" to learn from vectors, got {self.space!r}')
        random = self._random()
        random.integers(2**31)  # as learners do, for a seed
        bits, full, report = learn_decoder(evidence, random)
        nothing = evidence.codes[:0]
        self._keep(bits, full, full, "vectors", nothing, nothing)
        return report

    def _fit_networks(self, learner: _Learner) -> Report:
        """Choose and learn the networks for bare codes, for queries as they were given, and for reals alone."""
        evidence, kinds = learner.evidence, learner.kinds
        if self.space == "vectors":
            report = learner.choose(evidence, kinds)
            full = learner.network(report)
            self._keep(full, full, full, *self._samples(evidence, learner.random))
            return report
        codes_alone = evidence._replace(queries=QueryRows(evidence.queries.codes, None), features=None)
        report = learner.choose(codes_alone if len(kinds) > 1 else evidence, ["bits"])
        bits = full = learner.network(report)
        if len(kinds) > 1:
            report = learner.choose(evidence, kinds)
            full = learner.network(report)
        learned_from, sample, collection = self._samples(evidence, learner.random)
        reals = full
        if full.inputs.with_features:
            reals = bits
            if evidence.queries.magnitudes is not None:
                without = learner.choose(evidence._replace(features=None), kinds[:-1])
                reals = learner.network(without)
        n_features = 0 if evidence.features is None else evidence.features.shape[1]
        self._keep(bits, reals, full, learned_from, sample, collection, n_features)
        return report

    def _keep(
        self,
        bits: Network,
        reals: Network,
        full: Network,
        learned_from: str,
        sample: Codes,
        collection: Codes,
        n_features: int = 0,
    ) -> None:
        """Take what was learned."""
        self.bits_part_, self.reals_part_, self.full_part_ = bits, reals, full
        self.learned_from_, self.sample_, self.collection_ = learned_from, sample, collection
        self.n_features_ = n_features

    def _doubt(self) -> Doubt:
        return NO_DOUBT if len(self.collection_) else _DOUBT

    def _part_for(self, queries: QueryRows, features: Matrix | None) -> Network:
        """The network that the gate judged for queries that come like these."""
        inputs = self.full_part_.inputs
        if queries.magnitudes is not None:
            return self.reals_part_ if features is None else self.full_part_
        with_features = features is not None and inputs.with_features and not inputs.reals
        return self.full_part_ if with_features else self.bits_part_

    def _queries_for(self, queries: QueryRows, features: Matrix | None, collection: Any) -> Queries:
        network = self._part_for(queries, features)
        phi = network.inputs(queries, features, self.n_bits_)
        trust = self._trust(queries, collection, network.blend)
        if network.blend > 0 and len(network.classes):
            doubt = min(1.0, (1 - self.calibrate(collection).share) / _NEW_SHARE)
            least, sure = doubt * _LEAST_KNOWN, 1 - doubt * (1 - _SURELY_KNOWN)
            known = trust * network.known(queries, phi) ** doubt
            trust = ((known - least) / (sure - least)).clip(0, 1).astype(np.float32)
        # The vectors of queries themselves, and as far as they are trusted what was learned.
        bits = signs(queries.codes, self.n_bits_)
        share = network.blend * trust[:, None]
        mixed = mean_one(np.ones(bits.shape) if queries.magnitudes is None else queries.magnitudes)
        mixed *= 1 - share
        learned = mean_one(bits * network(phi))
        learned *= share
        mixed += learned
        if self.space == "vectors" and queries.magnitudes is not None:  # which an estimate adds a constant to
            mixed *= queries.magnitudes.mean(axis=1, keepdims=True)
        return Queries(*split_vectors(bits * mixed.astype(np.float32)), trust)

    def _to_archive(self) -> Archive:
        archive = super()._to_archive()
        self.bits_part_.write(archive, "bits")
        self.full_part_.write(archive, "full")
        if self.full_part_.inputs.with_features:
            self.reals_part_.write(archive, "reals")
        return archive

    @classmethod
    def _from_archive(cls, archive: Archive) -> Self:
        archive.params.setdefault("space", "codes")  # which older files lack
        bits, full = Network.take(archive, "bits"), Network.take(archive, "full")
        if "reals_part" in archive.facts:
            reals = Network.take(archive, "reals")
        elif full.inputs.with_features:  # an older file, without a network for reals alone
            reals = bits._replace(blend=0.0) if full.inputs.reals else bits
        else:
            reals = full
        ranker = super()._from_archive(archive)
        if {network.n_bits for network in (bits, full, reals)} != {ranker.n_bits_}:
            raise ValueError(f"expected networks of {ranker.n_bits_} bits, got others")
        ranker.bits_part_, ranker.reals_part_, ranker.full_part_ = bits, reals, full
        return ranker


class _Learner:
    """Networks for every kind of inputs, each learned once from the same rows."""

    def __init__(self, ranker: QueryVectorRanker, evidence: Any) -> None:
        for name in ("n_steps", "n_hidden"):
            check_count(name, getattr(ranker, name), 1)
        if ranker.space not in ("codes", "vectors"):
            raise ValueError(f'space must be "codes" or "vectors", got {ranker.space!r}')
        self.ranker, self.evidence, self.random = ranker, evidence, ranker._random()
        self.seed = int(self.random.integers(2**31))  # of the folds
        reals = evidence.queries.magnitudes is not None
        self.inputs = {"bits": Inputs.learn(False, None, self.random)} if ranker.space == "codes" else {}
        if reals:
            self.inputs["reals"] = Inputs.learn(True, None, self.random)
        if evidence.features is not None:
            self.inputs["features"] = Inputs.learn(reals, evidence.features, self.random)
        self.kinds = list(self.inputs)
        self._learned: dict[tuple[str, bytes], Network] = {}

    def choose(self, evidence: Any, kinds: list[str]) -> Report:
        """Let the gate choose among some kinds of inputs, for queries that come as in this evidence."""
        raise NotImplementedError

    def train(self, kind: str, rows: Rows | None, label: str) -> Network:
        """Learn a network from some rows of the evidence, or from all."""
        raise NotImplementedError

    def learn(self, judged: Any, kinds: list[str], some: Any, random: np.random.Generator) -> gate.Challengers:
        """Challengers for some kinds of inputs, learned from what is judged or from a placebo."""
        learner = self if some is judged else self._beside(some, random)

        def challengers(rows: Rows, wanted: Any) -> Iterator[tuple[dict[str, Any], Factor]]:
            for kind in kinds if wanted is None else [params["inputs"] for params in wanted]:
                key = kind, rows.tobytes()
                if key not in learner._learned:
                    learner._learned[key] = learner.train(kind, rows, "query vectors, to choose the blend")
                yield {"inputs": kind}, self._factor(learner._learned[key])

        return challengers

    def _beside(self, evidence: Any, random: np.random.Generator) -> Self:
        """The same for other evidence about the same queries, apart from how these are given."""
        learner = copy(self)
        queries = {"queries": self.evidence.queries, "features": self.evidence.features}
        learner.evidence, learner.random, learner._learned = evidence._replace(**queries), random, {}
        return learner

    def network(self, report: Report) -> Network:
        """The winner of a report, learned from all rows; without one, a network that has no share."""
        if report.accepted:
            return self.train(report.inputs or "bits", None, "query vectors")._replace(blend=report.blend)
        return self._start(self.kinds[0], n_hidden=1)

    def _start(self, kind: str, **options: Any) -> Network:
        n_bits, inputs = self.evidence.n_bits, self.inputs[kind]
        return start_network(n_bits, inputs.n_inputs(n_bits), self.random, **options)._replace(inputs=inputs)

    def _train(self, network: Network, draw: Draw, n_steps: int, label: str, **rates: float) -> Network:
        def phi(batch: Batch) -> Matrix:
            return self._phi(network.inputs, batch.queries)

        return train(network, draw, phi, n_steps=n_steps, random=self.random, label=label, **rates)

    def _phi(self, inputs: Inputs, queries: Rows) -> Matrix:
        evidence = self.evidence
        return inputs(evidence.queries.take(queries), take(evidence.features, queries), evidence.n_bits)

    def _factor(self, network: Network) -> Factor:
        def factor(queries: Rows) -> Weights:
            # As weights of the query's own bits: negative where the vector flips a bit.
            bits = signs(self.evidence.queries.codes[queries], self.evidence.n_bits)
            return bits * network(self._phi(network.inputs, queries))

        return factor


class _LabelLearner(_Learner):
    """Class vectors, and networks that tell the class of a query."""

    def __init__(self, ranker: QueryVectorRanker, evidence: LabelEvidence) -> None:
        super().__init__(ranker, evidence)
        sample = evidence.codes[self.random.permutation(len(evidence.codes))[:MOST_ROWS]]
        beside = evidence.collection
        self.newness = np.zeros(0) if beside is None else Calibration(as_codes(sample), as_codes(beside)).newness
        self._vectors: dict[bytes, Matrix] = {}

    def _beside(self, evidence: LabelEvidence, random: np.random.Generator) -> Self:
        learner = super()._beside(evidence, random)
        learner._vectors = {}
        return learner

    def choose(self, evidence: LabelEvidence, kinds: list[str]) -> Report:
        return gate.choose_by_labels(
            evidence,
            partial(self.learn, evidence, kinds),
            random=np.random.default_rng(self.seed),
            scoring=self.ranker.scoring,
            validation=self.ranker.validation,
            cross_validate=True,
            scale_magnitudes=False,
        )

    def train(self, kind: str, rows: Rows | None, label: str) -> Network:
        y = self._y()
        rows = np.arange(len(y)) if rows is None else rows
        network = self._start(kind, n_hidden=self.ranker.n_hidden)
        some = some_rows(rows, network.inner.shape[1], self.random)
        phi, ones = self._phi(network.inputs, some), np.ones(len(some), np.float32)
        logits = logistic(phi, self._targets(some), ones, "multinomial")
        shift, outer = np.zeros(len(logits), np.float32), np.zeros((len(logits), len(network.inner)), np.float32)
        network = network._replace(direct=logits, shift=shift, outer=outer, classes=self._class_vectors(rows))
        rate = min(_MOST_LABEL_RATE, _LABEL_RATE / self.evidence.n_bits)
        return self._train(network, class_batches(y, rows), self.ranker.n_steps, label, rate=rate)

    def _targets(self, rows: Rows) -> Matrix:
        y = self._y()
        return np.equal.outer(y[rows], np.arange(int(y.max()) + 1)).astype(np.float32)

    def _y(self) -> Rows:
        return class_numbers(self.evidence.y, len(self.evidence.codes), fewest=2)

    def _class_vectors(self, rows: Rows) -> Matrix:
        """w_c of every class, with a constant; items of a kind that no label names are of no class."""
        key = rows.tobytes()
        if key not in self._vectors:
            some = some_rows(rows, self.evidence.n_bits, self.random)
            items, targets, shares = self.evidence.codes[some], self._targets(some), np.ones(len(some), np.float32)
            n_beside = len(self.newness)
            if self.evidence.collection is not None and n_beside:
                items = np.vstack([items, self.evidence.collection[:n_beside]])
                targets = np.vstack([targets, np.zeros((n_beside, targets.shape[1]), np.float32)])
                shares = np.concatenate([shares, self.newness])
            bits = np.pad(as_vectors(items, self.evidence.n_bits), ((0, 0), (0, 1)), constant_values=1)
            self._vectors[key] = logistic(bits, targets, shares, "one against rest")
        return self._vectors[key]


class _PairLearner(_Learner):
    """Linear maps learned from judged pairs."""

    def choose(self, evidence: PairEvidence, kinds: list[str]) -> Report:
        random = np.random.default_rng(self.seed)
        evidence = evidence if evidence is self.evidence else evidence._replace(beside=None)
        learn = partial(self.learn, evidence, kinds)
        return gate.choose_by_pairs(evidence, learn, random=random, scale_magnitudes=False, scoring=self.ranker.scoring)

    def train(self, kind: str, rows: Rows | None, label: str) -> Network:
        evidence, n_bits, inputs = self.evidence, self.evidence.n_bits, self.inputs[kind]
        pairs = evidence.pairs if rows is None else evidence.pairs[rows]
        scale = np.float32(_PAIR_SCALE / np.sqrt(n_bits))
        batches = PairBatches(
            evidence.codes, n_bits, pairs, lambda queries: scale * inputs.query(evidence.queries.take(queries), n_bits)
        )
        decay = min(_PAIR_DECAY, _PAIR_DECAY_QUERIES / len(batches.queries))
        n_steps = min(_PAIR_STEPS, self.ranker.n_steps)
        network = self._start(kind, scale=_PAIR_SCALE)
        return self._train(network, batches.draw, n_steps, label, rate=_PAIR_RATE / n_bits, decay=decay)
