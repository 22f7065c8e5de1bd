"""Figures beside their bars, the machine that they were measured on, and the JSON files of benchmarks/results."""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy
import sklearn
from threadpoolctl import threadpool_info

import bitrank
from bitrank.core.checks import n_threads
from bitrank.core.files import replacing

RESULTS = Path(__file__).parent / "results"


class Figure(NamedTuple):
    """A measured value and its bar: a lower or an upper bound."""

    value: float
    least: float = -np.inf
    most: float = np.inf

    @property
    def bar(self) -> str:
        """The bar in words; empty if there is none."""
        return f"≥ {self.least:.4g}" if self.least > -np.inf else f"≤ {self.most:.4g}" if self.most < np.inf else ""

    @property
    def met(self) -> bool:
        """Whether the value is within its bounds."""
        return bool(self.least <= self.value <= self.most)

    def __str__(self) -> str:
        return f"{self.value:.4g}" + (f" ({self.bar} {'met' if self.met else 'MISSED'})" if self.bar else "")


class Report:
    """Rows of figures of one part of a benchmark, printed as they are added."""

    def __init__(self, part: str) -> None:
        self.part, self.start, self.machine = part, time.perf_counter(), machine()
        self.rows: dict[str, dict[str, Figure]] = {}
        print(f"\n== {part}", flush=True)

    def add(self, name: str, **figures: Figure | float) -> None:
        """Print and keep a row."""
        row = {key: value if isinstance(value, Figure) else Figure(float(value)) for key, value in figures.items()}
        self.rows[name] = row
        print(f"{name}: " + ", ".join(f"{key} {figure}" for key, figure in row.items()), flush=True)

    def summarize(self) -> None:
        """Print every bar with its figure, and how many were met."""
        bars = [(f"{name}: {key}", f) for name, row in self.rows.items() for key, f in row.items() if f.bar]
        for name, figure in bars:
            print(f"{name:72} {figure.value:10.4g}  {figure.bar:9} {'met' if figure.met else 'MISSED'}")
        print(f"{self.part}: {sum(figure.met for _, figure in bars)} of {len(bars)} bars met", flush=True)

    def save(self, path: Path, add: bool = False) -> None:
        """Write all rows as a section of a file, with the date, the machine and the versions; or add to its rows."""
        blas = sorted({f"{pool['internal_api']}, {pool['num_threads']} threads" for pool in threadpool_info()})
        packages = (bitrank, np, scipy, sklearn)
        results = read_results(path)
        section = {
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "machine": {**self.machine, "blas": blas},
            "versions": {package.__name__: package.__version__ for package in packages},
            "seconds": time.perf_counter() - self.start,
            "rows": (results.get(self.part, {}).get("rows", {}) if add else {})
            | {
                name: {
                    key: {"value": f.value, "bar": f.bar, "met": f.met} if f.bar else f.value for key, f in row.items()
                }
                for name, row in self.rows.items()
            },
        }
        write_results(path, {**results, self.part: section})


def machine() -> dict[str, Any]:
    """Describe the machine and its load at the time of the call."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": model or platform.processor(),
        "cores": n_threads(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "python": platform.python_version(),
        "load_at_start": os.getloadavg()[0],
    }


def read_results(path: Path) -> dict[str, Any]:
    """Read a JSON file of results; a file that does not exist holds none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write_results(path: Path, results: dict[str, Any]) -> None:
    """Write a JSON file of results."""
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as file:
        file.write((json.dumps(results, indent=1, ensure_ascii=False) + "\n").encode())


def parse_parts(parser: argparse.ArgumentParser, parts: Iterable[str]) -> argparse.Namespace:
    """Parse the command line; its positional arguments name parts of a benchmark, all of them by default."""
    parts = list(parts)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(parts)}; all by default")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(parts):
        parser.error(f"part must be one of {', '.join(parts)}, got {', '.join(sorted(unknown))}")
    options.parts = options.parts or parts
    return options


def run_parts(parts: Iterable[str], measure: Callable[[str, Report], None], path: Path) -> None:
    """Measure parts of a benchmark, save each when it is done, and summarize all of them at the end."""
    reports = []
    for part in parts:
        reports.append(Report(part))
        measure(part, reports[-1])
        reports[-1].save(path)
    for report in reports:
        report.summarize()


def timed(function: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[float, Any]:
    """Call a function; return the seconds that it took and its result."""
    start = time.perf_counter()
    result = function(*arguments, **options)
    return time.perf_counter() - start, result
