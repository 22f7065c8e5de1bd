"""The demonstration: rank 64-bit codes of handwritten digits by every kind of weights, measure, and draw pictures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank import ITQ, AsymmetricRanker, OnlineRankingSVM, QueryVectorRanker, RankingSVM
from bitrank.core.codes import distances
from bitrank.core.lazy import import_extra
from bitrank.core.metrics import mean_average_precision, mean_precision_recall, precision_at, tie_mass
from bitrank.core.types import Codes, Queries, Rows
from bitrank.datasets import digits
from bitrank.ranking import QueryAdaptiveRanker, UniformRanker, WhRank

Curve = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]

CURVES, TOP_TEN = "pr_curves.png", "top_ten.png"

# One colour per ranker, from a palette for colour-blind readers; baselines are dashed.
_STYLES: dict[str, dict[str, Any]] = {
    "Hamming": {"color": "#8c8c8c", "linestyle": "--"},
    "WhRank": {"color": "#b58900", "linestyle": "--"},
    "asymmetric": {"color": "#6a51a3", "linestyle": "--"},
    "RankingSVM": {"color": "#0072b2", "linestyle": "-"},
    "online": {"color": "#56b4e9", "linestyle": "-"},
    "query-adaptive": {"color": "#d55e00", "linewidth": 2.4},
    "query vector": {"color": "#009e73", "linewidth": 2.4},
}
_RIGHT, _WRONG = "#2a9d3a", "#d62728"


class Row(NamedTuple):
    """The figures of one ranker: a row of the table."""

    ranker: str
    map: float
    p10: float
    ties100: float


class Split(NamedTuple):
    """One half of the digits to learn from and one half to search in; a tenth of the latter are queries."""

    train_images: npt.NDArray[np.uint8]
    train_labels: npt.NDArray[np.uint8]
    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.uint8]
    queries: Rows  # rows of images


def run_demo(output: str | os.PathLike[str]) -> list[Row]:
    """Rank the digits by Hamming distance and by every kind of weights, measure, and draw two pictures.

    Parameters
    ----------
    output : path
        Folder for ``pr_curves.png`` and ``top_ten.png``; created if missing.

    Returns
    -------
    list of Row
        Mean average precision, precision at 10, and the share of ties among the first hundred.

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is missing; the message has the command that installs it.
    """
    import_extra("matplotlib", "demo")
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    split = split_digits()
    relevant = split.labels[split.queries, None] == split.labels
    rows, curves, ranked = [], {}, {}
    codes, queries = learn(split)
    for ranker, (query_codes, weights, _) in queries.items():
        values = distances(query_codes, codes, weights)
        rows.append(
            Row(
                ranker,
                map=mean_average_precision(values, relevant),
                p10=float(precision_at(values, relevant, 10).mean()),
                ties100=float(tie_mass(values, 100).mean()),
            )
        )
        curves[ranker] = mean_precision_recall(values, relevant)
        # The query is in the collection: keep it out of its own first ten.
        values[np.arange(len(values)), split.queries] = values.max()
        ranked[ranker] = np.argsort(values, axis=1, kind="stable")[:, :10]
    draw_curves(rows, curves, folder / CURVES)
    draw_top_ten(split, ranked["Hamming"], ranked["query vector"], folder / TOP_TEN)
    return rows


def split_digits() -> Split:
    """Split the digits class by class: first half to learn from, second half to search in, its first tenth as queries.

    Examples
    --------
    >>> split = split_digits()
    >>> len(split.train_images), len(split.images), len(split.queries)
    (5000, 5000, 500)
    """
    images, labels = digits()
    by_class = [np.flatnonzero(labels == digit) for digit in range(10)]
    train = np.sort(np.concatenate([rows[: len(rows) // 2] for rows in by_class]))
    test = np.sort(np.concatenate([rows[len(rows) // 2 :] for rows in by_class]))
    of_class = [np.flatnonzero(labels[test] == digit) for digit in range(10)]
    queries = np.sort(np.concatenate([rows[: len(rows) // 10] for rows in of_class]))
    return Split(images[train], labels[train], images[test], labels[test], queries)


def learn(split: Split) -> tuple[Codes, dict[str, Queries]]:
    """Hash the images and fit every ranker: the codes to search in, and the queries of each ranker."""
    X, y = _vectors(split.train_images), split.train_labels
    hasher = ITQ(n_bits=64, random_state=0).fit(X)
    train_codes, codes = hasher.transform(X), hasher.transform(_vectors(split.images))
    query_codes = codes[split.queries]
    query_vectors = _vectors(split.images[split.queries])
    values = hasher.project(query_vectors)

    return codes, {
        "Hamming": UniformRanker().fit(train_codes).queries_for(query_codes),
        "WhRank": WhRank(random_state=0).fit(train_codes, y, queries=hasher.project(X)).queries_for(values),
        "asymmetric": AsymmetricRanker().fit(train_codes).queries_for(values),
        "RankingSVM": RankingSVM(random_state=0).fit(train_codes, y).queries_for(query_codes),
        "online": OnlineRankingSVM(random_state=0).fit(train_codes, y).queries_for(query_codes),
        "query-adaptive": QueryAdaptiveRanker(random_state=0)
        .fit(train_codes, y)
        .queries_for(query_codes, collection=codes),
        "query vector": QueryVectorRanker(random_state=0)
        .fit(train_codes, y, features=X)
        .queries_for(query_codes, features=query_vectors, collection=codes),
    }


def draw_curves(rows: list[Row], curves: dict[str, Curve], path: Path) -> None:
    """Draw the mean precision-recall curve of every ranker."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.6), layout="constrained")
    axes = figure.add_subplot()
    for row in rows:
        precision, recall = curves[row.ranker]
        axes.plot(recall, precision, label=f"{row.ranker}, MAP {row.map:.3f}", **_STYLES[row.ranker])
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1))
    axes.set_title("Mean precision and recall, 64-bit codes of digits", loc="left")
    axes.grid(color="#e6e6e6", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def draw_top_ten(split: Split, before: Rows, after: Rows, path: Path) -> None:
    """Draw the first ten results of two rankings for the query that gains most."""
    from matplotlib.figure import Figure

    wanted = split.labels[split.queries, None]
    gain = (split.labels[after] == wanted).sum(axis=1) - (split.labels[before] == wanted).sum(axis=1)
    query = int(np.argmax(gain))
    figure = Figure(figsize=(11, 2.9), layout="constrained")
    panels: Any = figure.subfigures(1, 2, width_ratios=(2, 10))
    left, right = panels
    axes = left.subplots()
    axes.set_title("query", fontsize=11)
    _draw_image(axes, split.images[split.queries[query]], "#333333")
    lines = right.subfigures(2, 1)
    for line, name, ranked in zip(lines, ("Hamming", "query vector"), (before[query], after[query]), strict=True):
        hits = split.labels[ranked] == wanted[query]
        line.suptitle(f"{name}: {hits.sum()} of 10 right", x=0.005, horizontalalignment="left", fontsize=11)
        for axes, row, hit in zip(line.subplots(1, 10), ranked, hits, strict=True):
            _draw_image(axes, split.images[row], _RIGHT if hit else _WRONG, "-" if hit else ":")
    figure.suptitle("The first ten results before and after learning, for the query that gains most", fontsize=12)
    figure.savefig(path, dpi=150)


def _draw_image(axes: Any, image: npt.NDArray[np.uint8], color: str, linestyle: str = "-") -> None:
    axes.imshow(image, cmap="gray_r", interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color=color, linewidth=2.5, linestyle=linestyle)


def _vectors(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(255)
