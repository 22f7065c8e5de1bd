"""The command `bitrank demo`: handwritten digits in a `Collection`, asked before and after learning from labels."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.core.lazy import import_extra
from bitrank.core.types import Queries, Rows
from bitrank.datasets import digits

CURVES, TOP_TEN = "pr_curves.png", "top_ten.png"

# How each ranking is drawn, from a palette for colour-blind readers: plain ones are dashed, rankers have their names.
RANKINGS: dict[str, dict[str, Any]] = {
    "Hamming": {"color": "#8c8c8c", "linestyle": "--"},
    "asymmetric": {"color": "#6a51a3", "linestyle": "--"},
    "WhRank": {"color": "#b58900"},
    "RankingSVM": {"color": "#0072b2"},
    "OnlineRankingSVM": {"color": "#56b4e9"},
    "QueryAdaptiveRanker": {"color": "#d55e00", "linewidth": 2.4},
    "QueryVectorRanker": {"color": "#009e73", "linewidth": 2.4},
}
_RIGHT, _WRONG = "#2a9d3a", "#d62728"


class Split(NamedTuple):
    """One half of the digits as items, whose labels are known, and a tenth as many of the others as queries."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.uint8]
    queries: npt.NDArray[np.uint8]
    wanted: npt.NDArray[np.uint8]  # labels of the queries, to measure with


class Row(NamedTuple):
    """What one ranking answers: its figures, its mean precision and recall at every rank, and its first ten items."""

    name: str
    map: float
    p10: float
    ties100: float  # share of ties among the first hundred
    curve: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
    first: Rows


def add_parser(commands: Any) -> None:
    """Add `demo` to the commands."""
    demo = commands.add_parser(
        "demo",
        help="rank handwritten digits before and after learning; print a table and draw two pictures",
        description="Put 5000 handwritten digits into a collection of 64-bit codes, learn from their labels with "
        "every ranker, and compare the rankings for 500 other digits.",
    )
    demo.add_argument(
        "--output", type=Path, default=Path("bitrank-demo"), help="folder for the pictures (default: %(default)s)"
    )
    demo.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> None:
    import_extra("matplotlib", "demo")
    arguments.output.mkdir(parents=True, exist_ok=True)
    split = split_digits()
    rows, report = rank_digits(split)
    draw_curves(rows, arguments.output / CURVES)
    draw_top_ten(split, rows[0], rows[-1], arguments.output / TOP_TEN)
    print(f"{len(split.images)} digits as 64-bit ITQ codes, {len(split.queries)} others as queries.\n")
    print(f"{'ranking':<20}{'MAP':>8}{'P@10':>8}{'ties in top 100':>18}")
    for row in rows:
        print(f"{row.name:<20}{row.map:>8.3f}{row.p10:>8.3f}{row.ties100:>18.1%}")
    print(f"\nthe report of the collection at the end:\n{report}\n")
    for name in (CURVES, TOP_TEN):
        print(f"picture: {(arguments.output / name).resolve()}")


def split_digits() -> Split:
    """Split the digits: they are in random order.

    Examples
    --------
    >>> split = split_digits()
    >>> len(split.images), len(split.queries)
    (5000, 500)
    """
    images, labels = digits()
    half = len(images) // 2
    items, asked = slice(half), slice(half, half + half // 10)
    return Split(images[items], labels[items], images[asked], labels[asked])


def rank_digits(split: Split) -> tuple[list[Row], str]:
    """Rank the items for every query by each of `RANKINGS`; also the last report."""
    from bitrank import ITQ, Collection  # slow to import

    X, Q = (images.reshape(len(images), -1) / np.float32(255) for images in (split.images, split.queries))
    collection = Collection.from_vectors(X, hasher=ITQ(n_bits=64, random_state=0), random_state=0)
    rows = []
    for name in RANKINGS:
        asked: Any = Q
        if name == "Hamming":
            asked = collection.hasher.transform(Q)  # type: ignore[union-attr]
        elif name != "asymmetric":
            collection.forget()
            collection.learn(labels=split.labels, ranker=name)
        rows.append(_measure(name, collection.queries_for(asked), collection, split))
    return rows, str(collection.report())


def _measure(name: str, asked: Queries, collection: Any, split: Split) -> Row:
    from bitrank.core.codes import distances
    from bitrank.core.metrics import mean_average_precision, mean_precision_recall, precision_at, tie_mass

    values = distances(asked.codes, collection.codes(), asked.weights)
    relevant = split.wanted[:, None] == split.labels
    return Row(
        name,
        mean_average_precision(values, relevant),
        float(precision_at(values, relevant, 10).mean()),
        float(tie_mass(values, 100).mean()),
        mean_precision_recall(values, relevant),
        np.argsort(values, axis=1, kind="stable")[:, :10],
    )


def draw_curves(rows: list[Row], path: Path) -> None:
    """Draw the mean precision-recall curve of every ranking."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.6), layout="constrained")
    axes = figure.add_subplot()
    for row in rows:
        precision, recall = row.curve
        axes.plot(recall, precision, label=f"{row.name}, MAP {row.map:.3f}", **RANKINGS[row.name])
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1))
    axes.set_title("Mean precision and recall, 64-bit codes of digits", loc="left")
    axes.grid(color="#e6e6e6", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def draw_top_ten(split: Split, before: Row, after: Row, path: Path) -> None:
    """Draw the first ten results of two rankings for the query that gains most."""
    from matplotlib.figure import Figure

    hits = [split.labels[row.first] == split.wanted[:, None] for row in (before, after)]
    query = int(np.argmax(hits[1].sum(axis=1) - hits[0].sum(axis=1)))
    figure = Figure(figsize=(11, 2.9), layout="constrained")
    panels: Any = figure.subfigures(1, 2, width_ratios=(2, 10))
    left, right = panels
    axes = left.subplots()
    axes.set_title("query", fontsize=11)
    _draw_image(axes, split.queries[query], "#333333")
    for line, row, right_ones in zip(right.subfigures(2, 1), (before, after), hits, strict=True):
        title = f"{row.name}: {right_ones[query].sum()} of 10 right"
        line.suptitle(title, x=0.005, horizontalalignment="left", fontsize=11)
        for axes, item, hit in zip(line.subplots(1, 10), row.first[query], right_ones[query], strict=True):
            _draw_image(axes, split.images[item], _RIGHT if hit else _WRONG, "-" if hit else ":")
    figure.suptitle("The first ten results before and after learning, for the query that gains most", fontsize=12)
    figure.savefig(path, dpi=150)


def _draw_image(axes: Any, image: npt.NDArray[np.uint8], color: str, linestyle: str = "-") -> None:
    axes.imshow(image, cmap="gray_r", interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color=color, linewidth=2.5, linestyle=linestyle)
