"""One query of many examples: the solver against scikit-learn, the judgement, and shapes of every kind."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from bitrank import Index
from bitrank.core.codes import pack, unpack
from bitrank.ranking import UniformRanker
from bitrank.ranking.examples import query_from, solve


def _kind(rng, n, n_bits, share=0.9):
    """Codes that share most bits with a hidden one."""
    centre = rng.random(n_bits) < 0.5
    return pack(np.where(rng.random((n, n_bits)) < share, centre, rng.random((n, n_bits)) < 0.5))


def test_vectors_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 40)).astype(np.float32)
    signs = np.where(X[:, 0] + rng.normal(size=300) > 1, 1, -1).astype(np.float32)
    costs = (rng.random((300, 3)) * [0.01, 1, 30]).astype(np.float32)
    w, gap = solve(X, signs, costs, 1e-4)
    assert (gap <= 1e-4).all()
    for column in range(3):
        model = LogisticRegression(C=1, fit_intercept=False, tol=1e-10, max_iter=10_000)
        expected = model.fit(X, signs, sample_weight=costs[:, column]).coef_[0]
        away = np.linalg.norm(w[:, column] - expected)
        assert away <= 1e-3 * np.linalg.norm(expected)
        # The certificate: the distance to the best vector is at most the gradient's length.
        rough, rough_gap = solve(X, signs, costs[:, [column]], 0.3)
        assert np.linalg.norm(rough[:, 0] - expected) <= rough_gap[0] * np.linalg.norm(rough) + 1e-4


def test_examples_are_found_before_the_nearest_example_finds_them():
    rng = np.random.default_rng(1)
    n_bits = 256
    informative = rng.random(n_bits) < 0.1  # the others are the same mess for everybody
    kind = np.where(informative & (rng.random((200, n_bits)) < 0.8), True, rng.random((200, n_bits)) < 0.5)
    others = rng.random((2000, n_bits)) < 0.5
    codes = pack(np.concatenate([kind, others]))
    index = Index(codes)
    found = query_from(codes[:60], None, index.sample(1000), n_bits)
    assert (found.kind, found.queries.codes.shape, found.gap <= 0.01) == ("vector", (1, 32), True)
    assert found.gain > -2 * found.error
    ranked = index.search(found.queries, 200).ids[0]
    plain = np.concatenate(index.search(codes[:60], 21).ids)
    assert np.mean(ranked < 200) > np.mean(plain < 200) + 0.1


def test_the_nearest_example_ranks_where_it_is_surely_better():
    rng = np.random.default_rng(2)  # pairs of near duplicates, of which nothing in common can be learned
    ones = rng.random((20, 64)) < 0.5
    twins = np.concatenate([ones, ones ^ (rng.random((20, 64)) < 0.02)])
    background = pack(rng.random((1000, 64)) < 0.5)
    found = query_from(pack(twins), None, background, 64)
    assert found.kind in ("hamming", "tanimoto")
    assert found.gain < -2 * found.error
    assert found.queries.codes.tolist() == pack(twins).tolist()
    assert (found.queries.weights == 1).all()


def test_negatives_push_the_query_away():
    rng = np.random.default_rng(3)
    right, background = _kind(rng, 4, 128), pack(rng.random((500, 128)) < 0.5)
    near = unpack(right[:1], 128).astype(bool)
    wrong = pack(near ^ (np.arange(128) < 30)).repeat(3, axis=0)
    scores = []
    for negatives in (None, wrong):
        codes, weights = query_from(right, negatives, background, 128).queries[:2]
        vector = (2.0 * unpack(codes, 128)[0] - 1) * weights[0]
        scores.append(vector @ (unpack(right, 128).mean(axis=0) - unpack(wrong, 128)[0]) / np.linalg.norm(vector))
    assert scores[1] > scores[0]


def test_codes_with_few_ones_are_separated_harder():
    rng = np.random.default_rng(4)
    dense, sparse = (pack(rng.random((300, 256)) < share) for share in (0.5, 0.04))
    lengths = [np.linalg.norm(query_from(codes[:5], None, codes, 256).queries.weights) for codes in (dense, sparse)]
    assert lengths[1] > 2 * lengths[0]


@given(
    st.integers(1, 70),
    st.integers(1, 6),
    st.integers(0, 4),
    st.integers(0, 30),
    st.floats(0, 1),
    st.integers(0, 2**32 - 1),
)
def test_any_shape_gives_a_query_or_a_reason(n_bits, n_right, n_wrong, n_others, share, seed):
    rng = np.random.default_rng(seed)
    right, wrong, others = (pack(rng.random((n, n_bits)) < share) for n in (n_right, n_wrong, n_others))
    before = [part.copy() for part in (right, wrong, others)]
    known = {row.tobytes() for row in right}
    if not n_wrong and all(row.tobytes() in known for row in others):
        with pytest.raises(ValueError, match="background must hold a row that is no positive, got none"):
            query_from(right, wrong, others, n_bits)
        return
    found = query_from(right, wrong, others, n_bits)
    assert [part.tolist() for part in (right, wrong, others)] == [part.tolist() for part in before]
    assert np.isfinite(found.queries.weights).all()
    assert (found.queries.weights >= 0).all()
    assert found.queries.codes.shape == (1 if found.kind == "vector" else n_right, (n_bits + 7) // 8)
    again = query_from(right, wrong, others, n_bits)
    assert again.queries.weights.tolist() == found.queries.weights.tolist()


def test_a_ranker_makes_queries_from_examples():
    codes = pack(np.random.default_rng(5).random((100, 32)) < 0.5)
    ranker = UniformRanker().fit(codes)
    expected = query_from(codes[:3], codes[3:5], codes, 32)
    assert ranker.query_from(codes[:3], codes[3:5], codes).queries.weights.tolist() == expected.queries.weights.tolist()


@pytest.mark.parametrize("n_bits", [2048, 4096])
def test_long_codes(n_bits):
    rng = np.random.default_rng(n_bits)
    right, background = _kind(rng, 5, n_bits, 0.3), pack(rng.random((200, n_bits)) < 0.5)
    found = query_from(right, None, background, n_bits)
    assert found.kind == "vector"
    index = Index(np.concatenate([right, background]))
    assert set(index.search(found.queries, 5).ids[0]) == set(range(5))
