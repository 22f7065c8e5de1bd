"""`Records`: records under text ids, found by the codes of their embeddings, in memory and in a folder.

A save writes new files and then replaces store.json, which names them, so a crash leaves the old store or the new one.
Of several processes that save to one folder, one writes at a time.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_count
from bitrank.core.files import LOCK, locked, replacing, sync
from bitrank.core.types import Codes, Ids
from bitrank.index import Index
from bitrank.integrations.encoding import Encoder, similarities

FORMAT = "bitrank store"
VERSION = 1
META = "store.json"
# Names of the files of a store, including those that a crash leaves behind.
_FILES = re.compile(r"\.?(index|hasher|ranker|records)-[0-9a-f]{16}[a-z0-9.]*|\.store\.json\.[0-9a-f]{16}\.tmp")

Record = TypeVar("Record")
Vector = npt.ArrayLike


class Hit(NamedTuple):
    """The id of a record and its similarity to the query, from 0 to 1."""

    id: str
    score: float


class Records(Generic[Record]):
    """Records by text id. Those with an embedding can be searched; an `Index` keeps their codes under int64 rows."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.index: Index | None = None
        self.n_dimensions: int | None = None
        self._records: dict[str, Record] = {}
        self._row_of: dict[str, int] = {}
        self._id_of: dict[int, str] = {}
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, text_id: object) -> bool:
        return text_id in self._records

    def items(self) -> list[tuple[str, Record]]:
        """All ids and records, in the order in which they were added."""
        with self._lock:
            return list(self._records.items())

    def get(self, ids: Iterable[str]) -> list[Record]:
        """Records of those ids that exist."""
        with self._lock:
            return [self._records[text_id] for text_id in ids if text_id in self._records]

    def put(self, ids: Sequence[str], records: Sequence[Record], embeddings: Sequence[Vector | None]) -> None:
        """Add records, or replace those with the same id; a record without an embedding is not searched.

        Of records with the same id the last one counts. Nothing changes if an embedding is refused.
        """
        entries = dict(zip(ids, zip(records, embeddings, strict=True), strict=True))
        coded = [text_id for text_id, (_, embedding) in entries.items() if embedding is not None]
        with self._lock:
            if coded:
                codes = self._encode([entries[text_id][1] for text_id in coded])
                self._store(coded, codes)
            self._forget([text_id for text_id in entries if text_id not in set(coded)])
            self._records |= {text_id: record for text_id, (record, _) in entries.items()}

    def revise(self, records: Mapping[str, Record]) -> None:
        """Replace records that exist, and keep their codes."""
        with self._lock:
            self._records |= {text_id: record for text_id, record in records.items() if text_id in self._records}

    def drop(self, ids: Iterable[str]) -> None:
        """Remove records; ids that do not exist are passed over."""
        with self._lock:
            known = [text_id for text_id in dict.fromkeys(ids) if text_id in self._records]
            self._forget(known)
            for text_id in known:
                del self._records[text_id]

    def search(self, embedding: Vector, k: int, wanted: Iterable[str] | None = None) -> list[Hit]:
        """Find the k records most similar to an embedding, among those wanted."""
        check_count("k", k, 1)
        with self._lock:
            if self.index is None or not len(self.index):
                return []
            rows = None if wanted is None else [self._row_of[i] for i in wanted if i in self._row_of]
            if rows == []:
                return []
            queries = self.encoder.queries(self._check_dimensions(np.asarray(embedding)[None]), self.index)
            results = self.index.search(queries, k, filter=rows)
            scores = similarities(results.distances, queries)[0]
            pairs = zip(results.ids[0].tolist(), scores.tolist(), strict=True)
            return [Hit(self._id_of[row], score) for row, score in pairs if row >= 0]

    def codes(self, ids: Sequence[str]) -> Codes:
        """Packed codes of records that have an embedding."""
        with self._lock:
            if self.index is None:
                raise ValueError(f"ids must be of records with an embedding, got {len(ids)} where there are none")
            return self.index.codes(self._rows(ids))

    def _encode(self, embeddings: Sequence[Any]) -> Codes:
        matrix = self._check_dimensions(np.asarray(embeddings))
        n_bits = self.encoder.n_bits(matrix.shape[1])
        codes = self.encoder.codes(matrix)
        if self.index is None:
            self.index, self.n_dimensions = Index(n_bits=n_bits), int(matrix.shape[1])
        return codes

    def _check_dimensions(self, matrix: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if matrix.ndim != 2 or self.n_dimensions not in (None, matrix.shape[1]):
            wanted = "one length" if self.n_dimensions is None else f"{self.n_dimensions} numbers"
            raise ValueError(f"embeddings must have {wanted} each, got shape {matrix.shape}")
        return matrix

    def _store(self, ids: list[str], codes: Codes) -> None:
        assert self.index is not None
        known = np.array([text_id in self._row_of for text_id in ids])
        if known.any():
            self.index.update(self._rows([i for i in ids if i in self._row_of]), codes[known])
        new = [text_id for text_id in ids if text_id not in self._row_of]
        if new:
            first = max(self._id_of, default=-1) + 1
            rows = range(first, first + len(new))
            self.index.add(codes[~known], np.array(rows))
            self._row_of |= dict(zip(new, rows, strict=True))
            self._id_of |= dict(zip(rows, new, strict=True))

    def _forget(self, ids: list[str]) -> None:
        """Remove the codes of records."""
        coded = [text_id for text_id in ids if text_id in self._row_of]
        if coded and self.index is not None:
            self.index.remove(self._rows(coded))
            for text_id in coded:
                del self._id_of[self._row_of.pop(text_id)]

    def _rows(self, ids: Sequence[str]) -> Ids:
        return np.array([self._row_of[text_id] for text_id in ids], np.int64)

    def save(self, path: str | os.PathLike[str], to_json: Callable[[Record], Any] = lambda record: record) -> None:
        """Write records, as JSON values, codes, hasher and ranker to a folder."""
        folder, token = Path(path), secrets.token_hex(8)
        foreign = [file.name for file in folder.glob("*") if not _FILES.fullmatch(file.name) and file.name != LOCK]
        if foreign and META not in foreign:
            raise ValueError(f"path must be a saved store or an empty folder, got {folder} with {foreign[0]}")
        folder.mkdir(parents=True, exist_ok=True)
        with self._lock, locked(folder):
            lines = [[self._row_of.get(text_id), text_id, to_json(record)] for text_id, record in self._records.items()]
            try:
                text = "".join(json.dumps(line) + "\n" for line in lines)
            except TypeError as error:
                raise ValueError(f"records must be JSON values to be saved, got another: {error}") from None
            if self.index is not None:
                self.index.save(folder / f"index-{token}")
            for name, part in (("hasher", self.encoder.hasher), ("ranker", self.encoder.ranker)):
                if part is not None:
                    part.save(folder / f"{name}-{token}.npz")
            with replacing(folder / f"records-{token}.jsonl") as file:
                file.write(text.encode())
            meta = {"format": FORMAT, "version": VERSION, "token": token, "n_dimensions": self.n_dimensions}
            with replacing(folder / META) as file:
                file.write(json.dumps(meta).encode())
            sync(folder)
            for old in folder.iterdir():
                if _FILES.fullmatch(old.name) and token not in old.name:
                    shutil.rmtree(old) if old.is_dir() else old.unlink()

    @classmethod
    def load(cls, path: str | os.PathLike[str], from_json: Callable[[Any], Record] = lambda record: record) -> Self:
        """Read what `save` wrote."""
        folder = Path(path)
        while True:
            meta = _read_meta(folder)
            try:
                out = cls._load(folder, *meta, from_json)
            except (OSError, ValueError):
                if _read_meta(folder) == meta:
                    raise
            else:
                if _read_meta(folder) == meta:  # else another process has saved meanwhile: files may be missing
                    return out

    @classmethod
    def _load(cls, folder: Path, token: str, n_dimensions: int | None, from_json: Callable[[Any], Record]) -> Self:
        hasher, ranker = (folder / f"{name}-{token}.npz" for name in ("hasher", "ranker"))
        out = cls(Encoder(hasher if hasher.exists() else None, ranker if ranker.exists() else None))
        with open(folder / f"records-{token}.jsonl", encoding="utf-8") as file:
            for row, text_id, record in map(json.loads, file):
                out._records[text_id] = from_json(record)
                if row is not None:
                    out._row_of[text_id], out._id_of[row] = row, text_id
        if n_dimensions is not None:
            out.index, out.n_dimensions = Index.load(folder / f"index-{token}"), n_dimensions
        return out


def _read_meta(folder: Path) -> tuple[str, int | None]:
    """The token in the names of the files of a store, and the dimensions of its embeddings."""
    try:
        meta = json.loads((folder / META).read_bytes())
        if meta["format"] != FORMAT or meta["version"] != VERSION:
            raise ValueError(f"expected {FORMAT} of version {VERSION}, got {meta['format']} of {meta['version']}")
        return meta["token"], meta["n_dimensions"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"path must be a folder that save wrote, got {folder}: {error}") from None
