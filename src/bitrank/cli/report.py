"""The commands `bitrank report` and `bitrank info`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bitrank.cli.output import add_run, print_facts, print_report


def add_parser(commands: Any) -> None:
    """Add both commands."""
    report = commands.add_parser(
        "report",
        help="say what was learned, what it is worth on held-out data, and what is in use",
        description="Say what a collection holds, what the last `learn` found on held-out data, and what is in use.",
    )
    report.add_argument("--plot", type=Path, metavar="FILE", help="draw the held-out figures: .png, .svg or .pdf")
    info = commands.add_parser(
        "info", help="describe a collection and its versions", description="Describe a collection and its versions."
    )
    for command, run in ((report, _report), (info, _info)):
        command.add_argument("collection", type=Path, help="folder of the collection")
        add_run(command, run)


def _report(arguments: argparse.Namespace) -> None:
    from bitrank import Collection  # slow to import

    report = Collection.load(arguments.collection).report()
    if arguments.plot is not None:
        report.plot().figure.savefig(arguments.plot)
    print_report(report, as_json=arguments.json)


def _info(arguments: argparse.Namespace) -> None:
    from bitrank import Collection

    collection = Collection.load(arguments.collection)
    report = collection.report()
    names = ("n_items", "n_bits", "bytes_per_item", "hasher", "n_dimensions", "metric")
    facts: dict[str, Any] = {name: getattr(report, name) for name in names}
    facts["bytes"] = sum(path.stat().st_size for path in arguments.collection.rglob("*") if path.is_file())
    versions = [
        {"number": version.number, "learned_from": version.kind, "ranker": version.ranker}
        for version in collection.versions
    ]
    if arguments.json:
        print_facts(facts | {"versions": versions}, as_json=True)
        return
    print_facts({name: value for name, value in facts.items() if value is not None}, as_json=False)
    for version in versions:
        ranking = f"{version['ranker']} from {version['learned_from']}" if version["ranker"] else "plain"
        print_facts({f"version {version['number']}": ranking}, as_json=False)
