"""Codes to measure on: random codes, and codes of patches of the CIFAR-10 images, kept in the folder of data sets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bitrank import ITQ, RankingSVM
from bitrank.core.files import read_npz, replacing

sys.path.append(str(Path(__file__).parents[1]))

from bitrank.hashing import LSH
from experiments.datasets import cifar10, data_folder


class Data(NamedTuple):
    """Codes, queries that are not among them, and labels if there are any."""

    codes: np.ndarray
    queries: np.ndarray
    labels: np.ndarray | None


def random_codes(n: int, n_bits: int, n_queries: int = 64) -> Data:
    rng = np.random.default_rng(n_bits)
    draw = lambda rows: rng.integers(0, 256, (rows, n_bits // 8), dtype=np.uint8)  # noqa: E731
    return Data(draw(n), draw(n_queries), None)


def patches(images: np.ndarray, size: int, stride: int) -> np.ndarray:
    """Cut all square patches from colour images, image by image."""
    windows = np.lib.stride_tricks.sliding_window_view(images, (size, size), axis=(1, 2))
    windows = windows[:, ::stride, ::stride]
    return windows.reshape(-1, size * size * images.shape[-1]).astype(np.float32)


def patch_codes(n_bits: int, n: int) -> Data:
    """Return n codes of patches, stride 3: ITQ of 8 × 8 pixels up to 128 bits, LSH of 16 × 16 pixels above."""
    size, stride = (8, 3) if n_bits <= 128 else (16, 3)
    file = data_folder() / f"bench-patches-{n_bits}.npz"
    if not file.exists():
        images, labels = cifar10()[:2]
        n_images = 50_000 if n_bits <= 128 else 59_000  # large patches are fewer per image: use test images as well
        images, others, labels = images[:n_images], images[n_images:], labels[:n_images]
        rng = np.random.default_rng(0)
        sample = patches(images[rng.choice(n_images, 1000, replace=False)], size, stride)
        hasher = ITQ(n_bits, random_state=0) if n_bits <= 128 else LSH(n_bits, random_state=0)
        hasher.fit(sample[rng.choice(len(sample), 20_000, replace=False)])
        codes = np.concatenate([hasher.transform(patches(part, size, stride)) for part in np.array_split(images, 100)])
        queries = hasher.transform(patches(others[:200], size, stride))
        arrays = {
            "codes": codes,
            "queries": queries[rng.choice(len(queries), 256, replace=False)],
            "labels": np.repeat(labels, len(codes) // n_images) if n_bits <= 128 else np.empty(0),
        }
        with replacing(file) as stream:
            np.savez(stream, **arrays)
    stored = read_npz(file)
    return Data(stored["codes"][:n], stored["queries"], stored["labels"][:n] if len(stored["labels"]) else None)


def uneven_weights(n_bits: int) -> np.ndarray:
    """Draw lognormal weights, for codes without labels to learn from."""
    return np.random.default_rng(0).lognormal(0, 0.7, n_bits).astype(np.float32)


def learned_weights(data: Data, n_bits: int) -> dict[str, np.ndarray]:
    """Learn weights from the labels of the images by RankingSVM: with its defaults, and with the paper's constants."""
    rows = np.random.default_rng(0).choice(len(data.codes), min(20_000, len(data.codes)), replace=False)
    weights = {}
    for name, options in {"learned": {}, "learned (paper)": {"C": 100.0, "prior": "zero"}}.items():
        ranker = RankingSVM(n_bits, random_state=0, **options).fit(data.codes[rows], data.labels[rows])
        weights[name] = ranker.weights_
    return weights
