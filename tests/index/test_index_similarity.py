"""Exact search by Tanimoto and Tversky similarity, against fractions in plain Python and RDKit's bulk similarity."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitrank import Collection, Index, SignBits, connect
from bitrank.core.codes import pack, unpack


def brute_force(queries, codes, ids, k, alpha=1, beta=1):
    """Ids and similarities by fractions, sorted by similarity and then by id."""
    lists = []
    alpha, beta = Fraction(str(alpha)), Fraction(str(beta))
    for query in queries.astype(bool):
        rows = []
        for row, identity in zip(codes.astype(bool), ids, strict=True):
            c, d, e = int((query & row).sum()), int((query & ~row).sum()), int((row & ~query).sum())
            rows.append((-(c / (c + alpha * d + beta * e)) if c else Fraction(0), int(identity)))
        lists.append(sorted(rows)[:k])
    ids = [[i for _, i in rows] + [-1] * (k - len(rows)) for rows in lists]
    return np.array(ids), np.array([[-float(t) for t, _ in rows] + [-np.inf] * (k - len(rows)) for rows in lists])


def assert_similar(results, expected):
    np.testing.assert_array_equal(results.ids, expected[0])
    np.testing.assert_allclose(results.distances, 1 - expected[1], atol=1e-7)


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([3, 8, 20, 64, 166]),
    st.sampled_from([0.02, 0.1, 0.5, 0.95]),
    st.sampled_from([(1, 1), (1, 0), (0, 1), (0.5, 0.5), (0.9, 0.1), (2.25, 0.001), (0.123456, 0.7)]),
)
def test_equals_fractions_for_any_shape(seed, n_bits, density, alpha_beta):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(0, 150)), int(rng.integers(1, 40))
    bits, queries = (rng.random((m, n_bits)) < density for m in (n, 3))
    bits[: n // 3] = bits[n // 3 : 2 * (n // 3)]  # ties
    ids = rng.choice(2 * n + 1, n, replace=False)
    index = Index(pack(bits[: n // 2]) if n > 1 else None, n_bits=n_bits, ids=ids[: n // 2] if n > 1 else None)
    index.add(pack(bits[n // 2 :]) if n else np.empty((0, (n_bits + 7) // 8), np.uint8), ids[n // 2 :])
    found = index.search(pack(queries), k, similarity=("tversky", *alpha_beta))
    assert_similar(found, brute_force(queries, bits, ids, k, *alpha_beta))
    if alpha_beta == (1, 1):
        np.testing.assert_array_equal(index.search(pack(queries), k, similarity="tanimoto").ids, found.ids)
    gone, kept = ids[::4], np.arange(n) % 4 > 0
    index.remove(gone)
    found = index.search(pack(queries), k, similarity=("tversky", *alpha_beta))
    assert_similar(found, brute_force(queries, bits[kept], ids[kept], k, *alpha_beta))


@pytest.mark.parametrize("n_bits", [1024, 2048, 4096, 10000])
@pytest.mark.parametrize("density", [0.02, 0.5, 0.99])
def test_long_codes_with_many_ties(n_bits, density):
    rng = np.random.default_rng(n_bits)
    centres = rng.random((4, n_bits)) < density
    bits = np.concatenate([centres[rng.integers(0, 4, 120)] ^ (rng.random((120, n_bits)) < 0.01), centres[[0] * 80]])
    queries = centres[:2] ^ (rng.random((2, n_bits)) < 0.01)
    queries[1] = False
    for similarity, weights in (("tanimoto", (1, 1)), (("tversky", 0.95, 0.05), (0.95, 0.05))):
        found = Index(pack(bits)).search(pack(queries), 50, similarity=similarity)
        assert_similar(found, brute_force(queries, bits, np.arange(200), 50, *weights))


def test_equals_rdkit():
    pytest.importorskip("rdkit")
    from rdkit.DataStructs import BulkTanimotoSimilarity, BulkTverskySimilarity, ExplicitBitVect

    rng = np.random.default_rng(0)
    bits = rng.random((300, 2048)) < 0.03
    vectors = [ExplicitBitVect(2048) for _ in bits]
    for vector, row in zip(vectors, bits, strict=True):
        vector.SetBitsFromList(np.flatnonzero(row).tolist())
    for similarity, theirs in (
        ("tanimoto", BulkTanimotoSimilarity(vectors[7], vectors)),
        (("tversky", 0.9, 0.1), BulkTverskySimilarity(vectors[7], vectors, 0.9, 0.1)),
    ):
        ids, distances = Index(pack(bits)).search(pack(bits[7:8]), 300, similarity=similarity)
        np.testing.assert_allclose(np.array(theirs)[ids[0]], 1 - distances[0], atol=1e-6)


def test_filters_and_collections():
    rng = np.random.default_rng(1)
    bits = rng.random((400, 166)) < 0.2
    names = np.array([f"m{i}" for i in range(400)])
    collection = Collection.from_codes(pack(bits), names, n_bits=166)
    wanted = rng.random(400) < 0.3
    expected = brute_force(bits[:3], bits[wanted], np.flatnonzero(wanted), 12)
    found = collection.search(pack(bits[:3]), 12, similarity="tanimoto", filter=wanted, explain=True)
    np.testing.assert_array_equal(found.ids, names[expected[0]])
    np.testing.assert_allclose(collection.similarity(found), expected[1], atol=1e-6)
    assert found.explanation.ranking == ["plain"] * 3
    plain = Index(pack(bits), n_bits=166).search(
        pack(bits[:3]), 12, similarity="tanimoto", filter=np.flatnonzero(wanted)
    )
    np.testing.assert_array_equal(plain.ids, expected[0])
    vectors = rng.normal(size=(50, 32))
    of_vectors = Collection.from_vectors(vectors, hasher=SignBits())
    codes = of_vectors.codes()
    found = of_vectors.search(vectors[:2], 5, similarity="tanimoto")
    assert_similar(found, brute_force(unpack(codes[:2], 32), unpack(codes, 32), np.arange(50), 5))


def _in_an_engine():
    engine = connect("memory://")
    engine.create(n_bits=16)
    engine.add(np.uint8([[1, 2]]), ids=[0])
    return Collection.from_engine(engine)


@pytest.mark.parametrize(
    ("search", "told"),
    [
        (lambda i, c: i.search(c, 3, similarity="dice"), 'similarity must be "tanimoto" or \\("tversky"'),
        (lambda i, c: i.search(c, 3, similarity=("tversky", 0, 0)), "not both 0"),
        (lambda i, c: i.search(c, 3, similarity=("tversky", -1, 1)), "from 0 to 1000"),
        (lambda i, c: i.search(c, 3, similarity=("tversky", float("nan"), 1)), "from 0 to 1000"),
        (lambda i, c: i.search(c, 3, similarity=("tversky", 1 / 3, 1)), "at most six decimals"),
        (lambda i, c: i.search(c, 3, np.ones(16), similarity="tanimoto"), "weights, candidates and shortlist must be"),
        (lambda i, c: i.search(np.ones((1, 16)) * 0.5, 3, similarity="tanimoto"), "queries must be codes for a sim"),
        (lambda i, c: Index(c, n_scanned=8).search(c, 3, similarity="tanimoto"), "similarity must be None for an ind"),
        (lambda i, c: Collection.from_codes(c).search(np.ones((1, 16)) / 2, similarity="tanimoto"), "queries must be"),
        (lambda i, c: _in_an_engine().search(c, similarity="tanimoto"), "similarity must be None for a collection"),
    ],
)
def test_mistakes(search, told):
    codes = np.uint8([[1, 2], [3, 4]])
    with pytest.raises(ValueError, match=told):
        search(Index(codes), codes)
