"""The commands `bitrank weights show|diff|export`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from bitrank.cli.output import add_json, print_facts
from bitrank.cli.weights_source import SOURCES, TOKEN_NOTE, read_weights
from bitrank.core.files import write_array
from bitrank.ranking.weights import compare_weights, summarize_weights

BAR = 30  # characters in the longest bar


def add_parser(commands: Any) -> None:
    """Add `weights` and its three commands."""
    weights = commands.add_parser("weights", help="show, compare and export weights")
    inner = weights.add_subparsers(dest="weights_command", required=True)

    show = inner.add_parser("show", help="show how weight is spread over the bits", epilog=TOKEN_NOTE)
    show.add_argument("weights", help=SOURCES)
    show.set_defaults(run=_show)

    diff = inner.add_parser("diff", help="compare two weight vectors, both scaled to mean 1", epilog=TOKEN_NOTE)
    diff.add_argument("before", help=SOURCES)
    diff.add_argument("after", help=SOURCES)
    diff.set_defaults(run=_diff)

    export = inner.add_parser("export", help="write weights to a file", epilog=TOKEN_NOTE)
    export.add_argument("weights", help=SOURCES)
    export.add_argument("output", type=Path, help="file to write: .npy, .csv or .json")
    export.set_defaults(run=_export)

    for command in (show, diff):
        command.add_argument("--top", type=int, default=10, help="bits to list (default: %(default)s)")
    add_json(show, diff)


def _show(arguments: argparse.Namespace) -> int:
    weights = read_weights(arguments.weights)
    facts = summarize_weights(weights)._asdict()
    if arguments.json:
        print_facts({**facts, "weights": weights.tolist()}, as_json=True)
        return 0
    print_facts(facts, as_json=False)
    print("\nheaviest bits")
    for bit in np.argsort(-weights, kind="stable")[: arguments.top].tolist():
        length = round(BAR * float(weights[bit]) / facts["max"]) if facts["max"] else 0
        print(f"{bit:>6} {weights[bit]:>10.4g}  {'█' * length}")
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    change = compare_weights(read_weights(arguments.before), read_weights(arguments.after))
    facts = {
        "n_bits": len(change.before),
        "mean_change": change.mean_change,
        "max_change": change.max_change,
        "cosine": change.cosine,
    }
    bits = [
        {"bit": bit, "before": float(change.before[bit]), "after": float(change.after[bit])}
        for bit in change.order[: arguments.top].tolist()
    ]
    if arguments.json:
        print_facts({**facts, "bits": bits}, as_json=True)
        return 0
    print_facts(facts, as_json=False)
    print(f"\nlargest changes\n{'bit':>6}{'before':>10}{'after':>10}{'change':>10}")
    for line in bits:
        before, after = line["before"], line["after"]
        print(f"{line['bit']:>6}{before:>10.4g}{after:>10.4g}{after - before:>+10.3g}")
    return 0


def _export(arguments: argparse.Namespace) -> int:
    weights = read_weights(arguments.weights)
    write_array(arguments.output, weights)
    print(f"{len(weights)} weights: {arguments.output}")
    return 0
