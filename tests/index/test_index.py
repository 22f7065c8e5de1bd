"""Searches of an index: exact against NumPy for every shape and on every path of the kernel."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_reference import WEIGHT_KINDS, assert_equal, random_codes, random_weights, reference, rounded

from bitrank import _kernel
from bitrank.core.codes import hamming, pack, weighted_hamming
from bitrank.core.types import Queries
from bitrank.index import Index

PATHS = _kernel.kernel_paths()


@st.composite
def cases(draw):
    return {
        "seed": draw(st.integers(0, 2**32 - 1)),
        "n": draw(st.one_of(st.integers(0, 200), st.integers(0, 5000))),
        "n_bits": draw(st.one_of(st.sampled_from([8, 32, 64, 128, 256]), st.integers(1, 140), st.integers(1, 1100))),
        "k": draw(st.one_of(st.integers(1, 20), st.integers(1, 6000))),
        "kind": draw(st.sampled_from(WEIGHT_KINDS)),
        "built_for": draw(st.sampled_from(WEIGHT_KINDS)),
        "per_query": draw(st.booleans()),
        "clustered": draw(st.booleans()),
        "n_queries": draw(st.integers(0, 5)),
        "threads": draw(st.integers(1, 4)),
        "path": draw(st.sampled_from(PATHS)),
    }


def build_case(case):
    rng = np.random.default_rng(case["seed"])
    n, n_bits = case["n"], case["n_bits"]
    codes = random_codes(rng, n, n_bits, case["clustered"])
    ids = rng.choice(3 * n + 5, n, replace=False)
    queries = random_codes(rng, case["n_queries"], n_bits, False)
    if n and len(queries):
        queries[0] = codes[rng.integers(n)]
    shape = (len(queries), n_bits) if case["per_query"] else (n_bits,)
    index = Index(codes, n_bits=n_bits, ids=ids, weights=random_weights(rng, (n_bits,), case["built_for"]))
    return rng, index, codes, ids, queries, random_weights(rng, shape, case["kind"])


@given(cases())
@settings(max_examples=3 * settings.default.max_examples)
def test_search_equals_reference(case):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BITRANK_KERNEL", case["path"])
        _, index, codes, ids, queries, weights = build_case(case)
        found = index.search(queries, case["k"], weights=weights, threads=case["threads"])
        assert_equal(found, reference(queries, codes, ids, weights, case["k"]))


@pytest.mark.parametrize("n_bits", [24, 64, 128, 200, 1024])
def test_every_path_on_several_super_blocks(n_bits, monkeypatch):
    # More super-blocks than are taken best first, so that the pass in the order of memory and the threads have work.
    rng = np.random.default_rng(n_bits)
    n = 150_000 if n_bits <= 128 else 80_000  # of up to 128 bits, enough for sums of 8 bits
    codes = rng.integers(0, 256, (n, n_bits // 8), dtype=np.uint8)
    codes[n // 2 : n // 2 + 10_000] = codes[0]
    queries = np.concatenate([rng.integers(0, 256, (2, n_bits // 8), dtype=np.uint8), codes[:1]])
    uniform = rng.uniform(0.5, 1, n_bits).astype(np.float32)
    for weights in (np.ones(n_bits, np.float32), uniform, rounded(uniform)):
        index = Index(codes, weights=weights)
        expected = reference(queries, codes, np.arange(n), weights, 100)
        for path, threads in product(PATHS, (1, 2, 5)):
            monkeypatch.setenv("BITRANK_KERNEL", path)
            assert_equal(index.search(queries, 100, threads=threads), expected)
            for q in range(3):
                one = index.search(queries[q : q + 1], 100, threads=threads)
                assert_equal(one, (expected[0][q : q + 1], expected[1][q : q + 1]))


@given(cases())
def test_radius_equals_reference(case):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BITRANK_KERNEL", case["path"])
        rng, index, codes, ids, queries, weights = build_case(case)
        expected = reference(queries, codes, ids, weights, max(1, len(codes)))
        radius = float(rng.choice(expected[1].ravel())) if expected[1].size else 1.0
        found = index.search_radius(queries, radius, weights=weights, threads=case["threads"])
        counts = ((expected[1] <= radius) & (expected[0] >= 0)).sum(axis=1)
        assert found.ids.shape == (len(queries), counts.max(initial=0))
        for q, n in enumerate(counts):
            np.testing.assert_array_equal(found.ids[q, :n], expected[0][q, :n])
            np.testing.assert_array_equal(found.distances[q, :n], expected[1][q, :n])
            assert (found.ids[q, n:] == -1).all()
            assert np.isinf(found.distances[q, n:]).all()


def test_radius_between_two_floats():
    index = Index(pack([[1, 0]]), weights=np.float32([0.1, 0, 0, 0, 0, 0, 0, 0]))
    exactly = float(np.float32(0.1))
    assert index.search_radius(pack([[0, 0]]), exactly).ids.tolist() == [[0]]
    assert index.search_radius(pack([[0, 0]]), np.nextafter(exactly, 0)).ids.size == 0
    assert index.search_radius(pack([[1, 0]]), -1).ids.size == 0
    assert index.search_radius(pack([[0, 0]]), np.inf).ids.tolist() == [[0]]


@given(cases(), st.floats(0, 1), st.booleans())
def test_filter_and_removal_equal_reference(case, share, as_mask):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BITRANK_KERNEL", case["path"])
        rng, index, codes, ids, queries, weights = build_case(case)
        gone = rng.random(len(ids)) < share / 2
        index.remove(ids[gone])
        codes, ids = codes[~gone], ids[~gone]
        assert len(index) == len(ids)
        order = np.argsort(ids)
        wanted = rng.random(len(ids)) < share
        mask = wanted[order] if as_mask else rng.permutation(ids[wanted])
        found = index.search(queries, case["k"], weights=weights, filter=mask, threads=case["threads"])
        assert_equal(found, reference(queries, codes[wanted], ids[wanted], weights, case["k"]))


@given(cases(), st.integers(1, 50))
def test_candidates_equal_reference(case, candidates):
    _, index, codes, ids, queries, weights = build_case(case)
    found = index.search(
        queries, case["k"], weights=weights, method="rerank", candidates=candidates, threads=case["threads"]
    )
    rows = np.atleast_2d(weights)
    for q in range(len(queries)):
        near = np.lexsort((ids, hamming(queries[q : q + 1], codes)[0]))[:candidates] if len(ids) else np.empty(0, int)
        expected = reference(queries[q : q + 1], codes[near], ids[near], rows[q % len(rows)], case["k"])
        np.testing.assert_array_equal(found.ids[q], expected[0][0])
        np.testing.assert_array_equal(found.distances[q], expected[1][0])


def test_queries_of_a_ranker_go_to_every_method():
    """They bring their own weights, and those of the index do not count."""
    rng = np.random.default_rng(0)
    codes = random_codes(rng, 500, 40, True)
    queries = Queries(random_codes(rng, 3, 40, False), rng.random((3, 40)).astype(np.float32))
    index, plain = Index(codes, weights=rng.random(40)), Index(codes)
    candidate_ids = np.tile(np.arange(100), (3, 1))
    for ranked, expected in (
        (index.search(queries, 7), plain.search(queries.codes, 7, queries.weights)),
        (index.search(queries, 7, method="rerank"), plain.search(queries.codes, 7, queries.weights, method="rerank")),
        (index.search_radius(queries, 5), plain.search_radius(queries.codes, 5, queries.weights)),
        (index.rerank(queries, candidate_ids, 7), plain.rerank(queries.codes, candidate_ids, 7, queries.weights)),
    ):
        assert_equal(ranked, expected)
    expected = plain.distances(queries.codes, [3, 1], queries.weights)
    np.testing.assert_array_equal(index.distances(queries, [3, 1]), expected)
    with pytest.raises(ValueError, match="weights must be None"):
        index.search(queries, 7, np.ones(40))


def test_rerank_and_distances_equal_reference():
    rng = np.random.default_rng(0)
    codes, queries = random_codes(rng, 1000, 40, True), random_codes(rng, 3, 40, False)
    ids = rng.permutation(5000)[:1000]
    weights = rng.random((3, 40)).astype(np.float32)
    index = Index(codes, ids=ids)
    candidates = np.stack([rng.choice(ids, 100, replace=False) for _ in queries])
    padded = np.concatenate([candidates, np.full((3, 5), -1), candidates[:, :7]], axis=1)
    found = index.rerank(queries, padded, 20, weights=weights)
    position = {i: row for row, i in enumerate(ids)}
    for q in range(3):
        rows = [position[i] for i in candidates[q]]
        expected = reference(queries[q : q + 1], codes[rows], ids[rows], weights[q], 20)
        np.testing.assert_array_equal(found.ids[q], expected[0][0])
        np.testing.assert_array_equal(found.distances[q], expected[1][0])
    distances = index.distances(queries, ids[:50], weights=weights)
    np.testing.assert_array_equal(distances, weighted_hamming(queries, codes[:50], weights))
    assert index.rerank(queries, np.full((3, 2), -1), 4).ids.tolist() == [[-1] * 4] * 3


def test_reals_are_signs_and_magnitudes():
    rng = np.random.default_rng(0)
    codes, reals = random_codes(rng, 500, 50, False), rng.standard_normal((4, 50)).astype(np.float32)
    weights = rng.random(50).astype(np.float32)
    index = Index(codes, n_bits=50)
    expected = reference(pack(reals > 0), codes, np.arange(500), np.abs(reals), 10)
    assert_equal(index.search(reals, 10), expected)
    index.weights = weights
    expected = reference(pack(reals > 0), codes, np.arange(500), np.abs(reals) * weights, 10)
    assert_equal(index.search(reals, 10), expected)
    # A linear score orders the same way: s . f falls as the distance grows.
    signs = np.unpackbits(codes, axis=1, count=50) * 2.0 - 1
    scores = (signs * weights) @ reals[0]
    found = index.search(reals[:1], 10).ids[0]
    assert (np.diff(scores[found]) <= 1e-5).all()
    assert scores[found[-1]] >= np.sort(scores)[-10] - 1e-5


def test_a_sample_of_the_rows():
    codes = pack((np.arange(500)[:, None] >> np.arange(16)) & 1)
    index = Index(codes, ids=np.random.default_rng(0).permutation(500) + 7)
    sample = index.sample(50)
    assert sample.shape == (50, 2)
    assert len(np.unique(sample, axis=0)) == 50
    np.testing.assert_array_equal(sample, index.sample(50))
    assert {code.tobytes() for code in index.sample(1000)} == {code.tobytes() for code in codes}
    assert Index(n_bits=16).sample(3).shape == (0, 2)
    with pytest.raises(ValueError, match="n must be"):
        index.sample(0)
