"""`Clients`: who sends a request, by address or by a signed session cookie."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from http.cookies import CookieError, SimpleCookie

from starlette.types import Scope

from bitrank.service.asgi import header

COOKIE = "bitrank_session"
MAX_NAMES = 10_000  # names that are remembered
SESSIONS = 8  # of one address, however often it asks for one
CLIENTS_OF_48 = 16  # that a network of 48 bits, which many subscribers have whole, is shared by at most

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Clients:
    """Addresses and names of clients.

    A name is a keyed hash of the address, so that the log holds no addresses. An IPv6 address counts by its network of
    64 bits, which every subscriber has; and those within 48 bits, which some have, share sixteen names. Session
    cookies of one address are eight different ones at most: a keyed hash of the address makes them, so that no process
    has to count.

    Parameters
    ----------
    secret : bytes
        The key of the store.
    proxies : sequence of str
        Addresses or networks of proxies whose `X-Forwarded-For` is believed. That of anybody else is not read.
    sessions : bool
        Name a client by the cookie that the page gave it, where it has one.

    Examples
    --------
    >>> clients = Clients(b"a secret of the store")
    >>> clients.name("192.0.2.1") == clients.name("192.0.2.2")
    False
    >>> clients.name("2001:db8::1") == clients.name("2001:db8::2")
    True
    """

    def __init__(self, secret: bytes, proxies: tuple[str, ...] = (), sessions: bool = False) -> None:
        self._key = hmac.digest(secret, b"clients", "sha256")
        self._proxies = [ipaddress.ip_network(proxy) for proxy in proxies]
        self._sessions = sessions
        self._names: dict[str, str] = {}

    def address(self, scope: Scope) -> str:
        """Return the address of a request's client: of the connection, or the last that no configured proxy has."""
        peer = scope["client"][0] if scope.get("client") else ""
        if not self._proxies or not self._is_proxy(peer):
            return str(peer)
        forwarded = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
        for part in reversed(forwarded.decode("latin-1").split(",")):
            hop = _without_port(part.strip())
            if _parsed(hop) is None:
                return str(peer)  # earlier entries are untrusted
            peer = hop
            if not self._is_proxy(hop):
                break
        return str(peer)

    def network(self, scope: Scope) -> str:
        """Return the address of a request's client, or its network of 64 bits."""
        return _network(self.address(scope))

    def of(self, scope: Scope) -> str:
        """Name the client of a request."""
        if self._sessions and (session := self._session(scope)) is not None:
            return f"session-{session}"
        address = self.address(scope)
        name = self._names.get(address)
        if name is None:
            if len(self._names) >= MAX_NAMES:
                self._names.clear()
            name = self._names[address] = self.name(address)
        return name

    def name(self, address: str) -> str:
        """Name the client at an address."""
        network = _network(address)
        if network.endswith("/64"):
            around = ipaddress.ip_network(network).supernet(new_prefix=48)
            network = f"{around} {self._hash(network)[0] % CLIENTS_OF_48}"
        return self._hash(network)[:8].hex()

    def _hash(self, text: str) -> bytes:
        return hmac.digest(self._key, text.encode(), "sha256")

    def new_cookie(self, scope: Scope) -> str | None:
        """Return a session cookie for a client that should have one and has none."""
        if not self._sessions or self._session(scope) is not None:
            return None
        session = self._hash(f"session {secrets.randbelow(SESSIONS)} of {self.network(scope)}")[:8].hex()
        return f"{COOKIE}={session}.{self._signature(session)}; Path=/; Max-Age=31536000; HttpOnly; SameSite=Strict"

    def _session(self, scope: Scope) -> str | None:
        """Read the session of a request; None where it has no cookie that was signed here."""
        try:
            cookies = SimpleCookie(header(scope, b"cookie").decode("latin-1"))
        except CookieError:
            return None
        session, _, signature = cookies[COOKIE].value.partition(".") if COOKIE in cookies else ("", "", "")
        signed = hmac.compare_digest(signature.encode(), self._signature(session).encode())
        return session if session and signed else None

    def _signature(self, session: str) -> str:
        return self._hash(f"signature of {session}")[:16].hex()

    def _is_proxy(self, address: str) -> bool:
        parsed = _parsed(address)
        return parsed is not None and any(parsed in network for network in self._proxies)


def _without_port(hop: str) -> str:
    """Drop the port that some proxies write behind an address."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop


def _parsed(address: str) -> Address | None:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return None
    return (parsed.ipv4_mapped or parsed) if parsed.version == 6 else parsed


def _network(address: str) -> str:
    parsed = _parsed(address)
    if parsed is None or parsed.version == 4:
        return address if parsed is None else str(parsed)
    return str(ipaddress.ip_network((parsed.packed[:8] + bytes(8), 64)))
