"""`explore`: give a few places of a page to items from deeper ranks, so that far but relevant items can be clicked.

Items are drawn by their rank in a sample of the collection under plain Hamming distance, whichever version ranks the
page. Clicks on them are therefore fair to every version, and the click gate can draw comparable items.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_codes
from bitrank.core.codes import distances
from bitrank.core.types import Codes, Rows

SAMPLE_SIZE = 10_000  # Codes drawn from a larger collection, by the service and by a replay.

# Give up after this many rounds of draws: a small collection has few items that are not on the page already.
_MAX_ROUNDS = 20


class MixedPage(NamedTuple):
    """A page with explored items: per place, a row of the best results or, where explored, a row of the sample."""

    rows: Rows
    explored: npt.NDArray[np.bool_]


def explore(query_code: Codes, top_codes: Codes, sample: Codes, n_slots: int, random: np.random.Generator) -> MixedPage:
    """Mix items from deeper ranks into the best results of a search, at random places.

    Ranks are drawn log-uniformly: as often from 20 to 200 as from 200 to 2000. Items whose code equals that of the
    query or of a result are not drawn, since no weights can tell them apart.

    Parameters
    ----------
    query_code : packed code, shape (n_bytes,)
    top_codes : packed codes of the best results, best first, shape (n_top, n_bytes)
    sample : packed codes of the collection, or of about ten thousand of its items drawn at random
    n_slots : int
        Number of items to mix in; fewer where the sample has no more.
    random : numpy Generator

    Returns
    -------
    rows : int64 array of shape (n_top + n_slots,)
        Per place of the page, a row of `top_codes` or, where `explored`, of `sample`.
    explored : bool array of shape (n_top + n_slots,)

    Examples
    --------
    >>> sample = np.arange(256, dtype=np.uint8)[:, None]
    >>> page = explore(np.uint8([0]), sample[[1, 2, 4]], sample, 2, np.random.default_rng(0))
    >>> page.rows.shape, int(page.explored.sum())
    ((5,), 2)
    """
    if n_slots < 0:
        raise ValueError(f"n_slots must be at least 0, got {n_slots}")
    drawn = draw_far(query_code, top_codes, sample, n_slots, random, distinct=True)
    explored = place_at_random(len(top_codes), len(drawn), random)
    rows = np.empty(len(explored), np.int64)
    rows[explored], rows[~explored] = drawn, np.arange(len(top_codes))
    return MixedPage(rows, explored)


def place_at_random(n_top: int, n_explored: int, random: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Choose the places of explored items on a page."""
    explored = np.zeros(n_top + n_explored, bool)
    explored[random.permutation(n_top + n_explored)[:n_explored]] = True
    return explored


def draw_far(
    query_code: Codes,
    top_codes: Codes,
    sample: Codes,
    n: int,
    random: np.random.Generator,
    distinct: bool = False,
) -> Rows:
    """Draw rows of the sample as exploration does; a row may repeat unless `distinct`."""
    sample = check_codes(sample, name="sample")
    query = check_codes(np.atleast_2d(query_code), name="query_code")
    known = {row.tobytes() for row in (*query, *check_codes(top_codes, name="top_codes"))}
    sample_distances = distances(query, sample, threads=1)[0]
    order = sample_distances.argsort(kind="stable")  # a radix sort, as distances are small
    ranked = sample_distances[order]
    drawn: list[int] = []
    for _ in range(_MAX_ROUNDS if len(sample) else 0):
        ranks = (len(sample) ** random.random(2 * n)).astype(np.int64) - 1
        levels = ranked[ranks]
        # Take any row at the distance of the drawn rank: the order within a tie means nothing.
        first, end = ranked.searchsorted(levels), ranked.searchsorted(levels, "right")
        for row in order[first + (random.random(2 * n) * (end - first)).astype(np.int64)].tolist():
            if sample[row].tobytes() not in known and not (distinct and row in drawn):
                drawn.append(row)
                if len(drawn) == n:
                    return np.asarray(drawn, np.int64)
    return np.asarray(drawn, np.int64)
