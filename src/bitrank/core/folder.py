"""Folders that a save replaces whole: one JSON file that names the others, with their sizes and checksums.

A save writes new files under new names and then replaces the JSON file in one step, so a crash at any moment leaves
either the old content or the new one.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank import _kernel
from bitrank.core.files import replacing

Meta = dict[str, Any]


class VanishedError(ValueError):
    """A file that the JSON file names does not exist: another process may have saved since."""


def write_meta(file: Path, meta: Meta) -> None:
    """Write the JSON file, with its own checksum, in place of an older one."""
    with replacing(file) as stream:
        stream.write(json.dumps(meta | {"checksum": _checksum_of(meta)}, indent=1).encode())


def read_meta(file: Path, kind: str, versions: tuple[int, ...], error: type[ValueError]) -> Meta:
    """Read and check the JSON file of a kind of folder, such as "index"; what is wrong with it is an `error`."""
    one = f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
    try:
        meta = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise error(f"{file} is missing: no {kind} was saved there") from None
    except NotADirectoryError:
        raise error(f"path must be the folder of {one}, got the file {file.parent}") from None
    except (OSError, ValueError) as reason:
        raise error(f"{file} is damaged: {reason}") from None
    if not isinstance(meta, dict) or meta.get("format") != f"bitrank {kind}":
        raise error(f"{file} is not of {one}")
    if meta.get("version") not in versions:
        known = " and ".join(map(str, versions))
        raise error(f"{file} has format version {meta.get('version')!r}; this bitrank reads {known}")
    if meta.pop("checksum", None) != _checksum_of(meta):
        raise error(f"{file} is damaged: its checksum does not fit")
    return meta


def describe(file: Path, content: npt.NDArray[np.uint8]) -> Meta:
    """What the JSON file says of another file."""
    return {"name": file.name, "size": len(content), "checksum": checksum(content)}


def check_file(folder: Path, entry: Meta, error: type[ValueError]) -> npt.NDArray[np.uint8]:
    """Map a file that the JSON file names into memory, and check it; what is wrong with it is an `error`."""
    file = folder / str(entry["name"])
    try:
        content = np.memmap(file, np.uint8, "r") if file.stat().st_size else np.empty(0, np.uint8)
    except FileNotFoundError:
        raise VanishedError(f"{file} is missing") from None
    if len(content) != entry["size"]:
        raise error(f"{file} is damaged: {len(content)} bytes instead of {entry['size']}")
    if checksum(content) != entry["checksum"]:
        raise error(f"{file} is damaged: its checksum does not fit")
    return content


def checksum(content: npt.NDArray[np.uint8]) -> str:
    """Checksum of bytes, as JSON files of folders hold it.

    Examples
    --------
    >>> checksum(np.uint8([1, 2, 3])) == checksum(np.uint8([1, 2, 4]))
    False
    """
    return f"{_kernel.checksum(content):016x}"


def remove(files: Iterable[Path]) -> None:
    """Remove files that a save replaced or left behind, as far as possible."""
    for file in list(files):
        with contextlib.suppress(OSError):
            file.unlink()


def _checksum_of(meta: Meta) -> str:
    text = json.dumps(meta, sort_keys=True, separators=(",", ":")).encode()
    return checksum(np.frombuffer(text, np.uint8))
