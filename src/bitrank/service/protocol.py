"""`Protocol`: HTTP connections with limits and deadlines.

uvicorn's own protocol waits for ever for a header, a body or a reader, and keeps a header of any length. Here every
connection has a deadline for what it does now; one sweep per second closes those that missed theirs.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEADER = 32_768  # bytes of a request line and its headers, and of anything between two parts of a body or after it
HEADER_TIMEOUT_S = 10.0
BODY_TIMEOUT_S = 60.0
WRITE_TIMEOUT_S = 30.0  # for a client that reads nothing
IDLE_TIMEOUT_S = 60.0  # between two requests
_PART = 4096  # bytes that are parsed at once: a header of one read must not be longer than any other
_SWEEP_S = 1.0
_NEVER = float("inf")


class Protocol(HttpToolsProtocol):
    """A connection."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.deadline = self.write_deadline = _NEVER
        self._n_bytes = 0  # since the header or a part of the body was complete
        self._in_header = True

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
        """Parse what came, part by part; a header, chunk extension or trailer that is too long ends the connection."""
        for start in range(0, len(data), _PART):
            part = data[start : start + _PART]
            self._n_bytes += len(part)
            super().data_received(part)
            if self.transport.is_closing():
                return
            if self._n_bytes > MAX_HEADER:
                if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
                    self.transport.write(_TOO_LONG)
                self.transport.close()
                return

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
        """Start a request."""
        self._n_bytes, self._in_header = 0, False
        self.deadline = time.monotonic() + BODY_TIMEOUT_S
        super().on_headers_complete()
        self.cycle.transport = _Joined(self.transport, self.loop)  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._n_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Take as long as the answer needs."""
        self.deadline, self._n_bytes = _NEVER, 0
        super().on_message_complete()


class _Joined:
    """The transport of one answer, of which the head and the first part of the body leave in one call of the system."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self.is_closing = transport.is_closing
        self._held, self._sent = b"", False

    def write(self, data: bytes) -> None:
        """Hold the first write until the second, which most often comes at once."""
        if self._sent:
            self._transport.write(data)
        elif self._held:
            self._held += data
            self._flush()
        else:
            self._held = data
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Close the connection after what was written."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if not self._sent:
            self._sent = True
            self._transport.write(self._held)


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
