"""Checks of arguments."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from bitrank.core.checks import (
    check_codes,
    check_count,
    check_labels,
    check_method,
    check_n_bits,
    check_queries,
    check_weights,
    split_reals,
)
from bitrank.core.codes import pack, unpack
from bitrank.core.types import Queries


def test_check_codes():
    codes = pack(np.random.default_rng(0).integers(0, 2, (3, 98)))
    np.testing.assert_array_equal(check_codes(codes, 98), codes)
    assert check_codes(np.asfortranarray(codes)).flags.c_contiguous
    for wrong in (96, 105, 0, -3):
        with pytest.raises(ValueError, match=f"shown of {wrong} bits must be .* bytes wide, got 13"):
            check_codes(codes, wrong, name="shown")
    spare = codes.copy()
    spare[1, -1] |= 0b00100000  # bit 98, counted from 0
    assert check_codes(spare, 99) is not None
    with pytest.raises(ValueError, match="codes of 98 bits must have the last 6 bits of a row zero, got ones there"):
        check_codes(spare, 98)
    with pytest.raises(ValueError, match="last 6 bits"):
        unpack(spare, 98)
    with pytest.raises(ValueError, match="got float64"):
        check_codes(codes / 2)
    with pytest.raises(ValueError, match=r"codes must be an array, got the text 'codes.npy': read a file first"):
        check_codes("codes.npy")


def test_check_n_bits():
    codes = pack(np.random.default_rng(0).integers(0, 2, (3, 98)))
    assert check_n_bits(codes, None)[1] == 104
    assert check_n_bits(codes, 98)[1] == 98
    with pytest.raises(ValueError, match="at least one row, got none"):
        check_n_bits(codes[:0], 98)


def test_check_labels():
    np.testing.assert_array_equal(check_labels(["b", "a"], 2), ["b", "a"])
    for bad in ([1, 2], [1, 2, 3, 4]):
        with pytest.raises(ValueError, match="one label for each of the 3 codes, got shape"):
            check_labels(bad, 3)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="y must be finite"):
            check_labels([0.0, 1.0, bad], 3)


def test_check_weights():
    got = check_weights([1, 2, 3], 3)
    assert got.dtype == np.float32
    with pytest.raises(ValueError, match="must hold 4 values, one per bit, got 3"):
        check_weights([1, 2, 3], 4)
    with pytest.raises(ValueError, match="must hold 4 values, one per bit, got 3"):
        check_weights(np.ones((4, 3)), 4)


def test_check_queries():
    rng = np.random.default_rng(0)
    codes, reals, weights = pack(rng.integers(0, 2, (3, 12))), rng.normal(size=(3, 12)), rng.random((3, 12))
    for queries, given, expected_codes, expected in (
        (codes, None, codes, np.ones((1, 12))),
        (codes, weights[0], codes, weights[:1]),
        (codes, weights, codes, weights),
        (reals, None, pack(reals > 0), np.abs(reals)),
        (reals, weights[0], pack(reals > 0), np.abs(reals) * weights[0]),
        (Queries(codes, weights), None, codes, weights),
    ):
        found_codes, rows = check_queries(queries, given, 12)
        np.testing.assert_array_equal(found_codes, expected_codes)
        np.testing.assert_allclose(rows, expected, rtol=1e-6)
        assert rows.dtype == np.float32
        assert rows.flags.c_contiguous
    for queries, given, message in (
        (Queries(codes, weights), weights, "weights must be None"),
        (Queries(codes, weights[:2]), None, "one row for each of the 3 queries"),
        (Queries(codes, -weights), None, "not negative"),
        (np.full((3, 12), np.inf), None, "must be finite"),
        (np.full((3, 12), 1e30), np.full(12, 1e30), "must be finite"),
        (codes[:, :1], None, "2 bytes wide"),
    ):
        with pytest.raises(ValueError, match=message):
            check_queries(queries, given, 12)


@pytest.mark.parametrize("value", [0, -1, 1.0, "1", True, None])
def test_check_count(value):
    assert check_count("k", np.int32(3), 1) == 3
    with pytest.raises(ValueError, match=f"k must be an int of at least 1, got {value!r}"):
        check_count("k", value, 1)


def test_check_method():
    assert check_method("exact", 10, None) is None
    assert [check_method("rerank", k, None) for k in (1, 100, 101)] == [1000, 1000, 1010]
    assert check_method("rerank", 10, 5) == 5
    assert check_method("rerank", 2000, None, most=16_384) == 16_384
    for method, k, candidates, most, message in (
        ("exact", 10, 5, None, 'candidates must be None unless method is "rerank", got 5'),
        ("fast", 10, None, None, r"method must be one of \('exact', 'rerank'\), got 'fast'"),
        ("rerank", 10, 0, None, "candidates must be an int of at least 1, got 0"),
        ("rerank", 10, 99, 50, "at most 50 in this engine, got 99 and 10"),
        ("rerank", 99, None, 50, "at most 50 in this engine, got 50 and 99"),
    ):
        with pytest.raises(ValueError, match=message):
            check_method(method, k, candidates, most)


@hypothesis.given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_plain_reals_are_split_in_one_pass(n_bits, n, seed):
    reals = np.random.default_rng(seed).standard_normal((n, n_bits)).astype(np.float32)
    reals[0, 0] = -abs(reals[0, 0]) - 1
    codes, magnitudes = split_reals(reals, n_bits)
    np.testing.assert_array_equal(codes, np.packbits(reals > 0, axis=1))
    np.testing.assert_array_equal(magnitudes, np.abs(reals))
    for wrong in (np.nan, np.inf, -np.inf):
        reals[-1, -1] = wrong
        assert split_reals(reals, n_bits) is None
    for other in (reals.astype(np.float64), reals[:, :0], reals[0], np.abs(reals), reals[::-1]):
        assert split_reals(other, n_bits) is None
