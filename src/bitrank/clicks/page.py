"""`Page`: a query, the results shown for it, and the results that were clicked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_codes
from bitrank.core.codes import signs
from bitrank.core.types import Codes, n_bytes

MAX_REAL = 1e15  # Magnitude of a query's values: sums of them, times weights, stay within float32.

Floats = npt.NDArray[np.float64]
CANARY = 0  # the version of pages that were ranked by Hamming distance
QueryArray = npt.NDArray[Any]  # packed codes (uint8) or reals (float32)


class Page:
    """One page of results, in the order shown.

    A page in the form that learning needs: codes and no ids, so that it outlives the items. `LoggedPage` is the same
    page by ids.

    Parameters
    ----------
    query : packed code of shape (n_bytes,), or reals of shape (n_bits,)
        Reals are sign and magnitude, as `project` of a hasher returns them.
    shown_codes : packed codes, shape (n_shown, n_bytes)
    clicked : bool array of shape (n_shown,)
    explored : bool array of shape (n_shown,), optional
        Results that were placed at random to explore; none by default.
    client : str, optional
        Who answered the page, where that is known.

    Attributes
    ----------
    query : uint8 array of shape (n_bytes,) or float32 array of shape (n_bits,)
    query_code : uint8 array of shape (n_bytes,)
        The query as a packed code: the signs where the query is a vector of reals.

    Examples
    --------
    >>> page = Page(np.uint8([7]), np.uint8([[6], [200]]), [True, False])
    >>> page.explored
    array([False, False])
    >>> Page(np.float32([0.5, -2, 1]), np.uint8([[64]]), [True]).query_code
    array([160], dtype=uint8)
    """

    def __init__(
        self,
        query: QueryArray,
        shown_codes: Codes,
        clicked: npt.ArrayLike,
        explored: npt.ArrayLike | None = None,
        client: str | None = None,
    ) -> None:
        self.client = client
        self.shown_codes = check_codes(shown_codes, name="shown_codes")
        n, width = self.shown_codes.shape
        self.query, self.query_code = _check_query(query, width)
        self.clicked = _check_flags(clicked, n, "clicked")
        self.explored = np.zeros(n, bool) if explored is None else _check_flags(explored, n, "explored")


def stack_queries(queries: Sequence[QueryArray]) -> QueryArray:
    """Join rows of queries: packed codes, or reals where any of them are; codes then count as ±1.

    Examples
    --------
    >>> stack_queries([np.float32([[0.5, -2, 1]]), np.uint8([[64]])]).tolist()
    [[0.5, -2.0, 1.0], [-1.0, 1.0, -1.0]]
    """
    n_bits = max((rows.shape[1] for rows in queries if rows.dtype.kind == "f"), default=0)
    return np.concatenate([signs(rows, n_bits) if n_bits and rows.dtype.kind != "f" else rows for rows in queries])


def _check_query(query: QueryArray, width: int) -> tuple[QueryArray, Codes]:
    """Check a query against codes of `width` bytes; returns it as given, and as a packed code."""
    rows = np.atleast_2d(np.asarray(query))
    if rows.dtype.kind != "f":
        codes = check_codes(rows, name="query")
        if codes.shape != (1, width):
            raise ValueError(f"query must be one code of {width} bytes, got shape {codes.shape}")
        return codes[0], codes[0]
    if rows.shape[0] != 1 or n_bytes(rows.shape[1]) != width:
        raise ValueError(
            f"query of reals must be one vector of {8 * width - 7} to {8 * width} values, got shape {rows.shape}"
        )
    with np.errstate(over="ignore"):
        reals = rows.astype(np.float32)
    largest = float(np.abs(reals).max(initial=0))
    if not largest <= MAX_REAL:
        raise ValueError(f"query of reals must hold values of at most {MAX_REAL:g} in magnitude, got {largest:g}")
    return reals[0], np.packbits(reals[0] > 0)


def _check_flags(values: npt.ArrayLike, n: int, name: str) -> npt.NDArray[np.bool_]:
    array = np.asarray(values)
    if array.dtype != np.bool_ or array.shape != (n,):
        raise ValueError(f"{name} must be {n} booleans, one per result shown, got {array.dtype} of shape {array.shape}")
    return array
