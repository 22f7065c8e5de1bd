"""The command `bitrank fit`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitrank.cli.output import add_json, print_facts
from bitrank.files import check_kind, read_array, write_array

if TYPE_CHECKING:
    from bitrank.ranking import RankingSVM


def add_parser(commands: Any) -> None:
    """Add `fit` to the commands."""
    command = commands.add_parser(
        "fit",
        help="learn weights from labels or triplets",
        description="Learn one weight per bit from labelled codes or from triplets. Held-out data decide how far to "
        "trust the weights; where nothing beats uniform weights, uniform weights are written.",
    )
    command.add_argument("--codes", type=Path, required=True, help=".npy of packed codes")
    command.add_argument("--n-bits", type=int, help="bits per code (default: eight per byte)")
    evidence = command.add_mutually_exclusive_group(required=True)
    evidence.add_argument("--labels", type=Path, help="one class per code: .npy, .csv or .json")
    evidence.add_argument(
        "--triplets",
        type=Path,
        help="rows of (query, dissimilar, similar) row numbers; a fourth column, also similar, is allowed",
    )
    command.add_argument(
        "--queries",
        type=Path,
        help=".npy of queries, codes or reals: one per code, or those that triplets number (default: CODES)",
    )
    command.add_argument(
        "--scoring",
        choices=("guarded", "map", "p10"),
        default="guarded",
        help="what to raise on held-out data: MAP without losing P@10, MAP, or P@10 (default: %(default)s)",
    )
    command.add_argument(
        "--validation",
        choices=("rows", "classes"),
        default="rows",
        help="what to hold out; choose classes if future queries belong to new ones (default: %(default)s)",
    )
    command.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    command.add_argument("--output", type=Path, required=True, help="file for the weights: .npy, .csv or .json")
    add_json(command)
    command.set_defaults(run=_fit)


def _fit(arguments: argparse.Namespace) -> int:
    check_kind(arguments.output)
    ranker = _learn(arguments)
    write_array(arguments.output, ranker.weights_)
    facts = _facts(ranker)
    if arguments.json:
        print_facts(facts, as_json=True)
    else:
        _print(facts, arguments.output)
    return 0


def _learn(arguments: argparse.Namespace) -> RankingSVM:
    """Fit the ranker from the kind of evidence that the arguments name."""
    from bitrank.ranking import RankingSVM  # slow to import

    ranker = RankingSVM(
        arguments.n_bits, scoring=arguments.scoring, validation=arguments.validation, random_state=arguments.seed
    )
    codes = read_array(arguments.codes)
    queries = None if arguments.queries is None else read_array(arguments.queries)
    if arguments.labels is not None:
        return ranker.fit(codes, read_array(arguments.labels), queries=queries)
    return ranker.fit_constraints(codes, read_array(arguments.triplets), queries=queries)


def _facts(ranker: RankingSVM) -> dict[str, Any]:
    """The held-out figures of uniform weights and of those that were chosen."""
    uniform, params = ranker.report_[0], {**ranker.params_, "blend": ranker.blend_}
    tried = [line for line in ranker.report_ if all(line.get(name) == value for name, value in params.items())]
    chosen = tried[-1] if tried and params["blend"] else uniform
    figures = [name for name in ("map", "p10", "ndcg10") if name in uniform]
    return {
        "n_bits": ranker.n_bits_,
        "blend": params["blend"],
        "uniform": {name: uniform[name] for name in figures},
        "learned": {name: chosen[name] for name in figures},
    }


def _print(facts: dict[str, Any], output: Path) -> None:
    if not facts["blend"]:
        print("nothing beat uniform weights on held-out data: uniform weights were written")
    print(f"{'held out':<12}" + "".join(f"{name:>8}" for name in facts["uniform"]))
    for row in ("uniform", "learned"):
        print(f"{row:<12}" + "".join(f"{value:>8.3f}" for value in facts[row].values()))
    print(f"{facts['n_bits']} weights: {output}")
