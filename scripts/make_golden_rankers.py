"""Write the golden files of hashers, rankers and reports to tests/golden.

A file of each class with its answers, and what the gate said in thirty seeded fits. Keep the files of a format once it
was released; write them anew only when a change of what is learned is meant: `python scripts/make_golden_rankers.py`.
"""

from __future__ import annotations

import inspect
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from bitrank.core.codes import pack
from bitrank.core.types import Queries
from bitrank.hashing import HASHERS, hasher_class
from bitrank.ranking import RANKERS, Ranker, ranker_class

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
N_BITS = 13
SMALL = {"n_anchors": 12, "n_steps": 8, "n_hidden": 4, "n_pairs": 60, "n_rows": 40, "n_sweeps": 1, "n_quadruplets": 300}
Data = tuple[Any, Any, Any, Any]
Fit = tuple[str, str, tuple[Any, ...], dict[str, Any]]  # class, method, arguments and keywords


def make(cls: Any, **options: Any) -> Any:
    """A small estimator; options that it does not know are left out."""
    known = inspect.signature(cls).parameters
    return cls(**{name: value for name, value in {**SMALL, "random_state": 0, **options}.items() if name in known})


def data(seed: int, n: int = 240) -> Data:
    """Codes, classes, reals and features, made of whole numbers: the same on every processor."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    bits = rng.integers(2, size=(n, N_BITS))
    bits[:, :4] = np.column_stack([y // 2, y % 2, y // 2, y % 2]) ^ (rng.integers(100, size=(n, 4)) < 15)
    values = (2 * bits - 1) * rng.integers(8, 128, size=(n, N_BITS)) / 64
    features = (y[:, None] == np.arange(4)) + rng.integers(-20, 20, size=(n, 4)) / 64
    return pack(bits), y, values.astype(np.float32), features.astype(np.float32)


def vectors() -> np.ndarray:
    """Vectors to hash, of whole numbers."""
    rng = np.random.default_rng(1)
    return (rng.integers(-64, 64, size=(60, 6)) * np.arange(1, 7) / 64).astype(np.float32)


def answers_of(ranker: Ranker) -> dict[str, np.ndarray]:
    """Codes, weights and trust of some queries that are codes, and of some that are reals."""
    codes, _, values, _ = data(99, n=12)
    collection = data(98)[0]
    found = {}
    for kind, asked in (("codes", codes), ("reals", values)):
        queries: Queries = ranker.queries_for(asked, collection=collection)
        found |= {f"{kind}-{name}": a for name, a in queries._asdict().items() if a is not None}
    return found


def make_ranker(name: str) -> Ranker:
    """The ranker of a golden file."""
    codes, y, values, features = data(0)
    ranker = make(ranker_class(name), n_bits=N_BITS)
    with_features = {"features": features} if "features" in ranker.learns_from else {}
    ranker.fit(codes, y, queries=values, **with_features)
    return ranker


def fits() -> dict[str, Fit]:
    """Thirty fits by name."""
    cases: dict[str, Fit] = {}
    for seed in range(3):
        codes, y, values, features = data(seed)
        rng = np.random.default_rng(seed)
        relevant = rng.integers(240, size=(400, 2))
        relevant = relevant[y[relevant[:, 0]] == y[relevant[:, 1]]]
        pairs = np.column_stack([relevant, np.ones(len(relevant), np.int64)])
        triplets = rng.integers(240, size=(1500, 3))
        far, near = y[triplets[:, 1]] != y[triplets[:, 0]], y[triplets[:, 2]] == y[triplets[:, 0]]
        triplets = triplets[far & near & (triplets[:, 0] != triplets[:, 2])]
        for name in ("RankingSVM", "OnlineRankingSVM", "QueryAdaptiveRanker", "QueryVectorRanker"):
            for kind, queries in (("codes", None), ("reals", values)):
                cases[f"{name}-labels-{kind}-{seed}"] = (name, "fit", (codes, y), {"queries": queries})
        whole = {"queries": values, "features": features}
        cases[f"QueryVectorRanker-pairs-features-{seed}"] = ("QueryVectorRanker", "fit_pairs", (codes, pairs), whole)
        cases[f"RankingSVM-constraints-{seed}"] = ("RankingSVM", "fit_constraints", (codes, triplets), {})
    return cases


def fit(case: Fit) -> Ranker:
    """Learn one of the thirty."""
    name, method, arguments, options = case
    ranker = make(ranker_class(name), n_bits=N_BITS, n_steps=30)
    getattr(ranker, method)(*arguments, **options)
    return ranker


def main() -> None:
    """Write all files."""
    for folder in ("hashers-v1", "rankers-v1"):
        shutil.rmtree(GOLDEN / folder, ignore_errors=True)
        (GOLDEN / folder).mkdir()
    X, y = vectors(), np.arange(60) % 3
    codes = {}
    for name in HASHERS:
        hasher = make(hasher_class(name), n_bits=5).fit(X, y)
        hasher.save(GOLDEN / "hashers-v1" / f"{name}.npz")
        codes[name] = hasher.transform(X)
    np.savez_compressed(GOLDEN / "hashers-v1-answers.npz", **codes)
    answers = {}
    for name in RANKERS:
        ranker = make_ranker(name)
        ranker.save(GOLDEN / "rankers-v1" / f"{name}.npz")
        answers |= {f"{name}-{key}": array for key, array in answers_of(ranker).items()}
    np.savez_compressed(GOLDEN / "rankers-v1-answers.npz", **answers)
    reports = {name: as_table(fit(case).report_) for name, case in fits().items()}
    lines = [f"{json.dumps(name)}: {json.dumps(report, separators=(',', ':'))}" for name, report in reports.items()]
    (GOLDEN / "reports.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def as_table(report: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """A report as names and rows, figures with six digits; null where a line has no such entry."""
    names = list(dict.fromkeys(name for line in report for name in line))
    values = ([line.get(name) for name in names] for line in report)
    return {"names": names, "rows": [[round(v, 6) if isinstance(v, float) else v for v in row] for row in values]}


if __name__ == "__main__":
    main()
