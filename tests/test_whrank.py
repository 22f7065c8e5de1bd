"""WhRank against the spread computed over every pair, and asymmetric weights against inner products."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from bitrank.codes import pack, signs, weighted_hamming
from bitrank.ranking.whrank import WhRank, _same_class_pairs, asymmetric_weights


def every_pair_sigma(values, y):
    """Standard deviation over all ordered same-class pairs, a class weighted by its share of the rows."""
    variance, rows = np.zeros(values.shape[1]), 0
    for label in np.unique(y):
        members = values[y == label]
        if len(members) > 1:
            differences = [a - b for a, b in itertools.permutations(members, 2)]
            variance += len(members) * np.mean(np.square(differences), axis=0)
            rows += len(members)
    return np.sqrt(variance / rows)


def test_weights_approach_the_spread_over_every_pair():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2, 3], [40, 20, 5, 1])
    values = rng.normal(size=(66, 24)) * rng.uniform(0.1, 3, size=24) * (1 + y[:, None]) + 10 * y[:, None]
    got = WhRank(n_pairs=200_000, random_state=0).fit(values, y)
    assert got.weights_.dtype == np.float32
    np.testing.assert_allclose(got.weights_, 1 / every_pair_sigma(values, y), rtol=0.02)


@given(st.lists(st.integers(0, 4), min_size=2, max_size=30), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_pairs_are_two_different_rows_of_one_class(labels, seed):
    y, rng = np.array(labels), np.random.RandomState(seed)
    if len(np.unique(y)) == len(y):
        with pytest.raises(ValueError, match="at least two rows"):
            _same_class_pairs(y, 10, rng)
        return
    first, second = _same_class_pairs(y, 200, rng)
    assert (y[first] == y[second]).all()
    assert (first != second).all()


def test_pairs_follow_the_frequencies_of_the_classes():
    y = np.random.default_rng(1).permutation(np.repeat([7, 8, 9], [50, 30, 20]))
    first, second = _same_class_pairs(y, 100_000, np.random.RandomState(0))
    np.testing.assert_allclose(np.bincount(y[first])[7:] / 100_000, [0.5, 0.3, 0.2], atol=0.01)
    together = np.zeros((100, 100))
    np.add.at(together, (first, second), 1)
    allowed = (y[:, None] == y) & ~np.eye(100, dtype=bool)
    assert (together[allowed] > 0).all()
    assert together[~allowed].sum() == 0


def test_weights_for_with_and_without_magnitudes():
    rng = np.random.default_rng(2)
    values, y = rng.normal(size=(100, 13)), rng.integers(3, size=100)
    ranker = WhRank(random_state=0).fit(values, y)
    codes = pack(values[:5] > 0)
    plain = ranker.weights_for(codes)
    assert plain.shape == (5, 13)
    assert plain.dtype == np.float32
    np.testing.assert_array_equal(plain, np.broadcast_to(ranker.weights_, (5, 13)))
    scaled = ranker.weights_for(codes, np.abs(values[:5]))
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled, np.abs(values[:5]) * ranker.weights_, rtol=1e-6)
    assert ranker.weights_for(codes[:0]).shape == (0, 13)


def test_same_seed_same_weights_and_clone():
    rng = np.random.default_rng(3)
    values, y = rng.normal(size=(200, 8)), rng.integers(3, size=200)
    ranker = WhRank(n_pairs=50, random_state=5)
    first = ranker.fit(values, y).weights_
    np.testing.assert_array_equal(clone(ranker).fit(values, y).weights_, first)
    assert (WhRank(n_pairs=50, random_state=6).fit(values, y).weights_ != first).any()
    assert ranker.get_params() == {"n_pairs": 50, "random_state": 5}


def test_labels_may_be_strings_and_rows_of_single_classes_are_left_out():
    rng = np.random.default_rng(4)
    values, y = rng.normal(size=(200, 8)), rng.integers(3, size=200)
    want = WhRank(random_state=0).fit(values, y).weights_
    names = np.array(["ape", "bee", "cow"])[y]
    np.testing.assert_array_equal(WhRank(random_state=0).fit(values, names).weights_, want)
    # Singles that sort after the others: the draws stay the same.
    more = np.vstack([values, 1e6 * np.ones((2, 8))])
    np.testing.assert_array_equal(WhRank(random_state=0).fit(more, np.append(names, ["x", "y"])).weights_, want)


def test_values_that_never_vary_get_the_largest_weight_of_the_others():
    rng = np.random.default_rng(5)
    y = rng.integers(3, size=200)
    values = np.column_stack([rng.normal(size=200), 3 * rng.normal(size=200), y / 3, np.full(200, 0.1)])
    weights = WhRank(random_state=0).fit(values, y).weights_
    assert weights[0] > weights[1]
    np.testing.assert_array_equal(weights[2:], weights[[0, 0]])
    np.testing.assert_array_equal(WhRank().fit(values[:, 2:], y).weights_, [1, 1])


def test_asymmetric_weights_rank_as_the_inner_product():
    rng = np.random.default_rng(6)
    queries, items = rng.normal(size=(4, 20)), rng.normal(size=(50, 20))
    weights = asymmetric_weights(queries)
    assert weights.dtype == np.float32
    codes = pack(items > 0)
    distances = weighted_hamming(pack(queries > 0), codes, weights)
    inner = queries @ signs(codes, 20).T
    np.testing.assert_allclose(np.abs(queries).sum(axis=1, keepdims=True) - 2 * distances, inner, atol=1e-4)


def test_bad_input():
    rng = np.random.default_rng(7)
    values, y = rng.normal(size=(20, 9)), np.arange(20) % 2
    with pytest.raises(ValueError, match="at least two rows, got 20 classes"):
        WhRank().fit(values, np.arange(20))
    with pytest.raises(ValueError, match="NaN"):
        WhRank().fit(np.where(values > 1, np.nan, values), y)
    with pytest.raises(ValueError, match="inconsistent"):
        WhRank().fit(values, y[:-1])
    with pytest.raises(ValueError, match="2D"):
        WhRank().fit(values[0], y)
    with pytest.raises(ValueError, match="n_pairs must be at least 1, got 0"):
        WhRank(n_pairs=0).fit(values, y)
    codes = pack(values > 0)
    with pytest.raises(NotFittedError):
        WhRank().weights_for(codes)
    ranker = WhRank().fit(values, y)
    with pytest.raises(ValueError, match="2 bytes wide, got 1"):
        ranker.weights_for(codes[:, :1].copy())
    with pytest.raises(ValueError, match=r"\(20, 9\).*\(19, 9\)"):
        ranker.weights_for(codes, np.abs(values[1:]))
    with pytest.raises(ValueError, match="magnitudes must be finite and not negative"):
        ranker.weights_for(codes, values)
    with pytest.raises(ValueError, match="magnitudes must be finite and not negative"):
        ranker.weights_for(codes, values * np.nan)
    with pytest.raises(ValueError, match="NaN"):
        asymmetric_weights(values * np.nan)
