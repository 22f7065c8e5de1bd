"""Logs: `AccessLog`, one line of JSON per request; and what goes wrong, with times and the ids of requests."""

from __future__ import annotations

import datetime
import logging
import logging.handlers
import sys

import msgspec
from starlette.types import Scope

from bitrank.service.asgi import REQUEST


def log_to_stderr() -> None:
    """Write what all libraries report to standard error, with the time and the id of the request, if any."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter("%(asctime)s bitrank serve: %(request)s%(message)s", "%Y-%m-%dT%H:%M:%S%z"))
    logging.getLogger().addHandler(handler)


class _Formatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        request = REQUEST.get()
        record.request = f"request {request}: " if request else ""
        return super().formatMessage(record)


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
            "request": REQUEST.get(),
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
