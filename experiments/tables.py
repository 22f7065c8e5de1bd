"""Tables of the report: means over seeds, the paper's values beside them, and the goals."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import cells
from experiments.plan import HASHERS, IMAGES, LENGTHS, groups
from experiments.protocols import FLOAT

PAPER = Path(__file__).parent / "paper.csv"
MISSING = "missing"
# The paper's rankings, and their counterparts here.
COUNTERPARTS = {"Hamming": "Hamming", "WhRank": "WhRank-adaptive", "Weighted": "paper-exact"}
OURS = (
    "RankingSVM",
    "RankingSVM-map",
    "Online",
    "QueryAdaptive",
    "QueryAdaptive-map",
    "QueryVector",
    "Agreement",
    *FLOAT["banking77"],
)


class Results:
    """The cells of a folder, and the values that the paper publishes."""

    def __init__(self, folder: Path, plan: str) -> None:
        self.n_seeds = Counter(group[:4] for group in groups(plan))
        self.cells = cells.read_all(folder)
        self.by_seed: dict[tuple[Any, ...], dict[int, cells.Cell]] = defaultdict(dict)
        for (*key, seed), cell in self.cells.items():
            self.by_seed[tuple(key)][seed] = cell
        with open(PAPER, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.paper = {(r["dataset"], r["hasher"], r["ranking"], int(r["n_bits"])): float(r["map"]) for r in rows}

    def cell(self, *key: Any, seed: int = 0) -> cells.Cell | None:
        """Return the cell of a protocol, data set, hasher, length and ranking; None if it is missing."""
        return self.by_seed.get(key, {}).get(seed)

    def values(self, *key: Any, figure: str) -> list[float]:
        """Return a figure for every seed that is present."""
        return [cell["figures"][figure] for _, cell in sorted(self.by_seed.get(key, {}).items())]

    def mean(self, *key: Any, figure: str = "map") -> float | None:
        """Return the mean over seeds, None if there is no cell."""
        values = self.values(*key, figure=figure)
        return float(np.mean(values)) if values else None

    def show(self, *key: Any, figure: str = "map", deviation: bool = False) -> str:
        """Format the mean over seeds, with the standard deviation if wanted, and a note if seeds are missing."""
        values = self.values(*key, figure=figure)
        if not values:
            return MISSING
        expected = self.n_seeds[key[:4]]
        few = f" ({len(values)} of {expected} seeds)" if len(values) < expected else ""
        return short(np.mean(values)) + (f" ±{short(np.std(values))}" if deviation else "") + few

    def params(self, protocol: str, dataset: str) -> dict[str, Any]:
        """Return the parameters of the first cell of a protocol on a data set."""
        return next((cell["params"] for key, cell in self.cells.items() if key[:2] == (protocol, dataset)), {})


def short(value: Any) -> str:
    """Format with three digits after the point and no zero before it."""
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}"


def bold_best(texts: Sequence[str], values: Sequence[float | None]) -> list[str]:
    """Set the texts of the highest value, after rounding, in bold."""
    shown = [None if value is None else round(value, 3) for value in values]
    best = max((value for value in shown if value is not None), default=None)
    return [f"**{t}**" if v is not None and v == best else t for t, v in zip(texts, shown, strict=True)]


def markdown(header: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    """Format a table."""
    lines = [list(map(str, header)), *([str(value) for value in row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def source(protocol: str, dataset: str) -> str:
    """Return the line under a table that names its file."""
    return f"From `{cells.path_of(Path('experiments/results'), protocol, dataset)}`."


def beside_paper(results: Results, protocol: str, dataset: str, figure: str) -> str:
    """Set our values beside the paper's, and add a row with the best of bitrank's own rankings."""
    rows = []
    for hasher in HASHERS:
        for theirs, ours in COUNTERPARTS.items():
            row = []
            for n_bits in LENGTHS:
                paper = results.paper.get((dataset, hasher, theirs, n_bits))
                key = (protocol, dataset, hasher, n_bits, ours)
                mean = results.mean(*key, figure=figure)
                texts = [results.show(*key, figure=figure), MISSING if paper is None else short(paper)]
                row.append(" / ".join(bold_best(texts, [mean, paper])))
            rows.append([hasher, f"{ours} / paper's {theirs}", *row])
        row = []
        for n_bits in LENGTHS:
            best, name = best_of_ours(results, protocol, dataset, hasher, n_bits, figure)
            paper = best_of_paper(results, dataset, hasher, n_bits)
            ours = f"{results.show(protocol, dataset, hasher, n_bits, name, figure=figure)} {name}"
            texts = [MISSING if best is None else ours, MISSING if paper is None else short(paper)]
            row.append(" / ".join(bold_best(texts, [best, paper])))
        rows.append([hasher, "best of bitrank / best of the paper", *row])
    return markdown(["codes", "ours / paper's", *(f"{n} bits" for n in LENGTHS)], rows)


def best_of_ours(results: Results, *key: Any) -> tuple[float | None, str]:
    """Return mean and name of the best of bitrank's rankings; key: protocol, data set, hasher, length, figure."""
    means = {name: results.mean(*key[:-1], name, figure=key[-1]) for name in OURS}
    present = {name: value for name, value in means.items() if value is not None}
    name = max(present, key=lambda name: present[name], default="")
    return present.get(name), name


def best_of_paper(results: Results, dataset: str, hasher: str, n_bits: int) -> float | None:
    """Return the highest value that the paper publishes for these codes."""
    values = (results.paper.get((dataset, hasher, theirs, n_bits)) for theirs in COUNTERPARTS)
    return max((value for value in values if value is not None), default=None)


def every_ranking(
    results: Results, protocol: str, dataset: str, hashers: Sequence[str], lengths: Sequence[int], names: Sequence[str]
) -> str:
    """Show MAP ± deviation · P@10 · P@100 of every ranking; the best per figure, hasher and length is bold."""
    rows = []
    for hasher in hashers:
        columns = []
        for n_bits in lengths:
            parts = []
            for figure in ("map", "p10", "p100"):
                keys = [(protocol, dataset, hasher, n_bits, name) for name in names]
                means = [results.mean(*key, figure=figure) for key in keys]
                texts = [results.show(*key, figure=figure, deviation=figure == "map") for key in keys]
                parts.append(bold_best(texts, means))
            columns.append(
                [MISSING if three[0] == MISSING else " · ".join(three) for three in zip(*parts, strict=True)]
            )
        rows += [[hasher, name, *(column[i] for column in columns)] for i, name in enumerate(names)]
    return markdown(["codes", "ranking", *(f"{n} bits: MAP · P@10 · P@100" for n in lengths)], rows)


def goals(results: Results) -> list[list[str]]:
    """Return one row per goal: what was to be reached, and what was reached."""
    rows = [["authors' protocol: Hamming of LSH and SH within 0.02 of the paper", _authors_hamming(results)]]
    for dataset in IMAGES:
        keys = [("full", dataset, hasher, n_bits) for hasher in HASHERS for n_bits in LENGTHS]
        svm = [_at_least_hamming(results, key) for key in keys]
        rows.append([f"{dataset}: MAP of RankingSVM at least that of Hamming", _count(svm)])
        if dataset != "youtube_faces":  # a subset of the paper's set
            above = [_above_paper(results, key) for key in keys]
            rows.append([f"{dataset}: best of bitrank above the best of the paper (VOC-11)", _count(above)])
        above = [_above_baselines(results, key) for key in keys]
        rows.append([f"{dataset}: best of bitrank above our Hamming and both WhRank (MAP)", _count(above)])
        rows.append([f"{dataset}: online within 0.01 MAP of offline, 32 bits", _online_loss(results, dataset)])
    cell = results.cell("timing", "mnist", "ITQ", 64, "WhRank")
    text = MISSING if cell is None else f"{cell['params']['n_queries']} queries, {cell['seconds']:.1f} s"
    return [*rows, ["one cell of MNIST, 3500 queries against 35 000 items, in under 15 s", text]]


def _authors_hamming(results: Results) -> str:
    gaps = [
        abs(mean - results.paper["mnist", hasher, "Hamming", n_bits])
        for hasher in ("LSH", "SH")
        for n_bits in LENGTHS
        if (mean := results.mean("authors", "mnist", hasher, n_bits, "Hamming", figure="authors_map")) is not None
    ]
    within = sum(gap <= 0.02 for gap in gaps)
    return f"{within} of {len(gaps)} cells, largest difference {max(gaps):.3f}" if gaps else MISSING


def _at_least_hamming(results: Results, key: Any) -> bool | None:
    svm, hamming = results.mean(*key, "RankingSVM"), results.mean(*key, "Hamming")
    return None if svm is None or hamming is None else svm >= hamming


def _above_paper(results: Results, key: Any) -> bool | None:
    best, paper = best_of_ours(results, *key, "voc11")[0], best_of_paper(results, *key[1:])
    return None if best is None or paper is None else best > paper


def _above_baselines(results: Results, key: Any) -> bool | None:
    best = best_of_ours(results, *key, "map")[0]
    baselines = [results.mean(*key, name) for name in ("Hamming", "WhRank", "WhRank-adaptive")]
    return None if best is None or None in baselines else best > max(v for v in baselines if v is not None)


def _count(answers: list[bool | None]) -> str:
    present = [answer for answer in answers if answer is not None]
    lacking = f", {len(answers) - len(present)} missing" if len(present) < len(answers) else ""
    return f"{sum(present)} of {len(present)} cells{lacking}"


def _online_loss(results: Results, dataset: str) -> str:
    losses = [
        offline - online
        for hasher in HASHERS
        if (offline := results.mean("full", dataset, hasher, 32, "RankingSVM")) is not None
        and (online := results.mean("full", dataset, hasher, 32, "Online")) is not None
    ]
    within = sum(loss <= 0.01 for loss in losses)
    return f"{within} of {len(losses)} hashers, largest loss {max(losses):.3f}" if losses else MISSING
