"""Types of the arrays that all rooms exchange: codes, ids, row numbers, weights, queries and results."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from bitrank import _kernel

Codes = npt.NDArray[np.uint8]
Ids = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]


class PackedCodes(np.ndarray[Any, np.dtype[np.uint8]]):
    """Packed codes of a hasher that know how many bits they have: not all of their last byte count.

    Rows of them know it too. Files and other libraries keep the bytes alone: name `n_bits` there.
    """

    n_bits: int | None

    @classmethod
    def of(cls, codes: Codes, n_bits: int) -> PackedCodes:
        """A view of codes that knows their bits."""
        known = codes.view(cls)
        known.n_bits = n_bits
        return known

    def __array_finalize__(self, origin: Any) -> None:
        self.n_bits = getattr(origin, "n_bits", None)

    def __repr__(self) -> str:
        return repr(np.asarray(self))


def bits_of(codes: Any) -> int | None:
    """Bits of packed codes that know them, or None.

    Examples
    --------
    >>> codes = PackedCodes.of(np.zeros((2, 3), np.uint8), 20)
    >>> bits_of(codes[:1]), bits_of(codes[:, :2]), bits_of(np.array(codes))
    (20, None, None)
    """
    n_bits = codes.n_bits if isinstance(codes, PackedCodes) else None
    fits = n_bits is not None and codes.ndim == 2 and codes.shape[1] == n_bytes(n_bits) and codes.dtype == np.uint8
    return n_bits if fits else None


# How a search ranks: all codes by weight, or the nearest by plain Hamming distance, re-ranked by weight.
Method = Literal["exact", "rerank"]


class Queries(NamedTuple):
    """One code and one row of non-negative weights per query, which rankers return and `Index` and all engines take.

    Examples
    --------
    >>> queries = Queries(np.uint8([[160]]), np.float32([[4, 2, 1]]))
    >>> queries.codes.shape, queries.weights.shape
    ((1, 1), (1, 3))
    """

    codes: Codes
    weights: Weights
    trust: npt.NDArray[np.float32] | None = None  # how far each query's own weights are trusted, 0 to 1


class Products(NamedTuple):
    """Queries as reals that are products of a few numbers and weights: numbers[:, columns]·weights.

    Examples
    --------
    >>> Products(np.float32([[2, -3]]), np.array([0, 1, 1]), np.float32([4, 2, 1])).reals()
    array([[ 8., -6., -3.]], dtype=float32)
    """

    numbers: npt.NDArray[np.float32]  # (n_queries, n), finite
    columns: npt.NDArray[np.int64]  # (n_bits,)
    weights: npt.NDArray[np.float32]  # (n_bits,)
    rounded: bool = False  # magnitudes are rounded so that the kernel sums them exactly

    def reals(self) -> npt.NDArray[np.float32]:
        """One real per bit."""
        out: npt.NDArray[np.float32] = self.numbers.take(self.columns, axis=1, mode="clip")  # without checks
        out *= self.weights
        if self.rounded:
            sizes = np.abs(out)
            _kernel.round_to_exact_sums(sizes)
            np.copysign(sizes, out, out=out)
        return out


# Queries with weights, packed codes, or reals, whose signs are the code and whose magnitudes multiply the weights.
AnyQueries = Queries | Products | npt.NDArray[Any]


class Results(NamedTuple):
    """Ids and distances, one row per query, nearest first, ties by id, padded with -1 and inf.

    Examples
    --------
    >>> ids, distances = Results(np.array([[7, 9]]), np.float32([[0.5, 2]]))
    >>> ids
    array([[7, 9]])
    """

    ids: Ids
    distances: npt.NDArray[np.float32]


class Estimates(NamedTuple):
    """What turns products of queries and the ±1 of codes into estimated distances: first + second·(third + product)/f.

    f is stored at the end of a code, as so many steps in `n_tail` bytes above the lowest. With `root`, the square root
    of what is not negative.
    """

    n_tail: int
    low: float
    step: float
    root: bool
    terms: npt.NDArray[np.float64]  # (n_queries, 3)


def empty_results(n_queries: int, k: int) -> Results:
    """Results of a search without hits, to be filled in."""
    return Results(np.full((n_queries, k), -1, np.int64), np.full((n_queries, k), np.inf, np.float32))


class SearchIndex(Protocol):
    """What searches codes: `Index`, `GpuIndex`, and every engine.

    Examples
    --------
    >>> from bitrank import Index
    >>> def nearest_codes(index: SearchIndex, queries: Codes) -> Codes:
    ...     return index.codes(index.search(queries, k=1).ids[:, 0])
    >>> nearest_codes(Index(np.uint8([[1], [12]])), np.uint8([[8]]))
    array([[12]], dtype=uint8)
    """

    @property
    def n_bits(self) -> int:
        """Bits per code."""
        ...

    @property
    def ids(self) -> Ids:
        """All ids, ascending."""
        ...

    def codes(self, ids: npt.ArrayLike) -> Codes:
        """Codes of ids, in their order; an unknown id is a ValueError."""
        ...

    def sample(self, n: int) -> Codes:
        """Draw n codes, or all where there are fewer: the same ones while the rows stay the same."""
        ...

    def search(
        self,
        queries: AnyQueries,
        k: int,
        weights: npt.ArrayLike | None = None,
        *,
        method: Method = "exact",
        candidates: int | None = None,
    ) -> Results:
        """Find the k nearest codes of each query."""
        ...


def n_bytes(n_bits: int) -> int:
    """Number of bytes of a packed code of `n_bits`.

    Examples
    --------
    >>> n_bytes(98)
    13
    """
    return (n_bits + 7) // 8
