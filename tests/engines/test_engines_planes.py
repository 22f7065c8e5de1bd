"""Weights as planes of bits: quantised, as masks, and as SQL that DuckDB runs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bitrank import Index
from bitrank.core.codes import pack, unpack, weighted_hamming
from bitrank.engines.planes import DIALECTS, distance_sql, masks, quantize_weights

whole = st.integers(1, 70).flatmap(lambda n: arrays(np.int64, n, elements=st.integers(0, 4095)))


@given(weights=whole)
def test_planes_add_up_to_the_weights(weights):
    bits = unpack(masks(weights), len(weights)).astype(np.int64)
    np.testing.assert_array_equal((bits << np.arange(len(bits))[:, None]).sum(axis=0), weights)


@given(
    weights=st.integers(1, 40).flatmap(lambda n: arrays(np.float32, n, elements=st.floats(0, 2.0**100, width=32))),
    bits=st.integers(1, 16),
)
def test_quantised_weights_are_within_half_a_step(weights, bits):
    found = quantize_weights(weights, bits)
    assert found.dtype == np.float32
    assert (found == np.rint(found)).all()
    if weights.max() == 0:
        assert not found.any()
        return
    assert found.max() == 2**bits - 1
    step = float(weights.max()) / (2**bits - 1)
    assert (np.abs(found.astype(np.float64) * step - weights) <= step * 0.5000001).all()


def test_rows_are_quantised_by_themselves():
    rows = np.array([[1, 2, 4], [100, 50, 0], [0, 0, 0]])
    np.testing.assert_array_equal(quantize_weights(rows), [quantize_weights(row) for row in rows])


def test_eight_bits_keep_the_ranking():
    rng = np.random.default_rng(0)
    codes, queries = (rng.integers(0, 256, (n, 8), dtype=np.uint8) for n in (50_000, 20))
    weights = rng.lognormal(0, 0.7, 64)
    index = Index(codes)
    floats, wholes = (index.search(queries, 100, w).ids for w in (weights, quantize_weights(weights)))
    pairs = zip(floats, wholes, strict=True)
    assert np.mean([len(np.intersect1d(a, b)) for a, b in pairs]) >= 98


@given(weights=whole, seed=st.integers(0, 99))
def test_sql_of_duckdb_is_the_weighted_distance(weights, seed):
    import duckdb

    bits = np.random.default_rng(seed).integers(0, 2, (20, len(weights)))
    codes = pack(bits)
    with duckdb.connect() as base:
        base.execute("CREATE TABLE codes (id BIGINT, code BIT)")
        rows = [(at, "".join(map(str, row))) for at, row in enumerate(bits)]
        base.executemany("INSERT INTO codes VALUES (?, ?)", rows)
        sql = distance_sql("code", codes[0], weights, "duckdb")
        found = base.execute(f"SELECT {sql} FROM codes ORDER BY id").fetchnumpy()
    (distances,) = found.values()
    np.testing.assert_array_equal(distances, weighted_hamming(codes[:1], codes, weights)[0])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_literals_hold_nothing_but_digits(dialect):
    """So that an expression needs no quoting, whatever the codes."""
    sql = distance_sql("code", np.arange(32, dtype=np.uint8), np.arange(256) % 7, dialect)
    assert set(sql) <= set("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_(),'&#:+* ")
    assert sql.count("code") == 3  # one a plane


def test_a_plane_of_all_bits_needs_no_mask():
    assert distance_sql("code", pack([[1, 0, 1]])[0], [1, 1, 1], "clickhouse") == (
        "bitCount(bitXor(code, toFixedString(unhex('a0'), 1)))"
    )
    assert distance_sql("code", pack([[1, 0, 1]])[0], [0, 0, 0], "clickhouse") == "0"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: quantize_weights([1, 2], 0), "from 1 to 16"),
        (lambda: quantize_weights([1, 2], 17), "from 1 to 16"),
        (lambda: quantize_weights([1, -2]), "not negative"),
        (lambda: masks([0.5]), "whole numbers"),
        (lambda: masks([[1, 2]]), "one vector"),
        (lambda: masks(np.full(1024, 1 << 14)), r"below 2\*\*24"),
    ],
)
def test_bad_weights_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
