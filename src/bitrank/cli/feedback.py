"""The commands `bitrank feedback import` and `bitrank replay`: each parses, calls the library and prints.

`cli` adds them to its parser; logs of clicks are JSON lines, of bitrank's own form or of OpenSearch's UBI.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from bitrank import feedback
from bitrank.cli.weights_source import get_json, read_weights
from bitrank.files import check_kind, write_array
from bitrank.index import Index
from bitrank.progress import progress

LOG = "JSON lines: pages as the service takes them, or UBI queries and events"


def add_parser(commands: Any) -> None:
    """Add `feedback` and `replay` to the subparsers of `cli`."""
    feedback = commands.add_parser("feedback", help="bring in clicks from elsewhere")
    inner = feedback.add_subparsers(dest="feedback_command", required=True)
    bring = inner.add_parser(
        "import",
        help="send logged clicks to a running service, or write them in its form",
        description="Read logs of clicks, check all of them, and send them to a running service or write them to a "
        "file. Every page has a key and counts once: an import that broke off can be run again.",
        epilog="A service that wants a token gets that of the environment variable BITRANK_TOKEN.",
    )
    bring.add_argument("logs", nargs="+", type=Path, help=LOG)
    where = bring.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", help="of a running service, such as http://127.0.0.1:8000")
    where.add_argument("--output", type=Path, help="file of JSON lines to write")
    bring.add_argument("--profile", help="profile that the clicks go to (default: as logged, else the service's)")
    bring.set_defaults(run=_import)

    again = commands.add_parser(
        "replay",
        help="say what logged clicks would have done to the ranking",
        description="Learn from logged clicks in their order, with the gate in front, and compare the ranking before "
        "and after. Nothing is changed.",
    )
    again.add_argument("logs", nargs="+", type=Path, help=LOG)
    again.add_argument("--index", type=Path, required=True, help="folder of the index that was searched")
    again.add_argument("--weights", help="active at the start (default: those of the index, else plain Hamming)")
    again.add_argument("--hasher", type=Path, help="saved hasher (.npz), where queries are vectors")
    again.add_argument("--output", type=Path, help="write the learned weights: .npy, .csv or .json")
    again.add_argument("--top", type=int, default=10, help="moves and bits to list (default: %(default)s)")
    again.add_argument("--seed", type=int, default=0, help="of all that is drawn (default: %(default)s)")
    again.set_defaults(run=_replay)
    for command in (bring, again):
        command.add_argument("--json", action="store_true", help="print JSON, for machines")


def _import(arguments: argparse.Namespace) -> int:
    pages = feedback.read_log(arguments.logs)
    if arguments.profile is not None:
        pages = [page._replace(profile=arguments.profile) for page in pages]
    facts: dict[str, Any] = {"n_pages": len(pages), "n_clicks": sum(len(page.clicked) for page in pages)}
    if arguments.output is not None:
        lines = (json.dumps(page.to_json()) for page in pages)
        arguments.output.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    else:
        facts |= _send(pages, arguments.url)
    if arguments.json:
        print(json.dumps(facts))
    else:
        for name, value in facts.items():
            print(f"{name.replace('_', ' '):<12}{value}")
    return 0


def _send(pages: list[feedback.LoggedPage], url: str) -> dict[str, int]:
    token = os.environ.get("BITRANK_TOKEN")
    counts: Counter[bool] = Counter()
    for number, page in enumerate(progress(pages, label="sending")):
        try:
            answer = get_json(f"{url.rstrip('/')}/feedback", token, page.to_json())
        except (ValueError, OSError) as error:
            raise ValueError(f"after {number} of {len(pages)} pages, at {page.key!r}: {error}") from None
        counts[bool(answer["accepted"])] += 1
    return {"new": counts[True], "known": counts[False]}


def _replay(arguments: argparse.Namespace) -> int:
    if arguments.output is not None:
        check_kind(arguments.output)
    index = Index.load(arguments.index)
    codes, ids = index.export()
    from bitrank.hashing import load_hasher

    project = None if arguments.hasher is None else load_hasher(arguments.hasher).project
    logged = feedback.read_log(arguments.logs)
    found = list(feedback.LogReader(codes, ids, index.n_bits, project).pages(logged))
    start = index.weights if arguments.weights is None else read_weights(arguments.weights)
    pages = progress([page for _, page in found], label="replaying")
    replayed = feedback.replay(pages, codes, index.n_bits, weights=start, random_state=arguments.seed)
    if arguments.output is not None:
        write_array(arguments.output, replayed.candidate)
    facts = _facts(replayed, len(logged) - len(found))
    facts["moves"] = [
        {
            "query": found[move.page][0].query,
            "item": _item(found[move.page][0], move.place, set(ids.tolist())),
            "before": move.before,
            "after": move.after,
        }
        for move in replayed.moves[: arguments.top]
    ]
    if arguments.json:
        print(json.dumps({**facts, "candidate": replayed.candidate.tolist()}))
    else:
        _print(facts)
    return 0


def _item(page: feedback.LoggedPage, place: int, there: set[int]) -> int:
    """The id at a place of a page, counted without items that are not in the collection."""
    return [item for item in page.shown if item in there][place]


def _facts(replayed: feedback.Replay, n_left_out: int) -> dict[str, Any]:
    looks = [{"n_pages": look.n_pages, **look.decision._asdict()} for look in replayed.looks]
    return {
        "n_pages": replayed.n_pages,
        "n_left_out": n_left_out,
        "n_clicks": replayed.n_clicks,
        "n_explored_clicks": replayed.n_explored_clicks,
        "activated": replayed.weights is not None and any(look.decision.activate for look in replayed.looks),
        "top_20_kept": replayed.overlap,
        "decisions": looks,
    }


def _print(facts: dict[str, Any]) -> None:
    for name in ("n_pages", "n_left_out", "n_clicks", "n_explored_clicks"):
        print(f"{name.removeprefix('n_').replace('_', ' '):<18}{facts[name]}")
    print(f"{'first 20 kept':<18}{facts['top_20_kept']:.1%}\n")
    if not facts["decisions"]:
        print("the gate had no occasion to decide: too few pages")
    for look in facts["decisions"]:
        shares = (look[name] for name in ("hamming", "active", "candidate"))
        figures = "  ".join("    –" if share is None else f"{share:.3f}" for share in shares)
        verdict = ("activate" if look["activate"] else "keep") + (", ALARM: behind Hamming" if look["alarm"] else "")
        print(f"after {look['n_pages']:>6} pages  {figures}  {verdict}: {look['reason']}")
    print("(of items drawn like explored ones, the share that is farther than a clicked one:")
    print(" Hamming, active, candidate; 0.5 is chance)")
    if facts["moves"]:
        print(f"\nbiggest moves of clicked items\n{'item':>10}{'before':>10}{'after':>10}   query")
    for move in facts["moves"]:
        query = json.dumps(move["query"])
        print(f"{move['item']:>10}{move['before']:>10.6g}{move['after']:>10.6g}   {query:.60}")
