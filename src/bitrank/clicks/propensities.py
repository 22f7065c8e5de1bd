"""Propensities: the probability that each place of a page is looked at, passed in or estimated from explored clicks.

The learner weighs a click by the inverse of the propensity of its place.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from sklearn.isotonic import IsotonicRegression

from bitrank.clicks.page import Floats, Page

# The smallest propensity: a click counts at most tenfold.
MIN_PROPENSITY = 0.1
# Prior of the estimates, in explored items per place that are clicked at the mean rate: a few clicks say little.
_PRIOR_SHOWN = 10.0


def estimate_propensities(pages: Iterable[Page], n_places: int) -> Floats:
    """Estimate the probability that each place is looked at, relative to the first, from clicks on explored items.

    Explored items stand at random places: where one place gets more of their clicks than another, only the place can
    be the reason. Isotonic regression makes the rates fall from the first place to the last.

    Parameters
    ----------
    pages : iterable of Page
    n_places : int

    Returns
    -------
    float64 array of shape (n_places,), from 1 down to 0.1 at the least; all 1 where nothing was explored.

    Examples
    --------
    >>> codes = np.zeros((2, 1), np.uint8)
    >>> first = Page(codes[0], codes, clicked=[True, False], explored=[True, False])
    >>> second = Page(codes[0], codes, clicked=[False, False], explored=[False, True])
    >>> estimate_propensities([first] * 100 + [second] * 100, n_places=2)
    array([1. , 0.1])
    """
    if n_places < 1:
        raise ValueError(f"n_places must be at least 1, got {n_places}")
    shown, clicks = np.zeros(n_places), np.zeros(n_places)
    for page in pages:
        places = np.flatnonzero(page.explored)
        places = places[places < n_places]
        shown[places] += 1
        clicks[places] += page.clicked[places]
    return propensities_from_counts(shown, clicks)


def propensities_from_counts(shown: Floats, clicks: Floats) -> Floats:
    """Estimate propensities from how often each place showed an explored item, and how often that was clicked."""
    if clicks.sum() == 0:
        return np.ones(len(shown))
    mean = clicks.sum() / shown.sum()
    rates = (clicks + mean * _PRIOR_SHOWN) / (shown + _PRIOR_SHOWN)
    places = np.arange(len(rates))
    regression = IsotonicRegression(increasing=False)
    falling = np.asarray(regression.fit_transform(places, rates, sample_weight=shown + _PRIOR_SHOWN), np.float64)
    propensities: Floats = np.maximum(falling / falling[0], MIN_PROPENSITY)
    return propensities


def check_propensities(propensities: npt.ArrayLike) -> Floats:
    """Check propensities: numbers above 0 and up to 1, one per place."""
    array = np.asarray(propensities, np.float64)
    if array.ndim != 1 or len(array) == 0 or not ((array > 0) & (array <= 1)).all():
        raise ValueError(f"propensities must be numbers above 0 and up to 1, one per place, got {array!r:.80}")
    return np.maximum(array, MIN_PROPENSITY)
