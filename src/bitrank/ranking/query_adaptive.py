"""`QueryAdaptiveRanker`: learn how the bits of a query say which of its bits matter, as weights per query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from bitrank.codes import signs
from bitrank.ranking import gate
from bitrank.ranking.evidence import LabelEvidence, Matrix, QueryRows
from bitrank.ranking.held_out import Factor, Validation, mean_one
from bitrank.ranking.listwise import class_numbers, descend, loss_gradient
from bitrank.ranking.ranker import GatedRanker, Learner, scaled
from bitrank.vocabulary import Queries, Rows

_LEARNING_RATE = 3.2  # divided by the number of bits, and at most 0.1
# The loss sees a query's weights scaled to this mean, divided by √n_bits since distances spread by √n_bits. Larger
# values look nearer to the top of the list. Of 1.1 to 4.5, on digits and text, this gave the best MAP among those whose
# precision at 10 was not below Hamming's.
_SHARPNESS = 2.0


class QueryAdaptiveRanker(GatedRanker):
    """Learn weights per query, w(q) = softplus(b + M s_q), s_q being the query's code as ±1.

    The gate blends them with uniform weights, (1 − λ)·1 + λ·w(q) with w(q) scaled to mean 1, and chooses λ on held-out
    data; where nothing helps, λ is 0 and the ranking is Hamming's. Where queries are reals, the weights multiply their
    magnitudes.

    Parameters
    ----------
    n_bits : int, optional
        Length of the codes; by default all bits of their bytes.
    n_steps : int, default=1000
        Gradient steps, each on 256 random queries against 1024 random items.
    scoring : {"guarded", "map", "p10"}, default="guarded"
        What λ maximises: MAP among those that do not lower precision at 10, MAP alone, or precision at 10.
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
    report_ : list of dict
        Every λ tried, with its held-out figures; the first line is uniform weights.
    n_bits_ : int

    Examples
    --------
    >>> from bitrank.codes import pack
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(4, size=400)
    >>> bits = np.column_stack([y // 2, y % 2, rng.integers(2, size=(400, 6))])
    >>> ranker = QueryAdaptiveRanker(n_steps=50, random_state=0).fit(pack(bits), y)
    >>> weights = ranker.queries_for(pack(bits[:3])).weights
    >>> weights.shape, bool(weights[:, :2].min() > weights[:, 2:].max())
    ((3, 8), True)
    """

    _arrays: ClassVar[dict[str, str]] = {"coef_": "bb", "intercept_": "b"}

    coef_: Matrix
    intercept_: Matrix

    def __init__(
        self,
        n_bits: int | None = None,
        *,
        n_steps: int = 1000,
        scoring: gate.Scoring = "guarded",
        validation: Validation = "rows",
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_steps = n_steps
        self.scoring = scoring
        self.validation = validation
        self.random_state = random_state

    def _label_learner(self, evidence: LabelEvidence, random: np.random.Generator) -> Learner:
        if self.n_steps < 1:
            raise ValueError(f"n_steps must be at least 1, got {self.n_steps}")
        return _Learner(evidence, self.n_steps, random)

    def _queries_for(self, queries: QueryRows, features: Matrix | None) -> Queries:
        bits = signs(queries.codes, self.n_bits_)
        return scaled(queries, gate.blend(_softplus(bits @ self.coef_.T + self.intercept_), self.blend_))


class _Learner:
    """M and b, learned from labels."""

    def __init__(self, evidence: LabelEvidence, n_steps: int, random: np.random.Generator) -> None:
        self.n_bits, self.n_steps, self.random = evidence.n_bits, n_steps, random
        self.classes = class_numbers(evidence.y, len(evidence.codes))
        self.item_bits = signs(evidence.codes, evidence.n_bits)
        queries = evidence.queries
        self.query_bits = self.item_bits if queries.codes is evidence.codes else signs(queries.codes, evidence.n_bits)
        self.magnitudes = queries.magnitudes

    def candidates(self, rows: Rows) -> Iterator[tuple[dict[str, Any], Factor]]:
        coef, intercept = self._train(rows, "query-adaptive weights, to choose the blend")
        yield {}, lambda queries: _softplus(self.query_bits[queries] @ coef.T + intercept)

    def learn(self, choice: gate.Choice) -> dict[str, Any]:
        coef, intercept = np.zeros((self.n_bits, self.n_bits), np.float32), np.zeros(self.n_bits, np.float32)
        if choice.blend > 0:
            coef, intercept = self._train(np.arange(len(self.classes)), "query-adaptive weights")
        return {"coef_": coef, "intercept_": intercept}

    def _train(self, rows: Rows, label: str) -> tuple[Matrix, Matrix]:
        magnitudes = None if self.magnitudes is None else mean_one(self.magnitudes[rows]).astype(np.float32)
        bits = self.query_bits[rows], self.item_bits[rows]
        return _train(*bits, self.classes[rows], magnitudes, self.n_steps, self.random, label)


def _softplus(values: Matrix) -> Matrix:
    out: Matrix = np.logaddexp(np.float32(0), values)
    return out


def _train(
    every_query: Matrix,
    every_item: Matrix,
    y: Rows,
    magnitudes: Matrix | None,
    n_steps: int,
    random: np.random.Generator,
    label: str,
) -> tuple[Matrix, Matrix]:
    """Learn M and b from rows as ±1, with one class per row."""
    n_bits = every_item.shape[1]
    coef, intercept = np.zeros((n_bits, n_bits), np.float32), np.zeros(n_bits, np.float32)
    sharpness = np.float32(_SHARPNESS / np.sqrt(n_bits))

    def gradients(queries: Rows, items: Rows, similar: npt.NDArray[np.bool_]) -> tuple[Matrix, Matrix]:
        query_bits, item_bits = every_query[queries], every_item[items]
        raw = query_bits @ coef.T + intercept
        weights = _softplus(raw)
        scale = sharpness / weights.mean(axis=1, keepdims=True)
        # A weighted Hamming distance is minus half this inner product, plus a constant per query.
        signed = np.float32(0.5) * (query_bits if magnitudes is None else query_bits * magnitudes[queries])
        scores = (scale * weights * signed) @ item_bits.T
        by_scaled = signed * (loss_gradient(scores, similar) @ item_bits)
        along = (by_scaled * weights).sum(axis=1, keepdims=True) / weights.sum(axis=1, keepdims=True)
        by_raw = scale * (by_scaled - along) * expit(raw)
        return by_raw.T @ query_bits, by_raw.sum(axis=0)

    descend((coef, intercept), gradients, y, min(0.1, _LEARNING_RATE / n_bits), n_steps, random, label)
    return coef, intercept
