"""Learning from relevance judgements, constraints, streams and vectors on NFCorpus, each figure beside its bar.

`python benchmarks/evidence.py [pairs] [documents] [rivals] [weights] [constraints] [streams] [vectors]` runs these
parts, or all, and writes one section per part to benchmarks/results/evidence.json. Data: docs/data.md, in BITRANK_DATA
or --data.

nDCG@10 with gains 2^grade − 1, on the test queries, in expectation over ties. Everything is learned from the training
queries with default settings; figures are means over seeds. "float" queries are values before the sign, whose rival is
the asymmetric distance; "bare" ones are codes, whose rival is Hamming distance.
"""

import argparse
from functools import cache
from statistics import fmean
from typing import Any

import numpy as np
from nfcorpus import FILE, NFCorpus, ndcg
from report import RESULTS, Figure, Report, parse_parts, run_parts
from rivals import ADAPTERS, BILINEARS, Draws, bits, tune

from bitrank import OnlineRankingSVM, QueryVectorRanker, RankingSVM
from bitrank.core.codes import distances
from bitrank.ranking import QueryAdaptiveRanker

KINDS = ("float", "bare")
LEAST_FLOAT, LEAST_BARE_GAIN, MOST_LOSS, MOST_NEW_LOSS, LEAST_SHARE = 0.30, 0.02, 0.005, 0.01, 0.6
HOLD_OUT = 0.2  # share of the queries of a stream
N_NEGATIVES = {"random": 50, "hard": 20}  # per query


def pairs(report: Report, data: NFCorpus, seeds: range) -> None:
    """Learn a vector per query from judged pairs."""
    cosine = ndcg(-(data.query_vectors[data.rows("test")] @ data.documents.T), data.gains("test"))
    report.add("float vectors, cosine", ndcg10=cosine)
    for kind, least in (("float", LEAST_FLOAT), ("bare", data.ndcg(data.plain("bare")) + LEAST_BARE_GAIN)):
        add_learner(report, data, QueryVectorRanker, kind, seeds, least)


def weights(report: Report, data: NFCorpus, seeds: range) -> None:
    """Learn weights per query and weights per bit from judged pairs."""
    for kind in KINDS:
        for learner in (RankingSVM, QueryAdaptiveRanker):
            add_learner(report, data, learner, kind, seeds, data.ndcg(data.plain(kind)) - MOST_LOSS)


def add_learner(report: Report, data: NFCorpus, learner: Any, kind: str, seeds: range, least: float) -> None:
    """Report nDCG@10 of one learner."""
    rival = data.ndcg(data.plain(kind))
    rankers = [fitted(learner, data, kind, seed) for seed in seeds]
    figures = [data.ndcg(answer(ranker, data, kind)) for ranker in rankers]
    report.add(
        f"{learner.__name__}, {kind} queries",
        rival=rival,
        ndcg10=Figure(fmean(figures), least=least),
        gain=fmean(figures) - rival,
        least_of_seeds=min(figures),
        blend=fmean(ranker.blend_ for ranker in rankers),
        seeds=len(seeds),
    )


def documents(report: Report, data: NFCorpus, seeds: range) -> None:
    """Learn without the pairs of a third of the documents, and look for those documents and for the others.

    "among": only these documents are searched; "in all": all are, and these are worth finding. The share of the gain
    that stays is measured against the same learner with all pairs.
    """
    for kind in KINDS:
        rows: dict[str, list[float]] = {}
        for seed in seeds:
            new = np.random.default_rng(1000 + seed).random(len(data.codes)) < 1 / 3
            ranker, some = QueryVectorRanker(random_state=seed), data.pairs[~new[data.pairs[:, 1]]]
            ranker.fit_pairs(data.codes, some, queries=data.queries(kind))
            everything = fitted(QueryVectorRanker, data, kind, seed)
            plain, learned, full = data.plain(kind), *(answer(each, data, kind) for each in (ranker, everything))
            for group, wanted in (("new", new), ("old", ~new)):
                for place, among in (("among", wanted), ("in_all", None)):
                    figures = [data.ndcg(q, documents=wanted, among=among) for q in (plain, learned, full)]
                    for name, value in zip(("plain", "learned", "full"), figures, strict=True):
                        rows.setdefault(f"{group}_{place}_{name}", []).append(value)
        mean = {name: fmean(values) for name, values in rows.items()}
        for place in ("among", "in_all"):
            plain, learned = mean[f"new_{place}_plain"], mean[f"new_{place}_learned"]
            gain = Figure(learned - plain, least=-MOST_NEW_LOSS)
            report.add(f"new documents {place}, {kind} queries", plain=plain, ndcg10=learned, gain=gain)
            plain, learned, full = (mean[f"old_{place}_{name}"] for name in ("plain", "learned", "full"))
            report.add(
                f"other documents {place}, {kind} queries",
                plain=plain,
                ndcg10=learned,
                gain=learned - plain,
                gain_of_all_pairs=full - plain,
                share_of_gain=Figure((learned - plain) / (full - plain), least=LEAST_SHARE),
            )


def constraints(report: Report, data: NFCorpus, seeds: range) -> None:
    """Learn from triplets with random and with hard negatives."""
    for kind in KINDS:
        rival = data.ndcg(data.plain(kind))
        for negatives in N_NEGATIVES:
            for learner in (RankingSVM, OnlineRankingSVM):
                figures, blends = [], []
                for seed in seeds:
                    triplets = draw_triplets(data, negatives, seed)
                    ranker = learner(n_bits=data.values.shape[1], random_state=seed)
                    ranker.fit_constraints(data.codes, triplets, queries=data.queries(kind))
                    figures.append(data.ndcg(answer(ranker, data, kind)))
                    blends.append(ranker.blend_)
                report.add(
                    f"{learner.__name__}, {negatives} negatives, {kind} queries",
                    ndcg10=Figure(fmean(figures), least=rival - MOST_LOSS),
                    rival=rival,
                    least_of_seeds=min(figures),
                    blend=fmean(blends),
                    seeds=len(seeds),
                )


def streams(report: Report, data: NFCorpus, seeds: range) -> None:
    """Learn from a stream of triplets, the triplets of one query per update, with and without a gate."""
    for kind in KINDS:
        rival = data.ndcg(data.plain(kind))
        for negatives in N_NEGATIVES:
            figures: dict[float, list[float]] = {0.0: [], HOLD_OUT: []}
            blends = []
            for seed in seeds:
                triplets = draw_triplets(data, negatives, seed)
                parts = np.split(triplets, np.flatnonzero(np.diff(triplets[:, 0])) + 1)
                for share, values in figures.items():
                    ranker = OnlineRankingSVM(n_bits=data.values.shape[1], hold_out=share)
                    for part in parts:
                        ranker.partial_fit(data.codes, part, queries=data.queries(kind))
                    values.append(data.ndcg(answer(ranker, data, kind)))
                blends.append(ranker.blend_)
            report.add(
                f"partial_fit, {negatives} negatives, {kind} queries",
                ndcg10=Figure(fmean(figures[HOLD_OUT]), least=rival - MOST_LOSS),
                rival=rival,
                least_of_seeds=min(figures[HOLD_OUT]),
                without_gate=fmean(figures[0.0]),
                blend=fmean(blends),
                seeds=len(seeds),
            )


def vectors(report: Report, data: NFCorpus, seeds: range) -> None:
    """Learn from the vectors of documents and training queries, without judgements; from documents alone beside it."""
    train = data.rows("train")
    for kind in KINDS:
        rival = data.ndcg(data.plain(kind))
        rows: dict[str, list[float]] = {"ndcg10": [], "blend": [], "documents_alone": []}
        for seed in seeds:
            ranker = QueryVectorRanker(n_bits=data.values.shape[1], random_state=seed)
            ranker.fit_vectors(
                data.codes, data.documents, queries=data.queries(kind)[train], query_vectors=data.query_vectors[train]
            )
            rows["ndcg10"].append(data.ndcg(answer(ranker, data, kind)))
            rows["blend"].append(ranker.blend_)
            values = data.document_values if kind == "float" else data.codes
            ranker.fit_vectors(data.codes, data.documents, queries=values)
            rows["documents_alone"].append(data.ndcg(answer(ranker, data, kind)))
        mean = {name: fmean(values) for name, values in rows.items()}
        report.add(
            f"fit_vectors, {kind} queries",
            ndcg10=Figure(mean["ndcg10"], least=rival - MOST_LOSS),
            rival=rival,
            gain=mean["ndcg10"] - rival,
            least_of_seeds=min(rows["ndcg10"]),
            documents_alone=Figure(mean["documents_alone"], least=rival - MOST_LOSS),
            blend=mean["blend"],
            seeds=len(seeds),
        )


def draw_triplets(data: NFCorpus, negatives: str, seed: int) -> np.ndarray:
    """Draw (query, other document, relevant document): random others, or the nearest that are not judged relevant."""
    draws, n = Draws(data, seed), N_NEGATIVES[negatives]
    to_documents = distances(data.query_codes, data.codes)
    rows = []
    for query in draws.queries:
        others = np.flatnonzero(~draws.relevant[query])
        if negatives == "random":
            others = draws.random.choice(others, n)
        else:
            others = others[np.argsort(to_documents[query, others], kind="stable")[:n]]
        rows += [(query, other, draws.document(query)) for other in others]
    return np.array(rows)


def rivals(report: Report, data: NFCorpus, seeds: range) -> None:
    """Compare with a linear adapter of the query and with a bilinear similarity, tuned on the dev queries."""
    ours = {
        kind: fmean(data.ndcg(answer(fitted(QueryVectorRanker, data, kind, seed), data, kind)) for seed in seeds)
        for kind in KINDS
    }
    codes, queries = bits(data.codes, data.values.shape[1]), bits(data.query_codes, data.values.shape[1])
    floats = data.values / np.linalg.norm(data.values, axis=1, keepdims=True)
    cases: dict[str, tuple[str, list[Any], np.ndarray, np.ndarray]] = {
        "linear adapter, float queries, float documents": ("float", ADAPTERS, data.query_vectors, data.documents),
        "linear adapter, float queries, codes": ("float", ADAPTERS, floats, codes),
        "linear adapter, bare queries, codes": ("bare", ADAPTERS, queries, codes),
        "bilinear similarity, bare queries, codes": (
            "bare",
            BILINEARS,
            queries * np.float32(np.sqrt(queries.shape[1])),
            codes * np.float32(np.sqrt(queries.shape[1])),
        ),
    }
    test = data.rows("test")
    for name, (kind, settings, inputs, items) in cases.items():
        setting = tune(data, settings, inputs, items)
        figures = [
            ndcg(-(setting.learn(inputs, items, Draws(data, seed))[test] @ items.T), data.gains("test"))
            for seed in seeds
        ]
        above = Figure(ours[kind] - fmean(figures), least=0.0)
        report.add(
            name, ndcg10=fmean(figures), ours=ours[kind], ours_above=above, **setting._asdict(), seeds=len(seeds)
        )


@cache
def fitted(learner: Any, data: NFCorpus, kind: str, seed: int) -> Any:
    """Return a ranker learned from all training pairs."""
    return learner(random_state=seed).fit_pairs(data.codes, data.pairs, queries=data.queries(kind))


def answer(ranker: Any, data: NFCorpus, kind: str) -> Any:
    """Return the test queries as a ranker gives them."""
    return ranker.queries_for(data.queries(kind)[data.rows("test")], collection=data.codes)


PARTS = {"pairs": pairs, "documents": documents, "rivals": rivals, "weights": weights, "constraints": constraints}
PARTS |= {"streams": streams, "vectors": vectors}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help=f"folder that holds {FILE} (default: BITRANK_DATA)")
    parser.add_argument("--seeds", type=int, default=3, help="seeds to average over (default: %(default)s)")
    options = parse_parts(parser, PARTS)
    data = NFCorpus(options.data)
    run_parts(
        options.parts, lambda part, report: PARTS[part](report, data, range(options.seeds)), RESULTS / "evidence.json"
    )


if __name__ == "__main__":
    main()
