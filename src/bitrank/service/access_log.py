"""`AccessLog`: one line of JSON per request."""

from __future__ import annotations

import datetime
import logging
import logging.handlers
import sys

import msgspec

from bitrank.service.asgi import Scope


class AccessLog:
    """Write one line per request to a file, or to standard output.

    The file may be moved away at any time, as log rotation does: the next line begins a new one.

    Parameters
    ----------
    path : str
        A file, or "-".
    """

    def __init__(self, path: str) -> None:
        if path == "-":
            self._handler: logging.Handler = logging.StreamHandler(sys.stdout)
        else:
            self._handler = logging.handlers.WatchedFileHandler(path, encoding="utf-8")

    def close(self) -> None:
        """Close the file."""
        self._handler.close()

    def write(self, scope: Scope, address: str, route: str, status: int, n_bytes: int, seconds: float) -> None:
        """Log one request."""
        line = {
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
            "address": address,
            "method": scope["method"],
            "path": scope["path"],
            "route": route,
            "status": status,
            "bytes": n_bytes,
            "ms": round(seconds * 1e3, 3),
        }
        text = msgspec.json.encode(line).decode()
        self._handler.emit(logging.LogRecord("access", logging.INFO, "", 0, text, None, None))
