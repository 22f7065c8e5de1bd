"""The command `bitrank replay`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitrank.cli.feedback import LOGS
from bitrank.cli.output import add_run, print_facts
from bitrank.cli.weights import SOURCES, TOKEN_NOTE, read_weights
from bitrank.core.files import check_output

if TYPE_CHECKING:
    from bitrank import Collection
    from bitrank.clicks import LoggedPage, Replay
    from bitrank.clicks.log_replay import Move


def add_parser(commands: Any) -> None:
    """Add `replay` to the commands."""
    command = commands.add_parser(
        "replay",
        help="show what logged clicks would have done to the ranking",
        description="Learn from logged clicks in their order, behind the gate, and compare the ranking before and "
        "after. The collection is not changed.",
        epilog=TOKEN_NOTE,
    )
    command.add_argument("collection", type=Path, help="folder of the collection that was searched")
    command.add_argument("logs", nargs="+", type=Path, help=LOGS)
    start = command.add_mutually_exclusive_group()
    start.add_argument("--ranker", type=Path, help="ranker that is active at the start (default: the collection's)")
    start.add_argument("--weights", help=f"active weights at the start: {SOURCES}")
    command.add_argument("--output", type=Path, help="file for the learned ranker")
    command.add_argument("--top", type=int, default=10, help="moved items to list (default: %(default)s)")
    command.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    add_run(command, _replay)


def _replay(arguments: argparse.Namespace) -> None:
    if arguments.output is not None:
        check_output(arguments.output)
    from bitrank import Collection  # slow to import
    from bitrank.clicks import pages_from_log, read_log, replay
    from bitrank.core.progress import progress

    collection = Collection.load(arguments.collection)
    hasher = collection.hasher
    codes, n_bits, logged = collection.codes(), collection.n_bits, read_log(arguments.logs)
    project = None if hasher is None else hasher.project
    pairs = list(pages_from_log(logged, codes, collection.ids, n_bits, project))
    pages = progress([page for _, page in pairs], label="replaying")
    replayed = replay(pages, codes, n_bits, ranker=_start(arguments, collection), random_state=arguments.seed)
    if arguments.output is not None:
        replayed.candidate.save(arguments.output)
    facts = _facts(replayed, [page for page, _ in pairs], arguments.top) | {"n_left_out": len(logged) - len(pairs)}
    if arguments.json:
        print_facts(facts, as_json=True)
    else:
        _print(facts)


def _start(arguments: argparse.Namespace, collection: Collection) -> Any:
    """The ranker that is active at the start; None is plain Hamming."""
    from bitrank.ranking import RankingSVM, load_ranker

    if arguments.ranker is not None:
        return load_ranker(arguments.ranker)
    return collection.ranker if arguments.weights is None else RankingSVM.from_weights(read_weights(arguments.weights))


def _facts(replayed: Replay, logged: list[LoggedPage], top: int) -> dict[str, Any]:
    def named(move: Move) -> dict[str, Any]:
        page = logged[move.page]
        return {"query": page.query, "item": page.shown[move.place], "before": move.before, "after": move.after}

    return {
        "n_pages": replayed.n_pages,
        "n_clicks": replayed.n_clicks,
        "n_explored_clicks": replayed.n_explored_clicks,
        "activated": any(look.decision.activate for look in replayed.looks),
        "top_20_kept": replayed.overlap,
        "decisions": [{"n_pages": look.n_pages, **look.decision._asdict()} for look in replayed.looks],
        "moves": [named(move) for move in replayed.moves[:top]],
    }


def _print(facts: dict[str, Any]) -> None:
    counts = ("n_pages", "n_left_out", "n_clicks", "n_explored_clicks")
    print_facts({**{name: facts[name] for name in counts}, "top_20_kept": f"{facts['top_20_kept']:.1%}"}, as_json=False)
    print()
    if not facts["decisions"]:
        print("too few pages for a decision of the gate")
    for decision in facts["decisions"]:
        shares = (decision[name] for name in ("hamming", "active", "candidate"))
        figures = "  ".join("    –" if share is None else f"{share:.3f}" for share in shares)
        verdict = "activate" if decision["activate"] else "keep"
        alarm = ", ALARM: behind Hamming" if decision["alarm"] else ""
        print(f"after {decision['n_pages']:>6} pages  {figures}  {verdict}{alarm}: {decision['reason']}")
    print("(Hamming, active, candidate: the share of items drawn like explored ones that are farther from the query")
    print(" than a clicked one; 0.5 is chance)")
    if facts["moves"]:
        print(f"\nlargest moves of clicked items\n{'item':>10}{'before':>10}{'after':>10}   query")
    for move in facts["moves"]:
        query = json.dumps(move["query"])
        print(f"{move['item']:>10}{move['before']:>10.6g}{move['after']:>10.6g}   {query:.60}")
