"""`Documents`: what the stores of all frameworks share, records by text id beside a `Collection` of their codes."""

from __future__ import annotations

import json
import os
import threading
import zlib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.collection import Collection
from bitrank.core.checks import check_count
from bitrank.core.codes import hamming
from bitrank.core.types import n_bytes
from bitrank.hashing import BitPlanes, SignBits, load_hasher
from bitrank.hashing.hasher import Hasher
from bitrank.index.reading import check_recall
from bitrank.ranking import Ranker, load_ranker

AnyHasher = Hasher | str | os.PathLike[str] | None
AnyRanker = Ranker | str | os.PathLike[str] | None
Hit = tuple[str, Any, float]  # id, record and similarity to the query

LEAST_FIRST = 100  # embeddings that bits per dimension are learned from
_MOST_PARTS = 64  # attachments, each with the records that changed between two saves


class Documents:
    """Records by text id; those with an embedding are items of `collection`, which keeps the bits of the embedding.

    One folder holds both: records are attachments of the collection, so that no crash separates them from the codes.

    Parameters
    ----------
    hasher : fitted Hasher, or path of one, optional
        Makes the codes; by default they are the signs of the embeddings. With a `path` it must be that of the folder.
    ranker : fitted Ranker, or path of one, optional
        Ranks until the collection learns; by default the magnitudes of a query's numbers weigh its bits.
    path : str or path, optional
        Folder of a store to read.
    to_json, from_json : functions
        Between records and JSON values.
    bits : float, optional
        Bits per dimension of `BitPlanes`, which learns from the embeddings that are put first, at least 100 of them.
    recall : float, optional
        Share of the exact results to find, from 0.8 to 0.999; a store of 200 000 embeddings makes cells for it.
    """

    def __init__(
        self,
        hasher: AnyHasher = None,
        ranker: AnyRanker = None,
        path: str | os.PathLike[str] | None = None,
        to_json: Callable[[Any], Any] = lambda record: record,
        from_json: Callable[[Any], Any] = lambda record: record,
        bits: float | None = None,
        recall: float | None = None,
    ) -> None:
        check_recall(recall)
        if bits is not None and (hasher is not None or ranker is not None):
            raise ValueError("bits must be None for a hasher or a ranker, which have their own, got both")
        self.records: dict[str, Any] = {}
        self._bits, self._recall = bits, recall
        self.collection = _make_collection(hasher, ranker)
        self._to_json = to_json
        self._changed: dict[str, None] = {}  # ids, since the last save
        self._unstarted: Path | None = None  # folder that was written before the length of embeddings was known
        self._lock = threading.RLock()
        if path is not None:
            self._load(Path(path), from_json, hasher is not None)

    def put(self, ids: Sequence[str], records: Sequence[Any], embeddings: Sequence[npt.ArrayLike | None]) -> None:
        """Add records, or replace those with the same id; a record without an embedding is not searched.

        Of records with the same id the last one counts. Nothing changes if an embedding is refused.
        """
        entries = dict(zip(ids, zip(records, embeddings, strict=True), strict=True))
        coded = {text_id: vector for text_id, (_, vector) in entries.items() if vector is not None}
        with self._lock:
            if coded:
                vectors, collection = list(coded.values()), self.collection
                if collection.hasher is None:
                    collection = _make_collection(self._learn_hasher(vectors), n_dimensions=np.size(vectors[0]))
                collection.add(vectors, list(coded), replace=True)
                self.collection = collection
            self.drop(entries.keys() - coded.keys())
            self.revise({text_id: record for text_id, (record, _) in entries.items()})

    def _learn_hasher(self, vectors: list[Any]) -> Hasher | None:
        """Learn from the first embeddings where codes have several bits per dimension."""
        if self._bits is None:
            return None
        if len(vectors) < LEAST_FIRST:
            raise ValueError(
                f"the first embeddings of a store with bits must be at least {LEAST_FIRST}, from which it learns, got "
                f"{len(vectors)}; give it a fitted hasher, BitPlanes(bits={self._bits:g}).fit(sample), for fewer"
            )
        return BitPlanes(self._bits, random_state=0).fit(np.asarray(vectors))

    def revise(self, records: Mapping[str, Any]) -> None:
        """Add or replace records, and leave codes as they are."""
        with self._lock:
            self.records |= records
            self._changed |= dict.fromkeys(records)

    def drop(self, ids: Iterable[str]) -> None:
        """Remove records; ids that do not exist are passed over."""
        with self._lock:
            known = [text_id for text_id in dict.fromkeys(ids) if text_id in self.records]
            if coded := self._coded(known):
                self.collection.remove(coded)
            for text_id in known:
                del self.records[text_id]
            self._changed |= dict.fromkeys(known)

    def search(self, embedding: npt.ArrayLike, k: int, wanted: list[str] | None = None) -> list[Hit]:
        """Find the k records most similar to an embedding, among those wanted."""
        check_count("k", k, 1)
        with self._lock:
            among = None if wanted is None else self._coded(wanted)
            if not len(self.collection) or among == []:
                return []
            recall = self._recall if self.collection.takes_recall else None  # folders of before have no cells
            results = self.collection.search(np.asarray(embedding), k, filter=among, recall=recall)
            scores = self.collection.similarity(results)
            pairs = zip(results.ids[0].tolist(), scores[0].tolist(), strict=True)
            return [(i, self.records[i], score) for i, score in pairs if i in self.records]

    def diverse(
        self, embedding: npt.ArrayLike, k: int, n_near: int, share: float, wanted: list[str] | None = None
    ) -> list[Hit]:
        """Choose k of the records nearest to an embedding, one by one, that are unlike each other.

        Maximal marginal relevance: `share` times the similarity to the embedding, less the rest of 1 times the largest
        similarity to a record already chosen. Codes with a share h of bits that differ are similar by cos(πh), those
        of `BitPlanes` by the cosine of what they decode to.
        """
        with self._lock:
            hits = self.search(embedding, n_near, wanted)
            codes = self.collection.codes([text_id for text_id, _, _ in hits])
        if isinstance(self.collection.hasher, BitPlanes):
            decoded = self.collection.hasher.decode(codes)
            decoded /= np.maximum(np.linalg.norm(decoded, axis=1, keepdims=True), 1e-30)
            alike = decoded @ decoded.T
        else:
            alike = np.cos(np.pi / self.collection.n_bits * hamming(codes, codes))
        near, chosen = share * np.array([score for _, _, score in hits]), list[int]()
        for _ in range(min(check_count("k", k, 1), len(hits))):
            value = near - (1 - share) * alike[:, chosen].max(axis=1, initial=-1 if chosen else 0)
            value[chosen] = -np.inf
            chosen.append(int(value.argmax()))
        return [hits[place] for place in chosen]

    def save(self, path: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Write records, as JSON values, and the collection to a folder, both or neither."""
        with self._lock:
            parts, changed = self.collection.attachments, self._changed
            if not 0 < len(parts) < _MOST_PARTS:
                parts, changed = {}, dict.fromkeys(self.records)
            rows = [[i, self._to_json(self.records[i])] if i in self.records else [i] for i in changed]
            try:
                data = json.dumps(rows).encode()
            except TypeError as error:
                raise ValueError(f"records must be JSON values to be saved, got another: {error}") from None
            if changed or not parts:
                self.collection.attachments = parts | {f"documents {len(parts)}": zlib.compress(data)}
            folder = Path(path).resolve()
            self.collection.save(path, replace=replace or folder == self._unstarted)
            self._changed, self._unstarted = {}, folder if self.collection.hasher is None else None

    def _load(self, folder: Path, from_json: Callable[[Any], Any], check_hasher: bool) -> None:
        made, collection = self.collection, Collection.load(folder)
        if len(collection) and not collection.attachments:
            raise ValueError(f"path must be the folder of a store, got a collection without documents in {folder}")
        for number in range(len(collection.attachments)):
            for text_id, *record in json.loads(zlib.decompress(collection.attachments[f"documents {number}"])):
                if record:
                    self.records[text_id] = from_json(record[0])
                else:
                    self.records.pop(text_id, None)
        if collection.hasher is None:  # it holds no code, and may get the hasher that was given
            self._unstarted = folder.resolve()
            return
        if check_hasher and made.hasher is not None:
            X = np.random.default_rng(0).normal(size=(64, collection.hasher.n_features_in_))
            if not np.array_equal(made.hasher.transform(X), collection.hasher.transform(X)):
                raise ValueError(f"hasher must be the one that made the codes in {folder}, got another")
        if made.ranker is not None:
            collection.use(made.ranker)
        self.collection = collection

    def _coded(self, ids: list[str]) -> list[str]:
        """Those of some ids that have a code."""
        coded: Container[str] = self.collection if len(ids) < 100 else set(self.collection.ids.tolist())
        return [text_id for text_id in ids if text_id in coded]


def _make_collection(hasher: AnyHasher = None, ranker: AnyRanker = None, n_dimensions: int | None = None) -> Collection:
    """Make an empty collection; without any argument, a placeholder until the length of embeddings is known."""
    hasher = load_hasher(hasher) if isinstance(hasher, str | os.PathLike) else hasher
    ranker = load_ranker(ranker) if isinstance(ranker, str | os.PathLike) else ranker
    if ranker is not None and n_dimensions is None:
        n_dimensions = ranker.n_bits_
    if hasher is None and n_dimensions is not None:
        hasher = SignBits(threshold="zero").fit(np.zeros((2, n_dimensions)))
    n_bits = 8 if hasher is None else hasher.n_bits_
    empty = np.empty((0, n_bytes(n_bits)), np.uint8)
    collection = Collection.from_codes(empty, n_bits=n_bits, hasher=hasher, cells="auto")
    if ranker is not None:
        collection.use(ranker)
    return collection
