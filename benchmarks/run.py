"""Measure `Index` beside its peers in one process, in turns, and write benchmarks/results/search.json.

    python benchmarks/run.py                     everything (about 20 minutes)
    python benchmarks/run.py --only real batch   some sections
    python benchmarks/run.py --scale 0.01        small data, to see that it runs

Absolute times mean little on a shared machine: read the ratios, of medians over turns in which every contender
searched for the same query, one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import data
import faiss
import numpy as np
import peers

from bitrank import Index, _kernel

RESULTS = Path(__file__).parent / "results" / "search.json"
CORES = sorted(os.sched_getaffinity(0))


def use_cores(n: int) -> None:
    os.sched_setaffinity(0, set(CORES[-n:]))
    faiss.omp_set_num_threads(n)


def take_turns(contenders: dict, queries: np.ndarray, k: int, rounds: int, together: int = 1) -> dict[str, float]:
    """Median milliseconds of a search by each contender."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(-2, rounds):  # two to warm up
        start = turn * together % max(1, len(queries) - together + 1)
        batch = np.ascontiguousarray(queries[start : start + together])
        for name, search in contenders.items():
            begin = time.perf_counter()
            search(batch, k)
            if turn >= 0:
                times[name].append((time.perf_counter() - begin) * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def ours(index: Index, threads: int = 1):
    return lambda queries, k: index.search(queries, k, threads=threads).ids


def measure(records: list, section: str, contenders: dict, found: data.Data, rounds: int, **facts) -> None:
    """Turns for k = 10 and 100, one core; each line gets its ratio to IndexBinaryFlat and to the read."""
    use_cores(1)
    for k in (10, 100):
        medians = take_turns(contenders, found.queries, k, rounds)
        for name, milliseconds in medians.items():
            records.append(
                facts
                | {
                    "section": section,
                    "n": len(found.codes),
                    "n_bits": 8 * found.codes.shape[1],
                    "k": k,
                    "cores": 1,
                    "contender": name,
                    "ms": milliseconds,
                    "times_flat": medians["IndexBinaryFlat"] / milliseconds,
                    "of_read": milliseconds / medians["read"],
                }
            )
            show(records[-1])


def show(record: dict) -> None:
    line = (
        f"{record['section']:<8}{record['n']:>10} x {record['n_bits']:<5} k={record['k']:<4} {record['cores']} core(s)"
    )
    line += f"  {record['contender']:<28}{record['ms']:>10.3f} ms {record['times_flat']:>8.2f} x flat"
    print(line + (f" {record['of_read']:>8.2f} of read" if "of_read" in record else ""), flush=True)


def random_section(records: list, scale: float, rounds: int) -> None:
    for n_bits in (64, 128):
        found = data.random_codes(int(10e6 * scale), n_bits)
        weights = data.uneven_weights(n_bits)
        contenders = {
            "IndexBinaryFlat": peers.flat(found.codes),
            "read": peers.read(found.codes),
            "bitrank, even": ours(Index(found.codes)),
            "bitrank, uneven": ours(Index(found.codes, weights=weights)),
            "IndexPQFastScan (not exact)": peers.pq_fast_scan(found.codes, weights),
        }
        measure(records, "random", contenders, found, rounds)


def real_section(records: list, scale: float, rounds: int) -> None:
    for n_bits in (64, 128):
        found = data.patch_codes(n_bits, int(4e6 * scale))
        contenders = {"IndexBinaryFlat": peers.flat(found.codes), "read": peers.read(found.codes)}
        contenders["bitrank, even"] = ours(Index(found.codes))
        for name, weights in data.learned_weights(found, n_bits).items():
            contenders[f"bitrank, {name}"] = ours(Index(found.codes, weights=weights))
        contenders["bitrank, uneven"] = ours(Index(found.codes, weights=data.uneven_weights(n_bits)))
        measure(records, "real", contenders, found, 3 * rounds)


def hnsw_section(records: list, scale: float, rounds: int) -> None:
    """On one million real codes of 64 bits, the graph at a recall of about 0.9, and `Index`, exact and weighted."""
    found = data.patch_codes(64, int(1e6 * scale))
    weights = data.learned_weights(found, 64)["learned"]
    begin = time.perf_counter()
    index = Index(found.codes, weights=weights)
    build_seconds = {"bitrank, learned": time.perf_counter() - begin}
    begin = time.perf_counter()
    built, graph = peers.hnsw(found.codes)
    build_seconds["IndexBinaryHNSW (not exact)"] = time.perf_counter() - begin
    exact = Index(found.codes)
    limits = exact.search(found.queries, 10).distances[:, -1]
    for ef in (16, 32, 64, 128, 256, 512):
        built.hnsw.efSearch = ef
        # By distance: which of many equal codes is found does not matter.
        good = sum(
            (exact.distances(found.queries[q : q + 1], np.unique(row[row >= 0]))[0] <= limits[q]).sum()
            for q, row in enumerate(graph(found.queries, 10))
        )
        if good >= 0.9 * 10 * len(limits):
            break
    recall = {"IndexBinaryHNSW (not exact)": float(good) / (10 * len(limits))}
    use_cores(1)
    contenders = {
        "IndexBinaryFlat": peers.flat(found.codes),
        "IndexBinaryHNSW (not exact)": graph,
        "bitrank, learned": ours(index),
    }
    medians = take_turns(contenders, found.queries, 10, 3 * rounds)
    for name, milliseconds in medians.items():
        records.append(
            {"section": "hnsw", "n": len(found.codes), "n_bits": 64, "k": 10, "cores": 1, "contender": name}
            | {"ms": milliseconds, "times_flat": medians["IndexBinaryFlat"] / milliseconds}
            | {"recall": recall.get(name, 1.0), "build_seconds": build_seconds.get(name)}
        )
        show(records[-1])


def long_section(records: list, scale: float, rounds: int) -> None:
    for kind in ("random", "real"):
        for n_bits in (256, 512, 1024):
            make = data.random_codes if kind == "random" else lambda n, n_bits: data.patch_codes(n_bits, n)
            found = make(int(2e6 * scale), n_bits)
            contenders = {
                "IndexBinaryFlat": peers.flat(found.codes),
                "read": peers.read(found.codes),
                "bitrank, even": ours(Index(found.codes)),
                "bitrank, uneven": ours(Index(found.codes, weights=data.uneven_weights(n_bits))),
            }
            measure(records, "long", contenders, found, rounds, data=kind)


def batch_section(records: list, scale: float, rounds: int) -> None:
    """64 queries at once."""
    for kind, n_bits in (("random", 64), ("random", 128), ("real", 64), ("real", 128)):
        found = (
            data.random_codes(int(10e6 * scale), n_bits)
            if kind == "random"
            else data.patch_codes(n_bits, int(4e6 * scale))
        )
        plain, weighted = Index(found.codes), Index(found.codes, weights=data.uneven_weights(n_bits))
        search_flat = peers.flat(found.codes)
        for cores in (1, 2):
            use_cores(cores)
            contenders = {
                "IndexBinaryFlat": search_flat,
                "bitrank, even": ours(plain, cores),
                "bitrank, uneven": ours(weighted, cores),
            }
            medians = take_turns(contenders, found.queries, 10, max(3, rounds // 4), together=64)
            for name, milliseconds in medians.items():
                records.append(
                    {"section": "batch", "data": kind, "n": len(found.codes), "n_bits": n_bits, "k": 10}
                    | {"cores": cores, "contender": name, "ms": milliseconds}
                    | {"times_flat": medians["IndexBinaryFlat"] / milliseconds}
                )
                show(records[-1])


def slow_section(records: list, scale: float, rounds: int) -> None:
    """Peers that would take minutes on millions."""
    found = data.random_codes(int(1e5 * max(scale, 0.1)), 64)
    weights = data.uneven_weights(64)
    contenders = {
        "IndexBinaryFlat": peers.flat(found.codes),
        "read": peers.read(found.codes),
        "bitrank, uneven": ours(Index(found.codes, weights=weights)),
        "USearch exact": peers.usearch_exact(found.codes, 1),
        "NumPy": peers.numpy_weighted(found.codes, weights),
        "SciPy cdist": peers.scipy_weighted(found.codes, weights),
    }
    measure(records, "slow", contenders, found, rounds)


def order_section(records: list, scale: float, rounds: int) -> None:
    """What a poor order costs: rows sorted for other weights, by the quality of their order for these."""
    found = data.patch_codes(64, int(4e6 * scale))
    use_cores(1)
    rng = np.random.default_rng(0)
    for shape, spread in (("mild", 0.7), ("steep", 2.0)):
        logs = rng.normal(0, spread, 64)
        ideal = Index(found.codes, weights=np.exp(logs))
        others = {f"noise {noise}": logs + rng.normal(0, noise * spread, 64) for noise in (0.5, 1, 2, 4)}
        contenders, quality = {"ideal": ours(ideal)}, {"ideal": 1.0}
        for name, other in (others | {"reversed": -logs}).items():
            index = Index(found.codes, weights=np.exp(other))
            index._weights = ideal.weights  # not by the setter, which would sort the rows
            contenders[name], quality[name] = ours(index), index.order_quality()
        medians = take_turns(contenders, found.queries, 10, 3 * rounds)
        for name in sorted(quality, key=quality.get, reverse=True):
            records.append(
                {"section": "order", "n": len(found.codes), "n_bits": 64, "k": 10, "cores": 1, "contender": name}
                | {"weights": shape, "quality": quality[name], "ms": medians[name]}
                | {"times_ideal": medians[name] / medians["ideal"]}
            )
            print(f"order   {shape}, quality {quality[name]:.2f}: {records[-1]['times_ideal']:.2f} x ideal", flush=True)


MEMORY = """
import sys, time, numpy as np
from bitrank import Index

def anonymous():
    return int(next(line for line in open("/proc/self/status") if line.startswith("RssAnon")).split()[1]) * 1024

n, n_bits = int(sys.argv[1]), int(sys.argv[2])
codes = np.random.default_rng(0).integers(0, 256, (n, n_bits // 8), dtype=np.uint8)
Index(codes[:1000]).search(codes[:1], 10)
before = anonymous()
start = time.perf_counter()
index = Index(codes, weights=np.random.default_rng(0).lognormal(0, 0.7, n_bits))
took = time.perf_counter() - start
index.search(codes[:64], 100)
memory = anonymous() - before
index.distances(codes[:1], [n // 2])  # the first look-up of an id makes its table
memory_with_lookup = anonymous() - before
index.save(sys.argv[3])
opens = []
for _ in range(7):
    start = time.perf_counter()
    Index.load(sys.argv[3])
    opens.append(time.perf_counter() - start)
size = n * (n_bits / 8 + 8)
print(n / took / 1e6, memory / size, memory_with_lookup / size, sorted(opens)[3] * 1e3)
"""


def build_section(records: list, scale: float, rounds: int) -> None:
    """Speed of the build, memory held after it, and time to open the saved index: each in a process of its own."""
    for n_bits in (64, 128):
        for cores in (1, 2):
            use_cores(cores)
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, "-c", MEMORY, str(int(10e6 * scale)), str(n_bits), folder]
                runs = [list(map(float, subprocess.check_output(command).split())) for _ in range(3)]
            speed, memory, with_lookup, opening = map(statistics.median, zip(*runs, strict=True))
            records.append(
                {"section": "build", "n": int(10e6 * scale), "n_bits": n_bits, "cores": cores}
                | {"million_codes_per_second": speed, "memory_of_codes_and_ids": memory, "open_ms": opening}
                | {"memory_with_id_lookup": with_lookup}
            )
            print(
                f"build   {n_bits} bits, {cores} core(s): {speed:.2f} M codes/s, memory {memory:.3f} x (codes + ids), "
                f"{with_lookup:.3f} after an id look-up, open {opening:.0f} ms",
                flush=True,
            )


SECTIONS = {
    "random": random_section,
    "real": real_section,
    "hnsw": hnsw_section,
    "long": long_section,
    "batch": batch_section,
    "slow": slow_section,
    "order": order_section,
    "build": build_section,
}


def machine() -> dict:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    return {
        "processor": model or platform.processor(),
        "cores": len(CORES),
        "kernel_path": os.environ.get("BITRANK_KERNEL") or _kernel.kernel_paths()[-1],
        "python": platform.python_version(),
        "numpy": np.__version__,
        "faiss": faiss.__version__,
        "faiss_options": faiss.get_compile_options().strip(),
        "load_at_start": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the codes")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    kept = json.loads(arguments.output.read_text())["records"] if arguments.output.exists() else []
    records = [record for record in kept if record["section"] not in arguments.only]
    for name in arguments.only:
        SECTIONS[name](records, arguments.scale, arguments.rounds)
        arguments.output.parent.mkdir(exist_ok=True)
        arguments.output.write_text(json.dumps({"machine": machine(), "records": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
