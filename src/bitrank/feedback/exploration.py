"""`explore`: give a few places of a page to items from deeper ranks, so that far but relevant items can be clicked.

Items are drawn by their rank in a sample of the collection under plain Hamming distance, whichever version ranks the
page. Clicks on them are therefore fair to every version, and the click gate can draw comparable items.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.checks import check_codes
from bitrank.codes import distances
from bitrank.vocabulary import Codes, Rows

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
    n_places = len(top_codes) + len(drawn)
    explored = np.zeros(n_places, bool)
    explored[random.choice(n_places, len(drawn), replace=False)] = True
    rows = np.empty(n_places, np.int64)
    rows[explored], rows[~explored] = drawn, np.arange(len(top_codes))
    return MixedPage(rows, explored)


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
    order, counts = np.argsort(sample_distances, kind="stable"), np.bincount(sample_distances)
    ends = np.cumsum(counts)
    drawn: list[int] = []
    for _ in range(_MAX_ROUNDS if len(sample) else 0):
        ranks = (len(sample) ** random.random(2 * n)).astype(np.int64) - 1
        levels = sample_distances[order[ranks]]
        # Take any row at the distance of the drawn rank: the order within a tie means nothing.
        rows = order[ends[levels] - 1 - (random.random(len(levels)) * counts[levels]).astype(np.int64)]
        drawn += [row for row in rows.tolist() if sample[row].tobytes() not in known]
        if distinct:
            drawn = list(dict.fromkeys(drawn))
        if len(drawn) >= n:
            break
    return np.asarray(drawn[:n], np.int64)
