"""Trust per query, and inputs as candidates: QueryVectorRanker where classes are new, and with more information.

`python benchmarks/trust.py [mixed] [information]` runs these parts, or all, prints each figure beside its bar, and
writes one section per part to benchmarks/results/trust.json. Data: docs/data.md.

mixed: the ranker learns half of the classes; queries of all classes search in a collection of all, in both directions.
The collection is named to `fit` and to `queries_for`; "alone" learns from labelled codes only. Rival: the asymmetric
distance. Full trust sets the trust of every query to 1, of the same ranker (`own`) and of the one that learned alone,
which is compared on the seeds of `--alone-seeds`.
information: the same rows with bits alone, with reals as queries, and with features.
MAP and P@10 are expectations over ties; a query does not find itself.
"""

import argparse
import sys
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from report import RESULTS, Figure, Report, parse_parts

sys.path.append(str(Path(__file__).parents[1]))

from bitrank import ITQ, AsymmetricRanker, QueryVectorRanker, SignBits
from bitrank.core.codes import distances
from bitrank.core.metrics import average_precision, precision_at
from bitrank.core.types import Codes, Queries
from bitrank.ranking.evidence.kinds import check_query_rows
from experiments.data import load

_ROWS = 10_000  # to learn from, and in the collection
_QUERIES = 1000
_SETS = ("digits", "mnist", "cifar10", "banking77")
_SIZES = (1000, 6000, 30_000)


class Rows(NamedTuple):
    """Codes of rows, their values before the sign, what else is known of them, and their classes."""

    codes: Codes
    values: np.ndarray
    features: np.ndarray
    y: np.ndarray

    def take(self, rows: np.ndarray) -> "Rows":
        """Some of the rows."""
        return Rows(*(array[rows] for array in self))


def halves(name: str, seed: int) -> tuple[Rows, Rows]:
    """Rows to learn from and rows to search, encoded by a hasher that was fitted to the former."""
    data = load(name)
    learn, search = np.array_split(np.random.default_rng(seed).permutation(len(data.y)), 2)
    hasher = (SignBits() if name == "banking77" else ITQ(64, random_state=seed)).fit(data.X[learn])

    def rows(some: np.ndarray) -> Rows:
        return Rows(hasher.transform(data.X[some]), hasher.project(data.X[some]), data.features[some], data.y[some])

    return rows(learn), rows(search[:_ROWS])


def figures(queries: Queries, items: Rows, asked: np.ndarray) -> np.ndarray:
    """Average precision and P@10 of some of the items as queries."""
    parts = []
    for part in np.array_split(np.arange(len(asked)), max(1, len(asked) // 250)):
        to_all = distances(queries.codes[part], items.codes, queries.weights[part]).astype(np.float32)
        relevant = items.y[asked[part]][:, None] == items.y
        itself = np.arange(len(part)), asked[part]
        to_all[itself], relevant[itself] = np.inf, False
        parts.append([average_precision(to_all, relevant), precision_at(to_all, relevant, 10)])
    return np.concatenate(parts, axis=1)


def fully_trusted(ranker: QueryVectorRanker, values: np.ndarray) -> Queries:
    """Queries with a trust of 1."""
    rows = check_query_rows(values, ranker.n_bits_)
    return ranker._vectors_for(rows, None, np.ones(len(values), np.float32))


def one_split(name: str, seed: int, side: int, with_alone: bool) -> dict[str, float]:
    """Gains over the asymmetric distance when one half of the classes was learned."""
    learn, items = halves(name, seed)
    classes = np.random.default_rng(seed).permutation(np.unique(learn.y))
    taught = np.array_split(classes, 2)[side]
    learn = learn.take(np.flatnonzero(np.isin(learn.y, taught))[:_ROWS])
    asked = np.random.default_rng(seed + 7).permutation(len(items.y))[:_QUERIES]
    values, seen = items.values[asked], np.isin(items.y[asked], taught)
    others = np.delete(items.codes, asked, axis=0)
    ranker = QueryVectorRanker(random_state=seed).fit(learn.codes, learn.y, queries=learn.values, collection=others)
    rival = figures(AsymmetricRanker().fit(learn.codes, learn.y).queries_for(values), items, asked)
    rankings = {"": ranker.queries_for(values, collection=items.codes), "own_full_": fully_trusted(ranker, values)}
    row: dict[str, float] = {"blend": ranker.blend_}
    if with_alone:
        alone = QueryVectorRanker(random_state=seed).fit(learn.codes, learn.y, queries=learn.values)
        row["alone_blend"] = alone.blend_
        rankings["alone_"] = alone.queries_for(values, collection=items.codes)
        rankings["alone_full_"] = fully_trusted(alone, values)
    for label, queries in rankings.items():
        gains = figures(queries, items, asked) - rival
        for group, some in (("seen", seen), ("new", ~seen)):
            for figure, values_of in zip(("map", "p10"), gains, strict=True):
                row[f"{label}{group}_{figure}"] = float(values_of[some].mean())
    return row


def mixed(report: Report, options: argparse.Namespace) -> None:
    for name in options.sets:
        for side in (0, 1):
            rows = []
            for seed in options.seeds:
                rows.append(one_split(name, seed, side, seed in options.alone_seeds))
                report.add(f"{name}, side {side}, seed {seed}", **rows[-1])
            with_alone = [row for row in rows if "alone_blend" in row]
            row: dict[str, Any] = {key: fmean(row[key] for row in rows) for key in rows[-1]}
            for figure in ("map", "p10"):
                row[f"new_{figure}"] = Figure(row[f"new_{figure}"], least=-0.01)
            row["kept_of_own_full"] = Figure(row["seen_map"] / row["own_full_seen_map"], least=0.75)
            if with_alone:
                row |= {key: fmean(row[key] for row in with_alone) for key in with_alone[0] if key.startswith("alone")}
                kept = fmean(row["seen_map"] for row in with_alone) / row["alone_full_seen_map"]
                row["kept_of_alone_full"] = Figure(kept, least=0.75)
            report.add(f"{name}, side {side}", **row)


def information(report: Report, options: argparse.Namespace) -> None:
    for name in (some for some in options.sets if some != "digits"):
        for size in _SIZES:
            rows = []
            for seed in options.seeds:
                learn, items = halves(name, seed)
                if len(learn.y) < size:
                    continue
                learn = learn.take(np.arange(size))
                asked = np.random.default_rng(seed + 7).permutation(len(items.y))[:_QUERIES]
                query = items.take(asked)
                row = {}
                for label, given, more in (
                    ("bits", None, None),
                    ("reals", learn.values, None),
                    ("features", None, learn.features),
                ):
                    ranker = QueryVectorRanker(random_state=seed)
                    ranker.fit(learn.codes, learn.y, queries=given, features=more)
                    queries = ranker.queries_for(
                        query.codes if given is None else query.values,
                        features=None if more is None else query.features,
                        collection=items.codes,
                    )
                    row[f"{label}_map"], row[f"{label}_p10"] = figures(queries, items, asked).mean(axis=1)
                rows.append(row)
            if not rows:
                continue
            mean: dict[str, Any] = {key: fmean(row[key] for row in rows) for key in rows[0]}
            for label in ("reals", "features"):
                for figure in ("map", "p10"):
                    gain = mean[f"{label}_{figure}"] - mean[f"bits_{figure}"]
                    mean[f"{label}_{figure}_over_bits"] = Figure(gain, least=-0.005)
            report.add(f"{name}, {size} rows", **mean)


PARTS = {"mixed": mixed, "information": information}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--alone-seeds", type=int, nargs="*", default=[0], help="seeds that also learn alone")
    parser.add_argument("--sets", nargs="+", choices=_SETS, default=_SETS)
    parser.add_argument("--output", type=Path, default=RESULTS / "trust.json")
    options = parse_parts(parser, PARTS)
    for part in options.parts:
        report = Report(part)
        PARTS[part](report, options)
        report.save(options.output)


if __name__ == "__main__":
    main()
