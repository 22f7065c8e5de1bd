"""`Clients`: who sends a request, by address."""

from __future__ import annotations

import hmac
import ipaddress

from bitrank.service.asgi import Scope

MAX_NAMES = 10_000  # names that are remembered


class Clients:
    """Names of clients.

    A name is a keyed hash of the address, so that the log holds no addresses. An IPv6 address counts by its network of
    64 bits, which is what one subscriber has.

    Examples
    --------
    >>> clients = Clients(b"a secret of the store")
    >>> clients.name("192.0.2.1") == clients.name("192.0.2.2")
    False
    >>> clients.name("2001:db8::1") == clients.name("2001:db8::2")
    True
    """

    def __init__(self, secret: bytes) -> None:
        self._key = hmac.digest(secret, b"clients", "sha256")
        self._names: dict[str, str] = {}

    def of(self, scope: Scope) -> str:
        """Name the client of a request."""
        address = scope["client"][0] if scope.get("client") else ""
        name = self._names.get(address)
        if name is None:
            if len(self._names) >= MAX_NAMES:
                self._names.clear()
            name = self._names[address] = self.name(address)
        return name

    def name(self, address: str) -> str:
        """Name the client at an address."""
        return hmac.digest(self._key, _network(address).encode(), "sha256")[:8].hex()


def _network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed.packed[:8] + bytes(8), 64)))
