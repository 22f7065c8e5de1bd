"""The routes of the API: each checks what came, makes one call of the service, and says what it did.

`app` puts them together with the page, the documentation and the guard.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, HTTPException, Path, Query, Response, UploadFile

from bitrank.checks import check_weights
from bitrank.service import schemas
from bitrank.service.collection import Query as Looked
from bitrank.service.collection import UnknownItemError
from bitrank.service.metrics import Metrics
from bitrank.service.ranking import MAX_PROFILES, Service, UnknownVersionError, to_json
from bitrank.service.store import DEFAULT, HAMMING, Item, Version, active_stack
from bitrank.vocabulary import Weights

ItemId = Annotated[int, Path(ge=0, lt=2**63)]
Name = Annotated[schemas.ProfileName, Path()]
VersionId = Annotated[int, Path(ge=1, lt=2**31)]
ProfileQuery = Annotated[schemas.ProfileName | None, Query()]
Which = int | Literal["candidate"] | None

PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": schemas.Problem, "description": text}
    for code, text in {
        400: "Not JSON, or not a form",
        401: "The token is missing or wrong",
        403: "From a page of another host, or read-only",
        404: "Not there",
        413: "Too large",
        422: "Not as expected; nothing was changed",
        429: "Too many requests",
        503: "The data base cannot be written; nothing was changed, try again",
    }.items()
}


@contextmanager
def refusing() -> Iterator[None]:
    """Turn what the library says about bad input into an answer."""
    try:
        yield
    except (UnknownItemError, UnknownVersionError) as error:
        raise HTTPException(404, str(error)) from None
    except ValueError as error:
        raise HTTPException(422, str(error)) from None


def search_routes(service: Service, metrics: Metrics) -> APIRouter:
    """Searches, and what was clicked in them."""
    routes = APIRouter(tags=["search"], responses=PROBLEMS)
    collection = service.collection

    def looked(query: schemas.QueryBy) -> Looked:
        if query.item is not None:
            return collection.query_of_item(query.item)
        if query.code is not None:
            return collection.query_of_code(query.code)
        return collection.query_of_vector(query.vector or [])

    def find(make: Any, k: int, profile: str, version: Which, explore: int | None, chosen: list[int]) -> Response:
        start = time.perf_counter()
        with refusing():
            page = service.find(make(), k, profile, version, explore, chosen)
        page["took_ms"] = round((time.perf_counter() - start) * 1e3, 3)
        return Response(to_json(page), media_type="application/json")

    async def in_turn(*arguments: Any) -> Response:
        # As many searches run at once as there are cores; the others wait in a queue, not in each other's way.
        return await asyncio.get_running_loop().run_in_executor(service.searchers, find, *arguments)

    @routes.post("/search", response_model=schemas.Results)
    async def search(body: schemas.Search, profile: ProfileQuery = None) -> Response:
        """Find the items nearest to an item, a code or a vector."""
        name = profile or body.profile or DEFAULT
        return await in_turn(lambda: looked(body), body.k, name, body.version, body.explore, body.chosen)

    @routes.post("/search/image", response_model=schemas.Results)
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
        return await in_turn(lambda: collection.query_of_image(data), k, profile or DEFAULT, version, explore, chosen)

    @routes.post(
        "/feedback",
        status_code=201,
        response_model=schemas.Accepted,
        responses={200: {"model": schemas.Accepted, "description": "The key was there already"}},
    )
    def feedback(body: schemas.Feedback, response: Response, profile: ProfileQuery = None) -> schemas.Accepted:
        """Say what was clicked on a page. Once this is answered with 201, the click is on the disk."""
        name = profile or body.profile or DEFAULT
        if name == HAMMING:
            raise HTTPException(403, "the profile hamming is read-only: send clicks to another")
        with refusing():
            service.weights(name, body.version)
            number = None if body.version == "candidate" else body.version
            shown = [(shown.id, shown.explored) for shown in body.shown]
            new, n_clicks = service.log(body.key, name, number, looked(body.query), shown, set(body.clicked))
        metrics.click(new)
        if not new:
            response.status_code = 200
        return schemas.Accepted(accepted=new, n_clicks=n_clicks)

    return routes


def item_routes(service: Service) -> APIRouter:
    """Items: looking at them, adding and removing them."""
    routes = APIRouter(tags=["items"], responses=PROBLEMS)
    collection, store = service.collection, service.store

    def shown(ids: list[int]) -> list[schemas.ItemShown]:
        codes = collection.codes(ids)
        return [
            schemas.ItemShown(id=item, code=code.tobytes().hex(), **about._asdict())
            for item, code, about in zip(ids, codes, collection.about(ids), strict=True)
        ]

    @routes.get("/collection")
    def describe() -> schemas.CollectionShown:
        """Say what is served."""
        return schemas.CollectionShown(
            name=collection.name,
            n_items=len(collection),
            n_bits=collection.n_bits,
            has_images=collection.has_images,
            has_hasher=collection.finds_vectors,
            image_search=collection.finds_images,
            page_size=service.settings.page_size,
            explore=service.settings.explore,
        )

    @routes.get("/items")
    def items(
        offset: Annotated[int, Query(ge=0, lt=2**63)] = 0,
        limit: Annotated[int, Query(ge=1, le=schemas.MAX_BATCH)] = 20,
    ) -> schemas.ItemList:
        """List items by ascending id."""
        with refusing():
            return schemas.ItemList(total=len(collection), items=shown(collection.ids(offset, limit)))

    @routes.get("/items/{item}")
    def one_item(item: ItemId) -> schemas.ItemShown:
        """Show one item."""
        with refusing():
            return shown([item])[0]

    @routes.get("/items/{item}/image", response_class=Response)
    def image(item: ItemId) -> Response:
        """Show the picture of an item."""
        with refusing():
            picture = collection.picture(item)
        if picture is None:
            raise HTTPException(404, f"item {item} has no picture here")
        return Response(picture[0], media_type=picture[1], headers={"cache-control": "private, max-age=300"})

    @routes.post("/items", status_code=201)
    def add(body: schemas.NewItems) -> schemas.Added:
        """Add items, or put them in the place of those with the same ids: all or none."""
        ids = [item.id for item in body.items]
        if len(set(ids)) < len(ids):
            raise HTTPException(422, "items must hold every id once")
        batch = []
        with refusing():
            for item in body.items:
                collection.check_image(item.image)
                code = (
                    collection.read_code(item.code)
                    if item.code is not None
                    else collection.query_of_vector(item.vector or []).code
                )
                batch.append(Item(item.id, False, code.tobytes(), item.title, item.image, item.payload))
        replaced = sum(collection.has(item) for item in ids)
        store.add_items(batch)
        collection.refresh()
        return schemas.Added(added=len(ids) - replaced, replaced=replaced)

    @routes.delete("/items/{item}", status_code=204)
    def remove(item: ItemId) -> None:
        """Remove an item."""
        if collection.missing([item]):
            raise HTTPException(404, f"no item {item} in this collection")
        store.add_items([Item(item, True, b"", None, None, {})])
        collection.refresh()

    return routes


def profile_routes(service: Service) -> APIRouter:
    """Profiles: weights, their versions, and how good they are."""
    routes = APIRouter(tags=["profiles"], responses=PROBLEMS)
    store = service.store

    def writable(name: str) -> None:
        if name == HAMMING:
            raise HTTPException(403, "the profile hamming is read-only: its weights are uniform, for comparison")
        with refusing():
            service.active(name)

    def given(body: schemas.WeightsGiven | None) -> Weights:
        if body is None:
            return np.ones(service.collection.n_bits, np.float32)
        with refusing():
            return check_weights(body.weights, service.collection.n_bits)

    def shown(name: str, n_clicks: int) -> schemas.ProfileShown:
        return schemas.ProfileShown(
            name=name,
            version=service.active(name).number,
            n_versions=store.n_versions(name),
            n_clicks=n_clicks,
            read_only=name == HAMMING,
        )

    def described(version: Version, active: int) -> dict[str, Any]:
        facts = {name: value for name, value in version._asdict().items() if name not in ("profile", "weights")}
        return facts | {"active": version.number == active}

    def activated(name: str) -> schemas.Active:
        service.refresh_active()
        service.wake()
        return schemas.Active(profile=name, version=service.active(name).number)

    @routes.get("/profiles")
    def profiles() -> list[schemas.ProfileShown]:
        """List all profiles."""
        there = store.all_profiles()
        service.refresh_active()  # after the look at the profiles, so that it knows them all
        return [shown(name, n_clicks) for name, n_clicks in there.items()]

    @routes.put("/profiles/{name}", responses={201: {"model": schemas.ProfileShown, "description": "Made"}})
    def make(name: Name, response: Response, body: schemas.WeightsGiven | None = None) -> schemas.ProfileShown:
        """Make a profile, with given or uniform weights; one that is there stays as it is."""
        there = store.all_profiles()
        if name not in there:
            if len(there) >= MAX_PROFILES:
                raise HTTPException(422, f"at most {MAX_PROFILES} profiles, and they are all there")
            if store.add_profile(name, given(body), "uniform" if body is None else "given"):
                response.status_code = 201
        elif body is not None:
            raise HTTPException(409, f"profile {name!r} is there: give it weights by POST /profiles/{name}/versions")
        service.refresh_active()
        return shown(name, there.get(name, 0))

    @routes.get("/profiles/{name}/versions")
    def versions(name: Name) -> schemas.VersionList:
        """List the versions of a profile and the log of their activations."""
        with refusing():
            service.active(name)
        log = store.activations_of(name)
        stack = active_stack(log)
        return schemas.VersionList(
            active=stack[-1],
            rollback_to=stack[-2] if len(stack) > 1 else None,
            versions=[schemas.VersionShown(**described(version, stack[-1])) for version in store.versions_of(name)],
            activations=[
                schemas.ActivationShown(version=e.version, reason=e.reason, n_clicks=e.n_clicks, time=e.time)
                for e in log
            ],
        )

    @routes.post("/profiles/{name}/versions", status_code=201)
    def add_version(name: Name, body: schemas.WeightsGiven) -> schemas.VersionShown:
        """Keep weights that were learned elsewhere as a new version, not yet active."""
        writable(name)
        number = store.add_version(name, given(body), "given")
        version = store.version(name, number)
        assert version is not None
        return schemas.VersionShown(**described(version, service.active(name).number))

    @routes.get("/profiles/{name}/versions/{number}")
    def version(name: Name, number: VersionId) -> schemas.VersionWhole:
        """Show a version with its weights."""
        with refusing():
            active = service.active(name)
        found = store.version(name, number)
        if found is None:
            raise HTTPException(404, f"profile {name!r} has no version {number}")
        return schemas.VersionWhole(**described(found, active.number), weights=found.weights.tolist())

    @routes.get("/profiles/{name}/candidate")
    def candidate(name: Name) -> schemas.Candidate:
        """Show the candidate, which follows a click within a moment; the gate decides whether it becomes a version."""
        n_learned = service.learning.position(name)  # first: the weights have then learned from as many, or more
        with refusing():
            weights = service.weights(name, "candidate")[1]
        return schemas.Candidate(n_learned=n_learned, weights=weights.tolist())

    @routes.post("/profiles/{name}/versions/{number}/activate")
    def activate(name: Name, number: VersionId) -> schemas.Active:
        """Make a version the active one; learning goes on from it, with later clicks."""
        writable(name)
        if store.version(name, number) is None:
            raise HTTPException(404, f"profile {name!r} has no version {number}")
        store.activate(name, number)
        return activated(name)

    @routes.post("/profiles/{name}/rollback")
    def roll_back(name: Name) -> schemas.Active:
        """Undo the last activation; learning goes on from the version gone back to, with later clicks."""
        writable(name)
        if store.roll_back(name) is None:
            raise HTTPException(409, f"profile {name!r} is at its first version: there is nothing to go back to")
        return activated(name)

    @routes.get("/profiles/{name}/quality")
    def quality(name: Name, limit: Annotated[int, Query(ge=1, le=10_000)] = 1000) -> list[schemas.Quality]:
        """Show what the gate found over time, oldest first."""
        with refusing():
            service.active(name)
        return [schemas.Quality(**row) for row in store.quality_of(name, limit)]

    return routes
