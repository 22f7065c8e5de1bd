"""The command `bitrank serve`. The service is an extra, imported when the command runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bitrank.cli.weights_source import environment_token
from bitrank.lazy import import_extra


def add_parser(commands: Any) -> None:
    """Add `serve` to the commands."""
    serve = commands.add_parser(
        "serve",
        help="serve a collection over HTTP, with a page, and learn from clicks",
        description="Serve a collection over HTTP and learn from clicks. Without arguments, serve the embedded digits.",
    )
    serve.add_argument("--index", type=Path, help="folder of an index, from `bitrank index build`")
    serve.add_argument(
        "--items", type=Path, help="Parquet file with columns id, title, image (path or URL) and any payload"
    )
    serve.add_argument("--hasher", type=Path, help="saved hasher (.npz), to search by vector")
    serve.add_argument("--image-features", metavar="KIND:SIDE", help="pixels:28 or gist:32, to search by image")
    serve.add_argument(
        "--data", type=Path, help="folder of the database (default: one in the home folder, printed at the start)"
    )
    serve.add_argument(
        "--db", metavar="URL", help="postgresql://… instead of --data: a database that several services may share"
    )
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on; any but loopback needs a token")
    serve.add_argument(
        "--port", type=int, default=8000, help="port to listen on; 0 takes any free one (default: %(default)s)"
    )
    serve.add_argument(
        "--token-file",
        type=Path,
        help="file whose first line is the token that requests must carry (default: BITRANK_TOKEN)",
    )
    serve.add_argument(
        "--explore",
        type=int,
        default=4,
        help="places on a page of 20 for items from deeper ranks (default: %(default)s)",
    )
    serve.add_argument(
        "--learn-imported",
        action="store_true",
        help="learn also from pages that `bitrank feedback import` sent, which nobody signed",
    )
    serve.add_argument(
        "--rate", type=float, default=500, help="requests per second and client, 0 for no limit (default: %(default)g)"
    )
    serve.add_argument(
        "--image-origin",
        action="append",
        default=[],
        metavar="URL",
        help="host that the page may load images from; may be repeated",
    )
    serve.set_defaults(run=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    import_extra("bitrank.service.process", "service")
    from bitrank.service import process, sources
    from bitrank.service.service import Service
    from bitrank.service.settings import Settings, check_host

    settings = Settings(
        explore=arguments.explore,
        rate=arguments.rate,
        learn_imported=arguments.learn_imported,
        token=_token(arguments),
        image_origins=tuple(arguments.image_origin),
    )
    check_host(arguments.host, settings.token)
    if arguments.index is None and (arguments.items or arguments.hasher or arguments.image_features):
        raise ValueError("--items, --hasher and --image-features go with --index")
    url, place = _database(arguments)
    bound = process.listen(arguments.host, arguments.port)
    host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    address = f"http://{host}:{bound.getsockname()[1]}/"

    def make() -> Service:
        if arguments.index is None:
            source = sources.embedded_digits()
        else:
            source = sources.from_files(arguments.index, arguments.items, arguments.hasher, arguments.image_features)
        return Service(source, url, settings)

    def ready(service: Service) -> None:
        collection = service.collection
        print(f"bitrank serves {collection.name}, {len(collection)} items, at {address}")
        print(f"clicks and versions are kept in {place}; stop with Ctrl-C", flush=True)

    return process.serve(bound, make, ready)


def _token(arguments: argparse.Namespace) -> str | None:
    if arguments.token_file is None:
        return environment_token()
    text: str = arguments.token_file.read_text(encoding="utf-8")
    return text.partition("\n")[0].strip()


def _database(arguments: argparse.Namespace) -> tuple[str, str]:
    """URL of the database, and the place to print for it."""
    from bitrank.service.settings import default_folder, sqlite_url

    if arguments.db is None:
        folder = arguments.data or default_folder(arguments.index)
        return sqlite_url(folder), str(folder)
    if arguments.data is not None:
        raise ValueError("give --data or --db, not both")
    return arguments.db, arguments.db.rpartition("@")[2].partition("?")[0]  # without secrets
