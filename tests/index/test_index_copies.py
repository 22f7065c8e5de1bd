"""Copies of an index, in this process and in others, and what it says about ids."""

import copy
import multiprocessing
import pickle
import threading
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from index_reference import assert_equal, random_codes, reference

from bitrank.index import Index

COPIES = {
    "copy": Index.copy,
    "copy.copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda index: pickle.loads(pickle.dumps(index)),
}


def example(n=700, n_bits=90, **options):
    rng = np.random.default_rng(0)
    codes, ids = random_codes(rng, n, n_bits, True), rng.choice(10 * n, n, replace=False)
    index = Index(codes, n_bits=n_bits, ids=ids, weights=rng.lognormal(0, 2, n_bits), **options)
    index.remove(ids[::7])
    index.add(codes[:5], ids=np.arange(5) + 10 * n)
    return index, random_codes(rng, 3, n_bits, False)


@pytest.mark.parametrize("kind", COPIES)
@pytest.mark.parametrize("mapped", [False, True])
def test_a_copy_answers_the_same_and_changes_alone(kind, mapped, tmp_path):
    index, queries = example()
    if mapped:
        index.save(tmp_path / "index")
        index = Index.load(tmp_path / "index")
    before = index.search(queries, 20)
    other = COPIES[kind](index)
    assert_equal(other.search(queries, 20), before)
    np.testing.assert_array_equal(other.weights, index.weights)
    with pytest.raises(ValueError, match="read-only"):
        other.weights[0] = 1
    other.remove(other.ids[:100])
    other.add(other.codes(other.ids[:10]))
    other.weights = None
    other.optimize()
    assert_equal(index.search(queries, 20), before)
    index.remove(index.ids[100:])
    codes, ids = other.export()
    assert_equal(other.search(queries, 9), reference(queries, codes, ids, np.ones(90, np.float32), 9))


def test_a_copy_shares_its_rows():
    index, _ = example()
    assert index.copy()._snapshot is index._snapshot


def _nearest(index, queries):
    return index.search(queries, 20, threads=1)


def test_processes_take_an_index():
    index, queries = example()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert_equal(pool.apply(_nearest, (index, queries)), index.search(queries, 20))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_a_fork_while_somebody_writes_leaves_no_lock():
    index, _ = example()
    writing, done = threading.Event(), threading.Event()

    def write():
        with index._writing:
            writing.set()
            done.wait()

    writer = threading.Thread(target=write)
    writer.start()
    writing.wait()

    def add(answers):
        index.add(index.codes(index.ids[:1]))
        answers.put(len(index))

    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=add, args=(answers,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork of a process with threads is what is tested
        child.start()
    try:
        assert answers.get(timeout=300) == len(index) + 1
    finally:
        done.set()
        writer.join()
        child.kill()
        child.join()


@given(st.integers(0, 2**32 - 1))
def test_holds_and_largest_id(seed):
    rng = np.random.default_rng(seed)
    index, most = Index(n_bits=8), int(rng.choice([30, 10**15]))
    assert index.largest_id == -1
    for _ in range(3):
        new = np.setdiff1d(rng.integers(0, most, 200), index.ids)
        index.add(random_codes(rng, len(new), 8, False), new)
        index.remove(rng.permutation(index.ids)[: rng.integers(0, 100)])
        asked = np.concatenate([rng.integers(-most, most, 50), rng.choice([*index.ids, 0], 50), [-(2**63), 2**63 - 1]])
        np.testing.assert_array_equal(index.holds(asked), np.isin(asked, index.ids))
        assert index.largest_id == max(index, default=-1)
    assert index.holds([]).tolist() == []


def test_holds_refuses_what_no_id_can_be():
    index, _ = example()
    for wrong in ([0.5], ["a"], 3, [[1]]):
        with pytest.raises(ValueError, match="ids must be a vector of ints, got"):
            index.holds(wrong)
    assert not index.holds(np.uint64([2**64 - 1])).any()
