"""Trust per query: is this query like what was learned from?

A query of a class that was never seen has nearer neighbours in the collection than among the training rows. The
evidence for a query is how near its nearest 1 % are in a sample of the training rows, less how near they are in a
sample of the collection; distances are Hamming's.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_codes
from bitrank.core.codes import distances, sample_rows
from bitrank.core.types import Codes, Rows, Weights
from bitrank.ranking.evidence.kinds import blocks

MOST_ROWS = 10_000  # of a sample
_FEWEST_ITEMS = 10  # of a collection that says anything

_CALIBRATION_ROWS = 4000
_MOST_CALIBRATIONS = 8
_NEAREST = 0.01
_BLOCK = 512  # queries at a time
# Estimated probabilities scatter: this factor lets those of 1 reach it.
_SLACK = 1.2
# Without a collection, and for queries that are no items, trust rises between these quantiles of the training rows.
_LABEL_QUANTILES, _PAIR_QUANTILES = (0.25, 0.75), (0.01, 0.10)
# Of the evidence of queries and clicked items. On digits, of (.1, .1), (.1, .3), (.2, .4), (.25, .5) and (.25, .75),
# this kept nine tenths of the gain at a loss below .005 in precision at 10 for a class that no click had named.
_CLICK_QUANTILES = (0.1, 0.3)

Floats = npt.NDArray[np.float64]


@runtime_checkable
class Sampled(Protocol):
    """A collection that draws codes of its own: an `Index`, an engine."""

    def sample(self, n: int) -> Codes:
        """Draw n codes, or all where there are fewer."""
        ...


class Doubt(NamedTuple):
    """How likely a query must have been seen to earn any trust.

    Where a share of the collection below `newness` looks new, less is asked for, in proportion.
    """

    probability: float
    newness: float = 0.0


NO_DOUBT = Doubt(0.0)


class Unlabelled(NamedTuple):
    """Codes of items without labels, and for each the probability that it is of a kind that no label names."""

    codes: Codes
    newness: Weights


def trust_in_classes(codes: Codes, sample: Codes, collection: Codes | None, doubt: Doubt = NO_DOUBT) -> Weights:
    """Trust in queries after learning from labelled rows, from 0 to 1.

    Parameters
    ----------
    codes : packed codes of the queries
    sample : packed codes of training rows
    collection : packed codes of the collection, or a sample of them, optional
        Without it only the distance to the training rows is known, and trust is more careful: 0 for queries farther
        from them than three quarters of the training rows are from each other.
    doubt : Doubt
        What was learned from labels alone buries items of other classes. What was learned beside the unlabelled items
        of a collection does little harm to queries that are like these: without doubt, trust is the probability of
        having been seen.

    Returns
    -------
    float32 array of shape (n_queries,)
    """
    if collection is None or len(collection) < _FEWEST_ITEMS:
        return _between_quantiles(-nearness(codes, sample), -nearness(*_some(sample)), _LABEL_QUANTILES)
    seen, items = _calibrate(sample, collection)
    probability = _seen_probability(_evidence(codes, sample, collection), seen, items)
    least = doubt.probability
    if doubt.newness > 0:
        least *= min(1.0, (1 - _seen_share(seen, items)) / doubt.newness)
    trust: Weights = ((probability - least).clip(0) / (1 - least)).astype(np.float32)
    return trust


def unlabelled_items(sample: Codes, collection: Codes | None) -> Unlabelled | None:
    """Items of a collection with the probability that each is unlike the training rows; None where they are few."""
    if collection is None or len(collection) < _FEWEST_ITEMS:
        return None
    seen, items = _calibrate(sample, collection)
    newness: Weights = (1 - _seen_probability(items, seen, items)).astype(np.float32)
    return Unlabelled(collection[: len(items)], newness)


def trust_in_queries(codes: Codes, sample: Codes) -> Weights:
    """Trust in queries after learning from pairs: 0 for queries farther from the training queries than 99 % of these.

    Parameters
    ----------
    codes : packed codes of the queries
    sample : packed codes of training queries
    """
    return _between_quantiles(-nearness(codes, sample), -nearness(*_some(sample)), _PAIR_QUANTILES)


def trust_in_clicks(codes: Codes, sample: Codes, collection: Codes | None) -> Weights:
    """Trust in queries after learning from clicks: 0 for queries of which the collection holds more than was clicked.

    Parameters
    ----------
    codes : packed codes of the queries
    sample : packed codes of queries and clicked items
    collection : packed codes of the collection, or a sample of them, optional
    """
    if collection is None or len(collection) < _FEWEST_ITEMS:
        return trust_in_classes(codes, sample, None)
    seen, _ = _calibrate(sample, collection)
    return _between_quantiles(_evidence(codes, sample, collection), seen, _CLICK_QUANTILES)


def sample_collection(collection: Any, n_bits: int) -> Codes | None:
    """At most 10 000 codes of a collection (packed codes, an `Index` or an engine), in random order.

    A calibration takes the first of them, and collections are often sorted by class.
    """
    if collection is None:
        return None
    if isinstance(collection, Sampled) and not hasattr(collection, "__array__"):
        codes = check_codes(collection.sample(MOST_ROWS), n_bits, name="collection")
    else:
        codes = check_codes(collection, n_bits, name="collection")
        codes = codes[sample_rows(len(codes), MOST_ROWS)]
    return codes[np.random.default_rng(0).permutation(len(codes))]


def nearness(codes: Codes, sample: Codes, itself: Rows | None = None) -> Floats:
    """Mean Hamming distance of the nearest 1 % of a sample, at least three.

    The nearest one does not count: it may be the query itself, an item of the collection. Codes that are known to be
    rows of the sample leave themselves out in addition.
    """
    n_near = min(len(sample) - (itself is not None), 1 + max(3, round(_NEAREST * len(sample))))
    out = np.empty(len(codes))
    for part in blocks(len(codes), _BLOCK):
        found = distances(codes[part], sample)
        if itself is not None:
            found[np.arange(len(found)), itself[part]] = np.iinfo(found.dtype).max
        nearest = np.sort(np.partition(found, n_near - 1, axis=1)[:, :n_near], axis=1)
        out[part] = nearest[:, min(1, n_near - 1) :].mean(axis=1)
    return out


def _some(sample: Codes) -> tuple[Codes, Codes, Rows]:
    """Some rows of a sample to calibrate with, the sample, and where they are in it."""
    rows = np.arange(min(_CALIBRATION_ROWS, len(sample)))
    return sample[rows], sample, rows


_calibrations: dict[bytes, tuple[Floats, Floats]] = {}


def _calibrate(sample: Codes, collection: Codes) -> tuple[Floats, Floats]:
    """Evidence of training rows and of rows of the collection; the last few are remembered."""
    key = hashlib.blake2b(sample.tobytes() + collection.tobytes()).digest()
    if key not in _calibrations:
        seen, items = (_evidence(rows, sample, collection, place) for place, rows in enumerate((sample, collection)))
        while len(_calibrations) >= _MOST_CALIBRATIONS:
            _calibrations.pop(next(iter(_calibrations)), None)
        _calibrations[key] = seen, items
    return _calibrations[key]


def _evidence(codes: Codes, sample: Codes, collection: Codes, place: int | None = None) -> Floats:
    """How much nearer the training rows are than the collection; rows of either sample leave themselves out."""
    rows = None
    if place is not None:
        codes, _, rows = _some(codes)
    to_sample = nearness(codes, sample, rows if place == 0 else None)
    return nearness(codes, collection, rows if place == 1 else None) - to_sample


def _seen_probability(evidence: Floats, seen: Floats, items: Floats) -> Floats:
    """Probability that a query belongs to what was seen.

    The collection is a mixture: a share of it is like the training rows. The density of training rows against that of
    the collection, which isotonic regression estimates, times this share is the probability.
    """
    from sklearn.isotonic import IsotonicRegression

    share = _seen_share(seen, items)
    values, is_seen = np.concatenate([seen, items]), np.repeat([1.0, 0.0], [len(seen), len(items)])
    weights = np.repeat([1 / len(seen), 1 / len(items)], [len(seen), len(items)])
    curve = IsotonicRegression(y_min=1e-3, y_max=1 - 1e-3, out_of_bounds="clip").fit(values, is_seen, weights)
    p = curve.predict(evidence)
    probability: Floats = (_SLACK * share * p / (1 - p)).clip(0, 1)
    return probability


def _seen_share(seen: Floats, items: Floats) -> float:
    """Share of a collection that is like the training rows: half of it lies above their median, and few others do."""
    return min(1.0, 2 * max(1e-3, float((items >= np.median(seen)).mean())))


def _between_quantiles(values: Floats, training: Floats, quantiles: tuple[float, float]) -> Weights:
    low, high = np.quantile(training, quantiles)
    trust: Weights = ((values - low) / max(high - low, 1e-12)).clip(0, 1).astype(np.float32)
    return trust
