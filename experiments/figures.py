"""Pictures of the report. Each function draws one and returns False if there is nothing to draw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments import stream as stream_protocol
from experiments.judging import RECALLS
from experiments.learned_report import stream_totals
from experiments.plan import HASHERS, LENGTHS
from experiments.protocols import CLICK_C, CURVES, PAGES, QUADRUPLETS, SLOTS, STEPS
from experiments.tables import Results

TITLES = {
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "youtube_faces": "YouTube Faces",
    "digits": "digits",
    "banking77": "banking77",
}
# One colour per ranking, also distinct for colour-blind readers; baselines are dashed.
STYLES: dict[str, dict[str, Any]] = {
    "Hamming": {"color": "#8c8c8c", "linestyle": "--"},
    "WhRank-adaptive": {"color": "#b58900", "linestyle": "--"},
    "paper-exact": {"color": "#6a51a3", "linestyle": "--"},
    "RankingSVM": {"color": "#0072b2"},
    "Online": {"color": "#56b4e9"},
    "QueryAdaptive": {"color": "#d55e00", "linewidth": 2.2},
    "QueryVector": {"color": "#009e73", "linewidth": 2.2},
}
STREAM_STYLES: dict[str, dict[str, Any]] = {
    "Hamming": STYLES["Hamming"],
    "OnlineRankingSVM": STYLES["RankingSVM"],
    "online query vectors": STYLES["QueryVector"],
    "OKH": STYLES["QueryAdaptive"],
    "OKH, old codes kept": {"color": "#d55e00", "linestyle": ":"},
}


def map_by_bits(results: Results, path: Path, datasets: Sequence[str], hasher: str = "ITQ") -> bool:
    """Draw MAP against the number of bits, one panel per data set: the README's first picture."""
    figure = Figure(figsize=(3.7 * len(datasets), 3.6), layout="constrained")
    drawn = False
    for axes, dataset in zip(_panels(figure, 1, len(datasets)), datasets, strict=True):
        for name in CURVES:
            lengths = [n for n in LENGTHS if results.mean("full", dataset, hasher, n, name) is not None]
            means = [results.mean("full", dataset, hasher, n, name) for n in lengths]
            axes.plot(lengths, means, marker="o", markersize=4, label=name, **STYLES[name])
            drawn |= bool(lengths)
        _tidy(axes, TITLES[dataset], "bits", "MAP")
        axes.set_xticks(LENGTHS)
        axes.set_ylim(bottom=0)
    return _save(figure, path, drawn)


def pr_curves(results: Results, path: Path, dataset: str, protocol: str = "full") -> bool:
    """Draw mean PR curves, one panel per hasher and length."""
    lengths = [n for n in LENGTHS if results.cell(protocol, dataset, "ITQ", n, "Hamming")] or [32]
    figure = Figure(figsize=(2.7 * len(lengths) + 1.2, 2.5 * len(HASHERS) + 0.7), layout="constrained")
    drawn = False
    for axes, hasher, n_bits in _grid(figure, lengths):
        for name in CURVES:
            cell = results.cell(protocol, dataset, hasher, n_bits, name)
            if cell and "curve" in cell:
                axes.plot(RECALLS, cell["curve"], label=name, **STYLES[name])
                drawn = True
        _tidy(axes, f"{hasher}, {n_bits} bits", "recall", "precision")
        axes.set(xlim=(0, 1), ylim=(0, 1))
    return _save(figure, path, drawn)


def acdv(results: Results, path: Path, dataset: str) -> bool:
    """Draw code differences within a class and between classes, one row per pair, and how often each bit differs."""
    cell = results.cell("picture", dataset, "ITQ", 32, "pairs")
    if cell is None:
        return False
    figure = Figure(figsize=(8, 5.4), layout="constrained")
    axes: Any = figure.subplots(2, 2, height_ratios=(4, 1), sharex=True)
    for column, (name, title) in enumerate((("same", "same class"), ("different", "different classes"))):
        bits = np.array([[int(bit) for bit in row] for row in cell[name]])
        axes[0, column].imshow(bits, cmap="Reds", aspect="auto", interpolation="nearest")
        axes[0, column].set(title=title, ylabel="pair", yticks=[])
        axes[1, column].bar(np.arange(bits.shape[1]), cell[f"{name}_rate"], color="#d55e00")
        axes[1, column].set(xlabel="bit", ylabel="differs", ylim=(0, 0.65))
    return _save(figure, path, True, legend=False)


def acdv_rates(results: Results, path: Path, dataset: str) -> bool:
    """Draw how often each bit differs within a class and between classes, one panel per hasher and length."""
    figure = Figure(figsize=(2.7 * len(LENGTHS) + 1.2, 2.2 * len(HASHERS) + 0.7), layout="constrained")
    drawn = False
    for axes, hasher, n_bits in _grid(figure, LENGTHS):
        if cell := results.cell("picture", dataset, hasher, n_bits, "pairs"):
            axes.step(range(n_bits), cell["same_rate"], where="mid", label="same class", color="#d55e00")
            axes.step(range(n_bits), cell["different_rate"], where="mid", label="different classes", color="#8c8c8c")
            drawn = True
        _tidy(axes, f"{hasher}, {n_bits} bits", "bit", "differs")
        axes.set_ylim(0, 0.7)
    return _save(figure, path, drawn)


def online(results: Results, path: Path, datasets: Sequence[str]) -> bool:
    """Draw online against offline learning at 32 bits."""
    names = ("Hamming", "RankingSVM", "Online")
    figure = Figure(figsize=(3.7 * len(datasets), 3.4), layout="constrained")
    drawn = False
    for axes, dataset in zip(_panels(figure, 1, len(datasets)), datasets, strict=True):
        for place, name in enumerate(names):
            values = [results.values("full", dataset, hasher, 32, name, figure="map") for hasher in HASHERS]
            drawn |= any(values)
            axes.bar(
                np.arange(len(HASHERS)) + 0.27 * (place - 1),
                [np.mean(v) if v else 0 for v in values],
                0.25,
                yerr=[np.std(v) if v else 0 for v in values],
                label=name,
                color=STYLES[name]["color"],
            )
        _tidy(axes, TITLES[dataset], "", "MAP")
        axes.set_xticks(range(len(HASHERS)), HASHERS)
    return _save(figure, path, drawn)


def drift(results: Results, path: Path, datasets: Sequence[str]) -> bool:
    """Draw MAP while the collection doubles."""
    styles = {"Hamming": "Hamming", "frozen": "paper-exact", "online": "Online", "retrained": "RankingSVM"}
    lines = {name: [f"{name}-step{step}" for step in STEPS] for name in styles}
    xs = [100 * step / max(STEPS) for step in STEPS]
    return _lines(results, path, "drift", datasets, lines, xs, "new rows, % of the old", styles)


def quadruplets(results: Results, path: Path, datasets: Sequence[str]) -> bool:
    """Draw MAP against the number of quadruplets."""
    styles = {"paper-exact": "paper-exact", "RankingSVM": "RankingSVM"}
    lines = {name: [f"{name}-n{n}" for n in QUADRUPLETS] for name in styles}
    return _lines(results, path, "quadruplets", datasets, lines, QUADRUPLETS, "quadruplets", styles, log=True)


def clicks(results: Results, path: Path, datasets: Sequence[str], n_bits: int) -> bool:
    """Draw MAP and P@10 against the number of pages."""
    figure = Figure(figsize=(8.4, 3.4 * len(datasets)), layout="constrained")
    drawn = False
    panels = iter(_panels(figure, len(datasets), 2))
    colors = dict(zip(SLOTS, ("#8c8c8c", "#56b4e9", "#d55e00"), strict=True))
    for dataset in datasets:
        for which, label in (("map", "MAP"), ("p10", "P@10")):
            axes = next(panels)
            for c in CLICK_C:
                for slots in SLOTS:
                    key = ("clicks", dataset, "ITQ", n_bits)
                    means = [results.mean(*key, f"explore{slots}-C{c}-pages{p}", figure=which) for p in PAGES]
                    points = [(place, mean) for place, mean in enumerate(means) if mean is not None]
                    drawn |= bool(points)
                    style = {"color": colors[slots], "linestyle": "-" if c == CLICK_C[0] else ":"}
                    axes.plot(*np.reshape(points, (-1, 2)).T, marker="o", label=f"{slots} explored, C={c}", **style)
            _tidy(axes, TITLES[dataset], "pages", label)
            axes.set_xticks(range(len(PAGES)), PAGES)
    return _save(figure, path, drawn)


def stream(results: Results, path: Path, datasets: Sequence[str], n_bits: int) -> bool:
    """Draw MAP after each step of the stream, and the CPU seconds spent so far."""
    figure = Figure(figsize=(4.6 * len(datasets), 6.4), layout="constrained")
    panels = _panels(figure, 2, len(datasets))
    drawn = False
    steps = range(len(stream_protocol.N_CLASSES))
    for column, dataset in enumerate(datasets):
        above, below = panels[column], panels[column + len(datasets)]
        for name in stream_protocol.LEARNERS:
            means = [results.mean("stream", dataset, "ITQ", n_bits, f"{name}-step{step}") for step in steps]
            totals = stream_totals(results, dataset, n_bits, name)
            if None in means or totals is None:
                continue
            above.plot(steps, means, marker="o", markersize=4, label=name, **STREAM_STYLES[name])
            seconds = np.cumsum(np.add(totals["learn_seconds"], totals["encode_seconds"]))
            if seconds[-1] > 0:
                below.plot(steps, seconds, marker="o", markersize=4, **STREAM_STYLES[name])
            drawn = True
        for step in steps[1:]:
            if stream_protocol.N_CLASSES[step] > stream_protocol.N_CLASSES[step - 1]:
                above.axvline(step - 0.5, color="#bbbbbb", linestyle=":")
                below.axvline(step - 0.5, color="#bbbbbb", linestyle=":")
        _tidy(above, f"{TITLES[dataset]}: dotted lines, two new classes", "step", "MAP")
        _tidy(below, "cost", "step", "CPU seconds so far")
        below.set_yscale("log")
    return _save(figure, path, drawn)


def _lines(
    results: Results,
    path: Path,
    protocol: str,
    datasets: Sequence[str],
    lines: dict[str, list[str]],
    xs: Sequence[float],
    xlabel: str,
    styles: dict[str, str],
    log: bool = False,
) -> bool:
    figure = Figure(figsize=(4.2 * len(datasets), 3.5), layout="constrained")
    drawn = False
    for axes, dataset in zip(_panels(figure, 1, len(datasets)), datasets, strict=True):
        for name, rankings in lines.items():
            means = [results.mean(protocol, dataset, "ITQ", 64, ranking) for ranking in rankings]
            points = [(x, mean) for x, mean in zip(xs, means, strict=True) if mean is not None]
            drawn |= bool(points)
            axes.plot(*np.reshape(points, (-1, 2)).T, marker="o", markersize=4, label=name, **STYLES[styles[name]])
        _tidy(axes, f"{TITLES[dataset]}, ITQ 64 bits", xlabel, "MAP")
        if log:
            axes.set_xscale("log")
    return _save(figure, path, drawn)


def _panels(figure: Figure, n_rows: int, n_columns: int) -> list[Any]:
    return list(np.ravel(figure.subplots(n_rows, n_columns)))


def _grid(figure: Figure, lengths: Sequence[int]) -> Iterator[tuple[Any, str, int]]:
    """Yield one panel per hasher and length: one row per hasher."""
    panels = iter(_panels(figure, len(HASHERS), len(lengths)))
    for hasher in HASHERS:
        for n_bits in lengths:
            yield next(panels), hasher, n_bits


def _tidy(axes: Any, title: str, xlabel: str, ylabel: str) -> None:
    axes.set_title(title, loc="left", fontsize=10)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.grid(color="#e6e6e6", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)


def _save(figure: Figure, path: Path, drawn: bool, legend: bool = True) -> bool:
    if not drawn:
        return False
    if legend:
        labelled = max(figure.axes, key=lambda axes: len(axes.get_legend_handles_labels()[1]))
        handles, labels = labelled.get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=max(1, int(figure.get_figwidth() / 1.9)), frameon=False
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return True
