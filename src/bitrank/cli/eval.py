"""The command `bitrank eval`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bitrank.cli.judgements import add_ids, add_judged, read, read_pairs
from bitrank.cli.output import add_json
from bitrank.cli.weights_source import SOURCES, TOKEN_NOTE, read_weights
from bitrank.core.files import read_array


def add_parser(commands: Any) -> None:
    """Add `eval` to the commands."""
    command = commands.add_parser(
        "eval",
        help="measure how well rankers and weights rank judged codes",
        description="Rank judged codes by plain Hamming distance (and by the asymmetric distance, if queries are "
        "reals), by rankers and by weights. Print MAP, P@10, nDCG@10 with the gain 2^grade - 1, recall at 100, P@100 "
        "and VOC-11, in expectation over ties.",
        epilog=TOKEN_NOTE,
    )
    add_judged(command)
    command.add_argument(
        "--ranker", type=Path, action="append", default=[], help="ranker that `fit` wrote; may be repeated"
    )
    command.add_argument(
        "--weights", action="append", default=[], metavar="WEIGHTS", help=f"{SOURCES}; may be repeated"
    )
    command.add_argument("--queries", type=Path, help=".npy of queries, codes or reals (default: the codes themselves)")
    command.add_argument("--query-labels", type=Path, help="one class per query")
    command.add_argument("--features", type=Path, help=".npy of features, one row per query, for rankers that use them")
    add_ids(command)
    command.add_argument("--groups", type=Path, help="name of each query's group, to print figures per group")
    command.add_argument(
        "--max-queries",
        type=int,
        default=1000,
        help="measure a random sample of at most this many queries (default: %(default)s)",
    )
    command.add_argument("--seed", type=int, default=0, help="seed of the sample (default: %(default)s)")
    add_json(command)
    command.set_defaults(run=_eval)


def _eval(arguments: argparse.Namespace) -> int:
    from bitrank.evaluation import evaluate_rankings
    from bitrank.ranking import load_ranker

    codes, queries = read_array(arguments.codes), read(arguments.queries)
    judgements, n_unknown = _judgements(arguments, codes, queries)
    rankings: dict[str, Any] = {"Hamming": None}
    if queries is not None and queries.dtype.kind == "f" and queries.ndim == 2:
        rankings["asymmetric"] = [1.0] * queries.shape[1]
    rankings |= {source: read_weights(source) for source in arguments.weights}
    rankings |= {str(path): load_ranker(path) for path in arguments.ranker}
    evaluation = evaluate_rankings(
        codes,
        rankings,
        **judgements,
        queries=queries,
        features=read(arguments.features),
        groups=read(arguments.groups),
        n_bits=arguments.n_bits,
        max_queries=arguments.max_queries,
        random_state=arguments.seed,
    )
    if arguments.json:
        facts = {"n_queries": evaluation.n_queries, "n_items": evaluation.n_items, "rankings": evaluation.figures}
        if arguments.qrels is not None:
            facts["n_unknown"] = n_unknown
        if arguments.groups is not None:
            facts["groups"] = {
                name: {"n_queries": group.n_queries, "rankings": group.figures}
                for name, group in evaluation.groups.items()
            }
        print(json.dumps(facts))
        return 0
    if n_unknown:
        print(f"{n_unknown} judgements name unknown ids and were skipped")
    print(f"{evaluation.n_queries} queries in {evaluation.n_items} codes of {evaluation.n_bits} bits\n")
    _print(evaluation.figures)
    for name, group in evaluation.groups.items():
        print(f"\ngroup {name}: {group.n_queries} queries")
        _print(group.figures)
    return 0


def _judgements(arguments: argparse.Namespace, codes: Any, queries: Any) -> tuple[dict[str, Any], int]:
    """Keyword arguments for the judgements, and how many lines of a qrels file were skipped."""
    if arguments.labels is not None:
        if (queries is None) != (arguments.query_labels is None):
            raise ValueError("--queries and --query-labels go together")
        return {"y": read_array(arguments.labels), "query_y": read(arguments.query_labels)}, 0
    if queries is None or arguments.query_labels is not None:
        raise ValueError("--pairs and --qrels go with --queries and without --query-labels")
    pairs, n_unknown = read_pairs(arguments, len(codes), len(queries))
    return {"pairs": pairs}, n_unknown


def _print(table: dict[str, dict[str, float]]) -> None:
    width = max(map(len, table)) + 2
    print(" " * width + "".join(f"{figure:>11}" for figure in next(iter(table.values()))))
    for name, figures in table.items():
        print(f"{name:<{width}}" + "".join(f"{value:>11.3f}" for value in figures.values()))
