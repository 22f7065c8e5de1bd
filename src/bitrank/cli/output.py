"""Printed output that several commands share."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bitrank.collection import CollectionReport


def add_run(command: argparse.ArgumentParser, run: Callable[[argparse.Namespace], None]) -> None:
    """Add `--json`, and name the function that runs the command."""
    command.add_argument("--json", action="store_true", help="print JSON, for programs")
    command.set_defaults(run=run)


def print_facts(facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Print facts, one per line or as one JSON object.

    Examples
    --------
    >>> print_facts({"n_bits": 64, "cosine": 0.98765}, as_json=False)
    n bits              64
    cosine              0.9877
    """
    if as_json:
        print(json.dumps(facts))
        return
    for name, value in facts.items():
        print(f"{name.replace('_', ' '):<20}{f'{value:.4g}' if isinstance(value, float) else value}")


def print_report(report: CollectionReport, *, as_json: bool) -> None:
    """Print the report of a collection, as text or as one JSON object.

    Examples
    --------
    >>> from bitrank import Collection
    >>> print_report(Collection.from_codes([[1], [2]]).report(), as_json=False)
    2 items of 8 bits: 1 byte per item
    in use: the plain ranking (nothing was learned yet)
    """
    print(json.dumps(report.to_json()) if as_json else report)
