"""`USearchEngine`: learned weights on a USearch index of bits, the caller's or a new one.

USearch finds candidates by plain Hamming distance; it cannot weigh bits, so there is no exact search.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import numpy as np

from bitrank.core.lazy import import_extra
from bitrank.core.progress import progress
from bitrank.core.types import Codes, Ids, n_bytes
from bitrank.engines.local import LocalEngine
from bitrank.engines.stages import Fetched

# Codes added per call of USearch.
BATCH = 10_000


class USearchEngine(LocalEngine):
    """Codes in a USearch index; searched with ``method="rerank"`` only.

    Parameters
    ----------
    source : str or usearch.index.Index
        ``usearch://`` for a new index in memory, ``usearch:///path/to/file`` for a file that every change rewrites, or
        an index of ``dtype="b1"`` and ``metric="hamming"``. ``?scan=true`` in an address sets `scan`.
    name : str
        Ignored: a file holds one index.
    n_bits : int, optional
        Bits per code; those of the index by default.
    scan : bool
        Compare all codes to find the candidates; by default the graph finds them faster and may miss some.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> from usearch.index import Index
    >>> index = Index(ndim=8, metric="hamming", dtype="b1")
    >>> keys = index.add(np.array([7, 8, 9]), pack([[1, 0, 1], [1, 1, 0], [0, 0, 1]]))
    >>> USearchEngine(index, n_bits=3).search(pack([[1, 0, 0]]), k=2, weights=[4, 2, 1], method="rerank").ids
    array([[7, 8]])
    """

    _scheme = "usearch"
    _no_exact: ClassVar[str | None] = "USearch, which cannot weigh bits"

    def __init__(self, source: Any, name: str = "codes", *, n_bits: int | None = None, scan: bool = False) -> None:
        self._usearch = import_extra("usearch.index", "usearch")
        address_scans = isinstance(source, str) and parse_qs(urlsplit(source).query).get("scan") == ["true"]
        self._compares_all = scan or address_scans
        super().__init__(source, n_bits)

    def _add(self, codes: Codes, ids: Ids) -> None:
        if len(ids):
            self._drop(ids)
            for start in progress(range(0, len(ids), BATCH), label="adding codes"):
                self._index.add(ids[start : start + BATCH], codes[start : start + BATCH])
            self._save()

    def _count(self) -> int:
        return len(self._open())

    def _fetch(self, codes: Codes, n: int) -> Iterator[Fetched]:
        index = self._open()
        n = min(n, len(index))
        for code in codes:
            if not n:
                yield np.empty(0, np.int64), np.empty((0, codes.shape[1]), np.uint8)
                continue
            ids = index.search(code, n, exact=self._compares_all).keys.astype(np.int64)
            yield ids, index.get(ids)

    def _ids(self) -> Ids:
        index = self._open()
        return np.asarray(index.keys, np.int64) if len(index) else np.empty(0, np.int64)

    def _lookup(self, ids: Ids) -> Fetched:
        index = self._open()
        stored = ids[index.contains(ids)]
        codes = np.asarray(index.get(stored), np.uint8) if len(stored) else np.empty(0, np.uint8)
        return stored, codes.reshape(len(stored), n_bytes(self._n_bits))

    def _new(self, n_bits: int) -> Any:
        return self._usearch.Index(ndim=n_bits, metric="hamming", dtype="b1")

    def _bits_of(self, index: Any) -> int:
        if not isinstance(index, self._usearch.Index):
            raise ValueError(f"source must be an address or a usearch.index.Index, got {type(index)}")
        if index.dtype != self._usearch.ScalarKind.B1 or index.metric_kind != self._usearch.MetricKind.Hamming:
            raise ValueError(f"source must be an index of b1 by hamming, got {index.dtype} by {index.metric_kind}")
        return int(index.ndim)

    def _read(self, path: Path) -> Any:
        index = self._usearch.Index.restore(os.fspath(path))
        if index is None:
            raise ValueError(f"{path} must be a USearch index, got another file")
        return index

    def _write(self, path: str) -> None:
        self._open().save(path)

    def _drop(self, ids: Ids) -> None:
        stored = ids[self._open().contains(ids)] if len(ids) else ids
        if len(stored):
            self._open().remove(stored)
