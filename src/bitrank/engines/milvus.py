"""`MilvusEngine`: codes as BINARY_VECTOR in a collection of Milvus, ranked in two stages.

It stands at the end of the path, where `connect` finds it. Milvus counts differing bits but cannot weigh them, so there
is no exact search.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
import numpy.typing as npt

from bitrank.checks import check_ids
from bitrank.engines.contract import Candidates, Closing, check_add, check_created, check_search
from bitrank.engines.stages import rerank
from bitrank.lazy import import_extra
from bitrank.progress import progress
from bitrank.vocabulary import Codes, Ids, Results, n_bytes

# Milvus returns no more results than this.
MOST_CANDIDATES = 16_384
# It finds a larger one, and then fails to fetch its code.
LARGEST_ID = 2**63 - 2
# Codes and ids of one message; Milvus takes up to 64 MB, with what goes around them.
MESSAGE_BYTES = 48 << 20
BATCH = 65_536  # rows between two moves of the bar
# Candidates with their codes that come back in one message.
BATCH_RESULTS = 100_000
# Codes of a MilvusException: no server; a collection that is not in its memory.
CONNECT_FAILED, NOT_LOADED = 2, 101
DESCRIPTION = "bitrank: codes of {} bits"


class MilvusEngine(Closing):
    """Codes in a collection of Milvus; the methods are those of `Engine`, without an exact search.

    Milvus takes one message whole or not at all, so that an `add` is one message: up to 3 million codes of 64 bits, 2
    million of 128. More than that at once is refused.

    Parameters
    ----------
    url : str
        ``milvus://user:password@host:19530/database``; ``?secure=true`` at the end for TLS.
    name : str
        The collection: letters, digits and underscores. It has the fields ``id`` and ``code``.
    index : "BIN_FLAT" or "BIN_IVF_FLAT"
        What `create` and `optimize` build: a scan of all codes, or of the `nprobe` nearest of `nlist` clusters.
    nlist, nprobe : int
        Of BIN_IVF_FLAT; `nprobe` is used by `search`.
    timeout : float
        Seconds to wait for an answer.
    """

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
        self._milvus = import_extra("pymilvus", "milvus")
        self._rpc = import_extra("grpc", "milvus")
        self._name, self._timeout = name, timeout
        self._index, self._nlist, self._nprobe = index, nlist, nprobe
        self._n_bits: int | None = None
        parts = urlsplit(url)
        scheme = "https" if parse_qs(parts.query).get("secure") == ["true"] else "http"
        with self._says_what_failed():
            self._client = self._milvus.MilvusClient(
                uri=f"{scheme}://{parts.netloc.rpartition('@')[2]}",
                user=unquote(parts.username or ""),
                password=unquote(parts.password or ""),
                db_name=unquote(parts.path.strip("/")),
                timeout=timeout,
            )

    @property
    def n_bits(self) -> int:
        """Bits of a code."""
        return self._made()

    def create(self, n_bits: int) -> None:
        """Make the collection and its index, and load it."""
        n_bits = check_created(n_bits)
        found = self._look()
        if found is None:
            types = self._milvus.DataType
            with self._says_what_failed():
                schema = self._client.create_schema(auto_id=False, description=DESCRIPTION.format(n_bits))
                schema.add_field("id", types.INT64, is_primary=True)
                schema.add_field("code", types.BINARY_VECTOR, dim=8 * n_bytes(n_bits))
                self._client.create_collection(
                    self._name,
                    schema=schema,
                    index_params=self._index_params("BIN_FLAT"),
                    consistency_level="Strong",
                    timeout=self._timeout,
                )
        elif n_bytes(found) != n_bytes(n_bits) or (found != n_bits and found % 8):
            raise ValueError(f"the collection {self._name!r} must hold codes of {n_bits} bits, got one of {found}")
        self._n_bits = n_bits

    def add(self, codes: Codes, ids: npt.ArrayLike) -> None:
        """Add codes, or replace them."""
        codes, checked = check_add(codes, ids, self._made())
        if checked.max(initial=0) > LARGEST_ID:
            raise ValueError(f"ids for Milvus must be up to 2**63 - 2, got {checked.max()}")
        most = MESSAGE_BYTES // (codes.shape[1] + 8)
        if len(checked) > most:
            raise ValueError(f"Milvus takes up to {most} codes of this length at once, got {len(checked)}: add parts")
        rows = []
        for start in progress(range(0, len(checked), BATCH), label="packing"):
            part = zip(checked[start : start + BATCH].tolist(), codes[start : start + BATCH], strict=True)
            rows += [{"id": number, "code": code.tobytes()} for number, code in part]
        if rows:
            with self._says_what_failed():
                self._client.upsert(self._name, rows, timeout=self._timeout)

    def remove(self, ids: npt.ArrayLike) -> None:
        """Remove what is there of these ids."""
        self._made()
        checked = check_ids(ids)
        for start in range(0, len(checked), MOST_CANDIDATES):
            with self._says_what_failed():
                part = checked[start : start + MOST_CANDIDATES].tolist()
                self._client.delete(self._name, ids=part, timeout=self._timeout)

    def optimize(self) -> None:
        """Write what was added to its segments, and build the index that was asked for."""
        self._made()
        with self._says_what_failed():
            self._client.flush(self._name, timeout=self._timeout)
            built = self._client.describe_index(self._name, "code", timeout=self._timeout)
            if built["index_type"] != self._index:
                self._client.release_collection(self._name, timeout=self._timeout)
                self._client.drop_index(self._name, "code", timeout=self._timeout)
                self._client.create_index(self._name, self._index_params(self._index), timeout=self._timeout)
                self._client.load_collection(self._name, timeout=self._timeout)

    def search(
        self, queries: npt.NDArray[Any], k: int, weights: npt.ArrayLike | None = None, candidates: Candidates = None
    ) -> Results:
        """The k nearest codes of each query, in two stages."""
        n_bits = self._made()
        codes, rows, n_candidates = check_search(queries, k, weights, candidates, n_bits)
        if n_candidates is None:
            raise ValueError("Milvus cannot weigh bits, so there is no exact search: give a number of candidates")
        if candidates is None:
            n_candidates = min(n_candidates, MOST_CANDIDATES)
        if max(k, n_candidates) > MOST_CANDIDATES:
            raise ValueError(f"Milvus returns up to {MOST_CANDIDATES} candidates, got k {k} and {n_candidates}")
        return rerank(codes, self._fetch(codes, n_candidates), k, rows, n_bits)

    def count(self) -> int:
        """Number of codes."""
        self._made()
        return int(self._read("query", filter="", output_fields=["count(*)"])[0]["count(*)"])

    def close(self) -> None:
        """Give back the connection."""
        self._client.close()

    def _fetch(self, queries: Codes, n_candidates: int) -> Iterator[tuple[Ids, Codes]]:
        """Ids and codes of the nearest by plain Hamming distance, one query after the other."""
        batch = max(1, BATCH_RESULTS // n_candidates)
        for start in range(0, len(queries), batch):
            found = self._read(
                "search",
                data=[query.tobytes() for query in queries[start : start + batch]],
                limit=n_candidates,
                output_fields=["code"],
                search_params={"metric_type": "HAMMING", "params": {"nprobe": self._nprobe}},
            )
            for hits in found:
                ids = np.fromiter((hit["id"] for hit in hits), np.int64, len(hits))
                raw = b"".join(_bytes(hit["entity"]["code"]) for hit in hits)
                yield ids, np.frombuffer(raw, np.uint8).reshape(len(hits), queries.shape[1])

    def _read(self, method: str, **asked: Any) -> Any:
        """What a search or a query answers; a collection that is not in memory, as after a restart, is loaded."""
        call = getattr(self._client, method)
        with self._says_what_failed():
            try:
                return call(self._name, timeout=self._timeout, **asked)
            except self._milvus.MilvusException as error:
                if error.code != NOT_LOADED:
                    raise
            self._client.load_collection(self._name, timeout=self._timeout)
            return call(self._name, timeout=self._timeout, **asked)

    def _index_params(self, kind: str) -> Any:
        params = self._client.prepare_index_params()
        more = {"params": {"nlist": self._nlist}} if kind == "BIN_IVF_FLAT" else {}
        params.add_index("code", index_type=kind, metric_type="HAMMING", **more)
        return params

    def _made(self) -> int:
        if self._n_bits is None:
            self._n_bits = self._look()
        if self._n_bits is None:
            raise ValueError(f"there is no collection {self._name!r}: make it with create(n_bits)")
        return self._n_bits

    def _look(self) -> int | None:
        """Bits of a code as the server says it, or None where there is no such collection."""
        with self._says_what_failed():
            if not self._client.has_collection(self._name, timeout=self._timeout):
                return None
            described = self._client.describe_collection(self._name, timeout=self._timeout)
        types = self._milvus.DataType
        fields = {field["name"]: field for field in described["fields"]}
        kinds = {name: field["type"] for name, field in fields.items()}
        if kinds.get("id") != types.INT64 or kinds.get("code") != types.BINARY_VECTOR:
            raise ValueError(f"the collection {self._name!r} must have id INT64 and code BINARY_VECTOR, got {kinds}")
        dim = int(fields["code"]["params"]["dim"])
        said = re.fullmatch(DESCRIPTION.format(r"(\d+)"), described["description"])
        return int(said[1]) if said and 8 * n_bytes(int(said[1])) == dim else dim

    @contextlib.contextmanager
    def _says_what_failed(self) -> Iterator[None]:
        """A lost connection is a ConnectionError, as in every engine."""
        try:
            yield
        except self._milvus.MilvusException as error:
            if isinstance(error, self._milvus.exceptions.ConnectError) or error.code == CONNECT_FAILED:
                raise ConnectionError(f"Milvus cannot be reached: {error}") from error
            raise
        except self._rpc.RpcError as error:
            raise ConnectionError(f"Milvus cannot be reached: {error}") from error


def _bytes(value: Any) -> bytes:
    """A code as Milvus gives it: bytes, or a list that holds them."""
    found: bytes = value if isinstance(value, bytes) else value[0]
    return found
