"""Write the tables of docs/scale.md from benchmarks/results/engines.json; a test keeps the page and the file together.

python benchmarks/scale.py
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "scale.md"
RESULTS = ROOT / "benchmarks" / "results" / "engines.json"
MARK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

# Limits of a shard in the sizing.
BILLION, GIB, TARGET_MS, SHARD_GIB, SHARD_CORES = 10**9, 2**30, 100, 64, 32


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def number(value: float) -> str:
    """Format a value with three significant digits."""
    return (
        f"{value:.3g}" if value < 1000 else f"{round(value, 2 - math.floor(math.log10(value))):,.0f}".replace(",", " ")
    )


def engines(results: dict) -> str:
    rows = []
    for record in results["engines"]:
        if record["step"] in ("exact", "rerank"):
            reranks = record["step"] == "rerank"
            method = f"rerank, {record['stage']}" if reranks else "exact"
            n = number(record["candidates"]) if reranks else "all"
            rows.append([record["engine"], method, n, number(record["ms"]), f"{record['recall']:.3f}"])
    return table(["engine", "method", "N", "ms", "recall"], rows)


def identical(results: dict) -> str:
    exact = [record for record in results["engines"] if record["step"] == "exact"]
    names = ", ".join(record["engine"] for record in exact if record["same_as_index"])
    others = ", ".join(record["engine"] for record in exact if not record["same_as_index"])
    return f"Same ids in the same order as `Index` with these weights: {names}.\n" + (
        f"Not: {others}.\n" if others else ""
    )


def library(results: dict, what: str) -> list[dict]:
    return [record for record in results["library"] if record["what"] == what]


def key(record: dict) -> tuple:
    return record["n_bits"], record["weights"], record["n"]


def recall(results: dict) -> str:
    records = library(results, "recall")
    counts = sorted({record["candidates"] for record in records})
    by_key: dict[tuple, dict[int, float]] = {}
    for record in records:
        by_key.setdefault(key(record), {})[record["candidates"]] = record["recall"]
    rows = [
        [str(n_bits), weights, number(n), *(f"{values[count]:.3f}" for count in counts)]
        for (n_bits, weights, n), values in sorted(by_key.items())
    ]
    return table(["bits", "weights", "codes", *(f"N = {number(count)}" for count in counts)], rows)


def suggested(results: dict) -> str:
    rows = [
        [
            str(r["n_bits"]),
            r["weights"],
            number(r["n"]),
            f"{r['wanted']}",
            number(r["candidates"]),
            f"{r['recall']:.3f}",
        ]
        for r in sorted(library(results, "suggested"), key=key)
    ]
    return table(["bits", "weights", "codes", "wanted", "N suggested", "recall reached"], rows)


def index(results: dict) -> str:
    rows = [
        [
            *(str(r["n_bits"]), r["weights"], number(r["n"]), f"{r['spread']:.2f}"),
            *(number(r["ms"]), f"{r['overlap_8_bits']:.3f}"),
        ]
        for r in sorted(library(results, "index"), key=key)
    ]
    return table(["bits", "weights", "codes", "spread", "`Index`, ms", "8-bit weights, overlap"], rows)


def stored(results: dict) -> str:
    rows = []
    for record in results["engines"]:
        if record["step"] == "add" or (record["step"] == "optimize" and record["seconds"] > 0.01):
            size = "not known" if record["bytes_per_code"] is None else number(record["bytes_per_code"])
            what = "added" if record["step"] == "add" else "after `optimize`"
            rows.append([record["engine"], what, size, number(record["seconds"])])
    return table(["engine", "", "bytes per code", "seconds"], rows)


def sizing(results: dict) -> str:
    """Size the shards for a billion codes, by the time and the memory of one shard."""
    rows = []
    for record in results["engines"]:
        if record["step"] not in ("exact", "rerank") or record.get("candidates", 1000) != 1000:
            continue
        built = [r for r in results["engines"] if r["engine"] == record["engine"] and "seconds" in r]
        sizes = {r["step"]: r["bytes_per_code"] for r in built}
        graph = record.get("stage") in ("HNSW", "graph")
        size = sizes["add" if record["engine"] == "postgresql" and not graph else "optimize"]
        if size is None:
            continue
        by_memory = SHARD_GIB * GIB / size
        # The time of a scan is proportional to its codes, divided by the cores that share it; the steps through a graph
        # grow with the logarithm, on one core. A search of `Index` is not divided among cores.
        cores = 1 if graph or record["engine"] == "index" else SHARD_CORES / measured_cores(record, results)
        by_time = math.inf if graph else record["n"] * TARGET_MS / record["ms"] * cores
        shards = math.ceil(BILLION / min(by_memory, by_time))
        held = BILLION / shards
        growth = math.log(held) / math.log(record["n"]) if graph else held / record["n"] / cores
        method = f"rerank, {record['stage']}" if "stage" in record else "exact"
        limit = "memory" if by_memory < by_time else "time"
        figures = held / 1e6, held * size / GIB, BILLION * size / GIB, record["ms"] * growth
        rows.append([record["engine"], method, number(shards), limit, *map(number, figures)])
    head = ["engine", "method", "shards", "set by", "M codes per shard", "GiB per shard", "GiB in all", "expected ms"]
    return table(head, rows)


def measured_cores(record: dict, results: dict) -> int:
    return 1 if record["engine"] == "faiss" else int(results["machine"]["cores"])


def machine(results: dict) -> str:
    return "{processor}, {cores} cores, Python {python}.\n".format(**results["machine"])


TABLES: dict[str, Callable[[dict], str]] = {
    function.__name__: function for function in (engines, identical, recall, suggested, index, stored, sizing, machine)
}


def render(page: str, results: dict) -> str:
    """Return the page with new tables."""
    return MARK.sub(lambda match: match[1] + TABLES[match[2]](results) + match[3], page)


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8"), json.loads(RESULTS.read_text())), encoding="utf-8")
