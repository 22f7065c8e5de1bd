"""Routes of searches, and of the pages that users answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs

from fastapi import APIRouter, Form, Query, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from bitrank.clicks import LoggedPage
from bitrank.service import schemas
from bitrank.service.asgi import answer, header
from bitrank.service.collection import Collection, SearchQuery
from bitrank.service.filtering import Filter
from bitrank.service.metrics import Metrics
from bitrank.service.routes.problems import PROBLEMS, refusals
from bitrank.service.searching import PageRequest, Plan
from bitrank.service.service import Service
from bitrank.service.store.profiles import DEFAULT

KNOWN: dict[int | str, dict[str, Any]] = {200: {"model": schemas.Accepted, "description": "The page was known already"}}
ProfileQuery = Annotated[schemas.ProfileName | None, Query()]


class Search:
    """`POST /search` as an ASGI application: most searches need nothing but what is in memory, and leave no thread.

    Parameters
    ----------
    service : Service
    """

    path = "/search"

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one search."""
        scope["route"] = self
        parts, more = [], True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            parts.append(message["body"])
            more = message["more_body"]
        body, profile = _read(scope, b"".join(parts))
        service = self._service
        asked = PageRequest(
            body.k,
            profile or body.profile or DEFAULT,
            body.version,
            body.explore or 0,
            body.chosen,
            service.clients.of(scope),
            body.continues,
            body.filter,
            body.offset,
            body.recall,
        )
        if self._is_in_memory(body, asked):
            with refusals():
                plan = service.searcher.plan(query_of(service.collection, body), asked)
        else:
            plan = await in_thread(service, lambda: query_of(service.collection, body), asked)
        await answer(send, 200, await service.batches.answer(plan))

    def _is_in_memory(self, body: schemas.Search, asked: PageRequest) -> bool:
        """Tell whether planning a search waits neither for the database nor for an engine or a hasher."""
        service, collection = self._service, self._service.collection
        if body.positives is not None or body.chosen or body.continues or body.filter is not None:
            return False
        if not service.knows(asked.profile, asked.version):
            return False
        if body.item is not None:
            return not collection.is_remote and collection.has(body.item)
        return body.vector is None or collection.hasher_is_loaded


async def in_thread(service: Service, make_query: Callable[[], SearchQuery], asked: PageRequest) -> Plan:
    """Plan a search on a thread."""

    def plan() -> Plan:
        with refusals():
            return service.searcher.plan(make_query(), asked)

    return await asyncio.get_running_loop().run_in_executor(service.searchers, plan)


def query_of(collection: Collection, body: schemas.QueryBy) -> SearchQuery:
    """Make the query that a request asks for."""
    if isinstance(body, schemas.Search) and body.positives is not None:
        return collection.query_of_examples(body.positives, body.negatives)
    if body.item is not None:
        return collection.query_of_item(body.item)
    if body.code is not None:
        return collection.query_of_code(body.code)
    return collection.query_of_vector(body.vector or [])


def _read(scope: Scope, body: bytes) -> tuple[schemas.Search, str | None]:
    """Read the body of a search and the profile that its address may name."""
    kind = header(scope, b"content-type").partition(b";")[0].strip().lower()
    is_json = kind == b"application/json" or (kind.startswith(b"application/") and kind.endswith(b"+json"))
    try:
        try:
            asked = schemas.Search.model_validate_json(body) if is_json else schemas.Search.model_validate(body)
        except ValidationError as error:
            if not is_json or any(problem["type"] == "json_invalid" for problem in error.errors()):
                raise
            asked = schemas.Search.model_validate_json(json.dumps(schemas.whole(json.loads(body))))
        values = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True).get("profile")
        return asked, None if values is None else schemas.Address(profile=values[-1]).profile
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None


def routes(service: Service, metrics: Metrics) -> APIRouter:
    """Create the routes of searches and feedback."""
    router = APIRouter(tags=["search"], responses=PROBLEMS)
    collection = service.collection

    @router.post("/search", response_model=schemas.Results)
    async def search(body: schemas.Search, profile: ProfileQuery = None) -> None:
        """Find the items nearest to an item, a code or a vector."""  # `Search` answers; this describes it

    @router.post("/search/image", response_model=schemas.Results)
    async def search_image(
        file: UploadFile,
        request: Request,
        k: Annotated[int, Query(ge=1, le=schemas.MAX_K)] = 20,
        profile: ProfileQuery = None,
        version: Annotated[schemas.VersionNumber | Literal["candidate"] | None, Query()] = None,
        explore: Annotated[int, Query(ge=0, le=schemas.MAX_K)] = 0,
        chosen: Annotated[list[schemas.Id], Query(max_length=schemas.MAX_CHOSEN)] = [],  # noqa: B006
        offset: Annotated[int, Query(ge=0, le=schemas.MAX_OFFSET)] = 0,
        filter: Annotated[str | None, Query(max_length=20_000, description="as of POST /search, in JSON")] = None,  # noqa: A002
        continues: Annotated[schemas.TokenText | None, Form()] = None,
    ) -> Response:
        """Find the items nearest to an uploaded picture."""
        data = await file.read()
        client = service.clients.of(request.scope)
        try:
            wanted = None if filter is None else Filter.model_validate_json(filter)
        except ValidationError as error:
            raise RequestValidationError(error.errors()) from None
        asked = PageRequest(k, profile or DEFAULT, version, explore, chosen, client, continues, wanted, offset)
        planned = await in_thread(service, lambda: collection.query_of_image(data), asked)
        return Response(await service.batches.answer(planned), media_type="application/json")

    @router.post("/feedback", status_code=201, response_model=schemas.Accepted, responses=KNOWN)
    def feedback(body: schemas.Feedback, response: Response, profile: ProfileQuery = None) -> schemas.Accepted:
        """Log which results of a page were clicked. Once answered with 201, the page is on disk."""
        with refusals():
            logged, new, n_pages = service.answer_page(body.page_token, body.clicked, profile or body.profile)
        return accept(response, logged.key, new, n_pages)

    @router.post("/feedback/import", status_code=201, response_model=schemas.Accepted, responses=KNOWN)
    def import_page(body: schemas.ImportedPage, response: Response, profile: ProfileQuery = None) -> schemas.Accepted:
        """Log a page that was shown elsewhere. It is marked as such, and learned from where the operator says so."""
        name = profile or body.profile or DEFAULT
        version = None if body.version == "candidate" else body.version
        shown, explored = [place.id for place in body.shown], [place.explored for place in body.shown]
        query = body.query.model_dump(exclude_none=True)
        with refusals():
            service.ranking(name, version)
            logged = LoggedPage(body.key, query, shown, explored, body.clicked, name, version, body.client)
            new, n_pages = service.log_page(logged, query_of(collection, body.query), signed=False)
        return accept(response, logged.key, new, n_pages)

    def accept(response: Response, key: str, new: bool, n_pages: int) -> schemas.Accepted:
        metrics.count_page(new)
        if not new:
            response.status_code = 200
        return schemas.Accepted(accepted=new, key=key, n_pages=n_pages)

    return router
