"""`DuckDBEngine`: codes as BIT in a table of DuckDB, in this process, in memory or in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

from bitrank.core.arrays import binary_of
from bitrank.core.lazy import import_extra
from bitrank.core.types import Codes, Ids, Weights, n_bytes
from bitrank.engines.planes import quoted
from bitrank.engines.sql import NOTE, SqlEngine, TableEngine, noted
from bitrank.engines.stages import Fetched


class DuckDBEngine(TableEngine, SqlEngine):
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

    _dialect, _mixed = "duckdb", "hash({id})"

    def __init__(self, url: str, name: str = "codes") -> None:
        duckdb, self._arrow = import_extra("duckdb", "duckdb"), import_extra("pyarrow", "duckdb")
        parts = urlsplit(url)
        if parts.netloc:
            raise ValueError(f"the address must be duckdb:// or duckdb:///path/to/file, got {url!r}")
        super().__init__(name)
        self._table = quoted(name)
        try:
            self._connection = duckdb.connect(unquote(parts.path) or ":memory:")
        except duckdb.IOException as error:
            raise ConnectionError(f"DuckDB cannot open {Path(unquote(parts.path))}: {error}") from error

    def _add(self, codes: Codes, ids: Ids) -> None:
        rows = self._arrow.table({"id": ids, "code": binary_of(codes)})
        with self._lock:
            self._connection.register("bitrank_new", rows)
            try:
                insert = f"INSERT OR REPLACE INTO {self._table} SELECT id, code::BLOB::BIT FROM bitrank_new"
                self._run(insert)
            finally:
                self._connection.unregister("bitrank_new")

    def _remove(self, ids: Ids) -> None:
        with self._lock:
            self._run(f"DELETE FROM {self._table} WHERE id IN (SELECT unnest(?::BIGINT[]))", [ids.tolist()])

    def _count(self) -> int:
        with self._lock:
            return int(self._run(f"SELECT count(*) FROM {self._table}")[0][0])

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def _scan(self, codes: Codes, weights: Weights, n: int) -> Iterator[Fetched]:
        whole_bytes = np.zeros((len(codes), 8 * codes.shape[1]), np.float32)
        whole_bytes[:, : self.n_bits] = weights
        return super()._scan(codes, whole_bytes, n)

    def _ids(self) -> Ids:
        with self._lock:
            rows = self._connection.execute(f"SELECT id FROM {self._table}").fetchnumpy()
        return np.asarray(rows["id"], np.int64)

    def _first(self, order: str, n: int, where: str = "TRUE") -> Fetched:
        width = n_bytes(self.n_bits)
        with self._lock:
            select = f"SELECT id, code::BLOB AS code FROM {self._table} WHERE {where} ORDER BY {order} LIMIT {n}"
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
            self._run(f"COMMENT ON TABLE {self._table} IS '{NOTE.format(n_bits)}'")
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise

    def _look(self) -> int | None:
        comments = self._run(
            "SELECT comment FROM duckdb_tables() WHERE database_name = current_database() "
            "AND schema_name = current_schema() AND table_name = ?",
            [self._name],
        )
        if not comments:
            return None
        n_bits = noted(comments[0][0])
        if n_bits is None:
            raise ValueError(f"the table {self._name!r} must be one that create(n_bits) made, got another")
        return n_bits
