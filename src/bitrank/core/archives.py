"""Fitted estimators in files: npz archives of plain arrays with a JSON header, versioned; nothing is ever unpickled."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.core.files import read_npz, replacing

Arrays = dict[str, npt.NDArray[Any]]
File = str | os.PathLike[str] | IO[bytes]


class Archive(NamedTuple):
    """What an archive holds: the name of a class, its parameters, what it learned as JSON values and as arrays."""

    name: str
    params: dict[str, Any]
    facts: dict[str, Any]
    arrays: Arrays


def write_archive(path: File, kind: str, version: int, archive: Archive) -> None:
    """Write an archive at exactly this path, whole or not at all, or to an open file.

    Examples
    --------
    >>> write_archive("toy.npz", "toy", 1, Archive("Toy", {"n_bits": 8}, {}, {"weights_": np.ones(8)}))
    >>> read_archive("toy.npz", "toy", 1).arrays["weights_"].sum()
    np.float64(8.0)
    """
    header = {
        "name": archive.name,
        "params": {name: plain_param(name, value) for name, value in archive.params.items()},
        "facts": archive.facts,
    }
    entries: dict[str, Any] = {"format": kind, "version": version, "header": json.dumps(header), **archive.arrays}
    with replacing(path) if isinstance(path, str | os.PathLike) else nullcontext(path) as file:
        np.savez(file, **entries)


def read_archive(path: File, kind: str, version: int) -> Archive:
    """Read an archive of this kind, or raise a ValueError that says what is wrong with the file."""
    arrays = read_npz(path, what=f"a file of a {kind}")
    if arrays.keys().isdisjoint(("header", "hasher")) or str(arrays.pop("format", "")) != kind:
        raise ValueError(f"{path} must be a file of a {kind}, got entries {sorted(arrays)}")
    found_version = arrays.pop("version", np.array(None)).tolist()
    if found_version != version:
        raise ValueError(f"{path} must have format version {version}, got {found_version}")
    try:
        header = _header(arrays)
        name, params, facts = header["name"], header["params"], header["facts"]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} must hold a header of name, params and facts, got {error}") from None
    if not (isinstance(name, str) and isinstance(params, dict) and isinstance(facts, dict)):
        raise ValueError(f"{path} must hold a header of name, params and facts, got {header!r:.80}")
    return Archive(name, params, facts, arrays)


def _header(arrays: Arrays) -> Any:
    if "hasher" in arrays:  # older files of hashers hold name and parameters as entries
        name, params = arrays.pop("hasher").tolist(), json.loads(str(arrays.pop("params").tolist()))
        return {"name": name, "params": params, "facts": {}}
    return json.loads(str(arrays.pop("header").tolist()))


def check_shapes(arrays: Arrays, shapes: dict[str, str], sides: dict[str, int]) -> None:
    """Check that arrays are finite floats of these shapes: a letter per side, equal letters for equal lengths.

    Examples
    --------
    >>> check_shapes({"weights_": np.ones(8)}, {"weights_": "b"}, {"b": 8})
    """
    known = dict(sides)
    for name, letters in shapes.items():
        array = arrays.get(name)
        if array is None or array.dtype.kind != "f":
            raise ValueError(f"expected an array {name} of floats, got {None if array is None else array.dtype}")
        if array.ndim != len(letters):
            raise ValueError(f"expected {name} with {len(letters)} dimensions, got shape {array.shape}")
        wanted = tuple(known.setdefault(letter, side) for letter, side in zip(letters, array.shape, strict=True))
        if array.shape != wanted:
            raise ValueError(f"expected {name} of shape {wanted}, got {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"expected finite values in {name}, got others")


def plain_param(name: str, value: Any) -> Any:
    """A parameter as JSON can hold it; a random state that is not an int becomes None."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    return None if name == "random_state" and not isinstance(value, int) else value
