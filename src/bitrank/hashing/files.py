"""The file of a fitted hasher: a plain npz of its class name, parameters and learned arrays. Nothing is unpickled."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from bitrank.core.archives import File, check_shapes, plain_param
from bitrank.core.files import read_npz, replacing

if TYPE_CHECKING:
    from bitrank.hashing.hasher import Hasher

FORMAT = "bitrank hasher"
VERSION = 1


def write(hasher: Hasher, path: File) -> None:
    """Write a fitted hasher to exactly this path, whole or not at all."""
    params = {name: plain_param(name, value) for name, value in hasher.get_params(deep=False).items()}
    entries = {name: getattr(hasher, name) for name in hasher._learned}
    if hasattr(hasher, "feature_names_in_"):
        entries["feature_names_in_"] = hasher.feature_names_in_.astype(str)
    name = type(hasher).__name__
    with replacing(path) if isinstance(path, str | os.PathLike) else nullcontext(path) as file:
        np.savez(file, format=FORMAT, version=VERSION, hasher=name, params=json.dumps(params), **entries)


def read(path: File, classes: tuple[type[Hasher], ...]) -> Hasher:
    """Read a hasher of one of these classes, or raise a ValueError that says what is wrong with the file."""
    entries = read_npz(path, what="a file written by save")
    try:
        return _build(entries, classes)
    except ValueError as error:
        raise ValueError(f"{path} must be a file written by save: {error}") from error


def _build(entries: dict[str, Any], classes: tuple[type[Hasher], ...]) -> Hasher:
    missing = {"format", "version", "hasher", "params"} - entries.keys()
    if missing or entries["format"].tolist() != FORMAT:
        raise ValueError(f"expected a {FORMAT}, got entries {sorted(entries)}")
    if entries["version"].tolist() != VERSION:
        raise ValueError(f"expected format version {VERSION}, got {entries['version'].tolist()}")
    by_name = {cls.__name__: cls for cls in classes}
    name = entries["hasher"].tolist()
    if not isinstance(name, str) or name not in by_name:
        raise ValueError(f"expected one of {', '.join(by_name)}, got {name!r}")
    cls = by_name[name]
    params = json.loads(str(entries["params"].tolist()))
    expected = cls().get_params(deep=False).keys()
    if not isinstance(params, dict) or not expected - cls._newer_params <= params.keys() <= expected:
        raise ValueError(f"expected the parameters of {name}, got {params}")
    hasher = cls(**params)
    learned = {array: _floats(array, entries) for array in cls._learned}
    n_features = _n_features(learned, cls._learned)
    n_bits = hasher._check_params(n_features)
    check_shapes(learned, cls._learned, {"d": n_features, "k": n_bits})
    if "feature_names_in_" in entries:
        names = entries["feature_names_in_"]
        if names.dtype.kind != "U" or names.shape != (n_features,):
            raise ValueError(f"expected {n_features} feature names, got {names.dtype} of shape {names.shape}")
        hasher.feature_names_in_ = names.astype(object)
    hasher.n_features_in_ = n_features
    hasher._set(learned, n_bits)
    return hasher


def _n_features(learned: dict[str, Any], shapes: dict[str, str]) -> int:
    """Read the number of features off the first array that has a side of that length."""
    name, axes = next((name, axes) for name, axes in shapes.items() if "d" in axes)
    if learned[name].ndim != len(axes):
        raise ValueError(f"expected {name} with {len(axes)} dimensions, got shape {learned[name].shape}")
    return int(learned[name].shape[axes.index("d")])


def _floats(name: str, entries: dict[str, Any]) -> Any:
    array = entries.get(name)
    if array is None or array.size == 0 or array.dtype.newbyteorder("=") != np.float64:
        raise ValueError(f"expected an array {name} of float64, got {None if array is None else array.dtype}")
    if not np.isfinite(array).all():
        raise ValueError(f"expected finite values in {name}, got others")
    return array.astype(np.float64)
