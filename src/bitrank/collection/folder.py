"""A collection on disk: a folder with collection.json, an index, a hasher, rankers and ids, and a journal of changes.

A full save writes new files under new names and then replaces collection.json, so a crash leaves the old collection or
the new one. A small change is one record appended to the journal, with a checksum; `read` replays the records. A
record that a crash cut off was never acknowledged, and is left out.
"""

from __future__ import annotations

import io
import json
import os
import re
import secrets
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank import _kernel
from bitrank.core import folder as folders
from bitrank.core.files import LOCK, locked, read_npz, sync
from bitrank.index import Index, IndexFormatError

if TYPE_CHECKING:
    from bitrank.collection.moment import Lazy

VERSION = 1
META = "collection.json"
# Names of the files of a collection, including those that a crash leaves behind.
_FILES = re.compile(
    r"\.?(index|hasher|ranker|memory|ids|queries|attachment|journal)-[0-9a-f]{16}[a-z0-9.]*|\.collection\.json\.[0-9a-f]{16}\.tmp"
    r"|records-[0-9a-f]{16}\.jsonl|store\.json"  # of a store from before there was a `Collection`
)
_SINGLE = ("hasher", "memory", "queries")  # files of which there is one at most, with an attribute of `Stored`
_HEADER = struct.Struct("<4sQQ")  # magic, length and checksum of a record
_MAGIC = b"bitj"
_LEAST_JOURNAL = 1 << 20  # bytes; beyond this and a quarter of the codes, a save writes everything anew

Arrays = dict[str, npt.NDArray[Any]]


class CollectionFormatError(IndexFormatError):
    """A file of a collection is missing, damaged or of an unknown format; the message names it.

    Examples
    --------
    >>> from bitrank import Collection
    >>> try:
    ...     Collection.load("nowhere.bitrank")
    ... except CollectionFormatError as error:
    ...     print(error)
    nowhere.bitrank/collection.json is missing: no collection was saved there
    """


class State(NamedTuple):
    """What a folder held when it was read or written: another saver changes it."""

    folder: Path
    token: str
    journal: int  # bytes
    rankers: frozenset[str]  # numbers of the versions whose rankers are there
    facts: str  # as JSON
    attachments: dict[str, bytes]

    def is_at(self, folder: Path) -> bool:
        """Return whether it is of this folder, which still exists."""
        return self.folder.resolve() == folder.resolve() and (folder / META).exists()

    def keeps(self, attachments: dict[str, bytes]) -> bool:
        """Return whether no attachment changed since, but for new ones."""
        return all(attachments.get(name) is data for name, data in self.attachments.items())


class Change(NamedTuple):
    """Items that were added or removed since the last save: numbers in the index, codes of those added.

    Of the memory: pairs and codes of judged queries that were added, or none, with what `collection.remembering` says.
    """

    numbers: npt.NDArray[np.int64]
    codes: npt.NDArray[np.uint8] | None  # None: removed
    names: list[Any] | dict[str, Any] | None  # of items that were added, where ids are no whole numbers


@dataclass
class Stored:
    """What a folder holds."""

    index: Index | None  # None: the codes are in an engine
    facts: dict[str, Any]  # metric, versions and what else collection.json says
    ids: npt.NDArray[Any] | list[Any] | None
    hasher: bytes | None
    rankers: dict[str, bytes] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    attachments: dict[str, bytes] = field(default_factory=dict)
    memory: bytes | None = None
    queries: bytes | None = None  # that promises of recall are measured on


def write(folder: Path, stored: Stored, expected: State | None, *, replace: bool) -> State:
    """Write everything, in place of the collection that `expected` says, or of any where `replace`."""
    _check_target(folder)
    folder.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(8)
    with locked(folder):
        _check_state(folder, expected, replace)
        try:
            if stored.index is not None:
                stored.index.save(folder / f"index-{token}")
            kept = {name: getattr(stored, name) for name in _SINGLE}
            contents = {name: data for name, data in kept.items() if data is not None}
            contents |= {f"ranker {number}": data for number, data in stored.rankers.items()}
            contents |= {f"attachment {name}": data for name, data in stored.attachments.items()}
            if stored.ids is not None:
                contents["ids"] = _ids_data(stored.ids)
            entries = _write_files(folder, token, contents)
            _write_file(folder / f"journal-{token}.log", b"")
            meta = {
                "format": "bitrank collection",
                "version": VERSION,
                "token": token,
                "facts": stored.facts,
                "files": entries,
                "index": stored.index is not None,
            }
            folders.write_meta(folder / META, meta)
        except BaseException:
            _remove(folder, lambda name: token in name)
            raise
        sync(folder)
        _remove(folder, lambda name: token not in name)
    return State(folder, token, 0, frozenset(stored.rankers), json.dumps(stored.facts), stored.attachments)


def append(
    state: State, changes: list[Change], facts: dict[str, Any], rankers: dict[str, Lazy], attachments: dict[str, bytes]
) -> State:
    """Append one record to the journal: changes of items, new attachments, and changed facts with new rankers."""
    folder, text = state.folder, json.dumps(facts)
    with locked(folder):
        _check_state(folder, state, False)
        new = [name for name in attachments if name not in state.attachments]
        if text == state.facts and not changes and not new:
            return state
        contents = {f"ranker {number}": rankers[number].data() for number in rankers.keys() - state.rankers}
        contents |= {f"attachment {name}": attachments[name] for name in new}
        entries = _write_files(folder, secrets.token_hex(8), contents)
        if entries:
            sync(folder)
        changed_facts = None if text == state.facts else facts
        record = {"changes": [change.names for change in changes], "facts": changed_facts, "files": entries}
        arrays: Arrays = {f"numbers{place}": change.numbers for place, change in enumerate(changes)}
        arrays |= {f"codes{place}": change.codes for place, change in enumerate(changes) if change.codes is not None}
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, record=np.array(json.dumps(record)), **arrays)
        payload = content.getvalue()
        with open(folder / f"journal-{state.token}.log", "r+b") as file:
            file.truncate(state.journal)  # a record that a crash cut off
            file.seek(state.journal)
            file.write(_HEADER.pack(_MAGIC, len(payload), _kernel.checksum(np.frombuffer(payload, np.uint8))))
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
    journal = state.journal + _HEADER.size + len(payload)
    return State(folder, state.token, journal, state.rankers | rankers.keys(), text, attachments)


def fits_journal(state: State, changes: list[Change], n_items: int, bytes_per_item: int) -> bool:
    """Return whether a journal with more changes stays small beside the codes."""
    more = sum(change.numbers.nbytes + (0 if change.codes is None else change.codes.nbytes) for change in changes)
    return state.journal + more < max(_LEAST_JOURNAL, n_items * bytes_per_item // 4)


def read(path: str | os.PathLike[str], mmap: bool) -> tuple[Stored, State]:
    """Read a collection and check its files."""
    folder = Path(path)
    while True:
        meta = _read_meta(folder)
        try:
            return _read(folder, meta, mmap)
        except (OSError, ValueError) as error:
            if _read_meta(folder)["token"] != meta["token"]:
                continue  # another process has saved meanwhile: files may be missing
            if isinstance(error, folders.VanishedError):
                raise CollectionFormatError(str(error)) from None
            if isinstance(error, OSError):
                raise CollectionFormatError(f"{error.filename or folder} cannot be read: {error.strerror}") from None
            raise


def is_collection(path: str | os.PathLike[str]) -> bool:
    """Return whether a folder holds a collection."""
    return (Path(path) / META).exists()


def _read(folder: Path, meta: dict[str, Any], mmap: bool) -> tuple[Stored, State]:
    token, files, facts = meta["token"], dict(meta["files"]), meta["facts"]
    journal = folder / f"journal-{token}.log"
    changes: list[Change] = []
    size = 0
    for stop, record, arrays in _records(journal):
        size = stop
        files |= record["files"]
        facts = facts if record["facts"] is None else record["facts"]
        for place, names in enumerate(record["changes"]):
            changes.append(Change(arrays[f"numbers{place}"], arrays.get(f"codes{place}"), names))
    index = Index.load(folder / f"index-{token}", mmap=mmap) if meta.get("index", True) else None
    stored = Stored(index, facts, None, None, changes=changes)
    versions = {f"ranker {version['number']}" for version in facts["versions"]}
    for name, entry in files.items():
        if name == "ids":
            stored.ids = _read_ids(folder / entry["name"], _read_file(folder, entry))
        elif name in _SINGLE:
            setattr(stored, name, _read_file(folder, entry))
        elif name in versions:
            stored.rankers[name.removeprefix("ranker ")] = _read_file(folder, entry)
        elif name.startswith("attachment "):
            stored.attachments[name.removeprefix("attachment ")] = _read_file(folder, entry)
    return stored, State(folder, token, size, frozenset(stored.rankers), json.dumps(facts), stored.attachments)


def _records(journal: Path, start: int = 0) -> Iterator[tuple[int, dict[str, Any], Arrays]]:
    """Where each record from a byte on ends, and what it holds; what a crash cut off at the end is left out."""
    try:
        with open(journal, "rb") as file:
            file.seek(start)
            data = file.read()
    except FileNotFoundError:
        raise CollectionFormatError(f"{journal} is missing") from None
    first, start = start, 0
    while start + _HEADER.size <= len(data):
        magic, length, checksum = _HEADER.unpack_from(data, start)
        stop = start + _HEADER.size + length
        if magic != _MAGIC:
            if not any(data[start:]):
                return  # zeros that a crash left behind
            raise CollectionFormatError(f"{journal} is damaged at byte {first + start}")
        if stop > len(data):
            return
        payload = data[start + _HEADER.size : stop]
        if _kernel.checksum(np.frombuffer(payload, np.uint8)) != checksum:
            if stop == len(data):
                return
            raise CollectionFormatError(f"{journal} is damaged at byte {first + start}: a checksum does not fit")
        arrays = read_npz(io.BytesIO(payload))
        yield first + stop, json.loads(str(arrays.pop("record"))), arrays
        start = stop


def _read_meta(folder: Path) -> folders.Meta:
    return folders.read_meta(folder / META, "collection", (VERSION,), CollectionFormatError)


def _check_target(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"path must be a folder for the collection, got the file {folder}")
    foreign = [file.name for file in folder.glob("*") if not _FILES.fullmatch(file.name) and file.name != LOCK]
    if foreign and META not in foreign:
        raise ValueError(f"path must be a saved collection or an empty folder, got {folder} with {foreign[0]}")


def _check_state(folder: Path, expected: State | None, replace: bool) -> None:
    """Refuse a folder that holds another collection, or one that changed since it was read."""
    if replace or not (folder / META).exists():
        return
    token = _read_meta(folder)["token"]
    if expected is None or expected.folder.resolve() != folder.resolve():
        raise ValueError(f"path must not hold another collection, got {folder}: load it, or save with replace=True")
    changed = token != expected.token
    if not changed:  # by another saver, whose record is whole
        journal = folder / f"journal-{token}.log"
        size = journal.stat().st_size
        changed = size < expected.journal or any(True for _ in _records(journal, expected.journal))
    if changed:
        raise ValueError(f"{folder} must not have changed since it was loaded, got another save: load it again")


def _ids_data(ids: npt.NDArray[Any] | list[Any]) -> bytes:
    if not isinstance(ids, np.ndarray):
        return json.dumps(ids).encode()
    content = io.BytesIO()
    np.save(content, ids, allow_pickle=False)
    return content.getvalue()


def _read_ids(file: Path, data: bytes) -> npt.NDArray[Any] | list[Any]:
    try:
        is_array = data.startswith(b"\x93NUMPY")
        return np.load(io.BytesIO(data), allow_pickle=False) if is_array else json.loads(data)  # type: ignore[no-any-return]
    except ValueError as error:
        raise CollectionFormatError(f"{file} is damaged: {error}") from None


def _write_files(folder: Path, token: str, contents: dict[str, bytes]) -> dict[str, folders.Meta]:
    """Write files, and return how collection.json describes them."""
    entries = {}
    for number, (name, data) in enumerate(contents.items()):
        file = folder / f"{name.partition(' ')[0]}-{token}.{number}.{'npz' if data.startswith(b'PK') else 'bin'}"
        _write_file(file, data)
        entries[name] = folders.describe(file, np.frombuffer(data, np.uint8))
    return entries


def _write_file(file: Path, data: bytes) -> None:
    with open(file, "xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _read_file(folder: Path, entry: folders.Meta) -> bytes:
    return folders.check_file(folder, entry, CollectionFormatError).tobytes()


def _remove(folder: Path, unwanted: Callable[[str], bool]) -> None:
    old = [file for file in folder.iterdir() if _FILES.fullmatch(file.name) and unwanted(file.name)]
    folders.remove(file for file in old if not file.is_dir())
    for file in old:
        shutil.rmtree(file, ignore_errors=True)
