"""Binary reconstructive embeddings: Hamming distances that reconstruct distances, by exact coordinate descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from bitrank.core.checks import check_count, class_numbers
from bitrank.core.progress import progress
from bitrank.hashing.hasher import Floats, RandomHasher
from bitrank_papers.labelled import Rows, draw_labelled

DEFAULTS = {"distances": (100, 2000), "labels": (400, 5000)}  # by target: n_sweeps, n_rows
N_PARTNERS = 50  # rows that each training row is compared with, where distances are the target
N_ANCHORS = 50  # training rows that a hash function combines
TOLERANCE = 1e-4  # relative decrease of the objective below which descent ends: in one sweep, with labels in SETTLED
SETTLED = 20


@dataclass(eq=False, repr=False, kw_only=True)
class BinaryReconstructiveEmbeddings(RandomHasher):
    """Binary reconstructive embeddings (BRE).

    Bit k is the sign of Σ_q a_qk ⟨x_qk, x⟩ over 50 random rows x_qk of its own. The share of bits in which two rows
    differ should equal their target: half the squared distance of the rows, centred and scaled to length one, over
    the largest, or 0 within a class and 1 between classes. Coordinate descent minimises the squared error, over random
    pairs for distances and over all pairs for labels: one coefficient at a time, exactly, over all values that change
    a bit.

    Parameters
    ----------
    n_bits : int, default 32
        May exceed the number of features.
    target : {"distances", "labels"}, default "distances"
        What is reconstructed. "labels" needs `y`; "distances" ignores it.
    n_sweeps : int or None, default None
        Most sweeps over all bits, one coefficient each; descent ends earlier where the objective settles. None is 100
        for distances and 400 for labels.
    n_rows : int or None, default None
        Rows to learn from, drawn at random, or evenly over the classes. None is 2000 for distances and 5000 for labels.
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
    n_sweeps: int | None = None
    n_rows: int | None = None

    def _check_params(self, n_features: int) -> int:
        if self.n_sweeps is not None:
            check_count("n_sweeps", self.n_sweeps, 0)
        if self.n_rows is not None:
            check_count("n_rows", self.n_rows, 2)
        if self.target not in DEFAULTS:
            raise ValueError(f"target must be one of {', '.join(DEFAULTS)}, got {self.target!r}")
        return super()._check_params(n_features)

    def _learn_from(self, X: npt.NDArray[Any], y: Any, n_bits: int) -> dict[str, Floats]:
        if self.target == "labels" and y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        n_sweeps, n_rows = DEFAULTS[self.target]
        n_sweeps = n_sweeps if self.n_sweeps is None else self.n_sweeps
        random = check_random_state(self.random_state)
        mean = X.mean(axis=0, dtype=np.float64)
        classes = class_numbers(y, len(X)) if self.target == "labels" else np.zeros(len(X), np.int64)
        rows = draw_labelled(classes, n_rows if self.n_rows is None else self.n_rows, random)
        V = X[rows] - mean
        lengths = np.sqrt(np.square(V).sum(axis=1, keepdims=True))
        V /= np.where(lengths > 0, lengths, 1)
        if self.target == "labels":
            return {"mean_": mean, "components_": _descend_to_labels(V, classes[rows], n_bits, n_sweeps, random)}
        partners = random.randint(len(V), size=(len(V), N_PARTNERS))
        targets = np.stack([1 - V[row] @ V[others].T for row, others in enumerate(partners)])
        targets = np.maximum(targets, 0) / (targets.max() if targets.max() > 0 else 1)
        return {"mean_": mean, "components_": _descend(V, partners, targets, n_bits, n_sweeps, random)}

    def _learn(self, X: npt.NDArray[Any], n_bits: int) -> dict[str, Floats]:
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.target == "labels"
        return tags


class Combinations(NamedTuple):
    """Training rows per bit (N_ANCHORS, n_bits), their coefficients, and the combined rows (n_features, n_bits)."""

    anchors: Rows
    coefficients: Floats
    components: Floats


def _start(V: Floats, n_bits: int, random: np.random.RandomState) -> Combinations:
    """Draw the combinations from which descent starts."""
    anchors = random.randint(len(V), size=(N_ANCHORS, n_bits))
    coefficients = random.standard_normal((N_ANCHORS, n_bits))
    starts = [V[rows].T @ values for rows, values in zip(anchors.T, coefficients.T, strict=True)]
    return Combinations(anchors, coefficients, np.stack(starts, axis=1))


def _descend(
    V: Floats, partners: Rows, targets: Floats, n_bits: int, n_sweeps: int, random: np.random.RandomState
) -> Floats:
    """Learn the combined rows of all bits from the targets of pairs."""
    anchors, coefficients, components = _start(V, n_bits, random)
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


def _descend_to_labels(V: Floats, classes: Rows, n_bits: int, n_sweeps: int, random: np.random.RandomState) -> Floats:
    """Learn the combined rows of all bits from the classes of all pairs."""
    anchors, coefficients, components = _start(V, n_bits, random)
    values = np.ascontiguousarray((V @ components).T)
    signs = np.where(values.T > 0, np.float32(1), np.float32(-1))
    errors: list[float] = []
    for _ in progress(range(n_sweeps), label="sweeps of BRE"):
        chosen = random.randint(N_ANCHORS, size=n_bits)
        rows = V[anchors[chosen, np.arange(n_bits)]]
        for k, (row, slopes) in enumerate(zip(rows, rows @ V.T, strict=True)):
            old = coefficients[chosen[k], k]
            new = best_for_labels(Line(values[k], slopes, old), k, signs, classes)
            coefficients[chosen[k], k] = new
            components[:, k] += (new - old) * row
            values[k] += (new - old) * slopes
            signs[:, k] = np.where(values[k] > 0, 1, -1)
        errors.append(label_error(signs, classes))
        if len(errors) > SETTLED and errors[-1] > (1 - TOLERANCE) * errors[-1 - SETTLED]:
            break
    return components


def label_error(signs: npt.NDArray[np.float32], classes: Rows) -> float:
    """Mean over all pairs of rows of (share of bits that differ - 1 where the classes differ)²; signs: ±1."""
    n, n_bits = signs.shape
    order = np.argsort(classes, kind="stable")
    starts = np.flatnonzero(np.diff(classes[order], prepend=-1))
    by_class = np.add.reduceat(signs[order].astype(np.float64), starts, axis=0)
    gram = (signs.T @ signs).astype(np.float64)
    total = np.square(gram).sum() / (4 * n_bits) + np.square(by_class.sum(axis=0)).sum() / 2 - np.square(by_class).sum()
    return float(1 / 4 + total / n_bits / n**2)


class Line(NamedTuple):
    """Values of the rows before the sign as a function of one coefficient t: values + (t - old) · slopes."""

    values: Floats
    slopes: Floats
    old: float


class Flips(NamedTuple):
    """Rows in the order in which they change their bit as the coefficient of a line grows; those that never do, last.

    `changes` are the coefficients at which they do, `start` the bits of all rows below the first of them.
    """

    order: Rows
    changes: Floats
    start: npt.NDArray[np.bool_]

    def best(self, objective: Floats, old: float) -> float:
        """Return the coefficient with the lowest objective; `objective`: before, between and after the changes."""
        gap = max(1.0, float(np.ptp(self.changes))) / len(self.changes)
        edges = np.concatenate([[self.changes[0] - gap], self.changes, [self.changes[-1] + gap]])
        middles = edges[:-1] / 2 + edges[1:] / 2
        between = (middles > edges[:-1]) & (middles < edges[1:])  # no coefficient lies between equal changes
        best = int(np.where(between, objective, np.inf).argmin())
        return float(middles[best]) if between[best] else old


def flips(line: Line) -> Flips:
    """Follow a line through all coefficients."""
    moves = line.slopes != 0
    with np.errstate(divide="ignore", over="ignore"):
        changes = np.where(moves, line.old - line.values / np.where(moves, line.slopes, 1), np.inf)
    changes = np.where(np.isfinite(changes), changes, np.inf)
    order = np.argsort(changes, kind="stable")
    start = np.where(np.isfinite(changes), line.slopes < 0, line.values > 0)
    return Flips(order, changes[order[: np.isfinite(changes).sum()]], start)


def best_coefficient(line: Line, partners: Rows, others: npt.NDArray[Any], share: float) -> float:
    """Minimise the sum over pairs of (others + share · [the pair differs])² over the coefficient of a line.

    Every row changes its bit at one coefficient. Between neighbouring ones the objective is constant, and a pair
    changes it twice: where the first and where the second of its rows changes.
    """
    along = flips(line)
    order, start, n_changes = along.order, along.start, len(along.changes)
    if n_changes == 0:
        return line.old
    place = np.empty(len(order), np.int64)
    place[order] = np.minimum(np.arange(len(order)), n_changes)
    jumps = np.where(start[:, None] != start[partners], -share, share) * (2 * others + share)
    other_place = place[partners]
    low, high = np.minimum(place[:, None], other_place), np.maximum(place[:, None], other_place)
    steps = np.bincount(low.ravel(), jumps.ravel(), n_changes + 1) - np.bincount(
        high.ravel(), jumps.ravel(), n_changes + 1
    )
    return along.best(np.concatenate([[0.0], np.cumsum(steps[:n_changes])]), line.old)


def best_for_labels(line: Line, k: int, signs: npt.NDArray[np.float32], classes: Rows) -> float:
    """Minimise `label_error` over the coefficient of a line, which decides column k of the signs.

    As a function of that column h, the error is a multiple of (Σ h)² + Σ_l (h · h_l)² / n_bits - 2 Σ_c (Σ of h in class
    c)², but for a constant; h_l are the other columns. Each change of a bit adds one row to these sums.
    """
    along = flips(line)
    rows = along.order[: len(along.changes)]
    if len(rows) == 0:
        return line.old
    n_bits = signs.shape[1]
    h = np.where(along.start, np.float32(1), np.float32(-1))
    steps = -2 * h[rows]
    products = np.empty((len(rows) + 1, n_bits), np.float32)
    products[0] = h @ signs
    products[1:] = signs[rows]
    products[0, k], products[1:, k] = h.sum(), 1
    products[1:] *= steps[:, None]
    np.cumsum(products, axis=0, out=products)
    weights = np.full(n_bits, 1 / n_bits, np.float32)
    weights[k] = 1
    objective = (np.square(products) @ weights).astype(np.float64)
    by_class = np.argsort(classes[rows], kind="stable")
    labels, steps = classes[rows][by_class], steps[by_class].astype(np.float64)
    earlier = np.cumsum(steps) - steps
    sums = np.bincount(classes, h)[labels] + earlier - earlier[np.searchsorted(labels, labels)]
    increases = np.empty(len(rows))
    increases[by_class] = steps * (2 * sums + steps)
    objective[1:] -= 2 * np.cumsum(increases)
    return along.best(objective, line.old)
