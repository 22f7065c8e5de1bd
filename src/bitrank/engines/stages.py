"""Rankings of fetched codes: `rerank` candidates, rank all codes exactly, suggest how many candidates to fetch."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_codes, check_queries, check_weights
from bitrank.core.codes import distances, nearest
from bitrank.core.types import AnyQueries, Codes, Ids, Queries, Results, Weights, empty_results
from bitrank.engines.planes import are_whole

Fetched = tuple[Ids, Codes]

# Queries that suggest_candidates draws from the sample.
N_QUERIES = 200
# Largest whole number that rank_all rounds weights down to.
LARGEST_WHOLE = 255
# Codes that rank_all fetches beyond twice k, before it looks at the bound of all others.
EXTRA_CODES = 100


def rerank(
    queries: AnyQueries,
    candidates: Iterable[Fetched],
    k: int,
    weights: npt.ArrayLike | None = None,
    n_bits: int | None = None,
) -> Results:
    """Find the k nearest of each query's candidates, which were fetched with their codes.

    Parameters
    ----------
    queries : as in `Engine.search`
    candidates : iterable of (ids, codes), one pair per query
        Ids unique in a pair; codes packed, one row per id.
    k : int
    weights : float array of shape (n_bits,) or (n_queries, n_bits), optional
    n_bits : int, optional
        Bits per code; needed unless `queries` are `Queries`.

    Returns
    -------
    results : named tuple of arrays ``(ids, distances)`` of shape (n_queries, k)
        As `Index.rerank` on an index of the same codes.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> fetched = np.array([7, 9]), pack([[1, 0, 1], [0, 0, 1]])
    >>> rerank(pack([[1, 0, 0]]), [fetched], k=1, weights=[4, 2, 1], n_bits=3)
    Results(ids=array([[7]]), distances=array([[1.]], dtype=float32))
    """
    if n_bits is None:
        if not isinstance(queries, Queries):
            raise ValueError("n_bits must be an int unless queries are Queries, got None")
        n_bits = queries.weights.shape[-1]
    codes, rows = check_queries(queries, weights, n_bits)
    rows = np.broadcast_to(rows, (len(codes), n_bits))
    results = empty_results(len(codes), k)
    for at, (row, (ids, fetched)) in enumerate(zip(rows, candidates, strict=True)):
        if len(ids):
            scores = distances(codes[at : at + 1], fetched, row, threads=1)
            results.ids[at : at + 1], results.distances[at : at + 1] = nearest(np.asarray(ids)[None], scores, k)
    return results


def rank_all(queries: Queries, scan: Callable[[Codes, Weights, int], Iterable[Fetched]], k: int) -> Results:
    """Find the k nearest of all codes by any weights, given a scan that ranks by whole-number weights.

    Whole-number weights need one scan for k codes. Others are rounded down to multiples of a step, so that the scan's
    distances are lower bounds: more than k codes are fetched and ranked by the true weights, and more again while a
    code that was not fetched could be among the k nearest.

    Parameters
    ----------
    queries : Queries
        One row of weights per query.
    scan : callable
        `Engine._scan`.
    k : int
    """
    codes, weights = queries.codes, queries.weights
    if are_whole(weights):
        return rerank(queries, scan(codes, weights, k), k)
    steps = weights.max(axis=1).astype(np.float64) / LARGEST_WHOLE
    steps[steps == 0] = 1
    floors = np.floor(weights / steps[:, None]).astype(np.float32)
    slack = 1 - (weights.shape[1] + 8) * 2.0**-24  # rounding of a distance in float32
    results = empty_results(len(codes), k)
    pending, n = np.arange(len(codes)), 2 * k + EXTRA_CODES
    while len(pending):
        fetched = list(scan(codes[pending], floors[pending], n))
        part = Queries(codes[pending], weights[pending])
        results.ids[pending], results.distances[pending] = rerank(part, fetched, k)
        is_open = np.zeros(len(pending), bool)
        for number, (query, (ids, nearest_codes)) in enumerate(zip(pending, fetched, strict=True)):
            if len(ids) >= n:
                farthest = distances(codes[query][None], nearest_codes[-1:], floors[query], threads=1)[0, 0]
                is_open[number] = farthest * steps[query] * slack <= results.distances[query, -1]
        pending, n = pending[is_open], 4 * n
    return results


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
    """Suggest how many candidates `method="rerank"` needs to reach a recall of the true k nearest.

    The places of the sample's k nearest by weight in its order by plain Hamming distance give the recall for every
    number of candidates. For a sample of a larger collection, k and the suggestion are scaled by the sampling rate.

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
        Codes of typical queries; by default up to 200 rows of the sample, which are then left out of it.
    random_state : int, optional
        Seed of the draw of these rows.

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
        n_queries = min(N_QUERIES, len(codes) // 2)
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
    """Codes per query and Hamming distance: all, those nearer by weight than the k-th nearest, those tied with it.

    Any code tied with the k-th nearest counts as one of the k nearest: real collections hold thousands of equal codes.
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
        """Expected share of the k nearest among n candidates, drawn at random among codes at one Hamming distance."""
        shares = np.clip((n - self._before) / np.maximum(self._all, 1), 0, 1)
        nearer, tied = (self._nearer * shares).sum(axis=1), (self._tied * shares).sum(axis=1)
        n_tied = self._k - self._nearer.sum(axis=1)
        return float(((nearer + np.minimum(n_tied, tied)) / self._k).mean())
