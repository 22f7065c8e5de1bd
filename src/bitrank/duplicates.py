"""Near duplicates: how many false matches a radius costs, and weights from how edits flip bits."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_any_rows, check_codes, check_count, check_weights
from bitrank.core.codes import distances, sample_rows, unpack
from bitrank.core.lazy import import_extra
from bitrank.core.types import Codes, Weights

Floats = npt.NDArray[np.float64]

_BLOCK = 1 << 24  # distances at a time
_N_RADII = 512  # where weights make distances that are no whole numbers
_FEWEST = 0.5  # flips that are added to both sides of the odds


class FalseMatches(NamedTuple):
    """What a search by radius finds, from the smallest radius to the largest.

    Attributes
    ----------
    radii : array of shape (n,)
    per_query : array of shape (n,)
        Mean number of items within each radius of a code that none of them is a copy of.
    found : array of shape (n,), optional
        Share of the copies that are within the radius of their originals.
    """

    radii: Floats
    per_query: Floats
    found: Floats | None

    def radius_for(self, per_query: float) -> float:
        """The largest radius with at most this many false matches per query.

        Examples
        --------
        >>> FalseMatches(np.array([0.0, 1.0, 2.0]), np.array([0.0, 0.25, 3.0]), None).radius_for(1)
        1.0
        """
        within = np.flatnonzero(self.per_query <= per_query)
        if not len(within):
            raise ValueError(f"per_query must be at least {self.per_query[0]:g}, that of radius 0, got {per_query!r}")
        return float(self.radii[within[-1]])

    def plot(self, axes: Any = None) -> Any:
        """Draw false matches per query, and the copies that are found, against the radius; returns the axes."""
        axes = import_extra("matplotlib.pyplot", "demo").subplots()[1] if axes is None else axes
        axes.plot(self.radii, self.per_query, label="false matches per query")
        axes.set(xlabel="radius", ylabel="false matches per query")
        axes.set_yscale("symlog", linthresh=0.01)
        if self.found is not None:
            other = axes.twinx()
            other.plot(self.radii, self.found, "C1--", label="copies found")
            other.set(ylabel="share of the copies found", ylim=(0, 1))
        return axes


def false_matches(
    codes: npt.ArrayLike,
    *,
    originals: npt.ArrayLike | None = None,
    copies: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    n_bits: int | None = None,
    max_queries: int = 1000,
) -> FalseMatches:
    """Count false matches per query against radius, on the codes that will be searched.

    Parameters
    ----------
    codes : packed codes
        A collection without duplicates, or nearly so: some of its codes are asked, and whatever another has within the
        radius is a false match.
    originals, copies : packed codes of one length, optional
        Codes before and after an edit, row by row.
    weights : array of shape (n_bits,), optional
    n_bits : int, optional
        Eight per byte by default.
    max_queries : int, default=1000
        Codes of the collection that are asked.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> codes = rng.integers(0, 256, (2000, 8), dtype=np.uint8)
    >>> copies = codes[:200] ^ np.packbits(rng.random((200, 64)) < 0.05, axis=1)
    >>> found = false_matches(codes, originals=codes[:200], copies=copies)
    >>> radius = found.radius_for(per_query=0.01)
    >>> radius, bool(found.found[int(radius)] > 0.95)
    (14.0, True)
    """
    checked, n_bits = check_any_rows(codes, n_bits)
    if len(checked) < 2:
        raise ValueError(f"codes must hold at least two rows, got {len(checked)}")
    if (originals is None) != (copies is None):
        raise ValueError("originals and copies must be given together, got one of them")
    row = None if weights is None else check_weights(weights, n_bits)
    radii = np.arange(n_bits + 1.0) if row is None else np.linspace(0, float(row.sum(dtype=np.float64)), _N_RADII)
    asked = sample_rows(len(checked), check_count("max_queries", max_queries, 1))
    counts, step = np.zeros(len(radii)), max(1, _BLOCK // len(checked))
    for start in range(0, len(asked), step):
        rows = asked[start : start + step]
        to_items = distances(checked[rows], checked, row).astype(np.float32)
        to_items[np.arange(len(rows)), rows] = np.inf
        counts += _within(to_items, radii)
    found = None
    if originals is not None and copies is not None:
        pairs = _pairs(originals, copies, n_bits)
        apart = unpack(pairs[0] ^ pairs[1], n_bits) @ (np.ones(n_bits) if row is None else row.astype(np.float64))
        found = _within(apart, radii) / len(apart)
    return FalseMatches(radii, counts / len(asked), found)


def log_odds_weights(
    originals: npt.ArrayLike, copies: npt.ArrayLike, codes: npt.ArrayLike | None = None, *, n_bits: int | None = None
) -> Weights:
    """Weights per bit from how edits flip bits: log((1 − p)/p · u/(1 − u)).

    p is the share of the copies in which the bit differs from the original, and u that of unrelated codes, one half
    where no codes are given. The sum over the bits that differ is then the log-odds that a code is no copy, if bits are
    independent. Bits that edits flip as often as chance have weight 0.

    Parameters
    ----------
    originals, copies : packed codes of one length
        Codes before and after an edit, row by row.
    codes : packed codes, optional
        A collection, which tells how often the bits of unrelated codes differ.
    n_bits : int, optional
        Eight per byte by default.

    Examples
    --------
    >>> originals = np.uint8([[0], [0], [0], [0]])
    >>> log_odds_weights(originals, np.uint8([[1], [1], [3], [0]])).round(1)
    array([2.2, 2.2, 2.2, 2.2, 2.2, 2.2, 0.8, 0. ], dtype=float32)
    """
    right, n_bits = check_any_rows(originals, n_bits)
    flips = unpack(np.bitwise_xor(*_pairs(right, copies, n_bits)), n_bits)
    p = (flips.sum(axis=0) + _FEWEST) / (len(flips) + 2 * _FEWEST)
    u = np.full(n_bits, 0.5)
    if codes is not None:
        others = check_codes(codes, n_bits)
        ones = (unpack(others, n_bits).sum(axis=0) + _FEWEST) / (len(others) + 2 * _FEWEST)
        u = 2 * ones * (1 - ones)
    weights: Weights = np.log((1 - p) / p * u / (1 - u)).clip(0).astype(np.float32)
    return weights


def _pairs(originals: Any, copies: Any, n_bits: int) -> tuple[Codes, Codes]:
    before, after = check_codes(originals, n_bits, name="originals"), check_codes(copies, n_bits, name="copies")
    if len(before) != len(after) or not len(before):
        raise ValueError(f"copies must hold one code for each original, got {len(after)} for {len(before)}")
    return before, after


def _within(values: npt.NDArray[Any], radii: Floats) -> Floats:
    """How many values are at most each radius; the sums of float32 round."""
    slack = 1 + 1e-5
    counts = np.bincount(np.searchsorted(radii * slack, values.ravel()), minlength=len(radii) + 1)
    out: Floats = counts[: len(radii)].cumsum().astype(np.float64)
    return out
