"""`ClickHouseEngine`: codes as FixedString in a table of ClickHouse, on a server, a cluster, or chDB in this process.

It stands at the end of the path, where `connect` finds it; clickhouse-connect speaks to all three in the same way.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.checks import check_ids
from bitrank.engines.contract import Candidates, Closing, check_add, check_created, check_search
from bitrank.engines.planes import check_whole, distance_sql
from bitrank.engines.stages import rerank
from bitrank.lazy import import_extra
from bitrank.progress import progress
from bitrank.vocabulary import Codes, Ids, Results, Weights, n_bytes

# Rows of one INSERT.
BATCH = 1 << 18
# Many planes of long codes, or many ids, are longer than the default allows.
SETTINGS = {"max_query_size": 1 << 24}
COMMENT = "bitrank: codes of {} bits"


class _Shape(NamedTuple):
    """What the server says of a table."""

    n_bits: int
    engine: str
    writable: bool


class ClickHouseEngine(Closing):
    """Codes in a table of ClickHouse; the methods are those of `Engine`.

    Parameters
    ----------
    url : str
        ``clickhouse://user:password@host:8123/database``, the HTTP port (``?secure=true`` for TLS), or chDB, which runs
        in this process: ``chdb://`` in memory, for as long as a connection is open, ``chdb:///path/to/folder`` on disk.
    name : str
        The table; `create` makes it with ``id Int64`` and ``code FixedString(n)``.
    id_column, code_column : str
        Names of those in a table that is there, which may have others; ids are whole numbers of any type. Such a table
        is searched; only one that `create` made is written.

    Examples
    --------
    >>> from bitrank.codes import pack
    >>> with ClickHouseEngine("chdb://", "example") as engine:
    ...     engine.create(n_bits=3)
    ...     engine.add(pack([[1, 0, 1], [1, 1, 0], [0, 0, 1]]), ids=[7, 8, 9])
    ...     engine.search(pack([[1, 0, 0]]), k=2, weights=[4, 2, 1], candidates="exact").ids
    array([[7, 8]])
    """

    def __init__(self, url: str, name: str = "codes", *, id_column: str = "id", code_column: str = "code") -> None:
        driver = import_extra("clickhouse_connect", "clickhouse")
        # Without a session, one client may be used from several threads.
        options = {"autogenerate_session_id": False}
        if url.startswith("chdb:"):
            import_extra("chdb", "chdb")
            options = {}
        self._errors = import_extra("clickhouse_connect.driver.exceptions", "clickhouse")
        self._name = name
        self._table = _quote(name)
        self._columns = id_column, code_column
        self._id, self._code = _quote(id_column), _quote(code_column)
        self._shape: _Shape | None = None
        with self._says_what_failed():
            self._client = driver.get_client(dsn=url, **options)

    @property
    def n_bits(self) -> int:
        """Bits of a code."""
        return self._made().n_bits

    def create(self, n_bits: int) -> None:
        """Make the table, sorted by id, of which the newest row counts."""
        n_bits = check_created(n_bits)
        found = self._look()
        if found is None and self._columns == ("id", "code"):
            comment = f"COMMENT '{COMMENT.format(n_bits)}'"
            self._command(f"CREATE TABLE IF NOT EXISTS {self._table} {_definition(n_bits)} {comment}")
            found = self._look()
        if found is None:
            # Other columns were named; or chDB took the name for that of a file, which it does with braces in it.
            raise ValueError(f"no table {self._name!r} with the columns {self._columns} can be made, only id and code")
        if n_bytes(found.n_bits) != n_bytes(n_bits) or (found.n_bits != n_bits and found.n_bits % 8):
            raise ValueError(f"the table {self._name!r} must hold codes of {n_bits} bits, got one of {found.n_bits}")
        self._shape = found._replace(n_bits=n_bits)

    def add(self, codes: Codes, ids: npt.ArrayLike) -> None:
        """Add codes, or replace them: into a table beside, which is then taken over in one step."""
        n_bits = self._writable()
        codes, checked = check_add(codes, ids, n_bits)
        if not len(checked):
            return
        rows = np.empty(len(checked), _record(n_bits))
        rows["id"], rows["code"] = checked, codes
        beside = _quote(f"{self._name}_adding_{uuid.uuid4().hex}")
        self._command(f"CREATE TABLE {beside} {_definition(n_bits)}")
        try:
            for start in progress(range(0, len(rows), BATCH), label="adding"):
                with self._says_what_failed():
                    self._client.raw_insert(beside, insert_block=rows[start : start + BATCH].tobytes(), fmt="RowBinary")
            self._command(f"ALTER TABLE {self._table} ATTACH PARTITION ID 'all' FROM {beside}")
        finally:
            # Without a connection it stays behind, which no search sees.
            with contextlib.suppress(ConnectionError):
                self._command(f"DROP TABLE IF EXISTS {beside}")

    def remove(self, ids: npt.ArrayLike) -> None:
        """Remove what is there of these ids."""
        self._writable()
        checked = check_ids(ids)
        for start in range(0, len(checked), BATCH):
            listed = ",".join(map(str, checked[start : start + BATCH].tolist()))
            self._command(f"DELETE FROM {self._table} WHERE id IN ({listed})")

    def optimize(self) -> None:
        """Merge all parts into one; replaced and removed rows go."""
        self._writable()
        self._command(f"OPTIMIZE TABLE {self._table} FINAL")

    def search(
        self, queries: npt.NDArray[Any], k: int, weights: npt.ArrayLike | None = None, candidates: Candidates = None
    ) -> Results:
        """The k nearest codes of each query."""
        n_bits = self.n_bits
        codes, rows, n_candidates = check_search(queries, k, weights, candidates, n_bits)
        if n_candidates is None:
            return self._exact(codes, check_whole(rows), k)
        return rerank(codes, self._fetch(codes, n_candidates), k, rows, n_bits)

    def count(self) -> int:
        """Number of codes."""
        return int(self._command(f"SELECT count() FROM {self._source()}"))

    def close(self) -> None:
        """Give back the connection."""
        self._client.close()

    def _fetch(self, queries: Codes, n_candidates: int) -> Iterator[tuple[Ids, Codes]]:
        """Ids and codes of the nearest by plain Hamming distance, one query after the other."""
        record = _record(self.n_bits)
        for query in queries:
            plain = distance_sql(self._code, query, np.ones(self.n_bits), "clickhouse")
            found = self._nearest(self._code, plain, n_candidates, record)
            yield found["id"], np.ascontiguousarray(found["code"])

    def _exact(self, queries: Codes, weights: Weights, k: int) -> Results:
        out = Results(np.full((len(queries), k), -1, np.int64), np.full((len(queries), k), np.inf, np.float32))
        record = np.dtype([("id", "<i8"), ("distance", "<u4")])
        for at, (query, row) in enumerate(zip(queries, weights, strict=True)):
            distance = f"toUInt32({distance_sql(self._code, query, row, 'clickhouse')})"
            found = self._nearest(distance, distance, k, record)
            out.ids[at, : len(found)], out.distances[at, : len(found)] = found["id"], found["distance"]
        return out

    def _nearest(self, wanted: str, distance: str, n: int, record: np.dtype[Any]) -> npt.NDArray[Any]:
        """Ids and what else is wanted of the n nearest, ties by id."""
        sql = f"SELECT toInt64({self._id}), {wanted} FROM {self._source()} ORDER BY {distance}, {self._id} LIMIT {n}"
        with self._says_what_failed():
            return np.frombuffer(self._client.raw_query(sql, fmt="RowBinary", settings=SETTINGS), record)

    def _source(self) -> str:
        """What to select from: FINAL leaves one row an id, in the tables that may hold several."""
        engine = self._made().engine
        return f"{self._table} FINAL" if "Replacing" in engine or engine == "Distributed" else self._table

    def _writable(self) -> int:
        shape = self._made()
        if not shape.writable:
            raise ValueError(f"only a table that create(n_bits) made is written, got another, of {shape.engine}")
        return shape.n_bits

    def _made(self) -> _Shape:
        if self._shape is None:
            self._shape = self._look()
        if self._shape is None:
            raise ValueError(f"there is no table {self._name!r}: make it with create(n_bits)")
        return self._shape

    def _look(self) -> _Shape | None:
        """The table as it is, or None where there is none."""
        of = "FROM system.{} WHERE database = currentDatabase() AND {} = {{name:String}}"
        named = {"name": self._name}
        with self._says_what_failed():
            tables = self._client.query(f"SELECT engine, comment {of.format('tables', 'name')}", named).result_rows
            columns = self._client.query(f"SELECT name, type {of.format('columns', 'table')}", named).result_rows
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
        said = re.fullmatch(COMMENT.format(r"(\d+)"), comment)
        n_bits = int(said[1]) if said and n_bytes(int(said[1])) == int(size[1]) else 8 * int(size[1])
        ours = types == {"id": "Int64", "code": width} and engine.endswith("ReplacingMergeTree")
        return _Shape(n_bits, engine, ours)

    def _command(self, sql: str) -> Any:
        with self._says_what_failed():
            return self._client.command(sql, settings=SETTINGS)

    @contextlib.contextmanager
    def _says_what_failed(self) -> Iterator[None]:
        """A lost connection is a ConnectionError, as in every engine."""
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
    """A name as an identifier of SQL, whatever is in it."""
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"
