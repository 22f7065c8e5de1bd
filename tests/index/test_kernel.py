"""Python bindings of the kernel: paths and the GIL. `tests/kernel` tests the kernel without Python."""

import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitrank import _kernel
from bitrank.core.checks import split_products
from bitrank.core.codes import pack, unpack
from bitrank.core.types import Products
from bitrank.index.segments import bit_order, build

N_BITS = 75
RNG = np.random.default_rng(0)


FUNCTIONS = [name for name in dir(_kernel) if name[0].islower() and name != "kernel_paths"]


def random_codes(n):
    return pack(RNG.integers(0, 2, (n, N_BITS)))


def constraint_rows(n):
    plus, minus = random_codes(n), random_codes(n)
    return plus, minus, unpack(plus, N_BITS).astype(np.float64) - unpack(minus, N_BITS)


def calls():
    """Return one call per function of the kernel, long enough for a waiting thread to wake up during it."""
    codes, queries = random_codes(20_000), random_codes(8)
    weights = RNG.random((8, N_BITS), np.float32)
    ids, order = np.arange(len(codes)), bit_order(np.ones(N_BITS))
    segment = build(codes, ids, order, 1)
    segments, weightings = _kernel.Segments([segment[:7]], codes.shape[1]), _kernel.Weightings(weights, order)
    nearest = np.empty((8, 100), np.int64), np.empty((8, 100), np.float32)
    rows = np.tile(ids, (8, 1))
    sorted_rows = ids.astype(np.uint32)
    floats = np.empty((8, len(codes)), np.float32)
    counts = np.empty((8, len(codes)), np.uint16)
    parts = [np.empty_like(part) for part in segment[:3]]
    plus, minus, dense = constraint_rows(20_000)
    values, signs = RNG.normal(size=len(plus)), np.ones(len(plus), np.int8)
    bit_values, gram = RNG.random(N_BITS), np.zeros((N_BITS, N_BITS))
    few_rows = dense[:200]
    keys = np.sort(RNG.integers(0, 50, (20, 5000)).astype(np.uint32), axis=1)
    groups, bounds, totals = np.empty((5, keys.size), np.int64), np.empty(21, np.int64), np.empty(20, np.int64)
    judged, similarities = np.tile(np.arange(2000), (200, 1)), RNG.random((200, 2000), np.float32)
    lists, items = np.arange(0, 20_010, 10), np.tile(np.arange(200), 100)
    floors, pinned = np.zeros(200, np.float32), np.zeros(20_000, np.uint8)
    found = np.tile(np.arange(10), (200, 1)), np.sort(RNG.random((200, 10), np.float32), axis=1)
    by, sums, units = np.empty((200, 10), np.int64), np.full(200, 2.0), np.ones(200)
    products = Products(similarities, np.arange(200), np.ones(200, np.float32))
    k = _kernel
    return {
        "lift_limits": lambda: k.lift_limits(found[1], sums, units, sums, units, 0.0, 0.3, 0.5, 0.9, True),
        "named": lambda: k.named(judged, similarities, floors, floors, 0.0, lists, items, pinned, 1),
        "lift": lambda: k.lift(*found, by, judged, similarities, judged, similarities, sums, units, 0.3, 0.5, 5, 1),
        "weighted_hamming": lambda: k.weighted_hamming(queries, codes, weights, floats),
        "weighted_hamming_to_rows": lambda: k.weighted_hamming_to_rows(queries, codes, rows, weights, floats),
        "hamming": lambda: k.hamming(queries, codes, counts),
        "split_reals": lambda: k.split_reals(floats[:, :N_BITS].copy(), queries.copy(), weights.copy()),
        "split_products": lambda: k.split_products(
            *products[:3], np.empty((200, 25), np.uint8), np.empty((200, 200), np.float32)
        ),
        "round_to_exact_sums": lambda: k.round_to_exact_sums(weights),
        "center": lambda: k.center(similarities, 2.0, None, True, np.empty_like(similarities), np.empty(200)),
        "shift": lambda: k.shift(similarities.copy(), np.ones(1998, np.float32), 3.0),
        "search": lambda: k.search(queries, weightings, segments, *nearest, 1),
        "search_whole": lambda: k.search_whole(
            queries, weightings, segments, 1000, queries, weights, order, *nearest, 1
        ),
        "search_radius": lambda: k.search_radius(queries, weightings, segments, np.inf, 1),
        "score": lambda: k.score(queries, weights, order, segments, rows, floats, 1),
        "sorted_rows": lambda: k.sorted_rows(codes, ids, order, sorted_rows, 1),
        "build": lambda: k.build(codes, sorted_rows, order, *parts, 1),
        "restore": lambda: k.restore(segment.blocks, order, np.empty_like(codes), 1),
        "checksum": lambda: k.checksum(codes.ravel()),
        "margins": lambda: k.margins(plus, minus, bit_values, values),
        "combine": lambda: k.combine(plus, minus, values, bit_values),
        "add_gram": lambda: k.add_gram(plus, minus, signs, 1.0, gram, bit_values),
        "passive_aggressive": lambda: k.passive_aggressive(few_rows, few_rows, 1.0, 1.0, 0.0, 5, np.ones(N_BITS)),
        "tied_groups": lambda: k.tied_groups(keys, groups, bounds, totals),
    }


def releases_the_gil(call, max_calls):
    """Return whether a thread that waits for the GIL gets it during a call.

    Within the switch interval set here, the interpreter never takes the GIL from a thread: `start` returns when the new
    thread blocks on the lock, and after the release that thread can run only if the call gives the GIL up.
    """
    lock, ran = threading.Lock(), []
    lock.acquire()
    waiting = threading.Thread(target=lambda: (lock.acquire(), ran.append(True)))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        waiting.start()
        lock.release()
        for _ in range(max_calls):
            call()
            if ran:
                return True
        return False
    finally:
        sys.setswitchinterval(interval)
        waiting.join()


@given(st.integers(0, 2**32 - 1))
def test_products_are_split_as_their_reals_are(seed):
    rng = np.random.default_rng(seed)
    n, n_numbers, n_bits = (int(value) for value in rng.integers(1, 60, 3))
    numbers, weights = (rng.normal(size=shape).astype(np.float32) for shape in ((n, n_numbers), n_bits))
    numbers[rng.random(numbers.shape) < 0.2] = 0
    products = Products(numbers, rng.integers(0, n_numbers, n_bits), weights)
    codes, sizes = split_products(products)
    np.testing.assert_array_equal(sizes, np.abs(products.reals()))
    np.testing.assert_array_equal(codes, np.packbits(products.reals() > 0, axis=1))
    with pytest.raises(ValueError, match="columns must be columns of numbers"):
        split_products(products._replace(columns=products.columns + n_numbers))


@given(st.integers(0, 2**32 - 1))
def test_weights_are_rounded_a_little_to_sums_of_sixteen_bits(seed):
    rng = np.random.default_rng(seed)
    n_bits = int(rng.integers(1, 600))
    weights = (rng.lognormal(size=(2, n_bits)) * np.exp(-np.arange(n_bits) / rng.integers(10, 500))).astype(np.float32)
    weights[:, rng.random(n_bits) < 0.1] = 0
    rounded = weights.copy()
    _kernel.round_to_exact_sums(rounded)
    for before, after in zip(weights, rounded, strict=True):
        steps = np.arange(0, n_bits, 24)
        sums = np.add.reduceat(before.astype(float), steps)
        most = 2 * np.maximum(sums / 243, max(sums.sum() / 50_000, sums.max() / 243 / 64))
        assert (np.abs(after - before.astype(float)) <= np.repeat(most, 24)[:n_bits] / 2).all()
        mantissas, exponents = np.frexp(after)
        whole = (mantissas * 2**24).astype(np.int64)
        lowest = np.where(after > 0, exponents - 24 + np.log2(np.maximum(whole & -whole, 1)), 1000)
        least = lowest.min()
        units = np.exp2(np.minimum(np.minimum.reduceat(lowest, steps), least + 6))
        assert (np.add.reduceat(after.astype(float), steps) <= 255 * units).all()
        assert after.sum(dtype=float) <= 60_000 * 2.0**least


@given(st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float64]), st.booleans())
def test_vectors_are_centred_or_made_of_one_length(seed, dtype, by_distance):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=rng.integers(1, 50, 2)).astype(dtype)
    vectors[0] = 0
    center = rng.normal(size=vectors.shape[1]) if by_distance else None
    out, squares = np.empty(vectors.shape, np.float32), np.empty(len(vectors))
    assert _kernel.center(vectors, 2.0, center, False, out, squares) == by_distance
    assert _kernel.center(vectors, 2.0, center, True, out, squares)
    exact = vectors.astype(np.float64)
    exact = exact / 2 - center if by_distance else exact
    np.testing.assert_allclose(squares, (exact**2).sum(axis=1), rtol=1e-12)
    size = np.linalg.norm(exact, axis=1, keepdims=True)
    np.testing.assert_allclose(out, exact if by_distance else exact / np.where(size > 0, size, 1), rtol=1e-6, atol=1e-7)
    for value in (np.nan, np.inf, -np.inf):
        vectors[rng.integers(len(vectors)), -1] = value
        assert not _kernel.center(vectors, 2.0, center, True, out, squares)


@given(st.integers(0, 2**32 - 1))
def test_shares_of_the_centre_are_limited_and_taken_away(seed):
    rng = np.random.default_rng(seed)
    rows = (3 * rng.normal(size=rng.integers((1, 2), 50))).astype(np.float32)
    shift = rng.normal(size=rows.shape[1] - 2).astype(np.float32)
    expected = rows.copy()
    expected[:, -2] = np.clip(rows[:, -2], -3, 3)
    expected[:, :-2] -= expected[:, -2:-1] * shift
    assert _kernel.shift(rows, shift, 3.0)
    np.testing.assert_array_equal(rows, expected)
    rows[-1, rng.integers(rows.shape[1])] = np.nan
    assert not _kernel.shift(rows, shift, 3.0)


@pytest.fixture(scope="module")
def kernel_calls():
    return calls()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_releases_the_gil(kernel_calls, name):
    assert releases_the_gil(kernel_calls[name], 10_000)


def test_a_call_that_keeps_the_gil_is_noticed():
    assert not releases_the_gil(lambda: sum(range(20_000)), 100)


@pytest.mark.parametrize("path", _kernel.kernel_paths())
def test_gram_on_every_path_is_that_of_dense_rows(monkeypatch, path):
    monkeypatch.setenv("BITRANK_KERNEL", path)
    plus, minus, rows = constraint_rows(10_000)
    signs = RNG.integers(-1, 2, len(rows)).astype(np.int8)
    gram, total = np.ones((N_BITS, N_BITS)), np.ones(N_BITS)
    _kernel.add_gram(plus, minus, signs, 0.25, gram, total)
    np.testing.assert_array_equal(gram, 1 + 0.25 * (rows.T @ (signs[:, None] * rows)))
    np.testing.assert_array_equal(total, 1 + 0.25 * (signs @ rows))


@pytest.mark.parametrize("name", ["add_gram", "search", "score"])
def test_an_unknown_path_is_an_error(monkeypatch, kernel_calls, name):
    monkeypatch.setenv("BITRANK_KERNEL", "abacus")
    with pytest.raises(ValueError, match=r"BITRANK_KERNEL must be one of scalar.*, got abacus"):
        kernel_calls[name]()
