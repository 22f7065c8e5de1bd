import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitrank import _kernel
from bitrank.codes import pack, unpack, weighted_hamming
from bitrank.index import Index

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
        "integers": rng.integers(0, 4, shape),
        "uniform": rng.random(shape),
        "sparse": rng.random(shape) * (rng.random(shape) < 0.2),
        "decay": np.broadcast_to(np.exp(-np.arange(shape[-1]) / 8), shape),
        "lognormal": rng.lognormal(0, 2, shape),
        "extreme": 10.0 ** rng.uniform(-44, 38, shape),
        "zero": np.zeros(shape),
    }[kind].astype(np.float32)


WEIGHT_KINDS = ["even", "same", "integers", "uniform", "sparse", "decay", "lognormal", "extreme", "zero"]


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
@settings(max_examples=200, deadline=None)
def test_search_equals_reference(case):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BITRANK_KERNEL", case["path"])
        _, index, codes, ids, queries, weights = build_case(case)
        found = index.search(queries, case["k"], weights=weights, threads=case["threads"])
        assert_equal(found, reference(queries, codes, ids, weights, case["k"]))
