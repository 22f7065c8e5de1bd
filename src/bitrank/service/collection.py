"""`Collection`: what is searched, in memory: a source, and over it the items that the API added and removed.

The store holds the latter; `refresh` applies what changed there, by this process or by another.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.codes import pack
from bitrank.feedback.logs import parse_code
from bitrank.service import images
from bitrank.service.sources import About, Source
from bitrank.service.store import Item, Store
from bitrank.vocabulary import Codes, Weights, n_bytes

if TYPE_CHECKING:
    from bitrank.hashing.hasher import Hasher

Ids = npt.NDArray[np.int64]

N_SAMPLE = 10_000


class UnknownItemError(ValueError):
    """An id that is not in the collection."""


class Query(NamedTuple):
    """What is looked for: a code, the magnitudes of a vector that it was made of, the item that it is the code of."""

    code: Codes  # (1, n_bytes)
    magnitudes: Weights | None = None  # (n_bits,)
    item: int | None = None


class Sample(NamedTuple):
    """Items drawn at random, for exploration and for learning."""

    ids: Ids
    codes: Codes


class Collection:
    """Items and their codes, found by weighted Hamming distance."""

    def __init__(self, source: Source, store: Store) -> None:
        self.name, self.index = source.name, source.index
        self._source, self._store = source, store
        self._ids: Ids = self.index.ids
        self._added: dict[int, About] = {}
        self._applied, self._stale = 0, False
        self._refreshing = threading.Lock()
        self.refresh()
        self.sample = self._draw()

    @property
    def n_bits(self) -> int:
        """Bits of a code."""
        return self.index.n_bits

    @property
    def has_images(self) -> bool:
        """Whether items have pictures."""
        return self._source.items.has_images

    @property
    def finds_vectors(self) -> bool:
        """Whether a vector can be a query."""
        return self._source.make_hasher is not None

    @property
    def hasher(self) -> Hasher | None:
        """What makes codes of vectors, if there is one; made when first asked for."""
        return self._source.hasher

    @property
    def finds_images(self) -> bool:
        """Whether a picture can be a query."""
        return self._source.vectorizer is not None

    def __len__(self) -> int:
        return len(self._ids)

    # Queries

    def query_of_item(self, item: int) -> Query:
        """The query for what is like an item."""
        return Query(self.codes([item]), None, item)

    def query_of_code(self, text: str) -> Query:
        """The query of a code in hex or base64."""
        return Query(self.read_code(text))

    def query_of_vector(self, vector: npt.ArrayLike) -> Query:
        """The query of a float vector: its code and its magnitudes."""
        hasher = self.hasher
        if hasher is None:
            raise ValueError(
                "this collection has no hasher (--hasher) to make a code of a vector: give a code or an item"
            )
        row = np.asarray(vector, np.float64)
        if row.shape != (hasher.n_features_in_,):
            raise ValueError(f"vector must hold {hasher.n_features_in_} numbers, got {row.size}")
        values = hasher.project(row[None])
        return Query(pack(values > 0), np.abs(values[0]))

    def query_of_image(self, data: bytes) -> Query:
        """The query of an uploaded picture."""
        if self._source.vectorizer is None:
            raise ValueError("this collection cannot be searched by image: it needs --hasher and --image-features")
        return self.query_of_vector(self._source.vectorizer(images.decode(data)))

    def read_code(self, text: str) -> Codes:
        """One code, of hex digits or else of base64."""
        return parse_code(text, self.n_bits)[None]

    # Items

    def codes(self, ids: list[int]) -> Codes:
        """Codes of items, which must be there."""
        missing = self.missing(ids)
        try:
            if missing:
                raise UnknownItemError(f"no item {missing[0]} in this collection")
            return self.index.codes(np.array(ids, np.int64))
        except ValueError as error:  # removed since the look above
            raise UnknownItemError(str(error)) from None

    def has(self, item: int) -> bool:
        """Whether an item is there."""
        ids = self._ids
        at = int(np.searchsorted(ids, item))
        return at < len(ids) and int(ids[at]) == item

    def missing(self, ids: list[int]) -> list[int]:
        """Those that are not there, after a look at what other processes added meanwhile."""
        gone = [i for i in ids if not self.has(i)]
        if gone:
            self.refresh()
            gone = [i for i in gone if not self.has(i)]
        return gone

    def ids(self, offset: int, limit: int) -> list[int]:
        """Some ids, ascending."""
        return list(map(int, self._ids[offset : offset + limit]))

    def about(self, ids: list[int]) -> list[About]:
        """Titles, images as addresses that a page can show, and payloads."""
        added = self._added
        base = self._source.items.about(ids)
        return [self._shown(i, added.get(i, about)) for i, about in zip(ids, base, strict=True)]

    def picture(self, item: int) -> tuple[bytes, str] | None:
        """The picture of an item and its type, if it is one of ours."""
        if not self.has(item):
            raise UnknownItemError(f"no item {item} in this collection")
        if item not in self._added:
            held = self._source.items.picture(item)
            if held is not None:
                return held
        image = self._added.get(item, self._source.items.about([item])[0]).image
        if image is None or _is_url(image) or self._source.folder is None:
            return None
        path = images.confined(self._source.folder, image)
        try:
            return path.read_bytes(), images.SUFFIXES[path.suffix.lower()]
        except OSError:
            return None

    def check_image(self, image: str | None) -> None:
        """A ValueError unless an item may have this image: a URL, or a path in the folder of the items."""
        if image is None or _is_url(image):
            return
        if self._source.folder is None:
            raise ValueError(f"image must be a URL, since this collection has no folder of images, got {image!r:.80}")
        images.confined(self._source.folder, image)

    def refresh(self) -> None:
        """Apply what changed in the store since the last time."""
        with self._refreshing:
            last, changed = self._store.items_changed(self._applied)
            if changed:
                self._apply(changed)
                self._stale = True
            self._applied = last

    def refresh_sample(self) -> None:
        """Draw the sample anew, if items changed since it was drawn."""
        with self._refreshing:
            if self._stale:
                self.sample = self._draw()

    def _apply(self, changed: list[Item]) -> None:
        ids = np.array([item.id for item in changed], np.int64)
        there = np.isin(ids, self._ids)
        gone = np.array([item.removed for item in changed])
        added = {i: about for i, about in self._added.items() if i not in set(ids[gone].tolist())}
        added |= {item.id: About(item.title, item.image, item.payload) for item in changed if not item.removed}

        def codes(rows: npt.NDArray[np.bool_]) -> Codes:
            raw = b"".join(item.code for item, wanted in zip(changed, rows, strict=True) if wanted)
            return np.frombuffer(raw, np.uint8).reshape(-1, n_bytes(self.n_bits))

        # Texts come first and go last, so that a search never finds an item without them.
        self._added = self._added | added
        new, replaced, removed = ~gone & ~there, ~gone & there, gone & there
        if replaced.any():
            self.index.update(ids[replaced], codes(replaced))
        if new.any():
            self.index.add(codes(new), ids[new])
        if removed.any():
            self.index.remove(ids[removed])
        self._ids = np.union1d(np.setdiff1d(self._ids, ids[removed], assume_unique=True), ids[new])
        self._added = added

    def _draw(self) -> Sample:
        self._stale = False
        ids = self._ids
        if len(ids) > N_SAMPLE:
            ids = np.sort(np.random.default_rng(0).choice(ids, N_SAMPLE, replace=False, shuffle=False))
        return Sample(ids, self.index.codes(ids))

    def _shown(self, item: int, about: About) -> About:
        if about.image is None or _is_url(about.image):
            return about
        return about._replace(image=f"/items/{item}/image")


def tie_ranks(distances: npt.NDArray[np.float32], explored: npt.NDArray[np.bool_]) -> list[int]:
    """For each place of a page, counted from 1, the first place with the same distance; explored ones stand alone.

    Examples
    --------
    >>> tie_ranks(np.float32([1, 2, 5, 2, 3]), np.array([False, False, True, False, False]))
    [1, 2, 3, 2, 5]
    """
    first: dict[float, int] = {}
    return [
        rank if apart else first.setdefault(distance, rank)
        for rank, (distance, apart) in enumerate(zip(distances.tolist(), explored.tolist(), strict=True), 1)
    ]


def _is_url(image: str) -> bool:
    return image.startswith(("https://", "http://"))
