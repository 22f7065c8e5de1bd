"""Folders from before there was a `Collection`: an index, and a store of records beside one."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bitrank.collection.folder import CollectionFormatError
from bitrank.collection.ids import Names, Numbers
from bitrank.index import Index

if TYPE_CHECKING:
    from bitrank.collection.collection import Collection

STORE, INDEX = "store.json", "meta.json"


def read_older(folder: Path, make: type[Collection], mmap: bool) -> Collection | None:
    """Read the folder of an index or of a store; None for any other folder."""
    if (folder / STORE).exists():
        return _read_store(folder, make, mmap)
    return make(Index.load(folder, mmap=mmap), Numbers()) if (folder / INDEX).exists() else None


def _read_store(folder: Path, make: type[Collection], mmap: bool) -> Collection:
    """A "bitrank store"; its records become the attachment that stores of today write."""
    from bitrank.hashing import SignBits, load_hasher
    from bitrank.ranking import load_ranker

    try:
        meta = json.loads((folder / STORE).read_bytes())
        if (meta["format"], meta["version"]) != ("bitrank store", 1):
            raise ValueError("expected a bitrank store of version 1")
        token, n_dimensions = meta["token"], meta["n_dimensions"]
        rows = [json.loads(line) for line in (folder / f"records-{token}.jsonl").read_bytes().splitlines()]
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise CollectionFormatError(f"{folder / STORE} is not that of a store: {error}") from None
    hasher, ranker = (folder / f"{kind}-{token}.npz" for kind in ("hasher", "ranker"))
    if n_dimensions is None:  # no record had an embedding
        collection = make(Index(n_bits=8), Names())
    else:
        names = {row: text_id for row, text_id, _ in rows if row is not None}
        ids = Names.of_rows([names.get(row) for row in range(1 + max(names, default=-1))])
        plain = SignBits(threshold="zero").fit(np.zeros((2, n_dimensions)))
        made_by = load_hasher(hasher) if hasher.exists() else plain
        index = Index.load(folder / f"index-{token}", mmap=mmap)
        collection = make(index, ids, hasher=made_by, n_dimensions=n_dimensions)
    if ranker.exists():
        collection.use(load_ranker(ranker))
    records = json.dumps([[text_id, record] for _, text_id, record in rows])
    collection.attachments["documents 0"] = zlib.compress(records.encode())
    return collection
