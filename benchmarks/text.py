"""What learning adds beside what else people would do: judged queries of three text collections, and labels.

`python benchmarks/text.py [nfcorpus] [cranfield] [cisi] [banking77] [half] [mnist] [cifar10]` runs these parts, or all,
and writes one section per part to benchmarks/results/text.json. Data: docs/data.md.

Judged queries: NFCorpus by its official parts, Cranfield and CISI by a seeded half of their queries; 10, 50, 200 and
all of the other half are judged. Collections of sign bits and of two bits per dimension (BitPlanes); nDCG@10 of test
queries, how many of them won and lost against the plain ranking, and a paired randomisation test. Rivals see the same
judgements: float cosine, Rocchio, a linear adapter of float queries, a bilinear similarity of codes; all are tuned on
a third of the training queries.
Labels: MAP and P@10 of the defaults beside the asymmetric distance, a logistic regression over float vectors, whose
probabilities of two items are multiplied, and nearest centroids; banking77, the same with half of its classes labelled,
and MNIST and CIFAR-10 as 64 bits with 10 000 labels.
"""

import argparse
import time
from copy import copy
from typing import Any

import numpy as np
from nfcorpus import NFCorpus, unit
from report import RESULTS, Figure, Report, parse_parts, run_parts
from rivals import ADAPTERS, BILINEARS, Draws, bits, tune
from sklearn.linear_model import LogisticRegression
from splits import Split

from bitrank import ITQ, AsymmetricRanker, Collection, QueryVectorRanker, SignBits
from experiments.datasets import banking77, cifar10, mnist
from experiments.datasets.files import data_folder, read_arrays

N_JUDGED = (10, 50, 200, None)
BITS = (1, 2)
MOST_BELOW_COSINE = {"NFCorpus": 0.0, "Cranfield": 0.005, "CISI": 0.015}
MOST_LOSS, MOST_LOSS_OF_UNSEEN = 0.002, 0.01
N_LABELLED, N_SEARCHED, N_EXCHANGES = 10_000, 10_000, 10_000


class Judged:
    """Documents, queries and judgements of a collection, with the names that `rivals` wants."""

    def __init__(self, name: str) -> None:
        if name == "NFCorpus":
            data = NFCorpus()
            self.documents, self.query_vectors = data.documents, data.query_vectors
            self.judgements, self.part = data.judgements, data.part
        else:
            forms: Any = {"docs": (np.integer, ("d", "n")), "queries": (np.integer, ("q", "n"))}
            forms["judgements"] = (np.integer, ("pairs", 3))
            arrays = read_arrays(data_folder() / f"{name.lower()}_minilm.npz", forms)
            self.documents, self.query_vectors = unit(arrays["docs"]), unit(arrays["queries"])
            self.judgements = arrays["judgements"].astype(np.int64)
            judged = np.random.default_rng(0).permutation(np.unique(self.judgements[:, 0]))
            self.part = np.full(len(self.query_vectors), "none", "<U5")
            half = len(judged) // 2
            self.part[judged[:half]], self.part[judged[half:]] = "test", "train"
            self.part[judged[half : half + half // 3]] = "dev"
        self.codes = SignBits().fit_transform(self.documents)
        self.pairs = self.judgements[np.isin(self.part[self.judgements[:, 0]], ["train", "dev"])]

    def rows(self, part: str) -> np.ndarray:
        """Row numbers of the queries of a part."""
        return np.flatnonzero(self.part == part)

    def gains(self, part: str) -> np.ndarray:
        """Gain of every document for every query of a part."""
        rows = self.rows(part)
        gains = np.zeros((len(self.part), len(self.documents)))
        gains[self.judgements[:, 0], self.judgements[:, 1]] = np.exp2(self.judgements[:, 2]) - 1
        return gains[rows]

    def some(self, n: int | None) -> np.ndarray:
        """Judgements of the first n queries of a fixed order of those that are no test queries, or of all."""
        order = np.random.default_rng(1).permutation(np.unique(self.pairs[:, 0]))
        return self.pairs[np.isin(self.pairs[:, 0], order[:n])]


def ndcg_of_lists(lists: np.ndarray, gains: np.ndarray) -> np.ndarray:
    """nDCG@10 of every query by its list of documents, best first."""
    discounts = 1 / np.log2(np.arange(2, 12))
    best = -np.sort(-gains, axis=1)[:, :10] @ discounts
    return np.take_along_axis(gains, lists[:, :10], axis=1) @ discounts / best


def randomisation(gains: np.ndarray) -> float:
    """Two-sided p-value of a mean: how often random signs of the values give one as large."""
    signs = np.random.default_rng(0).integers(0, 2, (N_EXCHANGES, len(gains)), dtype=np.int8) * 2 - 1
    return float((np.abs(signs @ gains) >= abs(gains.sum()) - 1e-12).mean())


def rocchio(data: Judged, pairs: np.ndarray, rows: np.ndarray, share: float, itself: bool) -> np.ndarray:
    """Queries plus a share of the mean of what the nearest five judged queries name, as near as they are."""
    named = np.unique(pairs[:, 0])
    means = np.stack([data.documents[pairs[pairs[:, 0] == query, 1]].mean(axis=0) for query in named])
    similar = data.query_vectors[rows] @ data.query_vectors[named].T
    if itself:
        similar[rows[:, None] == named] = -1
    near = np.argsort(-similar, axis=1)[:, :5]
    weights = np.take_along_axis(similar, near, axis=1).clip(0) ** 4
    feedback = np.einsum("qn,qnd->qd", weights / np.maximum(weights.sum(axis=1), 1e-9)[:, None], means[near])
    return data.query_vectors[rows] + share * weights.max(axis=1)[:, None] * feedback


def judged(report: Report, name: str) -> None:
    """Learn from judged queries of a collection."""
    data = Judged(name)
    test, gains = data.rows("test"), data.gains("test")
    keep = gains.any(axis=1)
    test, gains = test[keep], gains[keep]

    def score(values: np.ndarray, gains: np.ndarray = gains) -> np.ndarray:
        return ndcg_of_lists(np.argsort(-values, axis=1, kind="stable"), gains)

    cosine = score(data.query_vectors[test] @ data.documents.T).mean()
    report.add(f"{name}, float cosine", ndcg10=cosine, queries=len(test), bytes=4 * data.documents.shape[1])
    for bits_per in BITS:
        options: Any = {"hasher": SignBits()} if bits_per == 1 else {"bits": bits_per}
        collection = Collection.from_vectors(data.documents, random_state=0, **options)
        plain = ndcg_of_lists(collection.search(data.query_vectors[test], 10).ids, gains)
        what = f"{name}, {bits_per} bit{'s' * (bits_per > 1)} per dimension"
        report.add(f"{what}, plain", ndcg10=plain.mean(), bytes=collection.bytes_per_item)
        for n in N_JUDGED:
            pairs = data.some(n)
            rows, places = np.unique(pairs[:, 0], return_inverse=True)
            if n is not None and len(rows) < n:
                continue
            collection.forget()
            start = time.process_time()
            collection.learn(
                pairs=np.column_stack([places, pairs[:, 1:]]),
                queries=data.query_vectors[rows],
                features=data.documents,
            )
            seconds, learned = time.process_time() - start, collection.report().learned
            found = ndcg_of_lists(collection.search(data.query_vectors[test], 10).ids, gains)
            least = plain.mean() - MOST_LOSS
            if n is None and bits_per == 2:
                least = cosine - MOST_BELOW_COSINE[name]
            assert learned is not None
            report.add(
                f"{what}, {n or 'all'} judged",
                ndcg10=Figure(found.mean(), least=least),
                accepted=learned.accepted,
                gain=found.mean() - plain.mean(),
                reported_gain=reported_gain(learned),
                won=int((found > plain + 1e-9).sum()),
                lost=int((found < plain - 1e-9).sum()),
                p=randomisation(found - plain),
                judged=len(rows),
                cpu_seconds=seconds,
            )
    dev, dev_gains = data.rows("dev"), data.gains("dev")
    some = data.pairs[data.part[data.pairs[:, 0]] == "train"]
    shares = {
        share: score(rocchio(data, some, dev, share, False) @ data.documents.T, dev_gains).mean()
        for share in (0.1, 0.3, 1.0)
    }
    share = max(shares, key=lambda share: shares[share])
    figure = score(rocchio(data, data.pairs, test, share, False) @ data.documents.T).mean()
    report.add(f"{name}, Rocchio, all judged", ndcg10=figure, share=share)
    n_bits = data.documents.shape[1]
    hashed = SignBits().fit(data.documents)
    queries = bits(hashed.transform(data.query_vectors), n_bits) * np.float32(np.sqrt(n_bits))
    codes = bits(data.codes, n_bits)
    for rival, settings, inputs, items in (
        ("linear adapter of float queries", ADAPTERS, data.query_vectors, data.documents),
        ("bilinear similarity of codes", BILINEARS, queries, codes * np.float32(np.sqrt(n_bits))),
    ):
        tuned = copy(data)
        tuned.pairs = some
        setting = tune(tuned, settings, inputs, items)
        vectors = setting.learn(inputs, items, Draws(data, 0))[test]
        report.add(f"{name}, {rival}, all judged", ndcg10=score(vectors @ items.T).mean())


def reported_gain(learned: Any) -> float:
    """What held-out queries say that everything in use gains: the vector, the memory, or both."""
    memory = learned.memory
    if memory is None or memory["use"] in ("neither", "vector"):
        return float(learned.gate.gain)
    if not memory["together"]:
        return float(next(line["gain"] for line in memory["lines"] if line["offset"] == memory["offset"]))
    figures = {(line["use"], line["offset"]): line["ndcg10"] for line in memory["together"]}
    return float(figures[memory["use"], memory["offset"]] - figures["neither", None])


def banking(report: Report, half: bool) -> None:
    """Learn from labels of sentences, of all classes or of half of them."""
    X, y, _ = banking77()
    train, test = np.split(np.arange(len(y)), [10_003])
    seen = np.isin(y, np.random.default_rng(0).permutation(77)[: 38 if half else 77])
    compare(report, X, y, train, test, SignBits(), seen, (0.78, 0.89) if half else (0.83, 0.89))


def pictures(report: Report, images: np.ndarray, y: np.ndarray) -> None:
    """Learn from labels of pictures."""
    order = np.random.default_rng(0).permutation(len(y))[: N_LABELLED + N_SEARCHED]
    X, y = images[order].reshape(len(order), -1).astype(np.float32) / np.float32(255), y[order]
    train, test = np.split(np.arange(len(y)), [N_LABELLED])
    compare(report, X, y, train, test, ITQ(64, random_state=0), y >= 0, None)


def compare(
    report: Report, X: np.ndarray, y: np.ndarray, train: Any, test: Any, hasher: Any, seen: Any, bars: Any
) -> None:
    """Learn from labelled rows and search the others, by several methods; `seen` says whose class is labelled."""
    train = train[seen[train]]
    split = Split(hasher, X[train], y[train], X[test], y[test])
    queries, values, features = split.queries, split.query_values, X[test][split.queries]
    groups = {"seen": seen[test][queries], "unseen": ~seen[test][queries]}
    start = time.process_time()
    ranker = QueryVectorRanker(random_state=0).fit(
        split.codes, split.y, queries=split.values, features=X[train], collection=split.test_codes
    )
    seconds = time.process_time() - start
    model = LogisticRegression(max_iter=300, C=10.0).fit(X[train], y[train])
    shares = model.predict_proba(X[test])
    centroids = np.stack([X[train][y[train] == label].mean(axis=0) for label in np.unique(y[train])])
    by_centroid = X[test] @ unit(centroids - X[train].mean(axis=0)).T
    answers = {
        "asymmetric": AsymmetricRanker().fit(split.codes).queries_for(values),
        "QueryVectorRanker": ranker.queries_for(values, features=features, collection=split.test_codes),
        "logistic regression on floats": shares[queries] @ shares.T,
        "nearest centroids of floats": by_centroid[queries] @ by_centroid.T,
    }
    plain: dict[str, dict[str, float]] = {}
    for way, answer in answers.items():
        for group, rows in groups.items():
            if not rows.any():
                continue
            found = evaluate(split, answer, rows)
            plain.setdefault(group, found)
            row: dict[str, Any] = dict(found)
            if way == "QueryVectorRanker":
                least = tuple(plain[group].values())
                if group == "unseen":
                    least = tuple(value - MOST_LOSS_OF_UNSEEN for value in least)
                elif bars is not None:
                    least = bars
                row = {key: Figure(found[key], least=bar) for key, bar in zip(found, least, strict=True)}
                row |= {
                    "gain": found["map"] - plain[group]["map"],
                    "cpu_seconds": seconds,
                    "reported_gain": ranker.report_.gain,
                    "blend": ranker.blend_,
                }
            report.add(f"{group}, {way}", **row)


def evaluate(split: Split, answer: Any, rows: np.ndarray) -> dict[str, float]:
    """MAP and P@10 of some of the queries, by `Queries` or by a matrix of similarities."""
    if not isinstance(answer, np.ndarray):
        part = type(answer)(answer.codes[rows], answer.weights[rows], None)
        whole, split_queries = split.query_codes, split.queries
        split.query_codes, split.queries = whole[rows], split_queries[rows]
        figures = split.evaluate(part)
        split.query_codes, split.queries = whole, split_queries
        return figures
    from bitrank.core.metrics import average_precision, precision_at

    relevant = split.test_y[split.queries[rows]][:, None] == split.test_y
    to_items = -answer[rows].astype(np.float32)
    return {
        "map": float(average_precision(to_items, relevant).mean()),
        "p10": float(precision_at(to_items, relevant, 10).mean()),
    }


PARTS = {
    "nfcorpus": lambda report: judged(report, "NFCorpus"),
    "cranfield": lambda report: judged(report, "Cranfield"),
    "cisi": lambda report: judged(report, "CISI"),
    "banking77": lambda report: banking(report, half=False),
    "half": lambda report: banking(report, half=True),
    "mnist": lambda report: pictures(report, *mnist()[:2]),
    "cifar10": lambda report: pictures(report, *cifar10()[:2]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options = parse_parts(parser, PARTS)
    run_parts(options.parts, lambda part, report: PARTS[part](report), RESULTS / "text.json")


if __name__ == "__main__":
    main()
