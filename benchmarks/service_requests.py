"""Requests per second and core of `bitrank serve`, beside another checkout, with `wrk` on loopback.

`python benchmarks/service_requests.py --against FOLDER` serves the embedded digits from this checkout and from the one
in the folder (the root of a repository with a compiled kernel), sends searches to both in turn over 8 connections, and
writes results/service_requests.json. A core's worth is one second of the CPU time of all processes of the server, so
that other work on the machine changes little. Needs `wrk`.
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
from report import RESULTS, write_results

HERE = Path(__file__).parents[1]
N_CONNECTIONS, ROUNDS, SECONDS = 8, 3, 5
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


def load(server: Server, script: Path, seconds: int) -> dict[str, float]:
    used = server.cpu_seconds()
    command = ["wrk", "-t1", f"-c{N_CONNECTIONS}", f"-d{seconds}s", "--latency", "-s", str(script), server.url]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = server.cpu_seconds() - used
    n = int(re.search(r"(\d+) requests in", out)[1])
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    assert bad is None, out
    p99, unit = re.search(r"99%\s+([\d.]+)(ms|us|s)\b", out).groups()
    milliseconds = float(p99) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]
    return {"requests": n, "per_second": n / seconds, "per_core": n / used, "p99_ms": milliseconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, required=True, help="root of another checkout")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--explore", type=int, nargs="+", default=[4, 0])
    parser.add_argument("--output", type=Path, default=RESULTS / "service_requests.json")
    arguments = parser.parse_args()
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
    write_results(arguments.output, facts)


if __name__ == "__main__":
    main()
