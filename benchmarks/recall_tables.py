"""Tables and pictures of benchmarks/results/recall.json, written into the README, docs/ and docs/pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter
from report import RESULTS, read_results

ROOT = Path(__file__).parents[1]
MARK = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
TEXTS = ("NFCorpus", "banking77", "Cranfield")
README = ("NFCorpus", "banking77")  # sets of the README's table
README_TIMED = "banking77"
README_ROWS = (
    "float32, flat",
    "bitrank, 1 bit",
    "bitrank, 2 bits",
    "bitrank, 4 bits",
    "turbovec, 2 bits",
    "turbovec, 4 bits",
    "FAISS RaBitQ, 1 bit",
    "FAISS RaBitQ, 2 bits",
    "FAISS RaBitQ, 4 bits",
    "rabitqlib, 4 bits",
    "FAISS PQFastScan, 2 bits",
    "FAISS ScalarQuantizer, 4 bits",
)
PICTURED = "Fashion-MNIST, cosine"
COLOURS = {"bitrank": "#1b6ca8", "turbovec": "#c9a227", "FAISS": "#8a5a9e", "rabitqlib": "#3c8d5a"}
NAMES = re.compile(r"(bitrank|turbovec|FAISS RaBitQ|rabitqlib), (½|\d) bits?$")
RELATED = ("FAISS PQFastScan, 2 bits", "FAISS OPQ, 2 bits", "FAISS ScalarQuantizer, 4 bits")


def number(value: float | None, form: str = ".0f") -> str:
    """A figure, or a dash; recalls without their zero."""
    if value is None:
        return "–"
    text = f"{value:{form}}"
    return text.removeprefix("0") if text.startswith("0.") else text


def rows_of(results: dict[str, Any], part: str = "recall") -> list[str]:
    """Contenders that have a figure, in the order of the code."""
    from quantisers import CONTENDERS

    stored = {row for rows in results.get(part, {}).values() for row in rows}
    return [row for row in CONTENDERS if row in stored]


def table_of(header: list[str], rows: list[list[str]]) -> str:
    """Write a table of Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def recall_table(results: dict[str, Any], sets: list[str]) -> str:
    """Recall@10 of every contender on some sets."""
    recalls = results["recall"]
    rows = []
    for name in rows_of(results):
        found = [recalls[each].get(name, {}) for each in sets]
        if any(found):
            rows.append([name, *(number(row.get("recall"), ".3f") for row in found)])
    return table_of(["recall@10", *sets], rows)


def detail_table(results: dict[str, Any], name: str) -> str:
    """All figures of one set."""
    recalls, times = results["recall"][name], results.get("times", {}).get(name, {})
    rows = []
    for each in rows_of(results):
        if each in recalls:
            row, time = recalls[each], times.get(each, {})
            rows.append(
                [each]
                + [number(row[key], ".3f") for key in ("recall", "recall_10_in_20", "recall_10_in_100")]
                + [number(row["bytes"]), number(row["scanned"]) if row["scanned"] else "–"]
                + [number(time.get(key)) for key in ("us", "us_in_batch")]
                + [number(row["build_s"], ".2g")]
            )
    header = ["", "recall@10", "10 in 20", "10 in 100", "bytes", "scanned", "µs", "µs in a batch", "s to build"]
    return table_of(header, rows)


def large_table(results: dict[str, Any]) -> str:
    """Time and memory on the large set."""
    rows = []
    for stored in results.get("large", {}).values():
        for each in rows_of(results, "large"):
            if each in stored:
                row = stored[each]
                figures = [number(row[key]) for key in ("bytes", "scanned", "us", "us_in_batch")]
                rows.append([each, *figures, number(row["build_s"]), number(row["anonymous_mb"])])
    return table_of(["", "bytes", "scanned", "µs", "µs in a batch", "s to build", "MB"], rows)


def integers_table(results: dict[str, Any]) -> str:
    """Recall by whole-number weights of heads."""
    stored = results.get("integers", {})
    rows = [[name, *(number(row["recall"], ".3f") for row in stored[name].values())] for name in stored]
    return table_of(["recall@10, 4 bits per dimension", *next(iter(stored.values()), [])], rows)


def learned_table(results: dict[str, Any]) -> str:
    """Quality before and after learning."""
    stored = results.get("learned", {})
    rows = []
    for name in rows_of(results, "learned"):
        found = [stored[each].get(name, {}) for each in stored]
        figures = [number(row.get(key), ".3f") for row in found for key in ("plain", "learned")]
        rows.append([name, *figures, number(next(row["bytes"] for row in found if row))])
    measures = {"NFCorpus": "nDCG@10, NFCorpus", "banking77": "P@10, banking77"}
    return table_of(["", *(head for each in stored for head in (measures[each], "learned")), "bytes"], rows)


def fashion_table(results: dict[str, Any]) -> str:
    """Lucene's protocol."""
    from recall import BBQ

    stored = next(iter(results.get("fashion", {}).values()), {})
    rows = [["Lucene's BBQ, 112 bytes", *(number(value, ".3f") for value in BBQ.values())]]
    for name, row in stored.items():
        found = [number(row[f"recall_10_in_{k}"], ".3f") for k in BBQ]
        rows.append([f"{name}, {row['bytes']:.0f} bytes", *found])
    return table_of(["recall@10, oversampling", *(f"{k / 10:.0f} ×" for k in BBQ)], rows)


def bars_table(results: dict[str, Any]) -> str:
    """Every bar, met or missed."""
    from recall import bars

    rows = [
        [name, f"{figure.value:.3f}", figure.bar, "met" if figure.met else "**missed**"]
        for name, figure in bars(results).items()
    ]
    return table_of(["", "figure", "wanted", ""], rows)


def readme_table(results: dict[str, Any]) -> str:
    """The contenders that a buyer asks for, by bytes."""
    recalls, times = results["recall"], results.get("times", {}).get(README_TIMED, {})
    first = recalls[README_TIMED]
    rows = []
    for name in rows_of(results):
        if name in first and name in README_ROWS and name in times:
            found = [recalls.get(each, {}).get(name, {}).get("recall") for each in README]
            time = times.get(name, {})
            rows.append(
                [f"**{name}**" if name.startswith("bitrank") else name]
                + [number(value, ".3f") for value in found]
                + [number(first[name]["bytes"]), number(time.get("us")), number(time.get("us_in_batch"))]
            )
    return table_of(["recall@10", *README, "bytes", "µs", "µs in a batch"], rows)


def pictures(results: dict[str, Any]) -> None:
    """Draw recall against bytes on three sets, and recall against microseconds on one."""
    shown = [name for name in (*README, PICTURED) if name in results["recall"]]
    figure, axes = plt.subplots(1, len(shown), figsize=(4 * len(shown), 3.6), sharey=True)
    for axis, name in zip(axes, shown, strict=True):
        _draw(axis, results["recall"].get(name, {}), results["recall"].get(name, {}), "bytes")
        axis.set(title=name, xlabel="bytes per item", xscale="log")
        _tick(axis)
    axes[0].set_ylabel("recall@10 of float32 neighbours")
    axes[-1].legend(fontsize=8, loc="lower right")
    _save(figure, "recall_by_bytes")
    timed = [name for name in shown if name in results.get("times", {})]
    if timed:
        figure, axes = plt.subplots(1, len(timed), figsize=(4 * len(timed), 3.6), sharey=True, squeeze=False)
        for axis, name in zip(axes[0], timed, strict=True):
            _draw(axis, results["recall"].get(name, {}), results["times"][name], "us")
            axis.set(title=name, xlabel="µs of one query, vector to ids, one thread")
        axes[0, 0].set_ylabel("recall@10 of float32 neighbours")
        axes[0, -1].legend(fontsize=8, loc="lower right")
        _save(figure, "recall_by_time")


def _draw(axis: Any, recalls: dict[str, Any], others: dict[str, Any], key: str) -> None:
    families: dict[str, list[tuple[float, float]]] = {}
    for name, row in recalls.items():
        if (match := NAMES.match(name)) and key in others.get(name, {}):
            families.setdefault(match[1], []).append((others[name][key], row["recall"]))
    for family, points in families.items():
        axis.plot(*zip(*sorted(points, key=lambda p: p[1]), strict=True), "o-", label=family,
                  color=COLOURS[family.split()[0]], alpha=0.9)  # fmt: skip
    for name in RELATED:
        if name in recalls and key in others.get(name, {}):
            axis.plot(others[name][key], recalls[name]["recall"], "x", color="#777777")
            axis.annotate(name.removeprefix("FAISS ").partition(",")[0], (others[name][key], recalls[name]["recall"]),
                          fontsize=6, textcoords="offset points", xytext=(4, -6))  # fmt: skip
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)


def _save(figure: Any, name: str) -> None:
    figure.tight_layout()
    figure.savefig(ROOT / "docs" / "pictures" / f"{name}.png", dpi=110)


def fill(path: Path, tables: dict[str, str]) -> None:
    """Replace what stands between `<!-- table: name -->` and `<!-- end -->`, where a table of that name is known."""
    text = MARK.sub(
        lambda match: f"{match[1]}{tables[match[2]]}\n{match[3]}" if match[2] in tables else match[0],
        path.read_text(encoding="utf-8"),
    )
    path.write_text(text, encoding="utf-8")


def pages() -> list[Path]:
    """Pages with tables."""
    marks = re.compile("<!-- table: (quantisers|integer)")
    candidates = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    return [path for path in candidates if marks.search(path.read_text(encoding="utf-8"))]


def tables() -> dict[str, str]:
    """Every table by its name."""
    results = read_results(RESULTS / "recall.json")
    sets = list(results["recall"])
    synthetic = [name for name in sets if name in _synthetic()]
    return {
        "quantisers": recall_table(results, [name for name in sets if name not in synthetic]),
        "quantisers-synthetic": recall_table(results, synthetic),
        "quantisers-detail": detail_table(results, PICTURED if PICTURED in sets else sets[0]),
        "quantisers-large": large_table(results),
        "quantisers-learned": learned_table(results),
        "quantisers-fashion": fashion_table(results),
        "integer-weights": integers_table(results),
        "quantisers-bars": bars_table(results),
        "quantisers-machine": f"{results['machine']['processor']}, one thread, Python {results['machine']['python']}.",
        "quantisers-readme": readme_table(results),
    }


def _tick(axis: plt.Axes) -> None:
    """Powers of two, in plain numbers."""
    axis.xaxis.set_major_locator(LogLocator(base=2))
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.xaxis.set_minor_locator(NullLocator())


def main() -> None:
    """Fill the pages and draw the pictures."""
    written = tables()
    for path in pages():
        fill(path, written)
    pictures(read_results(RESULTS / "recall.json"))


def _synthetic() -> set[str]:
    from vectors import SETS

    return {name for name, (kind, _) in SETS.items() if kind == "synthetic"}


if __name__ == "__main__":
    main()
