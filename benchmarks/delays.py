"""Waiting times: until `bitrank serve` answers, until the page follows a choice, until all services agree.

`python benchmarks/delays.py` starts services, a browser (if Chromium is installed) and a PostgreSQL server, prints
medians and maxima beside their bars, and writes results/delays.json.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import httpx
import numpy as np
from report import RESULTS, write_results

from bitrank.core.checks import n_threads

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from postgres_server import PostgresServer  # type: ignore[import-not-found]
from serving import Command  # type: ignore[import-not-found]

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def until_ready(rounds: int = 5) -> list[float]:
    """Time from the command to the first answer, on the embedded digits and an empty folder."""
    seconds = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            command = Command("--data", folder)
            httpx.get(f"{command.address}/healthz").raise_for_status()
            seconds.append(time.perf_counter() - start)
            command.stop()
    return seconds


def until_the_page_follows(choices: int = 10) -> list[float]:
    """Time from a choice on the page to the new ranking, in the browser."""
    from playwright.sync_api import sync_playwright

    seconds = []
    flags = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as running:
        command = Command("--data", folder, "--rate", 0)
        page = running.chromium.launch(executable_path=CHROMIUM, args=flags).new_page()
        for item in range(choices):
            page.goto(f"{command.address}/?item={item}")
            page.wait_for_selector("#learned li:nth-child(20)")
            page.wait_for_selector("body:not([aria-busy=true])")
            start = time.perf_counter()
            page.locator("#learned li:nth-child(13) button").click()
            page.locator("#status", has_text="More like").wait_for()
            page.wait_for_selector("body:not([aria-busy=true])")
            seconds.append(time.perf_counter() - start)
        command.stop()
    return seconds


def until_all_agree(versions: int = 20) -> list[float]:
    """Time from the activation of a version by one service to a search with it by another, over one data base."""
    seconds, random = [], np.random.default_rng(0)
    postgres = PostgresServer(16)
    try:
        base = postgres.start().url(postgres.new_base())
        first, second = (Command("--db", base, "--rate", 0) for _ in range(2))
        with httpx.Client(timeout=30) as client:
            for _ in range(versions):
                weights = random.random(64).tolist()
                made = client.post(f"{first.address}/profiles/default/versions", json={"weights": weights})
                number = made.raise_for_status().json()["number"]
                client.post(f"{first.address}/profiles/default/versions/{number}/activate").raise_for_status()
                start = time.perf_counter()
                while client.post(f"{second.address}/search", json={"item": 3}).json()["version"] != number:
                    time.sleep(0.005)
                seconds.append(time.perf_counter() - start)
                time.sleep(random.random())  # out of step with the polling of the services
        for command in (first, second):
            command.stop()
    finally:
        postgres.remove()
    return seconds


def main() -> None:
    parts = {
        "bitrank serve answers": (until_ready, 3.0),
        "the page follows a choice": (until_the_page_follows if CHROMIUM else None, 1.0),
        "a version is active in another service": (until_all_agree, 2.0),
    }
    rows = {}
    for name, (measure, most) in parts.items():
        if measure is None:
            print(f"{name}: not measured, Chromium is not installed")
            continue
        seconds = measure()
        rows[name] = {"median_s": median(seconds), "max_s": max(seconds), "n": len(seconds), "most_s": most}
        met = "met" if max(seconds) <= most else "MISSED"
        print(
            f"{name}: median {median(seconds):.2f} s, at most {max(seconds):.2f} s of {len(seconds)} (≤ {most:g} {met})"
        )
    facts = {"cpus": n_threads(), "python": platform.python_version(), "rows": rows}
    write_results(RESULTS / "delays.json", facts)


if __name__ == "__main__":
    main()
