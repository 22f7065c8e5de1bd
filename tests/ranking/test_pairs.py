"""Judged pairs: their checks and files, the batches and the gate that learn from them, and what is learned."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from bitrank import QueryVectorRanker, RankingSVM
from bitrank.core.codes import distances, pack, signs
from bitrank.core.metrics import ndcg_at
from bitrank.ranking import QueryAdaptiveRanker
from bitrank.ranking.evidence.kinds import PairEvidence, QueryRows, check_pair_evidence
from bitrank.ranking.evidence.pairs import check_pairs, read_qrels
from bitrank.ranking.gate.folds import split_pairs
from bitrank.ranking.gate.judge import HeldOutPairs
from bitrank.ranking.networks.batches import PairBatches

N_BITS = 24


def judged(n_items=400, n_queries=150, seed=0):
    """Items of 12 topics told by six bits, queries that fall on the wrong side of two bits, and pairs by topic."""
    rng = np.random.default_rng(seed)
    topics = rng.permutation(64)[:12]
    item_topic, query_topic = rng.integers(12, size=n_items), rng.integers(12, size=n_queries)

    def bits(topic, wrong):
        out = rng.integers(2, size=(len(topic), N_BITS))
        out[:, :6] = (topics[topic][:, None] >> np.arange(6)) & 1
        out[:, :6] ^= rng.random((len(topic), 6)) < 0.05
        out[:, :2] ^= wrong
        return out

    items, queries = bits(item_topic, 0), bits(query_topic, 1)  # queries say the opposite of their items in two bits
    pairs = [
        (query, item, 1 + (item % 2))
        for query in range(n_queries)
        for item in np.flatnonzero(item_topic == query_topic[query])
    ]
    values = (2 * queries - 1) * rng.uniform(0.2, 2, size=queries.shape)
    return pack(items), np.array(pairs), pack(queries), values.astype(np.float32), item_topic, query_topic


# Checks and files -----------------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 8)), min_size=1, max_size=30), st.booleans(), st.data())
def test_pairs_are_sorted_and_graded(rows, graded, data):
    pairs = np.array(data.draw(st.permutations(sorted(rows))))
    grades = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(pairs), max_size=len(pairs))))
    grades[0] = 1
    given_pairs = np.column_stack([pairs, grades]) if graded else pairs
    if graded or len(rows) < 54:
        want = sorted((q, i, g if graded else 1) for (q, i), g in zip(pairs.tolist(), grades.tolist(), strict=True))
        assert check_pairs(given_pairs, 9, 6).tolist() == [list(row) for row in want]
    if graded:
        matrix = scipy.sparse.coo_array((grades, (pairs[:, 0], pairs[:, 1])), shape=(6, 9))
        assert check_pairs(matrix, 9, 6).tolist() == check_pairs(given_pairs, 9, 6).tolist()


BAD_PAIRS = [
    ([[0, 1, 2, 3]], r"pairs must be integers of shape \(m, 2\), or \(m, 3\)"),
    ([[0.0, 1.0]], "pairs must be integers"),
    (np.zeros((0, 2), int), "pairs must hold at least one pair, got none"),
    ([[0, 9]], "pairs must name item rows from 0 to 8, got 9 to 9"),
    ([[0, -1]], "pairs must name item rows from 0 to 8, got -1 to -1"),
    ([[6, 1]], "pairs must name query rows from 0 to 5, got 6 to 6"),
    ([[0, 1, -1]], "grades must be from 0"),
    ([[0, 1, 31]], "grades must be from 0"),
    ([[0, 1, 0]], "pairs must name at least one relevant item, with a grade above 0, got none"),
    ([[0, 1, 1], [0, 1, 2]], "pairs must grade query 0 and item 1 once, got 1 and another grade"),
    ([[0, item] for item in range(9)], "pairs must leave items that are not relevant, got all 9 items as relevant"),
    (scipy.sparse.eye_array(5), r"a matrix of pairs must have shape \(6, 9\), got \(5, 5\)"),
    (scipy.sparse.csr_array(np.full((6, 9), 0.5)), "whole numbers as grades, got fractions"),
]


@pytest.mark.parametrize(("pairs", "message"), BAD_PAIRS, ids=[message[:40] for _, message in BAD_PAIRS])
def test_bad_pairs(pairs, message):
    with pytest.raises(ValueError, match=message):
        check_pairs(pairs, 9, 6)


def test_the_same_pair_twice_counts_once_and_queries_without_relevant_items_are_skipped():
    assert check_pairs([[0, 1, 2], [0, 1, 2], [1, 3, 0]], 9, 6).tolist() == [[0, 1, 2], [1, 3, 0]]
    codes, pairs, queries, *_ = judged()
    more = np.vstack([pairs, [[149, item, 0] for item in range(3)]])
    more = more[(more[:, 0] != 149) | (more[:, 2] == 0)]
    assert (
        QueryVectorRanker(N_BITS, n_steps=20, random_state=0).fit_pairs(codes, more, queries=queries).n_bits_ == N_BITS
    )


@pytest.mark.parametrize(
    "text",
    ["q1 0 d2 1\nq2\t0\td1\t2\nq1 0 d9 1\n", "query-id\tcorpus-id\tscore\nq1\td2\t1\nq2\td1\t2\nq1\td9\t1\n\n"],
)
def test_qrels(tmp_path, text):
    path = tmp_path / "some.qrels"
    path.write_text(text)
    pairs, n_unknown = read_qrels(path, ["q1", "q2"], ["d1", "d2"])
    assert pairs.tolist() == [[0, 1, 1], [1, 0, 2]]
    assert n_unknown == 1
    with pytest.raises(ValueError, match=r"some.qrels:\d must name known ids, got query q1, item d9"):
        read_qrels(path, ["q1", "q2"], ["d1", "d2"], strict=True)
    with pytest.raises(ValueError, match="item_ids must be unique, got one twice"):
        read_qrels(path, ["q1"], ["d1", "d1"])


def test_qrels_of_unknown_ids_alone_are_refused_and_a_byte_order_mark_is_no_id(tmp_path):
    path = tmp_path / "some.qrels"
    path.write_text("q1 0 d2 1\n", encoding="utf-8-sig")
    assert read_qrels(path, ["q1"], ["d1", "d2"]).pairs.tolist() == [[0, 1, 1]]
    with pytest.raises(ValueError, match="must name known ids, got none in 1 lines, the last with query q1, item d2"):
        read_qrels(path, ["1"], ["2"])


def test_bad_qrels(tmp_path):
    path = tmp_path / "bad.qrels"
    for text in ("q1 0 d1 high\n", "q1 d1\n", "q1 0 d1 1 run\n", "q1 0 d1 \u00b2\n", "q1 0 d1 99999999999999999999\n"):
        path.write_text("q1 0 d1 1\n" + text, encoding="utf-8")
        with pytest.raises(ValueError, match=r"bad.qrels:2 must be `query 0 item grade`"):
            read_qrels(path, ["q1"], ["d1"])


# Batches --------------------------------------------------------------------------------------------------------------


def softmax(scores):
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def test_gradient_of_a_batch_is_that_of_its_loss():
    codes, pairs, queries, *_ = judged(60, 12)
    pairs = check_pairs(pairs, 60, 12)
    own = signs(queries, N_BITS) * np.float32(0.3)
    batches = PairBatches(codes, N_BITS, pairs, lambda rows: own[rows])
    batch = batches.draw(np.random.default_rng(4))

    # The same draws, and the loss in float64 by its definition.
    random = np.random.default_rng(4)
    places = random.integers(len(batches.queries), size=len(batches.queries))
    positive = batches._draw_relevant(places, random)
    items = batches._draw_items(random)
    pull = random.integers(60, size=512)
    relevant = {(q, i) for q, i, g in pairs.tolist() if g > 0}
    assert all((q, i) in relevant for q, i in zip(batch.queries, positive, strict=True))
    bits = signs(codes, N_BITS).astype(float)

    def loss(vectors):
        total = 0.0
        for row, query in enumerate(batch.queries):
            negatives = [item for item in items if (query, item) not in relevant]
            scores = np.concatenate([[vectors[row] @ bits[positive[row]]], bits[negatives] @ vectors[row]])
            total -= np.log(softmax(scores)[0])
            want, got = softmax(own[query].astype(float) @ bits[pull].T), softmax(vectors[row] @ bits[pull].T)
            total += 0.3 * (want * np.log(want / got)).sum()
        return total / len(batch.queries)

    vectors = np.random.default_rng(1).normal(0, 0.3, size=(len(batch.queries), N_BITS))
    gradient = batch.gradient(vectors.astype(np.float32))
    for row, bit in [(0, 0), (3, 7), (7, 23), (11, 12)]:
        step = np.zeros_like(vectors)
        step[row, bit] = 1e-5
        numeric = (loss(vectors + step) - loss(vectors - step)) / 2e-5
        assert gradient[row, bit] == pytest.approx(numeric, rel=2e-3, abs=2e-5)


# The gate -------------------------------------------------------------------------------------------------------------


def evidence(seed=0, reals=False):
    codes, pairs, queries, values, *_ = judged(seed=seed)
    return check_pair_evidence(codes, pairs, values if reals else queries, None, N_BITS)


@pytest.mark.parametrize("new_share", [0.0, 1 / 3])
def test_folds_share_neither_queries_nor_new_items(new_share):
    pairs = evidence().pairs
    folds = split_pairs(pairs, new_share, np.random.default_rng(0))
    assert sorted(np.concatenate([fold.queries for fold in folds])) == sorted(set(pairs[:, 0]))
    for fold in folds:
        assert not set(pairs[fold.learn, 0]) & set(fold.queries)
        assert not set(pairs[fold.learn, 1]) & set(fold.new_items)
        assert len(fold.new_items) == int(new_share * len(set(pairs[:, 1])))


@pytest.mark.parametrize("reals", [False, True])
def test_figures_equal_a_direct_computation(reals):
    data = evidence(reals=reals)
    fold = split_pairs(data.pairs, 1 / 3, np.random.default_rng(0))[0]
    judge = HeldOutPairs(data, fold, False, False, np.random.default_rng(0))
    gains = np.zeros((len(data.queries.codes), len(data.codes)))
    gains[data.pairs[:, 0], data.pairs[:, 1]] = 2.0 ** data.pairs[:, 2] - 1
    rows = np.sort(fold.queries)
    own = np.ones((len(rows), N_BITS), np.float32) if not reals else data.queries.magnitudes[rows]
    own = own / own.mean(axis=1, keepdims=True)
    factor = np.random.default_rng(2).uniform(0.2, 2, size=(len(rows), N_BITS)).astype(np.float32)
    factor /= factor.mean(axis=1, keepdims=True)

    def direct(weights, wanted):
        found = distances(data.queries.codes[rows], data.codes, weights.astype(np.float32))
        return ndcg_at(found, np.where(wanted, gains[rows], 0), 10)

    everything, new = np.ones(len(data.codes), bool), np.isin(np.arange(len(data.codes)), fold.new_items)
    got = judge.judge()
    np.testing.assert_allclose(got.ndcg10, direct(own, everything), rtol=1e-5)
    np.testing.assert_allclose(got.new_ndcg10, direct(own, new), rtol=1e-5)
    for amount, scores in judge.judge_blends(lambda numbers: factor, (0.5, 1.0)):
        blended = (1 - amount) * own + amount * factor
        np.testing.assert_allclose(scores.ndcg10, direct(blended, everything), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("learner", [QueryVectorRanker, QueryAdaptiveRanker, RankingSVM])
def test_one_query_alone_is_refused(learner):
    codes, pairs, queries, *_ = judged()
    ranker = learner(N_BITS, random_state=0).fit_pairs(codes, pairs[pairs[:, 0] < 1], queries=queries)
    assert ranker.blend_ == 0
    assert not ranker.report_.accepted
    assert ranker.report_.refusal.endswith("evidence must come from at least two queries to hold one out")
    found = ranker.queries_for(queries[:5])
    np.testing.assert_array_equal(found.codes, queries[:5])
    assert (found.weights == found.weights[0, 0]).all()


# What is learned ------------------------------------------------------------------------------------------------------


def mean_ndcg(ranker, queries):
    """Over the last fifty queries, which nothing was learned from."""
    codes, pairs, codes_of_queries, *_ = judged()
    gains = np.zeros((len(codes_of_queries), len(codes)))
    gains[pairs[:, 0], pairs[:, 1]] = 1
    asked = ranker.queries_for(queries)
    return float(np.nanmean(ndcg_at(distances(asked.codes, codes, asked.weights), gains, 10)[100:]))


@pytest.mark.parametrize("reals", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_vectors_repair_bits_that_queries_get_wrong(reals):
    """Two bits of every query are the opposite of its items': weights can ignore them, a vector flips them."""
    codes, pairs, queries, values, *_ = judged()
    asked, learn = values if reals else queries, pairs[pairs[:, 0] < 100]
    plain = RankingSVM(N_BITS, C=0.0).fit_pairs(codes, learn, queries=asked)
    vectors = QueryVectorRanker(N_BITS, random_state=0).fit_pairs(codes, learn, queries=asked)
    svm = RankingSVM(N_BITS, n_quadruplets=3000, random_state=0).fit_pairs(codes, learn, queries=asked)
    assert mean_ndcg(svm, asked) > mean_ndcg(plain, asked) - 0.002
    assert mean_ndcg(vectors, asked) > mean_ndcg(plain, asked) + 0.05
    assert vectors.blend_ > 0
    assert vectors.learned_from_ == "pairs"


def test_weights_per_query_learn_from_pairs():
    codes, pairs, queries, *_ = judged()
    ranker = QueryAdaptiveRanker(N_BITS, n_steps=200, random_state=0)
    ranker.fit_pairs(codes, pairs[pairs[:, 0] < 100], queries=queries)
    assert mean_ndcg(ranker, queries) > mean_ndcg(
        RankingSVM(N_BITS, C=0.0).fit_pairs(codes, pairs, queries=queries), queries
    )


@pytest.mark.parametrize("learner", [QueryVectorRanker, QueryAdaptiveRanker, RankingSVM])
def test_random_pairs_change_nothing(learner):
    codes, pairs, queries, *_ = judged()
    rng = np.random.default_rng(0)
    noise = np.unique(np.column_stack([pairs[:, 0], rng.integers(len(codes), size=len(pairs))]), axis=0)
    options = {"n_steps": 50} if learner is not RankingSVM else {"n_quadruplets": 2000}
    ranker = learner(N_BITS, random_state=0, **options).fit_pairs(codes, noise, queries=queries)
    assert ranker.blend_ == 0
    found = ranker.queries_for(queries[:5])
    np.testing.assert_array_equal(found.codes, queries[:5])
    assert (found.weights == found.weights[:, :1]).all()


@pytest.mark.slow
def test_features_of_pairs():
    codes, pairs, queries, values, *_ = judged()
    ranker = QueryVectorRanker(N_BITS, random_state=0)
    ranker.fit_pairs(codes, pairs, queries=queries, features=values)
    assert {line.get("inputs") for line in ranker.report_} == {None, "bits", "features"}
    with_features, without = ranker.queries_for(queries[:4], features=values[:4]), ranker.queries_for(queries[:4])
    assert with_features.weights.shape == without.weights.shape
    with pytest.raises(ValueError, match=r"features must have shape \(4, 24\)"):
        ranker.queries_for(queries[:4], features=values[:4, 1:])
    with pytest.raises(ValueError, match="RankingSVM cannot learn from features; QueryVectorRanker can"):
        RankingSVM(N_BITS).fit_pairs(codes, pairs, queries=queries, features=values)


def test_evidence_is_kept_as_rows():
    data = evidence()
    assert isinstance(data, PairEvidence)
    assert isinstance(data.queries, QueryRows)
    assert (np.diff(data.pairs[:, 0]) >= 0).all()
