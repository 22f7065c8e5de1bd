"""`MilvusEngine`: codes as BINARY_VECTOR in a collection of Milvus.

Milvus finds candidates by plain Hamming distance; it cannot weigh bits, so there is no exact search.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any, ClassVar, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

import numpy as np

from bitrank.core.lazy import import_extra
from bitrank.core.progress import progress
from bitrank.core.types import Codes, Ids, n_bytes
from bitrank.engines.sql import NOTE, TableEngine, noted
from bitrank.engines.stages import Fetched

# Milvus's limit of results per query.
MAX_CANDIDATES = 16_384
# Milvus finds a larger id, and then fails to fetch its code.
MAX_ID = 2**63 - 2
# Codes and ids per message; Milvus takes up to 64 MB, with what surrounds them.
MESSAGE_BYTES = 48 << 20
BATCH = 65_536  # rows per step of the progress bar
# Candidates with their codes per message.
BATCH_RESULTS = 100_000
# Codes of a MilvusException: no server; no such collection; one that is not in memory.
CONNECT_FAILED, NOT_FOUND, NOT_LOADED = 2, 100, 101
# A server that is back is asked at once: by default all channels to one address share a pause of up to two minutes.
GRPC_OPTIONS = {"grpc.use_local_subchannel_pool": 1, "grpc.max_reconnect_backoff_ms": 1000}
# What may stand at the end of an address.
OPTIONS = {"secure": ("true", "false"), "consistency": ("Strong", "Session", "Bounded", "Eventually")}


class MilvusEngine(TableEngine):
    """Codes in a collection of Milvus; searched with ``method="rerank"`` only.

    Milvus applies a message whole or not at all, so an `add` is one message: up to 3 million codes of 64 bits or 2
    million of 128. More than that at once is refused.

    Parameters
    ----------
    url : str
        ``milvus://user:password@host:19530/database``; ``?secure=true`` at the end for TLS. By default every read waits
        a fraction of a second for what was added just before; ``?consistency=Bounded`` or ``Eventually`` does not.
    name : str
        The collection: letters, digits and underscores. It has the fields ``id`` and ``code``.
    index : "BIN_FLAT" or "BIN_IVF_FLAT"
        The index that `optimize` builds: a scan of all codes, or of the `nprobe` nearest of `nlist` clusters.
    nlist, nprobe : int
        Parameters of BIN_IVF_FLAT; `nprobe` takes effect in `search`.
    timeout : float
        Seconds to wait for an answer.
    """

    _kind = "collection"
    _no_exact: ClassVar[str | None] = "Milvus, which cannot weigh bits"
    _max_candidates: ClassVar[int | None] = MAX_CANDIDATES

    def __init__(
        self,
        url: str,
        name: str = "codes",
        *,
        index: Literal["BIN_FLAT", "BIN_IVF_FLAT"] = "BIN_FLAT",
        nlist: int = 1024,
        nprobe: int = 32,
        timeout: float = 60.0,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,254}", name):
            raise ValueError(f"name must be up to 255 letters, digits and underscores for Milvus, got {name!r}")
        if index not in ("BIN_FLAT", "BIN_IVF_FLAT"):
            raise ValueError(f"index must be BIN_FLAT or BIN_IVF_FLAT, got {index!r}")
        if not 1 <= nprobe <= nlist <= 65_536:
            raise ValueError(f"nprobe must be from 1 to nlist, and nlist up to 65536, got {nprobe} and {nlist}")
        parts = urlsplit(url)
        options = _options(parts.query)
        self._milvus = import_extra("pymilvus", "milvus")
        self._rpc = import_extra("grpc", "milvus")
        super().__init__(name)
        self._timeout = timeout
        self._index, self._nlist, self._nprobe = index, nlist, nprobe
        scheme = "https" if options.get("secure") == "true" else "http"
        self._reading = {"consistency_level": options["consistency"]} if "consistency" in options else {}
        with self._connection_errors():
            self._client = self._milvus.MilvusClient(
                uri=f"{scheme}://{parts.netloc.rpartition('@')[2]}",
                user=unquote(parts.username or ""),
                password=unquote(parts.password or ""),
                db_name=unquote(parts.path.strip("/")),
                timeout=timeout,
                grpc_options=GRPC_OPTIONS,
            )

    def _add(self, codes: Codes, ids: Ids) -> None:
        if ids.max(initial=0) > MAX_ID:
            raise ValueError(f"ids for Milvus must be up to 2**63 - 2, got {ids.max()}")
        most = MESSAGE_BYTES // (codes.shape[1] + 8)
        if len(ids) > most:
            raise ValueError(f"Milvus takes up to {most} codes of this length at once, got {len(ids)}: add parts")
        rows = []
        for start in progress(range(0, len(ids), BATCH), label="packing"):
            part = zip(ids[start : start + BATCH].tolist(), codes[start : start + BATCH], strict=True)
            rows += [{"id": number, "code": code.tobytes()} for number, code in part]
        if rows:
            with self._connection_errors():
                self._client.upsert(self._name, rows, timeout=self._timeout)

    def _remove(self, ids: Ids) -> None:
        for start in range(0, len(ids), MAX_CANDIDATES):
            with self._connection_errors():
                part = ids[start : start + MAX_CANDIDATES].tolist()
                self._client.delete(self._name, ids=part, timeout=self._timeout)

    def _optimize(self) -> None:
        """Flush added codes to segments, and build the index."""
        with self._connection_errors():
            self._client.flush(self._name, timeout=self._timeout)
            built = self._client.describe_index(self._name, "code", timeout=self._timeout)
            if built["index_type"] != self._index:
                self._client.release_collection(self._name, timeout=self._timeout)
                self._client.drop_index(self._name, "code", timeout=self._timeout)
                self._client.create_index(self._name, self._index_params(self._index), timeout=self._timeout)
                self._client.load_collection(self._name, timeout=self._timeout)

    def _count(self) -> int:
        return int(self._read("query", filter="", output_fields=["count(*)"])[0]["count(*)"])

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _fetch(self, codes: Codes, n: int) -> Iterator[Fetched]:
        batch = max(1, BATCH_RESULTS // n)
        for start in range(0, len(codes), batch):
            answers = self._read(
                "search",
                data=[code.tobytes() for code in codes[start : start + batch]],
                limit=n,
                output_fields=["code"],
                search_params={"metric_type": "HAMMING", "params": {"nprobe": self._nprobe}},
            )
            for hits in answers:
                ids = np.fromiter((hit["id"] for hit in hits), np.int64, len(hits))
                raw = b"".join(_bytes(hit["entity"]["code"]) for hit in hits)
                yield ids, np.frombuffer(raw, np.uint8).reshape(len(hits), codes.shape[1])

    def _lookup(self, ids: Ids) -> Fetched:
        rows: list[Any] = []
        for start in range(0, len(ids), MAX_CANDIDATES):
            part = ids[start : start + MAX_CANDIDATES].tolist()
            rows += self._read("get", ids=part, output_fields=["id", "code"])
        stored = np.fromiter((row["id"] for row in rows), np.int64, len(rows))
        codes = np.frombuffer(b"".join(_bytes(row["code"]) for row in rows), np.uint8)
        return stored, codes.reshape(-1, n_bytes(self.n_bits))

    def _ids(self) -> Ids:
        self.count()  # loads the collection
        parts = []
        with self._connection_errors():
            pages = self._client.query_iterator(
                self._name, batch_size=MAX_CANDIDATES, output_fields=["id"], timeout=self._timeout
            )
            while rows := pages.next():
                parts.append(np.fromiter((row["id"] for row in rows), np.int64, len(rows)))
            pages.close()
        return np.concatenate([np.empty(0, np.int64), *parts])

    def _read(self, method: str, **arguments: Any) -> Any:
        """Call `search`, `query` or `get`; load a collection that is not in memory, as after a restart."""
        call, arguments = getattr(self._client, method), {**arguments, **self._reading}
        with self._connection_errors():
            try:
                return call(self._name, timeout=self._timeout, **arguments)
            except self._milvus.MilvusException as error:
                if error.code != NOT_LOADED:
                    raise
            self._client.load_collection(self._name, timeout=self._timeout)
            return call(self._name, timeout=self._timeout, **arguments)

    def _index_params(self, kind: str) -> Any:
        params = self._client.prepare_index_params()
        more = {"params": {"nlist": self._nlist}} if kind == "BIN_IVF_FLAT" else {}
        params.add_index("code", index_type=kind, metric_type="HAMMING", **more)
        return params

    def _make(self, n_bits: int) -> None:
        """Create the collection with a BIN_FLAT index, and load it."""
        types = self._milvus.DataType
        with self._connection_errors():
            schema = self._client.create_schema(auto_id=False, description=NOTE.format(n_bits))
            schema.add_field("id", types.INT64, is_primary=True)
            schema.add_field("code", types.BINARY_VECTOR, dim=8 * n_bytes(n_bits))
            self._client.create_collection(
                self._name,
                schema=schema,
                index_params=self._index_params("BIN_FLAT"),
                consistency_level="Strong",
                timeout=self._timeout,
            )

    def _look(self) -> int | None:
        with self._connection_errors():
            if not self._client.has_collection(self._name, timeout=self._timeout):
                return None
            described = self._client.describe_collection(self._name, timeout=self._timeout)
        types = self._milvus.DataType
        fields = {field["name"]: field for field in described["fields"]}
        kinds = {name: field["type"] for name, field in fields.items()}
        if kinds.get("id") != types.INT64 or kinds.get("code") != types.BINARY_VECTOR:
            raise ValueError(f"the collection {self._name!r} must have id INT64 and code BINARY_VECTOR, got {kinds}")
        dim = int(fields["code"]["params"]["dim"])
        return noted(described["description"], dim // 8) or dim

    @contextlib.contextmanager
    def _connection_errors(self) -> Iterator[None]:
        """Raise a ConnectionError for a lost connection, as every engine does."""
        try:
            yield
        except self._milvus.MilvusException as error:
            if isinstance(error, self._milvus.exceptions.ConnectError) or error.code == CONNECT_FAILED:
                raise ConnectionError(f"Milvus cannot be reached: {error}") from error
            if error.code == NOT_FOUND:
                raise self._missing() from error
            raise
        except self._rpc.RpcError as error:
            raise ConnectionError(f"Milvus cannot be reached: {error}") from error


def _options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in options.items():
        if value not in OPTIONS.get(name, ()):
            known = ", ".join(f"{known}={value}" for known, values in OPTIONS.items() for value in values)
            raise ValueError(f"options of an address of Milvus must be of {known}, got {name}={value}")
    return options


def _bytes(value: Any) -> bytes:
    """A code as Milvus returns it: bytes, or a list of them."""
    code: bytes = value if isinstance(value, bytes) else value[0]
    return code
