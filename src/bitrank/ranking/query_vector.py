"""`QueryVectorRanker`: learn a real vector per query, from its bits and whatever else is known of it.

Weights cannot repair a bit of the query that fell on the wrong side; a vector can. Its signs are a code and its sizes
are weights, so the same search answers it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.codes import signs, split_vectors
from bitrank.ranking import gate
from bitrank.ranking.evidence import LabelEvidence, Matrix, QueryRows
from bitrank.ranking.held_out import Factor, Validation, mean_one
from bitrank.ranking.listwise import class_numbers, descend, loss_gradient
from bitrank.ranking.ranker import GatedRanker, Learner
from bitrank.vocabulary import Codes, Queries, Rows

_LEARNING_RATE = 0.32  # divided by the number of bits, and at most 0.01


class _Network(NamedTuple):
    """f(q) = direct·φ + outer·relu(inner·φ)."""

    direct: Matrix
    inner: Matrix
    outer: Matrix

    def __call__(self, inputs: Matrix) -> Matrix:
        vectors: Matrix = inputs @ self.direct.T + np.maximum(inputs @ self.inner.T, 0) @ self.outer.T
        return vectors


class QueryVectorRanker(GatedRanker):
    """Learn a vector per query, f(q) = A φ + B relu(C φ), φ being the query's code as ±1 and its features.

    The gate blends it with the query itself, (1 − λ)·s_q + λ·f(q), both scaled to a mean size of 1, and chooses λ on
    held-out data. Where queries are reals they take the place of s_q. Where nothing helps, λ is 0 and the ranking is
    Hamming's, or that of the asymmetric distance. The vector may flip bits of the query: `queries_for` gives a code
    beside the weights.

    Parameters
    ----------
    n_bits : int, optional
        Length of the codes; by default all bits of their bytes.
    n_hidden : int, default=256
        Rows of C.
    n_steps : int, default=500
        Gradient steps, each on 256 random queries against 1024 random items.
    scoring : {"guarded", "map", "p10"}, default="guarded"
        What λ maximises: MAP among those that do not lower precision at 10, MAP alone, or precision at 10.
    validation : {"rows", "classes"}, default="rows"
        What is held out: rows of every class, or whole classes where future classes will be new.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    direct_, inner_, outer_ : float32 arrays
        A, C and B.
    center_, scale_ : float32 arrays
        Mean of the features, and one scale for all of them.
    blend_ : float
        λ.
    report_ : list of dict
        Every λ tried, with its held-out figures; the first line is the query itself.
    n_bits_ : int
    n_features_ : int
        Number of features per query; 0 where it learned without.

    Examples
    --------
    >>> from bitrank.codes import pack
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(4, size=400)
    >>> bits = np.column_stack([y // 2, y % 2, rng.integers(2, size=(400, 6))])
    >>> ranker = QueryVectorRanker(n_steps=50, random_state=0).fit(pack(bits), y)
    >>> queries = ranker.queries_for(pack(bits[:3]))
    >>> queries.codes.shape, bool(queries.weights[:, :2].min() > queries.weights[:, 2:].max())
    ((3, 1), True)
    """

    learns_from = frozenset({"labels", "features"})
    _arrays: ClassVar[dict[str, str]] = {
        "direct_": "bi",
        "inner_": "hi",
        "outer_": "bh",
        "center_": "f",
        "scale_": "",
    }
    _facts = ("n_features_",)
    _gate: ClassVar[dict[str, Any]] = {"scale_magnitudes": False, "cross_validate": True}

    direct_: Matrix
    inner_: Matrix
    outer_: Matrix
    center_: Matrix
    scale_: np.float32
    n_features_: int

    def __init__(
        self,
        n_bits: int | None = None,
        *,
        n_hidden: int = 256,
        n_steps: int = 500,
        scoring: gate.Scoring = "guarded",
        validation: Validation = "rows",
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_hidden = n_hidden
        self.n_steps = n_steps
        self.scoring = scoring
        self.validation = validation
        self.random_state = random_state

    def _label_learner(self, evidence: LabelEvidence, random: np.random.Generator) -> Learner:
        for name in ("n_steps", "n_hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        return _Learner(evidence, self.n_hidden, self.n_steps, random)

    def _queries_for(self, queries: QueryRows, features: Matrix | None) -> Queries:
        values = np.zeros((len(queries.codes), 0), np.float32) if features is None else features
        inputs = _inputs(queries.codes, self.n_bits_, values, self.center_, self.scale_)
        bits = signs(queries.codes, self.n_bits_)
        itself = mean_one(np.ones(bits.shape) if queries.magnitudes is None else queries.magnitudes)
        learned = mean_one(bits * _Network(self.direct_, self.inner_, self.outer_)(inputs))
        return Queries(*split_vectors(bits * ((1 - self.blend_) * itself + self.blend_ * learned)))

    def _loaded(self) -> None:
        if self.center_.shape != (self.n_features_,) or self.direct_.shape[1] != self.n_bits_ + self.n_features_ + 1:
            raise ValueError(f"expected arrays for {self.n_features_} features, got {self.direct_.shape[1]} inputs")


class _Learner:
    """The network, learned from labels."""

    def __init__(self, evidence: LabelEvidence, n_hidden: int, n_steps: int, random: np.random.Generator) -> None:
        n, n_bits, queries = len(evidence.codes), evidence.n_bits, evidence.queries
        self.n_hidden, self.n_steps, self.random = n_hidden, n_steps, random
        self.classes = class_numbers(evidence.y, n)
        values = np.zeros((n, 0), np.float32) if evidence.features is None else evidence.features
        self.center = values.mean(axis=0, dtype=np.float64).astype(np.float32)
        self.scale = np.float32(values.std(dtype=np.float64) if values.size else 1.0) or np.float32(1.0)
        self.bits = signs(evidence.codes, n_bits)
        self.query_bits = self.bits if queries.codes is evidence.codes else signs(queries.codes, n_bits)
        self.inputs = _inputs(queries.codes, n_bits, values, self.center, self.scale)

    def candidates(self, rows: Rows) -> Iterator[tuple[dict[str, Any], Factor]]:
        network = self._train(rows, "query vectors, to choose the blend")
        # As weights of the query's own bits: negative where the vector flips a bit.
        yield {}, lambda queries: self.query_bits[queries] * network(self.inputs[queries])

    def learn(self, choice: gate.Choice) -> dict[str, Any]:
        if choice.blend > 0:
            network = self._train(np.arange(len(self.classes)), "query vectors")
        else:
            network = _start(self.inputs.shape[1], self.bits.shape[1], self.n_hidden, self.random)
        return {
            "direct_": network.direct,
            "inner_": network.inner,
            "outer_": network.outer,
            "center_": self.center,
            "scale_": self.scale,
            "n_features_": len(self.center),
        }

    def _train(self, rows: Rows, label: str) -> _Network:
        sizes = self.n_hidden, self.n_steps
        return _train(self.inputs, self.bits, self.classes, rows, *sizes, self.random, label)


def _inputs(codes: Codes, n_bits: int, values: Matrix, center: Matrix, scale: np.float32) -> Matrix:
    """φ: the bits as ±1, the features with one scale for all, and a one."""
    return np.hstack([signs(codes, n_bits), (values - center) / scale, np.ones((len(codes), 1), np.float32)])


def _start(n_inputs: int, n_bits: int, n_hidden: int, random: np.random.Generator) -> _Network:
    """A network that returns the code itself."""
    direct = np.zeros((n_bits, n_inputs), np.float32)
    direct[:, :n_bits] = np.eye(n_bits, dtype=np.float32) / np.float32(np.sqrt(n_bits))
    inner = random.normal(size=(n_hidden, n_inputs)).astype(np.float32) / np.float32(np.sqrt(n_inputs))
    return _Network(direct, inner, np.zeros((n_bits, n_hidden), np.float32))


def _train(
    inputs: Matrix,
    bits: Matrix,
    y: Rows,
    rows: Rows,
    n_hidden: int,
    n_steps: int,
    random: np.random.Generator,
    label: str,
) -> _Network:
    """Learn a network from these rows."""
    n_bits = bits.shape[1]
    network = _start(inputs.shape[1], n_bits, n_hidden, random)

    def gradients(queries: Rows, items: Rows, similar: npt.NDArray[np.bool_]) -> tuple[Matrix, Matrix, Matrix]:
        query_inputs: Matrix = inputs[rows[queries]]
        item_bits: Matrix = bits[rows[items]]
        hidden = np.maximum(query_inputs @ network.inner.T, 0)
        vectors = query_inputs @ network.direct.T + hidden @ network.outer.T
        by_vector: Matrix = loss_gradient(vectors @ item_bits.T, similar) @ item_bits
        by_hidden = (by_vector @ network.outer) * (hidden > 0)
        return by_vector.T @ query_inputs, by_hidden.T @ query_inputs, by_vector.T @ hidden

    descend(network, gradients, y[rows], min(0.01, _LEARNING_RATE / n_bits), n_steps, random, label)
    return network
