"""`DuckDBEngine`: codes as BIT in a table of DuckDB, in this process, in memory or in a file."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt

from bitrank.core.arrays import binary_of
from bitrank.core.checks import check_ids
from bitrank.core.lazy import import_extra
from bitrank.core.types import Codes, Ids, Weights, n_bytes
from bitrank.engines.contract import Engine, check_add, check_created
from bitrank.engines.planes import distance_sql, quoted
from bitrank.engines.stages import Fetched

COMMENT = "bitrank: codes of {} bits"


class DuckDBEngine(Engine):
    """Codes in a table of DuckDB. Methods may be called from several threads; they take turns.

    Parameters
    ----------
    url : str
        ``duckdb://`` for a database in memory that ends with the connection, ``duckdb:///path/to/file`` for a file,
        which one process may write at a time.
    name : str
        The table; `create` gives it ``id BIGINT`` and ``code BIT``. Only such tables are searched.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> with DuckDBEngine("duckdb://") as engine:
    ...     engine.create(n_bits=3)
    ...     engine.add(pack([[1, 0, 1], [1, 1, 0], [0, 0, 1]]), ids=[7, 8, 9])
    ...     engine.search(pack([[1, 0, 0]]), k=2, weights=[4, 2, 1]).ids
    array([[7, 8]])
    """

    def __init__(self, url: str, name: str = "codes") -> None:
        duckdb, self._arrow = import_extra("duckdb", "duckdb"), import_extra("pyarrow", "duckdb")
        parts = urlsplit(url)
        if parts.netloc:
            raise ValueError(f"the address must be duckdb:// or duckdb:///path/to/file, got {url!r}")
        self._name, self._table = name, quoted(name)
        self._lock = threading.Lock()
        self._n_bits: int | None = None
        try:
            self._connection = duckdb.connect(unquote(parts.path) or ":memory:")
        except duckdb.IOException as error:
            raise ConnectionError(f"DuckDB cannot open {Path(unquote(parts.path))}: {error}") from error

    @property
    def n_bits(self) -> int:
        """Bits per code."""
        if self._n_bits is None:
            with self._lock:
                self._n_bits = self._look()
        if self._n_bits is None:
            raise ValueError(f"there is no table {self._name!r}: create it with create(n_bits)")
        return self._n_bits

    def create(self, n_bits: int) -> None:
        """Create the table."""
        n_bits = check_created(n_bits)
        with self._lock:
            stored = self._look()
            if stored is None:
                self._make(n_bits)
            elif stored != n_bits:
                raise ValueError(f"the table {self._name!r} must hold codes of {n_bits} bits, got one of {stored}")

    def add(self, codes: Codes, ids: npt.ArrayLike) -> None:
        """Add codes, or replace them, in one transaction."""
        codes, checked = check_add(codes, ids, self.n_bits)
        rows = self._arrow.table({"id": checked, "code": binary_of(codes)})
        with self._lock:
            self._connection.register("bitrank_new", rows)
            try:
                insert = f"INSERT OR REPLACE INTO {self._table} SELECT id, code::BLOB::BIT FROM bitrank_new"
                self._run(insert)
            finally:
                self._connection.unregister("bitrank_new")

    def remove(self, ids: npt.ArrayLike) -> None:
        """Remove the ids that exist."""
        _, checked = self.n_bits, check_ids(ids)
        with self._lock:
            delete = f"DELETE FROM {self._table} WHERE id IN (SELECT unnest(?::BIGINT[]))"
            self._run(delete, [checked.tolist()])

    def optimize(self) -> None:
        """Do nothing: DuckDB scans the codes."""
        _ = self.n_bits

    def count(self) -> int:
        """Number of codes."""
        _ = self.n_bits
        with self._lock:
            return int(self._run(f"SELECT count(*) FROM {self._table}")[0][0])

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def _scan(self, codes: Codes, weights: Weights, n: int) -> Iterator[Fetched]:
        whole_bytes = np.zeros((len(codes), 8 * codes.shape[1]), np.float32)
        whole_bytes[:, : self.n_bits] = weights
        for code, row in zip(codes, whole_bytes, strict=True):
            yield self._first(f"({distance_sql('code', code, row, 'duckdb')})::BIGINT, id", n)

    def _sample(self, n: int) -> Codes:
        return self._first("hash(id)", n)[1]

    def _ids(self) -> Ids:
        with self._lock:
            rows = self._connection.execute(f"SELECT id FROM {self._table}").fetchnumpy()
        return np.asarray(rows["id"], np.int64)

    def _lookup(self, ids: Ids) -> Fetched:
        return self._first("id", len(ids), f"WHERE id IN ({','.join(map(str, ids))})")

    def _first(self, order: str, n: int, where: str = "") -> Fetched:
        """The first n rows in an order."""
        width = n_bytes(self.n_bits)
        with self._lock:
            select = f"SELECT id, code::BLOB AS code FROM {self._table} {where} ORDER BY {order} LIMIT {n}"
            rows = self._connection.execute(select).fetchnumpy()
        data = np.frombuffer(b"".join(rows["code"]), np.uint8)
        return np.asarray(rows["id"], np.int64), data.reshape(-1, width)

    def _run(self, sql: str, parameters: list[Any] | None = None) -> list[Any]:
        """Run a statement and fetch all of its result: the connection takes no other before."""
        rows: list[Any] = self._connection.execute(sql, parameters).fetchall()
        return rows

    def _make(self, n_bits: int) -> None:
        self._connection.begin()
        try:
            self._run(f"CREATE TABLE {self._table} (id BIGINT PRIMARY KEY, code BIT NOT NULL)")
            self._run(f"COMMENT ON TABLE {self._table} IS '{COMMENT.format(n_bits)}'")
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise

    def _look(self) -> int | None:
        """Bits per code as the table's comment says, or None where there is no table."""
        comments = self._run(
            "SELECT comment FROM duckdb_tables() WHERE database_name = current_database() "
            "AND schema_name = current_schema() AND table_name = ?",
            [self._name],
        )
        if not comments:
            return None
        noted = re.fullmatch(COMMENT.format(r"(\d+)"), comments[0][0] or "")
        if noted is None:
            raise ValueError(f"the table {self._name!r} must be one that create(n_bits) made, got another")
        return int(noted[1])
