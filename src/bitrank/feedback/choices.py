"""What somebody's choices for one query do to its ranking: at once, and for nobody else.

It stands beside the learner, which moves the weights of everybody, slowly and behind a gate; what is made here is used
for the query at hand and then forgotten, so it needs no gate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.codes import signs
from bitrank.ranking.online import OnlineRankingSVM
from bitrank.vocabulary import Codes, Weights

_C = 0.1  # how far to go: a choice among twenty results moves most of them, and the weights keep their shape


def lean(
    weights: npt.ArrayLike,
    query_code: Codes,
    passed: Codes,
    chosen: Codes,
    magnitudes: npt.ArrayLike | None = None,
) -> Weights:
    """Weights, near to given ones, under which what was chosen for a query comes before what was passed over.

    Parameters
    ----------
    weights : array of shape (n_bits,)
        To start from.
    query_code : packed code, shape (n_bytes,) or (1, n_bytes)
    passed, chosen : packed codes, shape (n, n_bytes)
        Results that were passed over, and those that were chosen; with none of either, the weights stay.
    magnitudes : array of shape (n_bits,), optional
        Of the query.

    Returns
    -------
    float32 array of shape (n_bits,)

    Examples
    --------
    >>> query, near, far = np.uint8([0b11110000]), np.uint8([[0b11110001]]), np.uint8([[0b10010000]])
    >>> leaning = lean(np.ones(8), query, near, far)  # two bits away, and chosen
    >>> bool(leaning[7] > leaning[1] == leaning[2])
    True
    """
    start = np.asarray(weights, np.float32)
    clicked = np.arange(len(passed) + len(chosen)) >= len(passed)
    online = OnlineRankingSVM(start, n_bits=len(start), C=_C)
    query: npt.NDArray[Any] = np.atleast_2d(query_code)
    if magnitudes is not None:
        query = signs(query, len(start)) * np.asarray(magnitudes, np.float32)
    return online.learn_clicks(query, np.concatenate([passed, chosen]), clicked).weights_
