"""`QueryAdaptiveRanker`: learn how the bits of a query say which of its bits matter, as weights per query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from bitrank.core.checks import check_count, class_numbers
from bitrank.core.codes import signs
from bitrank.core.types import Queries, Rows
from bitrank.ranking.evidence.kinds import LabelEvidence, Matrix, PairEvidence, QueryRows
from bitrank.ranking.gate import choose as gate
from bitrank.ranking.gate.judge import Factor, mean_one
from bitrank.ranking.gate.report import Report
from bitrank.ranking.networks.batches import Draw, PairBatches, label_batches
from bitrank.ranking.networks.loss import Adam, descend
from bitrank.ranking.per_query import PerQueryRanker
from bitrank.ranking.ranker import scaled
from bitrank.ranking.trust import Doubt

_LEARNING_RATE = 3.2  # divided by the number of bits, and at most 0.1
# The loss sees a query's weights scaled to this mean, divided by √n_bits since distances spread by √n_bits. Larger
# values look nearer to the top of the list. Of 1.1 to 4.5, on digits and text, this gave the best MAP among those whose
# precision at 10 was not below Hamming's.
_SHARPNESS = 2.0
# When half of the classes of CIFAR-10 had been learned, queries of the others lost less than .01 in precision at 10.
_DOUBT = Doubt(0.7, newness=0.2)


@dataclass(eq=False, repr=False, kw_only=True)
class QueryAdaptiveRanker(PerQueryRanker):
    """Learn weights per query, w(q) = softplus(b + M s_q), s_q being the query's code as ±1, from labels or pairs.

    They are blended with uniform weights, (1 − λt)·1 + λt·w(q) with w(q) scaled to mean 1. The gate chooses λ on
    held-out data, and the trust t of each query says how much it is like what was learned from. Where nothing helps,
    the ranking is Hamming's. Where queries are reals, the weights multiply their magnitudes.

    Parameters
    ----------
    n_bits : int, optional
        Length of the codes; by default all bits of their bytes.
    n_steps : int, default=1000
        Gradient steps, each on 256 random queries against 1024 random items.
    scoring : {"guarded", "rare", "map", "p10", "ndcg", "mrr", "bedroc", "recall@N"}, default="guarded"
        What λ maximises on held-out data, see `RankingSVM`.
    validation : {"rows", "classes"}, default="rows"
        What is held out: rows of every class, or whole classes where future classes will be new.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    coef_ : float32 array of shape (n_bits, n_bits)
        M: row k holds the effect of the query's bits on the weight of bit k.
    intercept_ : float32 array of shape (n_bits,)
        b.
    blend_ : float
        λ.
    report_ : Report
        Every λ tried, with its held-out figures; the first line is uniform weights.
    n_bits_ : int

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(4, size=400)
    >>> bits = np.column_stack([y // 2, y % 2, rng.integers(2, size=(400, 6))])
    >>> ranker = QueryAdaptiveRanker(n_steps=50, random_state=0).fit(pack(bits), y)
    >>> weights = ranker.queries_for(pack(bits[:3]), collection=pack(bits)).weights
    >>> weights.shape, bool(weights[:, :2].min() > weights[:, 2:].max())
    ((3, 8), True)
    """

    learns_from = frozenset({"labels", "pairs"})
    _arrays: ClassVar[dict[str, str]] = {"coef_": "bb", "intercept_": "b"}

    coef_: Matrix = field(init=False)
    intercept_: Matrix = field(init=False)

    n_steps: int = 1000

    def _fit_labels(self, evidence: LabelEvidence) -> Report:
        class_numbers(evidence.y, len(evidence.codes), fewest=2)
        options: Any = {"scoring": self.scoring, "validation": self.validation}
        return self._fit_batches(evidence, partial(gate.choose_by_labels, **options))

    def _fit_pairs(self, evidence: PairEvidence) -> Report:
        return self._fit_batches(evidence, partial(gate.choose_by_pairs, scoring=self.scoring))

    def _fit_batches(self, evidence: LabelEvidence | PairEvidence, choose: Callable[..., Report]) -> Report:
        random, n_bits = self._random(), evidence.n_bits
        learner = _Learner(evidence, self.n_steps, random)
        report = choose(evidence, lambda some, random: _Learner(some, self.n_steps, random).challengers, random=random)
        coef, intercept = np.zeros((n_bits, n_bits), np.float32), np.zeros(n_bits, np.float32)
        if report.accepted:
            coef, intercept = learner.train(None, "query-adaptive weights")
        self.coef_, self.intercept_ = coef, intercept
        self.learned_from_, self.sample_, self.collection_ = self._samples(learner.evidence, learner.random)
        return report

    def _doubt(self) -> Doubt:
        return _DOUBT

    def _queries_for(self, queries: QueryRows, features: Matrix | None, collection: Any) -> Queries:
        bits, trust = signs(queries.codes, self.n_bits_), self._trust(queries, collection, self.blend_)
        weights = mean_one(_softplus(bits @ self.coef_.T + self.intercept_))
        share = self.blend_ * trust[:, None]
        return scaled(queries, (1 - share) + share * weights)._replace(trust=trust)


class _Learner:
    """M and b, learned from batches of one body of evidence."""

    def __init__(self, evidence: Any, n_steps: int, random: np.random.Generator) -> None:
        check_count("n_steps", n_steps, 1)
        self.evidence, self.n_steps, self.random = evidence, n_steps, random

    def batches(self, rows: Rows | None) -> Draw:
        """Batches of some rows of the evidence, or of all."""
        evidence, n_bits = self.evidence, self.evidence.n_bits
        if isinstance(evidence, LabelEvidence):
            classes = class_numbers(evidence.y, len(evidence.codes), fewest=2)
            return label_batches(evidence.codes, n_bits, classes, np.arange(len(classes)) if rows is None else rows)
        pairs = evidence.pairs if rows is None else evidence.pairs[rows]
        scale = np.float32(_SHARPNESS / np.sqrt(n_bits))
        return PairBatches(evidence.codes, n_bits, pairs, lambda queries: scale * self.signed(queries)).draw

    def challengers(self, rows: Rows, _: Any = None) -> Iterator[tuple[dict[str, Any], Factor]]:
        coef, intercept = self.train(rows, "query-adaptive weights, to choose the blend")
        yield {}, lambda queries: _softplus(self._bits(queries) @ coef.T + intercept)

    def _bits(self, queries: Rows) -> Matrix:
        return signs(self.evidence.queries.codes[queries], self.evidence.n_bits)

    def signed(self, queries: Rows) -> Matrix:
        """Queries as ±1, or as reals of mean size 1, halved: a weighted Hamming distance is minus half the product."""
        bits, magnitudes = self._bits(queries), self.evidence.queries.magnitudes
        scale = np.float32(0.5) if magnitudes is None else (0.5 * mean_one(magnitudes[queries])).astype(np.float32)
        signed: Matrix = bits * scale
        return signed

    def train(self, rows: Rows | None, label: str) -> tuple[Matrix, Matrix]:
        """Learn M and b from some rows of the evidence, or from all."""
        draw = self.batches(rows)
        n_bits = self.evidence.n_bits
        coef, intercept = np.zeros((n_bits, n_bits), np.float32), np.zeros(n_bits, np.float32)
        sharpness = np.float32(_SHARPNESS / np.sqrt(n_bits))

        def gradients() -> tuple[Matrix, Matrix]:
            batch = draw(self.random)
            bits, signed = self._bits(batch.queries), self.signed(batch.queries)
            raw = bits @ coef.T + intercept
            weights = _softplus(raw)
            scale = sharpness / weights.mean(axis=1, keepdims=True)
            by_scaled = signed * batch.gradient(scale * weights * signed)
            along = (by_scaled * weights).sum(axis=1, keepdims=True) / weights.sum(axis=1, keepdims=True)
            by_raw = scale * (by_scaled - along) * expit(raw)
            return by_raw.T @ bits, by_raw.sum(axis=0)

        rate = min(0.1, _LEARNING_RATE / n_bits)
        descend([Adam(coef, rate), Adam(intercept, rate)], gradients, self.n_steps, label)
        return coef, intercept


def _softplus(values: Matrix) -> Matrix:
    out: Matrix = np.logaddexp(np.float32(0), values)
    return out
