"""Judgements and queries as arguments, which `fit` and `eval` share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bitrank.core.files import read_array

if TYPE_CHECKING:
    from bitrank.ranking.evidence.pairs import Qrels

_PAIRS = "judged pairs: rows of (query, item) or (query, item, grade) row numbers, or a scipy sparse matrix (.npz)"
_QRELS = "judged pairs as a qrels file: `query 0 item grade` or `query item grade`"


def add_judged(command: argparse.ArgumentParser) -> Any:
    """Add the codes and what is known of them; returns the group, of which one argument must be there."""
    command.add_argument("--codes", type=Path, required=True, help=".npy of packed codes")
    command.add_argument("--n-bits", type=int, help="bits per code (default: those of real queries, or eight per byte)")
    judgements = command.add_mutually_exclusive_group(required=True)
    judgements.add_argument("--labels", type=Path, help="one class per code: .npy, .csv or .json")
    judgements.add_argument("--pairs", type=Path, help=_PAIRS)
    judgements.add_argument("--qrels", type=Path, help=_QRELS)
    return judgements


def add_ids(command: argparse.ArgumentParser) -> None:
    """Add the arguments that say which ids stand for which rows."""
    command.add_argument("--ids", type=Path, help="one id per code, for qrels and clicks (default: 0 to n - 1)")
    command.add_argument("--query-ids", type=Path, help="one id per query, for qrels (default: 0 to n - 1)")
    command.add_argument("--strict", action="store_true", help="refuse qrels with unknown ids, which are else skipped")


def read(path: Path | None) -> Any:
    """Read an array, or None where there is no path."""
    return None if path is None else read_array(path)


def read_pairs(arguments: argparse.Namespace, n_items: int, n_queries: int) -> Qrels:
    """Read the pairs or the qrels that the arguments name."""
    from bitrank.ranking.evidence.pairs import Qrels, read_qrels  # slow to import

    if arguments.pairs is None:
        query_ids, ids = _ids(arguments.query_ids, n_queries, "query"), _ids(arguments.ids, n_items, "code")
        return read_qrels(arguments.qrels, query_ids, ids, strict=arguments.strict)
    if arguments.pairs.suffix == ".npz":
        from scipy.sparse import load_npz

        return Qrels(load_npz(arguments.pairs), 0)
    return Qrels(read_array(arguments.pairs), 0)


def _ids(path: Path | None, n: int, what: str) -> Any:
    ids = np.arange(n) if path is None else read_array(path)
    if ids.shape != (n,):
        raise ValueError(f"{path} must hold one id for each of the {n}, one per {what}, got shape {ids.shape}")
    return ids
