"""`Page`: one page of results and what was clicked on it.

Everything in `feedback` starts from pages; what they say is corrected by `propensities`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bitrank.checks import check_codes, check_magnitudes
from bitrank.vocabulary import Codes, Weights

Floats = npt.NDArray[np.float64]


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


def _flags(values: npt.ArrayLike, n: int, name: str) -> npt.NDArray[np.bool_]:
    array = np.asarray(values)
    if array.dtype != np.bool_ or array.shape != (n,):
        raise ValueError(
            f"{name} must be {n} booleans, one for each result shown, got {array.dtype} of shape {array.shape}"
        )
    return array
