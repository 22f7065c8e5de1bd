"""Class vectors: f(q) = Σ_c p(c|q)·w_c, from a classifier of queries and one vector per class.

w_c and a constant are a logistic regression on the bits of items, class c against the rest; p starts as a multinomial
logistic regression on what is known of a query. Every score is linear in the bits, so that f(q) is a vector to search
with.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.special import softmax

from bitrank.core.types import Rows
from bitrank.ranking.evidence.kinds import Matrix

_RIDGE = 6.0  # of the summed loss, for inputs of variance about one; of the constant a hundredth of it
_N_STEPS, _WORK = 30, 4000  # steps, and steps times classes: the first one alone is a least-squares classifier
_MOST_ROWS, _MOST_VALUES = 20_000, 2**24


def logistic(
    inputs: Matrix, targets: Matrix, shares: Matrix, kind: Literal["multinomial", "one against rest"]
) -> Matrix:
    """Logistic regression: weights of shape (n_classes, n_inputs).

    The Hessian is at most XᵀX/2 per class where classes exclude each other, and XᵀX/4 where each has a regression of
    its own (D. Böhning, 1992). Accelerated steps to the minima of these bounds share one factor.

    Parameters
    ----------
    inputs : float32 array of shape (n, n_inputs)
        The last column holds ones.
    targets : float32 array of shape (n, n_classes)
        At most one 1 per row.
    shares : float32 array of shape (n,)
        How much each row counts.
    kind : {"multinomial", "one against rest"}
    """
    n_inputs, exclusive = inputs.shape[1], kind == "multinomial"
    ridge = np.full(n_inputs, _RIDGE, np.float32)
    ridge[-1] *= np.float32(0.01)
    weighted = inputs * shares[:, None]
    bound = (0.5 if exclusive else 0.25) * (inputs.T @ weighted).astype(np.float64) + np.diag(ridge)
    inverse = np.linalg.inv(bound).astype(np.float32)
    weights = ahead = np.zeros((n_inputs, targets.shape[1]), np.float32)
    speed = 1.0
    for _ in range(int(np.clip(_WORK // targets.shape[1], 1, _N_STEPS))):
        scores = inputs @ ahead
        misses = (softmax(scores, axis=1) if exclusive else 0.5 + 0.5 * np.tanh(0.5 * scores)) - targets
        gradient = weighted.T @ misses + ridge[:, None] * ahead
        new = ahead - inverse @ gradient
        change, faster = new - weights, (1 + np.sqrt(1 + 4 * speed**2)) / 2
        uphill = float(np.vdot(gradient, change)) > 0
        ahead = new if uphill else new + np.float32((speed - 1) / faster) * change
        weights, speed = new, 1.0 if uphill else faster
    return np.ascontiguousarray(weights.T)


def some_rows(rows: Rows, width: int, random: np.random.Generator) -> Rows:
    """As many of the rows as a regression needs: at most 20 000, of 2²⁴ values."""
    most = min(_MOST_ROWS, _MOST_VALUES // width)
    return rows if len(rows) <= most else np.sort(random.permutation(rows)[:most])
