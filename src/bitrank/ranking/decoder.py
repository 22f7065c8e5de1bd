"""A decoder of codes, learned without labels from the vectors that the codes were made from.

With a decoder x ≈ W s + c of an item's vector by its ±1 bits, and ‖x‖² ≈ v·s + c' likewise, the float ranking for a
query z is that of ⟨z, x⟩ − ‖x‖²/2 ≈ ⟨Wᵀz − v/2, s⟩ plus a constant: Wᵀz − v/2 is the vector to search for. A linear map
gives it from the query as it comes. The gate judges by the nearest vectors of held-out queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np

from bitrank.core.codes import signs
from bitrank.core.ties import smallest_columns
from bitrank.core.types import Rows, Weights
from bitrank.ranking.evidence.kinds import Matrix, PairEvidence, QueryRows, VectorEvidence, blocks
from bitrank.ranking.gate.choose import COARSE_BLENDS, Challengers, choose_by_pairs
from bitrank.ranking.gate.judge import Factor, Floats
from bitrank.ranking.gate.report import Report
from bitrank.ranking.networks.network import Inputs, Network

_MOST_ITEMS, _MOST_QUERIES, _JUDGED_QUERIES = 50_000, 10_000, 1000
_NEAREST = 10  # vectors that are relevant to a query
_BLOCK = 2048  # rows of ±1 at a time
# Ridge penalties, as shares of the mean variance of an input: of the decoder, and of what a full map adds to a diagonal
# one (None: nothing).
_DECODER_RIDGE = 0.003
_FORMS: tuple[float | None, ...] = (None, 1.0, 0.1)


def learn_decoder(evidence: VectorEvidence, random: np.random.Generator) -> tuple[Network, Network, Report]:
    """Learn networks for bare codes and for queries as they were given, and report what was tried for the latter."""
    learner = _Decoder(_some(evidence, random), random)
    bits, report = learner.network("bits")
    if evidence.queries.magnitudes is None:
        return bits, bits, report
    return bits, *learner.network("reals")


def _some(evidence: VectorEvidence, random: np.random.Generator) -> VectorEvidence:
    """At most 50 000 items and 10 000 queries: a linear map needs no more."""
    items = np.sort(random.permutation(len(evidence.codes))[:_MOST_ITEMS])
    queries = items
    if not evidence.itself:
        queries = np.sort(random.permutation(len(evidence.query_vectors))[:_MOST_QUERIES])
    return evidence._replace(
        codes=evidence.codes[items],
        vectors=evidence.vectors[items],
        queries=evidence.queries.take(queries),
        query_vectors=evidence.query_vectors[queries],
    )


class _Decoder:
    """Linear maps from queries to the vectors to search for, in several forms, for bits and for reals."""

    def __init__(self, evidence: VectorEvidence, random: np.random.Generator) -> None:
        self.evidence, self.seed = evidence, int(random.integers(2**31))
        self.inputs = {kind: Inputs.learn(kind == "reals", None, random) for kind in ("bits", "reals")}
        judges = random.permutation(len(evidence.query_vectors))[:_JUDGED_QUERIES]
        self.pairs = nearest_vectors(evidence, np.sort(judges))
        self.decoders: dict[bytes, Floats] = {}

    def network(self, kind: str) -> tuple[Network, Report]:
        """Choose a form for one kind of inputs, then learn from all rows."""
        evidence = self.evidence
        queries = evidence.queries if kind == "reals" else QueryRows(evidence.queries.codes, None)
        judged = PairEvidence(evidence.codes, self.pairs, queries, None, evidence.n_bits)

        def learn(some: PairEvidence, random: np.random.Generator) -> Challengers:
            learner = self if some is judged else self._exchanged(random)

            def challengers(rows: Rows, wanted: Any) -> Iterator[tuple[dict[str, Any], Factor]]:
                items, numbers = self._without_hidden(some.pairs[rows])
                for form in _FORMS if wanted is None else [params["ridge"] for params in wanted]:
                    network = learner._learn(kind, form, items, numbers)
                    yield {"inputs": kind, "ridge": form}, self._factor(kind, network)

            return challengers

        report = choose_by_pairs(
            judged,
            learn,
            scale_magnitudes=False,
            itself=evidence.itself,
            blends=COARSE_BLENDS,
            random=np.random.default_rng(self.seed),
        )
        form = report.params.get("ridge")
        everything = np.arange(len(evidence.codes)), np.arange(len(evidence.query_vectors))
        return self._learn(kind, form, *everything)._replace(inputs=self.inputs[kind], blend=report.blend), report

    def _exchanged(self, random: np.random.Generator) -> _Decoder:
        """The same with the vectors of other queries: a placebo, which knows what is true of any query."""
        learner, vectors = copy(self), self.evidence.query_vectors
        learner.evidence = self.evidence._replace(query_vectors=vectors[random.permutation(len(vectors))])
        return learner

    def _without_hidden(self, known: Rows) -> tuple[Rows, Rows]:
        """Items and queries to learn from: all but those that the gate hides or holds out."""
        evidence = self.evidence
        hidden = [np.setdiff1d(self.pairs[:, side], known[:, side]) for side in (1, 0)]
        if evidence.itself:
            hidden = [np.union1d(*hidden)] * 2
        items, queries = (
            np.setdiff1d(np.arange(n), some)
            for n, some in zip((len(evidence.codes), len(evidence.query_vectors)), hidden, strict=True)
        )
        return items, queries

    def _learn(self, kind: str, form: float | None, items: Rows, numbers: Rows) -> Network:
        evidence, n_bits = self.evidence, self.evidence.n_bits
        numbers = numbers[:: 1 + len(numbers) // (_MOST_QUERIES + 1)]
        decoder = self._decoder(items)
        queries, vectors = evidence.queries.take(numbers), evidence.query_vectors[numbers]
        sizes = np.abs(vectors).mean(axis=1) if queries.magnitudes is None else queries.magnitudes.mean(axis=1)
        targets = (vectors @ decoder[:, :-1].T - decoder[:, -1] / 2) / np.maximum(sizes, 1e-12)[:, None]
        return _linear(self.inputs[kind].query(queries, n_bits).astype(np.float64), targets, form)

    def _decoder(self, items: Rows) -> Floats:
        """[W, v], learned from some items and remembered."""
        key = items.tobytes()
        if key not in self.decoders:
            self.decoders[key] = _least_squares(self.evidence, items)
        return self.decoders[key]

    def _factor(self, kind: str, network: Network) -> Factor:
        def factor(numbers: Rows) -> Weights:
            queries, n_bits = self.evidence.queries.take(numbers), self.evidence.n_bits
            return signs(queries.codes, n_bits) * network(self.inputs[kind](queries, None, n_bits))

        return factor


def nearest_vectors(evidence: VectorEvidence, numbers: Rows) -> Rows:
    """Pairs (query, item, 1) of queries with the ten nearest vectors by Euclidean distance, itself excluded."""
    squares = np.einsum("id,id->i", evidence.vectors, evidence.vectors)
    n_near, pairs = min(_NEAREST, len(evidence.vectors) - 1 - evidence.itself), []
    if n_near < 1:
        raise ValueError(f"codes must be at least three, to hold some out, got {len(evidence.codes)}")
    for block in blocks(len(numbers), 256):
        part = numbers[block]
        far = squares - 2 * (evidence.query_vectors[part] @ evidence.vectors.T)
        if evidence.itself:
            far[np.arange(len(part)), part] = np.inf
        near = smallest_columns(far, n_near)
        pairs.append(np.column_stack([np.repeat(part, n_near), near.ravel(), np.ones(near.size, np.int64)]))
    return np.concatenate(pairs)


def _least_squares(evidence: VectorEvidence, items: Rows) -> Floats:
    """Decode vectors, and their squared lengths, from ±1 bits: one row per bit."""
    n_bits, n_values = evidence.n_bits, evidence.vectors.shape[1] + 1
    squares, products = np.zeros((n_bits + 1, n_bits + 1)), np.zeros((n_bits + 1, n_values))
    for block in blocks(len(items), _BLOCK):
        bits, vectors = signs(evidence.codes[items[block]], n_bits), evidence.vectors[items[block]]
        bits = np.pad(bits, ((0, 0), (0, 1)), constant_values=1)
        squares += bits.T @ bits
        products += bits.T @ np.column_stack([vectors, np.einsum("id,id->i", vectors, vectors)])
    ridge = np.full(n_bits + 1, _DECODER_RIDGE * len(items))
    ridge[-1] = 0.0  # of the constant
    return np.asarray(np.linalg.solve(squares + np.diag(ridge), products)[:-1], np.float64)


def _linear(inputs: Floats, targets: Floats, form: float | None) -> Network:
    """A slope and a shift per bit, and with a ridge penalty a full map on top."""
    n, n_bits = inputs.shape
    center, goal = inputs.mean(axis=0), targets.mean(axis=0)
    inputs, targets = inputs - center, targets - goal
    spread = np.square(inputs).mean(axis=0)
    slopes = np.maximum((inputs * targets).mean(axis=0) / np.maximum(spread, 1e-12), 0)
    inner, outer = np.zeros((0, n_bits + 1), np.float32), np.zeros((n_bits, 0), np.float32)
    if form is None:
        return Network(slopes.astype(np.float32), (goal - slopes * center).astype(np.float32), inner, outer)
    rest = targets - inputs * slopes
    penalty = max(form * float(spread.mean()), 1e-12)
    full = np.linalg.solve(inputs.T @ inputs / n + penalty * np.eye(n_bits), inputs.T @ rest / n).T
    full[np.diag_indices(n_bits)] += slopes
    direct: Matrix = np.zeros((n_bits, n_bits + 1), np.float32)
    direct[:, :-1] = full
    return Network(direct, (goal - full @ center).astype(np.float32), inner, outer)
