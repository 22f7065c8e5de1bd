"""Draw benchmarks/results/search.png and print the tables of docs/search.md from benchmarks/results/search.json."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

RESULTS = Path(__file__).parent / "results"
SHOWN = {
    "bitrank, learned": "learned weights",
    "bitrank, uneven": "uneven weights",
    "bitrank, even": "even weights",
    "IndexPQFastScan (not exact)": "FAISS PQFastScan (weighted, not exact)",
}
COLOURS = ["#1b6ca8", "#4b9cd3", "#a3cbe8", "#c9a227"]


def title(record: dict) -> str:
    kind = record.get("data", record["section"])
    return f"{record['n'] / 1e6:g} M {kind}, {record['n_bits']} bits"


def draw(records: list[dict]) -> None:
    kept = [
        r for r in records if r["section"] in ("random", "real", "long") and r["k"] == 10 and r["contender"] in SHOWN
    ]
    groups = list(dict.fromkeys(title(r) for r in kept))
    figure, axes = plt.subplots(figsize=(9, 0.75 * len(groups) + 1.2))
    for place, group in enumerate(groups):
        bars = [r for r in kept if title(r) == group]
        bars.sort(key=lambda r: list(SHOWN).index(r["contender"]))
        height = 0.8 / len(bars)
        for number, record in enumerate(bars):
            y = place + number * height - 0.4 + height / 2
            colour = COLOURS[list(SHOWN).index(record["contender"])]
            axes.barh(y, record["times_flat"], height * 0.92, color=colour)
            axes.text(record["times_flat"] * 1.05, y, f"{record['times_flat']:.3g}", va="center", fontsize=7)
    for name, colour in zip(SHOWN.values(), COLOURS, strict=True):
        axes.barh(0, 0, color=colour, label=name)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(groups)), groups)
    axes.invert_yaxis()
    axes.set_xlabel("speed, as a multiple of FAISS IndexBinaryFlat (plain Hamming, exact); one core, k = 10")
    axes.legend(loc="lower right", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(RESULTS / "search.png", dpi=120)


def print_tables(records: list[dict]) -> None:
    print("| codes | contender | k=10 | k=100 | × flat, k=10 | × flat, k=100 |\n|---|---|---|---|---|---|")
    for first in (r for r in records if r["section"] in ("random", "real", "long") and r["k"] == 10):
        second = next(
            r for r in records if r.get("k") == 100 and (title(r), r["contender"]) == (title(first), first["contender"])
        )
        print(
            f"| {title(first)} | {first['contender']} | {first['ms']:.2f} ms | {second['ms']:.2f} ms "
            f"| {first['times_flat']:.2f} | {second['times_flat']:.2f} |"
        )
    print("\n| order quality | time, as a multiple of the ideal order's |\n|---|---|")
    for record in (r for r in records if r["section"] == "order"):
        print(f"| {record['quality']:.2f} | {record['times_ideal']:.2f} |")


if __name__ == "__main__":
    stored = json.loads((RESULTS / "search.json").read_text())["records"]
    draw(stored)
    print_tables(stored)
