"""Requests per second and core of `bitrank serve`, with `wrk` on loopback.

`python benchmarks/service_requests.py` serves 59 017 random codes with one weight per bit and, in turn, with a
`QueryVectorRanker`: the milliseconds of one client, and requests per second over 8 connections. With `--against FOLDER`
(the root of a repository with a compiled kernel) it serves the embedded digits from this checkout and from that one.
Searches are sent to both in turn, and results/service_requests.json is written. A core's worth is one second of the CPU
time of all processes of the server, so that other work on the machine changes little. Needs `wrk`.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from report import RESULTS, machine, read_results, write_results

from bitrank import Index, QueryVectorRanker
from bitrank.ranking.networks.network import start_network

HERE = Path(__file__).parents[1]
N_CONNECTIONS, ROUNDS, SECONDS = 8, 3, 5
N_ITEMS = 59_017
# An editable install finds bitrank before sys.path is looked through.
START = """
import sys
from pathlib import Path

if not Path(__import__("bitrank").__file__).is_relative_to(checkout):
    for name in [name for name in sys.modules if name.partition(".")[0] == "bitrank"]:
        del sys.modules[name]
    sys.meta_path[:] = [one for one in sys.meta_path if type(one).__name__ != "ScikitBuildRedirectingFinder"]
    sys.path.insert(0, f"{checkout}/src")
from bitrank.cli import main

assert Path(sys.modules["bitrank"].__file__).is_relative_to(checkout), sys.modules["bitrank"].__file__
sys.exit(main())
"""
SCRIPT = """
wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
wrk.headers["host"] = "localhost"
local n = 0
request = function()
  n = n + 1
  return wrk.format(nil, "/search", nil, string.format('{"item": %d, "k": 20, "explore": EXPLORE}', (n * 7919) % 10000))
end
"""


class Server:
    """A `bitrank serve` over the digits, from a checkout."""

    def __init__(self, checkout: Path, folder: Path, *options: str) -> None:
        command = [
            sys.executable,
            "-c",
            f"checkout = {str(checkout)!r}\n{START}",
            "serve",
            "--port",
            "0",
            "--rate",
            "0",
            "--data",
            str(folder),
            *options,
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder.parent)
        self.url = self._process.stdout.readline().rpartition(" at ")[2].strip()

    def cpu_seconds(self) -> float:
        """Return the CPU time of the command and all its children."""
        parent = self._process.pid
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        ticks = 0
        for process in (str(parent), *children):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def settle(self) -> None:
        """Wait until nothing is loaded in the background any more."""
        before, end = -1.0, time.monotonic() + 120
        while self.cpu_seconds() - before > 0.05 and time.monotonic() < end:
            before = self.cpu_seconds()
            time.sleep(1)

    def stop(self) -> None:
        """Stop it."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()


def learned(folder: Path, n_bits: int, rounds: int, seconds: int) -> dict[str, float]:
    """Searches of a collection with and without a ranker that learned a vector per query, in turn."""
    random = np.random.default_rng(0)
    codes = random.integers(256, size=(N_ITEMS, n_bits // 8), dtype=np.uint8)
    Index(codes).save(folder / "codes.index")
    network = start_network(n_bits, n_bits + 1, random, n_hidden=256)._replace(blend=0.5)
    ranker = QueryVectorRanker.from_network(network, codes[:2000], codes[:0], learned_from="labels")
    ranker.save(folder / "ranker.npz")
    common = ("--index", str(folder / "codes.index"), "--explore", "0")
    servers = {
        "plain": Server(HERE, folder / "plain", *common),
        "learned": Server(HERE, folder / "learned", *common, "--ranker", str(folder / "ranker.npz")),
    }
    script = folder / "search.lua"
    script.write_text(SCRIPT.replace("EXPLORE", "0"))
    try:
        for server in servers.values():
            server.settle()
            load(server, script, 2)
        loads = [
            (which, load(server, script, seconds, 1), load(server, script, seconds))
            for _ in range(rounds)
            for which, server in servers.items()
        ]
    finally:
        for server in servers.values():
            server.stop()
    row: dict[str, float] = {"n_bits": n_bits}
    for which in servers:
        one = [alone for name, alone, _ in loads if name == which]
        many = [together for name, _, together in loads if name == which]
        row[f"{which}_p50_ms"] = round(float(np.median([each["p50_ms"] for each in one])), 2)
        for figure in ("per_second", "per_core"):
            row[f"{which}_{figure}"] = round(float(np.median([each[figure] for each in many])), 1)
    row["share_per_core"] = round(row["learned_per_core"] / row["plain_per_core"], 2)
    row["share_per_second"] = round(row["learned_per_second"] / row["plain_per_second"], 2)
    return row


def load(server: Server, script: Path, seconds: int, connections: int = N_CONNECTIONS) -> dict[str, float]:
    used = server.cpu_seconds()
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script), server.url]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = server.cpu_seconds() - used
    n = int(re.search(r"(\d+) requests in", out)[1])
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    assert bad is None, out
    milliseconds = {
        f"p{percent}_ms": float(value) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]
        for percent, value, unit in re.findall(r"(50|99)%\s+([\d.]+)(ms|us|s)\b", out)
    }
    return {"requests": n, "per_second": n / seconds, "per_core": n / used, **milliseconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="root of another checkout, to compare with")
    parser.add_argument("--n-bits", type=int, nargs="+", default=[64, 384, 1024])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--explore", type=int, nargs="+", default=[4, 0])
    parser.add_argument("--output", type=Path, default=RESULTS / "service_requests.json")
    arguments = parser.parse_args()
    if arguments.against is None:
        rows = []
        for n_bits in arguments.n_bits:
            with tempfile.TemporaryDirectory() as name:
                rows.append(learned(Path(name), n_bits, arguments.rounds, arguments.seconds))
            print(rows[-1], flush=True)
        facts = {"machine": machine(), "items": N_ITEMS, "connections": N_CONNECTIONS, "rows": rows}
        write_results(arguments.output, {**read_results(arguments.output), "learned": facts})
        return
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        servers = {
            "this": Server(HERE, folder / "this"),
            "other": Server(arguments.against.resolve(), folder / "other"),
        }
        try:
            for explore in arguments.explore:
                script = folder / "search.lua"
                script.write_text(SCRIPT.replace("EXPLORE", str(explore)))
                for server in servers.values():
                    server.settle()
                    load(server, script, 2)
                rounds = [
                    {which: load(server, script, arguments.seconds) for which, server in servers.items()}
                    for _ in range(arguments.rounds)
                ]
                row = {"explore": explore}
                for which in servers:
                    for figure in ("per_second", "per_core", "p99_ms"):
                        row[f"{which}_{figure}"] = round(float(np.median([one[which][figure] for one in rounds])), 2)
                ratios = [one["this"]["per_core"] / one["other"]["per_core"] for one in rounds]
                row["ratio_per_core"] = round(float(np.median(ratios)), 2)
                row["ratios"] = [round(ratio, 2) for ratio in ratios]
                rows.append(row)
                print(row, flush=True)
        finally:
            for server in servers.values():
                server.stop()
    facts = {
        "connections": N_CONNECTIONS,
        "seconds": arguments.seconds,
        "python": platform.python_version(),
        "rows": rows,
    }
    write_results(arguments.output, {**read_results(arguments.output), **facts})


if __name__ == "__main__":
    main()
