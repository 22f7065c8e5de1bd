"""Placebos hold the same evidence as the real thing, given to other queries; what they rank as well is refused."""

import numpy as np
import pytest

from bitrank import OnlineRankingSVM, QueryVectorRanker, RankingSVM
from bitrank.ranking import QueryAdaptiveRanker
from bitrank.ranking.evidence.kinds import ConstraintEvidence, LabelEvidence, PairEvidence, QueryRows
from bitrank.ranking.gate import placebo
from bitrank.ranking.gate.judge import PairScores, standard_error

CODES = np.random.default_rng(0).integers(0, 256, (600, 8), dtype=np.uint8)
QUERIES = QueryRows(CODES, None)


@pytest.mark.parametrize("seed", range(3))
def test_exchanged_evidence_is_the_same_evidence_of_other_queries(seed):
    rng = np.random.default_rng(seed)
    rows = np.flatnonzero(rng.random(600) < 0.5)
    y = rng.integers(5, size=600)
    labels, same = placebo.exchanged(LabelEvidence(CODES, y, QUERIES, None, 64), rows, rng)
    assert same is rows
    assert (np.bincount(labels.y[rows]) == np.bincount(y[rows])).all()
    assert (labels.y[rows] != y[rows]).any()
    np.testing.assert_array_equal(np.delete(labels.y, rows), np.delete(y, rows))
    pairs = np.column_stack([np.sort(rng.integers(40, size=600)), rng.permutation(600), rng.integers(3, size=600)])
    for name, evidence in (
        ("pairs", PairEvidence(CODES, pairs, QUERIES, None, 64)),
        ("rows", ConstraintEvidence(CODES, pairs, QUERIES, 64)),
    ):
        other, numbers = placebo.exchanged(evidence, rows, rng)
        found = getattr(other, name)[numbers]
        assert {tuple(row[1:]) for row in found} == {tuple(row[1:]) for row in pairs[rows]}

        def lists(table):
            return {frozenset(map(tuple, table[table[:, 0] == query][:, 1:])) for query in np.unique(table[:, 0])}

        assert lists(found) == lists(pairs[rows])
        assert (np.unique(found[:, 0]) == np.unique(pairs[rows, 0])).all()
        assert name == "rows" or (np.diff(found[:, 0]) >= 0).all()


@pytest.mark.parametrize("surplus", [-3.0, 0.5, 3.0])
def test_another_exchange_is_asked_for_where_one_does_not_decide(surplus):
    """Of 400 queries one standard error is the standard deviation divided by 20."""
    spread = np.random.default_rng(0).permutation(np.repeat([-1.0, 1.0], 200))
    asked = []

    def placebos():
        while True:
            asked.append(1)
            yield PairScores(np.zeros(400), np.zeros(400), np.zeros(0))

    gains = spread + (2 + surplus) * standard_error(spread)
    assert placebo.is_beaten(
        PairScores(gains, gains, gains[:0]), PairScores(gains, gains, gains[:0]), placebos(), "ndcg10"
    ) == (surplus > 0)
    assert len(asked) == (3 if surplus == 0.5 else 1)


def popular_pairs(seed, n_bits=64):
    """Random queries that all want the same few random items."""
    rng = np.random.default_rng(seed)
    queries = rng.standard_normal((200, n_bits))
    pairs = np.unique(np.column_stack([rng.integers(200, size=2000), rng.integers(15, size=2000)]), axis=0)
    return CODES, pairs, queries


@pytest.mark.parametrize(
    "ranker",
    [
        QueryVectorRanker(n_steps=60, n_hidden=32, random_state=0),
        QueryAdaptiveRanker(n_steps=100, random_state=0),
        RankingSVM(n_quadruplets=2000, random_state=0),
        *(
            pytest.param(ranker(random_state=0), marks=pytest.mark.slow, id=f"whole {ranker.__name__}")
            for ranker in (QueryVectorRanker, QueryAdaptiveRanker)
        ),
    ],
    ids=lambda ranker: type(ranker).__name__,
)
def test_items_that_every_query_wants_say_nothing_about_queries(ranker):
    codes, pairs, queries = popular_pairs(0)
    learned = ranker.fit_pairs(codes, pairs, queries=queries)
    assert learned.blend_ == 0
    if isinstance(ranker, QueryVectorRanker):  # a vector that points to these items is better than none, for any query
        assert learned.report_.pick("guarded") is not None
        assert learned.report_.refusal == placebo.REFUSAL


@pytest.mark.parametrize("n", [300, pytest.param(600, marks=pytest.mark.slow)])
@pytest.mark.parametrize("with_queries", [False, True])
def test_vectors_that_have_nothing_to_do_with_the_codes_are_refused(with_queries, n):
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((n, 3))
    queries = rng.standard_normal((n, 64)) if with_queries else None
    learned = QueryVectorRanker(n_steps=n // 4, random_state=0).fit_vectors(CODES[:n], vectors, queries=queries)
    assert learned.blend_ == learned.bits_part_.blend == 0


@pytest.mark.parametrize("ranker", [QueryVectorRanker, QueryAdaptiveRanker, RankingSVM, OnlineRankingSVM])
def test_what_is_true_beats_its_placebo(ranker):
    fewer = {"n_steps": 200} if hasattr(ranker(), "n_steps") else {}
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=600)
    bits = rng.integers(2, size=(600, 32))
    bits[:, :6] = ((y[:, None] >> np.arange(6) % 2) & 1) ^ (rng.random((600, 6)) < 0.1)
    learned = ranker(random_state=0, **fewer).fit(np.packbits(bits, axis=1), y)
    assert learned.report_.accepted
    assert learned.report_.refusal is None
