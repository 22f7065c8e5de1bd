"""The command `bitrank demo`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> None:
    """Add `demo` to the commands."""
    demo = commands.add_parser(
        "demo",
        help="rank handwritten digits by every kind of weights; print a table and draw two pictures",
        description="Learn weights for 64-bit codes of 10 000 handwritten digits and compare the rankings.",
    )
    demo.add_argument(
        "--output", type=Path, default=Path("bitrank-demo"), help="folder for the pictures (default: %(default)s)"
    )
    demo.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    from bitrank import demo  # slow to import

    rows = demo.run_demo(arguments.output)
    print("64-bit ITQ codes; 500 queries in a collection of 5000 digits, learned from 5000 others.\n")
    print(f"{'ranker':<16}{'MAP':>8}{'P@10':>8}{'ties in top 100':>18}")
    for row in rows:
        print(f"{row.ranker:<16}{row.map:>8.3f}{row.p10:>8.3f}{row.ties100:>18.1%}")
    print()
    for name in (demo.CURVES, demo.TOP_TEN):
        print(f"picture: {(arguments.output / name).resolve()}")
    return 0
