"""Read weights for a command: from a file, the folder of an index, or a version on a running service."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from bitrank.checks import check_weights
from bitrank.files import read_array
from bitrank.index import Index
from bitrank.vocabulary import Weights

_TIMEOUT_S = 30


def read_weights(source: str, token: str | None = None) -> Weights:
    """Read one vector of weights: from a file, the folder of an index, or the URL of a version on a running service.

    Examples
    --------
    >>> from bitrank.codes import pack
    >>> Index(pack([[1, 0], [0, 1]]), n_bits=2, weights=[3, 1]).save("codes.index")
    >>> read_weights("codes.index")
    array([3., 1.], dtype=float32)
    """
    if source.startswith(("http://", "https://")):
        answer = get_json(source, token)
        found = answer.get("weights") if isinstance(answer, dict) else None
        if not isinstance(found, list):
            raise ValueError(f"{source}: expected a version with its weights, as at /profiles/default/versions/1")
        weights = np.asarray(found)
    elif Path(source).is_dir():
        index = Index.load(source)
        weights = np.ones(index.n_bits) if index.weights is None else index.weights
    else:
        weights = read_array(source)
    if weights.ndim != 1 or weights.dtype.kind not in "biuf":
        raise ValueError(f"{source}: expected one vector of weights, got {weights.dtype} of shape {weights.shape}")
    return check_weights(weights)


def get_json(url: str, token: str | None = None, body: Any = None) -> Any:
    """Ask a running service, or send it something, and read its answer; a refusal is a ValueError with its reason."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = None if body is None else json.dumps(body).encode()
    if data is not None:
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            reason = error.read(2000).decode(errors="replace")
        raise ValueError(f"{url}: {error.code} {error.reason}: {reason}") from None
