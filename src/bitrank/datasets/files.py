"""The folder of data sets and the npz files in it.

Every set but the embedded digits is read through here; nothing is ever unpickled.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.files import replacing

Arrays = dict[str, npt.NDArray[Any]]
# Of each array, the kind of its numbers and its shape; a side of any length has a name, and is as long wherever named.
Forms = Mapping[str, tuple[type[np.generic], tuple[int | str, ...]]]


def data_folder() -> Path:
    """The folder named by the environment variable BITRANK_DATA, or ~/.cache/bitrank."""
    return Path(os.environ.get("BITRANK_DATA") or "~/.cache/bitrank").expanduser()


def read_npz(path: Path, forms: Forms) -> Arrays:
    """Read these arrays of a file, or say in a ValueError what is wrong with it."""
    with open(path, "rb") as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in forms if name in archive.files}
        except Exception as error:  # zipfile and the npy reader raise a dozen kinds of error over damaged bytes
            raise ValueError(
                f"{path} must be an npz file of plain arrays, got one that cannot be read: {error}"
            ) from error
    missing = [name for name in forms if name not in arrays]
    if missing:
        raise ValueError(f"{path} must hold {', '.join(forms)}, got none named {', '.join(missing)}")
    sides: dict[str, int] = {}
    for name, (kind, shape) in forms.items():
        array = arrays[name]
        for side, length in zip(shape, array.shape, strict=False):
            if isinstance(side, str):
                sides.setdefault(side, length)
        expected = tuple(sides.get(side, 0) if isinstance(side, str) else side for side in shape)
        if not np.issubdtype(array.dtype, kind) or array.shape != expected:
            raise ValueError(
                f"{path} must hold {name} as {kind.__name__} of shape {expected}, "
                f"got {array.dtype} of shape {array.shape}"
            )
    return arrays


def write_npz(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write a file whole or not at all."""
    with replacing(path) as file:
        np.savez(file, **arrays)


def check_labels(path: Path, labels: npt.NDArray[Any], n_classes: int) -> None:
    """Labels are row numbers of the class names, or a ValueError."""
    if labels.size and not 0 <= int(labels.min()) <= int(labels.max()) < n_classes:
        raise ValueError(
            f"{path} must hold labels from 0 to {n_classes - 1}, one for each class name, "
            f"got {labels.min()} to {labels.max()}"
        )
