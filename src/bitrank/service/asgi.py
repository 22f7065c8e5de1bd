"""The id of a request, its headers, and short answers, without the costs of a framework."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextvars import ContextVar

from starlette.types import Scope, Send

REQUEST: ContextVar[str] = ContextVar("request", default="")  # the id of the request that is answered
FAILED = "the service failed; its log says more"


def header(scope: Scope, name: bytes) -> bytes:
    """Return the first header of a name, or nothing."""
    for known, value in scope["headers"]:
        if known == name:
            return bytes(value)
    return b""


async def answer(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Answer with JSON."""
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def answer_problem(send: Send, status: int, detail: str) -> None:
    """Answer with what went wrong, as JSON."""
    headers = []
    if status == 401:
        headers.append((b"www-authenticate", b'Basic realm="bitrank", charset="UTF-8"'))
    if status in (429, 503):
        headers.append((b"retry-after", b"1"))
    await answer(send, status, json.dumps({"detail": detail}).encode(), headers)
