"""Trust per query: is this query like what was learned from?

A query of a class that was never seen has nearer neighbours in the collection than among the training rows. The
evidence for a query is how near its nearest 1 % are in a sample of the training rows, less how near they are in a
sample of the collection; distances are Hamming's.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from bitrank import _kernel
from bitrank.core.checks import check_codes
from bitrank.core.codes import sample_rows
from bitrank.core.types import Codes, Weights
from bitrank.index import Index

MOST_ROWS = 10_000  # of a sample
_FEWEST_ITEMS = 10  # of a collection that says anything

_CALIBRATION_ROWS = 4000
_MOST_KEPT = 4  # calibrations with codes that are no collection
_NEAREST = 0.01
_KEPT_S = 600.0  # a calibration with an engine, which does not say whether it changed
_CHANGED = 0.05  # share of the rows of an index that may change before its calibration is made again
# Estimated probabilities scatter: this factor lets those of 1 reach it.
_SLACK = 1.2
# Without a collection, and for queries that are no items, trust rises between these quantiles of the training rows.
_LABEL_QUANTILES, _PAIR_QUANTILES = (0.25, 0.75), (0.01, 0.10)
# Of the evidence of queries and clicked items. On digits, of (.1, .1), (.1, .3), (.2, .4), (.25, .5) and (.25, .75),
# this kept nine tenths of the gain at a loss below .005 in precision at 10 for a class that no click had named.
_CLICK_QUANTILES = (0.1, 0.3)

Floats = npt.NDArray[np.float64]


class Doubt(NamedTuple):
    """How likely a query must have been seen to earn any trust.

    Where a share of the collection below `newness` looks new, less is asked for, in proportion.
    """

    probability: float
    newness: float = 0.0


NO_DOUBT = Doubt(0.0)


class Calibration:
    """What the trust in a query is told from, made once: two samples, and what their own rows look like in them.

    After learning from labels, trust is the probability that a query belongs to what was seen, less a doubt. The
    collection is a mixture: a share of it is like the training rows. The density of training rows against that of the
    collection, which isotonic regression estimates, times this share is the probability. Without a collection, only
    the distance to the training rows is known, and trust is more careful: 0 for queries farther from them than three
    quarters of the training rows are from each other. After learning from pairs it is 0 for queries farther from the
    training queries than 99 % of these. After learning from clicks it is 0 for queries of which the collection holds
    more than was clicked.

    Parameters
    ----------
    sample : packed codes of training rows, of training queries of pairs, or of queries and clicked items
    collection : packed codes of the collection, or of a sample of it in random order, optional
        Left aside where it has fewer than ten rows.
    learned_from : {"labels", "pairs", "clicks"}
    doubt : Doubt
        What was learned from labels alone buries items of other classes. What was learned beside the unlabelled items
        of a collection does little harm to queries that are like these: without doubt, trust is the probability.

    Attributes
    ----------
    newness : float array
        Probability of the first items of the collection that they are of a kind that no label names; empty without.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> low, high = (rng.integers(low, low + 16, size=(500, 8), dtype=np.uint8) for low in (0, 240))
    >>> calibration = Calibration(low[:400], np.concatenate([low, high]))
    >>> bool(calibration.trust(low[400:]).mean() > 0.8), bool(calibration.trust(high).max() < 0.2)
    (True, True)
    """

    def __init__(
        self, sample: Codes, collection: Codes | None = None, learned_from: str = "labels", doubt: Doubt = NO_DOUBT
    ) -> None:
        self.sample, near_sample = sample, _kernel.Sample(sample)
        self._near_sample, self._near_collection = near_sample, None
        self._curve: Callable[[Floats], Floats]
        self.newness = np.zeros(0, np.float32)
        self.share = 1.0  # of the collection that is like the training rows
        some = sample[:_CALIBRATION_ROWS]
        if collection is None or len(collection) < _FEWEST_ITEMS or learned_from == "pairs":
            quantiles = _PAIR_QUANTILES if learned_from == "pairs" else _LABEL_QUANTILES
            self._between(-nearness(some, near_sample, among=True), quantiles)
            return
        self._near_collection = near_collection = _kernel.Sample(collection)
        items = collection[:_CALIBRATION_ROWS]
        seen = nearness(some, near_collection) - nearness(some, near_sample, among=True)
        of_items = nearness(items, near_collection, among=True) - nearness(items, near_sample)
        if learned_from == "clicks":
            self._between(seen, _CLICK_QUANTILES)
            return
        self._fit_curve(seen, of_items)
        self.newness = (1 - self._curve(of_items)).astype(np.float32)
        least = doubt.probability
        if doubt.newness > 0:
            least *= min(1.0, (1 - self.share) / doubt.newness)
        probability = self._curve
        self._curve = lambda evidence: (probability(evidence) - least).clip(0) / (1 - least)

    def trust(self, codes: Codes) -> Weights:
        """Trust in queries, from 0 to 1."""
        evidence = -nearness(codes, self._near_sample)
        if self._near_collection is not None:
            evidence += nearness(codes, self._near_collection)
        trust: Weights = self._curve(evidence).astype(np.float32)
        return trust

    def _between(self, values: Floats, quantiles: tuple[float, float]) -> None:
        """Let trust rise from 0 to 1 between two quantiles of the evidence of training rows."""
        low, high = np.quantile(values, quantiles)
        self._curve = lambda evidence: ((evidence - low) / max(high - low, 1e-12)).clip(0, 1)

    def _fit_curve(self, seen: Floats, items: Floats) -> None:
        """The probability that a query belongs to what was seen, by evidence of training rows and of the collection."""
        from sklearn.isotonic import IsotonicRegression

        # Half of what is like the training rows lies above their median, and little else does.
        self.share = min(1.0, 2 * max(1e-3, float((items >= np.median(seen)).mean())))
        values, is_seen = np.concatenate([seen, items]), np.repeat([1.0, 0.0], [len(seen), len(items)])
        weights = np.repeat([1 / len(seen), 1 / len(items)], [len(seen), len(items)])
        curve = IsotonicRegression(y_min=1e-3, y_max=1 - 1e-3).fit(values, is_seen, weights)
        x, p = curve.X_thresholds_, curve.y_thresholds_

        def probability(evidence: Floats) -> Floats:
            some: Floats = np.interp(evidence, x, p)
            probability: Floats = (_SLACK * self.share * some / (1 - some)).clip(0, 1)
            return probability

        self._curve = probability


class Calibrations:
    """The calibrations of one ranker by collection, each made once, and again when the collection has changed."""

    def __init__(self) -> None:
        self.own: Calibration | None = None  # with what it learned beside
        self._by_collection: WeakKeyDictionary[Any, tuple[float, Calibration]] = WeakKeyDictionary()
        self._by_codes: OrderedDict[bytes, Calibration] = OrderedDict()

    def of(self, collection: Any, n_bits: int, make: Callable[[Codes], Calibration]) -> Calibration:
        """The calibration with an `Index`, an engine, or packed codes."""
        if _is_sampled(collection):
            source = getattr(collection, "index", collection)  # what a view of items is of
            origin, age = source.age if isinstance(source, Index) else (source, time.monotonic())
            most = _CHANGED * len(source) if isinstance(source, Index) else _KEPT_S
            made, calibration = self._by_collection.get(origin, (0.0, None))
            if calibration is None or abs(age - made) > most:
                calibration = make(sample_collection(collection, n_bits))
                self._by_collection[origin] = age, calibration
            return calibration
        codes = sample_collection(collection, n_bits)
        key = blake2b(codes.tobytes(), digest_size=16).digest()
        if key not in self._by_codes:
            while len(self._by_codes) >= _MOST_KEPT:
                self._by_codes.popitem(last=False)
            self._by_codes[key] = make(codes)
        return self._by_codes[key]


def _is_sampled(collection: Any) -> bool:
    """Whether a collection draws codes of its own: an `Index`, an engine."""
    return isinstance(collection, Index) or (hasattr(collection, "sample") and not hasattr(collection, "__array__"))


def sample_collection(collection: Any, n_bits: int) -> Codes:
    """At most 10 000 codes of a collection (packed codes, an `Index` or an engine), in random order."""
    codes: Any = collection.sample(MOST_ROWS) if _is_sampled(collection) else collection
    if getattr(codes, "dtype", None) != np.float32:  # those of the space of vectors are checked where they are made
        codes = check_codes(codes, n_bits, name="collection")
    codes = codes[sample_rows(len(codes), MOST_ROWS)]
    # A calibration takes the first of them, and collections are often sorted by class.
    mixed: Codes = codes[np.random.default_rng(0).permutation(len(codes))]
    return mixed


def nearness(codes: Codes, sample: _kernel.Sample, among: bool = False) -> Floats:
    """Mean Hamming distance of the nearest 1 % of a sample, at least three.

    The nearest one does not count: it may be the query itself, an item of the collection. Codes that are rows of the
    sample, `among` it, leave themselves out in addition: their own distance, 0, is the smallest.
    """
    n_near = min(len(sample) - among, 1 + max(3, round(_NEAREST * len(sample))))
    last, skipped = n_near + among, int(among) + min(1, n_near - 1)
    sums = np.empty(len(codes), np.uint64)
    sample.nearest_sums(codes, skipped, last, sums)
    return sums / float(last - skipped)
