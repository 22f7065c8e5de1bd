"""Names of the ASGI interface, and a short answer."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


FAILED = b'{"detail":"the service failed; its log says more"}'


def header(scope: Scope, name: bytes) -> bytes:
    """Return the first header of a name, or nothing."""
    for known, value in scope["headers"]:
        if known == name:
            return bytes(value)
    return b""


def unreachable(error: Exception) -> bytes:
    """Write the body of an answer that needs an engine which does not answer."""
    detail = f"the engine cannot answer now, and nothing was changed by this request: {error!s:.200}"
    return json.dumps({"detail": detail}).encode()


async def answer_problem(send: Send, status: int, detail: str) -> None:
    """Answer with what went wrong, as JSON."""
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b'Basic realm="bitrank", charset="UTF-8"'))
    if status in (429, 503):
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
