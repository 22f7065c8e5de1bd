"""`Source`: the collection to serve: the embedded digits, or an index with items, a hasher and pictures.

A source never changes; `Collection` keeps what the API adds and removes over it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

from bitrank.clicks.exploration import SAMPLE_SIZE
from bitrank.core.lazy import import_extra
from bitrank.datasets import DIGIT_CODES, DIGIT_HASHER, Digits, digits
from bitrank.index import Index
from bitrank.service import images
from bitrank.service.engine_index import EngineIndex

if TYPE_CHECKING:
    from bitrank.hashing.hasher import Hasher


class Description(NamedTuple):
    """What is known of an item apart from its code; `image` is a path, a URL, or None."""

    title: str | None
    image: str | None
    payload: dict[str, Any]


NO_DESCRIPTION = Description(None, None, {})


class Items(Protocol):
    """Titles, images and payloads by id."""

    has_images: bool

    def descriptions(self, ids: list[int]) -> list[Description]:
        """Describe each item."""

    def picture(self, item: int) -> tuple[bytes, str] | None:
        """Read the picture of an item and its media type, where the source itself holds it."""


@dataclass
class Source:
    """A collection as the operator provides it."""

    name: str
    index: Index | EngineIndex
    items: Items
    make_hasher: Callable[[], Hasher] | None = None  # called before the first search by vector
    vectorizer: images.Vectorizer | None = None
    folder: Path | None = None  # of pictures that items name by a path

    @cached_property
    def hasher(self) -> Hasher | None:
        """The hasher of vectors."""
        return None if self.make_hasher is None else self.make_hasher()


def embedded_digits() -> Source:
    """Load the 10 000 embedded digits as ITQ codes of 64 bits, searchable by item, vector or drawing."""
    data = digits()
    codes = np.load(DIGIT_CODES, allow_pickle=False)
    return Source("digits", Index(codes), DigitItems(data), lambda: _load_hasher(DIGIT_HASHER), images.digit_vector)


def from_files(
    index: Path, items: Path | None = None, hasher: Path | None = None, image_features: str | None = None
) -> Source:
    """Load a collection: an index folder and, optionally, a Parquet file of items and a saved hasher."""
    return _with_files(index.stem, Index.load(index), items, hasher, image_features)


def from_engine(
    index: EngineIndex,
    name: str,
    items: Path | None = None,
    hasher: Path | None = None,
    image_features: str | None = None,
) -> Source:
    """Serve codes that stay in an engine, with the same files as `from_files`."""
    return _with_files(name, index, items, hasher, image_features)


def _with_files(
    name: str, loaded: Index | EngineIndex, items: Path | None, hasher: Path | None, image_features: str | None
) -> Source:
    source = Source(name, loaded, NoItems() if items is None else ParquetItems(items))
    if items is not None:
        source.folder = items.resolve().parent
    if hasher is not None:
        fitted = _load_hasher(hasher)
        if fitted.n_bits_ != loaded.n_bits:
            raise ValueError(f"the hasher must give {loaded.n_bits} bits as the index has, got {fitted.n_bits_}")
        fitted.check_codes(loaded.sample(SAMPLE_SIZE))
        source.make_hasher = lambda: fitted
        if image_features is not None:
            source.vectorizer = _check_length(images.vectorizer(image_features), fitted.n_features_in_)
    elif image_features is not None:
        raise ValueError("image features need a hasher to make codes of them")
    return source


def _load_hasher(path: Path) -> Hasher:
    from bitrank.hashing import load_hasher  # slow to import

    return load_hasher(path)


class NoItems:
    """The items of a collection that is codes only."""

    has_images = False

    def descriptions(self, ids: list[int]) -> list[Description]:
        """Describe each item: nothing is known."""
        return [NO_DESCRIPTION] * len(ids)

    def picture(self, item: int) -> None:
        """Return None: there are no pictures."""


class DigitItems:
    """The embedded digits, dark ink on white paper."""

    has_images = True

    def __init__(self, data: Digits) -> None:
        self._data = data

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


class ParquetItems:
    """Items of a Parquet file: `id` and, optionally, `title` and `image`; all other columns are payload."""

    def __init__(self, path: Path) -> None:
        self._table = import_extra("pyarrow.parquet", "service").read_table(path)
        columns = self._table.column_names
        if "id" not in columns:
            raise ValueError(f"{path} must have a column id, got {columns}")
        ids = self._table["id"].to_numpy()
        if ids.dtype.kind not in "iu" or len(np.unique(ids)) != len(ids):
            raise ValueError(f"ids of {path} must be whole numbers, none twice, got {ids.dtype}")
        self._order: npt.NDArray[np.int64] = np.argsort(ids, kind="stable")
        self._ids = ids[self._order].astype(np.int64)
        self._table = self._table.drop_columns(["id"]).combine_chunks()
        self.has_images = "image" in columns and self._table["image"].null_count < len(ids)

    def descriptions(self, ids: list[int]) -> list[Description]:
        """Describe each item as the file does; items that it does not name have no description."""
        at = np.minimum(np.searchsorted(self._ids, ids), max(len(self._ids) - 1, 0))
        known = self._ids[at] == ids if len(self._ids) else np.zeros(len(ids), bool)
        rows = iter(self._table.take(self._order[at[known]]).to_pylist())
        return [_describe(next(rows)) if is_known else NO_DESCRIPTION for is_known in known]

    def picture(self, item: int) -> None:
        """Return None: a Parquet file names pictures and does not hold them."""


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
