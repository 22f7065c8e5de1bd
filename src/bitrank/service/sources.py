"""What a service is given to serve: the embedded digits, or an index with items, a hasher and pictures in files.

A source never changes; `collection` lays over it what the API adds and removes.
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

from bitrank.datasets import Digits, digits
from bitrank.datasets.embedded import DIGIT_CODES, DIGIT_HASHER
from bitrank.index import Index
from bitrank.service import images

if TYPE_CHECKING:
    from bitrank.hashing.hasher import Hasher


class About(NamedTuple):
    """What is known of an item, apart from its code; `image` is a path, a URL, or None."""

    title: str | None
    image: str | None
    payload: dict[str, Any]


NOTHING = About(None, None, {})


class Items(Protocol):
    """Titles, images and payloads by id."""

    has_images: bool

    def about(self, ids: list[int]) -> list[About]:
        """What is known of each of these."""

    def picture(self, item: int) -> tuple[bytes, str] | None:
        """The picture of an item and its type, where the source itself holds it."""


@dataclass
class Source:
    """A collection as it was given."""

    name: str
    index: Index
    items: Items
    make_hasher: Callable[[], Hasher] | None = None  # called when a vector is first searched for, or before
    vectorizer: images.Vectorizer | None = None
    folder: Path | None = None  # of pictures that items name by a path

    @cached_property
    def hasher(self) -> Hasher | None:
        """What makes codes of vectors."""
        return None if self.make_hasher is None else self.make_hasher()


def embedded_digits() -> Source:
    """The 10 000 embedded digits as ITQ codes of 64 bits, found by item, vector or drawing."""
    data = digits()
    codes = np.load(DIGIT_CODES, allow_pickle=False)
    return Source("digits", Index(codes), DigitItems(data), lambda: _read_hasher(DIGIT_HASHER), images.digit_vector)


def from_files(
    index: Path, items: Path | None = None, hasher: Path | None = None, image_features: str | None = None
) -> Source:
    """A collection of the user's own: an index folder and, where given, a Parquet file of items and a saved hasher."""
    loaded = Index.load(index)
    source = Source(index.stem, loaded, NoItems() if items is None else ParquetItems(items))
    if items is not None:
        source.folder = items.resolve().parent
    if hasher is not None:
        fitted = _read_hasher(hasher)
        if fitted.n_bits_ != loaded.n_bits:
            raise ValueError(f"the hasher must give {loaded.n_bits} bits as the index has, got {fitted.n_bits_}")
        source.make_hasher = lambda: fitted
        if image_features is not None:
            source.vectorizer = _checked(images.vectorizer(image_features), fitted.n_features_in_)
    elif image_features is not None:
        raise ValueError("image features need a hasher to make codes of them")
    return source


def _read_hasher(path: Path) -> Hasher:
    from bitrank.hashing import load_hasher  # slow to import

    return load_hasher(path)


class NoItems:
    """Of a collection that is nothing but codes."""

    has_images = False

    def about(self, ids: list[int]) -> list[About]:
        """Nothing of each."""
        return [NOTHING] * len(ids)

    def picture(self, item: int) -> None:
        """None."""


class DigitItems:
    """The embedded digits, dark ink on white paper."""

    has_images = True

    def __init__(self, data: Digits) -> None:
        self._data = data

    def about(self, ids: list[int]) -> list[About]:
        """Label and picture of each."""
        labels = self._data.labels
        return [
            About(f"digit {labels[i]}", str(i), {"label": int(labels[i])}) if i < len(labels) else NOTHING for i in ids
        ]

    def picture(self, item: int) -> tuple[bytes, str] | None:
        """The digit as a PNG file."""
        return (images.png(255 - self._data.images[item]), "image/png") if item < len(self._data.images) else None


class ParquetItems:
    """Items of a Parquet file: `id`, and where there are such columns `title` and `image`; all others are payload."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow.parquet
        except ModuleNotFoundError:
            raise ModuleNotFoundError("items need PyArrow: pip install 'bitrank[service]'") from None
        self._table = pyarrow.parquet.read_table(path)
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

    def about(self, ids: list[int]) -> list[About]:
        """What the file says of each; nothing of those that it does not name."""
        at = np.minimum(np.searchsorted(self._ids, ids), max(len(self._ids) - 1, 0))
        found = self._ids[at] == ids if len(self._ids) else np.zeros(len(ids), bool)
        rows = iter(self._table.take(self._order[at[found]]).to_pylist())
        return [_about(next(rows)) if there else NOTHING for there in found]

    def picture(self, item: int) -> None:
        """None: a Parquet file names pictures, and does not hold them."""


def _about(row: dict[str, Any]) -> About:
    title, image = row.pop("title", None), row.pop("image", None)
    return About(None if title is None else str(title), None if image is None else str(image), _plain(row))


def _plain(value: Any) -> Any:
    """A value as JSON has it: dates and the like as text, and no NaN."""
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return json.loads(json.dumps(value, default=str))


def _checked(make: images.Vectorizer, n_features: int) -> Callable[..., images.Vector]:
    n = len(make(Image.new("L", (64, 64))))
    if n != n_features:
        raise ValueError(f"image features must give the {n_features} values that the hasher takes, got {n}")
    return make
