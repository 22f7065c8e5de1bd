"""One query of a few examples: molecules, digits, intents and documents, and what others do with the same examples.

`python benchmarks/examples.py [tanimoto] [molecules] [others] [hashes] [speed]` runs these parts, or all, and writes
one section per part to benchmarks/results/examples.json.

tanimoto: million fingerprints of 1024 bits per second and core, ten nearest, exact, beside FPSim2 and USearch.

molecules: targets of the public repository rdkit/benchmarking_platform (S. Riniker and G. Landrum, 2013), whose folders
`compounds` and `query_lists` lie below BITRANK_DATA/molecules, as fingerprints of RDKit (ECFP4, 1024 bits). Every list
names 5, 10 or 20 actives; 1000 of its decoys are the background; all that the list does not name is ranked. EF1 is the
enrichment among the first percent, BEDROC that of J.-F. Truchon and C. Bayly (2007) with α = 20.
others: MNIST (ITQ, 64 bits), banking77 and NFCorpus (sign bits) with 1, 3, 5 and 10 examples of a class, or documents
relevant to a query; P@10 and MAP of what is left.
hashes: perceptual hashes (64 bits, by DCT) of CIFAR-10 pictures and of edited copies; the share of the copies that is
found at .01, .1 and 1 false matches per query, plain and by weights from the edits of other pictures.
speed: seconds of a query of 10 examples and 1000 rows of 1024 bits, with its leave-one-out and without.
"""

import argparse
import gzip
import pickletools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from nfcorpus import NFCorpus
from report import RESULTS, Figure, Report, parse_parts, run_parts, timed
from scipy.fft import dctn
from sklearn.linear_model import LogisticRegression
from splits import banking_parts, make_hasher, mnist_halves

from bitrank import Index, RankingSVM
from bitrank.core.codes import distances, hamming, signs, unpack
from bitrank.core.lazy import import_extra
from bitrank.core.metrics import average_precision, precision_at
from bitrank.duplicates import false_matches, log_odds_weights
from bitrank.ranking.examples import query_from, solve
from experiments.datasets import cifar10
from experiments.datasets.files import data_folder

N_BITS, N_BACKGROUND, N_LISTS = 1024, 1000, 3
N_COPIES = 50
N_ACTIVES, N_EXAMPLES = (5, 10, 20), (1, 3, 5, 10)
TARGETS = (11225, 28, 8, 12670, 25, 130, 20174, 116, 12679, 237, 10498, 100579, 10752, 10927, 11279, 12840)
MOST_BELOW, MOST_BELOW_TANIMOTO = 0.005, 0.01
MOST_S, MOST_S_JUDGED = 0.05, 0.25


def molecules(report: Report) -> None:
    """Rank what a list of actives and decoys leaves."""
    folder = data_folder() / "molecules"
    if not (folder / "compounds").is_dir():
        raise SystemExit(
            f"{folder} must hold the folders compounds and query_lists of "
            "https://github.com/rdkit/benchmarking_platform, see docs/data.md"
        )
    decoys = fingerprints(folder / "compounds/ChEMBL/cmp_list_ChEMBL_zinc_decoys.dat.gz")
    by_target: dict[tuple[str, int], list[list[tuple[float, ...]]]] = {}
    for target in TARGETS:
        actives = fingerprints(folder / f"compounds/ChEMBL/cmp_list_ChEMBL_{target}_actives.dat.gz")
        for n in N_ACTIVES:
            path = folder / f"query_lists/data_sets_I/ChEMBL/training_ChEMBL_{target}_{n}.pkl"
            with path.open("rb") as file:
                lists = [np.array(next(whole_numbers(file))) for _ in range(N_LISTS)]
            figures: dict[str, list[tuple[float, ...]]] = {}
            for chosen in lists:
                named, background = chosen[:n], chosen[n : n + N_BACKGROUND]
                rest = np.delete(actives, named, axis=0), np.delete(decoys, chosen[n:], axis=0)
                items, relevant = np.concatenate(rest), np.repeat([True, False], [len(part) for part in rest])
                for name, to_items in ways(actives[named], decoys[background], items).items():
                    figures.setdefault(name, []).append(screening(to_items, relevant))
            for name, rows in figures.items():
                by_target.setdefault((name, n), []).append(rows)
    for n in N_ACTIVES:
        mean = {name: np.mean(rows, axis=(0, 1)) for (name, size), rows in by_target.items() if size == n}
        least = mean["logistic regression"] - MOST_BELOW
        for name, values in mean.items():
            bars = least if name == "examples" else np.full(3, -np.inf)
            row = {key: Figure(*pair) for key, *pair in zip(("auc", "ef1", "bedroc"), values, bars, strict=True)}
            report.add(f"{n} actives, {name}", **row)
    ours, theirs = (np.mean([by_target[way, n] for n in N_ACTIVES], axis=(0, 2)) for way in ("examples", "Tanimoto"))
    worst = (ours - theirs)[:, [0, 2]].min(axis=0)
    keys = "auc_above_tanimoto", "bedroc_above_tanimoto"
    least_of_targets = {key: Figure(value, least=-MOST_BELOW_TANIMOTO) for key, value in zip(keys, worst, strict=True)}
    report.add("the worst target", **least_of_targets, targets=len(TARGETS))


def ways(right: np.ndarray, background: np.ndarray, items: np.ndarray) -> dict[str, np.ndarray]:
    """Distances of items from examples, by several methods."""
    n_bits = 8 * right.shape[1]
    bits, others, found = (unpack(codes, n_bits).astype(np.float32) for codes in (right, background, items))
    X = np.concatenate([bits, others])
    y = np.repeat([1, 0], [len(bits), len(others)])
    model = LogisticRegression(class_weight="balanced", max_iter=1000).fit(X, y)
    mean, other = bits.mean(axis=0), others.mean(axis=0)
    return {
        "examples": to_examples(query_from(right, None, background, n_bits), items),
        "logistic regression": -model.decision_function(found),
        "Tanimoto": 1 - tanimoto(found, bits),
        "nearest example": hamming(right, items).min(axis=0).astype(np.float64),
        "mean of examples": -((2 * found - 1) @ (2 * mean - 1)),
        "Rocchio": -(found @ (0.75 * mean - 0.15 * other)),
    }


def to_examples(query: Any, items: np.ndarray) -> np.ndarray:
    """Distances of items from a query of examples, as a collection ranks them."""
    if query.kind == "tanimoto":
        n_bits = query.queries.weights.shape[1]
        return 1 - tanimoto(*(unpack(codes, n_bits).astype(np.float32) for codes in (items, query.queries.codes)))
    return distances(query.queries.codes, items, query.queries.weights).min(axis=0).astype(np.float64)


def tanimoto(rows: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Tanimoto similarity of rows to the nearest of some others."""
    common = rows @ right.T
    return (common / np.maximum(rows.sum(axis=1)[:, None] + right.sum(axis=1) - common, 1)).max(axis=1)


def screening(to_items: np.ndarray, relevant: np.ndarray, alpha: float = 20.0) -> tuple[float, float, float]:
    """AUC, enrichment among the first percent, and BEDROC, ties in the order of a fixed draw."""
    order = np.lexsort((np.random.default_rng(0).permutation(len(relevant)), to_items))
    ranks, n = np.flatnonzero(relevant[order]) + 1, len(relevant)
    n_found, share = len(ranks), len(ranks) / n
    auc = 1 - (ranks - np.arange(1, n_found + 1)).mean() / (n - n_found)
    first = int(np.ceil(0.01 * n))
    rie = np.exp(-alpha * ranks / n).sum() / (share * (1 - np.exp(-alpha)) / (np.exp(alpha / n) - 1))
    least = (1 - np.exp(alpha * share)) / (share * (1 - np.exp(alpha)))
    most = (1 - np.exp(-alpha * share)) / (share * (1 - np.exp(-alpha)))
    return float(auc), float((ranks <= first).sum() / first / share), float((rie - least) / (most - least))


def fingerprints(path: Path) -> np.ndarray:
    """ECFP4 fingerprints of the molecules of a file of names, ids and SMILES."""
    chemistry = import_extra("rdkit.Chem", "molecules")
    generators = import_extra("rdkit.Chem.rdFingerprintGenerator", "molecules")
    import_extra("rdkit.RDLogger", "molecules").DisableLog("rdApp.*")
    generator = generators.GetMorganGenerator(radius=2, fpSize=N_BITS)
    with gzip.open(path, "rt") as file:
        smiles = [line.split()[2] for line in file if not line.startswith("#")]
    return np.packbits([generator.GetFingerprintAsNumPy(chemistry.MolFromSmiles(text)) > 0 for text in smiles], axis=1)


_NUMBERS = {"BININT", "BININT1", "BININT2", "INT"}
_OTHERS = {"PROTO", "EMPTY_LIST", "LIST", "BINPUT", "PUT", "MARK", "APPEND", "APPENDS", "STOP"}


def whole_numbers(file: BinaryIO) -> Iterator[list[int]]:
    """Lists of whole numbers in a file of pickles, read without executing any; anything else is an error."""
    while True:
        numbers = []
        for code, value, _ in pickletools.genops(file):
            if code.name in _NUMBERS:
                numbers.append(int(value))
            elif code.name not in _OTHERS:
                raise ValueError(f"pickles must hold lists of whole numbers, got {code.name}")
        yield numbers


def others(report: Report) -> None:
    """Search for what is like some examples of a class, or of the documents relevant to a query."""
    mnist = mnist_halves(make_hasher("ITQ", 64, 0), 0, quick=False)
    banking = banking_parts(new_classes=False)
    corpus = NFCorpus()
    gains = corpus.gains("test") > 0
    sets = {
        "MNIST": (mnist.test_codes, [mnist.test_y == label for label in range(10)] * 5),
        "banking77": (banking.test_codes, [banking.test_y == label for label in np.unique(banking.test_y)]),
        "NFCorpus": (corpus.codes, [row for row in gains if row.sum() >= 2 * max(N_EXAMPLES)]),
    }
    for name, (codes, wanted) in sets.items():
        for n in N_EXAMPLES:
            random, figures = np.random.default_rng(0), dict[str, list[tuple[float, float]]]()
            for relevant in wanted:
                named = random.choice(np.flatnonzero(relevant), n, replace=False)
                rest = np.delete(np.arange(len(codes)), named)
                background = codes[random.choice(rest, N_BACKGROUND, replace=False)]
                for way, to_items in ways(codes[named], background, codes[rest]).items():
                    row = to_items[None].astype(np.float32), relevant[rest][None]
                    figures.setdefault(way, []).append((average_precision(*row)[0], precision_at(*row, 10)[0]))
            mean = {way: np.mean(rows, axis=0) for way, rows in figures.items()}
            rivals = [mean[way] for way in ("nearest example", "mean of examples", "Rocchio")]
            least = np.max(rivals, axis=0)
            for way, values in mean.items():
                bars = least if way == "examples" else np.full(2, -np.inf)
                row = {key: Figure(*pair) for key, *pair in zip(("map", "p10"), values, bars, strict=True)}
                report.add(f"{name}, {n} examples, {way}", **row)


def hashes(report: Report) -> None:
    """Find edited copies of pictures."""
    random = np.random.default_rng(0)
    gray = cifar10()[0][:12_000].mean(axis=-1).astype(np.float32)
    copies = gray + random.normal(0, 8, gray.shape) + random.uniform(-30, 30, (len(gray), 1, 1))
    copies = np.roll(copies.clip(0, 255), random.integers(-1, 2, 2), axis=(1, 2))
    codes, edited = perceptual(gray), perceptual(copies)
    learn, test = slice(0, 1000), slice(1000, 2000)
    near = random.integers(2000, len(codes), 20 * 1000)
    triplets = np.column_stack([np.tile(np.arange(1000), 20), near, np.tile(np.arange(1000), 20)])
    weights = {
        "plain": None,
        "log-odds": log_odds_weights(codes[learn], edited[learn], codes[2000:]),
        "RankingSVM": RankingSVM(random_state=0).fit_constraints(codes, triplets, queries=edited[learn]).weights_,
    }
    for name, row in weights.items():
        found = false_matches(codes[2000:], originals=codes[test], copies=edited[test], weights=row)
        shares = {}
        for rate in (0.01, 0.1, 1.0):
            assert found.found is not None
            at = np.searchsorted(found.radii, found.radius_for(rate))
            shares[f"found_at_{rate:g}"] = float(found.found[at])
        report.add(f"CIFAR-10, 64 bits, {name}", **shares)


def perceptual(pictures: np.ndarray) -> np.ndarray:
    """The signs of the 64 lowest frequencies of gray pictures against their median."""
    low = dctn(pictures, axes=(1, 2))[:, :8, :8].reshape(len(pictures), 64)
    return np.packbits(low > np.median(low, axis=1, keepdims=True), axis=1)


def speed(report: Report) -> None:
    """Time a query of examples."""
    random = np.random.default_rng(0)
    background = np.packbits(random.random((N_BACKGROUND, N_BITS)) < 0.05, axis=1)
    kind = np.packbits(random.random(N_BITS) < 0.04)
    right = np.packbits(random.random((10, N_BITS)) < 0.03, axis=1) | kind
    X = np.concatenate([signs(right, N_BITS), signs(background, N_BITS)])
    y = np.repeat(np.float32([1, -1]), [10, N_BACKGROUND])
    costs = np.repeat(np.float32([50, 0.5]), [10, N_BACKGROUND])[:, None]
    alone = min(timed(solve, X, y, costs, 0.01)[0] for _ in range(5))
    judged = min(timed(query_from, right, None, background, N_BITS)[0] for _ in range(5))
    model = LogisticRegression(class_weight="balanced", max_iter=1000)
    report.add(
        "10 examples, 1000 rows of 1024 bits",
        vector_s=Figure(alone, most=MOST_S),
        judged_s=Figure(judged, most=MOST_S_JUDGED),
        scikit_learn_s=min(timed(model.fit, X, y)[0] for _ in range(5)),
    )


def tanimoto_speed(report: Report) -> None:
    """Search 500 000 fingerprints by Tanimoto, one thread: ours, FPSim2 and USearch over the same rows."""
    fpsim = import_extra("FPSim2", "molecules")
    create = import_extra("FPSim2.io", "molecules").create_db_file
    usearch = import_extra("usearch.index", "usearch")
    folder = data_folder() / "molecules/compounds/ChEMBL"
    with gzip.open(folder / "cmp_list_ChEMBL_zinc_decoys.dat.gz", "rt") as file:
        rows = [[line.split()[2], number] for number, line in enumerate(file) if not line.startswith("#")]
    with gzip.open(folder / f"cmp_list_ChEMBL_{TARGETS[0]}_actives.dat.gz", "rt") as file:
        smiles = [line.split()[2] for line in file if not line.startswith("#")][:20]
    with tempfile.TemporaryDirectory() as place:
        path = f"{place}/decoys.h5"
        create(rows, path, "smiles", "Morgan", {"radius": 2, "fpSize": N_BITS})
        engine = fpsim.FPSim2Engine(path)
    # More molecules of as many ones: the words of a fingerprint in other orders.
    random, part = np.random.default_rng(0), np.asarray(engine.fps)
    copies = [part[:, [0, *(1 + random.permutation(N_BITS // 64)), part.shape[1] - 1]] for _ in range(N_COPIES - 1)]
    whole = np.concatenate([part, *copies])
    whole = whole[np.argsort(whole[:, -1], kind="stable")]
    whole[:, 0] = np.arange(len(whole))
    bins = [(ones, (first * N_COPIES, last * N_COPIES)) for ones, (first, last) in engine.popcnt_bins]
    engine.storage.fps, engine.storage.popcnt_bins = whole, bins
    codes = np.ascontiguousarray(whole[:, 1:-1]).view(np.uint8).reshape(len(whole), N_BITS // 8)
    queries = np.stack([engine.load_query(text, full_sanitization=True)[1:-1].view(np.uint8) for text in smiles])
    index = Index(codes)
    found, theirs = [], []
    figures: dict[str, Figure | float] = {}
    for name, search in (
        ("bitrank", lambda at: found.append(index.search(queries[at : at + 1], 10, similarity="tanimoto", threads=1))),
        ("fpsim2", lambda at: theirs.append(engine.top_k(smiles[at], 10, 0.0, n_workers=1))),
        (
            "usearch",
            lambda at: usearch.search(codes, queries[at], 10, usearch.MetricKind.Tanimoto, exact=True, threads=1),
        ),
    ):
        seconds = [timed(search, at)[0] for at in range(len(smiles))]
        figures[f"{name}_million_per_s"] = len(codes) / float(np.median(seconds)) / 1e6
    for ours, other in zip(found, theirs, strict=True):
        np.testing.assert_allclose(1 - ours.distances[0], np.sort(other["coeff"])[::-1], atol=1e-6)
    report.add("Tanimoto, ten nearest, 1024 bits, one thread", n=len(codes), queries=len(smiles), **figures)


PARTS = {"tanimoto": tanimoto_speed, "molecules": molecules, "others": others, "hashes": hashes, "speed": speed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options = parse_parts(parser, PARTS)
    run_parts(options.parts, lambda part, report: PARTS[part](report), RESULTS / "examples.json")


if __name__ == "__main__":
    main()
