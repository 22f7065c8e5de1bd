"""Tables of the report: means over seeds, the paper's values beside them, and the checks of what was to be reached.

Between the files and the page: `Results` answers for a cell by its keys, and says "missing" where there is none.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import cells
from experiments.plan import HASHERS, LENGTHS, groups
from experiments.protocols import FLOAT

PAPER = Path(__file__).parent / "paper.csv"
MISSING = "missing"
# The paper's rows, and the rankings here that answer to them.
SAME_AS = {"Hamming": "Hamming", "WhRank": "WhRank-adaptive", "Weighted": "paper-exact"}
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
    """All cells of a folder, and the paper's."""

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
        """One cell: protocol, dataset, hasher, length, ranking."""
        return self.by_seed.get(key, {}).get(seed)

    def values(self, *key: Any, figure: str) -> list[float]:
        """A figure for every seed there is."""
        return [cell["figures"][figure] for _, cell in sorted(self.by_seed.get(key, {}).items())]

    def mean(self, *key: Any, figure: str = "map") -> float | None:
        """Mean over the seeds, None where there is no cell."""
        values = self.values(*key, figure=figure)
        return float(np.mean(values)) if values else None

    def show(self, *key: Any, figure: str = "map", deviation: bool = False) -> str:
        """Mean over the seeds, ± standard deviation if asked; says so where seeds are missing."""
        values = self.values(*key, figure=figure)
        if not values:
            return MISSING
        expected = self.n_seeds[key[:4]]
        few = f" ({len(values)} of {expected} seeds)" if len(values) < expected else ""
        return short(np.mean(values)) + (f" ±{short(np.std(values))}" if deviation else "") + few

    def params(self, protocol: str, dataset: str) -> dict[str, Any]:
        """Sizes, from any cell of the set."""
        some = (seeds for key, seeds in self.by_seed.items() if key[:2] == (protocol, dataset))
        return next((cell["params"] for seeds in some for cell in seeds.values()), {})


def short(value: Any) -> str:
    """Three digits, without the zero before the point."""
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}"


def bold_best(texts: Sequence[str], values: Sequence[float | None]) -> list[str]:
    """The texts, with those of the highest value, as shown, in bold."""
    shown = [None if value is None else round(value, 3) for value in values]
    best = max((value for value in shown if value is not None), default=None)
    return [f"**{t}**" if v is not None and v == best else t for t, v in zip(texts, shown, strict=True)]


def markdown(header: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    """A table."""
    lines = [list(map(str, header)), *([str(value) for value in row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def source(protocol: str, dataset: str) -> str:
    """Return the line under a table that names its file."""
    return f"From `{cells.path_of(Path('experiments/results'), protocol, dataset)}`."


def beside_paper(results: Results, protocol: str, dataset: str, figure: str) -> str:
    """The paper's table with ours beside it, and the best of bitrank's own rankings below."""
    rows = []
    for hasher in HASHERS:
        for theirs, ours in SAME_AS.items():
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
            own = f"{results.show(protocol, dataset, hasher, n_bits, name, figure=figure)} {name}"
            texts = [MISSING if best is None else own, MISSING if paper is None else short(paper)]
            row.append(" / ".join(bold_best(texts, [best, paper])))
        rows.append([hasher, "best of bitrank / best of the paper", *row])
    return markdown(["codes", "ours / paper's", *(f"{n} bits" for n in LENGTHS)], rows)


def best_of_ours(results: Results, *key: Any) -> tuple[float | None, str]:
    """The highest mean among bitrank's own rankings, and its name; key: protocol, dataset, hasher, length, figure."""
    means = {name: results.mean(*key[:-1], name, figure=key[-1]) for name in OURS}
    there = {name: value for name, value in means.items() if value is not None}
    name = max(there, key=lambda name: there[name], default="")
    return there.get(name), name


def best_of_paper(results: Results, dataset: str, hasher: str, n_bits: int) -> float | None:
    """The highest value that the paper publishes for these codes."""
    values = (results.paper.get((dataset, hasher, theirs, n_bits)) for theirs in SAME_AS)
    return max((value for value in values if value is not None), default=None)


def every_ranking(
    results: Results, protocol: str, dataset: str, hashers: Sequence[str], lengths: Sequence[int], names: Sequence[str]
) -> str:
    """MAP ± deviation · P@10 · P@100 of every ranking, each figure's best for a hasher and length in bold."""
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


def reached(results: Results) -> list[list[Any]]:
    """What was to be reached, and what was: a row each."""
    rows = []
    gaps = [
        abs(mean - results.paper["mnist", hasher, "Hamming", n_bits])
        for hasher in ("LSH", "SH")
        for n_bits in LENGTHS
        if (mean := results.mean("authors", "mnist", hasher, n_bits, "Hamming", figure="authors_map")) is not None
    ]
    within = sum(gap <= 0.02 for gap in gaps)
    worst = f"{within} of {len(gaps)} cells, 10 asked; the farthest {max(gaps):.3f}" if gaps else MISSING
    rows.append(["authors' protocol, Hamming of LSH and SH within 0.02 of the paper's", worst])
    for dataset in ("mnist", "cifar10", "youtube_faces"):
        pairs = [("full", dataset, hasher, n_bits) for hasher in HASHERS for n_bits in LENGTHS]

        def count(better: Any, pairs: Any = pairs) -> str:
            answers = [better(key) for key in pairs]
            there = [answer for answer in answers if answer is not None]
            lacking = f", {len(answers) - len(there)} missing" if len(there) < len(answers) else ""
            return f"{sum(there)} of {len(there)} cells{lacking}"

        def svm(key: Any) -> bool | None:
            new, old = results.mean(*key, "RankingSVM"), results.mean(*key, "Hamming")
            return None if new is None or old is None else new >= old

        def published(key: Any) -> bool | None:
            best, paper = best_of_ours(results, *key, "voc11")[0], best_of_paper(results, *key[1:])
            return None if best is None or paper is None else best > paper

        def rivals(key: Any) -> bool | None:
            best = best_of_ours(results, *key, "map")[0]
            others = [results.mean(*key, name) for name in ("Hamming", "WhRank", "WhRank-adaptive")]
            return None if best is None or None in others else best > max(v for v in others if v is not None)

        rows.append([f"{dataset}: MAP of RankingSVM at least Hamming's", count(svm)])
        if dataset != "youtube_faces":  # a subset, not the paper's set
            rows.append([f"{dataset}: best of bitrank above the paper's best (VOC-11)", count(published)])
        rows.append([f"{dataset}: best of bitrank above our Hamming and both WhRank (MAP)", count(rivals)])
        losses = [
            offline - online
            for hasher in HASHERS
            if (offline := results.mean("full", dataset, hasher, 32, "RankingSVM")) is not None
            and (online := results.mean("full", dataset, hasher, 32, "Online")) is not None
        ]
        within = sum(loss <= 0.01 for loss in losses)
        text = f"{within} of {len(losses)} hashers, most lost {max(losses):.3f}" if losses else MISSING
        rows.append([f"{dataset}: online within 0.01 MAP of offline, 32 bits", text])
    cell = results.cell("timing", "mnist", "ITQ", 64, "WhRank")
    rows.append(
        [
            "one cell of MNIST, 3500 queries against 35 000 items, in under 15 s",
            MISSING if cell is None else f"{cell['params']['n_queries']} queries, {cell['seconds']:.1f} s",
        ]
    )
    return rows
