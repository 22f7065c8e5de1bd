"""Results as files: one JSON a cell, and all of them gathered in one CSV.

`run` writes them as they finish, and `report` reads nothing else.
"""

from __future__ import annotations

import csv
import json
import os
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from experiments.plan import Group

RESULTS = Path(__file__).parent / "results"
KEYS = ("protocol", "dataset", "hasher", "n_bits", "ranking", "seed")
FIGURES = ("map", "voc11", "authors_map", "p10", "p100")
VERSIONS = {
    **{name: version(name) for name in ("bitrank", "numpy", "scipy", "scikit-learn")},
    "python": platform.python_version(),
}

Cell = dict[str, Any]


def path_of(results: Path, group: Group, ranking: str) -> Path:
    """Where a cell is kept: cells/protocol/dataset/hasher-bits-ranking-seed.json."""
    name = f"{group.hasher}-{group.n_bits}-{ranking}-{group.seed}.json"
    return results / "cells" / group.protocol / group.dataset / name


def missing(results: Path, group: Group, n_rows: int | None) -> list[str]:
    """The group's rankings that have no file yet; one of a trial with another number of rows does not count."""
    lacking = []
    for ranking in group.rankings:
        path = path_of(results, group, ranking)
        if not path.exists() or json.loads(path.read_text(encoding="utf-8"))["params"].get("n_rows") != n_rows:
            lacking.append(ranking)
    return lacking


def write(results: Path, group: Group, ranking: str, record: Cell) -> None:
    """Write a cell whole or not at all: a run that is stopped leaves no half of one."""
    path = path_of(results, group, ranking)
    path.parent.mkdir(parents=True, exist_ok=True)
    cell = {**group._asdict(), "ranking": ranking, **record, "versions": VERSIONS}
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(_rounded(cell), separators=(",", ":")) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def write_run(results: Path, n_cells: int, workers: int, seconds: float) -> None:
    """Keep what the last run did in run.json: how many cells, by how many processes, on how many cores, how long."""
    record = {"cells": n_cells, "workers": workers, "cores": os.cpu_count(), "minutes": round(seconds / 60, 1)}
    (results / "run.json").write_text(json.dumps(record) + "\n", encoding="utf-8")


def read_run(results: Path) -> Cell | None:
    """What the last run did, None where there was none."""
    path = results / "run.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def read_all(results: Path) -> list[Cell]:
    """Every cell that is there, in the order of their paths."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(results.glob("cells/*/*/*.json"))]


def gather(results: Path) -> int:
    """Write cells.csv from the files, and say how many there are."""
    cells = read_all(results)
    results.mkdir(parents=True, exist_ok=True)
    temporary = results / "cells.csv.tmp"
    with open(temporary, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow([*KEYS, *FIGURES, "seconds"])
        for cell in cells:
            figures = [cell["figures"].get(name, "") for name in FIGURES]
            rows.writerow([*(cell[key] for key in KEYS), *figures, cell["seconds"]])
    os.replace(temporary, results / "cells.csv")
    return len(cells)


def _rounded(value: Any) -> Any:
    """Six digits after the point are more than three seeds can tell apart, and keep the files small."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_rounded(item) for item in value]
    return value
