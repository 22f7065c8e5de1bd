"""The service under load: 1 M codes of 64 bits, 32 connections, 95 % searches and 5 % clicks, on loopback.

`make bench-service`, or `python benchmarks/service.py --seconds 5`, prints errors, lost clicks, times of a search, and
the throughput beside that of the bare `Index`, and writes results/service.json.

The bare `Index` runs on one thread of this process, before and after the load, with the same k and weights and without
HTTP. The parts of a request are timed after the load, one at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from report import RESULTS, write_results

from bitrank import Index
from bitrank.core.checks import n_threads
from bitrank.service.schemas import Search
from bitrank.service.searching import PageRequest
from bitrank.service.service import Service
from bitrank.service.settings import Settings
from bitrank.service.sources import Items, Source

N_CODES, N_BITS, K, N_CONNECTIONS, SHARE_CLICKS = 1_000_000, 64, 20, 32, 0.05


def make_codes(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Make random codes, for which no order of rows helps, or clustered codes, which resemble real data."""
    if kind == "random":
        return rng.integers(0, 256, (N_CODES, N_BITS // 8), dtype=np.uint8)
    centres = rng.integers(0, 2, (10_000, N_BITS), dtype=np.uint8)
    out = np.empty((N_CODES, N_BITS // 8), np.uint8)
    for first in range(0, N_CODES, 100_000):
        flips = rng.random((100_000, N_BITS), dtype=np.float32) < 0.08
        out[first : first + 100_000] = np.packbits(centres[rng.integers(len(centres), size=100_000)] ^ flips, axis=1)
    return out


def request(path: str, body: dict) -> bytes:
    content = json.dumps(body).encode()
    head = ["content-type: application/json", f"content-length: {len(content)}", "", ""]
    return "\r\n".join([f"POST {path} HTTP/1.1", "host: localhost", *head]).encode() + content


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> tuple[int, bytes]:
    writer.write(data)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])
    return int(head[9:12]), await reader.readexactly(length)


async def connection(port: int, number: int, end: float, explore: int, log: dict, share_clicks: float) -> None:
    rng = np.random.default_rng(number)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < end:
        item = int(rng.integers(N_CODES))
        start = time.perf_counter()
        status, body = await exchange(reader, writer, request("/search", {"item": item, "k": K, "explore": explore}))
        log["search"].append(time.perf_counter() - start)
        log["errors"] += status != 200
        if status == 200 and rng.random() < share_clicks / (1 - share_clicks):
            page = json.loads(body)
            clicked = [page["results"][int(rng.integers(len(page["results"])))]["id"]]
            feedback = {"page_token": page["page_token"], "clicked": clicked}
            start = time.perf_counter()
            status, answer = await exchange(reader, writer, request("/feedback", feedback))
            log["click"].append(time.perf_counter() - start)
            log["errors"] += status != 201
            if status == 201:
                log["keys"].append(json.loads(answer)["key"])
    writer.close()


async def load(port: int, seconds: float, explore: int, share_clicks: float = SHARE_CLICKS) -> dict:
    log: dict = {"search": [], "click": [], "errors": 0, "keys": []}
    end = time.perf_counter() + seconds
    await asyncio.gather(
        *(connection(port, number, end, explore, log, share_clicks) for number in range(N_CONNECTIONS))
    )
    return log


async def short_answers(port: int, n: int) -> None:
    """Send requests that need no search, one after the other: the cost of HTTP and its checks."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(n):
        await exchange(reader, writer, b"GET /collection HTTP/1.1\r\nhost: localhost\r\n\r\n")
    writer.close()


def bare(index: Index, seconds: float) -> float:
    """Return the searches per second of the index alone, one at a time on one thread, as the service calls it."""
    rng = np.random.default_rng(0)
    weights = np.ones(N_BITS, np.float32)
    codes = index.codes(np.unique(rng.integers(N_CODES, size=2000)))
    n, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        index.search(codes[n % len(codes)][None], K + 1, weights=weights, threads=1)
        n += 1
    return n / seconds


def parts(index: Index, explore: int, folder: Path) -> dict[str, float]:
    """Return the CPU milliseconds of the parts of a search within the service."""
    service = Service(Source("codes", index, Items()), f"sqlite:///{folder / 'parts.db'}", Settings())
    text, weights = json.dumps({"item": 5, "k": K, "explore": explore}).encode(), np.ones(N_BITS, np.float32)
    searcher, query_of = service.searcher, service.collection.query_of_item
    asked = PageRequest(K, explore=explore)
    plans = [searcher.plan(query_of(item), asked) for item in range(8)]
    steps = {
        "parse and check the request": lambda: Search.model_validate_json(text),
        "plan the search": lambda: searcher.plan(query_of(5), asked),
        "find and describe the page, alone": lambda: searcher.run(plans[:1]),
        "find and describe eight pages, each": lambda: searcher.run(plans),
        "the index alone": lambda: index.search(index.codes([5]), K + 1, weights=weights, threads=1),
    }
    out = {}
    for name, step in steps.items():
        start = time.thread_time()
        for _ in range(300):
            step()
        n_pages = 8 if "eight" in name else 1
        out[name] = round((time.thread_time() - start) / 300 / n_pages * 1e3, 4)
    service.close()
    return out


def measure(kind: str, explore: int, seconds: float, folder: Path) -> dict:
    path = folder / f"{kind}.index"
    if not path.exists():
        Index(make_codes(kind, np.random.default_rng(0))).save(path)
    index = Index.load(path)
    rate_before = bare(index, 3)
    data = folder / f"{kind}-{explore}"
    options = ["--index", str(path), "--data", str(data), "--port", "0", "--rate", "0"]
    command = [str(Path(sys.executable).parent / "bitrank"), "serve", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        port = int(process.stdout.readline().rpartition(":")[2].strip().strip("/"))
        asyncio.run(load(port, 2, explore))
        used = cpu_seconds(process.pid)
        log = asyncio.run(load(port, seconds, explore))
        used = cpu_seconds(process.pid) - used
        # Searches without clicks, and requests without a search.
        time.sleep(2)  # let the learner empty its queue
        alone = cpu_seconds(process.pid)
        n_alone = len(asyncio.run(load(port, min(10, seconds), explore, 0.0))["search"])
        alone = (cpu_seconds(process.pid) - alone) / n_alone
        short = cpu_seconds(process.pid)
        asyncio.run(short_answers(port, 2000))
        short = (cpu_seconds(process.pid) - short) / 2000
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    with sqlite3.connect(data / "bitrank.db") as connection:
        stored = {key for (key,) in connection.execute("SELECT key FROM pages")}
    rate_after = bare(index, 3)
    p50, p99 = np.percentile(log["search"], [50, 99]) * 1e3
    rate_bare = (rate_before + rate_after) / 2
    searches = len(log["search"]) / seconds
    return {
        "codes": kind,
        "explore": explore,
        "seconds": seconds,
        "searches": len(log["search"]),
        "clicks": len(log["keys"]),
        "errors": log["errors"],
        "lost_clicks": len(set(log["keys"]) - stored),
        "p50_ms": round(p50, 2),
        "p99_ms": round(p99, 2),
        "p99_over_p50": round(p99 / p50, 2),
        "searches_per_second": round(searches, 1),
        "bare_index_per_second": round(rate_bare, 1),
        "share_of_bare": round(searches / rate_bare, 3),
        "server_cpu_ms_per_request": round(used / (len(log["search"]) + len(log["click"])) * 1e3, 3),
        "server_cpu_ms_per_search_without_clicks": round(alone * 1e3, 3),
        "server_cpu_ms_per_short_answer": round(short * 1e3, 3),
        "cpu_ms_of_parts": parts(index, explore, folder),
    }


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of the worker of a service, the first child of its command; the learner is another."""
    worker = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]
    fields = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def show(row: dict) -> None:
    print(f"\n{row['codes']} codes, {row['explore']} of {K} places explored, {row['seconds']:g} s")
    bars = [
        ("errors", row["errors"], "0", row["errors"] == 0),
        ("lost clicks", row["lost_clicks"], "0", row["lost_clicks"] == 0),
        ("p99 over p50", row["p99_over_p50"], "<= 6", row["p99_over_p50"] <= 6),
        ("throughput over bare index", row["share_of_bare"], ">= 0.5", row["share_of_bare"] >= 0.5),
    ]
    for name, value, bar, reached in bars:
        print(f"  {name:<30}{value:>10}   {bar:<7} {'yes' if reached else 'NO'}")
    for name in ("searches", "clicks", "p50_ms", "p99_ms", "searches_per_second", "bare_index_per_second"):
        print(f"  {name:<30}{row[name]:>10}")
    for name in ("per_request", "per_search_without_clicks", "per_short_answer"):
        print(f"  {'server CPU ms ' + name.replace('_', ' '):<40}{row['server_cpu_ms_' + name]:>10}")
    for name, value in row["cpu_ms_of_parts"].items():
        print(f"    {name:<28}{value:>10}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--codes", nargs="+", default=["random", "clustered"], choices=["random", "clustered"])
    parser.add_argument("--explore", type=int, nargs="+", default=[4])
    parser.add_argument("--output", type=Path, default=RESULTS / "service.json")
    arguments = parser.parse_args()
    rows = []
    for kind in arguments.codes:
        for explore in arguments.explore:
            with tempfile.TemporaryDirectory() as folder:
                rows.append(measure(kind, explore, arguments.seconds, Path(folder)))
            show(rows[-1])
    facts = {
        "n_codes": N_CODES,
        "n_bits": N_BITS,
        "k": K,
        "connections": N_CONNECTIONS,
        "share_clicks": SHARE_CLICKS,
        "cpus": n_threads(),
        "python": platform.python_version(),
        "rows": rows,
    }
    write_results(arguments.output, facts)


if __name__ == "__main__":
    main()
