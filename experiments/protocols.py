"""Data sets as vectors and labels, and the two protocols that split them; where every experiment starts.

**authors**: 1000 images of each class in the set's order, the first 500 to learn from, the last 500 to search in.
**full**: the whole set, half of each class to learn from and half to search in, drawn anew for each seed. In both the
queries are a tenth of every class of the part to search in, at most 1000 evenly over the classes, at least one a class,
and stay in the collection that they search, as in the paper.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank import ITQ, LSH, IsotropicHashing, SignBits, SpectralHashing, datasets
from bitrank.codes import distances, pack
from bitrank.datasets.files import data_folder
from bitrank.features import Gist
from bitrank.metrics import evaluate, mean_precision_recall
from bitrank.vocabulary import Codes
from experiments.plan import Group

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

MOST_QUERIES = 1000
RECALLS = np.linspace(0.02, 1, 50)


class Data(NamedTuple):
    """Vectors to hash, labels, and all that a query is known by; one a row."""

    X: Floats
    y: npt.NDArray[np.int64]
    features: Floats


class Split(NamedTuple):
    """Row numbers: to learn from, to search in, and the places of the queries among the latter."""

    train: Rows
    test: Rows
    queries: Rows


class Coded(NamedTuple):
    """A split as codes, as the values before the sign, and as features (of what is searched in, the queries' alone)."""

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
    """A data set as float32 vectors: pixels from 0 to 1 (faces at 32 by 32), GIST of CIFAR-10, banking77's embeddings.

    Those are a query's features as well; CIFAR-10's are GIST and the picture in colour at 8 by 8, which GIST drops.
    `n_rows` takes a sample of so many rows: for tests.
    """
    more = None
    if dataset == "banking77":
        X, y = datasets.banking77()[:2]
    elif dataset == "cifar10":
        images, y = datasets.cifar10()[:2]
        X, more = _gist(), images.reshape(-1, 8, 4, 8, 4, 3).mean(axis=(2, 4), dtype=np.float32) / np.float32(255)
    else:
        read = {"mnist": datasets.mnist, "digits": datasets.digits, "youtube_faces": datasets.youtube_faces}
        images, y = read[dataset]()[:2]
        if dataset == "youtube_faces":  # 4096 pixels are more than there are rows to learn from
            images = images.reshape(-1, 32, 2, 32, 2).mean(axis=(2, 4))
        X = images.reshape(len(images), -1).astype(np.float32) / np.float32(255)
    rows = slice(None) if n_rows is None else np.random.default_rng(0).permutation(len(X))[:n_rows]
    features = X if more is None else np.hstack([X, more.reshape(len(X), -1)])
    return Data(X[rows], y[rows].astype(np.int64), features[rows])


def _gist() -> Floats:
    """GIST of CIFAR-10, kept beside the data set: a minute's work."""
    path = data_folder() / "cifar10_gist.npy"
    if not path.exists():
        features = Gist().fit_transform(datasets.cifar10().images)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        with open(temporary, "wb") as file:
            np.save(file, features)
        os.replace(temporary, path)
    return np.load(path, allow_pickle=False)


def split(protocol: str, y: npt.NDArray[Any], seed: int) -> Split:
    """Rows to learn from, to search in, and to search with."""
    random = np.random.default_rng(seed)
    by_class = [np.flatnonzero(y == label) for label in np.unique(y)]
    if protocol == "authors":
        by_class = [rows[:1000] for rows in by_class]
    elif protocol == "unseen":  # half of the classes to learn from, the other half to search in
        halves = np.array_split(random.permutation(len(by_class)), 2)
        train, test = (np.sort(np.concatenate([by_class[label] for label in half])) for half in halves)
        return Split(train, test, draw_queries(y[test], random))
    else:
        by_class = [random.permutation(rows) for rows in by_class]
    train = np.sort(np.concatenate([rows[: len(rows) // 2] for rows in by_class]))
    test = np.sort(np.concatenate([rows[len(rows) // 2 :] for rows in by_class]))
    return Split(train, test, draw_queries(y[test], random))


def draw_queries(y: npt.NDArray[Any], random: np.random.Generator, most: int = MOST_QUERIES) -> Rows:
    """A tenth of every class, at least one, and about `most` in all, evenly over the classes."""
    classes = np.unique(y)
    limit = max(1, most // len(classes))
    drawn = []
    for label in classes:
        rows = np.flatnonzero(y == label)
        drawn.append(random.permutation(rows)[: min(limit, max(1, len(rows) // 10))])
    return np.sort(np.concatenate(drawn))


def make_hasher(name: str, n_bits: int, seed: int) -> Any:
    """A hasher by the name that the paper gives it."""
    if name == "SignBits":
        return SignBits()
    if name == "SH":
        return SpectralHashing(n_bits)
    return {"LSH": LSH, "ISOH": IsotropicHashing, "ITQ": ITQ}[name](n_bits, random_state=seed)


def encode(group: Group, data: Data, rows: Split) -> Coded:
    """Learn the group's hasher from the part to learn from, and apply it to both."""
    vectors, test_vectors = data.X[rows.train], data.X[rows.test]
    hasher = make_hasher(group.hasher, group.n_bits, group.seed).fit(vectors)
    values, test_values = hasher.project(vectors), hasher.project(test_vectors)
    return Coded(
        *(pack(values > 0), values, data.y[rows.train]),
        *(pack(test_values > 0), test_values, data.y[rows.test]),
        rows.queries,
        group.n_bits,
        data.features[rows.train],
        data.features[rows.test[rows.queries]],
    )


def judge(
    codes: Codes, y: npt.NDArray[Any], queries: Rows, weights: Any, query_codes: Codes | None = None
) -> dict[str, float]:
    """All figures of a ranking of the codes by these weights (None: plain Hamming) for these of their rows.

    The queries' own codes are searched for, or other ones.
    """
    return evaluate(_to_all(codes, queries, weights, query_codes), y[queries][:, None] == y)


def curve(
    codes: Codes, y: npt.NDArray[Any], queries: Rows, weights: Any, query_codes: Codes | None = None
) -> list[float]:
    """Mean precision at fifty values of recall (`RECALLS`)."""
    found = _to_all(codes, queries, weights, query_codes)
    precision, recall = mean_precision_recall(found, y[queries][:, None] == y)
    return np.interp(RECALLS, recall, precision).round(4).tolist()


def _to_all(codes: Codes, queries: Rows, weights: Any, query_codes: Codes | None) -> npt.NDArray[Any]:
    return distances(codes[queries] if query_codes is None else query_codes, codes, weights, threads=1)
