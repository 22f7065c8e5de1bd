"""The commands `bitrank weights show|diff|export`: each parses, calls the library and prints.

`cli` adds them to its parser; weights come from a file, the folder of an index, or a running service.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.cli.weights_source import read_weights
from bitrank.files import write_array
from bitrank.ranking.held_out import mean_one
from bitrank.vocabulary import Weights

BAR = 30  # characters of the longest bar


def add_parser(commands: Any) -> None:
    """Add `weights` with its own commands to the subparsers of `cli`."""
    weights = commands.add_parser("weights", help="show, compare and export weights")
    inner = weights.add_subparsers(dest="weights_command", required=True)
    source = "file (.npy, .csv, .json), folder of an index, or URL of a version on a service"

    show = inner.add_parser("show", help="show how the weight is spread over the bits")
    show.add_argument("weights", help=source)
    show.set_defaults(run=_show)

    diff = inner.add_parser("diff", help="compare two weight vectors, both scaled to mean 1")
    diff.add_argument("before", help=source)
    diff.add_argument("after", help=source)
    diff.set_defaults(run=_diff)

    export = inner.add_parser("export", help="write weights in another form")
    export.add_argument("weights", help=source)
    export.add_argument("output", type=Path, help=".npy, .csv or .json, as its ending says")
    export.set_defaults(run=_export)

    for command in (show, diff):
        command.add_argument("--top", type=int, default=10, help="bits to list (default: %(default)s)")
        command.add_argument("--json", action="store_true", help="print JSON, for machines")
    for command in (show, diff, export):
        command.epilog = "A service that wants a token gets that of the environment variable BITRANK_TOKEN."


def _read(source: str) -> Weights:
    return read_weights(source, os.environ.get("BITRANK_TOKEN"))


def _show(arguments: argparse.Namespace) -> int:
    weights = _read(arguments.weights)
    total = float(weights.sum(dtype=np.float64))
    squares = float(np.square(weights, dtype=np.float64).sum())
    facts = {
        "n_bits": len(weights),
        "least": float(weights.min()),
        "mean": total / len(weights),
        "most": float(weights.max()),
        "n_zero": int((weights == 0).sum()),
        # As many equal weights are spread as widely.
        "effective_bits": total**2 / squares if squares else 0.0,
    }
    if arguments.json:
        print(json.dumps({**facts, "weights": weights.tolist()}))
        return 0
    _print_facts(facts)
    print("\nheaviest bits")
    for bit in np.argsort(-weights, kind="stable")[: arguments.top].tolist():
        length = round(BAR * float(weights[bit] / weights.max())) if weights.max() else 0
        print(f"{bit:>6} {weights[bit]:>10.4g}  {'█' * length}")
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    before, after = _read(arguments.before), _read(arguments.after)
    if len(before) != len(after):
        raise ValueError(f"both must have as many bits, got {len(before)} and {len(after)}")
    first, then = mean_one(before), mean_one(after)
    change = then - first
    facts = {
        "n_bits": len(first),
        "mean_change": float(np.abs(change).mean()),
        "most_change": float(np.abs(change).max()),
        "cosine": float(first @ then / (np.linalg.norm(first) * np.linalg.norm(then))),
    }
    order = np.argsort(-np.abs(change), kind="stable")[: arguments.top]
    if arguments.json:
        print(json.dumps({**facts, "bits": [_bit(bit, first, then) for bit in order.tolist()]}))
        return 0
    _print_facts(facts)
    print(f"\nbiggest changes\n{'bit':>6}{'before':>10}{'after':>10}{'change':>10}")
    for bit in order.tolist():
        print(f"{bit:>6}{first[bit]:>10.4g}{then[bit]:>10.4g}{change[bit]:>+10.3g}")
    return 0


def _bit(bit: int, first: npt.NDArray[np.float64], then: npt.NDArray[np.float64]) -> dict[str, float]:
    return {"bit": bit, "before": float(first[bit]), "after": float(then[bit])}


def _export(arguments: argparse.Namespace) -> int:
    weights = _read(arguments.weights)
    write_array(arguments.output, weights)
    print(f"{len(weights)} weights: {arguments.output}")
    return 0


def _print_facts(facts: dict[str, Any]) -> None:
    for name, value in facts.items():
        print(f"{name.replace('_', ' '):<16}{f'{value:.4g}' if isinstance(value, float) else value}")
