"""The command `bitrank eval`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bitrank.cli.output import add_json
from bitrank.cli.weights_source import SOURCES, TOKEN_NOTE, read_weights
from bitrank.files import read_array

FIGURES = ("map", "p10", "p100", "voc11")


def add_parser(commands: Any) -> None:
    """Add `eval` to the commands."""
    command = commands.add_parser(
        "eval",
        help="measure how well weights rank labelled codes",
        description="Rank labelled codes by plain Hamming distance and by weights, and print MAP, P@10, P@100 and "
        "VOC-11, in expectation over ties.",
        epilog=TOKEN_NOTE,
    )
    command.add_argument("--codes", type=Path, required=True, help=".npy of packed codes")
    command.add_argument("--n-bits", type=int, help="bits per code (default: eight per byte)")
    command.add_argument("--labels", type=Path, required=True, help="one class per code: .npy, .csv or .json")
    command.add_argument(
        "--weights", action="append", default=[], metavar="WEIGHTS", help=f"{SOURCES}; may be repeated"
    )
    command.add_argument("--queries", type=Path, help=".npy of query codes (default: the codes themselves)")
    command.add_argument("--query-labels", type=Path, help="one class per query")
    command.add_argument(
        "--max-queries",
        type=int,
        default=1000,
        help="measure a random sample of at most this many queries (default: %(default)s)",
    )
    command.add_argument("--seed", type=int, default=0, help="seed of the sample (default: %(default)s)")
    add_json(command)
    command.set_defaults(run=_eval)


def _eval(arguments: argparse.Namespace) -> int:
    if (arguments.queries is None) != (arguments.query_labels is None):
        raise ValueError("--queries and --query-labels go together")
    from bitrank.evaluation import evaluate_weights

    evaluation = evaluate_weights(
        read_array(arguments.codes),
        read_array(arguments.labels),
        {"Hamming": None, **{source: read_weights(source) for source in arguments.weights}},
        queries=None if arguments.queries is None else read_array(arguments.queries),
        query_y=None if arguments.query_labels is None else read_array(arguments.query_labels),
        n_bits=arguments.n_bits,
        max_queries=arguments.max_queries,
        random_state=arguments.seed,
    )
    table = {name: {figure: figures[figure] for figure in FIGURES} for name, figures in evaluation.figures.items()}
    if arguments.json:
        print(json.dumps({"n_queries": evaluation.n_queries, "n_items": evaluation.n_items, "rankings": table}))
        return 0
    width = max(map(len, table)) + 2
    print(f"{evaluation.n_queries} queries in {evaluation.n_items} codes of {evaluation.n_bits} bits\n")
    print(f"{'':<{width}}" + "".join(f"{figure:>8}" for figure in FIGURES))
    for name, figures in table.items():
        print(f"{name:<{width}}" + "".join(f"{value:>8.3f}" for value in figures.values()))
    return 0
