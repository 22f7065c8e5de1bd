"""`evaluate_rankings` against distances and measures taken apart."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from bitrank import AsymmetricRanker, RankingSVM
from bitrank.core.codes import hamming, weighted_hamming
from bitrank.core.metrics import average_precision, evaluate, ndcg_at, precision_at, recall_at, reciprocal_rank_at
from bitrank.evaluation import FIGURES, evaluate_rankings
from bitrank.ranking import UniformRanker

RNG = np.random.default_rng(0)
CODES, QUERIES = RNG.integers(0, 256, (300, 2), dtype=np.uint8), RNG.integers(0, 256, (40, 2), dtype=np.uint8)
Y, QUERY_Y = RNG.integers(5, size=300), RNG.integers(5, size=40)
WEIGHTS = RNG.random(16).astype(np.float32)
REALS = (2.0 * np.unpackbits(QUERIES, axis=1) - 1) * RNG.uniform(0.1, 2, size=(40, 16))
GRADES = RNG.integers(4, size=(40, 300)) * (RNG.random((40, 300)) < 0.1)
GRADES[::7] = 0  # queries without a relevant item
PAIRS = np.column_stack([*np.nonzero(GRADES), GRADES[np.nonzero(GRADES)]])
HAMMING = {"Hamming": None}


def direct(found, grades):
    relevant = grades > 0
    values = {
        "map": average_precision(found, relevant),
        "p10": precision_at(found, relevant, 10),
        "ndcg10": ndcg_at(found, 2.0**grades - 1, 10),
        "mrr10": reciprocal_rank_at(found, relevant, 10),
        "recall100": recall_at(found, relevant, 100),
        "p100": precision_at(found, relevant, 100),
    }
    return {name: np.nanmean(value) for name, value in values.items()}


def without_voc11(figures):
    return {name: value for name, value in figures.items() if name != "voc11"}


def test_classes():
    evaluation = evaluate_rankings(
        CODES, {"Hamming": None, "learned": WEIGHTS}, y=Y, queries=QUERIES, query_y=QUERY_Y, max_queries=1000
    )
    assert evaluation[:3] == (40, 300, 16)
    grades = (QUERY_Y[:, None] == Y).astype(int)
    rankings = {"Hamming": hamming(QUERIES, CODES), "learned": weighted_hamming(QUERIES, CODES, WEIGHTS)}
    assert list(evaluation.figures) == list(rankings)
    for name, found in rankings.items():
        assert tuple(evaluation.figures[name]) == FIGURES
        assert without_voc11(evaluation.figures[name]) == pytest.approx(direct(found, grades))


def test_a_query_of_the_collection_does_not_find_itself():
    distances, relevant = hamming(CODES, CODES).astype(float), Y[:, None] == Y
    np.fill_diagonal(distances, np.inf)
    np.fill_diagonal(relevant, False)
    figures = evaluate_rankings(CODES, HAMMING, y=Y).figures["Hamming"]
    want = evaluate(distances, relevant)
    assert {name: figures[name] for name in ("map", "p10", "p100", "voc11")} == pytest.approx(
        {name: want[name] for name in ("map", "p10", "p100", "voc11")}
    )


@pytest.mark.parametrize("pairs", [PAIRS, csr_array(GRADES)], ids=["rows", "sparse"])
def test_pairs(pairs):
    evaluation = evaluate_rankings(CODES, {"Hamming": None, "w": WEIGHTS}, pairs=pairs, queries=QUERIES)
    assert evaluation.n_queries == (GRADES > 0).any(axis=1).sum()
    for name, weights in (("Hamming", np.ones(16)), ("w", WEIGHTS)):
        want = direct(weighted_hamming(QUERIES, CODES, weights), GRADES)
        assert without_voc11(evaluation.figures[name]) == pytest.approx(want)


def test_blocks_of_queries(monkeypatch):
    whole = evaluate_rankings(CODES, HAMMING, pairs=PAIRS, queries=QUERIES)
    monkeypatch.setattr("bitrank.evaluation._BLOCK", 7 * 300)
    assert evaluate_rankings(CODES, HAMMING, pairs=PAIRS, queries=QUERIES).figures["Hamming"] == pytest.approx(
        whole.figures["Hamming"]
    )


def test_reals_are_ranked_by_hamming_and_by_the_asymmetric_distance():
    rankings = {
        "Hamming": None,
        "asymmetric": np.ones(16),
        "uniform ranker": UniformRanker().fit(CODES),
        "asymmetric ranker": AsymmetricRanker().fit(CODES),
        "svm": RankingSVM(n_quadruplets=200, random_state=0).fit(CODES, Y),
    }
    figures = evaluate_rankings(CODES, rankings, y=Y, queries=REALS, query_y=QUERY_Y).figures
    assert figures["Hamming"] == figures["uniform ranker"]
    assert figures["asymmetric"] == figures["asymmetric ranker"] != figures["Hamming"]
    found = weighted_hamming(QUERIES, CODES, np.abs(REALS).astype(np.float32))
    assert figures["asymmetric"]["map"] == pytest.approx(direct(found, (QUERY_Y[:, None] == Y).astype(int))["map"])


def test_groups():
    names = np.where(np.arange(40) % 7 == 0, "none", np.where(np.arange(40) < 20, "first", "second"))
    evaluation = evaluate_rankings(CODES, HAMMING, pairs=PAIRS, queries=QUERIES, groups=names)
    assert set(evaluation.groups) == {"first", "second"}
    for name in ("first", "second"):
        inside = names == name
        want = direct(hamming(QUERIES, CODES)[inside], GRADES[inside])
        assert evaluation.groups[name].n_queries == inside.sum()
        assert without_voc11(evaluation.groups[name].figures["Hamming"]) == pytest.approx(want)


def test_a_sample_of_the_queries():
    first, again, other = (
        evaluate_rankings(CODES, HAMMING, y=Y, max_queries=30, random_state=seed) for seed in (0, 0, 1)
    )
    assert first.n_queries == 30
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": QUERIES}, "must be given together"),
        ({"queries": QUERIES, "query_y": QUERY_Y[1:]}, "one label for each of the 40"),
        ({"queries": QUERIES[:, :1], "query_y": QUERY_Y}, "must be 2 bytes wide, got 1"),
        ({"max_queries": 0}, "max_queries must be at least 1, got 0"),
        ({"groups": ["a", "b"]}, "one name for each of the 300 queries, got shape"),
        ({"pairs": PAIRS}, "either y or pairs, got both"),
        ({"y": None}, "either y or pairs, got both or none"),
        ({"y": None, "pairs": PAIRS}, "pairs must come with queries"),
        ({"features": np.zeros((3, 2))}, r"features must have shape \(300, n_features\)"),
        ({"n_bits": 15}, "last 1 bits of a row zero"),
    ],
)
def test_bad_arguments(change, message):
    with pytest.raises(ValueError, match=message):
        evaluate_rankings(CODES, HAMMING, **{"y": Y, **change})


def test_a_ranker_of_other_bits():
    ranker = UniformRanker().fit(CODES[:, :1])
    with pytest.raises(ValueError, match="codes of 16 bits must have learned from such, got 8"):
        evaluate_rankings(CODES, {"other": ranker}, y=Y)
