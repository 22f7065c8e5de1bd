"""Data sets as vectors and labels, their splits into rows to learn from and rows to search, and their codes.

**authors**: 1000 images per class in the order of the set; the first 500 to learn from, the last 500 to search.
**full**: the whole set; half of each class to learn from and half to search, drawn anew for each seed. **unseen**: half
of the classes to learn from, the other half to search. Queries are a tenth of every class of the searched rows, at most
1000 spread evenly over the classes, at least one per class. They stay in the collection, as in the paper.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import bitrank.hashing
from bitrank.core.codes import pack
from bitrank.core.files import write_array
from bitrank.core.types import Codes
from bitrank.datasets import digits
from experiments.datasets import banking77, cifar10, data_folder, mnist, youtube_faces
from experiments.gist import Gist
from experiments.plan import Group

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

MOST_QUERIES = 1000


class Data(NamedTuple):
    """Vectors to hash, labels, and features of queries: one per row."""

    X: Floats
    y: npt.NDArray[np.int64]
    features: Floats


class Split(NamedTuple):
    """Row numbers: to learn from, to search, and the positions of the queries among the latter."""

    train: Rows
    test: Rows
    queries: Rows


class Coded(NamedTuple):
    """A split as codes, as the values before the sign, and as features (of the searched rows, only the queries')."""

    codes: Codes
    values: Floats
    y: npt.NDArray[np.int64]
    test_codes: Codes
    test_values: Floats
    test_y: npt.NDArray[np.int64]
    queries: Rows
    n_bits: int
    features: Floats
    query_features: Floats


@lru_cache(maxsize=1)
def load(dataset: str, n_rows: int | None = None) -> Data:
    """Load a data set as float32 vectors: pixels from 0 to 1 (faces at 32 × 32), GIST of CIFAR-10, text embeddings.

    The vectors are also the features of a query. For CIFAR-10, the features add the image in colour at 8 × 8 pixels,
    since GIST ignores colour. `n_rows` draws a sample of that many rows, for tests.
    """
    colours = None
    if dataset == "banking77":
        X, y = banking77()[:2]
    elif dataset == "cifar10":
        images, y = cifar10()[:2]
        X, colours = _gist(), images.reshape(-1, 8, 4, 8, 4, 3).mean(axis=(2, 4), dtype=np.float32) / np.float32(255)
    else:
        read = {"mnist": mnist, "digits": digits, "youtube_faces": youtube_faces}
        images, y = read[dataset]()[:2]
        if dataset == "youtube_faces":  # 4096 pixels would outnumber the rows to learn from
            images = images.reshape(-1, 32, 2, 32, 2).mean(axis=(2, 4))
        X = images.reshape(len(images), -1).astype(np.float32) / np.float32(255)
    rows = slice(None) if n_rows is None else np.random.default_rng(0).permutation(len(X))[:n_rows]
    features = X if colours is None else np.hstack([X, colours.reshape(len(X), -1)])
    return Data(X[rows], y[rows].astype(np.int64), features[rows])


def _gist() -> Floats:
    """Return GIST of CIFAR-10, computed once (a minute) and kept beside the data set."""
    path = data_folder() / "cifar10_gist.npy"
    if not path.exists():
        write_array(path, Gist().fit_transform(cifar10().images))
    return np.load(path, allow_pickle=False)


def split(protocol: str, y: npt.NDArray[Any], seed: int) -> Split:
    """Split a data set by a protocol: rows to learn from, rows to search, and queries."""
    random = np.random.default_rng(seed)
    by_class = [np.flatnonzero(y == label) for label in np.unique(y)]
    if protocol == "authors":
        by_class = [rows[:1000] for rows in by_class]
    elif protocol == "unseen":
        halves = np.array_split(random.permutation(len(by_class)), 2)
        train, test = (np.sort(np.concatenate([by_class[label] for label in half])) for half in halves)
        return Split(train, test, draw_queries(y[test], random))
    else:
        by_class = [random.permutation(rows) for rows in by_class]
    train = np.sort(np.concatenate([rows[: len(rows) // 2] for rows in by_class]))
    test = np.sort(np.concatenate([rows[len(rows) // 2 :] for rows in by_class]))
    return Split(train, test, draw_queries(y[test], random))


def draw_queries(y: npt.NDArray[Any], random: np.random.Generator, most: int = MOST_QUERIES) -> Rows:
    """Draw a tenth of every class, at least one row per class and about `most` in all, evenly over the classes."""
    classes = np.unique(y)
    limit = max(1, most // len(classes))
    drawn = []
    for label in classes:
        rows = np.flatnonzero(y == label)
        drawn.append(random.permutation(rows)[: min(limit, max(1, len(rows) // 10))])
    return np.sort(np.concatenate(drawn))


# Hashers by the names that the literature gives them.
HASHER_CLASSES = {
    "LSH": bitrank.hashing.LSH,
    "SH": bitrank.hashing.SpectralHashing,
    "ISOH": bitrank.hashing.IsotropicHashing,
    "ITQ": bitrank.ITQ,
    "SignBits": bitrank.SignBits,
    "MDSH": bitrank.hashing.MultidimensionalSpectralHashing,
    "BRE": bitrank.hashing.BinaryReconstructiveEmbeddings,
    "BRE-labels": bitrank.hashing.BinaryReconstructiveEmbeddings,
    "RSH": bitrank.hashing.RankingSupervisedHashing,
    "OKH": bitrank.hashing.OnlineKernelHashing,
    "MLH": bitrank.hashing.MinimalLossHashing,
    "KSH": bitrank.hashing.KernelSupervisedHashing,
}


def make_hasher(name: str, n_bits: int, seed: int) -> Any:
    """Make a hasher with its defaults by the name that the literature gives it."""
    hasher = HASHER_CLASSES[name]()
    settings = {"n_bits": n_bits, "random_state": seed} | ({"target": "labels"} if name == "BRE-labels" else {})
    return hasher.set_params(**{key: value for key, value in settings.items() if key in hasher.get_params()})


def encode(group: Group, data: Data, rows: Split) -> Coded:
    """Fit the hasher of a group to the rows to learn from, and encode both parts."""
    hasher = make_hasher(group.hasher, group.n_bits, group.seed).fit(data.X[rows.train], data.y[rows.train])
    return encode_with(hasher, data, rows)


def encode_with(hasher: Any, data: Data, rows: Split) -> Coded:
    """Encode both parts of a split by a fitted hasher."""
    values, test_values = hasher.project(data.X[rows.train]), hasher.project(data.X[rows.test])
    return Coded(
        *(pack(values > 0), values, data.y[rows.train]),
        *(pack(test_values > 0), test_values, data.y[rows.test]),
        rows.queries,
        hasher.n_bits_,
        data.features[rows.train],
        data.features[rows.test[rows.queries]],
    )
