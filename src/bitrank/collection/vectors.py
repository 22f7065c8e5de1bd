"""The vectors that the caller gave: references, no copies, for `learn` in the process that made the codes."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bitrank.core.arrays import to_array
from bitrank.core.checks import check_finite
from bitrank.core.types import Ids

Matrix = npt.NDArray[Any]


class GivenVectors:
    """Arrays of vectors, each with the numbers of its items in the index; every change makes a new one.

    Without those of the first items, later ones are of no use, and are not kept.
    """

    def __init__(self, parts: tuple[tuple[Ids, Matrix], ...] = ()) -> None:
        self._parts = parts

    def add(self, numbers: Ids, vectors: Matrix | None) -> Self:
        """With the vectors of more items."""
        return self if vectors is None or not self._parts else type(self)((*self._parts, (numbers, vectors)))

    def remove(self, numbers: Ids) -> Self:
        """Without some items; another item may later have the number of one of them."""
        if not len(numbers):
            return self
        return type(self)(tuple((np.where(np.isin(part, numbers), -1, part), block) for part, block in self._parts))

    def of(self, numbers: Ids) -> Matrix | None:
        """Vectors of some numbers, or None where any is not at hand."""
        if len(self._parts) == 1 and np.array_equal(self._parts[0][0], numbers):
            return self._parts[0][1]
        if not self._parts:
            return None
        known = np.concatenate([part for part, _ in self._parts])
        order = np.argsort(known, kind="stable")
        places = np.minimum(np.searchsorted(known, numbers, sorter=order), len(known) - 1)
        rows = order[places]
        if (known[rows] != numbers).any():
            return None
        return np.concatenate([block for _, block in self._parts])[rows]


def check_vectors(X: Any, name: str) -> Matrix:
    """A matrix of finite numbers, without a copy where it is one.

    Examples
    --------
    >>> check_vectors([[0.5, 2]], "X")
    array([[0.5, 2. ]])
    """
    array = to_array(X, name)
    if array.ndim != 2 or array.dtype.kind not in "biuf" or array.shape[1] == 0:
        raise ValueError(f"{name} must be a matrix with one vector per row, got {array.dtype} of shape {array.shape}")
    if array.dtype.kind == "f":
        check_finite(array, name)
    return array
