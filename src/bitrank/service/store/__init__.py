"""What survives a crash: items, logged pages, versions and gate decisions in one database.

The index, the learners and the active weights in memory are rebuilt from it. Every method is one transaction, and what
it returns is committed.
"""

from __future__ import annotations

from bitrank.service.store.database import Database
from bitrank.service.store.gate_log import GateLog
from bitrank.service.store.items import ItemStore
from bitrank.service.store.page_log import PageLog
from bitrank.service.store.profiles import ProfileStore


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

    def __init__(self, url: str, n_bits: int) -> None:
        self._database = Database(url, n_bits)
        self.secret = self._database.secret
        self.items = ItemStore(self._database)
        self.pages = PageLog(self._database)
        self.profiles = ProfileStore(self._database)
        self.gate = GateLog(self._database)

    def close(self) -> None:
        """Close all connections."""
        self._database.close()
