"""The command line: each command parses, makes one call of the library, and prints.

It is the outermost room, and the only one that prints.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import bitrank
from bitrank.cli import feedback, fit, index, serve, weights

GROUPS = (index, fit, weights, feedback, serve)  # each adds its commands, which know what to run


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    Examples
    --------
    >>> main([])  # doctest: +ELLIPSIS
    usage: bitrank ...
    2
    """
    parser = make_parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return 2
    try:
        return int(arguments.run(arguments))
    except (ValueError, OSError, ModuleNotFoundError) as error:
        raise SystemExit(f"bitrank {arguments.command}: {error}") from None


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands; docs/cli.md is made from it."""
    parser = argparse.ArgumentParser(prog="bitrank", description="Rank binary codes by learned weights per bit.")
    parser.add_argument("--version", action="version", version=f"bitrank {bitrank.__version__}")
    commands = parser.add_subparsers(dest="command")
    demo = commands.add_parser(
        "demo",
        help="rank handwritten digits by every kind of weights, with a table and two pictures",
        description="Learn weights for 64-bit codes of 10 000 handwritten digits and compare the rankings.",
    )
    demo.add_argument(
        "--output", type=Path, default=Path("bitrank-demo"), help="folder for the pictures (default: %(default)s)"
    )
    demo.set_defaults(run=_demo)
    for group in GROUPS:
        group.add_parser(commands)
    return parser


def _demo(arguments: argparse.Namespace) -> int:
    from bitrank import demo

    try:
        rows = demo.run_demo(arguments.output)
    except ModuleNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    print("ITQ codes of 64 bits; 500 queries in a collection of 5000 digits, learned from 5000 others.\n")
    print(f"{'ranker':<16}{'MAP':>8}{'P@10':>8}{'ties in top 100':>18}")
    for row in rows:
        print(f"{row.ranker:<16}{row.map:>8.3f}{row.p10:>8.3f}{row.ties100:>18.1%}")
    print()
    for name in (demo.CURVES, demo.TOP_TEN):
        print(f"picture: {(arguments.output / name).resolve()}")
    return 0
