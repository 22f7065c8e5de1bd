"""The commands `bitrank feedback import` and `bitrank feedback prune`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bitrank.cli.backup import add_database, url_of
from bitrank.cli.output import add_run, print_facts
from bitrank.cli.weights import TOKEN_NOTE, environment_token
from bitrank.clicks import read_log, write_log
from bitrank.core.lazy import import_extra

LOGS = "JSON lines: pages in the form of docs/feedback.md, or UBI queries and events"


def add_parser(commands: Any) -> None:
    """Add `feedback` and its commands."""
    feedback = commands.add_parser("feedback", help="import clicks logged elsewhere, or forget old ones")
    inner = feedback.add_subparsers(dest="feedback_command", required=True)
    command = inner.add_parser(
        "import",
        help="send logged clicks to a running service, or convert them to its format",
        description="Read and check logs of clicks, then send them to a running service or write them to a file. Every "
        "page has a key and counts once, so an interrupted import can be run again. The service marks imported pages "
        "as unsigned, and learns from them only with `bitrank serve --learn-imported`.",
        epilog=TOKEN_NOTE,
    )
    command.add_argument("logs", nargs="+", type=Path, help=LOGS)
    target = command.add_mutually_exclusive_group(required=True)
    target.add_argument("--url", help="URL of a running service, such as http://127.0.0.1:8000")
    target.add_argument("--output", type=Path, help="file of JSON lines to write")
    command.add_argument("--profile", help="profile that receives the clicks (default: as logged, else the default)")
    add_run(command, _import)
    prune = inner.add_parser(
        "prune",
        help="forget answered pages of a service",
        description="Forget answered pages beyond these limits, as `bitrank serve` does now and then by its own; a "
        "service may go on meanwhile. The busiest clients lose their oldest pages first. The file of SQLite shrinks.",
    )
    add_database(prune)
    prune.add_argument("--pages", type=int, default=0, help="pages to keep per profile")
    prune.add_argument("--days", type=float, default=0.0, help="days to keep pages for")
    prune.add_argument("--bytes", type=int, default=0, help="bytes of pages to keep per profile, about")
    prune.add_argument("--client-pages", type=int, default=0, help="pages to keep per client")
    add_run(prune, _prune)


def _import(arguments: argparse.Namespace) -> None:
    pages = read_log(arguments.logs)
    if arguments.profile is not None:
        pages = [page._replace(profile=arguments.profile) for page in pages]
    facts = {"n_pages": len(pages), "n_clicks": sum(len(page.clicked) for page in pages)}
    if arguments.output is not None:
        write_log(arguments.output, pages)
    else:
        from bitrank.service.client import send_pages

        facts |= send_pages(pages, arguments.url, environment_token())._asdict()
    print_facts(facts, as_json=arguments.json)


def _prune(arguments: argparse.Namespace) -> None:
    import_extra("sqlalchemy", "service")
    from bitrank.service.settings import Retention, Settings
    from bitrank.service.store import Store

    keep = Retention(arguments.pages, arguments.days, arguments.bytes, arguments.client_pages)
    if not any(Settings(retention=keep).retention):
        raise ValueError("give at least one limit: --pages, --days, --bytes or --client-pages")
    store = Store(url_of(arguments))
    try:
        facts = {profile: store.pages.prune(profile, keep) for profile in store.profiles.n_pages()}
        store.database.shrink()
    finally:
        store.close()
    print_facts({f"forgotten from {profile}": n for profile, n in facts.items()}, as_json=arguments.json)
