"""`QuickSearch`: answers `POST /search` before the routes where that needs no look into the database.

Most searches are of this kind. All others, and requests that are not as expected, go on to the routes, which describe
the API and say what is wrong.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bitrank.service import schemas
from bitrank.service.asgi import FAILED, Scope, header, unreachable
from bitrank.service.batching import Answer
from bitrank.service.collection import SearchQuery
from bitrank.service.engine_index import UnreachableEngineError
from bitrank.service.metrics import Observer
from bitrank.service.searching import PageRequest, Plan
from bitrank.service.security import REFUSAL, Guard
from bitrank.service.service import Service
from bitrank.service.store.profiles import DEFAULT

logger = logging.getLogger("bitrank.service")

_Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Profile = Annotated[str, Meta(pattern=schemas.PROFILE_PATTERN)]


class _Search(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a search, as `schemas.Search`."""

    item: _Id | None = None
    code: Annotated[str, Meta(max_length=schemas.MAX_CODE_TEXT)] | None = None
    vector: Annotated[list[float], Meta(max_length=schemas.MAX_VECTOR)] | None = None
    k: Annotated[int, Meta(ge=1, le=schemas.MAX_K)] = 20
    profile: _Profile | None = None
    version: Annotated[int, Meta(ge=1)] | Literal["candidate"] | None = None
    explore: Annotated[int, Meta(ge=0, le=schemas.MAX_K)] | None = None


_STATUS_LINES = {200: b"200 OK", 500: b"500 Internal Server Error", 503: b"503 Service Unavailable"}
decode = msgspec.json.Decoder(_Search).decode


class QuickSearch:
    """The short way of a search, from its bytes to the bytes of its answer.

    Parameters
    ----------
    service : Service
    guard : Guard
    observer : Observer
    """

    def __init__(self, service: Service, guard: Guard, observer: Observer) -> None:
        self._service, self._guard, self._observer = service, guard, observer
        self._headers = b"content-type: application/json\r\n" + guard.header_lines

    def start(self, scope: Scope, body: bytes, done: Callable[[Answer], None]) -> bool:
        """Start a search and return True, or return False: then it is for the routes."""
        if not header(scope, b"content-type").startswith(b"application/json"):
            return False
        start = time.perf_counter()
        scope[REFUSAL] = self._guard.refusal(scope)
        if scope[REFUSAL] is not None:
            return False
        plan = self._plan(scope, body)
        if plan is None:
            return False

        def finish(result: bytes | BaseException) -> None:
            status, headers = 200, self._headers
            if isinstance(result, UnreachableEngineError):
                status, headers, result = 503, headers + b"retry-after: 1\r\n", unreachable(result)
            elif isinstance(result, BaseException):
                logger.error("POST /search failed", exc_info=result)
                status, result = 500, FAILED
            done(Answer(_STATUS_LINES[status], headers, result))
            self._observer.saw(scope, "/search", status, len(result), time.perf_counter() - start)

        self._service.batches.submit(plan, finish)
        return True

    def _plan(self, scope: Scope, body: bytes) -> Plan | None:
        """Plan a search with what is in memory; None where that is not enough, or the request is wrong."""
        service = self._service
        try:
            asked = decode(body)
            profile = asked.profile or DEFAULT
            if not service.knows(profile, asked.version):
                return None
            query = self._query(asked)
            if query is None:
                return None
            client = service.clients.of(scope)
            return service.searcher.plan(
                query, PageRequest(asked.k, profile, asked.version, asked.explore, client=client)
            )
        except (ValueError, RecursionError):  # those of msgspec are, too
            return None

    def _query(self, asked: _Search) -> SearchQuery | None:
        collection = self._service.collection
        if (asked.item is not None) + (asked.code is not None) + (asked.vector is not None) != 1:
            return None
        if asked.item is not None and collection.is_remote:
            return None
        if asked.item is not None:
            return collection.query_of_item(asked.item) if collection.has(asked.item) else None
        if asked.code is not None:
            return collection.query_of_code(asked.code)
        return collection.query_of_vector(asked.vector or []) if collection.hasher_is_loaded else None
