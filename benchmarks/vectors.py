"""Sets of vectors and their nearest neighbours by float32: texts, pixels, features of images, and synthetic ones."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))

from experiments import data as experiments
from experiments.datasets import banking77, cifar10, data_folder, mnist, youtube_faces

N_QUERIES = 500
FASHION = Path("/usr/share/datasets/fashion-mnist")  # of Debian's package dataset-fashion-mnist


class Vectors(NamedTuple):
    """Vectors to search, queries that are not among them, and what makes them near; unit length for "cosine"."""

    X: np.ndarray
    Q: np.ndarray
    metric: str

    def neighbours(self, k: int = 10) -> np.ndarray:
        """Rows of the k nearest vectors of each query, by float32."""
        lengths = 0.5 * np.einsum("nd,nd->n", self.X, self.X) if self.metric == "l2" else 0
        nearest = []
        for part in np.array_split(self.Q, max(1, len(self.Q) // 250)):
            nearest.append(np.argpartition(lengths - part @ self.X.T, k, axis=1)[:, :k])
        return np.concatenate(nearest)


def recall(neighbours: np.ndarray, ids: np.ndarray) -> float:
    """Share of the neighbours that are among the ids, query by query."""
    return float((neighbours[:, :, None] == ids[:, None, :]).any(axis=2).mean())


def unit(X: np.ndarray) -> np.ndarray:
    """Scale rows to length 1."""
    X = np.asarray(X, np.float32)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def texts(name: str) -> Vectors:
    """Texts and queries of all-MiniLM-L6-v2, 384 dimensions: documents and test queries, or sentences of two parts."""
    if name == "banking77":
        X = unit(banking77().vectors)
        return Vectors(X[:10_003], _some(X[10_003:]), "cosine")
    with np.load(data_folder() / f"{name}_minilm.npz", allow_pickle=False) as arrays:
        queries = arrays["queries"]
        if "part" in arrays:  # the queries that nobody learns from
            queries = queries[arrays["part"] != "train"]
        return Vectors(unit(arrays["docs"]), _some(unit(queries)), "cosine")


def pixels(name: str, metric: str) -> Vectors:
    """Pixels from 0 to 1: 28 × 28, CIFAR-10 in colour at 16 × 16, faces at 32 × 32, half of the videos as queries."""
    if name == "fashion":
        items, queries = _fashion()
    elif name == "mnist":
        items, queries = np.split(mnist().images, [60_000])
    elif name == "cifar10":
        small = cifar10().images.reshape(-1, 16, 2, 16, 2, 3).mean(axis=(2, 4), dtype=np.float32)
        items, queries = np.split(small, [50_000])
    else:
        faces = youtube_faces()
        small = faces.images.reshape(-1, 32, 2, 32, 2).mean(axis=(2, 4), dtype=np.float32)
        order = np.random.default_rng(0).permutation(len(small))
        items, queries = small[order[N_QUERIES:]], small[order[:N_QUERIES]]
    X, Q = (part.reshape(len(part), -1).astype(np.float32) / np.float32(255) for part in (items, _some(queries)))
    return Vectors(unit(X), unit(Q), metric) if metric == "cosine" else Vectors(X, Q, metric)


def gist(metric: str) -> Vectors:
    """GIST of CIFAR-10, 512 dimensions."""
    X, Q = np.split(experiments._gist(), [50_000])
    return Vectors(unit(X), unit(_some(Q)), metric) if metric == "cosine" else Vectors(X, _some(Q), metric)


def synthetic(name: str, metric: str = "cosine", n: int = 10_000, d: int = 256, seed: int = 0) -> Vectors:
    """Vectors whose distribution is known; the queries are drawn like the items."""
    random = np.random.default_rng(seed)
    total = n + N_QUERIES
    normal = lambda rows, columns: random.standard_normal((rows, columns), dtype=np.float32)  # noqa: E731
    if name == "sparse":  # a twentieth of the dimensions, non-negative
        X = np.abs(normal(total, d)) * (random.random((total, d)) < 0.05)
        X[X.sum(axis=1) == 0, 0] = 1
    elif name == "clusters":  # far apart, beside their widths
        X = 10 * normal(100, d)[random.integers(100, size=total)] + normal(total, d)
    elif name == "student":
        X = random.standard_t(3, (total, d))
    elif name == "lengths":  # decaying spectrum, lognormal lengths
        X = normal(total, d) * np.arange(1, d + 1) ** -0.5
        X = unit(X) * random.lognormal(0, 1, (total, 1))
    elif name == "few":  # rows than dimensions
        total, d = d + N_QUERIES, 4 * d
        X = normal(total, d) * np.arange(1, d + 1) ** -0.5
    elif name == "duplicates":
        X = np.repeat(normal(total // 5, d) * np.arange(1, d + 1) ** -0.5, 5, axis=0)
        X = X[random.permutation(len(X))]
    else:
        X = normal(total, d)
    X = np.asarray(X, np.float32)
    X = unit(X) if metric == "cosine" else X
    return Vectors(X[N_QUERIES:], X[:N_QUERIES], metric)


def large(folder: Path, n: int = 200_000, d: int = 1536) -> Vectors:
    """Rows of decaying spectrum in a file that is mapped, written once: for time and memory, not for recall."""
    path = folder / f"bench-vectors-{n}-{d}.npy"
    random = np.random.default_rng(0)
    scale = np.arange(1, d + 1, dtype=np.float32) ** -0.5
    if not path.exists():
        temporary = path.with_suffix(".tmp")
        rows = np.lib.format.open_memmap(temporary, "w+", np.float32, (n + N_QUERIES, d))
        for start in range(0, len(rows), 10_000):
            part = rows[start : start + 10_000]
            part[:] = unit(random.standard_normal(part.shape, dtype=np.float32) * scale)
        rows.flush()
        os.replace(temporary, path)
    rows = np.load(path, mmap_mode="r", allow_pickle=False)
    return Vectors(rows[N_QUERIES:], np.array(rows[:N_QUERIES]), "cosine")


def _some(rows: np.ndarray, n: int | None = None) -> np.ndarray:
    """Draw rows, in their order."""
    n = N_QUERIES if n is None else n
    chosen = np.sort(np.random.default_rng(0).permutation(len(rows))[:n])
    return np.asarray(rows[chosen])


def _fashion() -> tuple[np.ndarray, np.ndarray]:
    folder = next((f for f in (FASHION, data_folder() / "fashion-mnist") if f.exists()), FASHION)
    images = []
    for part in ("train", "t10k"):
        path = folder / f"{part}-images-idx3-ubyte.gz"
        if not path.exists():
            raise FileNotFoundError(f"Fashion-MNIST is not at {path}: install Debian's package dataset-fashion-mnist")
        with gzip.open(path) as file:
            images.append(np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28))
    return images[0], images[1]


# Kind and loader of each set.
SETS: dict[str, tuple[str, Callable[[], Vectors]]] = {
    "NFCorpus": ("text", lambda: texts("nfcorpus")),
    "banking77": ("text", lambda: texts("banking77")),
    "Cranfield": ("text", lambda: texts("cranfield")),
    "MNIST": ("pixels", lambda: pixels("mnist", "l2")),
    "MNIST, cosine": ("pixels", lambda: pixels("mnist", "cosine")),
    "CIFAR-10 16 × 16": ("pixels", lambda: pixels("cifar10", "l2")),
    "YouTube Faces": ("pixels", lambda: pixels("faces", "l2")),
    "Fashion-MNIST": ("pixels", lambda: pixels("fashion", "l2")),
    "Fashion-MNIST, cosine": ("pixels", lambda: pixels("fashion", "cosine")),
    "GIST": ("features", lambda: gist("l2")),
    "GIST, cosine": ("features", lambda: gist("cosine")),
    "isotropic": ("synthetic", lambda: synthetic("isotropic")),
    "sparse": ("synthetic", lambda: synthetic("sparse")),
    "far clusters": ("synthetic", lambda: synthetic("clusters", "l2")),
    "Student": ("synthetic", lambda: synthetic("student")),
    "lognormal lengths, dot": ("synthetic", lambda: synthetic("lengths", "dot")),
    "lognormal lengths, l2": ("synthetic", lambda: synthetic("lengths", "l2")),
    "fewer rows than dimensions": ("synthetic", lambda: synthetic("few")),
    "duplicates": ("synthetic", lambda: synthetic("duplicates")),
}
