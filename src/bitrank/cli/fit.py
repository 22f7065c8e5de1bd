"""The commands `bitrank fit` and `bitrank eval`: each parses, calls the library and prints.

`cli` adds them to its parser; codes, labels and weights are plain files.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bitrank.checks import check_labels, check_n_bits
from bitrank.cli.weights_source import read_weights
from bitrank.codes import distances
from bitrank.files import check_kind, read_array, write_array
from bitrank.metrics import evaluate
from bitrank.progress import progress
from bitrank.vocabulary import Codes

FIGURES = ("map", "p10", "p100", "voc11")


def add_parser(commands: Any) -> None:
    """Add `fit` and `eval` to the subparsers of `cli`."""
    fit = commands.add_parser(
        "fit",
        help="learn weights from labels or triplets",
        description="Learn a weight per bit from labelled codes or from triplets. Held-out data decide how far to "
        "trust them: uniform weights are what you get where nothing beats them.",
    )
    _add_codes(fit)
    learn_from = fit.add_mutually_exclusive_group(required=True)
    learn_from.add_argument("--labels", type=Path, help="class of each code: .npy, .csv or .json")
    learn_from.add_argument(
        "--triplets",
        type=Path,
        help="rows of (query, dissimilar, similar) as row numbers; a fourth, similar, is allowed",
    )
    fit.add_argument("--queries", type=Path, help=".npy of codes that the triplets' queries are rows of, if not CODES")
    fit.add_argument(
        "--scoring",
        choices=("guarded", "map", "p10"),
        default="guarded",
        help="what to raise on held-out data: MAP without losing P@10, MAP, or P@10 (default: %(default)s)",
    )
    fit.add_argument(
        "--validation",
        choices=("rows", "classes"),
        default="rows",
        help="what to hold out: classes, where future ones will be new (default: %(default)s)",
    )
    fit.add_argument("--seed", type=int, default=0, help="of all that is drawn (default: %(default)s)")
    fit.add_argument("--output", type=Path, required=True, help="weights to write: .npy, .csv or .json")
    fit.set_defaults(run=_fit)

    judge = commands.add_parser(
        "eval",
        help="measure how well weights rank labelled codes",
        description="Rank labelled codes by plain Hamming distance and by weights, and print MAP, P@10, P@100 and "
        "VOC-11, in expectation over ties.",
    )
    _add_codes(judge)
    judge.add_argument("--labels", type=Path, required=True, help="class of each code: .npy, .csv or .json")
    judge.add_argument(
        "--weights",
        action="append",
        default=[],
        metavar="WEIGHTS",
        help="file, index folder or URL of a version; may come again",
    )
    judge.add_argument(
        "--query-codes", type=Path, help=".npy of codes to search with (default: codes of the collection)"
    )
    judge.add_argument("--query-labels", type=Path, help="their classes")
    judge.add_argument("--most-queries", type=int, default=1000, help="a random part of more (default: %(default)s)")
    judge.add_argument("--seed", type=int, default=0, help="of that part (default: %(default)s)")
    judge.set_defaults(run=_eval)
    for command in (fit, judge):
        command.add_argument("--json", action="store_true", help="print JSON, for machines")


def _add_codes(command: argparse.ArgumentParser) -> None:
    command.add_argument("--codes", type=Path, required=True, help=".npy of packed codes")
    command.add_argument("--n-bits", type=int, help="bits of a code (default: eight a byte)")


def _fit(arguments: argparse.Namespace) -> int:
    check_kind(arguments.output)
    codes = read_array(arguments.codes)
    from bitrank.ranking.ranking_svm import RankingSVM  # slow to import, and the other commands do not need it

    learner = RankingSVM(
        arguments.n_bits, scoring=arguments.scoring, validation=arguments.validation, random_state=arguments.seed
    )
    if arguments.labels is not None:
        if arguments.queries is not None:
            raise ValueError("--queries goes with --triplets")
        learner.fit(codes, read_array(arguments.labels))
    else:
        queries = None if arguments.queries is None else read_array(arguments.queries)
        learner.fit_quadruplets(codes, read_array(arguments.triplets), queries)
    write_array(arguments.output, learner.weights_)
    uniform = learner.report_[0]
    tried = [
        line for line in learner.report_ if all(line.get(name) == value for name, value in learner.params_.items())
    ]
    chosen = tried[-1] if tried and learner.params_["blend"] else uniform
    figures = [name for name in ("map", "p10", "order") if name in uniform]
    facts = {
        "n_bits": learner.n_bits_,
        "blend": learner.params_["blend"],
        "uniform": {name: uniform[name] for name in figures},
        "learned": {name: chosen[name] for name in figures},
    }
    if arguments.json:
        print(json.dumps(facts))
        return 0
    if not learner.params_["blend"]:
        print("nothing beat uniform weights on held-out data: uniform weights were written")
    print(f"{'held out':<12}" + "".join(f"{name:>8}" for name in figures))
    for row in ("uniform", "learned"):
        print(f"{row:<12}" + "".join(f"{facts[row][name]:>8.3f}" for name in figures))
    print(f"{learner.n_bits_} weights: {arguments.output}")
    return 0


def _eval(arguments: argparse.Namespace) -> int:
    codes, n_bits = check_n_bits(read_array(arguments.codes), arguments.n_bits)
    labels = check_labels(read_array(arguments.labels), len(codes))
    if (arguments.query_codes is None) != (arguments.query_labels is None):
        raise ValueError("--query-codes and --query-labels go together")
    if arguments.most_queries < 1:
        raise ValueError(f"--most-queries must be at least 1, got {arguments.most_queries}")
    own = arguments.query_codes is None
    queries = codes if own else check_n_bits(read_array(arguments.query_codes), n_bits)[0]
    query_labels = labels if own else check_labels(read_array(arguments.query_labels), len(queries))
    rows = np.random.default_rng(arguments.seed).permutation(len(queries))[: arguments.most_queries]
    table: dict[str, dict[str, float]] = {}
    rankings: list[tuple[str, Any]] = [("Hamming", None), *((name, read_weights(name)) for name in arguments.weights)]
    for name, weights in progress(rankings, label="ranking"):
        found = _figures(codes, labels, queries[rows], query_labels[rows], weights, rows if own else None)
        table[name] = {figure: found[figure] for figure in FIGURES}
    if arguments.json:
        print(json.dumps({"n_queries": len(rows), "n_items": len(codes), "rankings": table}))
        return 0
    width = max(map(len, table)) + 2
    print(f"{len(rows)} queries in {len(codes)} codes of {n_bits} bits\n")
    print(f"{'':<{width}}" + "".join(f"{figure:>8}" for figure in FIGURES))
    for name, line in table.items():
        print(f"{name:<{width}}" + "".join(f"{line[figure]:>8.3f}" for figure in FIGURES))
    return 0


def _figures(
    codes: Codes,
    labels: npt.NDArray[Any],
    queries: Codes,
    query_labels: npt.NDArray[Any],
    weights: Any,
    own: npt.NDArray[np.int64] | None,
) -> dict[str, float]:
    found = distances(queries, codes, weights).astype(np.float32)
    relevant = query_labels[:, None] == labels
    if own is not None:  # a row does not find itself
        found[np.arange(len(own)), own] = np.inf
        relevant[np.arange(len(own)), own] = False
    return evaluate(found, relevant)
