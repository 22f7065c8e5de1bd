"""Write docs/cli.md: the --help of every command, as the parser prints it.

Run it after changing the command line; a test fails until you do: python scripts/make_cli_docs.py
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

OUTPUT = Path(__file__).parents[1] / "docs" / "cli.md"
HEAD = """# Command line

The `--help` of every command, as `python scripts/make_cli_docs.py` writes it. With `--json` a command prints JSON for
programs. Progress bars appear on terminals only. A mistake ends with a message and exit status 1 or 2, and changes
nothing.

```
bitrank create shop.bitrank vectors.npy --ids names.csv     # or --codes, an index folder, Parquet, FAISS
bitrank search shop.bitrank queries.npy -k 10
bitrank learn shop.bitrank --labels labels.csv              # or --pairs, --qrels, --constraints, --clicks
bitrank eval shop.bitrank --queries queries.npy --qrels test.qrels
bitrank report shop.bitrank
```
`python -m bitrank` does the same as `bitrank`. Arrays are plain files: vectors, codes and queries are `.npy`; labels,
pairs, constraints, ids, groups and weights are `.npy`, `.csv` or `.json`. `learn --output` also writes a ranker, which
`bitrank.load_ranker`, `eval` and `serve` read. Nothing is ever unpickled. For learning from clicks as they come, see
[feedback](feedback.md).
"""


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser and all parsers below it, except groups that only hold other commands."""
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not inner or parser.prog == "bitrank":
        yield parser
    for action in inner:
        for command in action.choices.values():
            yield from commands(command)


def page() -> str:
    os.environ["COLUMNS"], os.environ["NO_COLOR"] = "110", "1"
    from bitrank.cli import make_parser

    parts = [f"## {command.prog}\n```\n{command.format_help().rstrip()}\n```\n" for command in commands(make_parser())]
    return "\n".join([HEAD, *parts])


if __name__ == "__main__":
    OUTPUT.write_text(page(), encoding="utf-8")
    print(OUTPUT)
