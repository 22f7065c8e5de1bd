"""Page tokens: what a page showed, signed by the service, so that nobody can answer a page that was never shown.

A token holds the whole page and needs no memory of it: any service over the same database reads it, also after a
restart. Its id becomes the key of the page in the log, and a key counts once.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import time
from collections.abc import Callable

import msgspec
import numpy as np

from bitrank.service.collection import SearchQuery
from bitrank.service.settings import TOKEN_LIFETIME_S

MAX_SHOWN = 1000  # items of a page, or of several that continue each other
MAX_TOKEN = 64 * 1024  # characters; a page of 1000 results takes about 15 000
_MAC_BYTES = 16


class PageToken(msgspec.Struct, frozen=True, array_like=True):
    """A page as the service showed it to a client."""

    id: bytes
    expires: int
    client: str
    profile: str
    version: int | None  # None is the candidate
    item: int | None
    code: bytes
    reals: bytes | None  # float32, little-endian, of a query that was a vector
    shown: list[int]
    explored: list[bool]
    teaches: bool = True  # but not where a filter or an offset put any item on the page

    @property
    def query(self) -> SearchQuery:
        """The query of the page."""
        if self.reals is None:
            return SearchQuery(np.frombuffer(self.code, np.uint8)[None], self.item)
        return SearchQuery(np.frombuffer(self.reals, "<f4").astype(np.float32)[None], self.item)


class Signer:
    """Sign and read page tokens.

    Parameters
    ----------
    secret : bytes
        The key of the store.
    clock : callable
        Returns the time in seconds.

    Examples
    --------
    >>> signer = Signer(b"a secret of the store", clock=lambda: 0.0)
    >>> query = SearchQuery(np.uint8([[7]]), 3)
    >>> token = signer.sign(query, "client", "default", 1, [4, 5], [False, True])
    >>> signer.read(token).shown
    [4, 5]
    >>> signer.read(token[:-1] + "A")
    Traceback (most recent call last):
    ValueError: the page token must come from a search of this service, got another
    """

    def __init__(self, secret: bytes, clock: Callable[[], float] = time.time) -> None:
        self._key = hmac.digest(secret, b"page tokens", "sha256")
        self._clock = clock
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(PageToken).decode

    def sign(
        self,
        query: SearchQuery,
        client: str,
        profile: str,
        version: int | None,
        shown: list[int],
        explored: list[bool],
        continued: PageToken | None = None,
        teaches: bool = True,
    ) -> str:
        """Sign a page; one that continues another keeps its id, and begins with the items that it showed."""
        page_id = os.urandom(16) if continued is None else continued.id
        if continued is not None:
            known = set(continued.shown)
            later = [(item, flag) for item, flag in zip(shown, explored, strict=True) if item not in known]
            shown = continued.shown + [item for item, _ in later]
            explored = continued.explored + [flag for _, flag in later]
        is_real = query.vector.dtype.kind == "f"
        page = PageToken(
            page_id,
            int(self._clock()) + TOKEN_LIFETIME_S,
            client,
            profile,
            version,
            query.item,
            query.code.tobytes(),
            query.vector.astype("<f4").tobytes() if is_real else None,
            shown,
            explored,
            teaches and (continued is None or continued.teaches),
        )
        payload = self._encode(page)
        return base64.urlsafe_b64encode(self._mac(payload) + payload).decode()

    def read(self, token: str) -> PageToken:
        """Read a token; a ValueError says that it was not made here, or expired."""
        try:
            raw = base64.b64decode(token, b"-_", validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        mac, payload = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(payload)) or base64.urlsafe_b64encode(raw).decode() != token:
            raise ValueError("the page token must come from a search of this service, got another")
        page = self._decode(payload)
        if page.expires < self._clock():
            raise ValueError(f"the page token must be at most {TOKEN_LIFETIME_S // 3600} hours old, got an older one")
        return page

    def key_of(self, purpose: str) -> bytes:
        """Derive a key for another purpose."""
        return hmac.digest(self._key, purpose.encode(), "sha256")

    def _mac(self, payload: bytes) -> bytes:
        return hmac.digest(self._key, payload, "sha256")[:_MAC_BYTES]
