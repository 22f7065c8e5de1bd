"""Exploration: a few places of a page go to items from deeper ranks, so that far but relevant items can speak.

They are drawn by their rank in a sample of the collection by plain Hamming distance, whatever version ranks the page:
so what they say is fair to every version, and a replay can draw others like them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.checks import check_codes
from bitrank.codes import distances
from bitrank.vocabulary import Codes

Rows = npt.NDArray[np.int64]

# Draws are repeated so often for items that are not on the page already, and no more: a small collection has few.
_MOST_ROUNDS = 20


class Mixed(NamedTuple):
    """A page with explored items: for each place a row of the results or, where explored, a row of the sample."""

    rows: Rows
    explored: npt.NDArray[np.bool_]


def explore(query_code: Codes, top_codes: Codes, sample: Codes, n_slots: int, random: np.random.Generator) -> Mixed:
    """Mix items of deeper ranks into the best results of a search, at random places.

    The rank of an explored item is drawn log-uniformly: as often from ranks 20 to 200 as from 200 to 2000. Items that
    no weights can tell from the query or from a result, since their codes are equal, are not drawn.

    Parameters
    ----------
    query_code : packed code, shape (n_bytes,)
    top_codes : packed codes of the best results, best first, shape (n_top, n_bytes)
    sample : packed codes of the collection, or of some ten thousand of its items drawn at random
    n_slots : int
        How many to mix in; fewer where the sample has no more.
    random : numpy Generator

    Returns
    -------
    rows : int64 array of shape (n_top + n_slots,)
        For each place of the page, a row of `top_codes` or, where `explored`, of `sample`.
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
    return Mixed(rows, explored)


def draw_far(
    query_code: Codes,
    top_codes: Codes,
    sample: Codes,
    n: int,
    random: np.random.Generator,
    distinct: bool = False,
) -> Rows:
    """Rows of the sample as exploration draws them; the same row may come again, unless they are to be distinct."""
    sample = check_codes(sample, name="sample")
    query = check_codes(np.atleast_2d(query_code), name="query_code")
    known = {row.tobytes() for row in (*query, *check_codes(top_codes, name="top_codes"))}
    found = distances(query, sample, threads=1)[0]
    order, counts = np.argsort(found, kind="stable"), np.bincount(found)
    ends = np.cumsum(counts)
    drawn: list[int] = []
    for _ in range(_MOST_ROUNDS if len(sample) else 0):
        ranks = (len(sample) ** random.random(2 * n)).astype(np.int64) - 1
        at = found[order[ranks]]
        # Any of those at the distance of the rank that was drawn, since the order of ties means nothing.
        rows = order[ends[at] - 1 - (random.random(len(at)) * counts[at]).astype(np.int64)]
        drawn += [row for row in rows.tolist() if sample[row].tobytes() not in known]
        if distinct:
            drawn = list(dict.fromkeys(drawn))
        if len(drawn) >= n:
            break
    return np.asarray(drawn[:n], np.int64)
