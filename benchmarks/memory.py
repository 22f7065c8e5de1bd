"""What a memory of judged queries gains, what it costs, and what opens its gate, each figure beside its bar.

`python benchmarks/memory.py [sets] [both] [shuffled] [speed]` runs these parts, or all, writes one section per part to
benchmarks/results/memory.json, and writes the table of docs/memory.md from it. Data: docs/data.md, in BITRANK_DATA or
--data.

nDCG@10 with gains 2^grade − 1 of queries that nobody judged: the test part of NFCorpus; halves of the queries of
Cranfield and CISI by seed; queries of banking77, of which judged ones name ten random items of their intent. "sets"
and "shuffled" learn the memory alone, "both" the vector as well, as `Collection.learn(pairs=)` does.
"""

import argparse
import copy
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from report import RESULTS, Figure, Report, parse_parts, read_results

from bitrank import Collection
from bitrank.collection import remembering
from bitrank.collection.learning import Taught

sys.path.append(str(Path(__file__).parents[1]))

from experiments.datasets.files import data_folder

SETS = ("nfcorpus", "cranfield", "cisi", "banking77")
SIZES = {"nfcorpus": (10, 50, 200, None), "cranfield": (10, 50, None), "cisi": (10, None), "banking77": (50, 200, 600)}
NEAR = (0.9, 0.8)  # cosines of near-copies
LEAST_GAIN = {"cranfield": 0.02, "cisi": 0.005, "banking77": 0.01}
MOST_LOSS = {"nfcorpus": 0.04}
PAGE = Path(__file__).parents[1] / "docs" / "memory.md"
MARK = "<!-- figures of make bench-memory -->"


class Run(NamedTuple):
    """Judged pairs (query, item, grade), and queries to ask with the worth of every item."""

    pairs: np.ndarray
    asked: np.ndarray
    worth: np.ndarray


class Data:
    """Items and queries as vectors, a collection of the items, and the splits of what was judged."""

    def __init__(self, folder: Path, name: str, bits: float) -> None:
        self.name, self.stored = name, np.load(folder / f"{name}_minilm.npz")
        banking = name == "banking77"
        self.items, self.queries = (
            unit(self.stored[n]) for n in (("x_train", "x_test") if banking else ("docs", "queries"))
        )
        self.collection = Collection.from_vectors(self.items, bits=bits, random_state=0)

    def run(self, seed: int, n: int | None = None) -> Run:
        """One split, with n judged queries or all."""
        rng = np.random.default_rng(seed)
        if self.name == "banking77":
            order, y = rng.permutation(len(self.queries)), self.stored["y_train"]
            intents, asked = self.stored["y_test"], order[600:1600]
            of = {intent: np.flatnonzero(y == intent) for intent in np.unique(y)}
            lists = [(q, i, 1) for q in order[: n or 600] for i in rng.choice(of[intents[q]], 10, replace=False)]
            return Run(np.array(lists), asked, (intents[asked][:, None] == y).astype(float))
        judged = self.stored["judgements"].astype(np.int64)
        judged = judged[judged[:, 2] > 0]
        if self.name == "nfcorpus":
            part = self.stored["part"][judged[:, 0]]
            known, test = judged[part == "train"], judged[part == "test"]
            order = rng.permutation(np.unique(known[:, 0]))
        else:
            judged[:, 2] = 1
            order = rng.permutation(np.unique(judged[:, 0]))
            order, others = order[: len(order) // 2], order[len(order) // 2 :]
            known, test = judged[np.isin(judged[:, 0], order)], judged[np.isin(judged[:, 0], others)]
        asked = np.unique(test[:, 0])
        worth = np.zeros((len(asked), len(self.items)))
        worth[np.searchsorted(asked, test[:, 0]), test[:, 1]] = np.exp2(test[:, 2]) - 1
        return Run(known[np.isin(known[:, 0], order[:n])], asked, worth)

    def ndcg(self, collection: Collection, run: Run) -> float:
        """nDCG@10 of the queries to ask."""
        found = collection.search(self.queries[run.asked], 10).ids
        discounts = 1 / np.log2(np.arange(2, 12))
        best = -np.sort(-run.worth, axis=1)[:, :10] @ discounts
        return float(np.mean(np.take_along_axis(run.worth, found, 1) @ discounts / best))

    def judged(self, run: Run, seed: int) -> tuple[Collection, Any]:
        """A collection that learned the memory alone, and what its gate found."""
        collection = copy.copy(self.collection)
        queries, rows = np.unique(run.pairs[:, 0], return_inverse=True)
        taught = Taught(np.column_stack([rows, run.pairs[:, 1:]]), [])
        vectors, moment = self.queries[queries], collection._moment
        codes = collection.hasher.transform(vectors)  # type: ignore[union-attr]
        judgements = remembering.judged_pairs(moment, moment, codes, taught, None)
        plain = moment.linear(moment.plain(None, vectors))
        found = remembering.judge(moment, judgements, taught, plain, False, seed)
        if found.offset is not None:
            collection._change_memory(remembering.change_of(judgements, judged=True))
            collection._use("pairs", None, {"memory": found.offset})
        return collection, found


def unit(X: np.ndarray) -> np.ndarray:
    """Vectors of length one."""
    X = X.astype(np.float32)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def exchanged(run: Run, share: float, rng: np.random.Generator) -> Run:
    """The lists of a share of the judged queries, exchanged among these."""
    queries = np.unique(run.pairs[:, 0])
    some = rng.permutation(queries)[: max(2, round(share * len(queries)))]
    to = dict(zip(queries.tolist(), queries.tolist(), strict=True))
    to |= dict(zip(some.tolist(), rng.permutation(some).tolist(), strict=True))
    pairs = run.pairs.copy()
    pairs[:, 0] = [to[query] for query in pairs[:, 0].tolist()]
    return run._replace(pairs=pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))])


def without_near(data: Data, run: Run, cosine: float) -> Run:
    """Without judged queries that are near-copies of one to ask."""
    queries = np.unique(run.pairs[:, 0])
    near = queries[(data.queries[queries] @ data.queries[run.asked].T).max(axis=1) >= cosine]
    return run._replace(pairs=run.pairs[~np.isin(run.pairs[:, 0], near)])


def gains(data: Data, runs: Iterator[tuple[int, Run]]) -> list[tuple[float, float, Any]]:
    """Plain nDCG@10, gain and verdict of some runs."""
    out = []
    for seed, run in runs:
        collection, found = data.judged(run, seed)
        plain = data.ndcg(data.collection, run)
        out.append((plain, 0.0 if found.offset is None else data.ndcg(collection, run) - plain, found))
    return out


def sets(report: Report, load: Any, seeds: range) -> None:
    """Gains of the memory alone, by set and number of judged queries, with 30 % of the lists wrong, without copies."""
    for name, bits in (*((name, 1) for name in SETS), ("nfcorpus", 4)):
        data = load(name, bits)
        for n in SIZES[name]:
            whole = n is None or (name, n) == ("banking77", 600)
            if bits == 4 and not whole:
                continue
            some = seeds[:1] if name == "nfcorpus" and whole else seeds
            honest = gains(data, ((seed, data.run(seed, n)) for seed in some))
            gain = float(np.mean([each[1] for each in honest]))
            chosen = [
                next(line for line in f.lines if line["offset"] == f.offset)
                for _, _, f in honest
                if f.offset is not None
            ]
            loss = float(np.mean([line["loss"] for line in chosen])) if chosen else 0.0
            wrong = gains(data, ((s, exchanged(data.run(s, n), 0.3, np.random.default_rng(s))) for s in some))
            figures: dict[str, Figure | float] = {
                "plain": float(np.mean([each[0] for each in honest])),
                "gain": Figure(gain, least=LEAST_GAIN.get(name, -np.inf)) if whole else gain,
                "least gain": Figure(min(each[1] for each in honest), least=0.0 if whole else -0.002),
                "accepted": len(chosen) / len(honest),
                "loss of unnamed": Figure(loss, most=MOST_LOSS.get(name, 0.01)),
                "gain, 30 % wrong": Figure(float(np.mean([e[1] for e in wrong])), least=gain / 2)
                if whole
                else float(np.mean([e[1] for e in wrong])),
            }
            if whole:
                for cosine in NEAR:
                    far = gains(data, ((s, without_near(data, data.run(s, n), cosine)) for s in some))
                    figures[f"gain without copies from {cosine}"] = float(np.mean([e[1] for e in far]))
            report.add(
                f"{name}, {n or 'all'} queries, {bits} bit{'s' if bits > 1 else ''}", **figures, runs=len(honest)
            )


def both(report: Report, load: Any, seeds: range) -> None:
    """The vector and the memory, as `Collection.learn(pairs=)` chooses among them."""
    for name, bits, n_seeds, least in (
        ("nfcorpus", 1, 1, 0.345),
        ("cranfield", 1, 1, -np.inf),
        ("cisi", 1, 1, -np.inf),
    ):
        data, rows = load(name, bits), []
        for seed in seeds[:n_seeds]:
            run, collection = data.run(seed), copy.copy(data.collection)
            start = time.perf_counter()
            learned = collection.learn(pairs=run.pairs, queries=data.queries).learned
            memory = learned.memory or {}  # type: ignore[union-attr]
            held_out = {line["use"]: line["ndcg10"] for line in memory["together"]}
            if held_out:
                held_out["both"] = max(line["ndcg10"] for line in memory["together"] if line["use"] == "both")
            rows.append(
                (data.ndcg(data.collection, run), data.ndcg(collection, run), time.perf_counter() - start, held_out)
            )
            print(name, seed, memory["use"], rows[-1], flush=True)
        known = [row[3] for row in rows if row[3]]  # where the vector was accepted, all four were compared
        figures = (
            {f"held out, {use}": float(np.mean([each[use] for each in known])) for use in known[0]} if known else {}
        )
        ndcg = float(np.mean([row[1] for row in rows]))
        figures["plain"] = float(np.mean([row[0] for row in rows]))
        figures["seconds"] = float(np.mean([row[2] for row in rows]))
        least_gain = Figure(min(row[1] - row[0] for row in rows), least=0.0)
        report.add(f"{name}, {bits} bit", learned=Figure(ndcg, least=least), least_gain=least_gain, **figures)


def shuffled(report: Report, load: Any, seeds: range) -> None:
    """How often exchanged lists open the gate, from ten judged queries to all."""
    opened, n_runs, worst = 0, 0, 0.0
    for name in SETS:
        data = load(name, 1)
        for n in SIZES[name]:
            runs = ((seed, exchanged(data.run(seed, n), 1.0, np.random.default_rng(seed))) for seed in seeds)
            found = gains(data, runs)
            count = sum(f.offset is not None for _, _, f in found)
            opened, n_runs, worst = opened + count, n_runs + len(found), min(worst, *(g for _, g, _ in found))
            report.add(f"{name}, {n or 'all'} queries", opened=count, runs=len(found))
    report.add("all", refused=Figure(1 - opened / n_runs, least=0.98), worst_gain=worst, runs=n_runs)


def speed(report: Report, load: Any, seeds: range) -> None:
    """Microseconds per query with a memory and without, interleaved."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3000, 384))
    items, judged, asked = (
        centres[rng.integers(3000, size=n)] + rng.normal(size=(n, 384)) for n in (59_017, 27_000, 256)
    )
    plain = Collection.from_codes(np.packbits(items > 0, axis=1))
    memory = copy.copy(plain)
    memory.remember(judged, rng.integers(59_017, size=(27_000, 3)).tolist(), query_ids=list(range(27_000)))
    memory._use("pairs", None, {"memory": 0.0})
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(15):
        for batch in (1, 256):
            for name, collection in (("plain", plain), ("memory", memory)):
                start = time.perf_counter()
                for first in range(0, 256, batch):
                    collection.search(asked[first : first + batch], 10, threads=1)
                times.setdefault((name, batch), []).append((time.perf_counter() - start) / 256 * 1e6)
    for batch, most in ((1, 2.0), (256, 1.8)):
        before, after = (float(np.median(times[name, batch])) for name in ("plain", "memory"))
        report.add(f"batch of {batch}", plain_us=before, memory_us=after, ratio=Figure(after / before, most=most))


def write_table() -> None:
    """Write the figures of "sets" and "both" into the page."""
    stored, lines = read_results(RESULTS / "memory.json"), []

    def value(row: dict[str, Any], key: str) -> str:
        figure = row.get(key, "")
        figure = figure["value"] if isinstance(figure, dict) else figure
        return "" if figure == "" else f"{figure:.3f}"

    columns = (
        "plain",
        "gain",
        "least gain",
        "accepted",
        "loss of unnamed",
        "gain, 30 % wrong",
        "gain without copies from 0.9",
    )
    lines += ["| memory alone | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, row in stored.get("sets", {}).get("rows", {}).items():
        lines.append(f"| {name} | " + " | ".join(value(row, column) for column in columns) + " |")
    columns = ("plain", "learned", "held out, neither", "held out, vector", "held out, memory", "held out, both")
    lines += ["", "| `learn(pairs=)` | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, row in stored.get("both", {}).get("rows", {}).items():
        lines.append(f"| {name} | " + " | ".join(value(row, column) for column in columns) + " |")
    before, _, after = PAGE.read_text(encoding="utf-8").split(MARK)
    PAGE.write_text(f"{before}{MARK}\n" + "\n".join(lines) + f"\n{MARK}{after}", encoding="utf-8")


PARTS = {"sets": sets, "both": both, "shuffled": shuffled, "speed": speed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the data sets (default: BITRANK_DATA)")
    parser.add_argument("--seeds", type=int, default=10)
    options = parse_parts(parser, PARTS)
    load = cache(lambda name, bits: Data(options.data or data_folder(), name, bits))
    for part in options.parts or PARTS:
        report = Report(part)
        PARTS[part](report, load, range(options.seeds))
        report.summarize()
        report.save(RESULTS / "memory.json")
    write_table()


if __name__ == "__main__":
    main()
