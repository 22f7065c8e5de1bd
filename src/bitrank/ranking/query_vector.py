"""A vector per query: `QueryVectorRanker` learns what to search with from all that is known of a query.

Weights, however chosen, cannot make up for a bit of the query that fell on the wrong side. A real vector can: its signs
are a code and its sizes are weights, so that the same search answers it, and the codes of the collection stay as they
are. It learns from labels with the listwise loss of `QueryAdaptiveRanker`, through the same gate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bitrank.checks import check_codes, check_magnitudes, check_n_bits
from bitrank.codes import signs, split_vectors
from bitrank.ranking import gate, held_out
from bitrank.ranking.listwise import Matrix, class_numbers, descend, loss_gradient
from bitrank.vocabulary import Codes, Rows, Weights

_LEARNING_RATE = 0.32  # divided by the number of bits, and at most 0.01


class Queries(NamedTuple):
    """What to search with: `index.search(queries.codes, k, weights=queries.weights)`."""

    codes: Codes
    weights: Weights


class _Network(NamedTuple):
    """f(q) = direct·φ + outer·relu(inner·φ)."""

    direct: Matrix
    inner: Matrix
    outer: Matrix

    def __call__(self, inputs: Matrix) -> Matrix:
        found: Matrix = inputs @ self.direct.T + np.maximum(inputs @ self.inner.T, 0) @ self.outer.T
        return found


class QueryVectorRanker(BaseEstimator):
    """Learn a vector per query, f(q) = A φ + B relu(C φ), φ being the query's code as ±1 and its features.

    The gate blends it with the code, (1 − λ)·s_q + λ·f(q), or with the float query where its magnitudes are given, both
    scaled to a mean size of 1, and chooses λ on held-out data; where nothing helps there, λ is 0 and the ranking is
    Hamming's, or that of the asymmetric distance. Bits of the query may be turned on the way, so that a search for it
    needs another code beside the weights: `queries_for` gives both.

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
        What is held out: rows of every class, or whole classes (where future classes will be new).
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    network_ : tuple of float32 arrays
        A, C and B.
    blend_ : float
        λ.
    report_ : list of dict
        Every λ that was tried, with its held-out figures; the first line is the code alone.
    n_bits_ : int
    n_features_ : int
        Features of a query; 0 where it learned from codes alone.

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

    def __init__(
        self,
        n_bits: int | None = None,
        *,
        n_hidden: int = 256,
        n_steps: int = 500,
        scoring: gate.Scoring = "guarded",
        validation: held_out.Validation = "rows",
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_hidden = n_hidden
        self.n_steps = n_steps
        self.scoring = scoring
        self.validation = validation
        self.random_state = random_state

    def fit(
        self,
        codes: Codes,
        y: npt.ArrayLike,
        features: npt.ArrayLike | None = None,
        magnitudes: npt.ArrayLike | None = None,
    ) -> QueryVectorRanker:
        """Learn from class labels; a progress bar is shown on a terminal.

        Parameters
        ----------
        codes : packed codes, shape (n, ceil(n_bits / 8))
        y : array-like of shape (n,)
        features : array of shape (n, n_features), optional
            What a query will be known by beside its code: the vector that was hashed, or `project` of it.
        magnitudes : array of shape (n, n_bits), optional
            |project(X)| of the rows: blend with float queries in the place of codes.
        """
        codes, n_bits = check_n_bits(codes, self.n_bits)
        classes = class_numbers(y, len(codes))
        for name in ("n_steps", "n_hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        values = np.zeros((len(codes), 0), np.float32) if features is None else _check_features(features, len(codes))
        sizes = None if magnitudes is None else check_magnitudes(magnitudes, len(codes), n_bits)
        random = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        center = values.mean(axis=0, dtype=np.float64).astype(np.float32)
        scale = np.float32(values.std(dtype=np.float64) if values.size else 1.0) or np.float32(1.0)
        bits, inputs = signs(codes, n_bits), _inputs(codes, n_bits, values, center, scale)

        def train(rows: Rows, label: str) -> _Network:
            return _train(inputs, bits, classes, rows, self.n_hidden, self.n_steps, random, label)

        def learn(rows: Rows) -> Iterator[tuple[dict[str, Any], held_out.Factor]]:
            network = train(rows, "query vectors, to choose the blend")
            # As weights of the query's own bits, which are negative where a bit is turned.
            yield {}, lambda queries: bits[queries] * network(inputs[queries])

        choice = gate.choose(
            codes,
            classes,
            learn,
            n_bits=n_bits,
            magnitudes=sizes,
            on_top=False,
            in_turn=True,
            scoring=self.scoring,
            validation=self.validation,
            random=random,
        )
        if choice.blend > 0:
            network = train(np.arange(len(codes)), "query vectors")
        else:
            network = _start(inputs.shape[1], n_bits, self.n_hidden, random)
        self.n_bits_, self.n_features_ = n_bits, values.shape[1]
        self.blend_, self.report_, self.network_ = choice.blend, choice.report, network
        self._center, self._scale = center, scale
        return self

    def queries_for(
        self, query_codes: Codes, features: npt.ArrayLike | None = None, magnitudes: npt.ArrayLike | None = None
    ) -> Queries:
        """Codes and weights to search with.

        Parameters
        ----------
        query_codes : packed codes
        features : array of shape (n_queries, n_features)
            Of the kind that was learned from; None where there were none.
        magnitudes : array of shape (n_queries, n_bits), optional
            Of the queries, where they were learned from.
        """
        check_is_fitted(self)
        query_codes = check_codes(query_codes, self.n_bits_, name="query_codes")
        given = np.zeros((len(query_codes), 0)) if features is None else features
        values = _check_features(given, len(query_codes), self.n_features_)
        inputs = _inputs(query_codes, self.n_bits_, values, self._center, self._scale)
        bits = signs(query_codes, self.n_bits_)
        own = np.ones(bits.shape) if magnitudes is None else check_magnitudes(magnitudes, *bits.shape)
        learned = held_out.mean_one(bits * self.network_(inputs))
        return Queries(*split_vectors(bits * ((1 - self.blend_) * held_out.mean_one(own) + self.blend_ * learned)))


def _check_features(features: npt.ArrayLike, n: int, n_features: int | None = None) -> Matrix:
    array = np.asarray(features, np.float32)
    wanted = f"({n}, {'n_features' if n_features is None else n_features})"
    if array.ndim != 2 or len(array) != n or n_features not in (None, array.shape[1]):
        raise ValueError(f"features must have shape {wanted}, one row a code, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("features must be finite, got NaN or infinity")
    return array


def _inputs(codes: Codes, n_bits: int, values: Matrix, center: Matrix, scale: np.float32) -> Matrix:
    """φ: the bits as ±1, the features with one scale for all, and a one."""
    return np.hstack([signs(codes, n_bits), (values - center) / scale, np.ones((len(codes), 1), np.float32)])


def _start(n_inputs: int, n_bits: int, n_hidden: int, random: np.random.Generator) -> _Network:
    """A network that gives the code itself."""
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
    """The network that these rows teach."""
    n_bits = bits.shape[1]
    network = _start(inputs.shape[1], n_bits, n_hidden, random)

    def gradients(queries: Rows, items: Rows, similar: npt.NDArray[np.bool_]) -> tuple[Matrix, Matrix, Matrix]:
        given: Matrix = inputs[rows[queries]]
        item_bits: Matrix = bits[rows[items]]
        hidden = np.maximum(given @ network.inner.T, 0)
        vectors = given @ network.direct.T + hidden @ network.outer.T
        by_vector: Matrix = loss_gradient(vectors @ item_bits.T, similar) @ item_bits
        by_hidden = (by_vector @ network.outer) * (hidden > 0)
        return by_vector.T @ given, by_hidden.T @ given, by_vector.T @ hidden

    descend(network, gradients, y[rows], min(0.01, _LEARNING_RATE / n_bits), n_steps, random, label)
    return network
