"""`Protocol`: HTTP connections with limits and deadlines, and a short way for most searches.

uvicorn's own protocol waits for ever for a header, a body or a reader, and keeps a header of any length. Here every
connection has a deadline for what it does now; one sweep per second closes those that missed theirs.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bitrank.service.batching import Answer

MAX_HEADER = 32_768  # bytes of a request line and its headers, and of anything between two parts of a body or after it
HEADER_TIMEOUT_S = 10.0
BODY_TIMEOUT_S = 60.0
WRITE_TIMEOUT_S = 30.0  # for a client that reads nothing
IDLE_TIMEOUT_S = 60.0  # between two requests
MAX_QUICK_BODY = 65_536
_SWEEP_S = 1.0
_NEVER = float("inf")


class Protocol(HttpToolsProtocol):
    """A connection. Its application is an `Application`, and names `quick_search`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.deadline = self.write_deadline = _NEVER
        self._n_bytes = 0  # since the header or a part of the body was complete
        self._in_header = True
        self._quick: bytearray | None = None  # the body so far of a search that takes the short way
        self._quick_search = self.config.app.quick_search  # type: ignore[union-attr]

    # Deadlines

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self.deadline = time.monotonic() + HEADER_TIMEOUT_S
        if not self.server_state.__dict__.get("bitrank_sweeps"):
            self.server_state.__dict__["bitrank_sweeps"] = True
            self.loop.call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """Close all connections that missed their deadline, and come back as long as there are any."""
        now = time.monotonic()
        for connection in list(self.connections):
            if isinstance(connection, Protocol) and min(connection.deadline, connection.write_deadline) < now:
                if connection.cycle is not None:
                    connection.cycle.disconnected = True
                connection.transport.abort()
        if self.connections:
            self.loop.call_later(_SWEEP_S, self._sweep)
        else:
            self.server_state.__dict__["bitrank_sweeps"] = False

    def pause_writing(self) -> None:
        """Wait for a client that reads slowly, and read nothing from it meanwhile."""
        super().pause_writing()
        self.flow.pause_reading()
        self.write_deadline = time.monotonic() + WRITE_TIMEOUT_S

    def resume_writing(self) -> None:
        """Write on."""
        super().resume_writing()
        self.flow.resume_reading()
        self.write_deadline = _NEVER

    def timeout_keep_alive_handler(self) -> None:
        """Do nothing: the sweep closes idle connections."""

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._unset_keepalive_if_required()
        if not self.pipeline:
            self.deadline = time.monotonic() + IDLE_TIMEOUT_S

    # Parsing

    def data_received(self, data: bytes) -> None:
        """Parse what came; a header, chunk extension or trailer that is too long ends the connection."""
        self._n_bytes += len(data)
        super().data_received(data)
        if self._n_bytes > MAX_HEADER and not self.transport.is_closing():
            if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
                self.transport.write(_TOO_LONG)
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, as JSON and with a policy like any other answer."""
        self.transport.write(_refusal(b"400 Bad Request", msg))
        self.transport.close()

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._in_header = True
        self.deadline = time.monotonic() + HEADER_TIMEOUT_S

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; trailers, which come after the body, are no headers."""
        if self._in_header:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Take the short way with searches, and the usual one with everything else."""
        self._n_bytes, self._in_header = 0, False
        self.deadline = time.monotonic() + BODY_TIMEOUT_S
        alone = self.cycle is None or self.cycle.response_complete
        if alone and self.url == b"/search" and self.parser.get_method() == b"POST" and not self.expect_100_continue:
            self._quick = bytearray()
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Keep the body of a search that takes the short way."""
        self._n_bytes = 0
        if self._quick is None:
            super().on_body(body)
            return
        self._quick += body
        if len(self._quick) > MAX_QUICK_BODY:
            self._leave_short_way()

    def on_message_complete(self) -> None:
        """Answer a search, or start on the usual way."""
        self.deadline = _NEVER
        self._n_bytes = 0
        if self._quick is not None:
            self.scope["method"], self.scope["path"], self.scope["query_string"] = "POST", "/search", b""
            self.scope["raw_path"] = b"/search"
            cycle = _QuickCycle(self)
            if self._quick_search.start(self.scope, bytes(self._quick), cycle.answer):
                self._quick, self.cycle = None, cycle  # type: ignore[assignment]
                return
            self._leave_short_way()
        super().on_message_complete()

    def _leave_short_way(self) -> None:
        body, self._quick = bytes(self._quick or b""), None
        super().on_headers_complete()
        if body:
            super().on_body(body)


class _QuickCycle:
    """A request on the short way, as far as the connection must know it: requests behind it wait for its answer."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self.response_started = self.response_complete = self.disconnected = False
        self.keep_alive = protocol.parser.should_keep_alive() and protocol.parser.get_http_version() != "1.0"
        self.message_event = asyncio.Event()

    def answer(self, answer: Answer) -> None:
        """Write the whole answer."""
        self.response_complete = True
        protocol = self._protocol
        transport = protocol.transport
        if self.disconnected or transport.is_closing():
            return
        parts = [b"HTTP/1.1 ", answer.status_line, b"\r\n"]
        for name, value in protocol.server_state.default_headers:
            parts += [name, b": ", value, b"\r\n"]
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        parts += [answer.headers, b"content-length: %d\r\n\r\n" % len(answer.body), answer.body]
        transport.write(b"".join(parts))
        if self.keep_alive:
            protocol.on_response_complete()
        else:
            transport.close()


def _refusal(status_line: bytes, detail: str) -> bytes:
    """Write an answer to what no application has seen; the connection ends with it."""
    body = json.dumps({"detail": detail}).encode()
    head = (
        b"HTTP/1.1 %b\r\ncontent-type: application/json\r\nconnection: close\r\n"
        b"content-security-policy: default-src 'none'\r\nx-content-type-options: nosniff\r\ncontent-length: %d\r\n\r\n"
    )
    return head % (status_line, len(body)) + body


_TOO_LONG = _refusal(
    b"431 Request Header Fields Too Large", f"the header of a request must have at most {MAX_HEADER} bytes, got more"
)
