"""The command `bitrank feedback import`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bitrank.cli.output import add_json, print_facts
from bitrank.cli.weights import TOKEN_NOTE, environment_token
from bitrank.clicks import read_log, write_log

LOGS = "JSON lines: pages in the form of docs/feedback.md, or UBI queries and events"


def add_parser(commands: Any) -> None:
    """Add `feedback` and its command."""
    feedback = commands.add_parser("feedback", help="import clicks logged elsewhere")
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
    add_json(command)
    command.set_defaults(run=_import)


def _import(arguments: argparse.Namespace) -> int:
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
    return 0
