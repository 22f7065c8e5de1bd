"""What engines share whose codes are in a table: `TableEngine`, which says its bits in a comment, and `SqlEngine`."""

from __future__ import annotations

import re
import threading
from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from bitrank.core.types import Codes, Ids, Weights, n_bytes
from bitrank.engines.contract import Engine, check_created, check_same_width
from bitrank.engines.planes import distance_sql
from bitrank.engines.stages import Fetched

NOTE = "bitrank: codes of {} bits"


class TableEngine(Engine):
    """Codes in a table of the server, which is asked once what it holds."""

    _kind: ClassVar[str] = "table"

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.RLock()
        self._n_bits: int | None = None

    @property
    def n_bits(self) -> int:
        """Bits per code."""
        if self._n_bits is None:
            with self._lock:
                self._n_bits = self._look()
        if self._n_bits is None:
            raise self._missing()
        return self._n_bits

    def create(self, n_bits: int) -> None:
        """Create the table, unless there is one of codes of as many bytes."""
        n_bits = check_created(n_bits)
        with self._lock:
            stored = self._look()
            if stored is None:
                self._make(n_bits)
                stored = self._look()
            if stored is None:  # chDB takes a name with braces for a file
                raise ValueError(f"name must be one under which the new {self._kind} is found, got {self._name!r}")
            check_same_width(stored, n_bits, f"the {self._kind} {self._name!r}")
            self._n_bits = n_bits

    def _missing(self) -> ValueError:
        return ValueError(f"there is no {self._kind} {self._name!r}: create it with create(n_bits)")

    @abstractmethod
    def _look(self) -> int | None:
        """Bits per code as the server describes them, or None where there is no such table."""

    @abstractmethod
    def _make(self, n_bits: int) -> None:
        """Create the table."""


class SqlEngine(Engine):
    """Codes in a table that SQL reads: a statement ranks all of it by whole-number weights."""

    _dialect: ClassVar[str]
    _mixed: ClassVar[str]  # an expression of {id} whose order has nothing to do with the ids
    _id: str = "id"  # columns, quoted
    _code: str = "code"

    @abstractmethod
    def _first(self, order: str, n: int, where: str = "TRUE") -> Fetched:
        """Ids and codes of the first n rows in an order."""

    def _scan(self, codes: Codes, weights: Weights, n: int) -> Iterator[Fetched]:
        for code, row in zip(codes, weights, strict=True):
            distance = distance_sql(self._code, code, row, self._dialect)
            yield self._first(f"CAST({distance} AS BIGINT), {self._id}", n)

    def _sample(self, n: int) -> Codes:
        return self._first(self._mixed.format(id=self._id), n)[1]

    def _lookup(self, ids: Ids) -> Fetched:
        return self._first(self._id, len(ids), f"{self._id} IN ({','.join(map(str, ids))})")


def noted(comment: str | None, width: int | None = None) -> int | None:
    """Bits that a comment says, where it is one of `create` and its codes have this many bytes.

    Examples
    --------
    >>> noted(NOTE.format(98)), noted(NOTE.format(98), width=16), noted("codes of mine")
    (98, None, None)
    """
    match = re.fullmatch(NOTE.format(r"(\d+)"), comment or "")
    return int(match[1]) if match and width in (None, n_bytes(int(match[1]))) else None
