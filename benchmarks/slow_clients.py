"""How much slow clients slow down others: p99 of searches beside 200 half-open connections and an endless header.

`python benchmarks/slow_clients.py` serves the embedded digits, runs `wrk` over 8 connections alone and beside the slow
clients in turn, prints both p99 and their ratio, and writes results/slow_clients.json. Needs `wrk`.
"""

from __future__ import annotations

import argparse
import contextlib
import platform
import socket
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from report import RESULTS, write_results
from service_requests import HERE, SCRIPT, Server, load

N_HALF_OPEN, ROUNDS, SECONDS = 200, 5, 4
BAR = 2.0


@contextlib.contextmanager
def slow_clients(url: str):
    """Keep 200 connections that never finish their header, and one that sends a header without end."""
    parts = urlsplit(url)
    address = parts.hostname, parts.port
    over = threading.Event()

    def half_open() -> None:
        opened = []
        while not over.is_set():
            opened = [one for one in opened if _alive(one)]
            while len(opened) < N_HALF_OPEN and not over.is_set():
                opened.append(socket.create_connection(address))
                opened[-1].sendall(b"POST /search HTTP/1.1\r\nhost: localhost\r\n")
            over.wait(1)
        for one in opened:
            one.close()

    def endless() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError), socket.create_connection(address) as one:
                one.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ")
                while not over.is_set():
                    one.sendall(b"a" * 4096)
                    time.sleep(0.001)  # faster than any server should accept, slow enough to leave the client's core

    threads = [threading.Thread(target=half_open), threading.Thread(target=endless)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _alive(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return one.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--output", type=Path, default=RESULTS / "slow_clients.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = Server(HERE, folder / "data")
        script = folder / "search.lua"
        script.write_text(SCRIPT.replace("EXPLORE", "4"))
        rows = []
        try:
            server.settle()
            load(server, script, 2)
            for _ in range(arguments.rounds):
                alone = load(server, script, arguments.seconds)
                with slow_clients(server.url):
                    beside = load(server, script, arguments.seconds)
                rows.append({"alone_p99_ms": alone["p99_ms"], "beside_p99_ms": beside["p99_ms"]})
                print(rows[-1], flush=True)
        finally:
            server.stop()
    ratio = float(np.median([row["beside_p99_ms"] / row["alone_p99_ms"] for row in rows]))
    print(
        f"p99 beside slow clients is {ratio:.2f} times that alone; the bar is {BAR}: {'yes' if ratio <= BAR else 'NO'}"
    )
    write_results(arguments.output, {"rows": rows, "ratio": round(ratio, 3), "python": platform.python_version()})


if __name__ == "__main__":
    main()
