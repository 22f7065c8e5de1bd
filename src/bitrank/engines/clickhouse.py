"""`ClickHouseEngine`: codes as FixedString in a table of ClickHouse, on servers or, with chDB, in this process."""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np

from bitrank.core.lazy import import_extra
from bitrank.core.progress import progress
from bitrank.core.types import Codes, Ids, n_bytes
from bitrank.engines.sql import NOTE, SqlEngine, TableEngine, noted
from bitrank.engines.stages import Fetched

# Rows per INSERT.
BATCH = 1 << 18
# Many planes of long codes, or many ids, exceed the default.
SETTINGS = {"max_query_size": 1 << 24}


class ClickHouseEngine(TableEngine, SqlEngine):
    """Codes in a table of ClickHouse.

    Parameters
    ----------
    url : str
        ``clickhouse://user:password@host:8123/database``, the HTTP port (``?secure=true`` for TLS), or chDB, which runs
        in this process: ``chdb://`` in memory, for as long as a connection is open, ``chdb:///path/to/folder`` on disk.
    name : str
        The table; `create` gives it ``id Int64`` and ``code FixedString(n)``.
    id_column, code_column : str
        Columns of a table that exists: ids of any integer type, codes of ``FixedString``. Only tables that `create`
        made are written.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> with ClickHouseEngine("chdb://", "example") as engine:
    ...     engine.create(n_bits=3)
    ...     engine.add(pack([[1, 0, 1], [1, 1, 0], [0, 0, 1]]), ids=[7, 8, 9])
    ...     engine.search(pack([[1, 0, 0]]), k=2, weights=[4, 2, 1]).ids
    array([[7, 8]])
    """

    _dialect, _mixed = "clickhouse", "cityHash64({id})"

    def __init__(self, url: str, name: str = "codes", *, id_column: str = "id", code_column: str = "code") -> None:
        if url.startswith("chdb:"):
            import_extra("chdb", "chdb")
            options = {}
        else:
            # Only a client without a session may be used from several threads.
            options = {"autogenerate_session_id": False}
        driver = import_extra("clickhouse_connect", "clickhouse")
        self._errors = import_extra("clickhouse_connect.driver.exceptions", "clickhouse")
        super().__init__(name)
        self._table = _quote(name)
        self._columns = id_column, code_column
        self._id, self._code = _quote(id_column), _quote(code_column)
        self._table_engine, self._is_ours = "", False  # as `_look` finds them
        with self._connection_errors():
            self._client = driver.get_client(dsn=url, **options)

    def _add(self, codes: Codes, ids: Ids) -> None:
        """Add codes to a temporary table, whose rows are then attached in one step."""
        n_bits = self._writable()
        if not len(ids):
            return
        rows = np.empty(len(ids), _record(n_bits))
        rows["id"], rows["code"] = ids, codes
        beside = _quote(f"{self._name}_adding_{uuid.uuid4().hex}")
        self._command(f"CREATE TABLE {beside} {_definition(n_bits)}")
        try:
            for start in progress(range(0, len(rows), BATCH), label="adding codes"):
                with self._connection_errors():
                    self._client.raw_insert(beside, insert_block=rows[start : start + BATCH].tobytes(), fmt="RowBinary")
            self._command(f"ALTER TABLE {self._table} ATTACH PARTITION ID 'all' FROM {beside}")
        finally:
            # Without a connection it stays behind; no search sees it.
            with contextlib.suppress(ConnectionError):
                self._command(f"DROP TABLE IF EXISTS {beside}")

    def _remove(self, ids: Ids) -> None:
        self._writable()
        for start in range(0, len(ids), BATCH):
            listed = ",".join(map(str, ids[start : start + BATCH].tolist()))
            self._command(f"DELETE FROM {self._table} WHERE id IN ({listed})")

    def _optimize(self) -> None:
        """Merge all parts into one, without replaced and removed rows."""
        self._writable()
        self._command(f"OPTIMIZE TABLE {self._table} FINAL")

    def _count(self) -> int:
        return int(self._command(f"SELECT count() FROM {self._source()}"))

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _ids(self) -> Ids:
        sql = f"SELECT toInt64({self._id}) FROM {self._source()}"
        with self._connection_errors():
            data = self._client.raw_query(sql, fmt="RowBinary", settings=SETTINGS)
        return np.frombuffer(data, "<i8").astype(np.int64)

    def _first(self, order: str, n: int, where: str = "TRUE") -> Fetched:
        sql = f"SELECT toInt64({self._id}), {self._code} FROM {self._source()} WHERE {where} ORDER BY {order} LIMIT {n}"
        record = _record(self.n_bits)
        with self._connection_errors():
            rows = np.frombuffer(self._client.raw_query(sql, fmt="RowBinary", settings=SETTINGS), record)
        return rows["id"], np.ascontiguousarray(rows["code"])

    def _source(self) -> str:
        """The table to select from; FINAL leaves one row per id where a table may hold several."""
        self._check_table()
        engine = self._table_engine
        return f"{self._table} FINAL" if "Replacing" in engine or engine == "Distributed" else self._table

    def _writable(self) -> int:
        n_bits = self.n_bits
        if not self._is_ours:
            got = self._table_engine
            raise ValueError(f"codes are written only to a table that create(n_bits) made, got one of {got}")
        return n_bits

    def _make(self, n_bits: int) -> None:
        """Create the table, sorted by id; the newest row of an id counts."""
        if self._columns != ("id", "code"):
            raise ValueError(f"columns of a new table must be id and code, got {self._columns} for {self._name!r}")
        comment = f"COMMENT '{NOTE.format(n_bits)}'"
        self._command(f"CREATE TABLE IF NOT EXISTS {self._table} {_definition(n_bits)} {comment}")

    def _look(self) -> int | None:
        source = "FROM system.{} WHERE database = currentDatabase() AND {} = {{name:String}}"
        name = {"name": self._name}
        with self._connection_errors():
            tables = self._client.query(f"SELECT engine, comment {source.format('tables', 'name')}", name).result_rows
            columns = self._client.query(f"SELECT name, type {source.format('columns', 'table')}", name).result_rows
        if not tables:
            return None
        (engine, comment), types = tables[0], dict(columns)
        kind, width = (types.get(column, "nothing") for column in self._columns)
        size = re.fullmatch(r"FixedString\((\d+)\)", width)
        if not re.fullmatch(r"U?Int(8|16|32|64)", kind) or size is None:
            raise ValueError(
                f"the table {self._name!r} must have the columns {self._columns}, whole numbers and FixedString, "
                f"got {kind} and {width}"
            )
        self._table_engine = engine
        self._is_ours = types == {"id": "Int64", "code": width} and engine.endswith("ReplacingMergeTree")
        return noted(comment, int(size[1])) or 8 * int(size[1])

    def _command(self, sql: str) -> Any:
        with self._connection_errors():
            return self._client.command(sql, settings=SETTINGS)

    @contextlib.contextmanager
    def _connection_errors(self) -> Iterator[None]:
        """Raise a ConnectionError for a lost connection, as every engine does."""
        try:
            yield
        except self._errors.OperationalError as error:
            raise ConnectionError(f"ClickHouse cannot be reached: {error}") from error


def _record(n_bits: int) -> np.dtype[Any]:
    """A row of the table as RowBinary writes it."""
    return np.dtype([("id", "<i8"), ("code", "u1", (n_bytes(n_bits),))])


def _definition(n_bits: int) -> str:
    return f"(id Int64, code FixedString({n_bytes(n_bits)})) ENGINE = ReplacingMergeTree ORDER BY id"


def _quote(name: str) -> str:
    """A name as an identifier of ClickHouse, with any characters."""
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"
