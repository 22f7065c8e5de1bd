"""Counts and times of the service in the text format of Prometheus, and the middleware that observes requests.

Gauges of items, pages and versions are read when /metrics is requested.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bitrank.service.access_log import AccessLog
from bitrank.service.asgi import REQUEST, header
from bitrank.service.clients import Clients

FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # where the workers of one service keep their counts, which are summed
REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

# Name, help text, label names; and rows of label values and a value.
Gauge = tuple[str, str, list[str], Iterable[tuple[list[str], float]]]


class Metrics:
    """Everything that /metrics shows."""

    def __init__(self, read_gauges: Callable[[], Iterable[Gauge]]) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "bitrank_requests", "Requests, by route and status", ["route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "bitrank_request_seconds", "Time to answer", ["route"], buckets=BUCKETS, registry=self._registry
        )
        self._pages = Counter(
            "bitrank_pages", "Answered pages received: new, or sent again", ["kind"], registry=self._registry
        )
        self._series: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self._gauges, self._read_gauges = CollectorRegistry(), read_gauges
        self._gauges.register(self)

    def collect(self) -> Iterator[Metric]:
        """Read the gauges."""
        for name, text, labels, rows in self._read_gauges():
            gauge = GaugeMetricFamily(f"bitrank_{name}", text, labels=labels)
            for values, value in rows:
                gauge.add_metric(values, value)
            yield gauge

    def describe(self) -> list[Metric]:
        """Name no gauges, so that registration reads nothing yet."""
        return []

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        series = self._series.get((route, status))
        if series is None:
            series = self._requests.labels(route, str(status)), self._seconds.labels(route)
            self._series[route, status] = series
        series[0].inc()
        series[1].observe(seconds)

    def count_page(self, new: bool) -> None:
        """Count an answered page."""
        self._pages.labels("new" if new else "again").inc()

    def text(self) -> bytes:
        """Write everything as Prometheus reads it."""
        registry = self._registry
        if FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
        return generate_latest(registry) + generate_latest(self._gauges)


class Observed:
    """ASGI middleware: count every request by the pattern of its route; where there is an access log, write a line.

    A request has an id: that of its header `X-Request-Id`, or a new one. The answer and all logs name it.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, clients: Clients, log: AccessLog | None) -> None:
        self._app, self._metrics, self._clients, self._log = app, metrics, clients, log
        self._prefix, self._count = os.urandom(4).hex().encode(), count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, n_bytes = time.perf_counter(), 500, 0
        name = header(scope, b"x-request-id")
        if not REQUEST_ID.fullmatch(name):
            name = b"%b-%x" % (self._prefix, next(self._count))
        REQUEST.set(name.decode())

        async def watch(message: Message) -> None:
            nonlocal status, n_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", name)]
            n_bytes += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            # Only patterns are labels: a path that a client makes up must not start a new series.
            route, seconds = getattr(scope.get("route"), "path", "other"), time.perf_counter() - start
            self._metrics.count_request(route, status, seconds)
            if self._log is not None:
                self._log.write(scope, self._clients.address(scope), route, status, n_bytes, seconds)
