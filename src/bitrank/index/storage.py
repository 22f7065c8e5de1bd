"""An index on disk: a folder of plain arrays, and a meta.json that names them (see `core.folder`)."""

from __future__ import annotations

import os
import re
import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.core import folder as folders
from bitrank.core.checks import n_threads
from bitrank.core.files import locked, sync
from bitrank.core.types import Weights, n_bytes
from bitrank.index.cells import Cells
from bitrank.index.segments import Segment
from bitrank.index.snapshot import Snapshot

VERSIONS = 1, 2, 3  # 2: an index in two parts; 3: in cells
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
    "means": "|u1",
    "cells": "<f4",
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
    if snapshot.cells is not None:
        arrays |= {f"cells-{name}": array for name, array in snapshot.cells._asdict().items()}
    for number, segment in enumerate(snapshot.segments):
        arrays |= {f"{name}-{number}": a for name, a in segment._asdict().items() if a is not None}
    with locked(folder):
        try:
            files = {name: _write_array(folder, f"{token}-{name}.npy", array) for name, array in arrays.items()}
            meta = {
                "format": "bitrank index",
                "version": 3 if snapshot.cells is not None else VERSIONS[len(snapshot.order) < snapshot.n_bits],
                "n_bits": snapshot.n_bits,
                "n_codes": len(snapshot),
                "n_segments": len(snapshot.segments),
                "files": files,
            }
            folders.write_meta(folder / META, meta)
        except BaseException:
            folders.remove(file for file in folder.iterdir() if token in file.name)
            raise
        sync(folder)
        folders.remove(file for file in folder.iterdir() if file.name != META and token not in file.name)


def load(path: str | os.PathLike[str], mmap: bool) -> tuple[Snapshot, Weights | None]:
    """Read a snapshot and weights from a folder, and check every byte."""
    folder = Path(path)
    meta = read_meta(folder)
    while True:
        try:
            return _load(folder, meta, mmap)
        except folders.VanishedError as error:
            # Another process has saved since meta.json was read, or a file is missing.
            before, meta = meta, read_meta(folder)
            if meta == before:
                raise IndexFormatError(str(error)) from None


def read_meta(path: str | os.PathLike[str]) -> folders.Meta:
    """Read and check meta.json."""
    return folders.read_meta(Path(path) / META, "index", VERSIONS, IndexFormatError)


def _load(folder: Path, meta: dict[str, Any], mmap: bool) -> tuple[Snapshot, Weights | None]:
    with ThreadPoolExecutor(n_threads()) as pool:
        list(pool.map(lambda entry: folders.check_file(folder, entry, IndexFormatError), meta["files"].values()))
    # One after the other: of headers that threads parse together, CPython 3.11 counts the depth together.
    arrays = {name: _read_array(folder, name, entry, mmap) for name, entry in meta["files"].items()}
    segments = []
    n_rest = n_bytes(meta["n_bits"]) - n_bytes(len(arrays["order"]))
    for number in range(meta["n_segments"]):
        kinds: dict[str, Any] = {name: arrays.get(f"{name}-{number}") for name in Segment._fields}
        segments.append(Segment(**kinds))
        n = len(kinds["ids"])
        if (kinds["rest"].shape if kinds["rest"] is not None else (n, 0)) != (n, n_rest):
            file = folder / meta["files"].get(f"rest-{number}", {"name": META})["name"]
            raise IndexFormatError(f"{file} must hold the rest of {n} codes, {n_rest} bytes each")
    cells = None
    if meta["version"] == 3:
        cells = Cells(**{name: np.array(arrays[f"cells-{name}"]) for name in Cells._fields})
        cells = cells._replace(n_levels=cells.n_levels.astype(np.uint8))
    return Snapshot(meta["n_bits"], np.array(arrays["order"]), tuple(segments), cells), arrays.get("weights")


def _read_array(folder: Path, name: str, entry: dict[str, Any], mmap: bool) -> npt.NDArray[Any]:
    file = folder / entry["name"]
    try:
        array: npt.NDArray[Any] = np.load(file, mmap_mode="r" if mmap else None, allow_pickle=False)
    except FileNotFoundError:
        raise folders.VanishedError(f"{file} is missing") from None
    if array.dtype != DTYPES[name.split("-")[0]]:
        raise IndexFormatError(f"{file} holds {array.dtype}, not {DTYPES[name.split('-')[0]]}")
    return array.view(np.ndarray)


def _write_array(folder: Path, name: str, array: npt.NDArray[Any]) -> dict[str, Any]:
    file = folder / name
    kind = name.removesuffix(".npy").split("-")[1]
    np.save(file, np.ascontiguousarray(array, DTYPES[kind]), allow_pickle=False)
    sync(file)
    return folders.describe(file, np.memmap(file, np.uint8, "r"))
