"""Refusals: the statuses that every route may answer with, and the errors that become them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import HTTPException

from bitrank.service import schemas
from bitrank.service.collection import UnknownItemError
from bitrank.service.service import ReadOnlyError, UnknownVersionError

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
        503: "The database cannot be written; nothing was changed, try again",
    }.items()
}


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
