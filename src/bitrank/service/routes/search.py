"""Routes of searches, and of the pages that users answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query, Response, UploadFile

from bitrank.feedback import LoggedPage
from bitrank.service import schemas
from bitrank.service.collection import SearchQuery
from bitrank.service.metrics import Metrics
from bitrank.service.routes.problems import PROBLEMS, refusals
from bitrank.service.service import Service, VersionChoice, to_json
from bitrank.service.store.profiles import DEFAULT, HAMMING

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

    def search_page(
        make_query: Callable[[], SearchQuery],
        k: int,
        profile: str,
        version: VersionChoice,
        explore: int | None,
        chosen: list[int],
    ) -> Response:
        start = time.perf_counter()
        with refusals():
            page = service.search(make_query(), k, profile, version, explore, chosen)
        page["took_ms"] = round((time.perf_counter() - start) * 1e3, 3)
        return Response(to_json(page), media_type="application/json")

    async def queue(*arguments: Any) -> Response:
        # As many searches run at once as there are cores; the others queue instead of slowing each other down.
        return await asyncio.get_running_loop().run_in_executor(service.searchers, search_page, *arguments)

    @router.post("/search", response_model=schemas.Results)
    async def search(body: schemas.Search, profile: ProfileQuery = None) -> Response:
        """Find the items nearest to an item, a code or a vector."""
        name = profile or body.profile or DEFAULT
        return await queue(lambda: query_of(body), body.k, name, body.version, body.explore, body.chosen)

    @router.post("/search/image", response_model=schemas.Results)
    async def search_image(
        file: UploadFile,
        k: Annotated[int, Query(ge=1, le=schemas.MAX_K)] = 20,
        profile: ProfileQuery = None,
        version: Annotated[schemas.VersionNumber | Literal["candidate"] | None, Query()] = None,
        explore: Annotated[int | None, Query(ge=0, le=schemas.MAX_K)] = None,
        chosen: Annotated[list[schemas.Id], Query(max_length=schemas.MAX_CHOSEN)] = [],  # noqa: B006
    ) -> Response:
        """Find the items nearest to an uploaded picture."""
        data = await file.read()
        return await queue(lambda: collection.query_of_image(data), k, profile or DEFAULT, version, explore, chosen)

    @router.post(
        "/feedback",
        status_code=201,
        response_model=schemas.Accepted,
        responses={200: {"model": schemas.Accepted, "description": "The key was known already"}},
    )
    def feedback(body: schemas.Feedback, response: Response, profile: ProfileQuery = None) -> schemas.Accepted:
        """Log which results of a page were clicked. Once answered with 201, the page is on disk."""
        name = profile or body.profile or DEFAULT
        if name == HAMMING:
            raise HTTPException(403, "the profile hamming is read-only: send clicks to another")
        with refusals():
            service.weights(name, body.version)
            logged = LoggedPage(
                body.key,
                body.query.model_dump(exclude_none=True),
                [place.id for place in body.shown],
                [place.explored for place in body.shown],
                body.clicked,
                name,
                None if body.version == "candidate" else body.version,
            )
            new, n_pages = service.log_page(logged, query_of(body.query))
        metrics.count_page(new)
        if not new:
            response.status_code = 200
        return schemas.Accepted(accepted=new, n_pages=n_pages)

    return router
