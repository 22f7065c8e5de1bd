"""The command `bitrank eval`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bitrank.cli.judgements import add_judged, arguments_of_pairs, read
from bitrank.cli.output import add_run
from bitrank.cli.weights import SOURCES, TOKEN_NOTE, read_weights
from bitrank.core.codes import sample_rows, unpack
from bitrank.core.files import read_array

if TYPE_CHECKING:
    from bitrank import Collection

_FEWEST_QUERIES, _SHIFT = 30, 0.2  # queries that tell, and mean difference of the shares of ones of a bit


def add_parser(commands: Any) -> None:
    """Add `eval` to the commands."""
    command = commands.add_parser(
        "eval",
        help="measure how well a collection answers judged queries",
        description="Rank judged items by plain Hamming distance (and by the asymmetric distance, if queries are "
        "vectors or reals), by what the collection learned, by rankers and by weights. Print MAP, P@10, nDCG@10 with "
        "the gain 2^grade - 1, MRR@10, recall at 100, P@100 and VOC-11, in expectation over ties.",
        epilog=TOKEN_NOTE,
    )
    add_judged(command)
    command.add_argument("--query-labels", type=Path, help="one class per query (default: items are the queries)")
    command.add_argument("--ranker", type=Path, action="append", default=[], help="saved ranker; may be repeated")
    command.add_argument(
        "--weights", action="append", default=[], metavar="WEIGHTS", help=f"{SOURCES}; may be repeated"
    )
    command.add_argument("--groups", type=Path, help="name of each query's group, to print figures per group")
    command.add_argument(
        "--max-queries",
        type=int,
        default=1000,
        help="measure a random sample of at most this many queries (default: %(default)s)",
    )
    command.add_argument("--seed", type=int, default=0, help="seed of the sample (default: %(default)s)")
    add_run(command, _eval)


def _eval(arguments: argparse.Namespace) -> None:
    from bitrank import Collection  # slow to import
    from bitrank.collection.planes import over_codes
    from bitrank.evaluation import evaluate_rankings
    from bitrank.ranking import load_ranker

    collection, queries, features = Collection.load(arguments.collection), read(arguments.queries), None
    judgements = _judgements(arguments, collection, queries)
    hasher = collection.hasher
    if hasher is not None and queries is not None and queries.shape[-1] == hasher.n_features_in_:
        queries, features = hasher.project(queries), queries
    elif queries is not None and _is_shifted(queries, collection):
        print(
            "warning: the signs of the queries have other shares of ones than the codes: centre queries as the vectors "
            "were centred that the codes were made of",
            file=sys.stderr,
        )
    rankings: dict[str, Any] = {"Hamming": None}
    if queries is not None and queries.dtype.kind == "f" and queries.ndim == 2:
        rankings["asymmetric"] = [1.0] * queries.shape[1]
    if collection.ranker is not None:
        rankings["learned"] = over_codes(collection.ranker, hasher)
    rankings |= {source: read_weights(source) for source in arguments.weights}
    rankings |= {str(path): load_ranker(path) for path in arguments.ranker}
    evaluation = evaluate_rankings(
        collection.codes(),
        rankings,
        **judgements,
        queries=queries,
        features=features,
        groups=read(arguments.groups),
        n_bits=collection.n_bits,
        max_queries=arguments.max_queries,
        random_state=arguments.seed,
    )
    if arguments.json:
        facts = {"n_queries": evaluation.n_queries, "n_items": evaluation.n_items, "rankings": evaluation.figures}
        if arguments.groups is not None:
            facts["groups"] = {
                name: {"n_queries": group.n_queries, "rankings": group.figures}
                for name, group in evaluation.groups.items()
            }
        print(json.dumps(facts))
        return
    print(f"{evaluation.n_queries} queries in {evaluation.n_items} codes of {evaluation.n_bits} bits\n")
    _print(evaluation.figures)
    for name, group in evaluation.groups.items():
        print(f"\ngroup {name}: {group.n_queries} queries")
        _print(group.figures)


def _is_shifted(queries: Any, collection: Collection) -> bool:
    """Whether reals, one column per bit, look as if they were not centred as the codes were."""
    if queries.dtype.kind != "f" or queries.ndim != 2 or len(queries) < _FEWEST_QUERIES:
        return False
    if queries.shape[1] != collection.n_bits:
        return False
    codes = collection.codes()
    shares = unpack(codes[sample_rows(len(codes), 1000)], collection.n_bits).mean(axis=0)
    return bool(np.abs((queries > 0).mean(axis=0) - shares).mean() > _SHIFT)


def _judgements(arguments: argparse.Namespace, collection: Collection, queries: Any) -> dict[str, Any]:
    """Keyword arguments for the judgements."""
    if arguments.labels is not None:
        if (queries is None) != (arguments.query_labels is None):
            raise ValueError("--queries and --query-labels go together")
        return {"y": read_array(arguments.labels), "query_y": read(arguments.query_labels)}
    if queries is None or arguments.query_labels is not None:
        raise ValueError("--pairs and --qrels go with --queries and without --query-labels")
    from bitrank.collection.learning import Evidence, read_pairs

    pairs, query_ids = arguments_of_pairs(arguments)
    evidence = Evidence("pairs", pairs, query_ids=query_ids, ignore_unknown=arguments.ignore_unknown)
    rows = {name: row for row, name in enumerate(collection.ids.tolist())}
    found, _ = read_pairs(evidence, len(queries), collection.ids, lambda ids: np.array([rows.get(i, -1) for i in ids]))
    return {"pairs": found}


def _print(table: dict[str, dict[str, float]]) -> None:
    width = max(map(len, table)) + 2
    print(" " * width + "".join(f"{figure:>11}" for figure in next(iter(table.values()))))
    for name, figures in table.items():
        print(f"{name:<{width}}" + "".join(f"{value:>11.3f}" for value in figures.values()))
