"""`USearchEngine`: learned weights on a USearch index of bits, one that is there already or a new one.

USearch finds candidates by plain Hamming distance in its graph, and they are ranked here; it cannot weigh bits itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
import numpy.typing as npt

from bitrank.checks import check_ids
from bitrank.engines.contract import Candidates, Closing, check_add, check_created, check_search
from bitrank.engines.stages import rerank
from bitrank.lazy import import_extra
from bitrank.progress import progress
from bitrank.vocabulary import Codes, Ids, Results, n_bytes

# Codes added at once.
BATCH = 10_000


class USearchEngine(Closing):
    """Codes in a USearch index; the methods are those of `Engine`, without an exact search.

    Parameters
    ----------
    source : str or usearch.index.Index
        ``usearch://`` for a new one in memory, ``usearch:///path/to/file`` for a file, which every change rewrites, or
        the index itself, of ``dtype="b1"`` and ``metric="hamming"``. ``?scan=true`` at the end is the option `scan`.
    name : str
        Not used: a file holds one index.
    n_bits : int, optional
        Bits of a code; those of the index by default.
    scan : bool
        Find the candidates by comparing all codes; the graph, which is faster and may miss some, by default.

    Examples
    --------
    >>> from bitrank.codes import pack
    >>> from usearch.index import Index
    >>> mine = Index(ndim=8, metric="hamming", dtype="b1")
    >>> keys = mine.add(np.array([7, 8, 9]), pack([[1, 0, 1], [1, 1, 0], [0, 0, 1]]))
    >>> USearchEngine(mine, n_bits=3).search(pack([[1, 0, 0]]), k=2, weights=[4, 2, 1], candidates=3).ids
    array([[7, 8]])
    """

    def __init__(self, source: Any, name: str = "codes", *, n_bits: int | None = None, scan: bool = False) -> None:
        self._usearch = import_extra("usearch.index", "usearch")
        self._path: Path | None = None
        self._n_bits = 0
        self._index: Any = None
        self._scan = scan
        if isinstance(source, str):
            parts = urlsplit(source)
            if parts.netloc:
                raise ValueError(f"the address must be usearch:// or usearch:///path/to/file, got {source!r}")
            self._scan = scan or parse_qs(parts.query).get("scan") == ["true"]
            self._path = Path(unquote(parts.path)) if parts.path else None
            if self._path is not None and self._path.exists():
                self._use(self._read(self._path), n_bits)
        else:
            self._use(source, n_bits)

    @property
    def n_bits(self) -> int:
        """Bits of a code."""
        self._made()
        return self._n_bits

    def create(self, n_bits: int) -> None:
        """Make an index, unless there is one of codes of as many bytes."""
        n_bits = check_created(n_bits)
        if self._index is not None:
            return self._use(self._index, n_bits)
        self._use(self._usearch.Index(ndim=8 * n_bytes(n_bits), metric="hamming", dtype="b1"), n_bits)
        return self._changed()

    def add(self, codes: Codes, ids: npt.ArrayLike) -> None:
        """Add codes, or replace them."""
        index = self._made()
        codes, checked = check_add(codes, ids, self._n_bits)
        if len(checked):
            self._remove(checked)
            for start in progress(range(0, len(checked), BATCH), label="adding"):
                index.add(checked[start : start + BATCH], codes[start : start + BATCH])
            self._changed()

    def remove(self, ids: npt.ArrayLike) -> None:
        """Remove what is there of these ids."""
        self._made()
        self._remove(check_ids(ids))
        self._changed()

    def optimize(self) -> None:
        """Nothing to do: the graph grows with every code."""
        self._made()

    def search(
        self, queries: npt.NDArray[Any], k: int, weights: npt.ArrayLike | None = None, candidates: Candidates = None
    ) -> Results:
        """The k nearest codes of each query, in two stages."""
        self._made()
        codes, rows, n_candidates = check_search(queries, k, weights, candidates, self._n_bits)
        if n_candidates is None:
            raise ValueError("USearch cannot weigh bits, so there is no exact search: give a number of candidates")
        return rerank(codes, self._fetch(codes, n_candidates), k, rows, self._n_bits)

    def count(self) -> int:
        """Number of codes."""
        return len(self._made())

    def close(self) -> None:
        """Let go of the index."""
        self._index = None

    def _made(self) -> Any:
        if self._index is None:
            raise ValueError("there is no index yet: make it with create(n_bits)")
        return self._index

    def _use(self, index: Any, n_bits: int | None) -> None:
        if not isinstance(index, self._usearch.Index):
            raise ValueError(f"source must be an address or a usearch.index.Index, got {type(index)}")
        if index.dtype != self._usearch.ScalarKind.B1 or index.metric_kind != self._usearch.MetricKind.Hamming:
            raise ValueError(f"an index of b1 by hamming was expected, got {index.dtype} by {index.metric_kind}")
        n_bits = index.ndim if n_bits is None else check_created(n_bits)
        if n_bytes(n_bits) != n_bytes(index.ndim):
            raise ValueError(f"an index of codes of {n_bits} bits was expected, got one of {index.ndim}")
        self._index, self._n_bits = index, n_bits

    def _read(self, path: Path) -> Any:
        index = self._usearch.Index.restore(os.fspath(path))
        if index is None:
            raise ValueError(f"{path} must be a USearch index, got another file")
        return index

    def _changed(self) -> None:
        """The file is replaced in one step."""
        if self._path is not None:
            beside = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
            self._made().save(os.fspath(beside))
            beside.replace(self._path)

    def _remove(self, ids: Ids) -> None:
        there = ids[self._made().contains(ids)] if len(ids) else ids
        if len(there):
            self._made().remove(there)

    def _fetch(self, queries: Codes, n_candidates: int) -> Iterator[tuple[Ids, Codes]]:
        """Ids and codes of the nearest by plain Hamming distance, one query after the other."""
        index = self._made()
        n = min(n_candidates, len(index))
        for query in queries:
            if not n:
                yield np.empty(0, np.int64), np.empty((0, queries.shape[1]), np.uint8)
                continue
            ids = index.search(query, n, exact=self._scan).keys.astype(np.int64)
            yield ids, index.get(ids)
