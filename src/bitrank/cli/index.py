"""The commands `bitrank index build|info|search|optimize`: each parses, calls the library and prints.

`cli` adds them to its parser; files are .npy, .parquet or FAISS binary indexes.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from bitrank.index import Index, interchange, storage
from bitrank.progress import progress

BATCH = 256  # queries between two moves of the bar


def add_parser(commands: Any) -> None:
    """Add `index` with its own commands to the subparsers of `cli`."""
    index = commands.add_parser("index", help="build, look at, search and sort an index of codes on disk")
    inner = index.add_subparsers(dest="index_command", required=True)

    build = inner.add_parser("build", help="build an index from codes")
    build.add_argument("codes", type=Path, help="packed codes: .npy, .parquet, or a FAISS binary index")
    build.add_argument("index", type=Path, help="folder to write")
    build.add_argument("--n-bits", type=int, help="bits of a code (default: eight a byte)")
    build.add_argument("--ids", type=Path, help=".npy of ids (default: 0 to n - 1)")
    build.add_argument("--column", default="code", help="Parquet column of the codes (default: %(default)s)")
    build.add_argument("--id-column", help="Parquet column of the ids")
    build.set_defaults(run=_build)

    info = inner.add_parser("info", help="say what is in an index")
    info.add_argument("index", type=Path, help="folder of the index")
    info.set_defaults(run=_info)

    search = inner.add_parser("search", help="search an index")
    search.add_argument("index", type=Path, help="folder of the index")
    search.add_argument("queries", type=Path, help=".npy of packed codes, or of reals")
    search.add_argument("-k", type=int, default=10, help="rows to find for each query (default: %(default)s)")
    search.add_argument("--candidates", type=int, help="rank only so many, the nearest by plain Hamming distance")
    search.add_argument("--threads", type=int, help="threads (default: all cores)")
    search.set_defaults(run=_search)

    optimize = inner.add_parser("optimize", help="sort an index for its weights, and drop what was removed")
    optimize.add_argument("index", type=Path, help="folder of the index")
    optimize.set_defaults(run=_optimize)

    for command in (build, search, optimize):
        command.add_argument("--weights", type=Path, help=".npy of weights, one a bit")
    for command in (build, info, search, optimize):
        command.add_argument("--json", action="store_true", help="print JSON, for machines")


def _build(arguments: argparse.Namespace) -> int:
    start = time.perf_counter()
    steps = progress(["sort", "write"], label="building")
    next(steps)
    index = _read_codes(arguments, _load(arguments.weights))
    for _ in steps:
        index.save(arguments.index)
    return _say(arguments, {"n_codes": len(index), "n_bits": index.n_bits, "seconds": time.perf_counter() - start})


def _read_codes(arguments: argparse.Namespace, weights: Any) -> Index:
    path, n_bits, ids = arguments.codes, arguments.n_bits, _load(arguments.ids)
    if path.suffix == ".npy":
        return interchange.from_npy(path, n_bits=n_bits, ids=ids, weights=weights)
    if ids is not None:
        raise ValueError(f"--ids goes with codes in a .npy file, got {path}")
    if path.suffix == ".parquet":
        id_column = arguments.id_column
        return interchange.from_parquet(path, arguments.column, id_column=id_column, n_bits=n_bits, weights=weights)
    return interchange.from_faiss(path, weights=weights)


def _info(arguments: argparse.Namespace) -> int:
    meta = storage.read_meta(arguments.index)
    index = Index.load(arguments.index)
    return _say(
        arguments,
        {
            "n_codes": meta["n_codes"],
            "n_bits": meta["n_bits"],
            "n_segments": meta["n_segments"],
            "weighted": index.weights is not None,
            "order_quality": index.order_quality(),
            "bytes": sum(entry["size"] for entry in meta["files"].values()),
            "format_version": meta["version"],
        },
    )


def _search(arguments: argparse.Namespace) -> int:
    index = Index.load(arguments.index)
    queries, weights = _load(arguments.queries), _load(arguments.weights)
    options = {"candidates": arguments.candidates, "threads": arguments.threads}
    for start in progress(range(0, len(queries), BATCH), label="searching"):
        rows = weights[start : start + BATCH] if weights is not None and weights.ndim == 2 else weights
        found = index.search(queries[start : start + BATCH], arguments.k, weights=rows, **options)
        for number, (ids, distances) in enumerate(zip(*found, strict=True), start):
            n = int((ids >= 0).sum())
            if arguments.json:
                print(json.dumps({"query": number, "ids": ids[:n].tolist(), "distances": distances[:n].tolist()}))
            else:
                print(
                    f"query {number}:", "  ".join(f"{i} ({d:g})" for i, d in zip(ids[:n], distances[:n], strict=True))
                )
    return 0


def _optimize(arguments: argparse.Namespace) -> int:
    start = time.perf_counter()
    index = Index.load(arguments.index)
    if arguments.weights is not None:
        index.weights = _load(arguments.weights)
    for step in progress([index.optimize, lambda: index.save(arguments.index)], label="sorting"):
        step()
    return _say(arguments, {"n_codes": len(index), "n_bits": index.n_bits, "seconds": time.perf_counter() - start})


def _load(path: Path | None) -> Any:
    return None if path is None else np.load(path, allow_pickle=False)


def _say(arguments: argparse.Namespace, facts: dict[str, Any]) -> int:
    if arguments.json:
        print(json.dumps(facts))
    else:
        for name, value in facts.items():
            print(f"{name.replace('_', ' '):<16}{f'{value:.3g}' if isinstance(value, float) else value}")
    return 0
