"""The commands `bitrank backup` and `bitrank restore`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bitrank.cli.output import add_run, print_facts
from bitrank.core.lazy import import_extra


def add_parser(commands: Any) -> None:
    """Add both commands."""
    backup = commands.add_parser(
        "backup",
        help="copy the database of a service to a file",
        description="Copy the database of a service to one SQLite file, as it is at one moment. The service goes on.",
    )
    backup.add_argument("file", type=Path, help="file to write; it must not exist")
    restore = commands.add_parser(
        "restore",
        help="copy such a file into an empty database",
        description="Copy a backup into an empty database, SQLite or PostgreSQL.",
    )
    restore.add_argument("file", type=Path, help="file that `bitrank backup` wrote")
    for command, run in ((backup, _backup), (restore, _restore)):
        add_database(command)
        add_run(command, run)


def add_database(command: argparse.ArgumentParser) -> None:
    """Add --data and --db, of which one must be there."""
    target = command.add_mutually_exclusive_group(required=True)
    target.add_argument("--data", type=Path, help="folder of the database, as of `bitrank serve`")
    target.add_argument("--db", metavar="URL", help="postgresql://… instead")


def _backup(arguments: argparse.Namespace) -> None:
    import_extra("sqlalchemy", "service")
    from bitrank.service.store.backup import back_up

    print_facts(back_up(url_of(arguments), arguments.file), as_json=arguments.json)


def _restore(arguments: argparse.Namespace) -> None:
    import_extra("sqlalchemy", "service")
    from bitrank.service.settings import sqlite_url
    from bitrank.service.store.backup import restore

    url = arguments.db or sqlite_url(arguments.data)
    print_facts(restore(arguments.file, url), as_json=arguments.json)


def url_of(arguments: argparse.Namespace) -> str:
    """URL of the database that --data or --db names, which must exist."""
    from bitrank.service.settings import sqlite_url

    if arguments.data is not None and not (arguments.data / "bitrank.db").exists():
        raise ValueError(f"--data must be the folder of a database, got {arguments.data}")
    return arguments.db or sqlite_url(arguments.data)
