"""An index on disk: a folder of plain arrays, and a meta.json that names them with their sizes and checksums.

A save writes new files under new names and then replaces meta.json in one step, so a crash at any moment leaves either
the old index or the new one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank import _kernel
from bitrank.core.checks import n_threads
from bitrank.core.files import locked, replacing, sync
from bitrank.core.types import Weights, n_bytes
from bitrank.index.segments import Segment
from bitrank.index.snapshot import Snapshot

VERSIONS = 1, 2  # 2: an index in two parts
META = "meta.json"
DTYPES = {
    "blocks": "|u1",
    "bounds": "|u1",
    "supers": "|u1",
    "ids": "<i8",
    "least_ids": "<i8",
    "wanted": "<u8",
    "rest": "|u1",
    "order": "<u2",
    "weights": "<f4",
}
# Names of the files of an index, including those that a crash leaves behind.
FILES = re.compile(r"[0-9a-f]{16}-[a-z0-9_-]+\.npy|meta\.json\.[0-9a-f]{16}|\.meta\.json\.[0-9a-f]{16}\.tmp")


class IndexFormatError(ValueError):
    """A file of an index is missing, damaged or of an unknown format; the message names it.

    Examples
    --------
    >>> from bitrank import Index
    >>> try:
    ...     Index.load("nowhere.index")
    ... except IndexFormatError as error:
    ...     print(error)
    nowhere.index/meta.json is missing: no index was saved there
    """


def save(path: str | os.PathLike[str], snapshot: Snapshot, weights: Weights | None) -> None:
    """Write a snapshot and weights to a folder, in place of an older index."""
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"path must be a folder for the index, got the file {folder}")
    foreign = [f.name for f in folder.glob("*") if f.name != META and not FILES.fullmatch(f.name)]
    if foreign:
        raise ValueError(f"path must be an index or an empty folder, got {folder} with {foreign[0]}")
    folder.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(8)
    arrays: dict[str, npt.NDArray[Any]] = {"order": snapshot.order}
    if weights is not None:
        arrays["weights"] = weights
    for number, segment in enumerate(snapshot.segments):
        arrays |= {f"{name}-{number}": a for name, a in segment._asdict().items() if a is not None}
    with locked(folder):
        try:
            files = {name: _write_array(folder, f"{token}-{name}.npy", array) for name, array in arrays.items()}
            meta = {
                "format": "bitrank index",
                "version": VERSIONS[len(snapshot.order) < snapshot.n_bits],
                "n_bits": snapshot.n_bits,
                "n_codes": len(snapshot),
                "n_segments": len(snapshot.segments),
                "files": files,
            }
            with replacing(folder / META) as file:
                file.write(json.dumps(meta | {"checksum": _meta_checksum(meta)}, indent=1).encode())
        except BaseException:
            _remove(file for file in folder.iterdir() if token in file.name)
            raise
        sync(folder)
        _remove(file for file in folder.iterdir() if file.name != META and token not in file.name)


def load(path: str | os.PathLike[str], mmap: bool) -> tuple[Snapshot, Weights | None]:
    """Read a snapshot and weights from a folder, and check every byte."""
    folder = Path(path)
    meta = read_meta(folder)
    while True:
        try:
            return _load(folder, meta, mmap)
        except _VanishedError:
            # Another process has saved since meta.json was read, or a file is missing.
            before, meta = meta, read_meta(folder)
            if meta == before:
                raise


def read_meta(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read and check meta.json."""
    file = Path(path) / META
    try:
        meta = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise IndexFormatError(f"{file} is missing: no index was saved there") from None
    except NotADirectoryError:
        raise IndexFormatError(f"path must be the folder of an index, got the file {path}") from None
    except (OSError, ValueError) as error:
        raise IndexFormatError(f"{file} is damaged: {error}") from None
    if not isinstance(meta, dict) or meta.get("format") != "bitrank index":
        raise IndexFormatError(f"{file} is not of an index")
    if meta.get("version") not in VERSIONS:
        known = " and ".join(map(str, VERSIONS))
        raise IndexFormatError(f"{file} has format version {meta.get('version')!r}; this bitrank reads {known}")
    if meta.pop("checksum", None) != _meta_checksum(meta):
        raise IndexFormatError(f"{file} is damaged: its checksum does not fit")
    return meta


class _VanishedError(IndexFormatError):
    """A file that meta.json names does not exist."""


def _load(folder: Path, meta: dict[str, Any], mmap: bool) -> tuple[Snapshot, Weights | None]:
    with ThreadPoolExecutor(n_threads()) as pool:
        read = pool.map(lambda name: _read_array(folder, name, meta["files"][name], mmap), meta["files"])
        arrays = dict(zip(meta["files"], read, strict=True))
    segments = []
    n_rest = n_bytes(meta["n_bits"]) - n_bytes(len(arrays["order"]))
    for number in range(meta["n_segments"]):
        kinds: dict[str, Any] = {name: arrays.get(f"{name}-{number}") for name in Segment._fields}
        segments.append(Segment(**kinds))
        n = len(kinds["ids"])
        if (kinds["rest"].shape if kinds["rest"] is not None else (n, 0)) != (n, n_rest):
            file = folder / meta["files"].get(f"rest-{number}", {"name": META})["name"]
            raise IndexFormatError(f"{file} must hold the rest of {n} codes, {n_rest} bytes each")
    return Snapshot(meta["n_bits"], np.array(arrays["order"]), tuple(segments)), arrays.get("weights")


def _read_array(folder: Path, name: str, entry: dict[str, Any], mmap: bool) -> npt.NDArray[Any]:
    file = folder / entry["name"]
    try:
        size = file.stat().st_size
        if size != entry["size"]:
            raise IndexFormatError(f"{file} is damaged: {size} bytes instead of {entry['size']}")
        if f"{_kernel.checksum(np.memmap(file, np.uint8, 'r')):016x}" != entry["checksum"]:
            raise IndexFormatError(f"{file} is damaged: its checksum does not fit")
        array: npt.NDArray[Any] = np.load(file, mmap_mode="r" if mmap else None, allow_pickle=False)
    except FileNotFoundError:
        raise _VanishedError(f"{file} is missing") from None
    if array.dtype != DTYPES[name.split("-")[0]]:
        raise IndexFormatError(f"{file} holds {array.dtype}, not {DTYPES[name.split('-')[0]]}")
    return array.view(np.ndarray)


def _write_array(folder: Path, name: str, array: npt.NDArray[Any]) -> dict[str, Any]:
    file = folder / name
    kind = name.removesuffix(".npy").split("-")[1]
    np.save(file, np.ascontiguousarray(array, DTYPES[kind]), allow_pickle=False)
    sync(file)
    return {
        "name": name,
        "size": file.stat().st_size,
        "checksum": f"{_kernel.checksum(np.memmap(file, np.uint8, 'r')):016x}",
    }


def _meta_checksum(meta: dict[str, Any]) -> str:
    text = json.dumps(meta, sort_keys=True, separators=(",", ":")).encode()
    return f"{_kernel.checksum(np.frombuffer(text, np.uint8)):016x}"


def _remove(files: Iterator[Path]) -> None:
    for file in list(files):
        with contextlib.suppress(OSError):
            file.unlink()
