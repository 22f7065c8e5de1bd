"""Measure `Index` beside other implementations, in turns in one process, and write benchmarks/results/search.json.

    python benchmarks/run.py                     everything (about 20 minutes)
    python benchmarks/run.py --only real batch   some sections
    python benchmarks/run.py --scale 0.01        small data, to see that it runs

Absolute times mean little on a shared machine. Read the ratios of the medians: in every turn, all contenders search for
the same query, one after the other.
"""

from __future__ import annotations

import argparse
import os
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
from report import RESULTS, machine, read_results, write_results

from bitrank import Index, _kernel

CORES = sorted(os.sched_getaffinity(0))


def use_cores(n: int) -> None:
    os.sched_setaffinity(0, set(CORES[-n:]))
    faiss.omp_set_num_threads(n)


def take_turns(contenders: dict, queries: np.ndarray, k: int, rounds: int, together: int = 1) -> dict[str, float]:
    """Return the median milliseconds of a search by each contender."""
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


def measure(records: list, section: str, contenders: dict, collection: data.Data, rounds: int, **facts) -> None:
    """Measure k = 10 and 100 on one core; add the ratios to IndexBinaryFlat and to the read."""
    use_cores(1)
    for k in (10, 100):
        medians = take_turns(contenders, collection.queries, k, rounds)
        for name, milliseconds in medians.items():
            records.append(
                facts
                | {
                    "section": section,
                    "n": len(collection.codes),
                    "n_bits": 8 * collection.codes.shape[1],
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


def bounds(codes: np.ndarray) -> dict:
    """Return the two contenders to which the others are compared."""
    return {"IndexBinaryFlat": peers.flat(codes), "read": peers.read(codes)}


def random_section(records: list, scale: float, rounds: int) -> None:
    for n_bits in (64, 128):
        collection = data.random_codes(int(10e6 * scale), n_bits)
        weights = data.uneven_weights(n_bits)
        contenders = {
            **bounds(collection.codes),
            "bitrank, even": ours(Index(collection.codes)),
            "bitrank, uneven": ours(Index(collection.codes, weights=weights)),
            "IndexPQFastScan (not exact)": peers.pq_fast_scan(collection.codes, weights),
        }
        measure(records, "random", contenders, collection, rounds)


def real_section(records: list, scale: float, rounds: int) -> None:
    for n_bits in (64, 128):
        collection = data.patch_codes(n_bits, int(4e6 * scale))
        contenders = {**bounds(collection.codes), "bitrank, even": ours(Index(collection.codes))}
        for name, weights in data.learned_weights(collection, n_bits).items():
            contenders[f"bitrank, {name}"] = ours(Index(collection.codes, weights=weights))
        contenders["bitrank, uneven"] = ours(Index(collection.codes, weights=data.uneven_weights(n_bits)))
        measure(records, "real", contenders, collection, 3 * rounds)


def hnsw_section(records: list, scale: float, rounds: int) -> None:
    """Compare a graph at a recall of about 0.9 with `Index`, exact and weighted, on a million real codes of 64 bits."""
    collection = data.patch_codes(64, int(1e6 * scale))
    weights = data.learned_weights(collection, 64)["learned"]
    begin = time.perf_counter()
    index = Index(collection.codes, weights=weights)
    build_seconds = {"bitrank, learned": time.perf_counter() - begin}
    begin = time.perf_counter()
    built, graph = peers.hnsw(collection.codes)
    build_seconds["IndexBinaryHNSW (not exact)"] = time.perf_counter() - begin
    exact = Index(collection.codes)
    limits = exact.search(collection.queries, 10).distances[:, -1]
    for ef in (16, 32, 64, 128, 256, 512):
        built.hnsw.efSearch = ef
        # Judge by distance: equal codes are interchangeable.
        good = sum(
            (exact.distances(collection.queries[q : q + 1], np.unique(row[row >= 0]))[0] <= limits[q]).sum()
            for q, row in enumerate(graph(collection.queries, 10))
        )
        if good >= 0.9 * 10 * len(limits):
            break
    recall = {"IndexBinaryHNSW (not exact)": float(good) / (10 * len(limits))}
    use_cores(1)
    contenders = {
        "IndexBinaryFlat": peers.flat(collection.codes),
        "IndexBinaryHNSW (not exact)": graph,
        "bitrank, learned": ours(index),
    }
    medians = take_turns(contenders, collection.queries, 10, 3 * rounds)
    for name, milliseconds in medians.items():
        records.append(
            {"section": "hnsw", "n": len(collection.codes), "n_bits": 64, "k": 10, "cores": 1, "contender": name}
            | {"ms": milliseconds, "times_flat": medians["IndexBinaryFlat"] / milliseconds}
            | {"recall": recall.get(name, 1.0), "build_seconds": build_seconds.get(name)}
        )
        show(records[-1])


def long_section(records: list, scale: float, rounds: int) -> None:
    for kind in ("random", "real"):
        for n_bits in (256, 512, 1024):
            make = data.random_codes if kind == "random" else lambda n, n_bits: data.patch_codes(n_bits, n)
            collection = make(int(2e6 * scale), n_bits)
            contenders = {
                **bounds(collection.codes),
                "bitrank, even": ours(Index(collection.codes)),
                "bitrank, uneven": ours(Index(collection.codes, weights=data.uneven_weights(n_bits))),
            }
            measure(records, "long", contenders, collection, rounds, data=kind)


def batch_section(records: list, scale: float, rounds: int) -> None:
    """64 queries at once."""
    for kind, n_bits in (("random", 64), ("random", 128), ("real", 64), ("real", 128)):
        collection = (
            data.random_codes(int(10e6 * scale), n_bits)
            if kind == "random"
            else data.patch_codes(n_bits, int(4e6 * scale))
        )
        plain, weighted = Index(collection.codes), Index(collection.codes, weights=data.uneven_weights(n_bits))
        search_flat = peers.flat(collection.codes)
        for cores in (1, 2):
            use_cores(cores)
            contenders = {
                "IndexBinaryFlat": search_flat,
                "bitrank, even": ours(plain, cores),
                "bitrank, uneven": ours(weighted, cores),
            }
            medians = take_turns(contenders, collection.queries, 10, max(3, rounds // 4), together=64)
            for name, milliseconds in medians.items():
                records.append(
                    {"section": "batch", "data": kind, "n": len(collection.codes), "n_bits": n_bits, "k": 10}
                    | {"cores": cores, "contender": name, "ms": milliseconds}
                    | {"times_flat": medians["IndexBinaryFlat"] / milliseconds}
                )
                show(records[-1])


def slow_section(records: list, scale: float, rounds: int) -> None:
    """Peers that would take minutes on millions."""
    collection = data.random_codes(int(1e5 * max(scale, 0.1)), 64)
    weights = data.uneven_weights(64)
    contenders = {
        **bounds(collection.codes),
        "bitrank, uneven": ours(Index(collection.codes, weights=weights)),
        "USearch exact": peers.usearch_exact(collection.codes, 1),
        "NumPy": peers.numpy_weighted(collection.codes, weights),
        "SciPy cdist": peers.scipy_weighted(collection.codes, weights),
    }
    measure(records, "slow", contenders, collection, rounds)


def order_section(records: list, scale: float, rounds: int) -> None:
    """Measure the cost of a poor order: search rows that are sorted for other weights."""
    collection = data.patch_codes(64, int(4e6 * scale))
    use_cores(1)
    rng = np.random.default_rng(0)
    for shape, spread in (("mild", 0.7), ("steep", 2.0)):
        logs = rng.normal(0, spread, 64)
        ideal = Index(collection.codes, weights=np.exp(logs))
        others = {f"noise {noise}": logs + rng.normal(0, noise * spread, 64) for noise in (0.5, 1, 2, 4)}
        contenders, quality = {"ideal": ours(ideal)}, {"ideal": 1.0}
        for name, other in (others | {"reversed": -logs}).items():
            index = Index(collection.codes, weights=np.exp(other))
            index._weights = ideal.weights  # the setter would sort the rows
            contenders[name], quality[name] = ours(index), index.order_quality()
        medians = take_turns(contenders, collection.queries, 10, 3 * rounds)
        for name in sorted(quality, key=quality.get, reverse=True):
            records.append(
                {"section": "order", "n": len(collection.codes), "n_bits": 64, "k": 10, "cores": 1, "contender": name}
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
index.distances(codes[:1], [n // 2])  # the first look-up of an id builds its table
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
    """Measure the speed of the build, the memory after it, and the time to open the index, in a new process each."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the codes")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", type=Path, default=RESULTS / "search.json")
    arguments = parser.parse_args()
    facts = machine() | {
        "kernel_path": os.environ.get("BITRANK_KERNEL") or _kernel.kernel_paths()[-1],
        "numpy": np.__version__,
        "faiss": faiss.__version__,
        "faiss_options": faiss.get_compile_options().strip(),
    }
    stored = read_results(arguments.output).get("records", [])
    records = [record for record in stored if record["section"] not in arguments.only]
    for name in arguments.only:
        SECTIONS[name](records, arguments.scale, arguments.rounds)
        write_results(arguments.output, {"machine": facts, "records": records})


if __name__ == "__main__":
    main()
