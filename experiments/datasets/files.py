"""The folder of data sets and the npz files in it. Nothing is unpickled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.core.files import read_npz, replacing

Arrays = dict[str, npt.NDArray[Any]]
# Kind of numbers and shape per array; sides of the same name have the same length.
Forms = Mapping[str, tuple[type[np.generic], tuple[int | str, ...]]]


def data_folder() -> Path:
    """The folder named by the environment variable BITRANK_DATA, or ~/.cache/bitrank."""
    return Path(os.environ.get("BITRANK_DATA") or "~/.cache/bitrank").expanduser()


def read_arrays(path: Path, forms: Forms) -> Arrays:
    """Read the arrays of a data set, or raise a ValueError that says what is wrong with the file."""
    arrays = read_npz(path, names=forms.keys())
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


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write the arrays of a data set, whole or not at all."""
    with replacing(path) as file:
        np.savez(file, **arrays)


def check_class_numbers(path: Path, labels: npt.NDArray[Any], n_classes: int) -> None:
    """Refuse labels that are not row numbers of the class names."""
    if labels.size and not 0 <= int(labels.min()) <= int(labels.max()) < n_classes:
        raise ValueError(
            f"{path} must hold labels from 0 to {n_classes - 1}, one for each class name, "
            f"got {labels.min()} to {labels.max()}"
        )
