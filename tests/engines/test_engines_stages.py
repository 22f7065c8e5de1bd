"""Ranking what an engine fetched, and how much it should fetch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitrank import Index
from bitrank.core.codes import pack
from bitrank.core.types import Queries
from bitrank.engines import rerank, suggest_candidates

RNG = np.random.default_rng(0)


@given(data=st.data())
def test_fetched_codes_rank_as_in_an_index(data):
    n_bits = data.draw(st.sampled_from([5, 8, 64, 98]))
    codes = pack(np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 2, (30, n_bits)))
    queries, k = codes[:3] ^ codes[3:6], data.draw(st.integers(1, 12))
    weights = np.random.default_rng(1).random((3, n_bits)).astype(np.float32)
    ids = [np.array(data.draw(st.lists(st.integers(0, 29), unique=True, max_size=9)), np.int64) for _ in queries]
    padded = np.array([np.pad(row, (0, 9 - len(row)), constant_values=-1) for row in ids])
    expected = Index(codes, n_bits=n_bits).rerank(queries, padded, k, weights)
    found = rerank(queries, [(row, codes[row]) for row in ids], k, weights, n_bits)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.distances, expected.distances)
    of_ranker = rerank(Queries(queries, weights), [(row, codes[row]) for row in ids], k)
    np.testing.assert_array_equal(of_ranker.ids, expected.ids)
    np.testing.assert_array_equal(of_ranker.distances, expected.distances)


def test_rerank_needs_the_number_of_bits():
    with pytest.raises(ValueError, match="n_bits must be an int unless queries are Queries"):
        rerank(np.zeros((1, 1), np.uint8), [(np.array([0]), np.zeros((1, 1), np.uint8))], 1)


def clustered(n, seed):
    """Codes around 50 centres, some bits flipped: neighbours, as real codes have them."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(7).integers(0, 2, (50, 64))
    return pack(centres[rng.integers(0, 50, n)] ^ (rng.random((n, 64)) < 0.15))


WEIGHTS = np.random.default_rng(3).lognormal(0, 0.7, 64)


def recall_of(codes, queries, k, candidates):
    index = Index(codes, weights=WEIGHTS)
    pairs = zip(
        index.search(queries, k).ids, index.search(queries, k, method="rerank", candidates=candidates).ids, strict=True
    )
    return np.mean([len(np.intersect1d(a, b)) / k for a, b in pairs])


@pytest.mark.parametrize("wanted", [0.7, 0.9, 0.99])
def test_suggested_candidates_reach_the_recall(wanted):
    codes, queries = clustered(20_000, 0), clustered(300, 1)
    n = suggest_candidates(codes, WEIGHTS, k=50, recall=wanted, random_state=0)
    assert recall_of(codes, queries, 50, n) == pytest.approx(wanted, abs=0.02)
    # On the very queries that will be asked it is the least that does, up to ties.
    n = suggest_candidates(codes, WEIGHTS, k=50, recall=wanted, queries=queries)
    assert recall_of(codes, queries, 50, n) == pytest.approx(wanted, abs=0.005)


def test_a_sample_speaks_for_the_collection():
    codes, queries = clustered(100_000, 0), clustered(300, 1)
    n = suggest_candidates(codes[:20_000], WEIGHTS, k=100, recall=0.9, n=100_000, random_state=0)
    assert recall_of(codes, queries, 100, n) == pytest.approx(0.9, abs=0.03)


def test_equal_codes_are_as_good_as_each_other():
    """Half of the collection is one code: any hundred of them are the hundred nearest."""
    codes = clustered(20_000, 0)
    codes[::2] = codes[0]
    assert suggest_candidates(codes, WEIGHTS, k=100, recall=1, queries=codes[:1]) == 100
    assert suggest_candidates(codes, np.ones(64), k=100, recall=1, random_state=0) == 100
    # Nearer codes that are missing are not made up for by more of the equal ones.
    far, near = codes[:1].copy(), codes[:1].copy()
    near[0, 0] ^= 0b11  # two bits of little weight
    far[0, 1] ^= 1  # one bit of much
    weights = np.ones(64)
    weights[15] = 9
    codes = np.concatenate([near, np.repeat(far, 50, axis=0)])
    assert (
        suggest_candidates(codes, weights, k=2, recall=1, queries=codes[:1] ^ np.uint8([3, 0, 0, 0, 0, 0, 0, 0])) == 51
    )


def test_all_are_needed_where_the_weights_turn_the_order():
    codes = pack([[1, 1, 1, 0], [0, 0, 0, 1]])
    query = pack([[0, 0, 0, 0]])  # the first differs in three bits of no weight
    assert suggest_candidates(codes, [0, 0, 0, 1], k=1, recall=1, queries=query) == 2
    assert suggest_candidates(codes, [1, 1, 1, 1], k=1, recall=1, queries=query) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recall": 0}, "recall must be"),
        ({"recall": 1.1}, "recall must be"),
        ({"k": 0}, "k must be"),
        ({"k": 101}, "k must be"),
        ({"weights": np.ones((2, 16))}, "one vector"),
        ({"weights": np.ones(30)}, "bytes wide"),
        ({"codes": np.empty((0, 2), np.uint8)}, "needs codes and queries"),
        ({"queries": np.empty((0, 2), np.uint8)}, "needs codes and queries"),
    ],
)
def test_bad_input_is_refused(options, message):
    arguments = {"codes": RNG.integers(0, 256, (200, 2), dtype=np.uint8), "weights": np.ones(16), "k": 10, **options}
    with pytest.raises(ValueError, match=message):
        suggest_candidates(**arguments)
