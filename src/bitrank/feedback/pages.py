"""`Page`: one page of results and what was clicked on it; and how likely a place of a page is looked at.

Everything in `feedback` starts from pages; what they say is corrected by these propensities.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from bitrank.codes import Codes, Weights, check_codes, check_magnitudes

Floats = npt.NDArray[np.float64]

# No place counts as looked at less often than this: a click is worth at most ten.
LEAST_PROPENSITY = 0.1
# Estimates start from so many explored items a place, clicked alike: a few clicks say little about a place.
_PRIOR_SHOWN = 10.0


class Page:
    """One page of results, in the order shown.

    Parameters
    ----------
    query_code : packed code of the query, shape (n_bytes,)
    shown_codes : packed codes, shape (n_shown, n_bytes)
    clicked : bool array of shape (n_shown,)
    explored : bool array of shape (n_shown,), optional
        Which results were put in to explore, at random places; none by default.
    magnitudes : array of shape (n_bits,), optional
        Of a float query.

    Examples
    --------
    >>> page = Page(np.uint8([7]), np.uint8([[6], [200]]), [True, False])
    >>> page.explored
    array([False, False])
    """

    def __init__(
        self,
        query_code: Codes,
        shown_codes: Codes,
        clicked: npt.ArrayLike,
        explored: npt.ArrayLike | None = None,
        magnitudes: npt.ArrayLike | None = None,
    ) -> None:
        self.shown_codes = check_codes(shown_codes, name="shown_codes")
        n, width = self.shown_codes.shape
        query = check_codes(np.atleast_2d(query_code), name="query_code")
        if query.shape != (1, width):
            raise ValueError(f"query_code must be one code of {width} bytes, got shape {query.shape}")
        self.query_code: Codes = query[0]
        self.clicked = _flags(clicked, n, "clicked")
        self.explored = np.zeros(n, bool) if explored is None else _flags(explored, n, "explored")
        self.magnitudes: Weights | None = None
        if magnitudes is not None:
            rows = np.atleast_2d(magnitudes)
            self.magnitudes = check_magnitudes(rows, 1, rows.shape[1])[0]


def estimate_propensities(pages: Iterable[Page], n_places: int) -> Floats:
    """How likely each place of a page is looked at, relative to the first, from clicks on explored items.

    Explored items stand at random places: that one place gets more of their clicks than another is due to the place
    alone. Rates are made to fall from the first place to the last (isotonic regression).

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
    """The same from how often each place showed an explored item, and how often that was clicked."""
    if clicks.sum() == 0:
        return np.ones(len(shown))
    from sklearn.isotonic import IsotonicRegression  # slow to import, and not needed to read a page

    mean = clicks.sum() / shown.sum()
    rates = (clicks + mean * _PRIOR_SHOWN) / (shown + _PRIOR_SHOWN)
    places = np.arange(len(rates))
    fit = IsotonicRegression(increasing=False)
    falling = np.asarray(fit.fit_transform(places, rates, sample_weight=shown + _PRIOR_SHOWN), np.float64)
    propensities: Floats = np.maximum(falling / falling[0], LEAST_PROPENSITY)
    return propensities


def check_propensities(propensities: npt.ArrayLike) -> Floats:
    """Given propensities as floats above 0 and up to 1, or a ValueError that says what came instead."""
    array = np.asarray(propensities, np.float64)
    if array.ndim != 1 or len(array) == 0 or not ((array > 0) & (array <= 1)).all():
        raise ValueError(f"propensities must be a list of numbers above 0 and up to 1, one a place, got {array!r:.80}")
    return np.maximum(array, LEAST_PROPENSITY)


def _flags(values: npt.ArrayLike, n: int, name: str) -> npt.NDArray[np.bool_]:
    array = np.asarray(values)
    if array.dtype != np.bool_ or array.shape != (n,):
        raise ValueError(
            f"{name} must be {n} booleans, one for each result shown, got {array.dtype} of shape {array.shape}"
        )
    return array
