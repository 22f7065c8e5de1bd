"""`PostgresEngine`: codes in a table of PostgreSQL, as ``bit(n)``, with pgvector to find candidates."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_ids
from bitrank.core.lazy import import_extra
from bitrank.core.progress import progress
from bitrank.core.types import AnyQueries, Codes, Ids, Method, Results, n_bytes
from bitrank.engines.contract import check_add, check_created
from bitrank.engines.planes import DIALECTS, quoted
from bitrank.engines.sql import SqlEngine
from bitrank.engines.stages import Fetched

if TYPE_CHECKING:
    from psycopg import Connection

T = TypeVar("T")

CHUNK = 1 << 16  # rows per message of COPY
HEADER, TRAILER = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
MAX_EF_SEARCH = 1000  # pgvector's limit
# Advisory lock of `create`: CREATE … IF NOT EXISTS fails in two sessions at once.
CREATE_LOCK = 0x62697472616E6B

COLUMNS = """
SELECT a.attname, a.atttypid::regtype::text, a.atttypmod, EXISTS (
    SELECT FROM pg_index i
    JOIN pg_class c ON c.oid = i.indexrelid
    JOIN pg_am m ON m.oid = c.relam AND m.amname = 'hnsw'
    JOIN pg_opclass o ON o.oid = i.indclass[0] AND o.opcname = 'bit_hamming_ops'
    WHERE i.indrelid = a.attrelid AND i.indkey[0] = a.attnum AND i.indisvalid AND i.indpred IS NULL)
FROM pg_attribute a WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
"""

NO_PGVECTOR = (
    "PostgreSQL needs pgvector 0.8 or newer to find candidates: install it on the server (Debian and Ubuntu with the "
    "packages of postgresql.org: apt install postgresql-<version>-pgvector; others: "
    "https://github.com/pgvector/pgvector#installation), then run CREATE EXTENSION vector there as a superuser"
)


class _Table(NamedTuple):
    n_bits: int
    has_graph: bool


class PostgresEngine(SqlEngine):
    """Codes in a table of PostgreSQL 14 or newer.

    The engine connects at the first call, and again after the server was away. Methods may be called from several
    threads; they take turns.

    Parameters
    ----------
    url : str
        As libpq takes it: ``postgresql://user@host:port/base?connect_timeout=5``.
    name : str
        The table, with capitals and special characters as they are; found along the ``search_path``.
    id_column, code_column : str
        Its columns: ids of an integer type, with a unique index where codes are to be added, and codes of ``bit(n)``.
    """

    _dialect, _mixed = "postgresql", "md5({id}::text)"

    def __init__(self, url: str, name: str, *, id_column: str = "id", code_column: str = "code") -> None:
        self._psycopg = import_extra("psycopg", "postgres")
        for word in (name, id_column, code_column):
            if not 0 < len(word.encode()) < 64:
                raise ValueError(f"a name in PostgreSQL must have 1 to 63 bytes, got {word!r}")
        self._url = url
        self._names = name, id_column, code_column
        self._table, self._id, self._code = (quoted(word) for word in self._names)
        self._lock = threading.RLock()
        self._connection: Connection[Any] | None = None
        self._transaction: Connection[Any] | None = None
        self._shape: _Table | None = None  # of the transaction under way

    def __repr__(self) -> str:
        return f"PostgresEngine({self._where()}, {self._names[0]!r})"

    @property
    def n_bits(self) -> int:
        """Bits per code."""
        return self._run(self._look).n_bits

    def create(self, n_bits: int) -> None:
        """Create the table, and the extension of pgvector where that is missing."""
        n_bits = check_created(n_bits)

        def work(connection: Connection[Any]) -> None:
            connection.execute(f"SELECT pg_advisory_xact_lock({CREATE_LOCK})")
            self._need_pgvector(connection)
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {self._table} "
                f"({self._id} bigint PRIMARY KEY, {self._code} bit({n_bits}) NOT NULL)"
            )
            stored = self._look(connection).n_bits
            if stored != n_bits:
                raise ValueError(f"the table {self._table} must hold codes of {n_bits} bits, got one of {stored}")

        self._run(work)

    def add(self, codes: Codes, ids: npt.ArrayLike) -> None:
        """Add codes, or replace them, in one transaction."""

        def work(connection: Connection[Any]) -> None:
            n_bits = self._look(connection).n_bits
            checked, numbers = check_add(codes, ids, n_bits)
            connection.execute(f"CREATE TEMP TABLE bitrank_new (id bigint, code bit({n_bits})) ON COMMIT DROP")
            with connection.cursor().copy("COPY pg_temp.bitrank_new FROM STDIN (FORMAT BINARY)") as copy:
                copy.write(HEADER)
                for start in progress(range(0, len(numbers), CHUNK), label="adding codes"):
                    copy.write(_rows(checked[start : start + CHUNK], numbers[start : start + CHUNK], n_bits))
                copy.write(TRAILER)
            connection.execute(
                f"INSERT INTO {self._table} AS old ({self._id}, {self._code}) SELECT id, code FROM pg_temp.bitrank_new "
                f"ON CONFLICT ({self._id}) DO UPDATE SET {self._code} = excluded.{self._code} "
                f"WHERE old.{self._code} IS DISTINCT FROM excluded.{self._code}"
            )

        try:
            self._run(work)
        except self._psycopg.errors.InvalidColumnReference:
            raise ValueError(f"to add codes, {self._id} of {self._table} must have a unique index") from None

    def remove(self, ids: npt.ArrayLike) -> None:
        """Remove the ids that exist."""
        numbers = ",".join(map(str, check_ids(ids)))

        def work(connection: Connection[Any]) -> None:
            self._look(connection)
            connection.execute(f"DELETE FROM {self._table} WHERE {self._id} = ANY('{{{numbers}}}'::bigint[])")

        self._run(work)

    def optimize(self) -> None:
        """Build the graph (HNSW) that finds candidates without a scan, and may miss some."""

        def work(connection: Connection[Any]) -> None:
            if not self._look(connection).has_graph:
                self._need_pgvector(connection)
                connection.execute(f"CREATE INDEX ON {self._table} USING hnsw ({self._code} bit_hamming_ops)")
            connection.execute(f"ANALYZE {self._table}")

        self._run(work)

    def count(self) -> int:
        """Number of codes."""

        def work(connection: Connection[Any]) -> int:
            self._look(connection)
            row = connection.execute(f"SELECT count(*) FROM {self._table} WHERE {self._code} IS NOT NULL").fetchone()
            return int(row[0]) if row else 0

        return self._run(work)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _run(self, work: Callable[[Connection[Any]], T]) -> T:
        """Do work in a transaction, and once more from its start when the connection turns out to be lost.

        Within the work of another call, do it in that call's transaction.
        """
        with self._lock:
            if self._transaction is not None:
                return work(self._transaction)
            for attempt in range(2):
                try:
                    if self._connection is None or self._connection.closed:
                        attempt = 1  # a failure of a new connection is final
                        self._connection = self._psycopg.connect(self._url, autocommit=True)
                    with self._connection.transaction():
                        self._transaction = self._connection
                        return work(self._connection)
                except self._psycopg.OperationalError as error:
                    if self._connection is not None and not self._connection.closed:
                        raise  # an error of the server: a full disk, a statement that took too long
                    if attempt == 1:
                        raise ConnectionError(f"PostgreSQL at {self._where()} does not answer: {error}") from error
                finally:
                    self._transaction = self._shape = None
            raise AssertionError("two attempts end above")

    def _where(self) -> str:
        """The address without its password."""
        parts = self._psycopg.conninfo.conninfo_to_dict(self._url)
        host, port = (parts.get(key) for key in ("host", "port"))
        return f"{host or 'localhost'}:{port or 5432}/{parts.get('dbname') or ''}"

    def _look(self, connection: Connection[Any]) -> _Table:
        """The table as the server describes it, once per transaction."""
        if self._shape is not None:
            return self._shape
        _, id_column, code_column = self._names
        columns = {row[0]: row[1:] for row in connection.execute(COLUMNS, [self._table]).fetchall()}
        if not columns:
            raise ValueError(f"there is no table {self._table}: create it with create(n_bits)")
        code, number = columns.get(code_column), columns.get(id_column)
        if code is None or code[0] != "bit" or number is None or number[0] not in ("smallint", "integer", "bigint"):
            described = ", ".join(f"{name} {row[0]}" for name, row in columns.items())
            raise ValueError(
                f"the table {self._table} must have the columns {self._id} of integers and {self._code} of bit(n), "
                f"got {described}"
            )
        self._shape = _Table(code[1], code[2])
        return self._shape

    def _need_pgvector(self, connection: Connection[Any]) -> None:
        errors = self._psycopg.errors
        try:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except (errors.FeatureNotSupported, errors.UndefinedFile, errors.InsufficientPrivilege) as error:
            raise ValueError(f"{NO_PGVECTOR} ({error})") from None

    def _search(
        self, queries: AnyQueries, k: int, weights: npt.ArrayLike | None, method: Method, candidates: int | None
    ) -> Results:
        search = super()._search
        try:
            return self._run(lambda _: search(queries, k, weights, method, candidates))
        except self._psycopg.errors.UndefinedFunction:
            raise ValueError(NO_PGVECTOR) from None

    def _fetch(self, codes: Codes, n: int) -> list[Fetched]:
        def work(connection: Connection[Any]) -> list[Fetched]:
            table = self._look(connection)
            ties = f", {self._id}"
            if table.has_graph:
                ties = ""  # the graph has no second key
                # Search on until there are n codes, past rows that were removed.
                connection.execute(
                    f"SET LOCAL hnsw.ef_search = {min(max(n, 40), MAX_EF_SEARCH)};"
                    "SET LOCAL hnsw.iterative_scan = strict_order;"
                    f"SET LOCAL hnsw.max_scan_tuples = {min(max(20_000, 20 * n), 2**31 - 1)};"
                    "SET LOCAL hnsw.scan_mem_multiplier = 1000"
                )
            literals = (DIALECTS["postgresql"].code(code.tobytes().hex(), table.n_bits) for code in codes)
            orders = (f"{self._code} <~> {literal}{ties}" for literal in literals)
            return [self._nearest(connection, order, n) for order in orders]

        return self._run(work)

    def _ids(self) -> Ids:
        def work(connection: Connection[Any]) -> Ids:
            self._look(connection)
            present = f"{self._id} IS NOT NULL AND {self._code} IS NOT NULL"
            query = f"SELECT {self._id}::bigint FROM {self._table} WHERE {present}"
            with connection.cursor().copy(f"COPY ({query}) TO STDOUT (FORMAT BINARY)") as copy:
                data = b"".join(copy)
            record = np.dtype([("fields", ">i2"), ("a", ">i4"), ("id", ">i8")])
            return np.frombuffer(data[len(HEADER) : -len(TRAILER)], record)["id"].astype(np.int64)

        return self._run(work)

    def _first(self, order: str, n: int, where: str = "TRUE") -> Fetched:
        return self._run(lambda connection: self._nearest(connection, order, n, where))

    def _nearest(self, connection: Connection[Any], order: str, n: int, where: str = "TRUE") -> Fetched:
        """The first n rows in an order: fetched in binary, as records of one length."""
        self._look(connection)
        query = (
            f"SELECT {self._id}::bigint, {self._code} FROM {self._table} WHERE {where} "
            f"AND {self._id} IS NOT NULL AND {self._code} IS NOT NULL ORDER BY {order} LIMIT {n}"
        )
        with connection.cursor().copy(f"COPY ({query}) TO STDOUT (FORMAT BINARY)") as copy:
            data = b"".join(copy)
        rows = np.frombuffer(data[len(HEADER) : -len(TRAILER)], _record(self._look(connection).n_bits))
        if len(rows) and rows["id"].min() < 0:
            raise ValueError(f"ids must not be negative, got {rows['id'].min()} in {self._table}")
        return rows["id"].astype(np.int64), np.ascontiguousarray(rows["code"])


def _record(n_bits: int) -> np.dtype[Any]:
    """A row of id and code in COPY's binary format: each value after its length, a code after its number of bits."""
    width = n_bytes(n_bits)
    return np.dtype(
        [("fields", ">i2"), ("a", ">i4"), ("id", ">i8"), ("b", ">i4"), ("n_bits", ">i4"), ("code", np.uint8, width)]
    )


def _rows(codes: Codes, ids: Ids, n_bits: int) -> bytes:
    rows = np.empty(len(ids), _record(n_bits))
    rows["fields"], rows["a"], rows["b"], rows["n_bits"] = 2, 8, 4 + codes.shape[1], n_bits
    rows["id"], rows["code"] = ids, codes
    return rows.tobytes()
