"""Printed output that several commands share."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any


def add_json(*commands: argparse.ArgumentParser) -> None:
    """Add `--json` to the commands."""
    for command in commands:
        command.add_argument("--json", action="store_true", help="print JSON, for programs")


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
