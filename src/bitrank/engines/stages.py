"""Two stages: what an engine fetched by plain Hamming distance is ranked here by weights.

The engines call `rerank` on fetched codes; `suggest_candidates` says how many to fetch.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from bitrank.checks import check_codes, check_queries, check_weights
from bitrank.codes import distances, nearest
from bitrank.vocabulary import Codes, Ids, Results, Weights

# Queries that suggest_candidates takes from the sample.
QUERIES = 200


def rerank(
    queries: npt.NDArray[np.uint8],
    candidates: Iterable[tuple[Ids, Codes]],
    k: int,
    weights: npt.ArrayLike | None,
    n_bits: int,
) -> Results:
    """The k nearest of each query's own candidates, which were fetched with their codes.

    Parameters
    ----------
    queries : as in `Engine.search`
    candidates : iterable of (ids, codes), one pair a query
        Ids unique in a pair; codes packed, one row an id.
    k : int
    weights : float array of shape (n_bits,) or (n_queries, n_bits), optional
    n_bits : int

    Returns
    -------
    results : named tuple of arrays ``(ids, distances)`` of shape (n_queries, k)
        As `Index.rerank` on an index of the same codes.

    Examples
    --------
    >>> from bitrank.codes import pack
    >>> fetched = np.array([7, 9]), pack([[1, 0, 1], [0, 0, 1]])
    >>> rerank(pack([[1, 0, 0]]), [fetched], k=1, weights=[4, 2, 1], n_bits=3)
    Results(ids=array([[7]]), distances=array([[1.]], dtype=float32))
    """
    codes, rows = check_queries(queries, weights, n_bits)
    found = Results(np.full((len(codes), k), -1, np.int64), np.full((len(codes), k), np.inf, np.float32))
    rows = np.broadcast_to(rows, (len(codes), n_bits))
    for at, (row, (ids, fetched)) in enumerate(zip(rows, candidates, strict=True)):
        if len(ids):
            scores = distances(codes[at : at + 1], fetched, row, threads=1)
            found.ids[at : at + 1], found.distances[at : at + 1] = nearest(np.asarray(ids)[None], scores, k)
    return found


def suggest_candidates(
    codes: Codes,
    weights: npt.ArrayLike,
    *,
    k: int = 100,
    recall: float = 0.95,
    n: int | None = None,
    queries: Codes | None = None,
    random_state: int | None = None,
) -> int:
    """How many candidates two stages need, so that they hold a wanted share of the true k nearest.

    The k nearest by weight are sought in the sample, and then their places in the order by plain Hamming distance.
    A sample of a larger collection has the same shares of it, so k and the answer are scaled by its size.

    Parameters
    ----------
    codes : uint8 array of shape (n_sample, n_bytes)
        A random sample of the collection, or all of it.
    weights : float array of shape (n_bits,)
    k : int
    recall : float
        Above 0, up to 1.
    n : int, optional
        Size of the collection; that of the sample by default.
    queries : uint8 array, optional
        Codes like those that will be asked; by default up to 200 rows of the sample, which are left out of it.
    random_state : int, optional
        Draws them.

    Examples
    --------
    >>> codes = np.random.default_rng(0).integers(0, 256, (2000, 4), dtype=np.uint8)
    >>> suggest_candidates(codes, np.ones(32), k=10, recall=1.0, random_state=0) < 200
    True
    """
    vector = check_weights(weights)
    if vector.ndim != 1:
        raise ValueError(f"weights must be one vector, got shape {vector.shape}")
    codes = check_codes(codes, len(vector))
    if not 0 < recall <= 1:
        raise ValueError(f"recall must be above 0 and at most 1, got {recall}")
    if queries is None:
        rows = np.random.default_rng(random_state).permutation(len(codes))
        n_queries = min(QUERIES, len(codes) // 2)
        queries, codes = codes[rows[:n_queries]], codes[rows[n_queries:]]
    queries = check_codes(queries, len(vector), name="queries")
    if not len(queries) or not len(codes):
        raise ValueError(f"suggest_candidates needs codes and queries, got {len(codes)} and {len(queries)}")
    n = len(codes) if n is None else n
    if not 1 <= k <= n:
        raise ValueError(f"k must be from 1 to the size of the collection, {n}, got {k}")
    share = min(1.0, len(codes) / n)
    counts = _Counts(queries, codes, vector, max(1, round(k * share)))
    low, high = k - 1, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if counts.recall(middle * share) >= recall - 1e-12 else (middle, high)
    return high


class _Counts:
    """For each query, the codes at each Hamming distance: how many, and how many are among the k nearest by weight.

    Codes as far by weight as the k-th nearest are as good as it, whichever of them are found: real collections hold
    thousands of equal codes.
    """

    def __init__(self, queries: Codes, codes: Codes, weights: Weights, k: int) -> None:
        self._k = k
        shape = len(queries), len(weights) + 1
        self._all, self._nearer, self._tied = (np.zeros(shape, np.int64) for _ in range(3))
        for at in range(len(queries)):
            plain, weighted = (distances(queries[at : at + 1], codes, w)[0] for w in (None, weights))
            limit = np.partition(weighted, k - 1)[k - 1]
            self._all[at] = np.bincount(plain, minlength=shape[1])
            self._nearer[at] = np.bincount(plain[weighted < limit], minlength=shape[1])
            self._tied[at] = np.bincount(plain[weighted == limit], minlength=shape[1])
        self._before = np.cumsum(self._all, axis=1) - self._all

    def recall(self, n: float) -> float:
        """Share of the k nearest to be expected among n candidates; of those at one Hamming distance it is any."""
        taken = np.clip((n - self._before) / np.maximum(self._all, 1), 0, 1)
        nearer, tied = (self._nearer * taken).sum(axis=1), (self._tied * taken).sum(axis=1)
        wanted = self._k - self._nearer.sum(axis=1)
        return float(((nearer + np.minimum(wanted, tied)) / self._k).mean())
