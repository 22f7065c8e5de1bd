"""Write docs/cli.md: the --help of every command, as the parser itself prints it.

Run it after a change of the command line; a test fails until then: python scripts/make_cli_docs.py
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

OUTPUT = Path(__file__).parents[1] / "docs" / "cli.md"
HEAD = """# Command line

The `--help` of every command, written by `python scripts/make_cli_docs.py`. `--json`, where there is one, prints for
machines; bars are shown on a terminal only. A mistake ends with a message and the status 1 or 2, and changes nothing.

Arrays are plain files: codes are `.npy` (packed, `uint8`); labels, triplets and weights are `.npy`, `.csv` or `.json`.
Nothing is ever unpickled. How clicks are learned from: [feedback](feedback.md).
"""


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and all parsers below it; groups that only hold others are left out."""
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not inner or parser.prog == "bitrank":
        yield parser
    for action in inner:
        for each in action.choices.values():
            yield from commands(each)


def page() -> str:
    os.environ["COLUMNS"], os.environ["NO_COLOR"] = "110", "1"
    from bitrank.cli import make_parser

    parts = [f"## {each.prog}\n```\n{each.format_help().rstrip()}\n```\n" for each in commands(make_parser())]
    return "\n".join([HEAD, *parts])


if __name__ == "__main__":
    OUTPUT.write_text(page(), encoding="utf-8")
    print(OUTPUT)
