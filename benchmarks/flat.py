"""Measure `Index` beside a plain read of the same bytes and beside FAISS, over lengths, sizes and batches.

    python benchmarks/flat.py                       all parts (about ten minutes), and the tables of docs/search.md
    python benchmarks/flat.py scan --n-bits 256     one part, one length
    BITRANK_KERNEL=avx2 FAISS_SIMD_LEVEL=AVX2 python benchmarks/flat.py    both libraries without AVX-512
    python benchmarks/flat.py tables                the tables alone

Codes are random and everything runs in one thread, but for the part "threads". In every round all contenders search
for the same queries, one after the other; a figure is the median of the time that the thread was running, which other
work on the machine disturbs least. The read is `numpy.bitwise_xor.reduce` over the codes as 64-bit words. PQFastScan
holds the same bytes, four bits per sub-quantiser; it and RaBitQFastScan are not exact. Results go to
benchmarks/results/flat.json, by processor and instruction set.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import data
import faiss
import numpy as np
import peers
from report import RESULTS, Figure, Report, parse_parts, read_results

from bitrank import Index, _kernel

LENGTHS = (64, 128, 256, 384, 512, 1024)
SIZES = (1000, 10_000, 100_000, 300_000, 1_000_000, 2_000_000, 4_000_000)
HITS = (10, 100)
PATH = os.environ.get("BITRANK_KERNEL") or _kernel.kernel_paths()[-1]
SECONDS = 0.3  # per figure and contender, at least five rounds
BEYOND_CACHE = 60_000_000  # bytes of codes: more than the caches of one processor hold
PAGE = Path(__file__).parents[1] / "docs" / "search.md"
MARK = re.compile(r"(<!-- table: flat -->\n).*?(<!-- end -->)", re.DOTALL)

Search = Callable[[np.ndarray, int], object]


def processor() -> str:
    """The processor's name, with its family and model where the name says little."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    name = re.sub(r"\((R|TM)\)", "", facts.get("model name", "unknown"))
    return f"{name} (family {facts.get('cpu family', '?')}, model {facts.get('model', '?')})"


def milliseconds(
    contenders: dict[str, Search], queries: dict[str, np.ndarray], k: int, together: int
) -> dict[str, float]:
    """Median milliseconds of each contender per search of `together` queries, in turn."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    begin, turn = time.perf_counter(), -2  # two rounds to warm up
    while turn < 5 or time.perf_counter() - begin < len(contenders) * SECONDS:
        for name, search in contenders.items():
            rows = queries[name if name in queries else "codes"]
            start = turn * together % max(1, len(rows) - together + 1)
            batch = np.ascontiguousarray(rows[start : start + together])
            since = time.thread_time()
            search(batch, k)
            if turn >= 0:
                times[name].append((time.thread_time() - since) * 1e3)
        turn += 1
    return {name: statistics.median(values) for name, values in times.items()}


def by_index(index: Index, threads: int = 1) -> Search:
    """Search with `Index`."""
    return lambda queries, k: index.search(queries, k, threads=threads)


def figures(took: dict[str, float], **bars: float) -> dict[str, Figure | float]:
    """Milliseconds, and the speed of `index` as a multiple of each other contender, with a bar where there is one."""
    out: dict[str, Figure | float] = {f"{name}_ms": value for name, value in took.items()}
    for name, value in took.items():
        if name != "index":
            out[f"of_{name}"] = Figure(value / took["index"], least=bars.get(name, -np.inf))
    return out


def scan(report: Report, options: argparse.Namespace) -> None:
    """One query of codes, by length and size, with weights of the index."""
    for n_bits in options.n_bits:
        collection = data.random_codes(max(SIZES), n_bits, n_queries=64)
        weights = np.random.default_rng(0).uniform(0.1, 1, n_bits).astype(np.float32)
        for n in SIZES:
            codes = collection.codes[:n]
            words = codes.reshape(-1).view(np.uint64)
            contenders = {
                "read": lambda queries, k, words=words: np.bitwise_xor.reduce(words),
                "flat": peers.flat(codes),
                "index": by_index(Index(codes, weights=weights)),
            }
            for k in HITS:
                took = milliseconds(contenders, {"codes": collection.queries}, k, 1)
                bars = {"read": 0.9} if codes.nbytes > BEYOND_CACHE and n_bits >= 128 else {}
                bars |= {"flat": 1.0} if n >= 100_000 else {}
                report.add(f"{n_bits} bits, {n} codes, k = {k}", **figures(took, **bars))


def cached(report: Report, options: argparse.Namespace) -> None:
    """One query of reals, each with weights of its own, over 50 000 codes."""
    for n_bits in (128, 384, 1024):
        collection = data.random_codes(50_000, n_bits, n_queries=64)
        reals = np.random.default_rng(0).standard_normal((64, n_bits)).astype(np.float32)
        contenders = {
            "pq": peers.pq_inner_product(collection.codes),
            "rabitq": peers.rabitq(collection.codes),
            "flat": peers.flat(collection.codes),
            "index": by_index(Index(collection.codes)),
        }
        queries = {"codes": np.packbits(reals > 0, axis=1), "pq": reals, "rabitq": reals, "index": reals}
        for k in HITS:
            report.add(f"{n_bits} bits, k = {k}", **figures(milliseconds(contenders, queries, k, 1), pq=1.0))


def batch(report: Report, options: argparse.Namespace) -> None:
    """Many queries of reals at once over 500 000 codes."""
    for n_bits in options.n_bits:
        collection = data.random_codes(500_000, n_bits, n_queries=64)
        reals = np.random.default_rng(0).standard_normal((1024, n_bits)).astype(np.float32)
        contenders = {
            "pq": peers.pq_inner_product(collection.codes),
            "flat": peers.flat(collection.codes),
            "index": by_index(Index(collection.codes)),
        }
        queries = {"codes": np.packbits(reals > 0, axis=1), "pq": reals, "index": reals}
        bars = {"flat": 1.5, "pq": 1.0} if n_bits >= 256 else {}
        for together in (64, 1024):
            took = milliseconds(contenders, queries, 10, together)
            report.add(f"{n_bits} bits, {together} queries", **figures(took, **bars))


def threads(report: Report, options: argparse.Namespace) -> None:
    """One query with two threads, by the clock: other work on the machine disturbs it."""
    os.sched_setaffinity(0, AFFINITY)
    for n_bits in (256, 1024):
        collection = data.random_codes(2_000_000, n_bits, n_queries=64)
        index, times = Index(collection.codes), ([], [])
        for turn in range(-2, 40):
            for n_threads in (1, 2):
                start = time.perf_counter()
                index.search(collection.queries[turn % 64][None], 10, threads=n_threads)
                if turn >= 0:
                    times[n_threads - 1].append(time.perf_counter() - start)
        one, two = map(statistics.median, times)
        report.add(f"{n_bits} bits, 2 threads", one_ms=one * 1e3, two_ms=two * 1e3, gain=Figure(one / two, least=1.6))


def tables(results: dict[str, dict]) -> str:
    """The tables of docs/search.md: for each processor and instruction set, what was measured there."""

    def value(section: dict, row: str, figure: str, form: str) -> str:
        found = section.get("rows", {}).get(row, {}).get(figure)
        found = found["value"] if isinstance(found, dict) else found
        return "–" if found is None else f"{found * (1e3 if form == '.0f' else 1):{form}}"

    def table(head: list[str], rows: list[list[str]]) -> list[str]:
        return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)] + [""]

    lines: list[str] = []
    for machine in dict.fromkeys(name.rpartition(": ")[0] for name in results):
        parts = {part: results.get(f"{machine}: {part}", {}) for part in PARTS}
        lines += [f"**{machine}**", ""]
        names = [f"{n} bits, {{}} codes, k = {{}}" for n in LENGTHS]
        rows = []
        for n_bits, name in zip(LENGTHS, names, strict=True):
            both = [" / ".join(value(parts["scan"], name.format(n, k), "of_flat", ".2f") for k in HITS) for n in SIZES]
            share = value(parts["scan"], name.format(SIZES[-1], 10), "of_read", ".2f")
            many = [
                " / ".join(
                    value(parts["batch"], f"{n_bits} bits, {n} queries", f"of_{which}", ".2f") for n in (64, 1024)
                )
                for which in ("flat", "pq")
            ]
            rows.append([str(n_bits), *both, share, *many])
        head = ["bits", *(f"{n:,} codes".replace(",", " ") for n in SIZES), "4 M, of a plain read"]
        lines += table([*head, "batch", "batch, of PQFastScan"], rows)
        head = ["50 000 codes, reals, µs", "`Index`", "PQFastScan", "RaBitQFastScan", "`IndexBinaryFlat`"]
        lines += table(
            head,
            [
                [f"{n} bits", *(
                    " / ".join(value(parts["cached"], f"{n} bits, k = {k}", f"{name}_ms", ".0f") for k in HITS)
                    for name in ("index", "pq", "rabitq", "flat")
                )]
                for n in (128, 384, 1024)
            ],
        )  # fmt: skip
    return "\n".join(lines)


PARTS = {"scan": scan, "cached": cached, "batch": batch, "threads": threads}
AFFINITY = os.sched_getaffinity(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-bits", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--output", type=Path, default=RESULTS / "flat.json")
    options = parse_parts(parser, [*PARTS, "tables"])
    faiss.omp_set_num_threads(1)
    for part in options.parts:
        if part != "tables":
            os.sched_setaffinity(0, {max(AFFINITY)})
            report = Report(f"{processor()}, {PATH}: {part}")
            PARTS[part](report, options)
            report.save(options.output, add=True)
    if "tables" in options.parts:
        text = tables(read_results(options.output))
        PAGE.write_text(MARK.sub(lambda found: f"{found[1]}{text}\n{found[2]}", PAGE.read_text()))


if __name__ == "__main__":
    main()
