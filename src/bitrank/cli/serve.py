"""The command `bitrank serve`. The service is an extra, imported when the command runs."""

from __future__ import annotations

import argparse
import logging
import os
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bitrank.cli.configuration import complete
from bitrank.core.lazy import import_extra

if TYPE_CHECKING:
    from bitrank.service.settings import Settings

MAX_WORKERS = 256
DEFAULTS = {
    "host": "127.0.0.1",
    "port": 8000,
    "workers": 1,
    "clients": "address",
    "explore": 4,
    "learn_imported": False,
    "canary": 0.05,
    "no_auto_rollback": False,
    "rate": 500.0,
    "keep_pages": 1_000_000,
    "keep_days": 0.0,
    "keep_bytes": 2**31,
    "keep_client_pages": 20_000,
}


def add_parser(commands: Any) -> None:
    """Add `serve` to the commands."""
    serve = commands.add_parser(
        "serve",
        help="serve a collection over HTTP, with a page, and learn from clicks",
        description="Serve a collection over HTTP and learn from clicks. Without arguments, serve the embedded digits.",
    )
    options: list[argparse.Action] = []

    def add(*names: str, **details: Any) -> None:
        options.append(serve.add_argument(*names, **details))

    serve.add_argument("--config", type=Path, help="TOML file with these options (default: BITRANK_SERVE_CONFIG)")
    serve.add_argument(
        "collection", type=Path, nargs="?", help="folder of a collection, from `bitrank create`, or of an index"
    )
    add("--index", type=Path, help="the same folder, as an option")
    add("--engine", metavar="URL", help="postgresql://…, clickhouse://…, …: serve codes that stay in an engine")
    add("--table", help="table or collection of the engine (default: codes)")
    add("--method", choices=["exact", "rerank"], help="how the engine searches (default: exact where it can)")
    add("--candidates", type=int, help="codes that `rerank` fetches (default: ten per result, 1000 at least)")
    add("--items", type=Path, help="Parquet file with columns id, title, image (path or URL) and any payload")
    add("--judgements", type=Path, help="qrels whose queries are ids of items, codes in hex or names of judged queries")
    add("--hasher", type=Path, help="saved hasher (.npz), to search by vector")
    add("--ranker", type=Path, help="saved ranker to begin with, which becomes the active version")
    add("--image-features", metavar="MODULE:FUNCTION", help="function that makes a vector of a picture, or pixels:28")
    add("--data", type=Path, help="folder of the database (default: one in the home folder, printed at the start)")
    add("--db", metavar="URL", help="postgresql://… instead of --data: a database that several services may share")
    add("--host", help="address to listen on; any but loopback needs a token (default: 127.0.0.1)")
    add("--port", type=int, help="port to listen on; 0 takes any free one (default: 8000)")
    add("--workers", type=int, help="processes that answer requests; one more learns (default: 1)")
    add(
        "--token-file",
        type=Path,
        help="file whose first line is the token for searches and feedback (default: BITRANK_TOKEN)",
    )
    add(
        "--admin-token-file",
        type=Path,
        help="file whose first line is the token for everything; the other one may then change neither items nor "
        "versions (default: BITRANK_ADMIN_TOKEN)",
    )
    add(
        "--proxy",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="address or network of a proxy whose X-Forwarded-For is believed; may be repeated",
    )
    add(
        "--clients",
        choices=["address", "session"],
        help="what tells clients apart: their address, or a signed cookie from the page (default: address)",
    )
    add(
        "--explore",
        type=int,
        help="places on a page of 20 for items from deeper ranks, in the web interface (default: 4)",
    )
    add("--recall", type=float, help="share of the exact results to find, in a collection with cells (default: all)")
    add(
        "--learn-imported",
        action="store_true",
        default=None,
        help="learn also from pages that `bitrank feedback import` sent, which nobody signed",
    )
    add(
        "--canary",
        type=float,
        metavar="SHARE",
        help="share of pages that plain Hamming distance ranks once clicks rank the others, for the alarm "
        "(default: 0.05)",
    )
    add(
        "--no-auto-rollback",
        action="store_true",
        default=None,
        help="keep a version that was learned from clicks also when clicks say that Hamming distance ranks better",
    )
    add("--rate", type=float, help="requests per second, client and worker, 0 for no limit (default: 500)")
    add(
        "--min-clients",
        type=int,
        help="clients who must have clicked before their clicks change the ranking (default: 10; on loopback without "
        "--proxy 1, so that one person may teach)",
    )
    for name, kind, what in (
        ("pages", int, "answered pages kept per profile (default: 1000000); the busiest clients lose theirs first"),
        ("days", float, "days that answered pages are kept (default: 0, no limit)"),
        ("bytes", int, "bytes of answered pages kept per profile, about (default: 2147483648)"),
        ("client-pages", int, "answered pages kept per client (default: 20000)"),
    ):
        add(f"--keep-{name}", type=kind, metavar="N", help=f"{what}; 0 for no limit" if kind is int else what)
    add(
        "--image-origin",
        action="append",
        default=[],
        metavar="URL",
        help="host that the page may load images from; may be repeated",
    )
    add("--access-log", metavar="FILE", help="write one line of JSON per request to a file, or to - (standard output)")
    serve.set_defaults(run=lambda arguments: _serve(_complete(arguments, options)))


def _complete(arguments: argparse.Namespace, options: list[argparse.Action]) -> argparse.Namespace:
    if arguments.collection is not None:
        if arguments.index is not None:
            raise ValueError("give a collection or --index, not both")
        arguments.index = arguments.collection
    config = arguments.config or os.environ.get("BITRANK_SERVE_CONFIG")
    return complete(arguments, options, DEFAULTS, None if config is None else Path(config))


def _serve(arguments: argparse.Namespace) -> int:
    with ExitStack() as stack:
        if arguments.workers > 1:  # they keep their counts in one folder, named before prometheus_client is imported
            shared = "/dev/shm" if os.path.isdir("/dev/shm") else None
            folder = stack.enter_context(TemporaryDirectory(prefix="bitrank-", dir=shared))
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
            stack.callback(os.environ.pop, "PROMETHEUS_MULTIPROC_DIR", None)
        return _serve_from(arguments, stack)


def _serve_from(arguments: argparse.Namespace, stack: ExitStack) -> int:
    import_extra("bitrank.service.process", "service")
    from bitrank.engines import connect
    from bitrank.ranking import load_ranker
    from bitrank.service import process, sources
    from bitrank.service.access_log import log_to_stderr
    from bitrank.service.engine_index import EngineIndex
    from bitrank.service.learner import Learner
    from bitrank.service.link import Link
    from bitrank.service.service import Service
    from bitrank.service.settings import check_host, claim
    from bitrank.service.store import Store
    from bitrank.service.store.database import check_sound

    settings = _settings(arguments)
    check_host(arguments.host, settings)
    if arguments.index is not None and arguments.engine is not None:
        raise ValueError("give a collection or --engine, not both")
    if arguments.engine is not None and arguments.data is None and arguments.db is None:
        raise ValueError("--engine needs --data or --db, for clicks and versions")
    own = arguments.index is not None or arguments.engine is not None
    if arguments.engine is None and (arguments.table or arguments.method or arguments.candidates is not None):
        raise ValueError("--table, --method and --candidates go with --engine")
    if not own and (arguments.items or arguments.hasher or arguments.image_features):
        raise ValueError("--items, --hasher and --image-features go with a collection or --engine")
    if not 1 <= arguments.workers <= MAX_WORKERS:
        raise ValueError(f"workers must be from 1 to {MAX_WORKERS}, got {arguments.workers}")
    scheme = (arguments.engine or "").partition(":")[0]
    if arguments.workers > 1 and scheme in ("duckdb", "chdb"):
        raise ValueError(
            f"workers must be 1 with {scheme}://, which one process opens at a time, got {arguments.workers}"
        )
    url, place = _database(arguments)
    if arguments.db is None:
        stack.enter_context(claim(Path(place)))
    log_to_stderr()
    check_sound(url)
    bound = process.listen(arguments.host, arguments.port)
    host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    address = f"http://{host}:{bound.getsockname()[1]}/"

    def make(link: Link) -> Service:
        files = arguments.items, arguments.hasher, arguments.image_features
        if arguments.engine is not None:
            table = arguments.table or "codes"
            index = EngineIndex(connect(arguments.engine, table), arguments.method, arguments.candidates)
            logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it logs a hundred lines per error, and raises it
            source = sources.from_engine(index, table, *files)
        elif arguments.index is not None:
            source = sources.from_folder(arguments.index, *files)
        else:
            source = sources.embedded_digits()
        ranker = None if arguments.ranker is None else load_ranker(arguments.ranker)
        service = Service(source, url, settings, ranker, link)
        if arguments.judgements is not None:
            service.remembered.read(arguments.judgements)
        return service

    def make_learner(link: Link) -> Learner:
        return Learner(Store(url), settings, link)

    def ready(service: Service) -> None:
        collection = service.collection
        print(f"bitrank serves {collection.name}, {len(collection)} items, at {address}")
        print(f"clicks and versions are kept in {place}; stop with Ctrl-C", flush=True)
        if settings.explore == 0:
            print("clicks teach nothing: the web interface explores no places (--explore 0)", flush=True)

    return process.serve(bound, make, make_learner, ready, arguments.workers)


def _settings(arguments: argparse.Namespace) -> Settings:
    from bitrank.service.settings import Retention, Settings

    named = ("explore", "rate", "recall", "learn_imported", "canary", "access_log")
    return Settings(
        **{name: getattr(arguments, name) for name in named},
        token=_token(arguments.token_file, "BITRANK_TOKEN"),
        admin_token=_token(arguments.admin_token_file, "BITRANK_ADMIN_TOKEN"),
        image_origins=tuple(arguments.image_origin),
        proxies=tuple(arguments.proxy),
        auto_rollback=not arguments.no_auto_rollback,
        min_clients=_min_clients(arguments),
        retention=Retention(
            arguments.keep_pages, arguments.keep_days, arguments.keep_bytes, arguments.keep_client_pages
        ),
        sessions=arguments.clients == "session",
    )


def _min_clients(arguments: argparse.Namespace) -> int:
    from bitrank.service.settings import LOOPBACK

    alone = arguments.host in LOOPBACK and not arguments.proxy
    return (1 if alone else 10) if arguments.min_clients is None else arguments.min_clients


def _token(path: Path | None, variable: str) -> str | None:
    if path is None:
        return os.environ.get(variable)
    return path.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()  # only ASCII is taken


def _database(arguments: argparse.Namespace) -> tuple[str, str]:
    """URL of the database, and the place to print for it."""
    from bitrank.service.settings import default_folder, sqlite_url

    if arguments.db is None:
        folder = arguments.data or default_folder(arguments.index)
        return sqlite_url(folder), str(folder)
    if arguments.data is not None:
        raise ValueError("give --data or --db, not both")
    return arguments.db, arguments.db.rpartition("@")[2].partition("?")[0]  # without secrets
