"""WhRank against the spread computed over every pair, and the asymmetric distance against inner products."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from bitrank import AsymmetricRanker
from bitrank.core.codes import pack, signs, weighted_hamming
from bitrank.ranking import AgreementRanker
from bitrank_papers.whrank import WhRank, _same_class_pairs


def fit(ranker, values, y):
    """Learn from values before the sign."""
    return ranker.fit(pack(np.asarray(values) > 0), y, queries=np.asarray(values))


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
    got = fit(WhRank(n_pairs=200_000, random_state=0), values, y)
    assert got.weights_.dtype == np.float32
    np.testing.assert_allclose(got.weights_, 1 / every_pair_sigma(values, y), rtol=0.02)


@given(st.lists(st.integers(0, 4), min_size=2, max_size=30), st.integers(0, 2**32 - 1))
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


def test_weights_of_codes_and_of_reals():
    rng = np.random.default_rng(2)
    values, y = rng.normal(size=(100, 13)), rng.integers(3, size=100)
    ranker = fit(WhRank(random_state=0), values, y)
    plain = ranker.queries_for(pack(values[:5] > 0)).weights
    np.testing.assert_array_equal(plain, np.broadcast_to(ranker.weights_, (5, 13)))
    np.testing.assert_allclose(ranker.queries_for(values[:5]).weights, np.abs(values[:5]) * ranker.weights_, rtol=1e-6)


def test_same_seed_same_weights_and_clone():
    rng = np.random.default_rng(3)
    values, y = rng.normal(size=(200, 8)), rng.integers(3, size=200)
    ranker = WhRank(n_pairs=50, random_state=5)
    first = fit(ranker, values, y).weights_
    np.testing.assert_array_equal(fit(clone(ranker), values, y).weights_, first)
    assert (fit(WhRank(n_pairs=50, random_state=6), values, y).weights_ != first).any()
    assert ranker.get_params() == {"n_bits": None, "n_pairs": 50, "random_state": 5}


def test_labels_may_be_strings_and_rows_of_single_classes_are_left_out():
    rng = np.random.default_rng(4)
    values, y = rng.normal(size=(200, 8)), rng.integers(3, size=200)
    want = fit(WhRank(random_state=0), values, y).weights_
    names = np.array(["ape", "bee", "cow"])[y]
    np.testing.assert_array_equal(fit(WhRank(random_state=0), values, names).weights_, want)
    # Singles that sort after the others: the draws stay the same.
    more = np.vstack([values, 1e6 * np.ones((2, 8))])
    np.testing.assert_array_equal(fit(WhRank(random_state=0), more, np.append(names, ["x", "y"])).weights_, want)


def test_values_that_never_vary_get_the_largest_weight_of_the_others():
    rng = np.random.default_rng(5)
    y = rng.integers(3, size=200)
    values = np.column_stack([rng.normal(size=200), 3 * rng.normal(size=200), y / 3, np.full(200, 0.1)])
    weights = fit(WhRank(random_state=0), values, y).weights_
    assert weights[0] > weights[1]
    np.testing.assert_array_equal(weights[2:], weights[[0, 0]])
    np.testing.assert_array_equal(fit(WhRank(), values[:, 2:], y).weights_, [1, 1])


def test_asymmetric_ranker_ranks_as_the_inner_product():
    rng = np.random.default_rng(6)
    queries, items = rng.normal(size=(4, 20)), rng.normal(size=(50, 20))
    codes = pack(items > 0)
    asked = AsymmetricRanker(20).fit(codes).queries_for(queries)
    distances = weighted_hamming(asked.codes, codes, asked.weights)
    inner = queries @ signs(codes, 20).T
    np.testing.assert_allclose(np.abs(queries).sum(axis=1, keepdims=True) - 2 * distances, inner, atol=1e-4)


@pytest.mark.parametrize(("ranker", "option"), [(WhRank, "n_pairs"), (AgreementRanker, "n_rows")])
def test_bad_input(ranker, option):
    rng = np.random.default_rng(7)
    values, y = rng.normal(size=(20, 9)), np.arange(20) % 2
    with pytest.raises(ValueError, match="at least two rows, got 20 classes"):
        fit(ranker(), values, np.arange(20))
    with pytest.raises(ValueError, match=f"{option} must be an int of at least 1, got 0"):
        fit(ranker(**{option: 0}), values, y)
