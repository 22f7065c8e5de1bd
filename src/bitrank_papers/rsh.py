"""Ranking-based supervised hashing: linear hash functions from triplets of ranked lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.optimize

from bitrank.core.progress import progress
from bitrank.hashing.hasher import Floats
from bitrank_papers.labelled import Rows, SupervisedHasher

N_UPDATES = 20  # of the multipliers
PENALTY = 1.0


class RankingSupervisedHashing(SupervisedHasher):
    """Ranking-based supervised hashing (RSH).

    Every labelled row is a query with a list of all labelled rows, in which rows of its class precede the others. A
    triplet (q, i, j) of a query, a row i and a row j below it asks for ⟨h(q), h(i) − h(j)⟩ > 0. With Wᵀx for the signs,
    the sum over the triplets is tr(WᵀBW), B = Σ_q q p_qᵀ, p_q being the mean of i − j over the triplets of q. It is
    maximised subject to WᵀW = I by an augmented Lagrangian.

    With labels, B has at most as many eigenvalues above zero as there are classes: further bits are random directions.

    Parameters
    ----------
    n_bits : int, default 32
        At most the number of features.
    n_labelled : int, default 5000
        Rows whose labels are used, drawn evenly over the classes.
    random_state : int, RandomState or None
        Seed of the labelled rows and of the first W.

    References
    ----------
    J. Wang, W. Liu, A. X. Sun and Y.-G. Jiang, Learning hash codes with listwise supervision, ICCV 2013.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(200, 8)), np.arange(200) % 4
    >>> X[np.arange(200), y] += 6
    >>> W = RankingSupervisedHashing(n_bits=4, random_state=0).fit(X, y).components_
    >>> bool(np.allclose(W.T @ W, np.eye(4), atol=0.01))
    True
    """

    def _learn_labelled(
        self, X: npt.NDArray[Any], classes: Rows, rows: Rows, n_bits: int, random: np.random.RandomState
    ) -> dict[str, Floats]:
        if n_bits > X.shape[1]:
            raise ValueError(f"n_bits must be at most the number of features ({X.shape[1]}), got {n_bits}")
        mean = X.mean(axis=0, dtype=np.float64)
        B = triplet_matrix(X[rows] - mean, classes[rows])
        if not np.isfinite(B).all():
            raise ValueError(f"X must hold values that can be squared and summed, got up to {np.abs(X).max():.3g}")
        scale = np.abs(B).max()
        start, _ = scipy.linalg.qr(random.standard_normal((X.shape[1], n_bits)), mode="economic")
        return {"mean_": mean, "components_": maximise(B / scale if scale > 0 else B, start)}


def triplet_matrix(X: Floats, classes: Rows) -> Floats:
    """Compute B, symmetric, from the means of the classes: the triplets of a class share one p."""
    membership = (classes[:, None] == np.unique(classes)).astype(np.float64)
    sizes, sums = membership.sum(axis=0)[:, None], membership.T @ X
    rest = np.maximum(len(X) - sizes, 1)
    p = sums / sizes - (sums.sum(axis=0) - sums) / rest
    B = sums.T @ p / len(X)
    return np.asarray(B + B.T) / 2


def maximise(B: Floats, W: Floats) -> Floats:
    """Maximise tr(WᵀBW) subject to WᵀW = I, from an orthonormal W."""
    penalty = PENALTY * np.abs(scipy.linalg.eigvalsh(B)[[0, -1]]).max()
    if penalty == 0:
        return W
    multipliers = np.zeros((W.shape[1], W.shape[1]))
    for _ in progress(range(N_UPDATES), label="multipliers of RSH"):
        solution = scipy.optimize.minimize(
            lagrangian, W.ravel(), (B, multipliers, penalty), method="L-BFGS-B", jac=True, options={"maxiter": 50}
        )
        W = solution.x.reshape(W.shape)
        multipliers = multipliers + penalty * (W.T @ W - np.eye(len(multipliers)))
    return W


def lagrangian(flat: Floats, B: Floats, multipliers: Floats, penalty: float) -> tuple[float, Floats]:
    """Compute −tr(WᵀBW) + tr(Ξ(WᵀW − I)) + ρ/2 |WᵀW − I|² and its gradient; B and Ξ are symmetric."""
    W = flat.reshape(len(B), len(multipliers))
    BW, excess = B @ W, W.T @ W - np.eye(len(multipliers))
    value = -np.sum(W * BW) + np.sum(multipliers * excess) + penalty / 2 * np.sum(excess**2)
    gradient = -2 * BW + 2 * W @ (multipliers + penalty * excess)
    return float(value), gradient.ravel()
