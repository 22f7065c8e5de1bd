"""Store results: one JSON line per cell, one file per protocol and data set, and a CSV of all cells.

Workers append a line as soon as a cell is finished. A process that is killed while it writes leaves a last line without
its line end; readers skip that line and the next append removes it. Of several lines for one cell, the last counts.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bitrank.core.checks import n_threads
from bitrank.core.files import replacing
from experiments.plan import Group

RESULTS = Path(__file__).parent / "results"
KEYS = ("protocol", "dataset", "hasher", "n_bits", "ranking", "seed")
FIGURES = ("map", "voc11", "authors_map", "p10", "p100")
VERSIONS = {
    **{name: version(name) for name in ("bitrank", "numpy", "scipy", "scikit-learn")},
    "python": platform.python_version(),
}

Cell = dict[str, Any]
Key = tuple[str, str, str, int, str, int]


def key_of(group: Group, ranking: str) -> Key:
    """Return the values of `KEYS` for one ranking of a group."""
    return group.protocol, group.dataset, group.hasher, group.n_bits, ranking, group.seed


def path_of(results: Path, protocol: str, dataset: str) -> Path:
    """Return the file that holds the cells of a protocol on a data set."""
    return results / "cells" / f"{protocol}-{dataset}.jsonl"


def read(path: Path) -> dict[Key, Cell]:
    """Read the cells of one file; a file that does not exist holds none."""
    if not path.exists():
        return {}
    lines = path.read_bytes().splitlines(keepends=True)
    cells = [json.loads(line) for line in lines if line.endswith(b"\n")]
    return {tuple(cell[key] for key in KEYS): cell for cell in cells}


def read_all(results: Path) -> dict[Key, Cell]:
    """Read all cells, sorted by protocol, data set and name."""
    cells: dict[Key, Cell] = {}
    for path in results.glob("cells/*.jsonl"):
        cells |= read(path)
    return dict(sorted(cells.items(), key=lambda item: (*item[0][:2], "-".join(map(str, item[0][2:])))))


def missing(cells: Mapping[Key, Cell], group: Group, rankings: Iterable[str], n_rows: int | None) -> list[str]:
    """Return the rankings of a group without a cell; a cell of a trial on another number of rows does not count."""
    stored = {ranking: cells.get(key_of(group, ranking)) for ranking in rankings}
    return [name for name, cell in stored.items() if cell is None or cell["params"].get("n_rows") != n_rows]


def append(results: Path, group: Group, ranking: str, record: Cell) -> None:
    """Append a cell to its file, after the removal of an incomplete last line. Safe in several processes at once."""
    path = path_of(results, group.protocol, group.dataset)
    path.parent.mkdir(parents=True, exist_ok=True)
    cell = {**group._asdict(), "ranking": ranking, **record, "versions": VERSIONS}
    line = json.dumps(_rounded(cell), separators=(",", ":")) + "\n"
    with open(path, "a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(line.encode())


def write_run(results: Path, n_cells: int, workers: int, seconds: float) -> None:
    """Write run.json: how many cells the last run computed, with how many processes and cores, and how long it took."""
    record = {"cells": n_cells, "workers": workers, "cores": n_threads(), "minutes": round(seconds / 60, 1)}
    with replacing(results / "run.json") as file:
        file.write((json.dumps(record) + "\n").encode())


def read_run(results: Path) -> Cell | None:
    """Read run.json; None if there is none."""
    path = results / "run.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def write_csv(results: Path) -> int:
    """Write the figures of all cells to cells.csv; return the number of cells."""
    cells = read_all(results)
    content = io.StringIO(newline="")
    rows = csv.writer(content, lineterminator="\n")
    rows.writerow([*KEYS, *FIGURES, "seconds"])
    for key, cell in cells.items():
        rows.writerow([*key, *(cell["figures"].get(name, "") for name in FIGURES), cell["seconds"]])
    results.mkdir(parents=True, exist_ok=True)
    with replacing(results / "cells.csv") as file:
        file.write(content.getvalue().encode())
    return len(cells)


def _rounded(value: Any) -> Any:
    """Round all floats in a record to six digits after the point: more than three seeds can distinguish."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_rounded(item) for item in value]
    return value
