"""What survives a crash: items, logged pages, versions, gate decisions and candidates in one database.

The index, the learners and the active weights in memory are rebuilt from it. Every method is one transaction, and what
it returns is committed.
"""

from __future__ import annotations

import numpy as np

from bitrank.core.types import n_bytes
from bitrank.index import Index
from bitrank.service.engine_index import EngineIndex
from bitrank.service.store.candidates import CandidateStore
from bitrank.service.store.clients import ClientStore
from bitrank.service.store.database import Database
from bitrank.service.store.gate_log import GateLog
from bitrank.service.store.items import ItemStore
from bitrank.service.store.page_log import PageLog
from bitrank.service.store.profiles import ProfileStore
from bitrank.service.store.requests import RequestLog

N_REMEMBERED = 64  # items by which a collection is known again


class Store:
    """All reads and writes of the service, on SQLite or PostgreSQL.

    Examples
    --------
    >>> from bitrank.service.store.items import Item
    >>> store = Store("sqlite:///store.db", n_bits=16)
    >>> store.items.add([Item(7, False, b"ab", "seven", None, {})])
    >>> [item.title for item in store.items.changed(after=0)[1]]
    ['seven']
    >>> store.close()
    """

    def __init__(self, url: str, n_bits: int | None = None) -> None:
        self._database = Database(url, n_bits)
        self.secret, self.n_bits = self._database.secret, self._database.n_bits
        self.requests = RequestLog(self._database)
        self.items = ItemStore(self._database)
        self.pages = PageLog(self._database)
        self.profiles = ProfileStore(self._database)
        self.gate = GateLog(self._database)
        self.candidates = CandidateStore(self._database)
        self.clients = ClientStore(self._database)

    def check_collection(self, index: Index | EngineIndex) -> None:
        """Check that the database belongs to this index, and remember a sample of its items for the next time.

        An index that was built again, with some items more or fewer, still is the same collection: half of the sample
        that was remembered last must be in it.
        """
        if len(index) == 0:
            return
        all_ids, width = np.sort(index.ids), n_bytes(index.n_bits)
        ids = all_ids[np.unique(np.linspace(0, len(all_ids) - 1, N_REMEMBERED).astype(np.int64))]
        sample = ids.astype("<i8").tobytes() + index.codes(ids).tobytes()
        kept = self._database.remember("sample", sample)
        n = len(kept) // (8 + width)
        kept_ids = np.frombuffer(kept, "<i8", n)
        kept_codes = np.frombuffer(kept, np.uint8, offset=8 * n).reshape(n, width)
        present = np.isin(kept_ids, all_ids)
        same = int((index.codes(kept_ids[present]) == kept_codes[present]).all(axis=1).sum())
        if 2 * same < n:
            raise ValueError(
                f"the database must be that of this collection, got one of another: {same} of {n} of its items are the "
                "same; choose another with --data or --db"
            )
        if sample != kept:
            self._database.replace("sample", sample)

    def close(self) -> None:
        """Close all connections."""
        self._database.close()
