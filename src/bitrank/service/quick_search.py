"""`QuickSearch`: answers `POST /search` before the routes where that needs no look into the database.

Most searches are of this kind. All others, and requests that are not as expected, go on to the routes, which describe
the API and say what is wrong.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Annotated, Literal
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta

from bitrank.service import schemas
from bitrank.service.asgi import App, Message, Receive, Scope, Send, header
from bitrank.service.collection import SearchQuery
from bitrank.service.searching import PageRequest, Plan
from bitrank.service.service import Service
from bitrank.service.store.profiles import DEFAULT

_Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Profile = Annotated[str, Meta(pattern=schemas.PROFILE_PATTERN)]
_ROUTE = SimpleNamespace(path="/search")  # for the metrics


class _Search(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a search, as `schemas.Search`."""

    item: _Id | None = None
    code: Annotated[str, Meta(max_length=schemas.MAX_CODE_TEXT)] | None = None
    vector: Annotated[list[float], Meta(max_length=schemas.MAX_VECTOR)] | None = None
    k: Annotated[int, Meta(ge=1, le=schemas.MAX_K)] = 20
    profile: _Profile | None = None
    version: Annotated[int, Meta(ge=1)] | Literal["candidate"] | None = None
    explore: Annotated[int, Meta(ge=0, le=schemas.MAX_K)] | None = None


decode = msgspec.json.Decoder(_Search).decode
_decode_profile = msgspec.json.Decoder(_Profile).decode


class QuickSearch:
    """ASGI middleware.

    Parameters
    ----------
    app : ASGI application
        Answers everything else.
    service : Service
    """

    def __init__(self, app: App, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a search, or pass the request on."""
        if scope["type"] != "http" or scope["path"] != "/search" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        if not header(scope, b"content-type").startswith(b"application/json"):
            await self._app(scope, receive, send)
            return
        messages = [await receive()]
        while messages[-1]["type"] == "http.request" and messages[-1].get("more_body"):
            messages.append(await receive())
        body = b"".join(message.get("body", b"") for message in messages)
        plan = self._plan(scope, body)
        if plan is None:
            await self._app(scope, _replay(messages, receive), send)
            return
        scope["route"] = _ROUTE
        answer = await self._service.batches.answer(plan)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def _plan(self, scope: Scope, body: bytes) -> Plan | None:
        """Plan a search with what is in memory; None where that is not enough, or the request is wrong."""
        service = self._service
        try:
            asked = decode(body)
            profile = self._profile(scope, asked)
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

    def _profile(self, scope: Scope, asked: _Search) -> str:
        for name, value in parse_qsl(scope["query_string"].decode("latin-1")):
            if name == "profile":
                return _decode_profile(msgspec.json.encode(value))
        return asked.profile or DEFAULT

    def _query(self, asked: _Search) -> SearchQuery | None:
        collection = self._service.collection
        if (asked.item is not None) + (asked.code is not None) + (asked.vector is not None) != 1:
            return None
        if asked.item is not None:
            return collection.query_of_item(asked.item) if collection.has(asked.item) else None
        if asked.code is not None:
            return collection.query_of_code(asked.code)
        return collection.query_of_vector(asked.vector or []) if collection.hasher_is_loaded else None


def _replay(messages: list[Message], receive: Receive) -> Receive:
    """Receive the same messages again, then what follows them."""
    left = iter(messages)

    async def again() -> Message:
        return next(left, None) or await receive()

    return again
