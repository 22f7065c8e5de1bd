"""`Source`: what to serve: the embedded digits, or a collection with descriptions of its items and pictures.

A source never changes; the database keeps what the API adds and removes over it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from PIL import Image

from bitrank.clicks.exploration import SAMPLE_SIZE
from bitrank.collection import Collection
from bitrank.core.lazy import import_extra
from bitrank.core.types import Ids
from bitrank.datasets import DIGIT_CODES, DIGIT_HASHER, Digits, digits
from bitrank.hashing import load_hasher
from bitrank.index import Index
from bitrank.service import images
from bitrank.service.engine_index import EngineIndex
from bitrank.service.filtering import Filter

if TYPE_CHECKING:
    from bitrank.hashing.hasher import Hasher
    from bitrank.ranking.memory.entries import Memory
    from bitrank.ranking.ranker import Ranker


FOLDED = "service items"  # attachment of a collection: ids and descriptions that were folded in


class Description(NamedTuple):
    """What is known of an item apart from its code; `image` is a path, a URL, or None."""

    title: str | None
    image: str | None
    payload: dict[str, Any]


NO_DESCRIPTION = Description(None, None, {})


class Items:
    """Titles, images and payloads by id; of a collection that is codes only, none."""

    has_images = False
    columns: frozenset[str] = frozenset()  # of the payloads

    def descriptions(self, ids: list[int]) -> list[Description]:
        """Describe each item."""
        return [NO_DESCRIPTION] * len(ids)

    def matching(self, wanted: Filter) -> Ids:
        """Ids of the items whose payloads match, in any order."""
        return np.empty(0, np.int64)

    def picture(self, item: int) -> tuple[bytes, str] | None:
        """Read the picture of an item and its media type, where the source itself holds it."""
        return None


@dataclass
class Source:
    """A collection as the operator provides it."""

    name: str
    index: Index | EngineIndex
    items: Items
    make_hasher: Callable[[], Hasher] | None = None  # called before the first search by vector
    vectorizer: images.Vectorizer | None = None
    folder: Path | None = None  # of pictures that items name by a path
    ranker: Ranker | None = None  # what the collection learned
    memory: Memory | None = None  # what it remembers
    offset: float | None = None  # and the verdict of the gate on that
    calibration: Any = None  # what a search with `recall` reads

    @cached_property
    def hasher(self) -> Hasher | None:
        """The hasher of vectors."""
        return None if self.make_hasher is None else self.make_hasher()


def embedded_digits() -> Source:
    """Load the 10 000 embedded digits as ITQ codes of 64 bits, searchable by item, vector or drawing."""
    data = digits()
    codes = np.load(DIGIT_CODES, allow_pickle=False)
    return Source("digits", Index(codes), DigitItems(data), lambda: load_hasher(DIGIT_HASHER), images.digit_vector)


def from_folder(
    folder: Path, items: Path | None = None, hasher: Path | None = None, image_features: str | None = None
) -> Source:
    """Load the folder of a collection or of an index and, optionally, a Parquet file of items and a saved hasher.

    Items whose ids are no whole numbers are served by the numbers of their rows, with their ids as titles.
    """
    collection = Collection.load(folder)
    source = Source(folder.stem, collection.index, Items(), ranker=collection.ranker)
    source.memory, source.offset = collection.memory, collection.versions[-1].facts.get("memory")
    source.calibration = collection.calibration
    if collection.n_dimensions is not None:
        if hasher is not None:
            raise ValueError("--hasher must be left out for a collection, which has its own, got one")
        source.make_hasher = lambda: cast("Hasher", collection.hasher)
    names = numbers_of_names(collection)
    source = _with_files(source, items, hasher, image_features, names)
    folded = collection.attachments.get(FOLDED)
    if names or folded:
        later = {names.get(item, item): Description(*row) for item, *row in json.loads(folded or b"[]")}
        source.items = Overlay(source.items, later, {number: str(name) for name, number in names.items()})
    return source


def numbers_of_names(collection: Collection) -> dict[Any, int]:
    """Return the number by which the service knows each item; empty where ids are whole numbers."""
    ids = collection.ids
    return {} if ids.dtype.kind in "iu" else dict(zip(ids.tolist(), collection.index.ids.tolist(), strict=True))


def from_engine(
    index: EngineIndex,
    name: str,
    items: Path | None = None,
    hasher: Path | None = None,
    image_features: str | None = None,
) -> Source:
    """Serve codes that stay in an engine, with the same files as `from_folder`."""
    return _with_files(Source(name, index, Items()), items, hasher, image_features, {})


def _with_files(
    source: Source,
    items: Path | None,
    hasher: Path | None,
    image_features: str | None,
    names: dict[Any, int],
) -> Source:
    if items is not None:
        source.items, source.folder = ParquetItems(items, names), items.resolve().parent
    if hasher is not None:
        fitted, n_bits = load_hasher(hasher), source.index.n_bits
        if fitted.n_bits_ != n_bits:
            raise ValueError(f"the hasher must give {n_bits} bits as the index has, got {fitted.n_bits_}")
        fitted.check_codes(source.index.sample(SAMPLE_SIZE))
        source.make_hasher = lambda: fitted
    if image_features is not None:
        if source.hasher is None:
            raise ValueError("image features need a hasher to make codes of them")
        source.vectorizer = _check_length(images.vectorizer(image_features), source.hasher.n_features_in_)
    return source


class DigitItems(Items):
    """The embedded digits, dark ink on white paper."""

    has_images = True
    columns = frozenset(["label"])

    def __init__(self, data: Digits) -> None:
        self._data = data

    def matching(self, wanted: Filter) -> Ids:
        """Ids of the digits whose labels match."""
        return np.flatnonzero(wanted.join(lambda part: part.holds_for(np.asarray(self._data.labels))))

    def descriptions(self, ids: list[int]) -> list[Description]:
        """Describe each digit by its label and picture."""
        labels = self._data.labels
        return [
            Description(f"digit {labels[item]}", str(item), {"label": int(labels[item])})
            if item < len(labels)
            else NO_DESCRIPTION
            for item in ids
        ]

    def picture(self, item: int) -> tuple[bytes, str] | None:
        """Encode the digit as a PNG file."""
        return (images.png(255 - self._data.images[item]), "image/png") if item < len(self._data.images) else None


class Overlay(Items):
    """Items of which some have later descriptions.

    Parameters
    ----------
    items : Items
    later : dict
        Descriptions by id; a picture that the items hold is not theirs.
    titles : dict, optional
        Titles of items that are described without one.
    """

    def __init__(self, items: Items, later: dict[int, Description], titles: dict[int, str] | None = None) -> None:
        self._items, self._later, self._titles = items, later, titles or {}
        self.has_images = items.has_images or any(known.image is not None for known in later.values())

    @cached_property
    def columns(self) -> frozenset[str]:  # type: ignore[override]
        """Columns of the payloads."""
        return self._items.columns.union(*(known.payload for known in self._later.values()))

    def matching(self, wanted: Filter) -> Ids:
        """Ids of the items whose payloads match."""
        ids = self._items.matching(wanted)
        kept = ids[~np.isin(ids, list(self._later))] if self._later else ids
        found = [item for item, known in self._later.items() if wanted.matches(known.payload)]
        return np.concatenate([kept, np.array(found, np.int64)])

    def descriptions(self, ids: list[int]) -> list[Description]:
        """Describe each item."""
        base, titles = self._items.descriptions(ids), self._titles
        found = [self._later.get(item, known) for item, known in zip(ids, base, strict=True)]
        return [
            known._replace(title=titles[item]) if known.title is None and item in titles else known
            for item, known in zip(ids, found, strict=True)
        ]

    def picture(self, item: int) -> tuple[bytes, str] | None:
        """Read the picture of an item, where the items have one."""
        return None if item in self._later else self._items.picture(item)


class ParquetItems(Items):
    """Items of a Parquet file: `id` and, optionally, `title` and `image`; all other columns are payload.

    Parameters
    ----------
    path : Path
    names : dict
        The number of every id, where ids are no whole numbers; else empty.
    """

    def __init__(self, path: Path, names: dict[Any, int]) -> None:
        self._table = import_extra("pyarrow.parquet", "service").read_table(path)
        columns = self._table.column_names
        if "id" not in columns:
            raise ValueError(f"{path} must have a column id, got {columns}")
        ids = self._table["id"].to_numpy()
        if names:
            known = np.array([item in names for item in ids], bool)
            self._table = self._table.filter(known)
            ids = np.array([names[item] for item in ids[known]], np.int64)
        if ids.dtype.kind not in "iu" or len(np.unique(ids)) != len(ids):
            raise ValueError(f"ids of {path} must be whole numbers, none twice, got {ids.dtype}")
        self._order: npt.NDArray[np.int64] = np.argsort(ids, kind="stable")
        self._ids = ids[self._order].astype(np.int64)
        self._table = self._table.drop_columns(["id"]).combine_chunks()
        self.has_images = "image" in columns and self._table["image"].null_count < len(ids)
        self.columns = frozenset(columns) - {"id", "title", "image"}

    def matching(self, wanted: Filter) -> Ids:
        """Ids of the rows whose payloads match."""
        found: Ids = self._ids[wanted.join(self._matching_rows)[self._order]]
        return found

    def _matching_rows(self, part: Filter) -> npt.NDArray[np.bool_]:
        """Rows of the table for which the conditions on one column hold: distinct values are looked at once."""
        if part.column not in self.columns:
            return np.zeros(len(self._ids), bool)
        column = self._table[part.column]
        types = import_extra("pyarrow.types", "service")
        if types.is_integer(column.type) or types.is_floating(column.type):
            known = column.is_valid().to_numpy()
            return np.asarray(part.holds_for(column.fill_null(0).to_numpy()) & known)
        if types.is_nested(column.type):
            return np.array([part.holds(_to_json(value)) for value in column.to_pylist()], bool)
        encoded = column.dictionary_encode().combine_chunks()
        flags = [part.holds(_to_json(value)) for value in encoded.dictionary.to_pylist()]
        rows: npt.NDArray[np.int64] = encoded.indices.fill_null(len(flags)).to_numpy(zero_copy_only=False)
        return np.array([*flags, False])[rows]

    def descriptions(self, ids: list[int]) -> list[Description]:
        """Describe each item as the file does; items that it does not name have no description."""
        at = np.minimum(np.searchsorted(self._ids, ids), max(len(self._ids) - 1, 0))
        known = self._ids[at] == ids if len(self._ids) else np.zeros(len(ids), bool)
        rows = iter(self._table.take(self._order[at[known]]).to_pylist())
        return [_describe(next(rows)) if is_known else NO_DESCRIPTION for is_known in known]


def _describe(row: dict[str, Any]) -> Description:
    title, image = row.pop("title", None), row.pop("image", None)
    return Description(None if title is None else str(title), None if image is None else str(image), _to_json(row))


def _to_json(value: Any) -> Any:
    """Convert a value to what JSON can hold: dates and the like become text, NaN becomes null."""
    if isinstance(value, dict):
        return {str(name): _to_json(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_to_json(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return json.loads(json.dumps(value, default=str))


def _check_length(vectorizer: images.Vectorizer, n_features: int) -> images.Vectorizer:
    shape = vectorizer(Image.new("RGB", (64, 64))).shape
    if shape != (n_features,):
        raise ValueError(f"image features must give the {n_features} values that the hasher takes, got {shape}")
    return vectorizer
