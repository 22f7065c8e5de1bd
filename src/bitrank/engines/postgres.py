"""`PostgresEngine`: codes in a table of PostgreSQL, as ``bit(n)``, with pgvector for the first stage.

`connect("postgresql://…")` makes it; the service and its store know nothing of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from bitrank.checks import check_ids
from bitrank.engines.contract import Candidates, Closing, check_add, check_created, check_search
from bitrank.engines.planes import DIALECTS, check_whole, distance_sql
from bitrank.engines.stages import rerank
from bitrank.lazy import import_extra
from bitrank.progress import progress
from bitrank.vocabulary import Codes, Ids, Results, n_bytes

if TYPE_CHECKING:
    from psycopg import Connection

T = TypeVar("T")

CHUNK = 1 << 16  # rows of one message of COPY
HEADER, TRAILER = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
EF_SEARCH = 1000  # the most that pgvector allows
# Held while a table is made: CREATE … IF NOT EXISTS of two sessions at once would fail.
CREATING = 0x62697472616E6B

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
    "the first stage needs pgvector 0.8 or newer in the data base: install it on the server (Debian and Ubuntu with "
    "the packages of postgresql.org: apt install postgresql-<version>-pgvector; others: "
    "https://github.com/pgvector/pgvector#installation), then run CREATE EXTENSION vector there as a superuser"
)


class _Table(NamedTuple):
    n_bits: int
    has_graph: bool


class PostgresEngine(Closing):
    """A table of PostgreSQL 14 or newer; the methods are those of `Engine`.

    The connection is made when it is first needed, and again when the server was away in between. Methods may be
    called from several threads; they take turns.

    Parameters
    ----------
    url : str
        As libpq takes it: ``postgresql://user@host:port/base?connect_timeout=5``.
    name : str
        The table; as it is, so capitals and signs stay. It is looked for along the ``search_path``.
    id_column, code_column : str
        Its columns: ids of an integer type, with a unique index where codes are to be added, and codes of ``bit(n)``.
    """

    def __init__(self, url: str, name: str, *, id_column: str = "id", code_column: str = "code") -> None:
        self._psycopg = import_extra("psycopg", "postgres")
        for word in (name, id_column, code_column):
            if not 0 < len(word.encode()) < 64:
                raise ValueError(f"a name in PostgreSQL must have 1 to 63 bytes, got {word!r}")
        self._url = url
        self._names = name, id_column, code_column
        self._table, self._id, self._code = (_quoted(word) for word in self._names)
        self._turn = threading.RLock()
        self._connection: Connection[Any] | None = None

    def __repr__(self) -> str:
        return f"PostgresEngine({self._where()}, {self._names[0]!r})"

    @property
    def n_bits(self) -> int:
        """Bits of a code."""
        return self._run(self._shape).n_bits

    def create(self, n_bits: int) -> None:
        """Make the table, and the extension of pgvector where that is missing."""
        n_bits = check_created(n_bits)

        def work(connection: Connection[Any]) -> None:
            connection.execute(f"SELECT pg_advisory_xact_lock({CREATING})")
            self._need_pgvector(connection)
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {self._table} "
                f"({self._id} bigint PRIMARY KEY, {self._code} bit({n_bits}) NOT NULL)"
            )
            found = self._shape(connection).n_bits
            if found != n_bits:
                raise ValueError(f"the table {self._table} must have codes of {n_bits} bits, got one of {found}")

        self._run(work)

    def add(self, codes: Codes, ids: npt.ArrayLike) -> None:
        """Add codes, or replace them, in one transaction; a bar shows how far it is."""

        def work(connection: Connection[Any]) -> None:
            n_bits = self._shape(connection).n_bits
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
        """Remove what is there of these ids."""
        numbers = ",".join(map(str, check_ids(ids)))

        def work(connection: Connection[Any]) -> None:
            self._shape(connection)
            connection.execute(f"DELETE FROM {self._table} WHERE {self._id} = ANY('{{{numbers}}}'::bigint[])")

        self._run(work)

    def optimize(self) -> None:
        """Build the graph (HNSW) of the first stage, which is then no longer exact but needs no scan."""

        def work(connection: Connection[Any]) -> None:
            if not self._shape(connection).has_graph:
                self._need_pgvector(connection)
                connection.execute(f"CREATE INDEX ON {self._table} USING hnsw ({self._code} bit_hamming_ops)")
            connection.execute(f"ANALYZE {self._table}")

        self._run(work)

    def search(
        self, queries: npt.NDArray[Any], k: int, weights: npt.ArrayLike | None = None, candidates: Candidates = None
    ) -> Results:
        """The k nearest codes of each query."""

        def work(connection: Connection[Any]) -> Results:
            table = self._shape(connection)
            codes, rows, n_candidates = check_search(queries, k, weights, candidates, table.n_bits)
            if n_candidates is None:
                return self._exact(connection, codes, check_whole(rows), k)
            if table.has_graph:
                # It goes on searching until there are N, past rows that were removed.
                connection.execute(
                    f"SET LOCAL hnsw.ef_search = {min(max(n_candidates, 40), EF_SEARCH)};"
                    "SET LOCAL hnsw.iterative_scan = strict_order;"
                    f"SET LOCAL hnsw.max_scan_tuples = {min(max(20_000, 20 * n_candidates), 2**31 - 1)};"
                    "SET LOCAL hnsw.scan_mem_multiplier = 1000"
                )
            fetched = [self._nearest_by_hamming(connection, code, n_candidates, table) for code in codes]
            return rerank(codes, fetched, k, rows, table.n_bits)

        try:
            return self._run(work)
        except self._psycopg.errors.UndefinedFunction:
            raise ValueError(NO_PGVECTOR) from None

    def count(self) -> int:
        """Number of codes."""

        def work(connection: Connection[Any]) -> int:
            self._shape(connection)
            found = connection.execute(f"SELECT count(*) FROM {self._table} WHERE {self._code} IS NOT NULL").fetchone()
            return int(found[0]) if found else 0

        return self._run(work)

    def close(self) -> None:
        """Give back the connection."""
        with self._turn:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _run(self, work: Callable[[Connection[Any]], T]) -> T:
        """Do work in a transaction, and once more from the start when the connection turns out to be lost."""
        with self._turn:
            for attempt in range(2):
                try:
                    if self._connection is None or self._connection.closed:
                        attempt = 1  # a new one that fails is no stale one
                        self._connection = self._psycopg.connect(self._url, autocommit=True)
                    with self._connection.transaction():
                        return work(self._connection)
                except self._psycopg.OperationalError as error:
                    if self._connection is not None and not self._connection.closed:
                        raise  # of the server itself: a full disk, a statement that took too long
                    if attempt == 1:
                        raise ConnectionError(f"PostgreSQL at {self._where()} does not answer: {error}") from error
            raise AssertionError("two attempts end above")

    def _where(self) -> str:
        """The address without its password."""
        parts = self._psycopg.conninfo.conninfo_to_dict(self._url)
        host, port = (parts.get(key) for key in ("host", "port"))
        return f"{host or 'localhost'}:{port or 5432}/{parts.get('dbname') or ''}"

    def _shape(self, connection: Connection[Any]) -> _Table:
        _, id_column, code_column = self._names
        found = {row[0]: row[1:] for row in connection.execute(COLUMNS, [self._table]).fetchall()}
        if not found:
            raise ValueError(f"there is no table {self._table}: make it with create(n_bits)")
        code, number = found.get(code_column), found.get(id_column)
        if code is None or code[0] != "bit" or number is None or number[0] not in ("smallint", "integer", "bigint"):
            columns = ", ".join(f"{name} {row[0]}" for name, row in found.items())
            raise ValueError(
                f"the table {self._table} must have the columns {self._id} of integers and {self._code} of bit(n), "
                f"got {columns}"
            )
        return _Table(code[1], code[2])

    def _need_pgvector(self, connection: Connection[Any]) -> None:
        try:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except (self._psycopg.errors.FeatureNotSupported, self._psycopg.errors.UndefinedFile) as error:
            raise ValueError(f"{NO_PGVECTOR} ({error})") from None
        except self._psycopg.errors.InsufficientPrivilege as error:
            raise ValueError(f"{NO_PGVECTOR} ({error})") from None

    def _nearest_by_hamming(self, connection: Connection[Any], code: Codes, n: int, table: _Table) -> tuple[Ids, Codes]:
        query = DIALECTS["postgresql"].code(code.tobytes().hex(), table.n_bits)
        ties = "" if table.has_graph else f", {self._id}"  # the graph knows no second key
        found = self._fetch(
            connection,
            f"SELECT {self._id}::bigint, {self._code} FROM {self._table} "
            f"WHERE {self._id} IS NOT NULL AND {self._code} IS NOT NULL "
            f"ORDER BY {self._code} <~> {query}{ties} LIMIT {n}",
            _record(table.n_bits),
        )
        return found["id"].astype(np.int64), np.ascontiguousarray(found["code"])

    def _exact(self, connection: Connection[Any], codes: Codes, weights: npt.NDArray[np.float32], k: int) -> Results:
        record = np.dtype([("fields", ">i2"), ("a", ">i4"), ("id", ">i8"), ("b", ">i4"), ("distance", ">i8")])
        out = Results(np.full((len(codes), k), -1, np.int64), np.full((len(codes), k), np.inf, np.float32))
        for at, (code, row) in enumerate(zip(codes, weights, strict=True)):
            found = self._fetch(
                connection,
                f"SELECT {self._id}::bigint, ({distance_sql(self._code, code, row, 'postgresql')})::bigint AS distance "
                f"FROM {self._table} WHERE {self._id} IS NOT NULL AND {self._code} IS NOT NULL "
                f"ORDER BY distance, {self._id} LIMIT {k}",
                record,
            )
            out.ids[at, : len(found)], out.distances[at, : len(found)] = found["id"], found["distance"]
        return out

    def _fetch(self, connection: Connection[Any], query: str, record: np.dtype[Any]) -> npt.NDArray[Any]:
        """Rows of a query as an array: in binary, all of one length."""
        with connection.cursor().copy(f"COPY ({query}) TO STDOUT (FORMAT BINARY)") as copy:
            data = b"".join(copy)
        found = np.frombuffer(data[len(HEADER) : -len(TRAILER)], record)
        if len(found) and found["id"].min() < 0:
            raise ValueError(f"ids must not be negative, got {found['id'].min()} in {self._table}")
        return found


def _record(n_bits: int) -> np.dtype[Any]:
    """A row of id and code, as COPY writes it in binary: each value after its length, a code after its bits."""
    width = n_bytes(n_bits)
    return np.dtype(
        [("fields", ">i2"), ("a", ">i4"), ("id", ">i8"), ("b", ">i4"), ("n_bits", ">i4"), ("code", np.uint8, width)]
    )


def _rows(codes: Codes, ids: Ids, n_bits: int) -> bytes:
    rows = np.empty(len(ids), _record(n_bits))
    rows["fields"], rows["a"], rows["b"], rows["n_bits"] = 2, 8, 4 + codes.shape[1], n_bits
    rows["id"], rows["code"] = ids, codes
    return rows.tobytes()


def _quoted(name: str) -> str:
    """A name as an identifier of SQL, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'
