"""Can noise open a gate? About 600 fits of every gated ranker and kind of evidence, none of which means anything.

`python benchmarks/noise.py [random] [shuffled]` runs these parts, or both, and writes one section per part to
benchmarks/results/noise.json. "random": random codes with random evidence. "shuffled": codes of MNIST, and of NFCorpus
for pairs, whose evidence is exchanged among the queries; what is popular stays popular. Data: docs/data.md.

A square of 10 sizes (5 to 5000 examples) and 5 lengths of codes (16 to 2048 bits) for each of twelve rankers and kinds;
a third factor, such as the number of classes or of items per query, takes its five levels as in a Latin square. Every
finished fit is a line of build/noise.jsonl, which another run continues from, and the figures are of all finished fits:
`--one-of N`, `--most-bits` and `--most-examples` leave out what takes long, `--workers N` runs N fits at a time.
"""

import argparse
import json
import sys
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from report import RESULTS, Figure, Report, parse_parts, run_parts

from bitrank import Collection, OnlineRankingSVM, QueryVectorRanker, RankingSVM
from bitrank.clicks import LoggedPage
from bitrank.core.codes import signs
from bitrank.hashing import LSH
from bitrank.ranking import QueryAdaptiveRanker

sys.path.append(str(Path(__file__).parents[1]))

SIZES = (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
BITS = (16, 64, 256, 1024, 2048)
LABELS = (RankingSVM, OnlineRankingSVM, QueryAdaptiveRanker, QueryVectorRanker)
CELLS: tuple[tuple[str, Any], ...] = (
    *(("labels", ranker) for ranker in LABELS),
    *(("pairs", ranker) for ranker in (RankingSVM, QueryAdaptiveRanker, QueryVectorRanker)),
    *(("constraints", ranker) for ranker in (RankingSVM, OnlineRankingSVM)),
    *(("clicks", ranker) for ranker in (OnlineRankingSVM, QueryVectorRanker)),
    ("vectors", QueryVectorRanker),
)
N_ITEMS = 1000  # of a collection whose queries are judged
N_CLASSES = (2, 3, 10, 30, 0)  # 0: one row in a hundred is of the class that is looked for
N_LISTED = (1, 2, 5, 20, 54)  # items per query of pairs
MOST_ACCEPTED, MOST_OF_50, MOST_ERRORS = 0.02, 3, 3.0


class Case(NamedTuple):
    """One fit: what it learns from, how much of it, the bits, a level of the third factor, and real codes or none."""

    kind: str
    ranker: Any
    n: int
    n_bits: int
    level: int
    real: bool

    @property
    def name(self) -> str:
        """The case in words."""
        return f"{self.kind} {self.ranker.__name__} {self.n} {self.n_bits}"

    @property
    def seed(self) -> int:
        """A seed of its own."""
        return zlib.crc32(f"{self.name} {self.real}".encode())


def cases(real: bool) -> Iterator[Case]:
    """The square, small fits first."""
    for place, n in enumerate(SIZES):
        for row, n_bits in enumerate(BITS):
            for kind, ranker in CELLS:
                yield Case(kind, ranker, n, n_bits, (place + row) % 5, real)


def fit(case: Case) -> tuple[bool, float, float]:
    """Learn from noise; return whether that was accepted, with the reported gain and its error."""
    random = np.random.default_rng(case.seed)
    ranker = case.ranker(n_bits=case.n_bits)
    if "random_state" in ranker.get_params():
        ranker.set_params(random_state=case.seed % 2**31)
    if case.kind == "clicks" and case.ranker is QueryVectorRanker:
        collection = learn_pages(case, ranker, random)
        learned = collection.report().learned
        assert learned is not None
        return learned.accepted, learned.gate.gain, learned.gate.gain_error
    {"labels": labels, "pairs": pairs, "constraints": constraints, "clicks": stream, "vectors": vectors}[case.kind](
        case, ranker, random
    )
    parts = [getattr(ranker, name) for name in ("bits_part_", "reals_part_", "full_part_") if hasattr(ranker, name)]
    accepted = ranker.blend_ > 0 or any(part.blend > 0 for part in parts)
    return accepted, ranker.report_.gain, ranker.report_.gain_error


def labels(case: Case, ranker: Any, random: np.random.Generator) -> None:
    codes, values, y = items(case, case.n, random)
    n_classes = N_CLASSES[case.level]
    if not case.real and n_classes:
        y = random.integers(n_classes, size=case.n)
    elif not case.real or n_classes == 0:
        y = (np.arange(case.n) < max(2, case.n // 100)).astype(int)
    y = random.permutation(y)
    y[:2] = y.min(), y.max() if y.max() > y.min() else y.min() + 1
    ranker.fit(codes, y, queries=values if case.level % 2 else None)


def pairs(case: Case, ranker: Any, random: np.random.Generator) -> None:
    codes, values, judged = judgements(case, random)
    queries = values if case.level % 2 else np.packbits(values > 0, axis=1)
    ranker.fit_pairs(codes, judged, queries=queries)


def constraints(case: Case, ranker: Any, random: np.random.Generator) -> None:
    codes, values, y = items(case, N_ITEMS, random)
    n, level = case.n, case.level
    query, far, near = random.integers(N_ITEMS, size=(3, n))
    if level == 0:  # a few "actives"; all others are dissimilar
        few = random.permutation(N_ITEMS)[: max(3, round(np.sqrt(n)))]
        query, near = random.choice(few, n), random.choice(few, n)
    elif case.real:
        by_class = {c: np.flatnonzero(y == c) for c in np.unique(y)}
        near = np.array([random.choice(by_class[c]) for c in random.permutation(y[query])])
    elif level == 1:  # the same items are similar to all
        near = random.integers(20, size=n)
    rows = np.column_stack([query, far, near, *([random.permutation(near)] if level == 2 else [])])
    ranker.fit_constraints(codes, rows, queries=values if level == 3 else codes[::-1].copy() if level == 4 else None)


def stream(case: Case, ranker: Any, random: np.random.Generator) -> None:
    """Pages of the nearest items and some others, clicked at random, as a stream with a gate."""
    ranker.set_params(hold_out=0.2)
    codes, pages = shown_pages(case, random)
    for query, shown in pages:
        ranker.learn_clicks(query, codes[shown], random.random(len(shown)) < 0.15)
    if not hasattr(ranker, "report_"):  # no page says anything about an order
        ranker.blend_, ranker.report_ = 0.0, type("Empty", (), {"gain": 0.0, "gain_error": 0.0})()


def learn_pages(case: Case, ranker: Any, random: np.random.Generator) -> Collection:
    codes, pages = shown_pages(case, random)
    collection = Collection.from_codes(codes, n_bits=case.n_bits)
    logged = []
    for number, (query, shown) in enumerate(pages):
        clicked = shown[random.random(len(shown)) < 0.15].tolist()
        logged.append(
            LoggedPage(f"p{number}", {"code": query.tobytes().hex()}, shown.tolist(), [False] * len(shown), clicked)
        )
    collection.learn(clicks=logged, ranker=ranker)
    return collection


def shown_pages(case: Case, random: np.random.Generator) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """A collection, and pages of the eight nearest of its items and two others."""
    codes, _, _ = items(case, N_ITEMS, random)
    bits = signs(codes, case.n_bits)
    queries = random.integers(N_ITEMS, size=max(2, case.n // (1, 2, 5, 10, 1)[case.level]))
    pages = []
    for query in np.resize(queries, case.n):
        near = np.argpartition(-bits @ bits[query], 9)[:9]
        shown = np.unique(np.concatenate([near[near != query][:8], random.integers(N_ITEMS, size=2)]))
        pages.append((codes[query], random.permutation(shown)))
    return codes, pages


def vectors(case: Case, ranker: Any, random: np.random.Generator) -> None:
    codes, values, _ = items(case, case.n, random)
    if case.real:
        pixels = random.permutation(mnist_pixels()[: case.n])
    else:
        pixels = random.standard_normal((case.n, (2, 8, 32, 128, 384)[case.level])).astype(np.float32)
    ranker.fit_vectors(codes, pixels, queries=values if case.level % 2 else None)


def items(case: Case, n: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes, their reals and classes: random ones, or those of MNIST."""
    if not case.real:
        values = random.standard_normal((n, case.n_bits)).astype(np.float32)
        return np.packbits(values > 0, axis=1), values, random.integers(10, size=n)
    values, y = hashed_mnist(case.n_bits)
    rows = random.permutation(len(values))[:n]
    return np.packbits(values[rows] > 0, axis=1), values[rows], y[rows]


def judgements(case: Case, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes of items, reals of queries, and pairs: random lists, or those of NFCorpus given to other queries."""
    if case.real:
        documents, queries, judged = hashed_nfcorpus(case.n_bits)
        order = random.permutation(np.unique(judged[:, 0]))
        some = np.concatenate([judged[judged[:, 0] == query] for query in order[: max(2, case.n // 10)]])[: case.n]
        names, places = np.unique(some[:, 0], return_inverse=True)
        some = np.column_stack([places, some[:, 1:]])
        return np.packbits(documents > 0, axis=1), queries[random.permutation(names)], some
    codes, _, _ = items(case, N_ITEMS, random)
    n_queries = max(2, case.n // N_LISTED[case.level])
    values = random.standard_normal((n_queries, case.n_bits)).astype(np.float32)
    popularity = (1 / np.arange(1, N_ITEMS + 1)) ** (case.level % 2)
    chosen = random.choice(N_ITEMS, case.n, p=popularity / popularity.sum())
    judged = np.column_stack([np.arange(case.n) % n_queries, chosen])
    return codes, values, np.unique(judged, axis=0)


@cache
def mnist_pixels() -> np.ndarray:
    from experiments.datasets import mnist

    return mnist()[0][:5000].reshape(5000, -1).astype(np.float32)


@cache
def hashed_mnist(n_bits: int) -> tuple[np.ndarray, np.ndarray]:
    from experiments.datasets import mnist

    pixels = mnist_pixels()
    return LSH(n_bits, random_state=0).fit(pixels).project(pixels).astype(np.float32), mnist()[1][:5000]


@cache
def hashed_nfcorpus(n_bits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    from nfcorpus import NFCorpus

    data = NFCorpus()
    hasher = LSH(n_bits, random_state=0).fit(data.documents)
    documents, queries = (hasher.project(each).astype(np.float32) for each in (data.documents, data.query_vectors))
    return documents, queries, data.pairs


def measure(case: Case) -> dict[str, Any]:
    """One fit as a line of the file."""
    start = time.process_time()
    accepted, gain, error = fit(case)
    line = {"name": case.name, "real": case.real, "accepted": accepted, "gain": gain, "error": error}
    return line | {"seconds": time.process_time() - start}


def run(report: Report, part: str, options: argparse.Namespace) -> None:
    """Run the fits of a part that are not done, and add a row for each ranker and kind."""
    real = part == "shuffled"
    options.file.parent.mkdir(parents=True, exist_ok=True)
    lines = map(json.loads, options.file.read_text().splitlines()) if options.file.exists() else ()
    done = {line["name"]: line for line in lines if line["real"] == real}
    every = list(cases(real))
    chosen = [case for case in every[:: options.one_of] if case.name not in done]
    chosen = [case for case in chosen if case.n <= options.most_examples and case.n_bits <= options.most_bits]
    with options.file.open("a") as file, ProcessPoolExecutor(options.workers) as pool:
        for line in pool.map(measure, chosen):
            done[line["name"]] = line
            file.write(json.dumps(line) + "\n")
            file.flush()
            if line["accepted"]:
                print(f"accepted: {line['name']}, gain {line['gain']:.4f} ± {line['error']:.4f}", flush=True)
    total = []
    for kind, ranker in CELLS:
        names = [case.name for case in every if (case.kind, case.ranker) == (kind, ranker)]
        some = [done[name] for name in names if name in done]
        total += some
        report.add(
            f"{kind}, {ranker.__name__}",
            fits=len(some),
            accepted=Figure(sum(line["accepted"] for line in some), most=MOST_OF_50),
            seconds=sum(line["seconds"] for line in some),
        )
    errors = [line["gain"] / line["error"] for line in total if line["accepted"] and line["error"]]
    report.add(
        "all",
        fits=len(total),
        of=len(every),
        accepted=Figure(float(np.mean([line["accepted"] for line in total])), most=MOST_ACCEPTED),
        largest_gain_in_errors=Figure(max(errors, default=0.0), most=MOST_ERRORS),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one-of", type=int, default=1, help="run every N-th fit (default: all)")
    parser.add_argument("--most-bits", type=int, default=max(BITS))
    parser.add_argument("--most-examples", type=int, default=max(SIZES))
    parser.add_argument("--workers", type=int, default=1, help="fits at a time (default: %(default)s)")
    parser.add_argument("--file", type=Path, default=Path("build/noise.jsonl"), help="finished fits")
    options = parse_parts(parser, ("random", "shuffled"))
    run_parts(options.parts, lambda part, report: run(report, part, options), RESULTS / "noise.json")


if __name__ == "__main__":
    main()
