"""What survives a crash: items, logged pages, versions, gate decisions and candidates in one database.

The index, the learners and the active weights in memory are rebuilt from it. Every method is one transaction, and what
it returns is committed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bitrank.core.types import n_bytes
from bitrank.index import Index
from bitrank.service.engine_index import EngineIndex
from bitrank.service.store.candidates import CandidateStore
from bitrank.service.store.clients import ClientStore
from bitrank.service.store.database import Database
from bitrank.service.store.gate_log import GateLog
from bitrank.service.store.items import ItemStore
from bitrank.service.store.judgements import JudgementStore
from bitrank.service.store.page_log import PageLog
from bitrank.service.store.profiles import ProfileStore
from bitrank.service.store.requests import RequestLog

N_REMEMBERED = 64  # items by which a collection is known again


class Store:
    """All reads and writes of the service, on SQLite or PostgreSQL.

    Parameters
    ----------
    url : str
    n_bits : int, optional
        Bits per code; those of the database by default.
    index : Index or EngineIndex, optional
        The collection that the database must belong to. A sample of its items is remembered for the next time. An index
        that was built again, with some items more or fewer, still is the same collection: half of the sample that was
        remembered last must be in it.

    Examples
    --------
    >>> from bitrank.service.store.items import Item
    >>> store = Store("sqlite:///store.db", n_bits=16)
    >>> store.items.add([Item(7, False, b"ab", "seven", None, {})])
    >>> [item.title for item in store.items.changed(after=0)[1]]
    ['seven']
    >>> store.close()
    """

    def __init__(self, url: str, n_bits: int | None = None, index: Index | EngineIndex | None = None) -> None:
        known = index is not None and len(index) > 0
        self.database = Database(url, n_bits, partial(_check_sample, index) if known else None)
        self.secret, self.n_bits = self.database.secret, self.database.n_bits
        self.requests = RequestLog(self.database)
        self.items = ItemStore(self.database)
        self.judgements = JudgementStore(self.database)
        self.pages = PageLog(self.database)
        self.profiles = ProfileStore(self.database)
        self.gate = GateLog(self.database)
        self.candidates = CandidateStore(self.database)
        self.clients = ClientStore(self.database)
        if known:
            self.database.keep_sample("sample", _sample_of(index))

    def close(self) -> None:
        """Close all connections."""
        self.database.close()


def _sample_of(index: Any) -> bytes:
    """Ids of some items, evenly, and their codes."""
    ids = index.ids
    ids = ids[np.unique(np.linspace(0, len(ids) - 1, N_REMEMBERED).astype(np.int64))]
    return bytes(ids.astype("<i8").tobytes() + index.codes(ids).tobytes())


def _check_sample(index: Any, kept: bytes) -> None:
    """Check that an index holds half of a sample."""
    width = n_bytes(index.n_bits)
    n = len(kept) // (8 + width)
    ids, codes = np.frombuffer(kept, "<i8", n), np.frombuffer(kept, np.uint8, offset=8 * n).reshape(n, width)
    present = np.isin(ids, index.ids)
    same = int((index.codes(ids[present]) == codes[present]).all(axis=1).sum())
    if 2 * same < n:
        raise ValueError(
            f"the database must be that of this collection, got one of another: {same} of {n} of its items are the "
            "same; choose another with --data or --db"
        )
