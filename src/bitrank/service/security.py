"""`Guard`: ASGI middleware that checks host, origin, token, rate and body size, and adds security headers."""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bitrank.service.asgi import FAILED, answer_problem
from bitrank.service.clients import Clients
from bitrank.service.settings import LOOPBACK, Settings

logger = logging.getLogger("bitrank.service")

READERS_MAY_POST = ("/search", "/search/image", "/feedback")
OPEN = ("/livez", "/readyz", "/healthz")  # to everybody, as often as they like
MAX_BODY = 8 * 2**20
SMALL_BODY = 2**16  # bytes of a body that are not counted among those in flight
MAX_IN_FLIGHT, MAX_OF_CLIENT = 64 * 2**20, 16 * 2**20  # bytes of bodies, per worker and of one client
MAX_CLIENTS = 10_000  # clients whose rate is remembered; the longest silent is forgotten first


class Guard:
    """Refuse requests that may not pass, and add security headers to every answer.

    Parameters
    ----------
    app : ASGI application
    settings : Settings
        A token is required of every request but those for health, as a bearer token or as the password of basic
        authentication.
        Where there is an admin token, requests that change anything but the log of pages need that one. Without any,
        only requests addressed to a loopback name are answered: a page on another host cannot reach the service through
        a host name of its own that points here. The rate is counted per client address, or network of 64 bits.
    clients : Clients
    """

    def __init__(self, app: ASGIApp, settings: Settings, clients: Clients, max_body: int = MAX_BODY) -> None:
        self._app, self._clients, self._max_body = app, clients, max_body
        self._token, self._admin_token = settings.token, settings.admin_token
        self._is_open = self._token is None and self._admin_token is None
        self._rate = Rate(settings.rate) if settings.rate else None
        self._in_flight: Counter[str] = Counter()  # bytes of bodies by client, beyond small ones
        pictures = " ".join(["'self'", "data:", "blob:", *settings.image_origins])
        policy = (
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; font-src 'self'; "
            f"img-src {pictures}; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        )
        self._headers = [
            (b"content-security-policy", policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"x-frame-options", b"DENY"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cross-origin-resource-policy", b"same-origin"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # The status of the answer, once it has begun; the refusal of the body; its bytes, and those counted in flight.
        started, too_large, size, held, client = 0, None, 0, 0, ""

        async def guarded_send(message: Message) -> None:
            nonlocal started
            if too_large is not None:
                return  # the application's answer to the truncated body
            if message["type"] == "http.response.start":
                started = message["status"]
                message["headers"] = [*message.get("headers", []), *self._headers]
            await send(message)

        async def receive_within_limit() -> Message:
            nonlocal size, too_large, held, client
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._max_body:
                too_large = 413, self._too_large()
            elif size > SMALL_BODY:
                client = client or self._clients.network(scope)
                self._in_flight[client] += size - held
                held = size
                if self._in_flight[client] > MAX_OF_CLIENT or self._in_flight.total() > MAX_IN_FLIGHT:
                    too_large = 503, "too many large bodies arrive at once: try again in a second"
            if too_large is not None:
                raise _BodyTooLargeError
            return message

        refused = self._refusal(scope)
        if refused is not None:
            await answer_problem(guarded_send, *refused)
            return
        try:
            await self._app(scope, receive_within_limit, guarded_send)
        except _BodyTooLargeError:
            pass
        except Exception as error:
            if started and started != 500:  # most often a client that has gone
                logger.warning("%s %s failed after its answer began: %s", scope["method"], scope["path"], error)
            else:
                logger.exception("%s %s failed", scope["method"], scope["path"])
            if not started:
                await answer_problem(guarded_send, 500, FAILED)
        finally:
            if held:
                self._in_flight[client] -= held
                self._in_flight += Counter()  # forgets clients without any
        if too_large is not None and not started:
            problem, too_large = too_large, None
            await answer_problem(guarded_send, *problem)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return the status and the reason that a request is refused with; None lets it pass."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        if self._is_open and _host_name(host) not in LOOPBACK:
            return 421, f"without a token this service answers requests to localhost only, not to {host!r:.80}"
        if scope["path"] in OPEN:
            return None
        if self._rate is not None and not self._rate.allows(self._clients.network(scope)):
            return 429, "too many requests from this address: try again in a second"
        if not self._is_open:
            credentials = _credentials(headers.get(b"authorization", ""))
            is_admin, is_reader = _equal(credentials, self._admin_token), _equal(credentials, self._token)
            if not is_admin and not is_reader:
                return 401, "a token is needed: Authorization: Bearer TOKEN, or the token as the password of any user"
            if not is_admin and self._admin_token is not None and _needs_admin(scope):
                return 403, "this needs the admin token"
        # Browsers name the page a request comes from; pages of other hosts may not change anything here.
        origin = headers.get(b"origin")
        foreign = origin is not None and origin.partition("://")[2] != host
        if scope["method"] not in ("GET", "HEAD") and (foreign or headers.get(b"sec-fetch-site") == "cross-site"):
            return 403, "requests from pages of other hosts are refused"
        length = headers.get(b"content-length", "0")
        if length.isdigit() and int(length) > self._max_body:
            return 413, self._too_large()
        return None

    def _too_large(self) -> str:
        return f"the body must have at most {self._max_body} bytes, got more"


class Rate:
    """A token bucket per client, filled at `rate` per second up to two seconds' worth.

    Examples
    --------
    >>> rate = Rate(1, clock=iter([0.0, 0.0, 0.0, 5.0]).__next__)
    >>> [rate.allows("a") for _ in range(4)]
    [True, True, False, True]
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, max(1.0, 2 * rate), clock
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, client: str) -> bool:
        """Return whether one more request of a client is within its rate; if so, count it."""
        now = self._clock()
        left, last = self._clients.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - last) * self._rate)
        allowed = left >= 1
        self._clients[client] = (left - allowed, now)
        if len(self._clients) > MAX_CLIENTS:
            self._clients.popitem(last=False)
        return allowed


class _BodyTooLargeError(Exception):
    pass


def _needs_admin(scope: Scope) -> bool:
    """Tell requests that change items, profiles or versions, or import pages, from searches and feedback."""
    return scope["method"] not in ("GET", "HEAD", "OPTIONS") and scope["path"] not in READERS_MAY_POST


def _credentials(authorization: str) -> str | None:
    """Read the token of a request, sent as a bearer token or as a password."""
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return credentials
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(credentials, validate=True).decode("latin-1").partition(":")[2]
        except (binascii.Error, ValueError):
            return None
    return None


def _equal(credentials: str | None, token: str | None) -> bool:
    if credentials is None or token is None:
        return False
    return hmac.compare_digest(credentials.encode("latin-1", "replace"), token.encode("latin-1", "replace"))


def _host_name(host: str) -> str:
    """Return the host of a Host header without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
