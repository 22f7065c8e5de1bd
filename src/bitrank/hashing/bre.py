"""Binary reconstructive embeddings: Hamming distances that reconstruct distances, by exact coordinate descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from bitrank.checks import check_count
from bitrank.hashing.hasher import Floats, RandomHasher
from bitrank.hashing.supervised import Rows, class_numbers, draw_labelled
from bitrank.progress import progress

TARGETS = ("distances", "labels")
N_PARTNERS = 50  # rows that each training row is compared with
N_ANCHORS = 50  # training rows that a hash function combines
TOLERANCE = 1e-4  # relative decrease of the objective below which a sweep is the last


@dataclass(eq=False, repr=False, kw_only=True)
class BinaryReconstructiveEmbeddings(RandomHasher):
    """Binary reconstructive embeddings (BRE).

    Bit k is the sign of Σ_q a_qk ⟨x_qk, x⟩ over 50 random rows x_qk of its own. The share of bits in which two rows
    differ should equal their target: half the squared distance of the rows, centred and scaled to length one, over
    the largest, or 0 within a class and 1 between classes. Coordinate descent minimises the squared error over random
    pairs: one coefficient at a time, exactly, over all values that change a bit.

    Parameters
    ----------
    n_bits : int, default 32
        May exceed the number of features.
    target : {"distances", "labels"}, default "distances"
        What is reconstructed. "labels" needs `y`; "distances" ignores it.
    n_sweeps : int, default 100
        Most sweeps over all bits, one coefficient each; descent ends earlier where the objective settles.
    n_rows : int, default 2000
        Rows to learn from, drawn at random, or evenly over the classes.
    random_state : int, RandomState or None

    References
    ----------
    B. Kulis and T. Darrell, Learning to hash with binary reconstructive embeddings, NIPS 2009.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(200, 8)), np.arange(200) % 4
    >>> BinaryReconstructiveEmbeddings(n_bits=12, random_state=0).fit_transform(X).shape
    (200, 2)
    >>> BinaryReconstructiveEmbeddings(n_bits=12, target="labels", random_state=0).fit_transform(X, y).shape
    (200, 2)
    """

    target: Literal["distances", "labels"] = "distances"
    n_sweeps: int = 100
    n_rows: int = 2000

    def _check_params(self, n_features: int) -> int:
        check_count("n_sweeps", self.n_sweeps, 0)
        check_count("n_rows", self.n_rows, 2)
        if self.target not in TARGETS:
            raise ValueError(f"target must be one of {', '.join(TARGETS)}, got {self.target!r}")
        return super()._check_params(n_features)

    def _learn_from(self, X: npt.NDArray[Any], y: Any, n_bits: int) -> dict[str, Floats]:
        if self.target == "labels" and y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        random = check_random_state(self.random_state)
        mean = X.mean(axis=0, dtype=np.float64)
        classes = class_numbers(y, len(X)) if self.target == "labels" else np.zeros(len(X), np.int64)
        rows = draw_labelled(classes, self.n_rows, random)
        V = X[rows] - mean
        lengths = np.sqrt(np.square(V).sum(axis=1, keepdims=True))
        V /= np.where(lengths > 0, lengths, 1)
        partners = random.randint(len(V), size=(len(V), N_PARTNERS))
        if self.target == "labels":
            targets = (classes[rows][:, None] != classes[rows][partners]).astype(np.float64)
        else:
            targets = np.stack([1 - V[row] @ V[others].T for row, others in enumerate(partners)])
            targets = np.maximum(targets, 0) / (targets.max() if targets.max() > 0 else 1)
        return {"mean_": mean, "components_": _descend(V, partners, targets, n_bits, self.n_sweeps, random)}

    def _learn(self, X: npt.NDArray[Any], n_bits: int) -> dict[str, Floats]:
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.target == "labels"
        return tags


def _descend(
    V: Floats, partners: Rows, targets: Floats, n_bits: int, n_sweeps: int, random: np.random.RandomState
) -> Floats:
    """Learn the combined rows of all bits."""
    n = len(V)
    anchors = random.randint(n, size=(N_ANCHORS, n_bits))
    coefficients = random.standard_normal((N_ANCHORS, n_bits))
    starts = [V[rows].T @ values for rows, values in zip(anchors.T, coefficients.T, strict=True)]
    components = np.stack(starts, axis=1)
    bits = np.ascontiguousarray((V @ components > 0).T)
    share = np.float32(1 / n_bits)
    differ = np.stack([column[:, None] != column[partners] for column in bits])
    errors = differ.sum(axis=0) * share - targets.astype(np.float32)
    before = np.inf
    for _ in progress(range(n_sweeps), label="sweeps of BRE"):
        for k in range(n_bits):
            anchor = random.randint(N_ANCHORS)
            row, old = V[anchors[anchor, k]], coefficients[anchor, k]
            errors -= differ[k] * share
            new = best_coefficient(Line(V @ components[:, k], V @ row, old), partners, errors, 1 / n_bits)
            coefficients[anchor, k] = new
            components[:, k] += (new - old) * row
            bits[k] = V @ components[:, k] > 0
            differ[k] = bits[k][:, None] != bits[k][partners]
            errors += differ[k] * share
        objective = float(np.square(errors, dtype=np.float64).sum())
        if objective > (1 - TOLERANCE) * before:
            break
        before = objective
    return components


class Line(NamedTuple):
    """Values of the rows before the sign as a function of one coefficient t: values + (t - old) · slopes."""

    values: Floats
    slopes: Floats
    old: float


def best_coefficient(line: Line, partners: Rows, others: npt.NDArray[Any], share: float) -> float:
    """Minimise the sum over pairs of (others + share · [the pair differs])² over the coefficient of a line.

    Every row changes its bit at one coefficient. Between neighbouring ones the objective is constant, and a pair
    changes it twice: where the first and where the second of its rows changes.
    """
    moves = line.slopes != 0
    if not moves.any():
        return line.old
    with np.errstate(divide="ignore", over="ignore"):
        changes = np.where(moves, line.old - line.values / np.where(moves, line.slopes, 1), np.inf)
    changes = np.where(np.isfinite(changes), changes, np.inf)
    order = np.argsort(changes, kind="stable")
    n_changes = int(np.isfinite(changes).sum())
    if n_changes == 0:
        return line.old
    place = np.empty(len(order), np.int64)
    place[order] = np.minimum(np.arange(len(order)), n_changes)
    start = np.where(np.isfinite(changes), line.slopes < 0, line.values > 0)
    jumps = np.where(start[:, None] != start[partners], -share, share) * (2 * others + share)
    other_place = place[partners]
    low, high = np.minimum(place[:, None], other_place), np.maximum(place[:, None], other_place)
    steps = np.bincount(low.ravel(), jumps.ravel(), n_changes + 1) - np.bincount(
        high.ravel(), jumps.ravel(), n_changes + 1
    )
    objective = np.concatenate([[0.0], np.cumsum(steps[:n_changes])])
    sorted_changes = changes[order[:n_changes]]
    gap = max(1.0, float(np.ptp(sorted_changes))) / n_changes
    edges = np.concatenate([[sorted_changes[0] - gap], sorted_changes, [sorted_changes[-1] + gap]])
    middles = edges[:-1] / 2 + edges[1:] / 2
    objective[(middles <= edges[:-1]) | (middles >= edges[1:])] = np.inf  # no coefficient lies between equal changes
    best = int(objective.argmin())
    return float(middles[best]) if np.isfinite(objective[best]) else line.old
