"""Routes of judgements: what an operator says that a query wants."""

from __future__ import annotations

from typing import Annotated

import sqlalchemy as sa
from fastapi import APIRouter, HTTPException, Query

from bitrank.service import schemas
from bitrank.service.routes.problems import PROBLEMS, Once, do_once
from bitrank.service.routes.search import query_of
from bitrank.service.service import Service
from bitrank.service.store.judgements import Judged, put
from bitrank.service.store.requests import Outcome, Write


def routes(service: Service) -> APIRouter:
    """Create the routes that list, add and remove judgements."""
    router = APIRouter(tags=["judgements"], responses=PROBLEMS)
    collection, remembered = service.collection, service.remembered

    @router.get("/judgements")
    def listed(
        offset: Annotated[int, Query(ge=0, lt=2**63)] = 0,
        limit: Annotated[int, Query(ge=1, le=schemas.MAX_BATCH)] = 20,
    ) -> schemas.JudgementList:
        """List judged queries and the items that they name."""
        shown = [
            {"query": query, "items": [{"id": item, "grade": how[0], "pinned": how[1]} for item, how in items.items()]}
            for query, items in remembered.listed(offset, limit)
        ]
        return schemas.JudgementList.model_validate({"total": len(remembered), "judgements": shown})

    def read(judgement: schemas.NewJudgement) -> Judged:
        asked = query_of(collection, judgement)
        missing = collection.missing([item.id for item in judgement.items])
        if missing:
            raise HTTPException(404, f"no item {missing[0]} in this collection")
        name = judgement.query or remembered.name_of(asked)
        items = {item.id: (item.grade, judgement.pinned) for item in judgement.items}
        return Judged(name, asked.code.tobytes(), items)

    @router.post("/judgements", status_code=201)
    def add(body: schemas.NewJudgements, once: Once) -> schemas.Judgements:
        """Remember what queries want, all or none; each query joins the list of its name, or of its code."""

        def prepare() -> Write:
            remembered.refresh()
            batch = [read(each) for each in body.judgements]

            def write(connection: sa.Connection) -> Outcome:
                remembered.join(connection, batch)
                return {"queries": [each.query for each in batch]}

            return write

        return schemas.Judgements(**do_once(service, once, prepare, remembered.refresh))

    @router.delete("/judgements", status_code=204)
    def remove(query: Annotated[schemas.QueryName, Query()], once: Once) -> None:
        """Forget a judged query."""

        def prepare() -> Write:
            remembered.refresh()
            if not remembered.holds(query):
                raise HTTPException(404, f"no judged query {query!r:.80}")
            return lambda connection: put(connection, [Judged(query, b"", {})])

        do_once(service, once, prepare, remembered.refresh)

    return router
