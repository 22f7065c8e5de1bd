"""Quadruplets against what their labels and codes allow, listed by brute force; triplets against plain loops."""

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from bitrank.core.codes import hamming, pack
from bitrank.ranking.evidence import quadruplets as module
from bitrank.ranking.evidence.constraints import (
    check_constraints,
    triplets_from_clicks,
    triplets_from_grades,
    triplets_from_ranking,
)
from bitrank.ranking.evidence.kinds import LabelEvidence, QueryRows
from bitrank.ranking.evidence.quadruplets import draw_quadruplets
from bitrank.ranking.evidence.sampling import SAMPLINGS, label_samples

repeatable = settings(derandomize=True)


def every_quadruplet(y, query_y=None, allowed=None):
    """All that exist, by brute force; `allowed[query]` are the items that may be drawn for a query."""
    found = set()
    for query, label in enumerate(y if query_y is None else query_y):
        items = range(len(y)) if allowed is None else allowed[query]
        items = [item for item in items if query_y is not None or item != query]
        similar = [item for item in items if y[item] == label]
        for first, second in itertools.permutations(similar, 2):
            found |= {(query, item, first, second) for item in items if y[item] != label}
    return found


def as_set(rows):
    assert rows.dtype == np.int64
    assert rows.shape[1] == 4
    found = set(map(tuple, rows.tolist()))
    assert len(found) == len(rows), "the same quadruplet twice"
    return found


def random_codes(n, n_bits=16, seed=0):
    return pack(np.random.default_rng(seed).integers(2, size=(n, n_bits)))


# Uniform --------------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
    st.none() | st.lists(st.integers(0, 5), min_size=1, max_size=6),
    st.integers(1, 60),
    st.integers(0, 2**31),
)
@settings(max_examples=2 * settings.default.max_examples, derandomize=True)
def test_uniform_draws_distinct_ones_that_exist(y, query_y, n, seed):
    if len(set(y)) < 2:
        with pytest.raises(ValueError, match="y must hold at least two classes, got 1"):
            draw_quadruplets(y, n, query_y=query_y, random_state=seed)
        return
    exist = every_quadruplet(y, query_y)
    if not exist:
        with pytest.raises(ValueError, match="no class is large enough to draw from"):
            draw_quadruplets(y, n, query_y=query_y, random_state=seed)
        return
    drawn = as_set(draw_quadruplets(y, n, query_y=query_y, random_state=seed))
    assert drawn <= exist
    assert len(drawn) == min(n, len(exist))


@pytest.mark.parametrize("labels", [["a", "a", "a", "b", "b"], [0.5, 0.5, 0.5, 2.0, 2.0], [3, 3, 3, -1, -1]])
def test_all_that_exist_are_drawn_where_more_are_asked_for(labels):
    assert as_set(draw_quadruplets(labels, 10**6, random_state=0)) == every_quadruplet(labels)
    names = [*labels[:1], *labels[-1:]]
    assert as_set(draw_quadruplets(labels, 10**6, query_y=names, random_state=0)) == every_quadruplet(labels, names)


def test_drawing_all_of_many_ends_soon():
    y = np.repeat([0, 1, 2], 12)
    drawn = as_set(draw_quadruplets(y, 10**6, random_state=0))
    assert len(drawn) == 36 * 11 * 10 * 24


def test_classes_follow_their_frequencies_and_rows_are_even_within_them():
    y = np.random.default_rng(0).permutation(np.repeat([7, 8, 9], [50, 30, 20]))
    drawn = draw_quadruplets(y, 20_000, random_state=0)
    counts = np.bincount(y[drawn[:, 0]])[7:]
    assert scipy.stats.chisquare(counts, 20_000 * np.array([0.5, 0.3, 0.2])).pvalue > 1e-3
    # Within a class each query, and each row as similar one, comes as often as any other.
    for column in (0, 2, 3):
        for label in (7, 8, 9):
            rows = drawn[y[drawn[:, 0]] == label, column]
            assert scipy.stats.chisquare(np.bincount(rows, minlength=100)[y == label]).pvalue > 1e-4
    for label in (7, 8, 9):
        rows = drawn[y[drawn[:, 0]] == label, 1]
        assert scipy.stats.chisquare(np.bincount(rows, minlength=100)[y != label]).pvalue > 1e-4


def test_frequencies_are_those_of_the_queries_where_they_are_separate():
    y, query_y = np.repeat([0, 1, 2], 40), np.repeat([0, 1, 3], [10, 30, 60])  # class 3 has no items
    drawn = draw_quadruplets(y, 4000, query_y=query_y, random_state=1)
    assert scipy.stats.chisquare(np.bincount(query_y[drawn[:, 0]]), [1000, 3000]).pvalue > 1e-3


def test_small_classes_are_skipped():
    y = [0, 0, 0, 0, 1, 1, 2]
    assert {y[query] for query in draw_quadruplets(y, 20, random_state=0)[:, 0]} == {0}
    query_y = [0, 1, 2]
    assert {query_y[query] for query in draw_quadruplets(y, 20, query_y=query_y, random_state=0)[:, 0]} == {0, 1}
    with pytest.raises(ValueError, match=r"takes 3 items of one class, the largest of 2 classes has 2"):
        draw_quadruplets([0, 0, 1, 1], 5)
    with pytest.raises(ValueError, match=r"takes 2 items of one class, the largest of 2 classes has 1"):
        draw_quadruplets([0, 1], 5, query_y=[0, 1])
    with pytest.raises(ValueError, match="no class is large enough"):
        draw_quadruplets([0, 0, 0, 1, 1, 1], 5, query_y=[2, 3])


@pytest.mark.parametrize("way", [{"strategy": "uniform"}, {"strategy": "near", "n_neighbors": 20}])
def test_same_seed_same_draw(way):
    y, codes = np.arange(60) % 3, random_codes(60)
    first = draw_quadruplets(y, 50, codes=codes, random_state=3, **way)
    np.testing.assert_array_equal(draw_quadruplets(y, 50, codes=codes, random_state=3, **way), first)
    assert (draw_quadruplets(y, 50, codes=codes, random_state=4, **way) != first).any()


# Near -----------------------------------------------------------------------------------------------------------------


@given(
    st.integers(12, 40),
    st.integers(3, 12),
    st.integers(1, 24),
    st.booleans(),
    st.integers(1, 300),
    st.integers(0, 2**31),
)
@repeatable
def test_near_draws_within_the_nearest(n, n_neighbors, n_bits, separate, n_quadruplets, seed):
    rng = np.random.default_rng(seed)
    y, codes = rng.permutation(np.arange(n) % 3), random_codes(n, n_bits, seed)
    queries, query_y, query_codes = codes, None, None
    if separate:
        queries = query_codes = random_codes(9, n_bits, seed + 1)
        query_y = rng.permutation(np.arange(9) % 4)
    distance = hamming(queries, codes).astype(float)
    if not separate:
        np.fill_diagonal(distance, np.inf)
    rim = np.sort(distance, axis=1)[:, n_neighbors - 1]
    allowed = [np.flatnonzero(row <= limit) for row, limit in zip(distance, rim, strict=True)]
    exist = every_quadruplet(y, query_y, allowed)
    arguments = {"query_y": query_y, "strategy": "near", "codes": codes, "query_codes": query_codes}
    if not exist:
        with pytest.raises(ValueError, match="found no query with two similar and one dissimilar row"):
            draw_quadruplets(y, n_quadruplets, n_neighbors=n_neighbors, random_state=seed, **arguments)
        return
    try:
        drawn = draw_quadruplets(y, n_quadruplets, n_neighbors=n_neighbors, random_state=seed, **arguments)
    except ValueError:
        # Ties at the rim may have fallen so that nothing is left, but only ties.
        certain = [np.flatnonzero(row < limit) for row, limit in zip(distance, rim, strict=True)]
        assert not every_quadruplet(y, query_y, certain)
        return
    assert as_set(drawn) <= exist
    # Not more items of a query than it has neighbours, though more may be tied at the rim.
    for query in np.unique(drawn[:, 0]):
        assert len(np.unique(drawn[drawn[:, 0] == query, 1:])) <= n_neighbors


def distinct_distances(n):
    """Codes of a line: all distances from one code differ, but for two items on either side."""
    return pack(np.arange(n)[:, None] > np.arange(n))


@pytest.mark.parametrize("separate", [False, True])
def test_near_draws_all_that_exist_where_more_are_asked_for(separate):
    # Codes like 0, 1, 3, 7, 15, …: every distance to a query before the first item is different, so no ties.
    items, y = distinct_distances(24)[6:], np.array([0, 1, 1, 0, 0, 1, 0, 1, 1] * 2)
    if separate:
        queries, query_y = distinct_distances(24)[:5], np.array([0, 1, 1, 0, 2])
        allowed = [range(7)] * 5
        want = every_quadruplet(y, query_y, allowed)
        arguments = {"query_y": query_y, "query_codes": queries, "n_neighbors": 7}
    else:
        want = every_quadruplet(y)
        arguments = {"n_neighbors": len(y) - 1}
    drawn = draw_quadruplets(y, 100_000, strategy="near", codes=items, random_state=0, **arguments)
    assert as_set(drawn) == want


def test_near_looks_for_a_query_that_it_can_use():
    # Rows 0 to 3 have one code, the other neighbourhoods hold no two rows of the query's class.
    codes, y = random_codes(300, 256), np.arange(300) % 50
    codes[:4], y[:4] = codes[0], [0, 0, 0, 1]
    for seed in range(5):
        drawn = draw_quadruplets(y, 2, strategy="near", codes=codes, n_neighbors=3, random_state=seed)
        assert len(as_set(drawn)) == 2
        assert as_set(drawn) <= every_quadruplet(y, allowed=[range(4)] * 3 + [[]] * 297)


def test_near_looks_at_more_queries_where_neighbourhoods_are_small():
    y, codes = np.arange(200) % 2, random_codes(200, 64)
    drawn = draw_quadruplets(y, 100, strategy="near", codes=codes, n_neighbors=3, random_state=0)
    assert len(as_set(drawn)) == 100  # two a query at most, and not every query has any


def test_near_looks_at_a_bounded_number_of_queries(monkeypatch):
    monkeypatch.setattr(module, "MOST_NEAR_QUERIES", 7)
    y, codes = np.arange(200) % 2, random_codes(200, 64)
    drawn = draw_quadruplets(y, 1000, strategy="near", codes=codes, n_neighbors=20, random_state=0)
    assert len(np.unique(drawn[:, 0])) <= 7
    assert len(drawn) == 1000


def test_near_share_and_default():
    y, codes = np.arange(400) % 4, random_codes(400, 64)

    def draw(n_neighbors):
        return draw_quadruplets(y, 200, strategy="near", codes=codes, n_neighbors=n_neighbors, random_state=0)

    np.testing.assert_array_equal(draw(0.1), draw(40))
    np.testing.assert_array_equal(draw(None), draw(200))
    np.testing.assert_array_equal(draw(1000), draw(399))
    assert (draw(40) != draw(50)).any()


def test_near_bad_arguments():
    y, codes = np.arange(60) % 3, random_codes(60)
    for bad in (0, 1, 2, -4, 3.5, 1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="n_neighbors must be an integer from 3 on or a share between 0 and 1"):
            draw_quadruplets(y, 10, strategy="near", codes=codes, n_neighbors=bad)
    with pytest.raises(ValueError, match='"near" needs codes, and query_codes where query_y is given'):
        draw_quadruplets(y, 10, strategy="near")
    with pytest.raises(ValueError, match='"near" needs codes, and query_codes where query_y is given'):
        draw_quadruplets(y, 10, strategy="near", codes=codes, query_y=y)
    with pytest.raises(ValueError, match="same length, got 59 codes for 60 labels"):
        draw_quadruplets(y, 10, strategy="near", codes=codes[1:])
    with pytest.raises(ValueError, match="60 labels and 2 query codes for 60"):
        draw_quadruplets(y, 10, strategy="near", codes=codes, query_y=y, query_codes=codes[:2])
    with pytest.raises(ValueError, match="packed uint8 matrix"):
        draw_quadruplets(y, 10, strategy="near", codes=codes.astype(int))
    alone = np.concatenate([np.zeros(3, int), np.arange(1, 58)])
    apart = random_codes(60, 512)
    with pytest.raises(ValueError, match="no query with two similar and one dissimilar row among its 3 nearest"):
        draw_quadruplets(alone, 10, strategy="near", codes=apart, n_neighbors=3, random_state=0)


def test_bad_arguments():
    y = np.arange(60) % 3
    for bad in (0, -1):
        with pytest.raises(ValueError, match=f"n_quadruplets must be an int of at least 1, got {bad}"):
            draw_quadruplets(y, bad)
    with pytest.raises(ValueError, match=r"strategy must be one of \('uniform', 'near'\), got 'far'"):
        draw_quadruplets(y, 10, strategy="far")
    for bad in ([], [[1, 2], [3, 4]], 5):
        with pytest.raises(ValueError, match="y must hold one label for each code"):
            draw_quadruplets(bad, 10)
        with pytest.raises(ValueError, match="query_y must hold one label for each code"):
            draw_quadruplets(y, 10, query_y=bad)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="y must be finite"):
            draw_quadruplets([0.0, bad, 1.0], 10)
        with pytest.raises(ValueError, match="query_y must be finite"):
            draw_quadruplets(y, 10, query_y=[bad])


# Several ways ---------------------------------------------------------------------------------------------------------


def drawn_by(y, n, codes, samplings=SAMPLINGS):
    evidence = LabelEvidence(codes, y, QueryRows(codes, None), None, 8 * codes.shape[1])
    samples = label_samples(evidence, n, samplings, np.random.default_rng(0), lambda: np.arange(len(y)))
    return [(sampling, constraints.rows) for sampling, constraints in samples.draw(None, samplings)]


def test_label_samples_draw_as_each_way_does():
    y, codes = np.arange(300) % 3, random_codes(300, 32)
    drawn = drawn_by(y, 40, codes)
    assert [sampling for sampling, _ in drawn] == list(SAMPLINGS)
    random = np.random.default_rng(0)
    for way, rows in drawn:
        want = draw_quadruplets(y, 40, codes=codes, random_state=int(random.integers(2**31)), **way)
        np.testing.assert_array_equal(rows, want)


def test_label_samples_leave_out_what_finds_nothing_but_not_the_last():
    y, codes = np.concatenate([np.zeros(3, int), np.arange(1, 58)]), random_codes(60, 512)
    near, uniform = {"strategy": "near", "n_neighbors": 3}, {"strategy": "uniform"}

    def ways(*some):
        return [way for way, _ in drawn_by(y, 10, codes, some)]

    assert ways(near, uniform) == [uniform]
    with pytest.raises(ValueError, match="found no query"):
        ways(uniform, near)
    with pytest.raises(ValueError, match="at least two classes"):
        drawn_by(y * 0, 10, codes)


# Triplets -------------------------------------------------------------------------------------------------------------


rows_once = st.lists(st.integers(0, 50), max_size=8, unique=True)


@given(st.integers(0, 9), rows_once)
@repeatable
def test_triplets_from_ranking(query, ranked):
    want = {(query, worse, better) for better, worse in itertools.combinations(ranked, 2)}
    got = triplets_from_ranking(query, ranked)
    assert got.shape == (len(want), 3)
    assert got.dtype == np.int64
    assert set(map(tuple, got.tolist())) == want


@given(st.integers(0, 9), rows_once, st.data())
@repeatable
def test_triplets_from_grades_and_clicks(query, rows, data):
    size = {"min_size": len(rows), "max_size": len(rows)}
    grades = data.draw(st.lists(st.integers(-2, 2) | st.floats(-1, 1), **size))
    want = {
        (query, b, a)
        for a, high in zip(rows, grades, strict=True)
        for b, low in zip(rows, grades, strict=True)
        if high > low
    }
    got = triplets_from_grades(query, rows, grades)
    assert got.shape == (len(want), 3)
    assert set(map(tuple, got.tolist())) == want
    clicked = np.array(data.draw(st.lists(st.booleans(), **size)), bool)
    skipped = [row for row, click in zip(rows, clicked, strict=True) if not click]
    want = {(query, b, a) for a, click in zip(rows, clicked, strict=True) if click for b in skipped}
    got = triplets_from_clicks(query, rows, clicked)
    assert got.shape == (len(want), 3)
    assert set(map(tuple, got.tolist())) == want


def test_triplets_bad_input():
    with pytest.raises(ValueError, match="ranked must name each row once"):
        triplets_from_ranking(0, [1, 2, 1])
    with pytest.raises(ValueError, match="ranked must be a list of row numbers, got float64"):
        triplets_from_ranking(0, [1.0, 2.0])
    with pytest.raises(ValueError, match=r"rows must be a list of row numbers, got int64 of shape \(1, 2\)"):
        triplets_from_grades(0, [[1, 2]], [[1, 2]])
    for bad in ([1], [1, np.nan], [1, np.inf], [[1, 2]]):
        with pytest.raises(ValueError, match="grades must be 2 finite numbers, one per row"):
            triplets_from_grades(0, [1, 2], bad)
    for bad in ([True], [0, 1], [0.0, 1.0], [[True, False]]):
        with pytest.raises(ValueError, match="clicked must be 2 booleans, one for each row shown"):
            triplets_from_clicks(0, [1, 2], bad)


# Checks ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [3, 4])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.uint64])
def test_check_constraints(width, dtype):
    rows = np.array([[4, 0, 1, 2], [0, 2, 1, 0]], dtype)[:, :width]
    got = check_constraints(rows, n_items=3, n_queries=5)
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got, rows)
    np.testing.assert_array_equal(check_constraints(rows.tolist(), n_items=3, n_queries=5), rows)


def test_check_constraints_errors():
    for bad in (
        [1, 2, 3],
        np.zeros((2, 5), int),
        np.zeros((2, 2), int),
        np.zeros((2, 4)),
        np.zeros((2, 4), bool),
        "rows",
    ):
        with pytest.raises(ValueError, match=r"must be integers of shape \(m, 4\), or \(m, 3\) for triplets, got"):
            check_constraints(bad, 10, 10)
    with pytest.raises(ValueError, match="at least one constraint, got none"):
        check_constraints(np.zeros((0, 4), int), 10, 10)
    with pytest.raises(ValueError, match="query rows from 0 to 1, got 2 to 2"):
        check_constraints([[2, 0, 0]], n_items=3, n_queries=2)
    with pytest.raises(ValueError, match="item rows from 0 to 2, got 0 to 3"):
        check_constraints([[1, 0, 3]], n_items=3, n_queries=2)
    with pytest.raises(ValueError, match="item rows from 0 to 2, got -1 to 0"):
        check_constraints([[1, 0, -1]], n_items=3, n_queries=2)
    with pytest.raises(ValueError, match="query rows from 0 to 1, got -1 to -1"):
        check_constraints([[-1, 0, 0]], n_items=3, n_queries=2)
