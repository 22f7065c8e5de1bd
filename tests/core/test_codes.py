"""The NumPy reference against a loop over bits, and the compiled kernel against the reference, bit for bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bitrank.core.codes import (
    distances,
    distances_to_rows,
    hamming,
    pack,
    signs,
    unpack,
    weighted_hamming,
)
from bitrank.core.types import n_bytes

repeatable = settings(derandomize=True)
n_bits_of_any_kind = st.one_of(st.sampled_from([1, 7, 8, 9, 64, 98, 128]), st.integers(1, 200))


@st.composite
def bit_matrices(draw, n_matrices=1, max_rows=6):
    n_bits = draw(n_bits_of_any_kind)
    return [
        draw(arrays.arrays(bool, (draw(st.integers(0, max_rows)), n_bits), elements=st.booleans()))
        for _ in range(n_matrices)
    ]


def random_codes(n, n_bits, seed=0):
    return pack(np.random.default_rng(seed).integers(2, size=(n, n_bits)))


# Packing --------------------------------------------------------------------------------------------------------------


@given(bit_matrices())
@repeatable
def test_pack_and_unpack_are_inverse(matrices):
    (bits,) = matrices
    n_bits = bits.shape[1]
    codes = pack(bits)
    assert codes.dtype == np.uint8
    assert codes.shape == (len(bits), n_bytes(n_bits)) == (len(bits), -(-n_bits // 8))
    for row, code in zip(bits, codes, strict=True):
        text = "".join("1" if bit else "0" for bit in row).ljust(8 * len(code), "0")  # spare bits are zero
        assert bytes(code) == int(text, 2).to_bytes(len(code), "big")
    np.testing.assert_array_equal(unpack(codes, n_bits), bits)
    np.testing.assert_array_equal(signs(codes, n_bits), np.where(bits, 1, -1))
    assert signs(codes, n_bits).dtype == np.float32


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.float32])
def test_pack_takes_any_zeros_and_ones(dtype):
    bits = np.random.default_rng(0).integers(2, size=(4, 98))
    np.testing.assert_array_equal(pack(bits.astype(dtype)), pack(bits.tolist()))


def test_pack_refuses_what_is_no_matrix_of_bits():
    for bad in ([1, 0], [[[1]]], np.zeros((3, 0))):
        with pytest.raises(ValueError, match="bits must be a matrix with one code per row, got an array of shape"):
            pack(bad)
    for bad in ([[0, 2]], [[0.5, 1]], [[-1, 1]], [[np.nan, 1]]):
        with pytest.raises(ValueError, match="bits must be 0 or 1, got other values"):
            pack(bad)


# Distances ------------------------------------------------------------------------------------------------------------


@given(bit_matrices(n_matrices=2), st.booleans(), st.integers(0, 2**32 - 1))
@repeatable
def test_distances_are_sums_over_bits(matrices, per_query, seed):
    queries, items = matrices
    n_bits = queries.shape[1]
    weights = np.random.default_rng(seed).exponential(size=(len(queries), n_bits)) * (n_bits > 3)
    if not per_query:
        weights = np.full((len(queries), n_bits), weights[0] if len(weights) else 1.0)
    want, counts = np.zeros((len(queries), len(items))), np.zeros((len(queries), len(items)), int)
    for q, query in enumerate(queries):
        for i, item in enumerate(items):
            for bit in range(n_bits):
                if query[bit] != item[bit]:
                    counts[q, i] += 1
                    want[q, i] += weights[q, bit]
    a, b = pack(queries), pack(items)
    np.testing.assert_array_equal(hamming(a, b), counts)
    np.testing.assert_array_equal(distances(a, b), counts)
    given_weights = weights if per_query or not len(queries) else weights[0]
    np.testing.assert_allclose(weighted_hamming(a, b, given_weights), want, rtol=1e-5, atol=1e-6)


@given(
    st.integers(0, 9),
    st.integers(0, 40),
    n_bits_of_any_kind,
    st.booleans(),
    st.sampled_from([None, 1, 2, 3, 16]),
    st.integers(0, 2**32 - 1),
)
@repeatable
def test_kernel_equals_the_reference_bit_for_bit(n_queries, n, n_bits, per_query, threads, seed):
    rng = np.random.default_rng(seed)
    queries, codes = random_codes(n_queries, n_bits, seed), random_codes(n, n_bits, seed + 1)
    # Weights of very different size: any other order of summation would show.
    weights = np.float32(10) ** rng.uniform(-6, 6, (n_queries, n_bits) if per_query else n_bits).astype(np.float32)
    weights[rng.random(weights.shape) < 0.2] = 0
    got, want = distances(queries, codes, weights, threads=threads), weighted_hamming(queries, codes, weights)
    assert got.dtype == want.dtype == np.float32
    assert got.shape == want.shape == (n_queries, n)
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))
    counts = distances(queries, codes, threads=threads)
    assert counts.dtype == np.uint16
    np.testing.assert_array_equal(counts, hamming(queries, codes))


@given(
    st.integers(0, 6), st.integers(1, 40), st.integers(0, 9), n_bits_of_any_kind, st.booleans(), st.integers(0, 2**31)
)
@repeatable
def test_distances_to_rows_are_those_of_the_matrix(n_queries, n, n_rows, n_bits, per_query, seed):
    rng = np.random.default_rng(seed)
    queries, codes = random_codes(n_queries, n_bits, seed), random_codes(n, n_bits, seed + 1)
    weights = rng.random((n_queries, n_bits) if per_query else n_bits, np.float32)
    rows = rng.integers(n, size=(n_queries, n_rows))
    for given_weights, want in ((weights, weighted_hamming(queries, codes, weights)), (None, hamming(queries, codes))):
        for threads in (None, 1, 3):
            got = distances_to_rows(queries, codes, rows, given_weights, threads=threads)
            assert got.dtype == np.float32
            np.testing.assert_array_equal(got, np.take_along_axis(want, rows, axis=1))


def test_rows_that_do_not_fit():
    codes = random_codes(3, 16)
    for rows in (np.zeros((2, 1), int), np.zeros(3, int)):
        with pytest.raises(ValueError, match="rows must have one row for each of the 3 queries"):
            distances_to_rows(codes, codes, rows)
    for row in (-1, 3):
        with pytest.raises(ValueError, match=f"rows must be from 0 to 2, got {row} to {row}"):
            distances_to_rows(codes, codes, np.full((3, 1), row))


def test_kernel_over_several_strips_and_arrays_that_are_not_contiguous():
    queries, codes = random_codes(5, 98, 1), random_codes(9000, 98, 2)
    weights = np.random.default_rng(3).random((98, 5)).T
    wide = np.asfortranarray(codes)
    np.testing.assert_array_equal(distances(queries, wide), hamming(queries, codes))
    np.testing.assert_array_equal(
        distances(queries[::2], wide, weights[::2]), weighted_hamming(queries, codes, weights)[::2]
    )


def test_longest_codes_that_kernel_counts():
    far = np.full((1, 8191), 255, np.uint8)
    assert distances(far, far * 0)[0, 0] == 8191 * 8
    with pytest.raises(ValueError, match="fewer than 65536 bits"):
        distances(np.zeros((1, 8192), np.uint8), np.zeros((1, 8192), np.uint8))


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("distance", [hamming, distances, lambda a, b: weighted_hamming(a, b, np.ones(16))])
def test_pairs_that_do_not_fit(distance):
    codes = random_codes(3, 16)
    with pytest.raises(ValueError, match=r"same width, got 2 and 1"):
        distance(codes, codes[:, :1])
    with pytest.raises(ValueError, match=r"packed uint8 matrix .*, got int64 of shape"):
        distance(codes.astype(np.int64), codes)
    with pytest.raises(ValueError, match=r"packed uint8 matrix .*, got uint8 of shape \(2,\)"):
        distance(codes, codes[0])
    with pytest.raises(ValueError, match="at least one byte per row"):
        distance(codes[:, :0], codes[:, :0])


@pytest.mark.parametrize("distance", [distances, weighted_hamming])
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(8), "codes of 2 bytes must hold 9 to 16 values, got 8"),
        (np.ones(17), "codes of 2 bytes must hold 9 to 16 values, got 17"),
        (np.ones((2, 16)), "one row for each of the 3 queries, got 2"),
        (np.ones((1, 16)), "one row for each of the 3 queries, got 1"),
        (np.ones((3, 1, 16)), r"shape \(n_bits,\) or \(n_queries, n_bits\), got \(3, 1, 16\)"),
        (1.0, r"shape \(n_bits,\) or \(n_queries, n_bits\), got \(\)"),
        (-np.ones(16), "finite and not negative"),
        (np.full((3, 16), np.nan), "finite and not negative"),
        (np.append(np.ones(15), np.inf), "finite and not negative"),
        (np.append(np.ones(15), 1e39), "finite and not negative"),  # infinite as float32
    ],
)
def test_weights_that_do_not_fit(distance, weights, message):
    codes = random_codes(3, 16)
    with pytest.raises(ValueError, match=message):
        distance(codes, codes, weights)


@pytest.mark.parametrize("threads", [0, -1])
def test_threads_must_be_positive(threads):
    codes = random_codes(3, 16)
    with pytest.raises(ValueError, match=f"threads must be an int of at least 1, got {threads}"):
        distances(codes, codes, threads=threads)
