"""The ASGI application: routes, web interface, API documentation, health and metrics, behind the guard."""

from __future__ import annotations

import importlib.resources
import re
import reprlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy.exc
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

import bitrank
from bitrank.clicks.window import shares
from bitrank.service.asgi import FAILED
from bitrank.service.engine_index import UnreachableEngineError
from bitrank.service.metrics import Gauge, Metrics, Observed
from bitrank.service.routes import items, judgements, profiles, search
from bitrank.service.routes.problems import PROBLEMS
from bitrank.service.security import Guard
from bitrank.service.service import FullDiskError, Service
from bitrank.service.store.database import UnknownOutcomeError

HERE = Path(__file__).parent
# Answered with 503: the cause follows the text.
UNAVAILABLE = {
    # The database is locked, full, gone or too busy, before a commit: the transaction was rolled back.
    **dict.fromkeys(
        (sqlalchemy.exc.OperationalError, sqlalchemy.exc.InternalError, sqlalchemy.exc.TimeoutError),
        "the database does not answer now, and nothing was changed by this request",
    ),
    UnreachableEngineError: "the engine cannot answer now, and nothing was changed by this request",
    UnknownOutcomeError: "the database failed at the commit, and whether this was written is unknown: send it again, "
    "with the same page token, key or Idempotency-Key, and it counts once",
}
ERROR = "bitrank.error"  # in the scope of a search that failed


def create_app(service: Service) -> ASGIApp:
    """Create the application of a service, which it closes at shutdown."""
    settings = service.settings

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="bitrank",
        version=bitrank.__version__,
        description="Search by weighted Hamming distance that learns from clicks.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    metrics = Metrics(lambda: _gauges(service))
    app.include_router(search.routes(service, metrics))
    app.include_router(items.routes(service))
    app.include_router(judgements.routes(service))
    app.include_router(profiles.routes(service))
    _add_operations(app, service, metrics)
    _add_pages(app, service)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(405, _not_allowed)
    for kind, text in UNAVAILABLE.items():
        app.add_exception_handler(kind, partial(_unavailable, text))
    failed_search = ExceptionMiddleware(_raise, app.exception_handlers)
    app.add_exception_handler(Exception, _failed)
    searches = search.Search(service)

    async def choose(scope: Scope, receive: Receive, send: Send) -> None:
        """Pass searches by the routes, which would take most of their time."""
        if scope["type"] != "http" or scope["path"] != searches.path or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        try:
            await searches(scope, receive, send)
        except Exception as error:
            scope[ERROR] = error
            await failed_search(scope, receive, send)

    # Around the application, not within it, so that the answer to an error is guarded and counted like any other.
    return Observed(Guard(choose, settings, service.clients), metrics, service.clients, service.access_log)


def _add_operations(app: FastAPI, service: Service, metrics: Metrics) -> None:
    @app.get("/livez", tags=["operations"])
    async def alive() -> dict[str, str]:
        """Say that this process answers."""
        return {"status": "ok"}

    @app.get("/healthz", tags=["operations"], responses={503: PROBLEMS[503]})
    @app.get("/readyz", tags=["operations"], responses={503: PROBLEMS[503]})
    def ready() -> Response:
        """Say whether the database takes writes and the engine, if any, can be reached, and how learning fares."""
        try:
            return JSONResponse(service.health())
        except FullDiskError:
            problem = "the disk of the database is full"
        except UnreachableEngineError:
            problem = "the engine cannot answer now"
        except (sqlalchemy.exc.SQLAlchemyError, UnknownOutcomeError, OSError):  # whose texts name hosts
            problem = "the database takes no writes now"
        return JSONResponse({"detail": problem}, 503, {"retry-after": "1"})

    @app.get("/metrics", tags=["operations"], response_class=PlainTextResponse)
    def show_metrics() -> Response:
        """Show counts and times in the text format of Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_pages(app: FastAPI, service: Service) -> None:
    @app.get("/", include_in_schema=False)
    def page(request: Request) -> Response:
        cookie = service.clients.new_cookie(request.scope)
        return FileResponse(HERE / "app" / "index.html", headers={} if cookie is None else {"set-cookie": cookie})

    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        return FileResponse(HERE / "swagger" / "index.html")

    @app.get("/docs/start.js", include_in_schema=False)
    def docs_start() -> Response:
        return FileResponse(HERE / "swagger" / "start.js", media_type="text/javascript")

    swagger = Path(str(importlib.resources.files("fastapi_swagger") / "resources"))
    app.mount("/docs/assets", StaticFiles(directory=swagger))
    app.mount("/page", StaticFiles(directory=HERE / "app"))


def _gauges(service: Service) -> Iterator[Gauge]:
    n_pages = service.store.profiles.n_pages()
    service.candidates.refresh()
    service.refresh_active()  # only now, so that it knows all these profiles, and what was decided about candidates
    rings, n_aside = service.store.gate.alarms(), service.store.candidates.n_set_aside()
    yield "items", "Items in the collection", [], [([], len(service.collection))]
    yield "pages_logged", "Answered pages in the log", ["profile"], [([name], n) for name, n in n_pages.items()]
    versions = [([name], float(service.active(name).number)) for name in n_pages]
    yield "active_version", "Number of the active version", ["profile"], versions
    alarms = [([name], float(rings.get(name, False))) for name in n_pages]
    yield "drift_alarm", "1 where the active version ranks recent clicks worse than Hamming", ["profile"], alarms
    aside = [([name], float(n_aside.get(name, 0))) for name in n_pages]
    yield "pages_set_aside", "Answered pages that could not be learned from; the log names them", ["profile"], aside
    link = service.link
    yield "learning_failing", "1 while learning fails or its process is down", [], [([], float(link.failing))]
    yield "learning_failures", "Failures of learning, each followed by a restart", [], [([], float(link.n_failures))]
    behind = [([name], max(0, n - service.candidates.position(name))) for name, n in n_pages.items()]
    counts = service.store.clients.n_pages()
    left_out = [([name], sum(one for _, one in counts.get(name, {}).values())) for name in n_pages]
    yield "clients_left_out", "Clients whose clicks go against the rest", ["profile"], left_out
    busiest = [([name], busiest_share(counts.get(name, {}))) for name in n_pages]
    yield "busiest_client_share", "Share of the evidence of the client who counts most", ["profile"], busiest
    yield "database_bytes", "Size of the database", [], [([], service.store.database.n_bytes())]
    free = service.store.database.n_bytes_free()
    yield "disk_free_bytes", "Room on the disk of the database", [], [] if free is None else [([], free)]
    yield "pages_to_learn", "Answered pages in the log that are not yet learned from", ["profile"], behind


def busiest_share(counts: dict[str, tuple[int, bool]]) -> float:
    """Share of the evidence of the client who counts most: at most 2 % of it, or one page."""
    left_out = {client for client, (_, is_left_out) in counts.items() if is_left_out}
    return max(shares({client: n for client, (n, _) in counts.items()}, left_out).values(), default=0.0)


async def _invalid(_: Request, error: Any) -> Response:
    """Answer with what was expected and what came, in one line."""
    return JSONResponse({"detail": "; ".join(_describe(problem) for problem in error.errors()[:3])}, 422)


def _describe(problem: dict[str, Any]) -> str:
    kind, given = problem["type"], problem.get("input")
    if kind == "json_invalid":
        return f"the body must be JSON: {problem['ctx']['error']}"
    if isinstance(given, bytes):
        return "the body must be a JSON object with the header Content-Type: application/json, got another"
    where = ".".join(str(part) for part in problem["loc"] if part != "body")
    text = problem["msg"].removeprefix("Value error, ")
    if kind not in ("missing", "too_long", "too_short", "value_error"):  # whose texts say what came
        text += f", got {reprlib.repr(given)}"
    return f"{where}: {text}" if where else text


async def _raise(scope: Scope, _: Receive, __: Send) -> None:
    raise scope[ERROR]


async def _not_allowed(request: Request, _: Exception) -> Response:
    """Name all methods of the path: of several routes with one path, the first would name its own."""
    methods = ["get"]  # of pages, which the document of the API leaves out
    for path, operations in request.app.openapi()["paths"].items():
        if re.fullmatch(re.sub(r"{\w+}", "[^/]+", path), request.url.path):
            methods = sorted(operations)
    return JSONResponse({"detail": "Method Not Allowed"}, 405, {"allow": ", ".join(methods).upper()})


async def _failed(_: Request, __: Exception) -> Response:
    return JSONResponse({"detail": FAILED}, 500)


async def _unavailable(text: str, _: Request, error: Exception) -> Response:
    cause = str(getattr(error, "orig", None) or error)
    return JSONResponse({"detail": f"{text}: {cause:.200}"}, 503, {"retry-after": "1"})
