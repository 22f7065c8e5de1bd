"""Measures against every order of the ties, against scikit-learn, and against plain loops."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score

from bitrank.core import metrics, ties
from experiments.judging import authors_map

PER_QUERY = {
    "average_precision": metrics.average_precision,
    "precision_at": lambda d, r: metrics.precision_at(d, r, 3),
    "recall_at": lambda d, r: metrics.recall_at(d, r, 3),
    "voc11": metrics.voc11,
}
MEANS = {
    "mean_average_precision": metrics.mean_average_precision,
    "mean_precision_recall": metrics.mean_precision_recall,
    "evaluate": metrics.evaluate,
}
EVERY = PER_QUERY | MEANS | {"precision_recall": metrics.precision_recall}


def orders(distances):
    """Every order of the items by distance, all orders of the tied ones included."""
    groups = [np.flatnonzero(distances == value) for value in np.unique(distances)]
    for parts in itertools.product(*(itertools.permutations(group) for group in groups)):
        yield [item for part in parts for item in part]


def expected(measure, distances, values):
    return np.mean([measure([values[item] for item in order]) for order in orders(distances)], axis=0)


def plain_average_precision(ordered):
    ranks = np.flatnonzero(ordered) + 1
    return np.mean([(index + 1) / rank for index, rank in enumerate(ranks)])


def plain_hits(ordered):
    return np.cumsum(ordered)


def plain_dcg(ordered):
    return sum(gain / np.log2(place + 2) for place, gain in enumerate(ordered))


def plain_interpolated(precision, recall, levels):
    return [max(p for p, r in zip(precision, recall, strict=True) if r >= level - 1e-9) for level in levels]


@st.composite
def small_case(draw, max_items=6):
    n = draw(st.integers(1, max_items))
    distances = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    relevant = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    relevant[draw(st.integers(0, n - 1))] = True
    return distances, relevant


@st.composite
def matrix_case(draw):
    n_queries, n = draw(st.integers(1, 5)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    distances = rng.integers(0, draw(st.integers(1, 60)), size=(n_queries, n)).astype(np.float32)
    relevant = rng.random((n_queries, n)) < draw(st.floats(0.05, 0.95))
    relevant[np.arange(n_queries), rng.integers(n, size=n_queries)] = True
    return distances, relevant


@given(small_case(), st.integers(1, 8))
def test_expectation_over_every_order_of_ties(case, k):
    distances, relevant = case
    n, d, r = len(distances), distances[None], relevant[None]
    hits = expected(plain_hits, distances, relevant)
    np.testing.assert_allclose(
        metrics.average_precision(d, r)[0], expected(plain_average_precision, distances, relevant)
    )
    np.testing.assert_allclose(metrics.precision_at(d, r, k)[0], hits[min(k, n) - 1] / min(k, n))
    np.testing.assert_allclose(metrics.recall_at(d, r, k)[0], hits[min(k, n) - 1] / relevant.sum())
    precision, recall = metrics.precision_recall(d, r)
    np.testing.assert_allclose(precision[0], hits / np.arange(1, n + 1))
    np.testing.assert_allclose(recall[0], hits / relevant.sum())


@given(small_case(), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_ndcg_is_the_expectation_over_every_order_of_ties(case, k, seed):
    distances, _ = case
    gains = np.random.default_rng(seed).random(len(distances)) + 0.01
    best = plain_dcg(sorted(gains, reverse=True)[:k])
    want = expected(lambda ordered: plain_dcg(ordered[:k]) / best, distances, gains)
    np.testing.assert_allclose(metrics.ndcg_at(distances[None], gains[None], k)[0], want)


@given(st.integers(2, 300), st.floats(0.05, 0.95), st.integers(0, 2**32 - 1))
def test_average_precision_without_ties_is_that_of_sklearn(n, share, seed):
    rng = np.random.default_rng(seed)
    distances = rng.permuted(np.tile(np.arange(n, dtype=np.float32), (3, 1)), axis=1)
    relevant = rng.random((3, n)) < share
    relevant[:, 0] = True
    want = [average_precision_score(r, -d) for d, r in zip(distances, relevant, strict=True)]
    np.testing.assert_allclose(metrics.average_precision(distances, relevant), want)


@given(matrix_case(), st.integers(1, 50), st.integers(0, 2**32 - 1))
def test_ndcg_is_that_of_sklearn(case, k, seed):
    distances, relevant = case
    if distances.shape[1] == 1:
        return  # scikit-learn refuses a collection of one
    gains = relevant * np.random.default_rng(seed).integers(1, 5, size=relevant.shape)
    got = metrics.ndcg_at(distances, gains, k)
    want = [ndcg_score(g[None], -d[None], k=k) for d, g in zip(distances, gains, strict=True)]
    np.testing.assert_allclose(got, want)
    np.testing.assert_array_equal(
        metrics.ndcg_at(distances, relevant, k), metrics.ndcg_at(distances, relevant * 1.0, k)
    )


@given(matrix_case())
def test_interpolated_measures_against_loops(case):
    distances, relevant = case
    precision, recall = metrics.precision_recall(distances, relevant)
    want = [np.mean(plain_interpolated(p, r, np.arange(11) / 10)) for p, r in zip(precision, recall, strict=True)]
    np.testing.assert_allclose(metrics.voc11(distances, relevant), want)
    curve = precision.mean(axis=0), recall.mean(axis=0)
    np.testing.assert_allclose(metrics.mean_precision_recall(distances, relevant), curve)
    want = sum(plain_interpolated(*curve, np.arange(10) / 10)) / 11
    np.testing.assert_allclose(authors_map(distances, relevant), want)


def test_recall_levels_are_met_exactly():
    # Ten relevant items: recall 0.3 is three of them, although 3 / 10 < 0.1 * 3 in floats.
    relevant = np.zeros((1, 100), bool)
    relevant[0, [0, 5, 6, 20, 33, 40, 41, 60, 77, 99]] = True
    distances = np.arange(100)[None]
    precision = (np.arange(10) + 1) / (np.flatnonzero(relevant) + 1)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    assert metrics.voc11(distances, relevant)[0] == pytest.approx((best[0] + best.sum()) / 11)
    assert authors_map(distances, relevant) == pytest.approx((best[0] + best[:9].sum()) / 11)


@given(matrix_case(), st.integers(1, 45))
def test_tie_mass_against_loops(case, k):
    distances, _ = case
    want = []
    for row in distances:
        first = np.sort(row)[:k]
        want.append(np.mean([np.sum(row == value) > 1 for value in first]))
    np.testing.assert_allclose(metrics.tie_mass(distances, k), want)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int8, np.uint16, np.int64, np.float16, np.float32, np.float64])
def test_every_dtype_gives_the_same(dtype):
    rng = np.random.default_rng(3)
    exact = rng.integers(0, 2 if dtype is bool else 100, size=(7, 200))
    relevant = rng.random(exact.shape) < 0.2
    want = metrics.evaluate(exact.astype(np.float32), relevant)
    assert metrics.evaluate(exact.astype(dtype), relevant) == pytest.approx(want)


@pytest.mark.parametrize("dtype", [np.uint16, np.float32, np.float64])
@pytest.mark.parametrize("lay", [np.asfortranarray, lambda a: np.repeat(a, 2, axis=1)[:, ::2], lambda a: a[::-1][::-1]])
def test_every_layout_of_memory_gives_the_same(dtype, lay):
    random = np.random.default_rng(0)
    distances, relevant = random.integers(9, size=(20, 50)).astype(dtype), random.random((20, 50)) < 0.2
    for measure in PER_QUERY.values():
        np.testing.assert_array_equal(measure(lay(distances), lay(relevant)), measure(distances, relevant))
    assert metrics.evaluate(lay(distances), lay(relevant)) == metrics.evaluate(distances, relevant)


@pytest.mark.parametrize("dtype", [np.int64, np.float16, np.float32, np.float64, np.longdouble])
def test_negative_and_huge_distances(dtype):
    rng = np.random.default_rng(4)
    exact = rng.integers(0, 100, size=(7, 200))
    relevant = rng.random(exact.shape) < 0.2
    want = metrics.evaluate(exact, relevant)
    shift = 2**40 if dtype is np.int64 else 0
    assert metrics.evaluate((exact - 50).astype(dtype), relevant) == pytest.approx(want)
    assert metrics.evaluate((exact + shift).astype(dtype), relevant) == pytest.approx(want)


def test_infinite_distances_and_signed_zeros_tie():
    relevant = np.array([[True, False, True, False]])
    want = metrics.average_precision([[0, 0, 1, 1]], relevant)
    np.testing.assert_array_equal(metrics.average_precision(np.float32([[0.0, -0.0, np.inf, np.inf]]), relevant), want)
    np.testing.assert_array_equal(metrics.average_precision([[-np.inf, -np.inf, 0.0, -0.0]], relevant), want)


@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_evaluate_agrees_with_the_single_functions_over_many_chunks(monkeypatch, dtype):
    rng = np.random.default_rng(5)
    distances = rng.integers(0, 400, size=(50, 300)).astype(dtype)
    relevant = rng.integers(10, size=(50, 1)) == rng.integers(10, size=300)
    whole = metrics.evaluate(distances, relevant, ks=(10, 100))
    monkeypatch.setattr(ties, "_CHUNK", 1000)
    means = metrics.evaluate(distances, relevant, ks=(10, 100))
    assert means == pytest.approx(whole)
    assert means == pytest.approx(
        {
            "map": metrics.mean_average_precision(distances, relevant),
            "voc11": np.nanmean(metrics.voc11(distances, relevant)),
            "p10": np.nanmean(metrics.precision_at(distances, relevant, 10)),
            "p100": np.nanmean(metrics.precision_at(distances, relevant, 100)),
        }
    )


def test_perfect_ranking():
    relevant = np.arange(40)[None] < 20
    distances = np.arange(40)[None]
    means = metrics.evaluate(distances, relevant, ks=(20,))
    assert means == pytest.approx({"map": 1, "voc11": 1, "p20": 1})
    assert authors_map(distances, relevant) == pytest.approx(10 / 11)
    assert metrics.ndcg_at(distances, relevant, 30)[0] == pytest.approx(1)


def test_queries_without_relevant_items_are_nan_and_left_out_of_means():
    distances = np.array([[0, 1, 2], [2, 1, 0], [1, 0, 2]])
    relevant = np.array([[True, False, True], [False, False, False], [False, True, False]])
    kept = [0, 2]
    for measure in PER_QUERY.values():
        values = measure(distances, relevant)
        np.testing.assert_array_equal(np.isnan(values), [False, True, False])
        np.testing.assert_array_equal(values[kept], measure(distances[kept], relevant[kept]))
    assert np.isnan(metrics.ndcg_at(distances, relevant, 2)[1])
    precision, recall = metrics.precision_recall(distances, relevant)
    np.testing.assert_array_equal(np.isnan(precision).all(axis=1), [False, True, False])
    np.testing.assert_array_equal(np.isnan(recall).all(axis=1), [False, True, False])
    for name, mean in MEANS.items():
        got, want = mean(distances, relevant), mean(distances[kept], relevant[kept])
        if name == "evaluate":
            assert got == want
        else:
            np.testing.assert_allclose(got, want)
        with pytest.raises(ValueError, match="at least one query"):
            mean(distances, np.zeros_like(relevant))


@pytest.mark.parametrize("name", EVERY)
def test_bad_input(name):
    measure = EVERY[name]
    relevant = np.ones((2, 3), bool)
    for dtype in (np.float32, np.float64, np.longdouble):
        with pytest.raises(ValueError, match="NaN"):
            measure(np.array([[0, 1, 2], [0, np.nan, 1]], dtype), relevant)
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(3, 3\)"):
        measure(np.zeros((2, 3)), np.ones((3, 3), bool))
    with pytest.raises(ValueError, match="bool"):
        measure(np.zeros((2, 3)), relevant.astype(int))
    with pytest.raises(ValueError, match="one row per query"):
        measure(np.zeros(3), np.ones(3, bool))
    with pytest.raises(ValueError, match="real matrix"):
        measure(np.zeros((2, 3), complex), relevant)
    for shape in ((0, 3), (3, 0)):
        with pytest.raises(ValueError, match="at least one query and one item"):
            measure(np.zeros(shape), np.ones(shape, bool))


def test_bad_cut_offs_and_gains():
    distances, relevant = np.zeros((2, 3)), np.ones((2, 3), bool)
    for k in (0, -1, 2.5):
        for measure in (metrics.precision_at, metrics.recall_at, metrics.ndcg_at):
            with pytest.raises(ValueError, match=f"at least 1, got {k}"):
                measure(distances, relevant, k)
        with pytest.raises(ValueError, match="at least 1"):
            metrics.tie_mass(distances, k)
        with pytest.raises(ValueError, match="at least 1"):
            metrics.evaluate(distances, relevant, ks=(10, k))
    with pytest.raises(ValueError, match="NaN"):
        metrics.tie_mass(distances * np.nan, 2)
    with pytest.raises(ValueError, match="NaN"):
        metrics.ndcg_at(distances * np.nan, relevant, 2)
    for gains in (-np.ones((2, 3)), np.full((2, 3), np.inf)):
        with pytest.raises(ValueError, match="finite and not negative"):
            metrics.ndcg_at(distances, gains, 2)
    with pytest.raises(ValueError, match="gains must be real"):
        metrics.ndcg_at(distances, np.ones((3, 2)), 2)


@given(st.integers(1, 9), st.integers(1, 40), st.sampled_from([np.uint32, np.int64, np.float32]), st.data())
def test_the_smallest_columns_are_the_first_of_a_stable_sort(n, width, dtype, data):
    values = np.random.default_rng(data.draw(st.integers(0, 2**31))).integers(0, 12, (n, width)).astype(dtype)
    if dtype == np.float32:
        values[values > 8] = np.inf
    k = data.draw(st.integers(1, width))
    expected = np.sort(np.argsort(values, axis=1, kind="stable")[:, :k], axis=1)
    np.testing.assert_array_equal(ties.smallest_columns(values, k), expected)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_first_ones_are_the_mean_over_every_order_of_ties(n, k, seed):
    rng = np.random.default_rng(seed)
    distances, relevant = rng.integers(0, 3, (1, n)), rng.random((1, n)) < 0.5
    relevant[0, rng.integers(n)] = True
    rows = []
    for order in itertools.permutations(range(n)):
        hits = relevant[0, sorted(range(n), key=lambda item: (distances[0, item], order[item]))]
        ranks, others = np.flatnonzero(hits) + 1, np.flatnonzero(~hits)
        early = np.exp(-20 * np.arange(1, n + 1) / n)
        most, least = early[: len(ranks)].sum(), early[n - len(ranks) :].sum()
        rows.append(
            (
                1 / ranks[0] if ranks[0] <= k else 0,
                np.mean(ranks - 1 < (others[k - 1] if len(others) >= k else n)),
                (early[ranks - 1].sum() - least) / (most - least) if len(ranks) < n else 1,
            )
        )
    found = (
        metrics.reciprocal_rank_at(distances, relevant, k),
        metrics.recall_before(distances, relevant, k),
        metrics.bedroc(distances, relevant),
    )
    np.testing.assert_allclose(np.ravel(found), np.mean(rows, axis=0), atol=1e-9)
    none = np.zeros((1, n), bool)
    assert np.isnan([metrics.reciprocal_rank_at(distances, none, k), metrics.bedroc(distances, none)]).all()
