"""The command line: one module per command, each from arguments to one library call to printed output.

Only this package prints. A module has `add_parser`, which adds its command and names the function that runs it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import bitrank
from bitrank.cli import backup, cells, create, demo, feedback, learn, replay, report, search, serve, weights
from bitrank.cli import eval as eval_command

COMMANDS = (demo, create, learn, search, eval_command, report, cells, weights, feedback, replay, serve, backup)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

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
    """Build the parser of all commands; docs/cli.md is written from it."""
    parser = argparse.ArgumentParser(prog="bitrank", description="Search vectors as bits, and learn how to ask.")
    parser.add_argument("--version", action="version", version=f"bitrank {bitrank.__version__}")
    commands = parser.add_subparsers(dest="command")
    for command in COMMANDS:
        command.add_parser(commands)
    return parser
