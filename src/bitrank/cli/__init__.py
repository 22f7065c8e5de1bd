"""The command line: one module per command, each from arguments to one library call to printed output.

Only this package prints. A module has `add_parser`, which adds its command and names the function that runs it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

import bitrank
from bitrank.cli import backup, cells, create, demo, feedback, learn, replay, report, search, serve, weights
from bitrank.cli import eval as eval_command

# One line of every command, as somebody would type it.
EXAMPLES = (
    "demo --output figures",
    "create shop.bitrank vectors.npy --ids names.csv",
    "learn shop.bitrank --labels labels.csv",
    "search shop.bitrank queries.npy -k 10 --explain",
    "eval shop.bitrank --queries queries.npy --qrels test.qrels",
    "report shop.bitrank --plot report.png",
    "info shop.bitrank",
    "cells shop.bitrank",
    "weights show weights.npy",
    "weights diff before.npy after.npy",
    "weights export shop.ranker weights.npy",
    "feedback import clicks.jsonl --output log.jsonl",
    "feedback prune --data clicks --days 90",
    "replay shop.bitrank clicks.jsonl",
    "serve shop.bitrank --port 8000",
    "backup --data clicks monday.db",
    "restore --data clicks monday.db",
)
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
        status = int(arguments.run(arguments) or 0)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print(f"bitrank {arguments.command}: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # whoever reads has read enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing is left to say at the end of the process
        return 0
    except (ValueError, OSError, ModuleNotFoundError) as error:
        raise SystemExit(f"bitrank {arguments.command}: {error}") from None


def make_parser() -> argparse.ArgumentParser:
    """Build the parser of all commands; docs/cli.md is written from it."""
    parser = argparse.ArgumentParser(prog="bitrank", description="Search vectors as bits, and learn how to ask.")
    parser.add_argument("--version", action="version", version=f"bitrank {bitrank.__version__}")
    commands = parser.add_subparsers(dest="command")
    for command in COMMANDS:
        command.add_parser(commands)
    for line in EXAMPLES:
        _add_example(parser, line)
    return parser


def _add_example(parser: argparse.ArgumentParser, line: str) -> None:
    """Put an example below the help of the command that it begins with."""
    named = parser
    for word in line.split():
        inner = [action for action in named._actions if isinstance(action, argparse._SubParsersAction)]
        if not inner:
            break
        named = inner[0].choices[word]
    named.epilog = f"example: bitrank {line}" + (f". {named.epilog}" if named.epilog else "")
