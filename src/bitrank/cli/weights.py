"""The commands `bitrank weights show|diff|export`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.cli.output import add_json, print_facts
from bitrank.cli.weights_source import SOURCES, TOKEN_NOTE, read_weights
from bitrank.core.checks import check_weights
from bitrank.core.files import write_array

Floats = npt.NDArray[np.float64]

BAR = 30  # characters in the longest bar


def add_parser(commands: Any) -> None:
    """Add `weights` and its three commands."""
    weights = commands.add_parser("weights", help="show, compare and export weights")
    inner = weights.add_subparsers(dest="weights_command", required=True)

    show = inner.add_parser("show", help="show how weight is spread over the bits", epilog=TOKEN_NOTE)
    show.add_argument("weights", help=SOURCES)
    show.set_defaults(run=_show)

    diff = inner.add_parser("diff", help="compare two weight vectors, both scaled to mean 1", epilog=TOKEN_NOTE)
    diff.add_argument("before", help=SOURCES)
    diff.add_argument("after", help=SOURCES)
    diff.set_defaults(run=_diff)

    export = inner.add_parser("export", help="write weights to a file", epilog=TOKEN_NOTE)
    export.add_argument("weights", help=SOURCES)
    export.add_argument("output", type=Path, help="file to write: .npy, .csv or .json")
    export.set_defaults(run=_export)

    for command in (show, diff):
        command.add_argument("--top", type=int, default=10, help="bits to list (default: %(default)s)")
    add_json(show, diff)


def _show(arguments: argparse.Namespace) -> int:
    weights = read_weights(arguments.weights)
    facts = summarize_weights(weights)._asdict()
    if arguments.json:
        print_facts({**facts, "weights": weights.tolist()}, as_json=True)
        return 0
    print_facts(facts, as_json=False)
    print("\nheaviest bits")
    for bit in np.argsort(-weights, kind="stable")[: arguments.top].tolist():
        length = round(BAR * float(weights[bit]) / facts["max"]) if facts["max"] else 0
        print(f"{bit:>6} {weights[bit]:>10.4g}  {'█' * length}")
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    change = compare_weights(read_weights(arguments.before), read_weights(arguments.after))
    facts = {
        "n_bits": len(change.before),
        "mean_change": change.mean_change,
        "max_change": change.max_change,
        "cosine": change.cosine,
    }
    bits = [
        {"bit": bit, "before": float(change.before[bit]), "after": float(change.after[bit])}
        for bit in change.order[: arguments.top].tolist()
    ]
    if arguments.json:
        print_facts({**facts, "bits": bits}, as_json=True)
        return 0
    print_facts(facts, as_json=False)
    print(f"\nlargest changes\n{'bit':>6}{'before':>10}{'after':>10}{'change':>10}")
    for line in bits:
        before, after = line["before"], line["after"]
        print(f"{line['bit']:>6}{before:>10.4g}{after:>10.4g}{after - before:>+10.3g}")
    return 0


def _export(arguments: argparse.Namespace) -> int:
    weights = read_weights(arguments.weights)
    write_array(arguments.output, weights)
    print(f"{len(weights)} weights: {arguments.output}")
    return 0


class WeightsSummary(NamedTuple):
    """The spread of weights over the bits.

    `effective_bits` is the number of equal weights that would be spread as widely: (Σw)² / Σw².

    Examples
    --------
    >>> summarize_weights([3, 1]).effective_bits
    1.6
    """

    n_bits: int
    min: float
    mean: float
    max: float
    n_zero: int
    effective_bits: float


class WeightsChange(NamedTuple):
    """Two weight vectors scaled to mean 1, and the bits in order of their change, largest first.

    Examples
    --------
    >>> compare_weights([1, 1], [3, 1]).max_change
    0.5
    """

    mean_change: float
    max_change: float
    cosine: float
    before: Floats
    after: Floats
    order: npt.NDArray[np.int64]


def summarize_weights(weights: npt.ArrayLike) -> WeightsSummary:
    """Summarize the spread of a weight vector.

    Examples
    --------
    >>> summarize_weights([2, 2, 0, 0])
    WeightsSummary(n_bits=4, min=0.0, mean=1.0, max=2.0, n_zero=2, effective_bits=2.0)
    """
    values = _one_vector(weights)
    total, squares = float(values.sum()), float(np.square(values).sum())
    return WeightsSummary(
        n_bits=len(values),
        min=float(values.min()),
        mean=total / len(values),
        max=float(values.max()),
        n_zero=int((values == 0).sum()),
        effective_bits=total**2 / squares if squares else 0.0,
    )


def compare_weights(before: npt.ArrayLike, after: npt.ArrayLike) -> WeightsChange:
    """Compare two weight vectors at one scale: rankings do not depend on it.

    Examples
    --------
    >>> change = compare_weights([1, 1, 1, 1], [4, 2, 2, 0])
    >>> change.after, change.order
    (array([2., 1., 1., 0.]), array([0, 3, 1, 2]))
    """
    from bitrank.ranking.gate.judge import mean_one  # slow to import

    first, second = mean_one(_one_vector(before)), mean_one(_one_vector(after))
    if len(first) != len(second):
        raise ValueError(f"both weight vectors must have the same number of bits, got {len(first)} and {len(second)}")
    change = np.abs(second - first)
    return WeightsChange(
        mean_change=float(change.mean()),
        max_change=float(change.max()),
        cosine=float(first @ second / (np.linalg.norm(first) * np.linalg.norm(second))),
        before=first,
        after=second,
        order=np.argsort(-change, kind="stable"),
    )


def _one_vector(weights: npt.ArrayLike) -> Floats:
    values = check_weights(weights)
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(f"weights must be one vector, got shape {values.shape}")
    return values.astype(np.float64)
