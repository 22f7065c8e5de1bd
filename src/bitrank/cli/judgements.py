"""Judgements and queries as arguments, which `learn` and `eval` share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bitrank.core.files import read_array

QRELS = "judged pairs as a qrels file: `query 0 item grade` or `query item grade`"
PAIRS = "judged pairs: rows of (row of QUERIES, id[, grade]), or a scipy sparse matrix (.npz) of queries by items"


def add_judged(command: argparse.ArgumentParser) -> Any:
    """Add the collection and what is known of its items; returns the group, of which one argument must be there."""
    command.add_argument("collection", type=Path, help="folder of the collection")
    judgements = command.add_mutually_exclusive_group(required=True)
    judgements.add_argument("--labels", type=Path, help="one class per item, in the order of ids: .npy, .csv or .json")
    judgements.add_argument("--pairs", type=Path, help=PAIRS)
    judgements.add_argument("--qrels", type=Path, help=QRELS)
    command.add_argument("--queries", type=Path, help=".npy of queries: vectors, codes, or reals with a column per bit")
    command.add_argument("--query-ids", type=Path, help="one id per query, for qrels (default: 0 to n - 1)")
    command.add_argument(
        "--ignore-unknown", action="store_true", help="leave out evidence about unknown ids, which is else an error"
    )
    return judgements


def read(path: Path | None) -> Any:
    """Read an array, or None where there is no path."""
    return None if path is None else read_array(path)


def arguments_of_pairs(arguments: argparse.Namespace) -> tuple[Any, list[Any] | None]:
    """Judged pairs (rows, a sparse matrix or the path of qrels) and the names of the queries; None without any."""
    names, pairs = read(arguments.query_ids), arguments.qrels
    if arguments.pairs is not None and arguments.pairs.suffix == ".npz":
        from scipy.sparse import load_npz

        pairs = load_npz(arguments.pairs)
    elif arguments.pairs is not None:
        pairs = read_array(arguments.pairs)
    return pairs, None if names is None else names.tolist()
