"""Codes to measure on: random ones, and codes of all patches of the CIFAR-10 images, kept in the cache once made.

`run.py` asks for them by name; the images are read from ~/.cache/bitrank/cifar10.npz (x_train, y_train, x_test).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from bitrank import ITQ, LSH, RankingSVM

CACHE = Path.home() / ".cache" / "bitrank"


class Data(NamedTuple):
    """Codes, queries that are not among them, and labels where there are any."""

    codes: np.ndarray
    queries: np.ndarray
    labels: np.ndarray | None


def random_codes(n: int, n_bits: int, n_queries: int = 64) -> Data:
    rng = np.random.default_rng(n_bits)
    draw = lambda rows: rng.integers(0, 256, (rows, n_bits // 8), dtype=np.uint8)  # noqa: E731
    return Data(draw(n), draw(n_queries), None)


def patches(images: np.ndarray, size: int, stride: int) -> np.ndarray:
    """All square patches of colour images, image by image."""
    windows = np.lib.stride_tricks.sliding_window_view(images, (size, size), axis=(1, 2))
    windows = windows[:, ::stride, ::stride]
    return windows.reshape(-1, size * size * images.shape[-1])


def patch_codes(n_bits: int, n: int) -> Data:
    """ITQ codes of 8 x 8 patches, stride 3, up to 128 bits; of more, LSH sign bits of 16 x 16 patches."""
    size, stride = (8, 3) if n_bits <= 128 else (16, 3)
    file = CACHE / f"bench-patches-{n_bits}.npz"
    if not file.exists():
        with np.load(CACHE / "cifar10.npz") as cifar:
            images, labels, others = cifar["x_train"], cifar["y_train"].ravel(), cifar["x_test"]
        if n_bits > 128:  # fewer patches an image: take the test images as well
            images, others, labels = np.concatenate([images, others[:9000]]), others[9000:], None
        rng = np.random.default_rng(0)
        sample = patches(images[rng.choice(len(images), 1000, replace=False)], size, stride).astype(np.float32)
        hasher = ITQ(n_bits, random_state=0) if n_bits <= 128 else LSH(n_bits, random_state=0)
        hasher.fit(sample[rng.choice(len(sample), 20_000, replace=False)])
        parts = [
            hasher.transform(patches(part, size, stride).astype(np.float32)) for part in np.array_split(images, 100)
        ]
        queries = hasher.transform(patches(others[:200], size, stride).astype(np.float32))
        codes = np.concatenate(parts)
        per_image = len(codes) // len(images)
        np.savez(
            file,
            codes=codes,
            queries=queries[rng.choice(len(queries), 256, replace=False)],
            labels=np.empty(0) if labels is None else np.repeat(labels, per_image),
        )
    with np.load(file) as kept:
        labels = kept["labels"][:n] if len(kept["labels"]) else None
        return Data(kept["codes"][:n], kept["queries"], labels)


def uneven_weights(n_bits: int) -> np.ndarray:
    """Lognormal weights: a stand-in where there is nothing to learn from."""
    return np.random.default_rng(0).lognormal(0, 0.7, n_bits).astype(np.float32)


def learned_weights(data: Data, n_bits: int) -> dict[str, np.ndarray]:
    """What RankingSVM learns from the labels of the images: as it is by default, and with the paper's constants."""
    rows = np.random.default_rng(0).choice(len(data.codes), min(20_000, len(data.codes)), replace=False)
    out = {}
    for name, options in {"learned": {}, "learned (paper)": {"C": 100.0, "prior": "zero"}}.items():
        ranker = RankingSVM(n_bits, random_state=0, **options).fit(data.codes[rows], data.labels[rows])
        out[name] = ranker.weights_
    return out
