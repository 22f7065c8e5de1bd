"""AgreementRanker against every pair in a loop and SciPy's normal distribution, and on data that suit it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.base import clone

from bitrank.core.codes import pack, weighted_hamming
from bitrank.core.metrics import evaluate
from bitrank.ranking import AgreementRanker, WhRank


def fit(ranker, values, y):
    """Learn from values before the sign."""
    return ranker.fit(pack(np.asarray(values) > 0), y, queries=np.asarray(values))


def nearest_pairs(values, y):
    """Every row that has another of its class, and the nearest of those."""
    for i, row in enumerate(values):
        others = [j for j in range(len(values)) if j != i and y[j] == y[i]]
        if others:
            yield i, min(others, key=lambda j: np.square(values[j] - row).sum())


@given(st.integers(2, 40), st.integers(1, 20), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_spread_and_weights_are_those_of_all_nearest_pairs(n, n_bits, n_classes, seed):
    rng = np.random.default_rng(seed)
    values = (rng.normal(size=(n, n_bits)) * rng.uniform(0.1, 3, n_bits)).astype(np.float32).astype(float)
    y = rng.integers(n_classes, size=n)
    pairs = list(nearest_pairs(values, y))
    if not pairs:
        with pytest.raises(ValueError, match="at least two rows"):
            fit(AgreementRanker(), values, y)
        return
    first, second = (values[list(rows)] for rows in zip(*pairs, strict=True))
    ranker = fit(AgreementRanker(random_state=0), values, y)
    np.testing.assert_allclose(ranker.spread_, np.sqrt(np.mean((first - second) ** 2, axis=0)), rtol=1e-5)
    agree = np.sum(np.sign(first) == np.sign(second), axis=0)
    odds = (agree + 1) / (len(pairs) - agree + 1)
    np.testing.assert_allclose(ranker.weights_, np.log(np.where(odds < 1, 1, odds)), rtol=1e-6)

    codes, sizes = pack(values > 0), np.abs(values)
    plain, weights = ranker.queries_for(codes).weights, ranker.queries_for(values).weights
    np.testing.assert_array_equal(plain, np.broadcast_to(ranker.weights_, values.shape))
    z = sizes / ranker.spread_
    known = z < 30  # beyond that the reference is zero
    want = np.log(norm.cdf(z[known]) / norm.cdf(-z[known]))
    np.testing.assert_allclose(weights[known], want, rtol=1e-5, atol=1e-6)
    assert weights.dtype == plain.dtype == np.float32
    assert np.isfinite(weights).all()
    assert (weights >= 0).all()


def test_duplicate_rows_are_each_others_nearest_and_never_their_own():
    values = np.array([[1.0, 2], [1, 2], [1, 2], [5, -2], [9, 9]])
    ranker = fit(AgreementRanker(), values, [0, 0, 0, 0, 1])
    np.testing.assert_allclose(ranker.spread_, np.sqrt([16 / 4, 16 / 4]))
    np.testing.assert_allclose(ranker.weights_, np.log([5, 4 / 2]), rtol=1e-6)


def test_ranks_items_that_scatter_around_the_query_better_than_whrank():
    # Every class is a few tight groups far apart: pairs of a class say nothing of how a query's group scatters.
    rng = np.random.default_rng(0)
    groups = rng.normal(size=(300, 24))
    noise = np.geomspace(0.02, 1.5, 24)
    values = np.repeat(groups, 6, axis=0) + rng.normal(size=(1800, 24)) * noise
    y = np.repeat(np.arange(300) % 60, 6)
    train, test = np.arange(1800) % 2 == 0, np.arange(1800) % 2 == 1
    codes = pack(values[test] > 0)

    def mean_ap(ranker):
        weights = fit(ranker, values[train], y[train]).queries_for(values[test]).weights
        return evaluate(weighted_hamming(codes, codes, weights), y[test][:, None] == y[test])["map"]

    assert mean_ap(AgreementRanker(random_state=0)) > mean_ap(WhRank(random_state=0)) + 0.003


def test_a_sample_comes_close_to_all_rows_and_is_repeated_by_its_seed():
    rng = np.random.default_rng(1)
    values, y = rng.normal(size=(2000, 8)) * np.arange(1, 9), rng.integers(4, size=2000)
    ranker = AgreementRanker(n_rows=500, random_state=3)
    first = fit(ranker, values, y).spread_
    np.testing.assert_allclose(first, fit(AgreementRanker(n_rows=2000), values, y).spread_, rtol=0.1)
    np.testing.assert_array_equal(fit(clone(ranker), values, y).spread_, first)
    assert (fit(AgreementRanker(n_rows=500, random_state=4), values, y).spread_ != first).any()


def test_values_that_never_vary_take_the_smallest_spread_of_the_others():
    rng = np.random.default_rng(5)
    y = rng.integers(3, size=200)
    values = np.column_stack([rng.normal(size=200), 3 * rng.normal(size=200), y - 1.0, np.full(200, 0.1)])
    ranker = fit(AgreementRanker(), values, y)
    np.testing.assert_array_equal(ranker.spread_[2:], ranker.spread_[:2].min())
    np.testing.assert_array_equal(fit(AgreementRanker(), values[:, 2:], y).spread_, [1, 1])
    huge = ranker.queries_for(np.full((1, 4), 1e15)).weights
    assert np.isfinite(huge).all()


def test_labels_may_be_strings():
    rng = np.random.default_rng(4)
    values, y = rng.normal(size=(200, 8)), rng.integers(3, size=200)
    want = fit(AgreementRanker(random_state=0), values, y).spread_
    np.testing.assert_array_equal(
        fit(AgreementRanker(random_state=0), values, np.array(["ape", "bee", "cow"])[y]).spread_, want
    )
