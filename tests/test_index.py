"""Index: exactness against NumPy for every shape and on every path of the kernel, and every operation on rows."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitrank import _kernel
from bitrank.codes import hamming, pack, weighted_hamming
from bitrank.index import Index
from bitrank.index.segments import bit_order, order_quality
from bitrank.vocabulary import Queries

PATHS = _kernel.kernel_paths()


def reference(queries, codes, ids, weights, k):
    """Ids and distances by NumPy, sorted by distance and then by id, padded."""
    distances = np.empty((len(queries), 0), np.float32)
    if len(codes):
        with np.errstate(over="ignore"):
            distances = weighted_hamming(queries, codes, weights)
    order = np.lexsort((np.broadcast_to(ids, distances.shape), distances), axis=1)[:, :k]
    out_ids = np.full((len(queries), k), -1, np.int64)
    out = np.full((len(queries), k), np.inf, np.float32)
    out_ids[:, : order.shape[1]] = ids[order]
    out[:, : order.shape[1]] = np.take_along_axis(distances, order, 1)
    return out_ids, out


def assert_equal(results, expected):
    np.testing.assert_array_equal(results.ids, expected[0])
    np.testing.assert_array_equal(results.distances, expected[1])


def random_codes(rng, n, n_bits, clustered):
    """Random bits, or noisy copies of few centres: real codes have near neighbours and repeated rows."""
    bits = rng.integers(0, 2, (n, n_bits), dtype=np.uint8)
    if clustered and n:
        centres = rng.integers(0, 2, (max(1, n // 100), n_bits), dtype=np.uint8)
        bits = centres[rng.integers(0, len(centres), n)] ^ (rng.random((n, n_bits)) < 0.05)
    return pack(bits)


def random_weights(rng, shape, kind):
    return {
        "even": np.ones(shape),
        "same": np.full(shape, 0.1),
        "power": np.where(rng.random(shape) < 0.8, 2.0**-9, 0),
        "tiny": np.full(shape, 2.0**-149),
        "huge": np.full(shape, 2.0**127),
        "integers": rng.integers(0, 4, shape),
        "uniform": rng.random(shape),
        "sparse": rng.random(shape) * (rng.random(shape) < 0.2),
        "decay": np.broadcast_to(np.exp(-np.arange(shape[-1]) / 8), shape),
        "lognormal": rng.lognormal(0, 2, shape),
        "extreme": 10.0 ** rng.uniform(-44, 38, shape),
        "zero": np.zeros(shape),
    }[kind].astype(np.float32)


WEIGHT_KINDS = [
    "even",
    "same",
    "power",
    "tiny",
    "huge",
    "integers",
    "uniform",
    "sparse",
    "decay",
    "lognormal",
    "extreme",
    "zero",
]


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


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("n_bits", [24, 64, 128, 200, 1024])
def test_every_path_on_several_super_blocks(path, n_bits, monkeypatch):
    # More super-blocks than are taken best first, so that the pass in the order of memory and the threads have work.
    monkeypatch.setenv("BITRANK_KERNEL", path)
    rng = np.random.default_rng(n_bits)
    n = 150_000 if n_bits <= 64 else 80_000
    codes = rng.integers(0, 256, (n, n_bits // 8), dtype=np.uint8)
    codes[n // 2 : n // 2 + 10_000] = codes[0]
    queries = np.concatenate([rng.integers(0, 256, (2, n_bits // 8), dtype=np.uint8), codes[:1]])
    for weights in (np.ones(n_bits, np.float32), rng.uniform(0.5, 1, n_bits).astype(np.float32)):
        index = Index(codes, weights=weights)
        expected = reference(queries, codes, np.arange(n), weights, 100)
        for threads in (1, 2, 5):
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


@given(st.integers(0, 2**32 - 1))
def test_any_sequence_of_writes(seed):
    rng = np.random.default_rng(seed)
    n_bits = int(rng.integers(1, 100))
    index, kept = Index(n_bits=n_bits), {}
    for _ in range(12):
        action = rng.choice(["add", "add", "remove", "update", "optimize", "weights"])
        n = int(rng.integers(0, 300))
        codes = random_codes(rng, n, n_bits, bool(rng.integers(2)))
        some = rng.permutation(list(kept))[:n].astype(int)
        if action == "add":
            ids = np.arange(n) + max(kept, default=-1) + 1
            index.add(codes, None if rng.integers(2) else ids)
            kept |= zip(ids.tolist(), codes, strict=True)
        elif action == "remove":
            index.remove(some)
            for i in some.tolist():
                del kept[i]
        elif action == "update":
            index.update(some, codes[: len(some)])
            kept |= zip(some.tolist(), codes[: len(some)], strict=True)
        elif action == "optimize":
            index.optimize()
        else:
            index.weights = rng.lognormal(0, 2, n_bits)
        ids = np.array(sorted(kept), np.int64)
        codes = np.array([kept[i] for i in ids.tolist()], np.uint8).reshape(len(ids), -(-n_bits // 8))
        assert list(index) == ids.tolist()
        assert len(index) == len(ids)
        queries = random_codes(rng, 2, n_bits, False)
        weights = np.ones(n_bits, np.float32) if index.weights is None else index.weights
        assert_equal(index.search(queries, 9), reference(queries, codes, ids, weights, 9))
        exported, exported_ids = index.export()
        np.testing.assert_array_equal(exported[np.argsort(exported_ids)], codes)
        np.testing.assert_array_equal(np.sort(exported_ids), ids)
        some = rng.permutation(len(ids))[:70]
        np.testing.assert_array_equal(index.codes(ids[some]), codes[some])


def test_segments_stay_few():
    index = Index(n_bits=16)
    rng = np.random.default_rng(0)
    for _ in range(500):
        index.add(random_codes(rng, 1, 16, False))
    assert len(index._snapshot.segments) <= 10
    assert len(index) == 500


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("n_wanted", [1, 500, 60_000])
def test_ids_are_found_in_runs_of_many_rows(gaps, n_wanted):
    rng = np.random.default_rng(0)
    n = 150_001  # more than 65536: a run holds several rows
    ids = rng.permutation(n) if not gaps else rng.permutation(np.cumsum(rng.integers(1, 10**12, n)))
    codes = rng.integers(0, 256, (n, 2), dtype=np.uint8)
    index = Index(codes, ids=ids)
    rows = rng.choice(n, n_wanted, replace=False)
    query = np.zeros((1, 2), np.uint8)
    np.testing.assert_array_equal(index.distances(query, ids[rows])[0], hamming(query, codes[rows])[0])
    absent = ids.max() + 1 if not gaps else np.setdiff1d(ids + 1, ids)[0]
    with pytest.raises(ValueError, match=f"got {absent}, which is not"):
        index.distances(query, [*ids[rows[:-1]], absent])
    index.remove(ids[rows])
    left = np.setdiff1d(np.arange(n), rows)
    np.testing.assert_array_equal(index.ids, np.sort(ids[left]))
    with pytest.raises(ValueError, match=f"got {ids[rows[0]]}, which is not"):
        index.remove(ids[rows[:1]])


def test_an_id_may_come_back():
    index = Index(pack([[1, 0], [0, 1]]), ids=[3, 9])
    index.remove([3])
    index.add(pack([[1, 1]]), ids=[3])
    assert index.search(pack([[1, 1]]), 2).ids.tolist() == [[3, 9]]


def test_new_weights_sort_the_rows_behind_searches():
    rng = np.random.default_rng(0)
    codes, queries = random_codes(rng, 20_000, 64, False), random_codes(rng, 2, 64, False)
    first = np.exp(-np.arange(64) / 4).astype(np.float32)
    index = Index(codes, weights=first)
    assert index.order_quality() > 0.95
    index.weights = first[::-1]
    assert_equal(index.search(queries, 10), reference(queries, codes, np.arange(20_000), first[::-1], 10))
    deadline = time.monotonic() + 60
    while index.order_quality() < 0.95 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert index.order_quality() > 0.95
    assert_equal(index.search(queries, 10), reference(queries, codes, np.arange(20_000), first[::-1], 10))


def test_order_quality_is_the_share_of_weight_that_the_sort_settles():
    weights = np.float32([8, 4, 2, 1])
    assert order_quality(np.uint16([0, 1, 2, 3]), weights, 256) == 1
    assert order_quality(np.uint16([3, 2, 1, 0]), weights, 256) == 3 / 12
    assert order_quality(np.uint16([3, 2, 1, 0]), np.zeros(4, np.float32), 256) == 1


def test_the_heaviest_bits_come_first():
    assert bit_order(3, np.float32([1, 3, 2])).tolist() == [1, 2, 0]
    assert bit_order(3, None).tolist() == [0, 1, 2]


def test_search_while_rows_and_weights_change():
    """Whatever moment a search sees, its answer is that of one set of rows and one weight vector."""
    rng = np.random.default_rng(0)
    codes, query = random_codes(rng, 6000, 64, True), random_codes(rng, 1, 64, False)
    choices = [None, *rng.lognormal(0, 2, (3, 64)).astype(np.float32)]
    index = Index(codes[:1000], weights=choices[0])
    # Rows are added 500 at a time, and the last 100 of the first 1000 go away in one step: 12 states, 4 weights.
    states = [np.arange(n) for n in range(1000, 6001, 500)]
    states.append(np.delete(np.arange(6000), np.arange(900, 1000)))
    allowed = set()
    for ids in states:
        for weights in choices:
            w = np.ones(64, np.float32) if weights is None else weights
            expected = reference(query, codes[ids], ids, w, 5)
            allowed.add((expected[0].tobytes(), expected[1].tobytes()))
    done, wrong, seen = threading.Event(), [], set()

    def searching(threads):
        while not done.is_set():
            found = index.search(query, 5, threads=threads)
            key = (found.ids.tobytes(), found.distances.tobytes())
            seen.add(key)
            if key not in allowed:
                wrong.append(found)

    def weighing():
        turn = 0
        while not done.is_set():
            index.weights = choices[turn % len(choices)]
            turn += 1
            time.sleep(0.001)

    workers = [threading.Thread(target=searching, args=(n,)) for n in (1, 1, 2)] + [threading.Thread(target=weighing)]
    for worker in workers:
        worker.start()
    for start in range(1000, 6000, 500):
        index.add(codes[start : start + 500])
        time.sleep(0.01)
    index.remove(np.arange(900, 1000))
    index.optimize()
    time.sleep(0.02)
    done.set()
    for worker in workers:
        worker.join()
    assert not wrong
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda i: Index(), "n_bits must be an int"),
        (lambda i: Index(n_bits=0), "n_bits must be from 1"),
        (lambda i: Index(n_bits=8, ids=[1]), "ids must be None"),
        (lambda i: Index(pack([[1]]), weights=[1, 2]), "weights must hold 8 values"),
        (lambda i: Index(pack([[1]]), weights=np.ones((1, 8))), "one vector"),
        (lambda i: Index(pack([[1], [0]]), ids=[1, 1]), "unique, got 1"),
        (lambda i: Index(pack([[1], [0]]), ids=[1]), "one value for each of the 2 codes, got 1"),
        (lambda i: Index(pack([[1], [0]]), ids=[1, -1]), "ids must be from 0"),
        (lambda i: Index(pack([[1], [0]]), ids=[0.5, 1]), "vector of ints"),
        (lambda i: Index(pack([[1], [0]]), ids=np.uint64([1, 2**63])), "ids must be from 0"),
        (lambda i: Index(np.zeros((2, 1))), "packed uint8 matrix"),
        (lambda i: Index(np.full((2, 1), 255, np.uint8), n_bits=3), "last 5 bits"),
        (lambda i: i.add(np.zeros((1, 3), np.uint8)), "must be 2 bytes wide"),
        (lambda i: i.add(np.zeros((1, 2), np.uint8), ids=[0]), "new, got 0"),
        (lambda i: i.remove([0, 7]), "in the index, got 7"),
        (lambda i: i.update([7], np.zeros((1, 2), np.uint8)), "in the index, got 7"),
        (lambda i: i.update([0, 1], np.zeros((1, 2), np.uint8)), "one value for each of the 1 codes"),
        (lambda i: i.search(np.zeros((1, 2), np.uint8), 0), "k must be an int of at least 1, got 0"),
        (lambda i: i.search(np.zeros((1, 3), np.uint8), 1), "queries of 12 bits must be 2 bytes"),
        (lambda i: i.search(np.zeros(2, np.uint8), 1), "queries must be a packed uint8 matrix"),
        (lambda i: i.search(np.zeros((1, 5)), 1), "queries of reals must be finite"),
        (lambda i: i.search(np.full((1, 12), np.nan), 1), "queries of reals must be finite"),
        (lambda i: i.search(np.zeros((1, 2), np.uint8), 1, weights=np.ones(11)), "weights must hold 12"),
        (lambda i: i.search(np.zeros((1, 2), np.uint8), 1, weights=-np.ones(12)), "not negative"),
        (lambda i: i.search(np.zeros((2, 2), np.uint8), 1, weights=np.ones((3, 12))), "each of the 2 queries"),
        (lambda i: i.search(np.zeros((1, 2), np.uint8), 1, threads=0), "threads must be at least 1"),
        (
            lambda i: i.search(np.zeros((1, 2), np.uint8), 1, method="rerank", candidates=0),
            "candidates must be an int of at least 1",
        ),
        (lambda i: i.search(np.zeros((1, 2), np.uint8), 1, candidates=9), 'None unless method is "rerank", got 9'),
        (lambda i: i.search(np.zeros((1, 2), np.uint8), 1, method="graph"), "method must be one of"),
        (lambda i: i.search(np.zeros((1, 2), np.uint8), 1, filter=[True]), "each of the 2 rows"),
        (lambda i: i.search(np.zeros((1, 2), np.uint8), 1, filter=[5]), "in the index, got 5"),
        (lambda i: i.search_radius(np.zeros((1, 2), np.uint8), np.nan), "radius must be a number"),
        (lambda i: i.rerank(np.zeros((1, 2), np.uint8), [[5]], 1), "in the index, got 5"),
        (lambda i: i.rerank(np.zeros((1, 2), np.uint8), [5], 1), "candidate_ids must be an int matrix"),
        (lambda i: i.rerank(np.zeros((1, 2), np.uint8), [[0]], 0), "k must be an int of at least 1, got 0"),
        (lambda i: i.distances(np.zeros((1, 2), np.uint8), [5]), "in the index, got 5"),
        (lambda i: i.codes([0, 5]), "in the index, got 5"),
        (lambda i: setattr(i, "weights", np.full(12, np.inf)), "finite"),
    ],
)
def test_bad_input_is_a_value_error_and_changes_nothing(call, message):
    index = Index(pack([[1] * 12, [0] * 12]), n_bits=12, weights=np.arange(12))
    with pytest.raises(ValueError, match=message):
        call(index)
    assert list(index) == [0, 1]
    assert index.weights.tolist() == list(range(12))
    assert index.search(pack([[1] * 12]), 2).distances.tolist() == [[0, 66]]
