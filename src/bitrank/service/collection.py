"""`Collection`: what is searched, in memory: a source, and over it the items that the API added and removed.

The store keeps the latter; `refresh` applies changes made by this process or by others.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from bitrank.clicks.exploration import SAMPLE_SIZE
from bitrank.clicks.log import parse_code
from bitrank.clicks.page import MAX_REAL, QueryArray
from bitrank.core.codes import sample_rows, signs
from bitrank.core.types import Codes, Ids, n_bytes
from bitrank.service import images
from bitrank.service.code_table import CodeTable, Sample, is_in
from bitrank.service.engine_index import EngineIndex
from bitrank.service.filtering import Filter
from bitrank.service.sources import Description, Items, Overlay, Source
from bitrank.service.store.items import Item, ItemStore

if TYPE_CHECKING:
    pass


Shown = tuple[str | None, str | None, msgspec.Raw]

_N_BACKGROUND = 1000  # codes of others that examples are told from
MAX_REMEMBERED = 100_000  # descriptions that are remembered
MAX_FILTERS = 16  # of which the items are remembered
MAX_TABLE_BYTES = 2**26


class UnknownItemError(ValueError):
    """An id that is not in the collection."""


class SearchQuery(NamedTuple):
    """What to search for: a packed code or reals, one row, the item whose code it is, and the vector as it came.

    Reals that were made of examples rank alone, whatever was learned, and do not find the examples.
    """

    vector: QueryArray  # (1, n_bytes) or (1, n_bits)
    item: int | None = None
    features: npt.NDArray[np.float64] | None = None  # (1, n_dimensions)
    examples: tuple[int, ...] = ()

    @property
    def known(self) -> tuple[int, ...]:
        """Items that are no results."""
        return self.examples if self.item is None else (self.item,)

    @property
    def code(self) -> Codes:
        """The query as a packed code, shape (1, n_bytes)."""
        return np.packbits(self.vector > 0, axis=1) if self.vector.dtype.kind == "f" else self.vector


class Collection:
    """Items and their codes."""

    def __init__(self, source: Source, items: ItemStore) -> None:
        self.name, self.index = source.name, source.index
        self.source, self._items = source, items
        self.calibration = source.calibration
        self._table = self._tabulate()
        self._added: dict[int, Description] = {}
        self.items: Items = source.items
        self._shown: dict[int, Shown] = {}
        self._matching: dict[str, Ids] = {}
        self._applied, self._stale = 0, False
        self._refreshing = threading.Lock()
        self.refresh()
        self.sample = self._draw()

    @property
    def is_remote(self) -> bool:
        """Whether the codes stay in an engine, which is then the only place to change them."""
        return isinstance(self.index, EngineIndex)

    @property
    def n_bits(self) -> int:
        """Bits per code."""
        return self.index.n_bits

    @property
    def hasher_is_loaded(self) -> bool:
        """Whether a search by vector need not wait for the hasher."""
        return "hasher" in vars(self.source)

    @property
    def sorted_ids(self) -> Ids:
        """All ids, ascending."""
        return self._table.ids

    def __len__(self) -> int:
        return len(self._table.ids)

    # Queries

    def query_of_item(self, item: int) -> SearchQuery:
        """Make the query for items like an item."""
        code = self._table.code_of(item)
        return SearchQuery(self.codes([item]) if code is None else code, item)

    def query_of_code(self, text: str) -> SearchQuery:
        """Make the query of a code in hex or base64."""
        return SearchQuery(self.read_code(text))

    def query_of_vector(self, vector: npt.ArrayLike) -> SearchQuery:
        """Make the query of a float vector: its projection, of which the signs are a code."""
        hasher = self.source.hasher
        if hasher is None:
            raise ValueError(
                "this collection has no hasher (--hasher) to make a code of a vector: give a code or an item"
            )
        row = np.asarray(vector, np.float64)
        if row.shape != (hasher.n_features_in_,):
            raise ValueError(f"vector must hold {hasher.n_features_in_} numbers, got {row.size}")
        with np.errstate(over="ignore", invalid="ignore"):
            projected = np.asarray(hasher.project(row[None]), np.float64)
        largest = float(np.abs(projected).max(initial=0))
        if not largest <= MAX_REAL:
            raise ValueError(f"vector must project to values of at most {MAX_REAL:g} in magnitude, got {largest:g}")
        return SearchQuery(projected.astype(np.float32), features=row[None])

    def query_of_examples(self, positives: list[int], negatives: list[int]) -> SearchQuery:
        """Make the query for what is like some items and unlike others, for this search alone."""
        from bitrank.ranking.examples import query_from  # slow to import

        right, wrong = ([*dict.fromkeys(ids)] for ids in (positives, negatives))
        background = self.sample.codes[sample_rows(len(self.sample.codes), _N_BACKGROUND)]
        others = self.codes(wrong) if wrong else None
        found = query_from(self.codes(right), others, background, self.n_bits, judge=False)
        vector = signs(found.queries.codes, self.n_bits) * found.queries.weights
        return SearchQuery(vector.astype(np.float32), examples=(*right, *wrong))

    def query_of_image(self, data: bytes) -> SearchQuery:
        """Make the query of an uploaded picture."""
        if self.source.vectorizer is None:
            raise ValueError("this collection cannot be searched by image: it needs --hasher and --image-features")
        return self.query_of_vector(self.source.vectorizer(images.decode(data)))

    def read_code(self, text: str) -> Codes:
        """Parse one code from hex digits or base64, shape (1, n_bytes)."""
        return parse_code(text, self.n_bits)[None]

    # Items

    def rows_of(self, ids: Ids) -> Codes:
        """Look up the codes of results, which may repeat; a ValueError says that one is gone."""
        rows = self._table.codes_of(ids)
        if rows is not None:
            return rows
        unique, at_unique = np.unique(ids, return_inverse=True)
        return self.index.codes(unique)[at_unique]

    def codes(self, ids: list[int]) -> Codes:
        """Look up the codes of items, which must be in the collection."""
        rows = self._table.codes_of(ids)
        if rows is not None:
            return rows
        missing = self.missing(ids)
        try:
            if missing:
                raise UnknownItemError(f"no item {missing[0]} in this collection")
            return self.index.codes(np.array(ids, np.int64))
        except ValueError as error:  # removed since the look above
            raise UnknownItemError(str(error)) from None

    def has(self, item: int) -> bool:
        """Return whether an item is in the collection."""
        return self._table.has(item)

    def missing(self, ids: list[int]) -> list[int]:
        """List the ids that are not in the collection, after a look at what other processes added meanwhile."""
        missing = [item for item in ids if not self.has(item)]
        if missing:
            self.refresh()
            missing = [item for item in missing if not self.has(item)]
        return missing

    def descriptions(self, ids: list[int]) -> list[Description]:
        """Look up titles, payloads, and images as addresses that a page can show."""
        return [_with_address(item, known) for item, known in zip(ids, self.items.descriptions(ids), strict=True)]

    def shown(self, ids: list[int]) -> list[Shown]:
        """Look up descriptions with the payload as JSON; those of recent items are remembered."""
        known = self._shown
        with suppress(KeyError):
            return [known[item] for item in ids]
        missing = [item for item in ids if item not in known]
        if len(known) + len(missing) > MAX_REMEMBERED:
            known, missing = {}, ids
            self._shown = known
        for item, (title, image, payload) in zip(missing, self.descriptions(missing), strict=True):
            known[item] = title, image, msgspec.Raw(msgspec.json.encode(payload))
        return [known[item] for item in ids]

    def matching(self, wanted: Filter) -> Ids:
        """Ids of the items whose payloads match a filter, ascending; those of recent filters are remembered."""
        key, known = wanted.model_dump_json(exclude_none=True), self._matching
        if key not in known:
            columns = self.items.columns
            unknown = wanted.columns() - columns
            if unknown:
                raise ValueError(
                    f"filter must name columns of the items ({', '.join(sorted(columns)) or 'they have none'}), "
                    f"got {min(unknown)!r:.80}"
                )
            found = np.unique(self.items.matching(wanted))
            if len(known) >= MAX_FILTERS:
                known.pop(next(iter(known), ""), None)
            known[key] = found[is_in(found, self._table.ids)]
        return known[key]

    def picture(self, item: int) -> tuple[bytes, str] | None:
        """Read the picture of an item and its media type; None where the service has none."""
        if not self.has(item):
            raise UnknownItemError(f"no item {item} in this collection")
        picture = self.items.picture(item)
        if picture is not None:
            return picture
        image = self.items.descriptions([item])[0].image
        if image is None or _is_url(image) or self.source.folder is None:
            return None
        path = images.confined(self.source.folder, image)
        try:
            if not path.is_file():  # a pipe, say, would never end
                return None
            return path.read_bytes(), images.SUFFIXES[path.suffix.lower()]
        except OSError:
            return None

    def check_image(self, image: str | None) -> None:
        """Check that an item may have this image: a URL, or a path in the folder of the items."""
        if image is None or _is_url(image):
            return
        if self.source.folder is None:
            raise ValueError(f"image must be a URL, since this collection has no folder of images, got {image!r:.80}")
        images.confined(self.source.folder, image)

    def refresh(self) -> None:
        """Apply what changed in the store since the last time."""
        with self._refreshing:
            last, changed = self._items.changed(self._applied)
            if changed:
                self._apply(changed)
                self._stale = True
            self._applied = last

    def refresh_sample(self) -> None:
        """Draw a new sample if items changed since the last one."""
        with self._refreshing:
            if self._stale:
                self.sample = self._draw()

    def _apply(self, changed: list[Item]) -> None:
        if isinstance(self.index, EngineIndex):
            raise ValueError("the database must hold no items where the codes live in an engine, got some")
        ids = np.array([item.id for item in changed], np.int64)
        known = is_in(ids, self._table.ids)
        gone = np.array([item.removed for item in changed])
        removed_ids = set(ids[gone].tolist())
        added = {item: description for item, description in self._added.items() if item not in removed_ids}
        added |= {item.id: Description(item.title, item.image, item.payload) for item in changed if not item.removed}

        def codes(rows: npt.NDArray[np.bool_]) -> Codes:
            raw = b"".join(item.code for item, wanted in zip(changed, rows, strict=True) if wanted)
            return np.frombuffer(raw, np.uint8).reshape(-1, n_bytes(self.n_bits))

        # Descriptions come first and go last, so that a search never finds an item without one.
        self.items, self._shown = Overlay(self.source.items, self._added | added), {}
        new, replaced, removed = ~gone & ~known, ~gone & known, gone & known
        if replaced.any():
            self.index.update(ids[replaced], codes(replaced))
        if new.any():
            self.index.add(codes(new), ids[new])
        if removed.any():
            self.index.remove(ids[removed])
        order = np.argsort(ids[new])
        self._table = self._table.changed(
            ids[replaced], codes(replaced), ids[removed], ids[new][order], codes(new)[order]
        )
        self.items = Overlay(self.source.items, added)
        self._added, self._shown, self._matching = added, {}, {}

    def _tabulate(self) -> CodeTable:
        ids = self.index.ids
        few = not self.is_remote and len(ids) * n_bytes(self.n_bits) <= MAX_TABLE_BYTES
        return CodeTable(ids, self.index.codes(ids) if few else None)

    def _draw(self) -> Sample:
        self._stale = False
        ids = self._table.ids
        if len(ids) > SAMPLE_SIZE:
            ids = np.sort(np.random.default_rng(0).choice(ids, SAMPLE_SIZE, replace=False, shuffle=False))
        return Sample(ids, self.index.codes(ids))


def _with_address(item: int, description: Description) -> Description:
    if description.image is None or _is_url(description.image):
        return description
    return description._replace(image=f"/items/{item}/image")


def _is_url(image: str) -> bool:
    return image.startswith(("https://", "http://"))
