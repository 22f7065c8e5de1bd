"""Search rehearsed on a sample: what numbers to store per item, which axes to take, and how many bits to scan."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.hashing.axes import FAMILIES, Axes, Floats, Ints, Reals, Spectra, fit_axes, true_scores
from bitrank.hashing.layout import HEAD_W, PAD, F, Layout, Number, W

K = 10
_QUERIES = 200
_MOST_ROWS, _MOST_NUMBERS = 50_000, 40_000_000
_ROWS_OF_FAMILIES = 5000
_NEAR = 100  # rows per query that come near the threshold: the ranges of numbers are theirs
_SHORTLISTS = (50, 100, 200)
_LOST = 0.002  # recall that a head may lose
_LEAST_GAIN = 0.01  # of recall, for axes other than principal ones
_ERROR_OF_NUMBERS = 0.1  # of the error that the levels leave
_HEADS = (0.125, 0.1875, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1, 1.25, 1.5, 2, 2.5, 3)  # bits per dimension
_LONGER, _LONGEST = 1.5, 0.8  # a head beside the shortest that would do for rows, and beside the whole code
_LEAST_ITEMS = 20_000  # that a collection is taken to hold one day
_LEAST_BITS = 1.0  # per dimension, for codes that are not scanned whole
_COST_OF_BYTE, _COST_OF_ROW = 1.3e-5, 0.18  # µs: a byte of a row scanned, a row of the shortlist read
Bit = tuple[float, int, int]  # mean weight, what it belongs to, power of two


class Rehearsal:
    """Some rows ask others, by true scores and by levels.

    Parameters
    ----------
    axes : Axes
    X : array
    rows, others : row numbers of the queries, and of the items that they search
    n : int
        Items of the collection that `others` stand for.
    """

    def __init__(self, axes: Axes, X: npt.NDArray[Any], rows: Ints, others: Ints, n: int) -> None:
        self.axes = axes
        self.asked, self.items = axes.ask(X[rows]), axes.measure(X[others])
        self.true = true_scores(axes, X, rows, self.items, others)
        self.levels = axes.quantise(self.items.a)
        self.itself = rows[:, None] == others
        self.products, self.f = self._by(axes.decoded(self.levels))
        estimates = self._hide(self.products / self.f + self.asked.beta * self.items.g)
        nth = min(max(1, round(K * len(others) / n)), max(1, len(others) - 1))
        t = -np.partition(-estimates, nth - 1, axis=1)[:, :nth].mean(axis=1, dtype=np.float64)
        t = np.where(np.isfinite(t), t, 0)
        beta = self.asked.beta[:, 0].astype(np.float64)
        self.t0 = float(beta @ t) / max(float(beta @ beta), 1e-30) if axes.along else float(np.median(t))
        self.slope, self.t = 0.0, self.asked.beta * self.t0
        self.w = self.f * (self.items.g - self.t0)
        self.w_stored, self.f_stored = self._numbers(self.products, self.w, self.f)
        if axes.metric == "l2":
            self._follow_lengths(t)

    def _follow_lengths(self, t: Floats) -> None:
        """Let the threshold follow the length of a query, where that finds more."""
        plain, recall = dict(vars(self)), self.whole_recall()
        lengths2 = self.asked.lengths2
        ratios = t[:, None] / np.maximum(lengths2, 1e-12)
        self.slope, self.t0 = float(np.median(ratios)), 0.0
        self.t = self.slope * lengths2
        self.w = self.f * self.items.g
        self.w_stored, self.f_stored = self._numbers(self.products, self.w, self.f)
        if self.whole_recall() < recall + _LEAST_GAIN:
            vars(self).update(plain)

    def _beyond(self, f: Floats) -> Floats | float:
        """What the threshold of a query takes from its scores, beyond the part in w."""
        return self.slope * self.asked.lengths2 * f if self.slope else 0.0

    def _by(self, decoded: Reals) -> tuple[Reals, Floats]:
        """Products of queries with decoded items, and the items' corrections."""
        f = self.axes.correction(self.items, decoded)
        f[f <= 0] = float(np.median(f[f > 0])) if (f > 0).any() else 1.0
        return self.asked.y @ decoded.T, f

    def _hide(self, scores: Floats) -> Floats:
        scores[self.itself] = -np.inf
        return scores

    def _numbers(self, products: Reals, w: Floats, f: Floats) -> tuple[Number, Number]:
        """How w and f are stored: in the range of items near a threshold, finely beside the error of the levels."""
        beta = self.asked.beta
        scores = self._hide(products + beta * w - self._beyond(f))
        n_near = min(_NEAR, scores.shape[1] - 1) or 1
        places = np.argpartition(-scores, n_near - 1, axis=1)[:, :n_near]
        near = np.unique(places)
        truth = np.take_along_axis(self.true, places, 1)
        known = np.isfinite(truth)
        truth = np.where(known, truth, self.t)
        above = truth - self.t
        error = np.take_along_axis(products, places, 1) + beta * (w + f * self.t0)[places] - f[places] * truth
        error_w = float(np.sqrt(np.mean(error[known] ** 2))) if known.any() else 0.0
        out = []
        for values, below, each in ((w, 0.5, error_w / max(float(np.abs(beta).mean()), 1e-6)), (f, 0.5, 0.0)):
            low, high = float(values[near].min()), float(values[near].max())
            span = high - low
            low, high = max(float(values.min()), low - below * span), min(float(values.max()), high + 0.5 * span)
            if values is f:
                low = max(low, float(f[near].min()) / 4)
                spread = float(np.sqrt(np.mean(above[known] ** 2))) if known.any() else 0.0
                each = error_w / max(spread, 1e-30)
            wanted = np.log2(1 + (high - low) / max(np.sqrt(12) * _ERROR_OF_NUMBERS * each, 1e-30))
            n_bits = int(np.clip(np.ceil(wanted), 4, 16))
            if values is f:
                n_bits = 8 if n_bits <= 9 else 16
            out.append(Number(low, (high - low) / ((1 << n_bits) - 1), n_bits))
        return out[0], out[1]

    def recalls(self, scores: Floats, shortlists: tuple[int, ...]) -> list[float]:
        """Recall of the true nearest where the best rows by `scores` are ranked by the whole code, then estimated."""
        w = self.w_stored.values(self.w_stored.levels(self.w))
        f = self.f_stored.values(self.f_stored.levels(self.f))
        n = scores.shape[1]
        k = min(K, n - 1)
        if k < 1:
            return [1.0] * len(shortlists)
        wanted = np.argpartition(-self.true, k - 1, axis=1)[:, :k]
        most = min(max(shortlists), n)
        best = np.argpartition(-scores, most - 1, axis=1)[:, :most]
        best = np.take_along_axis(best, np.argsort(-np.take_along_axis(scores, best, 1), axis=1), 1)
        whole = np.take_along_axis(self.products, best, 1) + self.asked.beta * w[best]
        estimates = whole / f[best]
        if self.slope:
            whole = np.take_along_axis(scores, best, 1)
        out = []
        for shortlist in shortlists:
            kept = np.argsort(-whole[:, :shortlist], axis=1)[:, : 4 * k]
            order = np.argsort(-np.take_along_axis(estimates, kept, 1), axis=1)[:, :k]
            found = np.take_along_axis(best, np.take_along_axis(kept, order, 1), 1)
            out.append(
                float(np.mean([len(set(a) & set(b)) / k for a, b in zip(found.tolist(), wanted.tolist(), strict=True)]))
            )
        return out

    def whole_recall(self) -> float:
        """Recall of a search that scans whole codes."""
        w = self.w_stored.values(self.w_stored.levels(self.w))
        f = self.f_stored.values(self.f_stored.levels(self.f))
        return self.recalls(self._hide(self.products + self.asked.beta * w - self._beyond(f)), (4 * K,))[0]

    def head_recalls(self, kept: Ints) -> tuple[list[float], Number]:
        """Recall with shortlists by the first bits of each axis, and the w that such a head stores."""
        products, f = self._by(self.axes.decoded(self.levels, kept))
        w = f * (self.items.g - self.t0)
        stored = self._numbers(products, w, f)[0]
        scores = self._hide(products + self.asked.beta * stored.values(stored.levels(w)))
        return self.recalls(scores, _SHORTLISTS), stored

    def weights(self) -> Reals:
        """Mean weight that queries give a step of each axis, and of β."""
        means: Reals = np.abs(self.asked.z[:, :-1]).mean(axis=0, dtype=np.float64)
        return means


def choose_family(X: npt.NDArray[Any], metric: str, budget: int, random: np.random.RandomState) -> str:
    """The family of axes with the best recall for rows that they were not fitted on; principal ones where equal."""
    rows = random.permutation(len(X))[:_ROWS_OF_FAMILIES]
    n_asked = min(_QUERIES, len(rows) // 5)
    if n_asked < 10:
        return "principal"
    sample = X[rows]
    places = np.arange(len(rows))
    recalls = {}
    for family in FAMILIES:
        axes = fit_axes(sample[n_asked:], metric, family, budget, random)
        recalls[family] = Rehearsal(axes, sample, places[:n_asked], places[n_asked:], len(X)).whole_recall()
    return max(recalls, key=lambda family: recalls[family] - _LEAST_GAIN * (family != "principal"))


class Learned(NamedTuple):
    """A layout and what is known of it: the family of its axes, mean weights of bits, a shortlist, the recall."""

    layout: Layout
    family: str
    weights: Floats
    shortlist: int
    recall: float


def learn_layout(
    X: npt.NDArray[Any],
    metric: str,
    bits: float,
    random: np.random.RandomState,
    family: str | None = None,
    spectra: Spectra | None = None,
) -> Learned:
    """Learn axes, of the best family unless one is given, numbers and the order of bits."""
    n, d = X.shape
    budget = max(1, round(bits * d))
    family = family or choose_family(X, metric, budget, random)
    axes = fit_axes(X, metric, family, budget, random, spectra)
    rows = random.permutation(n)[:_QUERIES]
    most = max(1000, min(_MOST_ROWS, _MOST_NUMBERS // d))
    others = np.arange(n) if n <= most else np.sort(random.permutation(n)[:most])
    trial = Rehearsal(axes, X, rows, others, n)
    recall = trial.whole_recall()
    planes = _planes(trial)
    n_head_planes, head_w, shortlist = len(planes), Number(), _SHORTLISTS[0]
    if bits >= _LEAST_BITS and not trial.slope:
        n_head_planes, head_w, shortlist = _choose_head(trial, planes, n, recall)
    w, f, beta = trial.w_stored, trial.f_stored, float(trial.weights()[-1])
    # The lightest planes give way to what the numbers need beyond two bytes.
    n_planes = min(len(planes), 8 * -(-(budget + 16) // 8) - head_w.n_bits - w.n_bits - f.n_bits)
    of_f = _bits(F, f, trial.slope * float(trial.asked.lengths2.mean())) if trial.slope else []
    planes = planes[: max(n_planes, 0)]
    spare = -(len(planes) + head_w.n_bits + w.n_bits + f.n_bits) % 8
    w = _wider(w, min(16, w.n_bits + spare))
    spare = -(len(planes) + head_w.n_bits + w.n_bits + f.n_bits) % 8
    head, rest = planes[:n_head_planes], planes[n_head_planes:]
    (rest if head_w.n_bits else head).extend(_bits(W, w, beta))
    head.extend([*_bits(HEAD_W, head_w, beta), *of_f])
    end = [(0.0, PAD, 0)] * spare + [(0.0, F, exponent) for exponent in reversed(range(f.n_bits))]
    table = np.array([*sorted(head, key=_heaviest), *sorted(rest, key=_heaviest), *end])
    n_scanned = len(head) if head_w.n_bits else len(table) - f.n_bits
    places, exponents = table[:, 1:].astype(np.int64).T
    layout = Layout(axes, places, exponents, head_w, w, f, trial.t0, trial.slope, n_scanned, len(table))
    return Learned(layout, family, table[:, 0], shortlist, recall)


def _heaviest(bit: Bit) -> float:
    return -bit[0]


def _bits(place: int, number: Number, weight: float) -> list[Bit]:
    """Bits of a number: mean weight, place and power of two of each."""
    return [(weight * number.step * 2.0 ** (e - 1), place, e) for e in reversed(range(number.n_bits))]


def _planes(trial: Rehearsal) -> list[Bit]:
    """Bits of all axes, the heaviest first."""
    axes, weights = trial.axes, trial.weights()
    steps = (weights[:-1] * axes.steps[: axes.m]).tolist()
    bits = axes.bits[: axes.m].tolist()
    planes = [(step * 2.0 ** (e - 1), axis, e) for axis, step in enumerate(steps) for e in range(bits[axis])]
    # Higher bits of an axis come first, also where its weight is zero.
    return sorted(planes, key=lambda plane: (-plane[0], -plane[2]))


def _choose_head(trial: Rehearsal, planes: list[Bit], n: int, recall: float) -> tuple[int, Number, int]:
    """Choose how many planes to scan, how the head's w is stored, and how many rows to read on, at the least cost.

    Queries are less like items than rows are: they need a longer head for the same recall.
    """
    axes = trial.axes
    d, w = len(axes.bits), trial.w_stored.n_bits
    n_whole = len(planes) + w
    sizes = [8 * round(bits * d / 8 + 1) for bits in _HEADS]
    sizes = [size for size in sizes if 32 <= _LONGER * size <= _LONGEST * n_whole]
    tried = dict[int, tuple[list[float], Number]]()

    def head(size: int) -> tuple[list[float], Number]:
        if size not in tried:
            kept = np.bincount([axis for _, axis, _ in planes[: size - w]], minlength=axes.m)
            tried[size] = trial.head_recalls(kept)
        return tried[size]

    best, chosen = np.inf, (len(planes), Number(), _SHORTLISTS[0])
    for place, shortlist in enumerate(_SHORTLISTS):
        first = bisect_left(sizes, True, key=lambda size: head(size)[0][place] >= recall - _LOST)
        if first == len(sizes):
            continue
        size = 8 * round(_LONGER * sizes[first] / 8)
        cost = max(n, _LEAST_ITEMS) * size / 8 * _COST_OF_BYTE + shortlist * _COST_OF_ROW
        if cost < best:
            best, stored = cost, head(size)[1]
            chosen = size - stored.n_bits, stored, shortlist
    return chosen


def _wider(number: Number, n_bits: int) -> Number:
    """The same range in finer steps."""
    return Number(number.low, (number.high - number.low) / ((1 << n_bits) - 1), n_bits)
