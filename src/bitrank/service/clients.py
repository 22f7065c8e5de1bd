"""`Clients`: who sends a request, by address."""

from __future__ import annotations

import hmac
import ipaddress


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
