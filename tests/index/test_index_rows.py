"""Rows of an index: writes, order, threads, and bad input."""

import pickle
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from index_reference import assert_equal, random_codes, reference
from threads import wait_until

from bitrank.core.codes import hamming, pack
from bitrank.index import Index
from bitrank.index.segments import LANES, bit_order, order_quality


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
    wait_until(lambda: index.order_quality() > 0.95)
    assert_equal(index.search(queries, 10), reference(queries, codes, np.arange(20_000), first[::-1], 10))


def test_order_quality_is_the_share_of_weight_that_the_sort_settles():
    weights = np.float32([8, 4, 2, 1])
    assert order_quality(np.uint16([0, 1, 2, 3]), weights, 256) == 1
    assert order_quality(np.uint16([3, 2, 1, 0]), weights, 256) == 3 / 12
    assert order_quality(np.uint16([3, 2, 1, 0]), np.zeros(4, np.float32), 256) == 1


def test_the_heaviest_bits_come_first():
    assert bit_order(np.float32([1, 3, 2])).tolist() == [1, 2, 0]
    assert bit_order(np.ones(3)).tolist() == [0, 1, 2]


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
    wait_until(lambda: len(seen) > 1)
    done.set()
    for worker in workers:
        worker.join()
    assert not wrong


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
        (lambda i: i.search(np.zeros((1, 5)), 1), "queries of reals must have shape"),
        (lambda i: i.search(np.full((1, 12), np.nan), 1), "queries of reals must be finite"),
        (lambda i: i.search(np.zeros((1, 2), np.uint8), 1, weights=np.ones(11)), "weights must hold 12"),
        (lambda i: i.search(np.zeros((1, 2), np.uint8), 1, weights=-np.ones(12)), "not negative"),
        (lambda i: i.search(np.zeros((2, 2), np.uint8), 1, weights=np.ones((3, 12))), "each of the 2 queries"),
        (lambda i: i.search(np.zeros((1, 2), np.uint8), 1, threads=0), "threads must be an int of at least 1"),
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


def test_blocks_of_many_rows_lie_in_pages_of_their_own():
    codes = np.random.default_rng(0).integers(0, 256, (70_000, 64), dtype=np.uint8)
    index = Index(codes)
    blocks = index._snapshot.segments[0].blocks
    assert blocks.nbytes > 1 << 22
    assert blocks.ctypes.data % LANES == 0
    assert blocks.flags.writeable
    expected = hamming(codes[:2], codes)
    order = np.lexsort((np.tile(np.arange(len(codes)), (2, 1)), expected), axis=1)[:, :5]
    for one in (index, pickle.loads(pickle.dumps(index)), index.copy()):
        np.testing.assert_array_equal(one.search(codes[:2], k=5).ids, order)
    one.remove([0])
    one.add(codes[:1], ids=[70_000])
    assert one.search(codes[:1], k=1).ids == 70_000
