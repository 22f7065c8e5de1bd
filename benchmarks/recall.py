"""Recall, bytes and microseconds of codes of vectors beside other quantisers: benchmarks/results/recall.json.

    python benchmarks/recall.py                          all parts; rows that are stored are not measured again
    python benchmarks/recall.py recall --sets NFCorpus --rows "bitrank, 1 bit" --again
    python benchmarks/recall.py bars                     every bar, met or missed, from what is stored

recall: recall@10 of float32 neighbours, 10 in 20, 10 in 100, bytes per item, seconds to build, on every set.
times: microseconds of one query from vector to ids, and per query of a batch of 256, for k = 10. One thread; all
contenders of a set are asked in turn in every round; medians of processor time, which other work disturbs least.
large: the same on 200 000 rows of 1536 dimensions in a mapped file, and the memory of a process per contender.
fashion: Lucene's protocol for its binary quantisation (github.com/apache/lucene/issues/14342): 60 000 × 10 000
vectors, the share of the ten nearest that is among the first 10, 20, 30 and 50.
learned: nDCG@10 and P@10 before and after learning, the others with a linear adapter of the query (recall_learned.py).
integers: recall where heads are asked by whole-number weights, as engines do in one scan, and rests by reals.

`pip install 'bitrank[peers]'` brings what is compared with.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median
from typing import Any

import faiss
import numpy as np
from quantisers import CONTENDERS
from recall_learned import measure_learned
from report import RESULTS, Figure, machine, parse_parts, read_results, timed, write_results
from threadpoolctl import threadpool_limits
from vectors import SETS, Vectors, large, pixels, recall

from bitrank import Index
from bitrank.engines import quantize_weights
from bitrank.hashing import BitPlanes
from experiments.datasets import data_folder

PATH = RESULTS / "recall.json"
BBQ = {10: 0.444, 20: 0.629, 30: 0.730, 50: 0.833}
TIMED = ("NFCorpus", "banking77", "Fashion-MNIST, cosine")
SLOW = ("FAISS OPQ, 2 bits", "scalable-vs LeanVec, graph", "hnswlib, graph")  # to build: on texts and `TIMED` only
OF_LARGE = (
    "bitrank, 1 bit",
    "bitrank, 2 bits",
    "bitrank, 4 bits",
    "turbovec, 2 bits",
    "turbovec, 4 bits",
    "FAISS RaBitQ, 1 bit",
    "FAISS RaBitQFastScan, 4 bits",
    "rabitqlib, 4 bits",
)
SECONDS = 4.0  # of every contender's rounds

Row = dict[str, float]


def measure(name: str, vectors: Vectors, neighbours: np.ndarray) -> Row | None:
    """Build a contender, and return its recall, bytes and seconds; None where it cannot take these vectors."""
    seconds, built = timed(CONTENDERS[name], vectors.X, vectors.metric)
    if built is None:
        return None
    n = len(vectors.X)
    found = {k: np.asarray(built.search(vectors.Q, min(k, n))) for k in (10, 20, 100)}
    row = {f"recall_10_in_{k}" if k > 10 else "recall": recall(neighbours, ids) for k, ids in found.items()}
    return row | {"bytes": built.n_bytes, "scanned": built.n_scanned, "build_s": seconds}


def measure_recall(store: Store, options: argparse.Namespace) -> None:
    """Recall on every set."""
    for name in options.sets or SETS:
        kind, load = SETS[name]
        missing = store.missing("recall", name, options)
        if not missing:
            continue
        vectors = load()
        neighbours = vectors.neighbours()
        print(f"\n== {name}: {len(vectors.X)} × {vectors.X.shape[1]}, {vectors.metric}", flush=True)
        for contender in missing:
            if contender in SLOW and kind != "text" and name not in TIMED:
                continue
            store.add("recall", name, contender, attempt(measure, contender, vectors, neighbours))


def interleaved(searches: dict[str, Callable[[np.ndarray, int], Any]], Q: np.ndarray, together: int) -> Row:
    """Median microseconds of processor time per query, all contenders in turn in every round."""
    times: dict[str, list[float]] = {name: [] for name in searches}
    begin, turn = time.perf_counter(), -2  # two rounds to warm up
    while turn < 5 or (time.perf_counter() - begin < SECONDS * len(searches) and turn < 500):
        batch = np.ascontiguousarray(Q[np.arange(turn * together, (turn + 1) * together) % len(Q)])
        for name, search in searches.items():
            start = time.process_time()
            search(batch, 10)
            if turn >= 0:
                times[name].append((time.process_time() - start) * 1e6 / together)
        turn += 1
    return {name: median(each) for name, each in times.items()}


def measure_times(store: Store, options: argparse.Namespace) -> None:
    """Microseconds on some sets; always all contenders, in one run."""
    for name in options.sets or TIMED:
        if not store.missing("times", name, options):
            continue
        vectors = SETS[name][1]()
        print(f"\n== {name}: microseconds", flush=True)
        built = {each: attempt(CONTENDERS[each], vectors.X, vectors.metric) for each in options.rows or CONTENDERS}
        searches = {each: made.search for each, made in built.items() if made is not None}
        one, batch = (interleaved(searches, vectors.Q, together) for together in (1, 256))
        for each in built:
            row = {"us": one[each], "us_in_batch": batch[each]} if each in searches else None
            store.add("times", name, each, row)


def measure_large(store: Store, options: argparse.Namespace) -> None:
    """A process per contender; rows in a mapped file."""
    large(data_folder(), options.large)
    name = f"{options.large} × 1536"
    for each in store.missing("large", name, options, OF_LARGE):
        done = subprocess.run(
            [sys.executable, __file__, "one", "--rows", each, "--large", str(options.large)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            print(f"{each}: {done.stderr.strip().splitlines()[-1:]}", flush=True)
        else:
            store.add("large", name, each, json.loads(done.stdout.splitlines()[-1]))


def one_of_large(options: argparse.Namespace) -> None:
    """Measure a contender on the large set and print its row as JSON."""
    vectors = large(data_folder(), options.large)
    seconds, built = timed(CONTENDERS[options.rows[0]], vectors.X, vectors.metric)
    searches = {"it": built.search}
    row = {"bytes": built.n_bytes, "scanned": built.n_scanned, "build_s": seconds}
    row["us"] = interleaved(searches, vectors.Q, 1)["it"]
    row["us_in_batch"] = interleaved(searches, vectors.Q, 256)["it"]
    memory = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    row["anonymous_mb"] = int(memory["RssAnon"].split()[0]) / 1024
    print(json.dumps(row))


def measure_fashion(store: Store, options: argparse.Namespace) -> None:
    """Lucene's protocol, beside its figures."""
    import vectors as sets

    name = "bitrank, 1 bit"
    if name in store.missing("fashion", "Fashion-MNIST", options, [name]):
        sets.N_QUERIES = 10_000
        vectors = pixels("fashion", "l2")
        neighbours = vectors.neighbours()
        built = CONTENDERS[name](vectors.X, vectors.metric)
        found = np.asarray(built.search(vectors.Q, 50))
        row = {f"recall_10_in_{k}": recall(neighbours, found[:, :k]) for k in BBQ}
        store.add("fashion", "Fashion-MNIST", name, row | {"bytes": built.n_bytes})


def measure_integers(store: Store, options: argparse.Namespace) -> None:
    """Recall by head weights of few bits."""
    for name in options.sets or ("NFCorpus", "banking77", "Cranfield"):
        if not store.missing("integers", name, options, ["float32"]):
            continue
        vectors = SETS[name][1]()
        neighbours = vectors.neighbours()
        planes = BitPlanes(bits=4, metric=vectors.metric, random_state=0).fit(vectors.X)
        codes, head = planes.transform(vectors.X), planes.project(vectors.Q, head=True)
        index = Index(codes, n_bits=planes.n_bits_, n_scanned=planes.n_scanned_)
        for row, bits in {"float32": None, "8 bits": 8, "6 bits": 6, "4 bits": 4, "2 bits": 2}.items():
            asked = head if bits is None else np.sign(head) * quantize_weights(np.abs(head), bits)
            queries = asked, planes.project(vectors.Q)
            ids = index.search(queries, 40, shortlist=planes.shortlist_).ids
            order = np.argsort(-planes.estimate(codes[ids], vectors.Q), axis=1)[:, :10]
            store.add("integers", name, row, {"recall": recall(neighbours, np.take_along_axis(ids, order, 1))})


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of a peer; None where the peer cannot do it here, with its reason printed."""
    try:
        return function(*arguments)
    except (ImportError, RuntimeError, ValueError, TypeError) as error:
        print(f"  not here: {arguments[0] if isinstance(arguments[0], str) else ''} {str(error)[:200]}", flush=True)
        return None


class Store:
    """Rows by part, set and contender, written after each."""

    def __init__(self, path: Path) -> None:
        self.path, self.results = path, read_results(path)

    def missing(self, part: str, name: str, options: argparse.Namespace, rows: Any = CONTENDERS) -> list[str]:
        """Rows to measure."""
        stored = self.results.get(part, {}).get(name, {})
        return [each for each in options.rows or rows if options.again or each not in stored]

    def add(self, part: str, name: str, contender: str, row: Row | None) -> None:
        """Print and write a row."""
        if row is None:
            return
        self.results = read_results(self.path)  # another run may have written since
        text = ", ".join(f"{key} {value:.4g}" for key, value in row.items())
        print(f"{contender}: {text}", flush=True)
        self.results.setdefault(part, {}).setdefault(name, {})[contender] = row
        self.results["machine"] = {key: value for key, value in machine().items() if key != "load_at_start"}
        self.results["date"] = time.strftime("%Y-%m-%d")
        write_results(self.path, self.results)


def bars(results: dict[str, Any]) -> dict[str, Figure]:
    """Every bar beside its figure."""
    recalls, found = results.get("recall", {}), {}
    value = lambda name, row, key="recall": recalls.get(name, {}).get(row, {}).get(key)  # noqa: E731
    ours = {"1": "bitrank, 1 bit", "2": "bitrank, 2 bits", "4": "bitrank, 4 bits"}
    theirs = {"1": "FAISS RaBitQ, 1 bit", "2": "FAISS RaBitQ, 2 bits", "4": "FAISS RaBitQ, 4 bits"}
    differences: list[float] = []
    for name in recalls:
        kind = SETS[name][0]
        least = {"text": (0.025, 0.025, 0.012), "pixels": (0.08, 0.08, 0.012)}.get(kind, (-0.01, -0.01, -0.01))
        least = (0.05, 0.04, 0.012) if name == "banking77" else least
        for bits, wanted in zip(ours, least, strict=True):
            mine, peer = value(name, ours[bits]), value(name, theirs[bits])
            if mine is not None and peer is not None:
                found[f"{name}: {bits} bits above FAISS RaBitQ"] = Figure(mine - peer, least=wanted)
                size = value(name, ours[bits], "bytes") - value(name, theirs[bits], "bytes")
                found[f"{name}: {bits} bits, bytes beyond FAISS RaBitQ"] = Figure(size, most=-1)
        if kind == "pixels" and value(name, "bitrank, ½ bit") is not None:
            half = value(name, "bitrank, ½ bit") - value(name, theirs["1"])
            found[f"{name}: ½ bit above FAISS RaBitQ, 1 bit"] = Figure(half, least=0)
        mine, peer = value(name, ours["4"]), value(name, "turbovec, 4 bits")
        if mine is not None and peer is not None and kind != "synthetic":
            differences.append(mine - peer)
            found[f"{name}: default above turbovec, 4 bits"] = Figure(mine - peer, least=0)
        if kind == "text" and mine is not None:
            found[f"{name}: default"] = Figure(mine, least=0.965)
    if differences:
        found["mean of default above turbovec, 4 bits"] = Figure(fmean(differences), least=0.015)
    for part in ("times", "large"):
        for name, rows in results.get(part, {}).items():
            if ours["4"] in rows and "turbovec, 4 bits" in rows:
                mine, peer = rows[ours["4"]], rows["turbovec, 4 bits"]
                found[f"{name}: time of one query, of turbovec's"] = Figure(mine["us"] / peer["us"], most=0.7)
                ratio = mine["us_in_batch"] / peer["us_in_batch"]
                found[f"{name}: time in a batch, of turbovec's"] = Figure(ratio, most=1.2)
    row = results.get("fashion", {}).get("Fashion-MNIST", {}).get(ours["1"])
    for k, figure in BBQ.items() if row else ():
        found[f"Fashion-MNIST, BBQ's protocol, 10 in {k}"] = Figure(row[f"recall_10_in_{k}"], least=figure)
    return found


def print_bars(path: Path) -> None:
    """Print every bar."""
    found = bars(read_results(path))
    for name, figure in found.items():
        print(f"{name:64} {figure.value:8.4f}  {figure.bar:9} {'met' if figure.met else 'MISSED'}")
    print(f"{sum(figure.met for figure in found.values())} of {len(found)} bars met")


PARTS = {
    "recall": measure_recall,
    "integers": measure_integers,
    "fashion": measure_fashion,
    "learned": measure_learned,
    "times": measure_times,
    "large": measure_large,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", choices=SETS)
    parser.add_argument("--rows", nargs="*", choices=CONTENDERS)
    parser.add_argument("--again", action="store_true", help="measure stored rows again")
    parser.add_argument("--output", type=Path, default=PATH)
    parser.add_argument("--large", type=int, default=200_000, help="rows of the large set")
    options = parse_parts(parser, [*PARTS, "one", "bars"])
    os.environ["RAYON_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # before those libraries start their threads
    faiss.omp_set_num_threads(1)
    threadpool_limits(1)
    if options.parts == ["one"]:
        return one_of_large(options)
    chosen = list(PARTS) if set(options.parts) == {*PARTS, "one", "bars"} else options.parts
    store = Store(options.output)
    for part in chosen:
        if part in PARTS:
            PARTS[part](store, options)
    return print_bars(options.output)


if __name__ == "__main__":
    main()
