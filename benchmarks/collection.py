"""`Collection` with its defaults: what it ranks beside the parts glued by hand, half of the labels, and its saves.

`python benchmarks/collection.py [glued] [mixed] [save]` runs these parts, or all, prints each figure beside its bar,
and writes one section per part to benchmarks/results/collection.json. Data: docs/data.md.

glued: `from_vectors` and `learn(labels=)` beside hasher, index, ranker, `features=` and `collection=` in `fit` and in
`queries_for`; queries are rows that nobody learned from.
mixed: half of the classes have labels, the items of the others have none; queries of all classes. Gains over the plain
ranking of the same collection. Learned twice, once for each half.
save: a million rows of 384 bits, ten rows added, saved again: milliseconds, `fsync` calls, and the same in turbovec
where that is installed.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean, median

import numpy as np
from report import RESULTS, Figure, Report, parse_parts

sys.path.append(str(Path(__file__).parents[1]))

from bitrank import ITQ, Collection, Index, QueryVectorRanker, SignBits
from bitrank.core.codes import distances
from bitrank.core.metrics import average_precision, precision_at
from experiments.data import load

_ROWS, _QUERIES = 10_000, 1000
_SETS = ("digits", "mnist", "banking77")
_MIXED = ("digits", "mnist", "cifar10", "banking77")


def halves(name: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Vectors and labels of the items, and of queries that are not among them."""
    data = load(name)
    items, asked = np.array_split(np.random.default_rng(seed).permutation(len(data.y)), 2)
    items, asked = items[:_ROWS], asked[:_QUERIES]
    return data.X[items], data.y[items], data.X[asked], data.y[asked]


def hasher_of(name: str) -> ITQ | SignBits:
    """The hasher of docs/learning.md's table."""
    return SignBits() if name == "banking77" else ITQ(64, random_state=0)


def figures(collection_codes: np.ndarray, queries: object, relevant: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Average precision and P@10 of every query, by the distances of all items."""
    maps, precisions = [], []
    for part in np.array_split(np.arange(len(relevant)), max(1, len(relevant) // 250)):
        near = distances(queries.codes[part], collection_codes, queries.weights[part]).astype(np.float32)
        maps.append(average_precision(near, relevant[part]))
        precisions.append(precision_at(near, relevant[part], 10))
    return np.concatenate(maps), np.concatenate(precisions)


def glued(report: Report, options: argparse.Namespace) -> None:
    """The one object beside its parts."""
    for name in options.sets or _SETS:
        for seed in options.seeds:
            X, y, Q, wanted = halves(name, seed)
            collection = Collection.from_vectors(X, hasher=hasher_of(name), random_state=seed)
            plain = collection.search(Q).ids
            start = time.perf_counter()
            collection.learn(labels=y)
            seconds = time.perf_counter() - start
            found = collection.queries_for(Q)
            hasher = hasher_of(name).fit(X)
            codes, index = hasher.transform(X), Index(hasher.transform(X), n_bits=hasher.n_bits_)
            ranker = QueryVectorRanker(random_state=seed)
            ranker.fit(codes, y, queries=hasher.project(X), features=X, collection=index)
            by_hand = ranker.queries_for(hasher.project(Q), features=Q, collection=index)
            relevant = wanted[:, None] == y
            map_, p10 = (values.mean() for values in figures(codes, found, relevant))
            hand_map, hand_p10 = (values.mean() for values in figures(codes, by_hand, relevant))
            report.add(
                f"{name}, seed {seed}",
                map=map_,
                p10=p10,
                plain_p10=(y[plain] == wanted[:, None]).mean(),
                seconds=seconds,
                map_below_glued=Figure(hand_map - map_, most=0.005),
                p10_below_glued=Figure(hand_p10 - p10, most=0.005),
            )


def mixed(report: Report, options: argparse.Namespace) -> None:
    """Half of the classes without labels."""
    for name in options.sets or _MIXED:
        for side in (0, 1):
            rows = []
            for seed in options.seeds:
                X, y, Q, wanted = halves(name, seed)
                classes = np.random.default_rng(seed).permutation(np.unique(y))
                taught = np.array_split(classes, 2)[side]
                collection = Collection.from_vectors(X, hasher=hasher_of(name), random_state=seed)
                relevant = wanted[:, None] == y
                codes, before = collection.codes(), figures(collection.codes(), collection.queries_for(Q), relevant)
                known = np.isin(y, taught)
                collection.learn(labels=[int(label) if k else None for label, k in zip(y, known, strict=True)])
                after, seen = figures(codes, collection.queries_for(Q), relevant), np.isin(wanted, taught)
                row = {}
                for group, some in (("seen", seen), ("new", ~seen)):
                    for figure, new, old in zip(("map", "p10"), after, before, strict=True):
                        row[f"{group}_{figure}"] = float((new - old)[some].mean())
                rows.append(row)
                report.add(f"{name}, side {side}, seed {seed}", **row)
            mean = {key: fmean(row[key] for row in rows) for key in rows[0]}
            for key in ("new_map", "new_p10"):
                mean[key] = Figure(mean[key], least=-0.01)
            report.add(f"{name}, side {side}", **mean)


def save(report: Report, options: argparse.Namespace) -> None:
    """A small change of a large collection."""
    rng = np.random.default_rng(0)
    n, n_dimensions = options.rows, 384
    X = rng.normal(size=(n, n_dimensions)).astype(np.float32)
    collection = Collection.from_vectors(X)
    calls, flush = [], os.fsync
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        collection.save(f"{folder}/a")
        full = time.perf_counter() - start
        os.fsync = lambda handle: (lambda begun: (flush(handle), calls.append(time.perf_counter() - begun)))(
            time.perf_counter()
        )
        added, saved, synced, whole = [], [], [], []
        for turn in range(options.rounds):
            start = time.perf_counter()
            collection.add(X[turn * 10 : turn * 10 + 10])
            middle = time.perf_counter()
            calls.clear()
            collection.save(f"{folder}/a")
            added.append(middle - start)
            whole.append(time.perf_counter() - middle)
            saved.append(whole[-1] - sum(calls))
            synced.append(len(calls))
        os.fsync = flush
        start = time.perf_counter()
        assert len(Collection.load(f"{folder}/a")) == n + 10 * options.rounds
        report.add(
            f"Collection, {n} rows of 384 bits",
            full_save_s=full,
            load_ms=(time.perf_counter() - start) * 1e3,
            add_ms=median(added) * 1e3,
            save_ms=median(whole) * 1e3,
            save_ms_without_fsync=Figure(median(saved) * 1e3, most=10),
            fsyncs=Figure(max(synced), most=3),
        )
        turbovec_sync(report, X, folder, options.rounds)


def turbovec_sync(report: Report, X: np.ndarray, folder: str, rounds: int) -> None:
    """The same in turbovec, whose index writes what changed."""
    try:
        import turbovec
    except ImportError:
        print("turbovec is not installed: no row of it")
        return
    index = turbovec.IdMapIndex(dim=X.shape[1], bit_width=2)
    index.add_with_ids(X, np.arange(len(X), dtype=np.uint64))
    path = f"{folder}/turbovec.tvim"
    start = time.perf_counter()
    index.write(path)
    full = time.perf_counter() - start
    times = []
    for turn in range(rounds):
        ids = np.arange(len(X) + 10 * turn, len(X) + 10 * turn + 10, dtype=np.uint64)
        index.add_with_ids(X[turn * 10 : turn * 10 + 10], ids)
        start = time.perf_counter()
        (index.sync if hasattr(index, "sync") else index.write)(path)
        times.append(time.perf_counter() - start)
    report.add("turbovec, 2 bits per dimension", full_save_s=full, save_ms=median(times) * 1e3)


PARTS = {"glued": glued, "mixed": mixed, "save": save}


def main() -> None:
    """Run the parts that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parse_parts(parser, PARTS)
    for part in options.parts or PARTS:
        report = Report(part)
        PARTS[part](report, options)
        report.summarize()
        report.save(RESULTS / "collection.json")


if __name__ == "__main__":
    main()
