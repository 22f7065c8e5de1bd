"""Routes of searches, and of the pages that users answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Query, Request, Response, UploadFile

from bitrank.clicks import LoggedPage
from bitrank.service import schemas
from bitrank.service.collection import SearchQuery
from bitrank.service.metrics import Metrics
from bitrank.service.routes.problems import PROBLEMS, refusals
from bitrank.service.searching import PageRequest, Plan
from bitrank.service.service import Service
from bitrank.service.store.profiles import DEFAULT

KNOWN: dict[int | str, dict[str, Any]] = {200: {"model": schemas.Accepted, "description": "The page was known already"}}
ProfileQuery = Annotated[schemas.ProfileName | None, Query()]


def routes(service: Service, metrics: Metrics) -> APIRouter:
    """Create the routes of searches and feedback."""
    router = APIRouter(tags=["search"], responses=PROBLEMS)
    collection = service.collection

    def query_of(body: schemas.QueryBy) -> SearchQuery:
        if body.item is not None:
            return collection.query_of_item(body.item)
        if body.code is not None:
            return collection.query_of_code(body.code)
        return collection.query_of_vector(body.vector or [])

    async def answer(make_query: Callable[[], SearchQuery], asked: PageRequest) -> Response:
        def plan() -> Plan:
            with refusals():
                return service.searcher.plan(make_query(), asked)

        planned = await asyncio.get_running_loop().run_in_executor(service.searchers, plan)
        return Response(await service.batches.answer(planned), media_type="application/json")

    @router.post("/search", response_model=schemas.Results)
    async def search(body: schemas.Search, request: Request, profile: ProfileQuery = None) -> Response:
        """Find the items nearest to an item, a code or a vector."""
        name = profile or body.profile or DEFAULT
        asked = PageRequest(
            body.k, name, body.version, body.explore, body.chosen, service.clients.of(request.scope), body.continues
        )
        return await answer(lambda: query_of(body), asked)

    @router.post("/search/image", response_model=schemas.Results)
    async def search_image(
        file: UploadFile,
        request: Request,
        k: Annotated[int, Query(ge=1, le=schemas.MAX_K)] = 20,
        profile: ProfileQuery = None,
        version: Annotated[schemas.VersionNumber | Literal["candidate"] | None, Query()] = None,
        explore: Annotated[int | None, Query(ge=0, le=schemas.MAX_K)] = None,
        chosen: Annotated[list[schemas.Id], Query(max_length=schemas.MAX_CHOSEN)] = [],  # noqa: B006
        continues: Annotated[schemas.TokenText | None, Form()] = None,
    ) -> Response:
        """Find the items nearest to an uploaded picture."""
        data = await file.read()
        asked = PageRequest(
            k, profile or DEFAULT, version, explore, chosen, service.clients.of(request.scope), continues
        )
        return await answer(lambda: collection.query_of_image(data), asked)

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
            new, n_pages = service.log_page(logged, query_of(body.query), signed=False)
        return accept(response, logged.key, new, n_pages)

    def accept(response: Response, key: str, new: bool, n_pages: int) -> schemas.Accepted:
        metrics.count_page(new)
        if not new:
            response.status_code = 200
        return schemas.Accepted(accepted=new, key=key, n_pages=n_pages)

    return router
