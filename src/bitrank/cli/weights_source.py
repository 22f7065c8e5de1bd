"""Read weights for a command: from a file, a ranker, the folder of an index, or a version on a running service."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from bitrank.core.checks import check_weights
from bitrank.core.files import KINDS, read_array
from bitrank.core.types import Weights
from bitrank.index import Index

SOURCES = "file (.npy, .csv, .json), ranker of one weight per bit, folder of an index, or URL of a version on a service"
TOKEN_NOTE = "If the service requires a token, set the environment variable BITRANK_TOKEN."


def environment_token() -> str | None:
    """Return the token for a running service, from the environment."""
    return os.environ.get("BITRANK_TOKEN")


def read_weights(source: str) -> Weights:
    """Read one weight vector from one of the sources; a service is sent the token in BITRANK_TOKEN.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> Index(pack([[1, 0], [0, 1]]), n_bits=2, weights=[3, 1]).save("codes.index")
    >>> read_weights("codes.index")
    array([3., 1.], dtype=float32)
    """
    if source.startswith(("http://", "https://")):
        from bitrank.service.client import version_weights

        weights = np.asarray(version_weights(source, environment_token()))
    elif Path(source).is_dir():
        index = Index.load(source)
        weights = np.ones(index.n_bits) if index.weights is None else index.weights
    elif Path(source).suffix in KINDS:
        weights = read_array(source)
    else:
        weights = _weights_of_ranker(source)
    if weights.ndim != 1 or weights.dtype.kind not in "biuf":
        raise ValueError(f"{source} must hold one weight vector, got {weights.dtype} of shape {weights.shape}")
    return check_weights(weights)


def _weights_of_ranker(path: str) -> Weights:
    from bitrank.ranking import load_ranker  # slow to import

    ranker = load_ranker(path)
    weights = ranker.one_weight_per_bit()
    if weights is None:
        raise ValueError(f"{path} must hold one weight per bit, got a {type(ranker).__name__}")
    return weights
