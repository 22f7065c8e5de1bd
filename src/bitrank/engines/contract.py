"""`Engine`: what every engine does, and the checks of what comes in that they share.

Above it stand the engines, one file each; `tests/test_engines.py` runs one contract over all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt

from bitrank.checks import check_codes, check_ids, check_queries
from bitrank.vocabulary import Codes, Ids, Results, Weights

# Candidates of two stages when the caller names none: at least this many, and ten for each result.
CANDIDATES = 1000
Candidates = int | Literal["exact"] | None


class Engine(Protocol):
    """Codes that an engine keeps, searched by weighted Hamming distance.

    What is not right in a call is a ValueError, and nothing is changed. A connection that is lost, and cannot be had
    again, is a ConnectionError: what was being added is then either all there or not at all, and adding the same
    once more is safe.
    """

    @property
    def n_bits(self) -> int:
        """Bits of a code; a ValueError when there is no table yet."""

    def create(self, n_bits: int) -> None:
        """Make the table; one that is there already is kept when it has the same shape, and else a ValueError."""

    def add(self, codes: Codes, ids: npt.ArrayLike) -> None:
        """Add packed codes with their ids, all or none; an id that is there already gets its new code."""

    def remove(self, ids: npt.ArrayLike) -> None:
        """Remove ids; those that are not there are passed over."""

    def optimize(self) -> None:
        """Build what makes the first stage fast, once many codes were added; search works without."""

    def search(
        self, queries: npt.NDArray[Any], k: int, weights: npt.ArrayLike | None = None, candidates: Candidates = None
    ) -> Results:
        """The k nearest codes of each query.

        Parameters
        ----------
        queries : uint8 array of shape (n_queries, ceil(n_bits / 8)), or float array of shape (n_queries, n_bits)
            Packed codes; or reals, which are a code (what is above zero) and magnitudes, by which the weights are
            multiplied.
        k : int
        weights : float array of shape (n_bits,) or (n_queries, n_bits), optional
            None is plain Hamming distance.
        candidates : int or "exact", optional
            Two stages: the engine finds this many by plain Hamming distance, and they are ranked here; by default
            ten times k, and at least 1000. Or "exact", where the engine ranks everything by weights that are whole
            numbers: see `quantize_weights`.

        Returns
        -------
        results : named tuple of arrays ``(ids, distances)`` of shape (n_queries, k)
            Nearest first, ties by id, padded with -1 and inf.
        """

    def count(self) -> int:
        """Number of codes."""

    def close(self) -> None:
        """Give back the connection; leaving a ``with`` block does so too."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


class Closing(ABC):
    """Leaving a ``with`` block closes."""

    @abstractmethod
    def close(self) -> None:
        """Give back what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def check_search(
    queries: Any, k: int, weights: npt.ArrayLike | None, candidates: Candidates, n_bits: int
) -> tuple[Codes, Weights, int | None]:
    """Query codes, a row of weights for each query, and the number of candidates, or None for an exact search."""
    if not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k must be an int of at least 1, got {k!r}")
    codes, rows = check_queries(queries, weights, n_bits)
    rows = rows.repeat(len(codes), axis=0) if len(rows) == 1 else rows
    if candidates == "exact":
        return codes, rows, None
    if candidates is None:
        return codes, rows, max(CANDIDATES, 10 * k)
    if not isinstance(candidates, int | np.integer) or candidates < 1:
        raise ValueError(f'candidates must be an int of at least 1, "exact" or None, got {candidates!r}')
    return codes, rows, candidates


def check_add(codes: Any, ids: npt.ArrayLike, n_bits: int) -> tuple[Codes, Ids]:
    """Codes and ids to add: as many of the one as of the other, ids unique and not negative."""
    checked = check_codes(codes, n_bits)
    return checked, check_ids(ids, len(checked))


def check_created(n_bits: int) -> int:
    """Bits of a new table."""
    if not isinstance(n_bits, int) or not 0 < n_bits < 1 << 16:
        raise ValueError(f"n_bits must be an int from 1 to 65535, got {n_bits!r}")
    return n_bits
