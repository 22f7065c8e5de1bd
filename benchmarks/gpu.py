"""Measure `bitrank.gpu.GpuIndex` and write benchmarks/results/gpu.json.

    python benchmarks/gpu.py                       everything (about five minutes on an H200)
    python benchmarks/gpu.py --only speed stream   some sections
    python benchmarks/gpu.py --scale 0.01          few codes, to see that it runs

Times are absolute and of whole calls of `search`: limits, scan, distances, order and the copy to the host. The machine
is named in the results.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import cupy as cp
import numpy as np

from bitrank import Index, gpu
from bitrank.core.codes import distances
from bitrank.gpu import plan

RESULTS = Path(__file__).parent / "results" / "gpu.json"
FLAT = Path(__file__).parent / "gpu_flat.cu"

RANDOM = cp.ElementwiseKernel(
    "uint64 seed",
    "uint64 word",
    """
    unsigned long long z = (i + seed) * 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    word = z ^ z >> 31;
    """,
    "splitmix",
)

# Milliseconds of a search for the 100 nearest, by number of codes, bits and queries.
BARS = {
    ("speed", 1_000_000_000, 64, 64, "uniform"): 18,
    ("speed", 500_000_000, 128, 64, "uniform"): 20,
    ("speed", 1_000_000_000, 64, 1, "uniform"): 4,
}


def random_codes(n: int, n_bits: int) -> cp.ndarray:
    words = cp.empty(n * n_bits // 64, cp.uint64)
    RANDOM(np.uint64(n_bits), words)
    return words.view(cp.uint8).reshape(n, n_bits // 8)


def weights_of(kind: str, rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return {"uniform": rng.uniform(0.1, 1, shape), "lognormal": rng.lognormal(0, 1, shape), "even": np.ones(shape)}[
        kind
    ]


def measured(rounds: int, call, *arguments) -> tuple[float, float]:
    """Median and least milliseconds of a call, after two to warm up."""
    times = []
    for turn in range(rounds + 2):
        begin = time.perf_counter()
        call(*arguments)
        if turn >= 2:
            times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times), min(times)


def forget(index: gpu.GpuIndex) -> None:
    index.close()
    cp.get_default_memory_pool().free_all_blocks()
    cp.get_default_pinned_memory_pool().free_all_blocks()


def speed(records: list, scale: float, rounds: int) -> None:
    rng = np.random.default_rng(0)
    for n_bits in (64, 128, 256, 512, 1024):
        n = int(64_000_000_000 * scale) // n_bits
        index = gpu.GpuIndex(random_codes(n, n_bits))
        queries = rng.integers(0, 256, (64, n_bits // 8), dtype=np.uint8)
        for n_queries in (64, 16, 1):
            for kind in ("uniform", "even", "lognormal") if n_queries != 16 else ("uniform",):
                weights = weights_of(kind, rng, (n_queries, n_bits))
                median, least = measured(rounds, index.search, queries[:n_queries], 100, weights)
                record = {"section": "speed", "n": n, "n_bits": n_bits, "n_queries": n_queries, "k": 100}
                records.append(record | {"weights": kind, "ms": median, "least_ms": least})
                show(records[-1])
        forget(index)


def small(records: list, scale: float, rounds: int) -> None:
    """Collections of the usual size, where the call itself counts."""
    rng = np.random.default_rng(0)
    for n, n_bits in ((1000, 64), (100_000, 64), (1_000_000, 64), (10_000_000, 64), (1_000_000, 512)):
        index = gpu.GpuIndex(random_codes(n, n_bits))
        for n_queries in (1, 64):
            queries = rng.integers(0, 256, (n_queries, n_bits // 8), dtype=np.uint8)
            weights = weights_of("uniform", rng, (n_queries, n_bits))
            median, least = measured(rounds, index.search, queries, 10, weights)
            record = {"section": "small", "n": n, "n_bits": n_bits, "n_queries": n_queries, "k": 10}
            records.append(record | {"weights": "uniform", "ms": median, "least_ms": least})
            show(records[-1])


def flat_search(codes: cp.ndarray, queries: np.ndarray) -> np.ndarray:
    """The 128 least Hamming distances of each query, by a kernel of the structure of FAISS's GpuIndexBinaryFlat."""
    kernel = cp.RawKernel(FLAT.read_text(), "flat", options=(f"-DN_WORDS={codes.shape[1] // 4}", "-DK=128"))
    shape = (len(queries), 128)
    out, ids = cp.empty(shape, cp.int32), cp.empty(shape, cp.int64)
    arguments = (codes, np.int64(len(codes)), cp.asarray(queries), np.int32(len(queries)), out, ids)
    kernel((-(-len(queries) // 8),), (32, 8), arguments)
    ids.get()
    return out.get()


def flat(records: list, scale: float, rounds: int) -> None:
    """Plain Hamming distance without and with `gpu.GpuIndex`, on a tenth of the codes."""
    rng = np.random.default_rng(0)
    for n_bits in (64, 128):
        n = int(6_400_000_000 * scale) // n_bits
        codes = random_codes(n, n_bits)
        index = gpu.GpuIndex(codes)
        queries = rng.integers(0, 256, (64, n_bits // 8), dtype=np.uint8)
        for n_queries in (64, 1):
            batch = queries[:n_queries]
            median, least = measured(1, flat_search, codes, batch)
            ours = measured(rounds, index.search, batch, 100)[0]
            found = np.sort(flat_search(codes, batch), axis=1)[:, :100]
            same = bool((found == index.search(batch, 100).distances).all())
            record = {"section": "flat", "n": n, "n_bits": n_bits, "n_queries": n_queries, "k": 100, "weights": "even"}
            records.append(record | {"ms": median, "least_ms": least, "bitrank_ms": ours, "same": same})
            show(records[-1])
        forget(index)


def ties(records: list, scale: float, rounds: int) -> None:
    """All codes at the same distance: every one of them is within the limit until its id is compared."""
    rng = np.random.default_rng(0)
    n, n_bits = int(100_000_000 * scale), 64
    index = gpu.GpuIndex(random_codes(n, n_bits))
    queries = rng.integers(0, 256, (64, n_bits // 8), dtype=np.uint8)
    for n_queries in (64, 1):
        median, least = measured(3, index.search, queries[:n_queries], 100, np.zeros(n_bits))
        record = {"section": "ties", "n": n, "n_bits": n_bits, "n_queries": n_queries, "k": 100, "weights": "zero"}
        records.append(record | {"ms": median, "least_ms": least})
        show(records[-1])
    forget(index)


def stream(records: list, scale: float, rounds: int) -> None:
    """Codes beyond the device's share of memory, copied from pinned host memory at every search."""
    rng = np.random.default_rng(0)
    n, n_bits = int(1_000_000_000 * scale), 64
    codes = random_codes(n, n_bits).get()
    queries, weights = codes[:64], weights_of("uniform", rng, (64, n_bits))
    for share in (0.0, 0.5):
        begin = time.perf_counter()
        index = gpu.GpuIndex(codes, memory=int(share * codes.nbytes), overflow="stream")
        build = time.perf_counter() - begin
        for n_queries in (64, 1):
            median, least = measured(5, index.search, queries[:n_queries], 100, weights[:n_queries])
            streamed = (1 - share) * codes.nbytes
            record = {"section": "stream", "n": n, "n_bits": n_bits, "n_queries": n_queries, "k": 100}
            facts = {"resident": share, "gb_per_s": streamed / median / 1e6, "build_s": build}
            records.append(record | {"weights": "uniform", "ms": median, "least_ms": least} | facts)
            show(records[-1])
        forget(index)


def whole(records: list, scale: float, rounds: int) -> None:
    """The largest collection against every distance, computed on the CPU."""
    rng = np.random.default_rng(0)
    n, n_bits, n_queries = int(1_000_000_000 * scale), 64, 4
    codes = random_codes(n, n_bits)
    queries, weights = rng.integers(0, 256, (n_queries, 8), dtype=np.uint8), weights_of("uniform", rng, (n_queries, 64))
    found = gpu.GpuIndex(codes).search(queries, 100, weights)
    near, step = [[] for _ in queries], 1 << 24
    for start in range(0, n, step):
        scored = distances(queries, codes[start : start + step].get(), weights)
        for query, row in enumerate(scored):
            rows = np.flatnonzero(row <= found.distances[query, -1])
            near[query] += zip(row[rows].tolist(), (rows + start).tolist(), strict=True)
    expected = [sorted(rows)[:100] for rows in near]
    answers = [list(zip(d, i, strict=True)) for i, d in zip(found.ids.tolist(), found.distances.tolist(), strict=True)]
    same = answers == expected
    records.append({"section": "whole", "n": n, "n_bits": n_bits, "n_queries": n_queries, "k": 100, "same": same})
    print(f"whole    {n} x {n_bits}, {n_queries} queries: {'identical' if same else 'DIFFERENT'}", flush=True)


def case_weights(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    kind = rng.choice(["ones", "zero", "one bit", "integers", "uniform", "lognormal", "sparse", "huge", "extreme"])
    one_bit = np.zeros(shape)
    one_bit[..., rng.integers(shape[-1])] = 1
    return {
        "ones": np.ones(shape),
        "zero": np.zeros(shape),
        "one bit": one_bit,
        "integers": rng.integers(0, 4, shape),
        "uniform": rng.random(shape),
        "lognormal": rng.lognormal(0, 2, shape),
        "sparse": rng.random(shape) * (rng.random(shape) < 0.2),
        "huge": np.full(shape, 2.0**120),
        "extreme": 10.0 ** rng.uniform(-44, 36, shape),
    }[kind].astype(np.float32)


def identical(records: list, scale: float, rounds: int) -> None:
    """Random collections, each searched ten times, against `Index`."""
    rng = np.random.default_rng(1)
    n_cases, different, begin = int(10_000 * scale), [], time.perf_counter()
    limits = plan.SAMPLE, plan.RATIO, plan.CAPACITY
    for case in range(0, n_cases, 10):
        plan.SAMPLE, plan.RATIO, plan.CAPACITY = limits if case % 20 else (512, 4, 1024)
        n_bits = int(rng.choice([16, 32, 40, 64, 98, 128, 192, 256, 384, 512, 1000, 1024]))
        n = int(10 ** rng.uniform(0, 4.8 if n_bits <= 128 else 4))
        bits = rng.integers(0, 2, (n, n_bits), dtype=np.uint8)
        if rng.random() < 0.5:  # near neighbours and repeated rows
            centres = rng.integers(0, 2, (max(1, n // 100), n_bits), dtype=np.uint8)
            bits = centres[rng.integers(0, len(centres), n)] ^ (rng.random((n, n_bits)) < 0.03)
        codes = np.packbits(bits, axis=1)
        ids = np.arange(n) if rng.random() < 0.5 else rng.permutation(3 * n)[:n]
        on_cpu, on_gpu = Index(codes, n_bits=n_bits, ids=ids), gpu.GpuIndex(codes, n_bits=n_bits, ids=ids)
        if n > 3 and rng.random() < 0.3:
            gone = rng.permutation(ids)[: n // 3]
            on_cpu.remove(gone)
            on_gpu.remove(gone)
        for _ in range(10):
            n_queries = int(rng.choice([1, 2, 16, 20, 64, 80]))
            queries = np.packbits(rng.integers(0, 2, (n_queries, n_bits), dtype=np.uint8), axis=1)
            queries[::3] = codes[rng.integers(0, n, len(queries[::3]))]
            weights = case_weights(rng, (n_queries, n_bits) if rng.random() < 0.5 else (n_bits,))
            options = {"k": int(rng.integers(1, 2049) if rng.random() < 0.3 else rng.integers(1, 101))}
            if rng.random() < 0.3:
                options["filter"] = rng.random(len(on_cpu)) < rng.random()
            expected, found = (one.search(queries, weights=weights, **options) for one in (on_cpu, on_gpu))
            if not ((found.ids == expected.ids).all() and (found.distances == expected.distances).all()):
                different.append((case, n, n_bits, n_queries, options["k"]))
        on_gpu.close()
    plan.SAMPLE, plan.RATIO, plan.CAPACITY = limits
    seconds = time.perf_counter() - begin
    records.append({"section": "identical", "n_cases": n_cases, "n_different": len(different), "seconds": seconds})
    print(f"identical: {n_cases} cases, {len(different)} different, {seconds:.0f} s {different[:5]}", flush=True)


def show(record: dict) -> None:
    read = record["n"] * record["n_bits"] / 8 / record["ms"] / 1e9
    line = f"{record['section']:<8}{record['n']:>11} x {record['n_bits']:<5}{record['n_queries']:>3} queries "
    line += f"{record['weights']:<10}{record['ms']:>10.3f} ms (least {record['least_ms']:.3f}), {read:.2f} TB/s read"
    extra = {name: value for name, value in record.items() if name in ("bitrank_ms", "same", "resident", "gb_per_s")}
    print(line + (f" {extra}" if extra else ""), flush=True)


def show_bars(records: list) -> None:
    for record in records:
        key = tuple(record.get(name) for name in ("section", "n", "n_bits", "n_queries", "weights"))
        if key in BARS:
            verdict = "reached" if record["ms"] <= BARS[key] else "MISSED"
            took = f"{record['ms']:.2f} of {BARS[key]} ms"
            print(f"bar: {key[1]} codes of {key[2]} bits, {key[3]} queries: {took}: {verdict}")
        if record["section"] == "identical":
            verdict = "reached" if record["n_cases"] >= 10_000 and not record["n_different"] else "MISSED"
            print(f"bar: {record['n_different']} of {record['n_cases']} cases differ from Index: {verdict}")


SECTIONS = {
    "speed": speed,
    "small": small,
    "ties": ties,
    "flat": flat,
    "stream": stream,
    "whole": whole,
    "identical": identical,
}


def machine() -> dict:
    properties = cp.cuda.runtime.getDeviceProperties(0)
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    processor = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True).stdout.strip().splitlines()
    return {
        "gpu": properties["name"].decode(),
        "gpu_memory_gib": properties["totalGlobalMem"] / 2**30,
        "driver": driver[0] if driver else "",
        "cupy": cp.__version__,
        "cuda": cp.cuda.runtime.runtimeGetVersion(),
        "processor": processor or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the codes")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    kept = json.loads(arguments.output.read_text())["records"] if arguments.output.exists() else []
    records = [record for record in kept if record["section"] not in arguments.only]
    for name in arguments.only:
        SECTIONS[name](records, arguments.scale, arguments.rounds)
        arguments.output.parent.mkdir(exist_ok=True)
        arguments.output.write_text(json.dumps({"machine": machine(), "records": records}, indent=1) + "\n")
    show_bars(records)


if __name__ == "__main__":
    sys.exit(main())
