"""`evaluate_weights` against distances and measures taken apart."""

import numpy as np
import pytest

from bitrank.codes import hamming, weighted_hamming
from bitrank.evaluation import evaluate_weights
from bitrank.metrics import average_precision, evaluate, precision_at

RNG = np.random.default_rng(0)
CODES, QUERIES = RNG.integers(0, 256, (300, 2), dtype=np.uint8), RNG.integers(0, 256, (40, 2), dtype=np.uint8)
Y, QUERY_Y = RNG.integers(5, size=300), RNG.integers(5, size=40)
WEIGHTS = RNG.random(16).astype(np.float32)


def test_other_queries():
    evaluation = evaluate_weights(
        CODES, Y, {"Hamming": None, "learned": WEIGHTS}, queries=QUERIES, query_y=QUERY_Y, max_queries=1000
    )
    assert evaluation[:3] == (40, 300, 16)
    relevant = QUERY_Y[:, None] == Y
    rankings = {"Hamming": hamming(QUERIES, CODES), "learned": weighted_hamming(QUERIES, CODES, WEIGHTS)}
    assert list(evaluation.figures) == list(rankings)
    for name, distances in rankings.items():
        assert evaluation.figures[name]["map"] == pytest.approx(average_precision(distances, relevant).mean())
        assert evaluation.figures[name]["p10"] == pytest.approx(precision_at(distances, relevant, 10).mean())


def test_a_query_of_the_collection_does_not_find_itself():
    distances, relevant = hamming(CODES, CODES).astype(float), Y[:, None] == Y
    np.fill_diagonal(distances, np.inf)
    np.fill_diagonal(relevant, False)
    figures = evaluate_weights(CODES, Y, {"Hamming": None}).figures["Hamming"]
    assert figures == pytest.approx(evaluate(distances, relevant))


def test_a_sample_of_the_queries():
    first, again, other = (
        evaluate_weights(CODES, Y, {"Hamming": None}, max_queries=30, random_state=seed) for seed in (0, 0, 1)
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
    ],
)
def test_bad_arguments(change, message):
    with pytest.raises(ValueError, match=message):
        evaluate_weights(CODES, Y, {"Hamming": None}, **change)
