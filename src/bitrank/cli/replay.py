"""The command `bitrank replay`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitrank.cli.feedback import LOGS
from bitrank.cli.output import add_json, print_facts
from bitrank.cli.weights_source import SOURCES, TOKEN_NOTE, read_weights
from bitrank.core.files import check_output
from bitrank.index import Index

if TYPE_CHECKING:
    from bitrank.clicks import LogReplay


def add_parser(commands: Any) -> None:
    """Add `replay` to the commands."""
    command = commands.add_parser(
        "replay",
        help="show what logged clicks would have done to the ranking",
        description="Learn from logged clicks in their order, behind the gate, and compare the ranking before and "
        "after. The index is not changed.",
        epilog=TOKEN_NOTE,
    )
    command.add_argument("logs", nargs="+", type=Path, help=LOGS)
    command.add_argument("--index", type=Path, required=True, help="folder of the index that was searched")
    start = command.add_mutually_exclusive_group()
    start.add_argument("--ranker", type=Path, help="ranker that is active at the start, from `bitrank fit`")
    start.add_argument(
        "--weights", help=f"active weights at the start: {SOURCES} (default: those of the index, else plain Hamming)"
    )
    command.add_argument("--hasher", type=Path, help="saved hasher (.npz), for logs whose queries are vectors")
    command.add_argument("--output", type=Path, help="file for the learned ranker")
    command.add_argument("--top", type=int, default=10, help="moved items to list (default: %(default)s)")
    command.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    add_json(command)
    command.set_defaults(run=_replay)


def _replay(arguments: argparse.Namespace) -> int:
    if arguments.output is not None:
        check_output(arguments.output)
    from bitrank.clicks import read_log, replay_log  # slow to import

    index = Index.load(arguments.index)
    codes, ids = index.export()
    replayed = replay_log(
        read_log(arguments.logs),
        codes,
        ids,
        index.n_bits,
        project=_project(arguments.hasher),
        ranker=_start(arguments, index),
        random_state=arguments.seed,
    )
    if arguments.output is not None:
        replayed.replay.candidate.save(arguments.output)
    facts = _facts(replayed, arguments.top)
    if arguments.json:
        print_facts(facts, as_json=True)
    else:
        _print(facts)
    return 0


def _start(arguments: argparse.Namespace, index: Index) -> Any:
    """The ranker that is active at the start; None is plain Hamming."""
    from bitrank.ranking import RankingSVM, load_ranker

    if arguments.ranker is not None:
        return load_ranker(arguments.ranker)
    weights = index.weights if arguments.weights is None else read_weights(arguments.weights)
    return None if weights is None else RankingSVM.from_weights(weights)


def _project(hasher: Path | None) -> Any:
    from bitrank.hashing import load_hasher  # slow to import

    return None if hasher is None else load_hasher(hasher).project


def _facts(log_replay: LogReplay, top: int) -> dict[str, Any]:
    replayed = log_replay.replay
    return {
        "n_pages": replayed.n_pages,
        "n_left_out": log_replay.n_left_out,
        "n_clicks": replayed.n_clicks,
        "n_explored_clicks": replayed.n_explored_clicks,
        "activated": any(look.decision.activate for look in replayed.looks),
        "top_20_kept": replayed.overlap,
        "decisions": [{"n_pages": look.n_pages, **look.decision._asdict()} for look in replayed.looks],
        "moves": [move._asdict() for move in log_replay.moves[:top]],
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
