"""`PostgresEngine`: codes in a table of PostgreSQL, as ``bit(n)``, with pgvector to find candidates.

Of codes in two parts the head is one column, and the rest another, read for a shortlist that is ranked here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_count, check_parts, check_queries, is_in_parts
from bitrank.core.lazy import import_extra
from bitrank.core.progress import progress
from bitrank.core.types import Codes, Ids, Method, Queries, Results, Weights, n_bytes
from bitrank.engines.contract import check_created
from bitrank.engines.planes import DIALECTS, quoted
from bitrank.engines.sql import SqlEngine
from bitrank.engines.stages import Fetched, rerank
from bitrank.index.index import SHORTLIST, SHORTLIST_PER_RESULT

if TYPE_CHECKING:
    from psycopg import Connection

T = TypeVar("T")
P = ParamSpec("P")

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
    n_scanned: int


def in_transaction(
    work: Callable[Concatenate[PostgresEngine, Connection[Any], P], T],
) -> Callable[Concatenate[PostgresEngine, P], T]:
    """Call a method with a connection in a transaction: that of the caller, or a new one, which is repeated once."""

    def call(engine: PostgresEngine, /, *arguments: P.args, **options: P.kwargs) -> T:
        return engine._run(lambda connection: work(engine, connection, *arguments, **options))

    return call


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
        A column of ``bit(n)`` named like the codes' with ``_rest`` holds what follows the head of codes in two parts.
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
        self._rest = quoted(f"{code_column}_rest")
        self._lock = threading.RLock()
        self._connection: Connection[Any] | None = None
        self._transaction: Connection[Any] | None = None
        self._shape: _Table | None = None  # of the transaction under way

    def __repr__(self) -> str:
        return f"PostgresEngine({self._where()}, {self._names[0]!r})"

    @property
    def n_bits(self) -> int:
        """Bits per code."""
        return self._look().n_bits

    @property
    def n_scanned(self) -> int:
        """Bits that a search scans: all, but for codes in two parts."""
        return self._look().n_scanned

    def create(self, n_bits: int, n_scanned: int | None = None) -> None:
        """Create the table, and the extension of pgvector where that is missing; `n_scanned` as `Index` has it."""
        n_bits = check_created(n_bits)
        head = n_bits if n_scanned is None else check_count("n_scanned", n_scanned, 1)
        if head > n_bits or (head < n_bits and head % 8):
            raise ValueError(f"n_scanned must be a multiple of 8 up to {n_bits}, the bits of a code, got {n_scanned}")
        rest = f", {self._rest} bit({n_bits - head}) NOT NULL" if head < n_bits else ""
        if rest and len(self._rest.encode()) > 65:
            raise ValueError(f"code_column must have at most 58 bytes for a rest beside it, got {self._names[2]!r}")
        self._make(n_bits, head, rest)

    @in_transaction
    def _make(self, connection: Connection[Any], n_bits: int, head: int, rest: str) -> None:
        connection.execute(f"SELECT pg_advisory_xact_lock({CREATE_LOCK})")
        self._need_pgvector(connection)
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {self._table} "
            f"({self._id} bigint PRIMARY KEY, {self._code} bit({head}) NOT NULL{rest})"
        )
        stored = self._look()
        if stored.n_bits != n_bits:
            raise ValueError(f"the table {self._table} must hold codes of {n_bits} bits, got one of {stored.n_bits}")
        if stored.n_scanned != head:
            raise ValueError(f"the table {self._table} must have heads of {head} bits, got {stored.n_scanned}")

    def _add(self, codes: Codes, ids: Ids) -> None:
        try:
            self._copy_in(codes, ids)
        except self._psycopg.errors.InvalidColumnReference:
            raise ValueError(f"to add codes, {self._id} of {self._table} must have a unique index") from None

    @in_transaction
    def _copy_in(self, connection: Connection[Any], codes: Codes, ids: Ids) -> None:
        names, parts, _ = self._columns()
        columns = ", ".join(f"{name} bit({bits})" for name, bits in zip(names, parts, strict=True))
        connection.execute(f"CREATE TEMP TABLE bitrank_new (id bigint, {columns}) ON COMMIT DROP")
        with connection.cursor().copy("COPY pg_temp.bitrank_new FROM STDIN (FORMAT BINARY)") as copy:
            copy.write(HEADER)
            for start in progress(range(0, len(ids), CHUNK), label="adding codes"):
                copy.write(_rows(codes[start : start + CHUNK], ids[start : start + CHUNK], parts))
            copy.write(TRAILER)
        into, old, new = (", ".join(before + name for name in names) for before in ("", "old.", "excluded."))
        connection.execute(
            f"INSERT INTO {self._table} AS old ({self._id}, {into}) SELECT id, {into} FROM pg_temp.bitrank_new "
            f"ON CONFLICT ({self._id}) DO UPDATE SET ({into}) = ROW({new}) "
            f"WHERE ROW({old}) IS DISTINCT FROM ROW({new})"
        )

    @in_transaction
    def _remove(self, connection: Connection[Any], ids: Ids) -> None:
        numbers = ",".join(map(str, ids))
        connection.execute(f"DELETE FROM {self._table} WHERE {self._id} = ANY('{{{numbers}}}'::bigint[])")

    @in_transaction
    def _optimize(self, connection: Connection[Any]) -> None:
        """Build the graph (HNSW) that finds candidates without a scan, and may miss some."""
        if not self._look().has_graph:
            self._need_pgvector(connection)
            connection.execute(f"CREATE INDEX ON {self._table} USING hnsw ({self._code} bit_hamming_ops)")
        connection.execute(f"ANALYZE {self._table}")

    @in_transaction
    def _count(self, connection: Connection[Any]) -> int:
        row = connection.execute(f"SELECT count(*) FROM {self._table} WHERE {self._columns()[2]}").fetchone()
        return int(row[0]) if row else 0

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

    @in_transaction
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
        kind, rest, _ = columns.get(f"{code_column}_rest", ("", 0, False))
        self._shape = _Table(code[1] + (rest if kind == "bit" and code[1] % 8 == 0 else 0), code[2], code[1])
        return self._shape

    def _columns(self) -> tuple[list[str], list[int], str]:
        """Columns of a code, the bits in each, and the condition that there is one."""
        table = self._look()
        rest = table.n_bits - table.n_scanned
        names, parts = [self._code, self._rest][: 1 + (rest > 0)], [table.n_scanned, rest]
        return names, parts[: len(names)], " AND ".join(f"{name} IS NOT NULL" for name in names)

    def _need_pgvector(self, connection: Connection[Any]) -> None:
        errors = self._psycopg.errors
        try:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except (errors.FeatureNotSupported, errors.UndefinedFile, errors.InsufficientPrivilege) as error:
            raise ValueError(f"{NO_PGVECTOR} ({error})") from None

    def search(
        self,
        queries: Any,
        k: int,
        weights: npt.ArrayLike | None = None,
        *,
        method: Method | None = None,
        candidates: int | None = None,
        shortlist: int | None = None,
    ) -> Results:
        """Find the k nearest codes of each query, as `Engine.search`.

        Of codes in two parts, find the `shortlist` nearest by their heads and rank these here by whole codes: `queries`
        may be a tuple (head, whole), and `shortlist` is that of `Index.search`.
        """
        try:
            return self._run(lambda _: self._in_parts(queries, k, weights, method, candidates, shortlist))
        except self._psycopg.errors.UndefinedFunction:
            raise ValueError(NO_PGVECTOR) from None

    def _in_parts(
        self, queries: Any, k: int, weights: Any, method: Method | None, candidates: int | None, shortlist: int | None
    ) -> Results:
        n_bits, _, n_scanned = self._look()
        if n_scanned == n_bits:
            if shortlist is not None:
                raise ValueError(f"shortlist must be None for a table without rests, got {shortlist!r}")
            return self._search(queries, k, weights, method, candidates)
        n_kept = max(SHORTLIST, SHORTLIST_PER_RESULT * check_count("k", k, 1)) if shortlist is None else shortlist
        if check_count("shortlist", n_kept, 1) < k:
            raise ValueError(f"shortlist must be at least k, {k}, got {shortlist!r}")
        n_candidates = self.check_method(method, k, candidates)
        if is_in_parts(queries):
            parts, asked = check_parts(queries, weights, n_bits, n_scanned)
        else:
            asked = check_queries(queries, weights, n_bits)
            parts = np.ascontiguousarray(asked[0][:, : n_scanned // 8]), asked[1][:, :n_scanned]
        head = _of_each(*parts)
        if asked is None:
            return self._exact(head, k) if n_candidates is None else self._rerank(head, k, n_candidates)
        found = self._exact(head, n_kept) if n_candidates is None else self._rerank(head, n_kept, n_candidates)
        return rerank(_of_each(*asked), [self._lookup(row[row >= 0]) for row in found.ids], k)

    def _scan(self, codes: Codes, weights: Weights, n: int) -> Iterator[Fetched]:
        for ids, whole in super()._scan(codes, weights, n):
            yield ids, np.ascontiguousarray(whole[:, : codes.shape[1]])

    @in_transaction
    def _fetch(self, connection: Connection[Any], codes: Codes, n: int) -> list[Fetched]:
        table = self._look()
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
        literals = (DIALECTS["postgresql"].code(code.tobytes().hex(), table.n_scanned) for code in codes)
        nearest = (self._first(f"{self._code} <~> {literal}{ties}", n) for literal in literals)
        return [(ids, np.ascontiguousarray(whole[:, : codes.shape[1]])) for ids, whole in nearest]

    def _ids(self) -> Ids:
        return self._copy_out([], [])["id"].astype(np.int64)

    def _first(self, order: str, n: int, where: str = "TRUE") -> Fetched:
        names, parts, _ = self._columns()
        rows = self._copy_out(names, parts, f"AND {where} ORDER BY {order} LIMIT {n}")
        if len(rows) and rows["id"].min() < 0:
            raise ValueError(f"ids must not be negative, got {rows['id'].min()} in {self._table}")
        codes = np.hstack([rows[f"code{number}"] for number in range(len(parts))])
        return rows["id"].astype(np.int64), np.ascontiguousarray(codes)

    @in_transaction
    def _copy_out(
        self, connection: Connection[Any], names: list[str], parts: list[int], rest: str = ""
    ) -> npt.NDArray[Any]:
        """Ids and columns of all rows that have a code, or of some, in binary, as records of one length."""
        columns, present = ", ".join([f"{self._id}::bigint", *names]), self._columns()[2]
        query = f"SELECT {columns} FROM {self._table} WHERE {self._id} IS NOT NULL AND {present} {rest}"
        with connection.cursor().copy(f"COPY ({query}) TO STDOUT (FORMAT BINARY)") as copy:
            data = b"".join(copy)
        return np.frombuffer(data[len(HEADER) : -len(TRAILER)], _record(parts))


def _of_each(codes: Codes, weights: Weights) -> Queries:
    """Queries with a row of weights each."""
    return Queries(codes, np.broadcast_to(weights, (len(codes), weights.shape[-1])))


def _record(parts: list[int]) -> np.dtype[Any]:
    """A row of id and code in COPY's binary format: each value after its length, a code after its number of bits."""
    fields: list[Any] = [("fields", ">i2"), ("a", ">i4"), ("id", ">i8")]
    for number, n_bits in enumerate(parts):
        fields += [(f"b{number}", ">i4"), (f"n_bits{number}", ">i4"), (f"code{number}", np.uint8, n_bytes(n_bits))]
    return np.dtype(fields)


def _rows(codes: Codes, ids: Ids, parts: list[int]) -> bytes:
    rows = np.empty(len(ids), _record(parts))
    rows["fields"], rows["a"], rows["id"] = 1 + len(parts), 8, ids
    start = 0
    for number, n_bits in enumerate(parts):
        end = start + n_bytes(n_bits)
        rows[f"b{number}"], rows[f"n_bits{number}"] = 4 + end - start, n_bits
        rows[f"code{number}"], start = codes[:, start:end], end
    return rows.tobytes()
