"""The command `bitrank learn`."""

from __future__ import annotations

import argparse
import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitrank.cli.feedback import LOGS
from bitrank.cli.judgements import add_judged, arguments_of_pairs, read
from bitrank.cli.output import add_run, print_report
from bitrank.core.files import KINDS, check_output
from bitrank.ranking.registry import RANKERS

if TYPE_CHECKING:
    from bitrank.ranking import Ranker


def add_parser(commands: Any) -> None:
    """Add `learn` to the commands."""
    command = commands.add_parser(
        "learn",
        help="learn how to ask a collection, from labels, judged pairs, constraints or clicks",
        description="Learn how to ask a collection, print what held-out data say, and use what was learned if they say "
        "that it surely ranks better. The codes do not change.",
    )
    evidence = add_judged(command)
    evidence.add_argument(
        "--constraints",
        type=Path,
        help="rows of (query, dissimilar, similar[, similar]) ids; the query is a row of QUERIES where these are given",
    )
    evidence.add_argument("--clicks", type=Path, nargs="+", help=LOGS)
    evidence.add_argument("--unjudged", type=Path, help=".npy of vectors of queries without judgements")
    evidence.add_argument("--use", type=Path, metavar="FILE", help="use a saved ranker, which nothing judges here")
    evidence.add_argument("--forget", action="store_true", help="return to the plain ranking")
    evidence.add_argument("--roll-back", type=int, metavar="VERSION", help="return to a version of `bitrank info`")
    command.add_argument("--features", type=Path, help=".npy of the vectors of all items, in the order of ids")
    command.add_argument("--ranker", choices=tuple(RANKERS), help="what to learn (default: what ranks best)")
    command.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="parameter of the ranker, such as n_steps=200; may be repeated",
    )
    command.add_argument("--output", type=Path, help="file for what was learned, to use it elsewhere")
    add_run(command, _learn)


def _learn(arguments: argparse.Namespace) -> None:
    from bitrank import Collection, load_ranker  # slow to import

    if arguments.output is not None:
        check_output(arguments.output)
        if arguments.output.suffix in KINDS:
            raise ValueError(
                f"{arguments.output}: a ranker must not end in {', '.join(KINDS)}; "
                "`bitrank weights export RANKER FILE` writes the weights of one"
            )
    collection = Collection.load(arguments.collection)
    if arguments.use is not None:
        collection.use(load_ranker(arguments.use))
    elif arguments.forget:
        collection.forget()
    elif arguments.roll_back is not None:
        collection.roll_back(arguments.roll_back)
    else:
        pairs, query_ids = arguments_of_pairs(arguments)
        others = ("labels", "constraints", "unjudged")
        collection.learn(
            **{kind: read(getattr(arguments, kind)) for kind in others},
            pairs=pairs,
            clicks=arguments.clicks,
            queries=read(arguments.queries),
            query_ids=query_ids,
            features=read(arguments.features),
            ranker=_ranker(arguments),
            ignore_unknown=arguments.ignore_unknown,
        )
    ranker = collection.ranker
    if arguments.output is not None and ranker is not None:
        ranker.save(arguments.output)
    collection.save(arguments.collection)
    print_report(collection.report(), as_json=arguments.json)


def _ranker(arguments: argparse.Namespace) -> Ranker | str | None:
    """The ranker with its options, or its name, or None for the default."""
    if not arguments.option:
        return arguments.ranker  # type: ignore[no-any-return]
    from bitrank.ranking import ranker_class  # slow to import

    if arguments.ranker is None:
        raise ValueError("--option must come with --ranker, got it alone")
    cls, options = ranker_class(arguments.ranker), dict(map(_option, arguments.option))
    known = inspect.signature(cls).parameters
    for name in options:
        if name not in known:
            raise ValueError(f"options of {arguments.ranker} must be among {', '.join(known)}, got {name}")
    return cls(**({"random_state": 0} if "random_state" in known else {}) | options)


def _option(text: str) -> tuple[str, Any]:
    """NAME=VALUE as a name and a JSON value, or a text where it is none."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--option must be NAME=VALUE, got {text}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
