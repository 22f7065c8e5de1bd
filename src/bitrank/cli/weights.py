"""The commands `bitrank weights show|diff|export`, and where commands read weights from."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np

from bitrank.cli.output import add_run, print_facts
from bitrank.core.checks import check_weights
from bitrank.core.files import KINDS, read_array, write_array
from bitrank.core.types import Weights
from bitrank.index import Index

BAR = 30  # characters in the longest bar
SOURCES = "file (.npy, .csv, .json), ranker of one weight per bit, folder of an index, or URL of a version on a service"
TOKEN_NOTE = "If the service requires a token, set the environment variable BITRANK_TOKEN."


def add_parser(commands: Any) -> None:
    """Add `weights` and its three commands."""
    weights = commands.add_parser("weights", help="show, compare and export weights")
    inner = weights.add_subparsers(dest="weights_command", required=True)

    show = inner.add_parser("show", help="show how weight is spread over the bits", epilog=TOKEN_NOTE)
    show.add_argument("weights", help=SOURCES)

    diff = inner.add_parser("diff", help="compare two weight vectors, both scaled to mean 1", epilog=TOKEN_NOTE)
    diff.add_argument("before", help=SOURCES)
    diff.add_argument("after", help=SOURCES)

    export = inner.add_parser("export", help="write weights to a file", epilog=TOKEN_NOTE)
    export.add_argument("weights", help=SOURCES)
    export.add_argument("output", type=Path, help="file to write: .npy, .csv or .json")
    export.set_defaults(run=_export)

    for command, run in ((show, _show), (diff, _diff)):
        command.add_argument("--top", type=int, default=10, help="bits to list (default: %(default)s)")
        add_run(command, run)


def _show(arguments: argparse.Namespace) -> None:
    weights = read_weights(arguments.weights)
    facts = summarize_weights(weights)
    if arguments.json:
        print_facts({**facts, "weights": weights.tolist()}, as_json=True)
        return
    print_facts(facts, as_json=False)
    print("\nheaviest bits")
    for bit in np.argsort(-weights, kind="stable")[: arguments.top].tolist():
        length = round(BAR * float(weights[bit]) / facts["max"]) if facts["max"] else 0
        print(f"{bit:>6} {weights[bit]:>10.4g}  {'█' * length}")


def _diff(arguments: argparse.Namespace) -> None:
    facts = compare_weights(read_weights(arguments.before), read_weights(arguments.after))
    bits = facts.pop("bits")[: arguments.top]
    if arguments.json:
        print_facts({**facts, "bits": bits}, as_json=True)
        return
    print_facts(facts, as_json=False)
    print(f"\nlargest changes\n{'bit':>6}{'before':>10}{'after':>10}{'change':>10}")
    for line in bits:
        before, after = line["before"], line["after"]
        print(f"{line['bit']:>6}{before:>10.4g}{after:>10.4g}{after - before:>+10.3g}")


def _export(arguments: argparse.Namespace) -> None:
    weights = read_weights(arguments.weights)
    write_array(arguments.output, weights)
    print(f"{len(weights)} weights: {arguments.output}")


def summarize_weights(weights: Weights) -> dict[str, Any]:
    """Facts of a weight vector; `effective_bits` equal weights would be spread as widely: (Σw)² / Σw².

    Examples
    --------
    >>> summarize_weights(np.float32([2, 2, 0, 0]))
    {'n_bits': 4, 'min': 0.0, 'mean': 1.0, 'max': 2.0, 'n_zero': 2, 'effective_bits': 2.0}
    """
    values = weights.astype(np.float64)
    facts = {name: float(getattr(values, name)()) for name in ("min", "mean", "max")}
    squares = float(values @ values)
    effective = float(values.sum()) ** 2 / squares if squares else 0.0
    return {"n_bits": len(values), **facts, "n_zero": int((values == 0).sum()), "effective_bits": effective}


def compare_weights(before: Weights, after: Weights) -> dict[str, Any]:
    """Facts of two weight vectors, both scaled to mean 1: rankings do not depend on it; the bits changed most first.

    Examples
    --------
    >>> compare_weights(np.float32([1, 1, 1, 1]), np.float32([4, 2, 2, 0]))["bits"][0]
    {'bit': 0, 'before': 1.0, 'after': 2.0}
    """
    from bitrank.ranking.gate.judge import mean_one  # slow to import

    first, second = mean_one(before.astype(np.float64)), mean_one(after.astype(np.float64))
    if len(first) != len(second):
        raise ValueError(f"both weight vectors must have the same number of bits, got {len(first)} and {len(second)}")
    change = np.abs(second - first)
    order = np.argsort(-change, kind="stable").tolist()
    return {
        "n_bits": len(first),
        "mean_change": float(change.mean()),
        "max_change": float(change.max()),
        "cosine": float(first @ second / (np.linalg.norm(first) * np.linalg.norm(second))),
        "bits": [{"bit": bit, "before": float(first[bit]), "after": float(second[bit])} for bit in order],
    }


def environment_token() -> str | None:
    """Return the token for a running service, from the environment."""
    return os.environ.get("BITRANK_TOKEN")


def read_weights(source: str) -> Weights:
    """Read one weight vector from one of the sources; a service is sent the token in BITRANK_TOKEN.

    Examples
    --------
    >>> from bitrank.core.codes import pack
    >>> Index(pack([[1, 0], [0, 1]]), n_bits=2, weights=[3, 1]).save("codes.index")
    >>> read_weights("codes.index")
    array([3., 1.], dtype=float32)
    """
    if source.startswith(("http://", "https://")):
        from bitrank.service.client import version_weights

        weights = np.asarray(version_weights(source, environment_token()))
    elif Path(source).is_dir():
        index = Index.load(source)
        weights = np.ones(index.n_bits) if index.weights is None else index.weights
    elif Path(source).suffix in KINDS:
        weights = read_array(source)
    else:
        from bitrank.ranking import load_ranker  # slow to import

        ranker = load_ranker(source)
        known = ranker.one_weight_per_bit()
        if known is None:
            raise ValueError(f"{source} must hold one weight per bit, got a {type(ranker).__name__}")
        weights = known
    if weights.ndim != 1 or not len(weights) or weights.dtype.kind not in "biuf":
        raise ValueError(f"{source} must hold one weight vector, got {weights.dtype} of shape {weights.shape}")
    return check_weights(weights)
