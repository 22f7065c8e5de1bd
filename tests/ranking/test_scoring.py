"""What a gate is asked to maximise: figures against the metrics computed directly, rare classes, and mistakes."""

import numpy as np
import pytest

from bitrank import Collection, OnlineRankingSVM, QueryVectorRanker, RankingSVM
from bitrank.core.codes import pack, weighted_hamming
from bitrank.core.metrics import bedroc, ndcg_at, recall_before, reciprocal_rank_at
from bitrank.ranking import QueryAdaptiveRanker
from bitrank.ranking.evidence.kinds import LabelEvidence, PairEvidence, QueryRows
from bitrank.ranking.gate.folds import PairFold, rare_rows, split_labels
from bitrank.ranking.gate.judge import HeldOutLabels, HeldOutPairs
from bitrank.ranking.gate.report import Report

N_BITS = 24
OTHERS = {
    "ndcg": lambda to, relevant: ndcg_at(to, relevant, 10),
    "mrr": lambda to, relevant: reciprocal_rank_at(to, relevant, 10),
    "recall@3": lambda to, relevant: recall_before(to, relevant, 3),
}


def data(shares=(0.5, 0.5), n=400, seed=0):
    """Codes whose first bits tell the class, with some errors, and whose other bits are noise."""
    rng = np.random.default_rng(seed)
    y = rng.choice(len(shares), n, p=shares)
    bits = rng.random((n, N_BITS)) < 0.5
    bits[:, :6] = (y[:, None] >> np.arange(6) % 2) & 1 ^ (rng.random((n, 6)) < 0.1)
    return pack(bits), y


@pytest.mark.parametrize("scoring", [*OTHERS, "bedroc"])
def test_figures_of_labels_are_those_of_the_metrics(scoring):
    codes, y = data(n=300)
    (fold,) = split_labels(y, "rows", np.random.default_rng(0))
    judge = HeldOutLabels(LabelEvidence(codes, y, QueryRows(codes, None), None, N_BITS), fold, scoring=scoring)
    weights = np.where(np.arange(N_BITS) < 6, 3.0, 0.5)
    ((_, scores),) = judge.judge_blends(weights, (1.0,))
    expected = []
    for row in judge.numbers:
        others = fold.collection[fold.collection != row]
        to_items = weighted_hamming(codes[[row]], codes[others], (weights / weights.mean()).astype(np.float32))
        if scoring != "bedroc":
            expected.append(OTHERS[scoring](to_items, (y[others] == y[row])[None])[0])
    if scoring == "bedroc":
        ((half, items),) = judge.halves[:1]
        row = judge.numbers[half[0]]
        to_items = weighted_hamming(codes[[row]], codes[items], (weights / weights.mean()).astype(np.float32))
        to_items[0, items == row] = np.inf
        expected = [bedroc(to_items, ((y[items] == y[row]) & (items != row))[None])[0]]
        np.testing.assert_allclose(scores.score[0], expected[0], rtol=1e-5)
    else:
        np.testing.assert_allclose(scores.score, expected, rtol=1e-5)
    figures = scores.figures(judge.judge())
    assert figures["score"] == pytest.approx(scores.score.mean())
    assert figures["score_error"] > 0


@pytest.mark.parametrize("scoring", OTHERS)
def test_figures_of_pairs_are_those_of_the_metrics(scoring):
    rng = np.random.default_rng(0)
    codes, queries = (pack(rng.random((n, N_BITS)) < 0.5) for n in (200, 20))
    pairs = np.unique(np.column_stack([rng.integers(20, size=150), rng.integers(200, size=150)]), axis=0)
    pairs = np.column_stack([pairs, np.ones(len(pairs), int)])
    everything = np.unique(pairs[:, 0])
    judge = HeldOutPairs(
        PairEvidence(codes, pairs, QueryRows(queries, None), None, N_BITS),
        PairFold(everything[:0], everything, everything[:0]),
        True,
        False,
        rng,
        scoring,
    )
    scores = judge.judge()
    relevant = np.zeros((20, 200), bool)
    relevant[pairs[:, 0], pairs[:, 1]] = True
    to_items = weighted_hamming(queries[everything], codes, np.ones(N_BITS, np.float32))
    np.testing.assert_allclose(scores.ndcg10, ndcg_at(to_items, relevant[everything], 10), rtol=1e-6)
    if scoring == "ndcg":
        assert len(scores.score) == 0
    else:
        np.testing.assert_allclose(scores.score, OTHERS[scoring](to_items, relevant[everything]), rtol=1e-6)


@pytest.mark.parametrize(
    ("ranker", "scoring"),
    [(RankingSVM, "ndcg"), (OnlineRankingSVM, "mrr"), (QueryAdaptiveRanker, "bedroc"), (QueryVectorRanker, "recall@5")],
)
def test_every_ranker_maximises_what_is_asked_for(ranker, scoring):
    codes, y = data((0.3, 0.3, 0.2, 0.2))
    fewer = {"n_quadruplets": 1000} if ranker in (RankingSVM, OnlineRankingSVM) else {"n_steps": 60}
    learned = ranker(n_bits=N_BITS, scoring=scoring, random_state=0, **fewer).fit(codes, y)
    report = learned.report_
    assert report.figure == "score"
    if report.accepted:
        surely = [line for line in report if line["score"] > report[0]["score"] + 4 * line["score_error"]]
        assert report.after["score"] == max(line["score"] for line in surely)
        assert report.gain == report.after["score"] - report.before["score"]
    stored = Report.load(report.stored(), scoring)
    assert (stored.blend, stored.scoring) == (learned.blend_, scoring)


def test_rare_classes_are_asked_where_that_is_wanted():
    codes, y = data((0.96, 0.01, 0.01, 0.02), n=1500)
    rare = rare_rows(y)
    assert set(y[rare]) == {1, 2, 3}
    for fold in split_labels(y, "rows", np.random.default_rng(0), cross_validate=True, first=rare):
        assert rare[fold.queries].all()
        assert not rare[fold.sample].all()
    fitted = {
        scoring: RankingSVM(N_BITS, scoring=scoring, n_quadruplets=1000, random_state=0).fit(codes, y)
        for scoring in ("guarded", "rare")
    }
    assert fitted["rare"].report_.before["map"] < 0.7 < fitted["guarded"].report_.before["map"]
    assert fitted["rare"].report_.accepted
    assert fitted["rare"].weights_[:6].mean() > 1.3 * fitted["rare"].weights_[6:].mean()


def test_imbalance_is_said():
    codes, y = data((0.96, 0.04), n=500)
    collection = Collection.from_codes(codes, n_bits=N_BITS)
    notes = {
        scoring: collection.learn(labels=y, ranker=RankingSVM(scoring=scoring, n_quadruplets=500)).learned.notes
        for scoring in ("guarded", "rare")
    }
    assert "1 of 2 classes have " in " ".join(notes["guarded"])
    assert "scoring=" not in " ".join(notes["rare"])
    balanced = collection.learn(labels=np.arange(500) % 2, ranker=RankingSVM(n_quadruplets=500))
    assert "scoring=" not in str(balanced)


@pytest.mark.parametrize("scoring", ["mrr", "recall@5"])
def test_reports_name_what_was_asked_for(scoring):
    pytest.importorskip("matplotlib").use("agg")
    codes, y = data()
    ranker = RankingSVM(scoring=scoring, n_quadruplets=500, random_state=0)
    report = Collection.from_codes(codes, n_bits=N_BITS).learn(labels=y, ranker=ranker)
    assert f"\n{scoring} " in str(report)
    axes = report.plot()
    assert axes.get_ylabel() == f"{scoring}, held out"
    axes.figure.clear()


CODES, Y = data(n=40)
PAIRS = np.column_stack([np.arange(20), np.arange(20) + 20])


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (
            lambda: RankingSVM(scoring="recall").fit(CODES, Y),
            "scoring must be one of guarded, rare, map, p10, ndcg, mrr, bedroc, recall@N for labels, got 'recall'",
        ),
        (lambda: RankingSVM(scoring="recall@0").fit(CODES, Y), "scoring must be one of guarded, rare, map, p10, "),
        (lambda: RankingSVM(scoring="recall@N").fit(CODES, Y), "scoring must be one of guarded, rare, map, p10, "),
        (lambda: RankingSVM(scoring=None).fit(CODES, Y), "scoring must be one of guarded, rare, map, p10, "),
        (
            lambda: RankingSVM(scoring="rare").fit(CODES, Y),
            'scoring="rare" must have a class with fewer than half of the items of the mean class, got none',
        ),
        (
            lambda: QueryVectorRanker(scoring="map").fit_pairs(CODES, PAIRS, queries=CODES),
            "scoring must be one of guarded, ndcg, mrr, recall@N for pairs, got 'map'",
        ),
        (
            lambda: QueryVectorRanker(scoring="mrr").fit_vectors(CODES, np.ones((40, 3))),
            "scoring must be one of guarded for vectors, got 'mrr'",
        ),
    ],
)
def test_mistakes(mistake, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        mistake()
    assert str(error.value).startswith(message)
