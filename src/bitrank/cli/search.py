"""The command `bitrank search`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from bitrank.cli.output import add_run
from bitrank.core.files import read_array
from bitrank.core.progress import progress

BATCH = 256  # queries per step of the progress bar


def add_parser(commands: Any) -> None:
    """Add `search` to the commands."""
    command = commands.add_parser("search", help="search a collection", description="Print the nearest items.")
    command.add_argument("collection", type=Path, help="folder of the collection")
    command.add_argument("queries", type=Path, help=".npy of vectors, of packed codes, or of reals per bit")
    command.add_argument("-k", type=int, default=10, help="results per query (default: %(default)s)")
    command.add_argument("--filter", type=Path, help="ids of the items to consider: .npy, .csv or .json")
    command.add_argument(
        "--recall", type=float, help="share of the exact results to find, from 0.8 to 0.999, in a collection with cells"
    )
    command.add_argument("--explain", action="store_true", help="say which ranking answered, and how far it is trusted")
    command.add_argument("--threads", type=int, help="threads (default: one per core)")
    add_run(command, _search)


def _search(arguments: argparse.Namespace) -> None:
    from bitrank import Collection  # slow to import

    collection, queries = Collection.load(arguments.collection), read_array(arguments.queries)
    wanted = None if arguments.filter is None else read_array(arguments.filter).tolist()
    options = {name: getattr(arguments, name) for name in ("recall", "explain", "threads")} | {"filter": wanted}
    for start in progress(range(0, len(queries), BATCH), label="searching"):
        results = collection.search(queries[start : start + BATCH], arguments.k, **options)
        for row, (ids, distances) in enumerate(zip(*results, strict=True)):
            n_found = np.isfinite(distances).sum()
            line = {"query": start + row, "ids": ids[:n_found].tolist(), "distances": distances[:n_found].tolist()}
            if results.explanation is not None:
                line |= {"ranking": results.explanation.ranking[row], "trust": float(results.explanation.trust[row])}
                read = None if arguments.recall is None else results.explanation.read
                line |= {} if read is None else {"read": float(read[row])}
                lifts = (results.explanation.lifted or {row: []})[row]
                line |= {"lifted_by": [each and each.query for each in lifts[:n_found]]} if any(lifts) else {}
            print(json.dumps(line) if arguments.json else _text(line))


def _text(line: dict[str, Any]) -> str:
    by = f" by {line['ranking']}, trust {line['trust']:.2f}" if "ranking" in line else ""
    by += f", {line['read']:.1%} read" if "read" in line else ""
    hits = (f"{name} ({distance:g})" for name, distance in zip(line["ids"], line["distances"], strict=True))
    return f"query {line['query']}{by}: {'  '.join(hits)}"
