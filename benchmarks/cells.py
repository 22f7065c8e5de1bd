"""Measure `search(recall=)`: time beside an exact search, and what promises are worth to fresh queries.

    python benchmarks/cells.py                               all sets, half an hour on an idle core; then the tables
    python benchmarks/cells.py --sets "patches, 128 bits"    one set, whatever is stored of it
    python benchmarks/cells.py peers                         beside the graphs and inverted files of FAISS, 200 000 rows
    python benchmarks/cells.py tables                        the tables of docs/scale.md alone

Sets are vectors as codes of `BitPlanes`, all bits scanned, and queries that are no items: 8 × 8 patches of CIFAR-10
(queries from other images), MNIST digits (its test images), and banking77 with copies, each moved by a third of its
length (queries are the others of its texts). Half of the queries calibrate, the others are the fresh ones. One thread;
exact and approximate searches take turns; medians of processor time. `BITRANK_TEXTS` names the folder of
banking77_minilm.npz.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import data
import numpy as np
from report import RESULTS, Figure, machine, read_results, write_results

from bitrank import BitPlanes, Index, load_hasher
from bitrank.core.files import read_npz, replacing
from bitrank.core.types import Queries
from bitrank.index.cells import Axes
from experiments.datasets import cifar10, data_folder, mnist

PATH = RESULTS / "cells.json"
PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
MARK = re.compile(r"(<!-- cells: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
RECALLS, KS = (0.9, 0.95, 0.99), (1, 10, 100)
# Share of the time of an exact search that a promise may take, by length of the codes.
BARS = {400: {0.95: 0.1, 0.99: 0.2}, 128: {0.95: 0.4}}
N_QUERIES, N_TIMED = 2000, 60


class Set(NamedTuple):
    """Items, queries that are none, and bits per dimension."""

    items: np.ndarray
    queries: np.ndarray
    bits: float
    metric: str


def patches(n: int, bits: float) -> Set:
    images, rng = cifar10()[0], np.random.default_rng(0)
    n_images = -(-n // 81)
    items = np.concatenate([data.patches(images[i : i + 1000], 8, 3) for i in range(0, n_images, 1000)])[:n]
    others = data.patches(images[50_000:51_000], 8, 3)
    return Set(items, others[rng.choice(len(others), N_QUERIES, replace=False)], bits, "l2")


def digits(bits: float) -> Set:
    images = mnist()[0].reshape(-1, 784).astype(np.float32)
    return Set(images[:60_000], images[60_000 : 60_000 + N_QUERIES], bits, "l2")


def texts(n: int, bits: float) -> Set:
    """Texts and moved copies of them; queries are texts that have no copy."""
    file = Path(os.environ.get("BITRANK_TEXTS", data_folder())) / "banking77_minilm.npz"
    stored, rng = np.load(file), np.random.default_rng(0)
    known = np.concatenate([stored[name] for name in ("x_train", "x_test")]).astype(np.float32)
    known = known[rng.permutation(len(known))]
    queries, known = known[:N_QUERIES], known[N_QUERIES:]
    items = np.empty((n, known.shape[1]), np.float32)
    for start in range(0, n, len(known)):
        part = known[: n - start]
        moved = rng.normal(size=part.shape).astype(np.float32)
        moved *= np.linalg.norm(part, axis=1, keepdims=True) / np.linalg.norm(moved, axis=1, keepdims=True) / 3
        items[start : start + len(part)] = part + (moved if start else 0)
    return Set(items, queries, bits, "cosine")


SETS: dict[str, Callable[[], Set]] = {
    "digits, 60 000, 400 bits": lambda: digits(0.5),
    "texts with copies, 300 000, 400 bits": lambda: texts(300_000, 1.0),
    "patches, 1 000 000, 128 bits": lambda: patches(1_000_000, 0.6),
    "patches, 1 000 000, 400 bits": lambda: patches(1_000_000, 2.0),
}


def recall_of(found: np.ndarray, true: np.ndarray) -> float:
    hits = [len(set(a) & set(b)) / len(b) for a, b in zip(found.tolist(), true.tolist(), strict=True)]
    return statistics.fmean(hits)


def encoded(name: str) -> tuple[BitPlanes, np.ndarray, np.ndarray]:
    """The hasher, codes, and queries as reals; kept in the folder of data sets."""
    file = data_folder() / f"bench-cells-{re.sub('[^a-z0-9]+', '-', name)}.npz"
    if not file.exists():
        chosen, rng = SETS[name](), np.random.default_rng(1)
        planes = BitPlanes(chosen.bits, chosen.metric, 0)
        planes.fit(chosen.items[rng.choice(len(chosen.items), 20_000, replace=False)])
        planes.save(file.with_suffix(".hasher"))
        with replacing(file) as stream:
            np.savez(stream, codes=planes.transform(chosen.items), reals=planes.project(chosen.queries))
    stored = read_npz(file)
    planes = load_hasher(file.with_suffix(".hasher"))
    return planes, stored["codes"], stored["reals"]


def measure(name: str) -> dict[str, Any]:
    """All figures of a set."""
    rng, (planes, codes, reals) = np.random.default_rng(1), encoded(name)
    n, n_bits, order, sums = len(codes), reals.shape[1], planes.bit_weights_, planes.sums
    exact = Index(codes, n_bits=n_bits, query_weights=order)
    index = exact.copy()
    since = time.perf_counter(), time.process_time()
    index.make_cells(axes=Axes(*sums))
    out: dict[str, Any] = {"n": n, "n_bits": n_bits, "make_cells_s": time.perf_counter() - since[0]}
    out["make_cells_cpu_s"] = time.process_time() - since[1]
    known, fresh = reals[: len(reals) // 2], reals[len(reals) // 2 :]
    start = time.process_time()
    calibration = index.calibrate(known)
    out["calibrate_cpu_s"] = time.process_time() - start

    print(name, out, flush=True)
    skewed = rng.lognormal(0, 0.7, n_bits).astype(np.float32)
    out["times"] = times(exact, index, fresh, calibration)
    asked_of = {"even": fresh, "skewed": fresh * skewed}
    out["exact_in_cells"] = {key: slower(exact, index, asked) for key, asked in asked_of.items()}
    print(name, out["times"], out["exact_in_cells"], flush=True)
    out["rank_ms"] = rank_ms(index, fresh, calibration)
    out["reads"] = reads(index, fresh[:200], calibration)
    uneven = rng.lognormal(0, 0.7, fresh.shape).astype(np.float32)
    weights = Queries(np.packbits(fresh > 0, axis=1), np.abs(fresh) * uneven)
    tenth = np.sort(rng.choice(n, n // 10, replace=False))
    own = np.sort(rng.choice(n, 1000, replace=False))
    of_items = index.calibrate(planes.project(planes.decode(codes[own])), ids=own)
    rows = {
        "real queries": (fresh, {"calibration": calibration}),
        "weighted, measured": (fresh * skewed, {"calibration": index.calibrate(known * skewed)}),
        "items stand for queries": (fresh, {"calibration": of_items}),
        "weights per query, not measured": (weights, {"calibration": calibration.for_others()}),
        "filter of a tenth": (fresh[:200], {"calibration": calibration, "filter": tenth}),
    }
    out["promises"] = {str(k): {} for k in KS}
    for key, (asked, options) in rows.items():
        true = exact.search(asked, KS[-1], filter=options.get("filter")).ids
        for k in KS:
            results = index.search(asked, k, recall=0.95, **options)
            out["promises"][str(k)][key] = recall_of(results.ids, true[:, :k]), float(results.share.mean())
        print(name, key, [out["promises"][str(k)][key] for k in KS], flush=True)
    # A fifth joins, a tenth leaves; nothing is measured again.
    part = Index(codes[: n * 4 // 5], n_bits=n_bits, query_weights=order)
    if n <= 300_000:
        part.make_cells(axes=Axes(*sums))
        before = part.calibrate(known)
        part.add(codes[n * 4 // 5 :])
        part.remove(np.arange(0, n, 10))
        true = part.search(fresh, 10).ids
        out["changed"] = recall_of(part.search(fresh, 10, recall=0.95, calibration=before).ids, true)
    return out


def times(exact: Index, index: Index, queries: np.ndarray, calibration: Any) -> dict[str, Any]:
    """Milliseconds of an exact search and of each promise, in turn, and the recall of all fresh queries."""
    took: dict[Any, list[float]] = {key: [] for key in (None, *RECALLS)}
    for row in range(N_TIMED):
        for recall in took:
            options = {} if recall is None else {"recall": recall, "calibration": calibration}
            start = time.thread_time()
            (exact if recall is None else index).search(queries[row : row + 1], 10, threads=1, **options)
            took[recall].append((time.thread_time() - start) * 1e3)
    true = exact.search(queries, 10).ids
    out: dict[str, Any] = {"exact_ms": statistics.median(took.pop(None))}
    for recall, values in took.items():
        results = index.search(queries, 10, recall=recall, calibration=calibration)
        figures = statistics.median(values), recall_of(results.ids, true), float(results.share.mean())
        out[str(recall)] = dict(zip(("ms", "recall", "read"), figures, strict=True))
    return out


def reads(index: Index, queries: np.ndarray, calibration: Any, recall: float = 0.95) -> dict[str, float]:
    """What a disk reads for the blocks that queries choose: blocks, and runs of neighbours, each a read of its own."""
    ranking, blocks, runs = index._snapshot.ranking(), 0, 0
    for query in queries:
        asked = np.packbits(query[None] > 0, axis=1), np.abs(query[None])
        chosen = np.sort(ranking.choose(*asked, calibration.reading(recall, 10), 1, 1)[0][0])
        blocks, runs = blocks + len(chosen), runs + 1 + int((np.diff(chosen) > 1).sum())
    return {"blocks": blocks / len(queries), "runs": runs / len(queries), "of": ranking.n_blocks}


def rank_ms(index: Index, queries: np.ndarray, calibration: Any) -> float:
    """Milliseconds in which the blocks of a query are ranked."""
    ranking, took = index._snapshot.ranking(), []
    for query in queries[:N_TIMED]:
        asked = np.packbits(query[None] > 0, axis=1), np.abs(query[None])
        start = time.thread_time()
        ranking.choose(*asked, calibration.reading(0.95, 10), 1, 1)
        took.append((time.thread_time() - start) * 1e3)
    return statistics.median(took)


def slower(exact: Index, index: Index, queries: np.ndarray) -> float:
    """Time of an exact search in cells, as a multiple of that in sorted rows."""
    took: dict[int, list[float]] = {0: [], 1: []}
    for row in range(N_TIMED):
        for place, each in enumerate((exact, index)):
            start = time.thread_time()
            each.search(queries[row : row + 1], 10, threads=1)
            took[place].append(time.thread_time() - start)
    return statistics.median(took[1]) / statistics.median(took[0])


def peers(n: int = 200_000) -> dict[str, Any]:
    """Recall of float neighbours, milliseconds and bytes, beside FAISS, on patches; one thread."""
    import faiss

    from bitrank import Collection

    faiss.omp_set_num_threads(1)
    chosen = patches(n, 2.0)
    items, queries = chosen.items, chosen.queries[:1000]
    flat = faiss.IndexFlatL2(items.shape[1])
    flat.add(items)
    true = flat.search(queries, 10)[1]
    out: dict[str, Any] = {}

    def line(name: str, n_bytes: float, seconds: float, search: Callable[[np.ndarray], np.ndarray]) -> None:
        took = []
        for row in range(200):
            start = time.thread_time()
            search(queries[row : row + 1])
            took.append(time.thread_time() - start)
        figures = recall_of(search(queries), true), statistics.median(took) * 1e3, n_bytes, seconds
        out[name] = dict(zip(("recall", "ms", "bytes", "build_s"), figures, strict=True))
        print(name, out[name], flush=True)

    for bits in (2.0, 4.0):
        start = time.process_time()
        planes = BitPlanes(bits, "l2", 0).fit(items[:20_000])
        collection = Collection.from_vectors(items, hasher=planes, metric="l2")
        collection.make_cells(queries=chosen.queries[1000:])
        seconds = time.process_time() - start
        for recall in (None, 0.9, 0.95, 0.99):
            name = f"bitrank, {bits:g} bits, " + ("exact" if recall is None else f"recall={recall}")
            line(
                name,
                collection.bytes_per_item,
                seconds,
                lambda q, c=collection, r=recall: c.search(q, 10, recall=r, threads=1).ids,
            )
    d = items.shape[1]
    start = time.process_time()
    graph = faiss.IndexHNSWFlat(d, 16)
    graph.hnsw.efConstruction = 100
    graph.add(items)
    seconds = time.process_time() - start
    for width in (16, 32, 64, 128):
        graph.hnsw.efSearch = width
        line(f"FAISS HNSW 16, {width}", 4 * d + 2 * 16 * 4, seconds, lambda q: graph.search(q, 10)[1])
    for kind, n_bytes in ((f"RR{d},IVF1024,RaBitQfs", d / 8 + 8), ("IVF1024,PQ96x4fs", 48)):
        start = time.process_time()
        made = faiss.index_factory(d, kind)
        made.train(items[:100_000])
        made.add(items)
        seconds = time.process_time() - start
        for n_probe in (8, 32, 128):
            faiss.extract_index_ivf(made).nprobe = n_probe
            line(f"FAISS {kind}, {n_probe}", n_bytes, seconds, lambda q, made=made: made.search(q, 10)[1])
    return out


def tables(stored: dict[str, Any]) -> dict[str, str]:
    """The tables of the page."""
    lines = ["| set | exact, ms | recall= | recall | read | ms | of exact | bar |", "| --- " * 8 + "|"]
    for name, found in stored.get("sets", {}).items():
        exact = found["times"]["exact_ms"]
        for recall in RECALLS:
            row = found["times"][str(recall)]
            most = min(BARS.items(), key=lambda bar: abs(bar[0] - found["n_bits"]))[1].get(recall, np.inf)
            figure = Figure(row["ms"] / exact, most=most if found["n"] >= 1_000_000 else np.inf)
            verdict = figure.bar and f"{figure.bar} {'met' if figure.met else 'missed'}"
            cells = name, f"{exact:.3g}", recall, f"{row['recall']:.3f}", f"{row['read']:.2%}", f"{row['ms']:.3g}"
            lines.append(f"| {' | '.join(map(str, cells))} | {figure.value:.2f} | {verdict} |")
    promises = ["| set | k | " + " | ".join(next(iter(stored["sets"].values()))["promises"]["1"]) + " |"]
    promises.append("| --- " * (promises[0].count("|") - 1) + "|")
    for name, found in stored["sets"].items():
        for k, row in found["promises"].items():
            promises.append(f"| {name} | {k} | " + " | ".join(f"{a:.3f} · {b:.1%}" for a, b in row.values()) + " |")
    costs = ["| set | `make_cells`, s of a core | calibration, s | exact, even | exact, skewed | after changes |"]
    costs.append("| --- " * 6 + "|")
    for name, found in stored["sets"].items():
        slow = found["exact_in_cells"]
        changed = f"{found['changed']:.3f}" if "changed" in found else "–"
        cells = f"{found['make_cells_cpu_s']:.0f}", f"{found['calibrate_cpu_s']:.1f}"
        costs.append(f"| {name} | {' | '.join(cells)} | {slow['even']:.2f} | {slow['skewed']:.2f} | {changed} |")
    out = {"times": "\n".join(lines), "promises": "\n".join(promises), "costs": "\n".join(costs)}
    largest = max(stored["sets"].values(), key=lambda found: (found["n"], found["n_bits"]))
    out["disk"] = on_disk(largest)
    out["machine"] = f"{stored['machine']['processor']}, one thread."
    if "peers" in stored:
        head = ["| | recall@10 of float neighbours | ms | bytes per item | s to build |", "| --- " * 5 + "|"]
        rows = [
            f"| {name} | {row['recall']:.3f} | {row['ms']:.3g} | {row['bytes']:.0f} | {row['build_s']:.0f} |"
            for name, row in stored["peers"].items()
        ]
        out["peers"] = "\n".join(head + rows)
    return out


def render(page: str, stored: dict[str, Any]) -> str:
    """The page with its tables as stored."""
    made = tables(stored)
    return MARK.sub(lambda found: f"{found[1]}{made[found[2]]}\n{found[3]}", page)


def on_disk(found: dict[str, Any]) -> str:
    """Seconds of one search of many codes on a disk, by arithmetic: 32 reads in flight, 80 µs each, 3 GB/s."""
    lines = ["| codes | means in memory | on the disk | blocks read | runs | rank, ms | read, ms |", "| --- " * 7 + "|"]
    for n in (100_000_000, 1_000_000_000):
        times = n / found["n"]
        blocks, runs = found["reads"]["blocks"] * times, found["reads"]["runs"] * times
        rank = found["rank_ms"] * times
        read = max(runs * 0.080 / 32, blocks * 64 * found["n_bits"] / 8 / 3e6)
        sizes = f"{n * 0.4 / 1e9:.2g} GB", f"{n * (found['n_bits'] / 8 + 8) / 1e9:.3g} GB"
        counts = (f"{count:,.0f}".replace(",", " ") for count in (blocks, runs))
        cells = f"{n:,}".replace(",", " "), *sizes, *counts, f"{rank:.0f}", f"{read:.0f}"
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=["sets", "peers", "tables"])
    parser.add_argument("--sets", nargs="+", choices=list(SETS), help="measure these again")
    options = parser.parse_args()
    stored = read_results(PATH) if PATH.exists() else {"sets": {}}
    stored["machine"] = machine()
    for name in options.sets or SETS:
        if options.part in (None, "sets") and (options.sets or name not in stored["sets"]):
            stored["sets"][name] = measure(name)
            write_results(PATH, stored)
    if options.part == "peers" or (options.part is None and "peers" not in stored):
        stored["peers"] = peers()
        write_results(PATH, stored)
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8"), stored), encoding="utf-8")


if __name__ == "__main__":
    main()
