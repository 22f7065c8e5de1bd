"""`adapt_to_choices`: weights for one query that rank the items chosen for it first.

The weights serve that query alone and are then forgotten, so they pass no gate.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bitrank.clicks.page import QueryArray
from bitrank.core.types import Codes, Weights
from bitrank.ranking.online import OnlineRankingSVM

_C = 0.1  # One choice among twenty results moves most of them, and the weights keep their shape.


def adapt_to_choices(weights: npt.ArrayLike, query: QueryArray, passed: Codes, chosen: Codes) -> Weights:
    """Move weights so that the items chosen for a query rank before those passed over.

    Parameters
    ----------
    weights : array of shape (n_bits,)
        Where to start.
    query : packed code of shape (n_bytes,) or (1, n_bytes), or reals of shape (n_bits,) or (1, n_bits)
    passed, chosen : packed codes, shape (n, n_bytes)
        Results that were passed over, and results that were chosen. The weights stay where either is empty.

    Returns
    -------
    float32 array of shape (n_bits,)

    Examples
    --------
    >>> query, near, far = np.uint8([0b11110000]), np.uint8([[0b11110001]]), np.uint8([[0b10010000]])
    >>> adapted = adapt_to_choices(np.ones(8), query, passed=near, chosen=far)  # the chosen item is two bits away
    >>> bool(adapted[7] > adapted[1] == adapted[2])
    True
    """
    start = np.asarray(weights, np.float32)
    clicked = np.arange(len(passed) + len(chosen)) >= len(passed)
    online = OnlineRankingSVM(start, n_bits=len(start), C=_C)
    return online.learn_clicks(query, np.concatenate([passed, chosen]), clicked).weights_
