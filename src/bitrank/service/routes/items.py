"""Routes of the collection and its items."""

from __future__ import annotations

from typing import Annotated

import sqlalchemy as sa
from fastapi import APIRouter, HTTPException, Path, Query, Response

from bitrank.service import schemas
from bitrank.service.routes.problems import PROBLEMS, Once, do_once, refusals
from bitrank.service.service import Service
from bitrank.service.store.items import Item, add_items
from bitrank.service.store.requests import Outcome, Write

ItemId = Annotated[int, Path(ge=0, lt=2**63)]


def routes(service: Service) -> APIRouter:
    """Create the routes that show, add and remove items."""
    router = APIRouter(tags=["items"], responses=PROBLEMS)
    collection = service.collection

    def show(ids: list[int]) -> list[schemas.ItemShown]:
        codes = collection.codes(ids)
        return [
            schemas.ItemShown(id=item, code=code.tobytes().hex(), **description._asdict())
            for item, code, description in zip(ids, codes, collection.descriptions(ids), strict=True)
        ]

    def check_local() -> None:
        if collection.is_remote:
            raise HTTPException(403, "the codes of this collection live in an engine: change them there")

    @router.get("/collection")
    def describe() -> schemas.CollectionShown:
        """Describe the collection."""
        return schemas.CollectionShown(
            name=collection.name,
            n_items=len(collection),
            n_bits=collection.n_bits,
            has_images=collection.source.items.has_images,
            has_hasher=collection.source.make_hasher is not None,
            image_search=collection.source.vectorizer is not None,
            page_size=service.settings.page_size,
            explore=service.settings.explore,
            columns=sorted(collection.items.columns),
        )

    @router.get("/items")
    def items(
        offset: Annotated[int, Query(ge=0, lt=2**63)] = 0,
        limit: Annotated[int, Query(ge=1, le=schemas.MAX_BATCH)] = 20,
    ) -> schemas.ItemList:
        """List items by ascending id."""
        with refusals():
            ids = collection.sorted_ids[offset : offset + limit].tolist()
            return schemas.ItemList(total=len(collection), items=show(ids))

    @router.get("/items/{item}")
    def one_item(item: ItemId) -> schemas.ItemShown:
        """Show one item."""
        with refusals():
            return show([item])[0]

    @router.get("/items/{item}/image", response_class=Response)
    def image(item: ItemId) -> Response:
        """Show the picture of an item."""
        with refusals():
            picture = collection.picture(item)
        if picture is None:
            raise HTTPException(404, f"item {item} has no picture here")
        return Response(picture[0], media_type=picture[1], headers={"cache-control": "private, max-age=300"})

    def read_item(item: schemas.NewItem) -> Item:
        collection.check_image(item.image)
        if item.code is not None:
            code = collection.read_code(item.code)
        else:
            code = collection.query_of_vector(item.vector or []).code
        return Item(item.id, False, code.tobytes(), item.title, item.image, item.payload)

    @router.post("/items", status_code=201)
    def add(body: schemas.NewItems, once: Once) -> schemas.Added:
        """Add items, or replace those with the same ids: all or none."""
        check_local()

        def prepare() -> Write:
            ids = [item.id for item in body.items]
            if len(set(ids)) < len(ids):
                raise HTTPException(422, "items must hold every id once")
            batch = [read_item(item) for item in body.items]
            replaced = sum(collection.has(item) for item in ids)

            def write(connection: sa.Connection) -> Outcome:
                add_items(connection, batch)
                return {"added": len(ids) - replaced, "replaced": replaced}

            return write

        return schemas.Added(**do_once(service, once, prepare, collection.refresh))

    @router.delete("/items/{item}", status_code=204)
    def remove(item: ItemId, once: Once) -> None:
        """Remove an item."""
        check_local()

        def prepare() -> Write:
            if collection.missing([item]):
                raise HTTPException(404, f"no item {item} in this collection")
            return lambda connection: add_items(connection, [Item(item, True, b"", None, None, {})])

        do_once(service, once, prepare, collection.refresh)

    return router
