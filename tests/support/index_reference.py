"""The reference of searches, in NumPy, and codes to search."""

import numpy as np

from bitrank import _kernel
from bitrank.core.codes import pack, weighted_hamming


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


def rounded(weights):
    """Weights whose sums of 16 bits are exact."""
    rows = np.atleast_2d(weights).astype(np.float32)
    _kernel.round_to_exact_sums(rows)
    return rows.reshape(weights.shape)


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
        "rounded": rounded(rng.lognormal(0, 1, shape) * np.exp(-np.arange(shape[-1]) / 200)),
    }[kind].astype(np.float32)


WEIGHT_KINDS = [
    "even",
    "same",
    "power",
    "tiny",
    "huge",
    "integers",
    "rounded",
    "uniform",
    "sparse",
    "decay",
    "lognormal",
    "extreme",
    "zero",
]
