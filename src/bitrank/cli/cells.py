"""The command `bitrank cells`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bitrank.cli.output import add_run, print_report
from bitrank.core.files import read_array


def add_parser(commands: Any) -> None:
    """Add `cells` to the commands."""
    command = commands.add_parser(
        "cells",
        help="order a collection by cells, so that `search --recall` reads a part of it",
        description="Order items by cells and measure what a search must read for a promised recall; print the report.",
    )
    command.add_argument("collection", type=Path, help="folder of the collection")
    command.add_argument(
        "--queries", type=Path, help="real ones to measure on, as for `search`; items stand for them by default"
    )
    add_run(command, _cells)


def _cells(arguments: argparse.Namespace) -> None:
    from bitrank import Collection  # slow to import

    collection = Collection.load(arguments.collection)
    report = collection.make_cells(None if arguments.queries is None else read_array(arguments.queries))
    collection.save(arguments.collection)
    print_report(report, as_json=arguments.json)
