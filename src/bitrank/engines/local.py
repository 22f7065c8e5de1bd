"""`LocalEngine`: the base of engines whose codes are in an index of another library, in memory or in one file."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from bitrank.core.files import replacing
from bitrank.core.types import Ids, n_bytes
from bitrank.engines.contract import Engine, check_created, check_same_width


class LocalEngine(Engine):
    """Codes in an index object: a new one, one of the caller, or one in a file that every change rewrites."""

    _scheme: ClassVar[str]

    def __init__(self, source: Any, n_bits: int | None) -> None:
        self._path: Path | None = None
        self._n_bits = 0
        self._index: Any = None
        if not isinstance(source, str):
            self._use(source, n_bits)
            return
        parts = urlsplit(source)
        if parts.netloc:
            scheme = self._scheme
            raise ValueError(f"the address must be {scheme}:// or {scheme}:///path/to/file, got {source!r}")
        self._path = Path(unquote(parts.path)) if parts.path else None
        if self._path is not None and self._path.exists():
            self._use(self._read(self._path), n_bits)

    @property
    def n_bits(self) -> int:
        """Bits per code."""
        self._open()
        return self._n_bits

    def create(self, n_bits: int) -> None:
        """Create an index, unless there is one of codes of as many bytes."""
        n_bits = check_created(n_bits)
        if self._index is not None:
            self._use(self._index, n_bits)
        else:
            self._use(self._new(8 * n_bytes(n_bits)), n_bits)
            self._save()

    def _remove(self, ids: Ids) -> None:
        self._drop(ids)
        self._save()

    def close(self) -> None:
        """Let go of the index."""
        self._index = None

    def _open(self) -> Any:
        if self._index is None:
            raise ValueError("there is no index yet: create it with create(n_bits)")
        return self._index

    def _use(self, index: Any, n_bits: int | None) -> None:
        stored = self._bits_of(index)
        n_bits = stored if n_bits is None else check_created(n_bits)
        check_same_width(stored, n_bits, "the index")
        self._index, self._n_bits = index, n_bits

    def _save(self) -> None:
        """Replace the file, if there is one, in one step."""
        if self._path is not None:
            with replacing(self._path) as file:
                self._write(file.name)

    @abstractmethod
    def _new(self, n_bits: int) -> Any:
        """Make an empty index of codes of whole bytes."""

    @abstractmethod
    def _bits_of(self, index: Any) -> int:
        """Bits per code of an index; a ValueError for any other object."""

    @abstractmethod
    def _read(self, path: Path) -> Any:
        """Read an index from a file."""

    @abstractmethod
    def _write(self, path: str) -> None:
        """Write the index to a file."""

    @abstractmethod
    def _drop(self, ids: Ids) -> None:
        """Remove the ids that exist from the index object."""
