"""The commands `bitrank index build|info|search|optimize`."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, get_args

from bitrank.cli.output import add_json, print_facts
from bitrank.core.files import read_array
from bitrank.core.progress import progress
from bitrank.core.types import Method
from bitrank.index import Index, interchange, storage

BATCH = 256  # queries per step of the progress bar


def add_parser(commands: Any) -> None:
    """Add `index` and its four commands."""
    index = commands.add_parser("index", help="build, describe, search and sort an index on disk")
    inner = index.add_subparsers(dest="index_command", required=True)

    build = inner.add_parser("build", help="build an index from codes")
    build.add_argument("codes", type=Path, help="packed codes: .npy, .parquet, or a FAISS binary index")
    build.add_argument("index", type=Path, help="folder to write")
    build.add_argument("--n-bits", type=int, help="bits per code (default: eight per byte)")
    build.add_argument("--ids", type=Path, help="one id per code: .npy, .csv or .json (default: 0 to n - 1)")
    build.add_argument("--column", default="code", help="Parquet column of the codes (default: %(default)s)")
    build.add_argument("--id-column", help="Parquet column of the ids")
    build.set_defaults(run=_build)

    info = inner.add_parser("info", help="describe an index")
    info.set_defaults(run=_info)

    search = inner.add_parser("search", help="search an index")
    search.set_defaults(run=_search)

    optimize = inner.add_parser("optimize", help="sort an index for its weights and drop removed rows")
    optimize.set_defaults(run=_optimize)

    for command in (info, search, optimize):
        command.add_argument("index", type=Path, help="folder of the index")
    search.add_argument("queries", type=Path, help=".npy of packed codes, or of reals")
    search.add_argument("-k", type=int, default=10, help="results per query (default: %(default)s)")
    search.add_argument(
        "--method",
        choices=get_args(Method),
        default="exact",
        help="rank all rows exactly, or re-rank the nearest by plain Hamming distance (default: %(default)s)",
    )
    search.add_argument(
        "--candidates", type=int, help="rows to re-rank per query (default: ten per result, at least 1000)"
    )
    search.add_argument("--threads", type=int, help="threads (default: one per core)")
    for command in (build, search, optimize):
        command.add_argument("--weights", type=Path, help="weights, one per bit: .npy, .csv or .json")
    add_json(build, info, search, optimize)


def _build(arguments: argparse.Namespace) -> int:
    start = time.perf_counter()
    steps = iter(progress(["sort", "write"], label="building"))
    next(steps)
    index = interchange.from_file(
        arguments.codes,
        n_bits=arguments.n_bits,
        ids=_load(arguments.ids),
        weights=_load(arguments.weights),
        column=arguments.column,
        id_column=arguments.id_column,
    )
    for _ in steps:
        index.save(arguments.index)
    return _print_size(arguments, index, start)


def _info(arguments: argparse.Namespace) -> int:
    meta = storage.read_meta(arguments.index)
    index = Index.load(arguments.index)
    facts = {
        "n_codes": meta["n_codes"],
        "n_bits": meta["n_bits"],
        "n_segments": meta["n_segments"],
        "weighted": index.weights is not None,
        "order_quality": index.order_quality(),
        "bytes": sum(entry["size"] for entry in meta["files"].values()),
        "format_version": meta["version"],
    }
    print_facts(facts, as_json=arguments.json)
    return 0


def _search(arguments: argparse.Namespace) -> int:
    index = Index.load(arguments.index)
    queries, weights = _load(arguments.queries), _load(arguments.weights)
    options = {name: getattr(arguments, name) for name in ("method", "candidates", "threads")}
    for start in progress(range(0, len(queries), BATCH), label="searching"):
        batch = slice(start, start + BATCH)
        batch_weights = weights[batch] if weights is not None and weights.ndim == 2 else weights
        results = index.search(queries[batch], arguments.k, weights=batch_weights, **options)
        for number, (ids, distances) in enumerate(zip(*results, strict=True), start):
            n_found = int((ids >= 0).sum())
            _print_results(number, ids[:n_found].tolist(), distances[:n_found].tolist(), as_json=arguments.json)
    return 0


def _print_results(query: int, ids: list[int], distances: list[float], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"query": query, "ids": ids, "distances": distances}))
    else:
        print(f"query {query}:", "  ".join(f"{i} ({d:g})" for i, d in zip(ids, distances, strict=True)))


def _optimize(arguments: argparse.Namespace) -> int:
    start = time.perf_counter()
    index = Index.load(arguments.index)
    if arguments.weights is not None:
        index.weights = _load(arguments.weights)
    for step in progress([index.optimize, lambda: index.save(arguments.index)], label="sorting"):
        step()
    return _print_size(arguments, index, start)


def _load(path: Path | None) -> Any:
    return None if path is None else read_array(path)


def _print_size(arguments: argparse.Namespace, index: Index, start: float) -> int:
    facts = {"n_codes": len(index), "n_bits": index.n_bits, "seconds": time.perf_counter() - start}
    print_facts(facts, as_json=arguments.json)
    return 0
