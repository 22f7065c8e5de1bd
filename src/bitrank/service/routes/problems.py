"""Refusals: the statuses that every route may answer with, and the errors that become them."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import Depends, Header, HTTPException, Request
from sqlalchemy.exc import SQLAlchemyError

from bitrank.service import schemas
from bitrank.service.collection import UnknownItemError
from bitrank.service.service import ReadOnlyError, Service, UnknownVersionError
from bitrank.service.store.requests import Outcome, RequestKey, Write

logger = logging.getLogger("bitrank.service")

PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": schemas.Problem, "description": text}
    for code, text in {
        400: "Not JSON, or not a form",
        401: "The token is missing or wrong",
        403: "From a page of another host, or read-only",
        404: "Not found",
        413: "Too large",
        422: "Not as expected; nothing was changed",
        429: "Too many requests",
        503: "The database or the engine does not answer; the detail says whether anything was changed, try again",
    }.items()
}


KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="a key of your choice: a write that is sent again with it is done once, and answered as before",
    ),
]


async def request_key(request: Request, key: KeyHeader = None) -> RequestKey | None:
    """Read the key of a write, with a fingerprint of its method, path and body."""
    if key is None:
        return None
    text = f"{request.method} {request.url.path}".encode() + await request.body()
    return RequestKey(key, hashlib.sha256(text).hexdigest())


Once = Annotated[RequestKey | None, Depends(request_key)]


def do_once(
    service: Service, request: RequestKey | None, prepare: Callable[[], Write], apply: Callable[[], None]
) -> Outcome:
    """Prepare a write, which may refuse it, do it, and apply it to memory; one that was done before is only applied."""
    with refusals():
        outcome = service.store.requests.once(request, prepare)
    with after_commit():
        apply()
    return outcome


@contextmanager
def refusals() -> Iterator[None]:
    """Turn the library's errors about bad input into answers."""
    try:
        yield
    except (UnknownItemError, UnknownVersionError) as error:
        raise HTTPException(404, str(error)) from None
    except ReadOnlyError as error:
        raise HTTPException(403, str(error)) from None
    except ValueError as error:
        raise HTTPException(422, str(error)) from None


@contextmanager
def after_commit() -> Iterator[None]:
    """Apply to memory what was committed; where the database fails now, leave that to the service's next poll."""
    try:
        yield
    except SQLAlchemyError as error:
        logger.warning("the database does not answer after a commit, reading later: %s", error)
