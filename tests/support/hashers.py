"""Hashers and vectors for the tests of hashing."""

import inspect

import numpy as np
import pytest
from hypothesis import settings

from bitrank.hashing import HASHERS, hasher_class

CLASSES = [hasher_class(name) for name in HASHERS]


def every_hasher_with(parameter):
    classes = [cls for cls in CLASSES if parameter in inspect.signature(cls).parameters]
    return pytest.mark.parametrize("cls", classes, ids=lambda cls: cls.__name__)


every_hasher = pytest.mark.parametrize("cls", CLASSES, ids=HASHERS)
every_hasher_of_signs = pytest.mark.parametrize("cls", [cls for cls in CLASSES if cls.__name__ != "BitPlanes"])
every_hasher_of_n_bits = every_hasher_with("n_bits")
repeatable = settings(derandomize=True)


# Short runs: the contract asks for valid codes, not for good ones.
SMALL = {"n_anchors": 30, "n_steps": 20, "n_pairs": 30, "n_sweeps": 2, "metric": "l2"}


def make(cls, n_bits=5, random_state=0):
    wanted = {**SMALL, "n_bits": n_bits, "random_state": random_state}
    return cls(**{name: value for name, value in wanted.items() if name in inspect.signature(cls).parameters})


def vectors(n=60, d=12, seed=0):
    """Vectors with a mean and with features of different variance, as real ones have."""
    random = np.random.default_rng(seed)
    return random.normal(size=(n, d)) @ random.normal(size=(d, d)) * np.linspace(1, 3, d) + random.normal(size=d)


def labels(X):
    """Three classes in turn; the contract fits every hasher with labels, as pipelines do."""
    return np.arange(len(X)) % 3


def fit(hasher, X):
    return hasher.fit(X, labels(X))


def learned(hasher):
    return {name: value for name, value in vars(hasher).items() if name.endswith("_")}
