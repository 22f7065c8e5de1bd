"""The command `bitrank fit`."""

from __future__ import annotations

import argparse
import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitrank.cli.feedback import LOGS
from bitrank.cli.judgements import add_ids, add_judged, read, read_pairs
from bitrank.cli.output import add_json, print_facts
from bitrank.core.files import KINDS, check_output, read_array
from bitrank.ranking.registry import RANKERS

if TYPE_CHECKING:
    from bitrank.ranking import Ranker


def add_parser(commands: Any) -> None:
    """Add `fit` to the commands."""
    command = commands.add_parser(
        "fit",
        help="learn a ranker from labels, judged pairs, qrels, triplets, vectors or clicks",
        description="Learn how to rank codes, and write a ranker. Held-out data decide how far to trust what was "
        "learned; where nothing beats the plain distance, the ranker ranks by the plain distance.",
    )
    command.add_argument(
        "--ranker", choices=tuple(RANKERS), default="RankingSVM", help="what to learn (default: %(default)s)"
    )
    evidence = add_judged(command)
    evidence.add_argument(
        "--triplets",
        type=Path,
        help="rows of (query, dissimilar, similar) row numbers; a fourth column, also similar, is allowed",
    )
    evidence.add_argument(
        "--vectors", type=Path, help=".npy of the vectors that the codes were made from, without labels"
    )
    evidence.add_argument("--clicks", type=Path, nargs="+", help=LOGS)
    command.add_argument(
        "--queries",
        type=Path,
        help=".npy of queries, codes or reals: one per code for labels, else those that pairs or triplets number "
        "(default: CODES, but for pairs and qrels)",
    )
    command.add_argument("--query-vectors", type=Path, help=".npy of the vectors of QUERIES, for --vectors")
    command.add_argument("--features", type=Path, help=".npy of features, one row per query, for rankers that use them")
    command.add_argument(
        "--collection",
        type=Path,
        help=".npy of packed codes that need no label, for rankers per query: queries unlike CODES keep their ranking",
    )
    add_ids(command)
    command.add_argument("--hasher", type=Path, help="saved hasher (.npz), for clicks whose queries are vectors")
    command.add_argument(
        "--scoring",
        choices=("guarded", "map", "p10"),
        help="what labels raise on held-out data: MAP without losing P@10, MAP, or P@10 (default: guarded)",
    )
    command.add_argument(
        "--validation",
        choices=("rows", "classes"),
        help="what to hold out of labels; choose classes if future queries belong to new ones (default: rows)",
    )
    command.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="further parameter of the ranker, such as n_steps=200; may be repeated",
    )
    command.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    command.add_argument("--output", type=Path, required=True, help="file for the ranker")
    add_json(command)
    command.set_defaults(run=_fit)


def _fit(arguments: argparse.Namespace) -> int:
    check_output(arguments.output)
    if arguments.output.suffix in KINDS:
        raise ValueError(
            f"{arguments.output}: a ranker must not end in {', '.join(KINDS)}; "
            "`bitrank weights export RANKER FILE` writes the weights of one"
        )
    ranker, counts = _learn(arguments, _make(arguments))
    ranker.save(arguments.output)
    facts = {
        "ranker": arguments.ranker,
        "n_bits": ranker.n_bits_,
        **counts,
        "blend": ranker.blend_,
    }
    if ranker.report_:
        facts |= {"plain": ranker.report_.before, "learned": ranker.report_.after}
    if arguments.json:
        print_facts(facts, as_json=True)
    else:
        _print(facts, arguments.output)
    return 0


def _make(arguments: argparse.Namespace) -> Ranker:
    """Make the ranker, with the options that it has."""
    from bitrank.ranking import ranker_class  # slow to import

    cls = ranker_class(arguments.ranker)
    known = inspect.signature(cls).parameters
    chosen = {name: getattr(arguments, name) for name in ("n_bits", "scoring", "validation")}
    options = {name: value for name, value in chosen.items() if value is not None}
    options |= dict(map(_option, arguments.option))
    for name in options:
        if name not in known:
            raise ValueError(f"options of {arguments.ranker} must be among {', '.join(known)}, got {name}")
    return cls(**({"random_state": arguments.seed} if "random_state" in known else {}), **options)


def _option(text: str) -> tuple[str, Any]:
    """NAME=VALUE as a name and a JSON value, or a text where it is none."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--option must be NAME=VALUE, got {text}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _learn(arguments: argparse.Namespace, ranker: Ranker) -> tuple[Ranker, dict[str, int]]:
    """Learn from the kind of evidence that the arguments name, and count what it holds."""
    codes, queries = read_array(arguments.codes), read(arguments.queries)
    features = {} if arguments.features is None else {"features": read_array(arguments.features)}
    if arguments.labels is not None:
        return ranker.fit(
            codes, read_array(arguments.labels), queries=queries, **features, **_collection(arguments)
        ), {}
    if arguments.collection is not None:
        raise ValueError("--collection must be left out without --labels, got one")
    if arguments.pairs is not None or arguments.qrels is not None:
        if queries is None:
            raise ValueError("--queries must name the queries of pairs and qrels, got none")
        pairs, n_unknown = read_pairs(arguments, len(codes), len(queries))
        ranker.fit_pairs(codes, pairs, queries=queries, **features)
        return ranker, {"n_unknown": n_unknown} if arguments.qrels is not None else {}
    if features:
        raise ValueError("--features must be left out for triplets, vectors and clicks, got some")
    if arguments.vectors is not None:
        vectors, query_vectors = read_array(arguments.vectors), read(arguments.query_vectors)
        return ranker.fit_vectors(codes, vectors, queries=queries, query_vectors=query_vectors), {}
    if arguments.triplets is not None:
        return ranker.fit_constraints(codes, read_array(arguments.triplets), queries=queries), {}
    return _learn_clicks(arguments, ranker, codes, queries)


def _collection(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.collection is None:
        return {}
    return {"collection": read_array(arguments.collection)}


def _learn_clicks(
    arguments: argparse.Namespace, ranker: Ranker, codes: Any, queries: Any
) -> tuple[Ranker, dict[str, int]]:
    from bitrank.clicks import pairs_from_log, read_log
    from bitrank.hashing import load_hasher
    from bitrank.ranking.evidence.constraints import triplets_from_pairs

    if queries is not None:
        raise ValueError("--queries must be left out for clicks, whose pages hold the queries, got some")
    n_bits = 8 * codes.shape[-1] if arguments.n_bits is None else arguments.n_bits
    project = None if arguments.hasher is None else load_hasher(arguments.hasher).project
    log = pairs_from_log(read_log(arguments.clicks), codes, read(arguments.ids), n_bits, project)
    if "pairs" in ranker.learns_from or "constraints" not in ranker.learns_from:
        ranker.fit_pairs(codes, log.pairs, queries=log.queries)
    else:
        ranker.fit_constraints(codes, triplets_from_pairs(log.pairs), queries=log.queries)
    return ranker, {"n_queries": len(log.queries), "n_left_out": log.n_left_out}


def _print(facts: dict[str, Any], output: Path) -> None:
    if facts.get("n_unknown"):
        print(f"{facts['n_unknown']} judgements name unknown ids and were skipped")
    if facts.get("n_left_out"):
        print(f"{facts['n_left_out']} pages name nothing in the collection and were left out")
    if "plain" in facts:
        if not facts["blend"]:
            print("nothing beat the plain distance on held-out data: the ranker ranks by the plain distance")
        print(f"{'held out':<12}" + "".join(f"{name:>12}" for name in facts["plain"]))
        for row in ("plain", "learned"):
            values = ("–" if value is None else f"{value:.3f}" for value in facts[row].values())
            print(f"{row:<12}" + "".join(f"{value:>12}" for value in values))
    print(f"{facts['ranker']} for {facts['n_bits']} bits: {output}")
