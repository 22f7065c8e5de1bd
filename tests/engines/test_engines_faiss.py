"""FAISS beyond the contract: indexes that users already have, files, and the weights as centroids of an IndexPQ."""

import faiss
import numpy as np
import pytest
from engine_files import add_20_and_remove_one
from hypothesis import given
from hypothesis import strategies as st

import bitrank
from bitrank import Index
from bitrank.core.codes import pack, weighted_hamming
from bitrank.engines import quantize_weights
from bitrank.engines.faiss import FaissEngine, index_pq, pq_queries, set_pq_weights

N_BITS = 64


def clustered_codes(n, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.integers(0, 2, (20, N_BITS))
    return pack(centres[rng.integers(0, 20, n)] ^ (rng.random((n, N_BITS)) < 0.1))


CODES, QUERIES = clustered_codes(2000), clustered_codes(10, seed=0)
WEIGHTS = np.random.default_rng(2).lognormal(0, 1, N_BITS).astype(np.float32)


def flat():
    index = faiss.IndexBinaryFlat(N_BITS)
    index.add(CODES)
    return index


def hnsw():
    index = faiss.IndexBinaryHNSW(N_BITS, 16)
    index.hnsw.efConstruction = 200
    index.add(CODES)
    return index


def ivf():
    quantizer = faiss.IndexBinaryFlat(N_BITS)
    index = faiss.IndexBinaryIVF(quantizer, N_BITS, 16)
    index.nprobe = 16
    index.train(CODES)
    index.add(CODES)
    index.quantizer_kept = quantizer
    return index


def in_map(kind):
    def make():
        inner = faiss.IndexBinaryFlat(N_BITS)
        index = kind(inner)
        index.add_with_ids(CODES, np.arange(2000))
        index.inner_kept = inner
        return index

    return make


MINE = {
    "flat": flat,
    "hnsw": hnsw,
    "ivf": ivf,
    "idmap": in_map(faiss.IndexBinaryIDMap),
    "idmap2": in_map(faiss.IndexBinaryIDMap2),
}


@pytest.mark.parametrize("make", MINE.values(), ids=MINE)
def test_weights_on_an_index_that_is_there(make):
    engine = FaissEngine(make())
    assert (engine.count(), engine.n_bits) == (2000, N_BITS)
    found = engine.search(QUERIES, 10, WEIGHTS, method="rerank", candidates=500)
    expected = Index(CODES).search(QUERIES, 10, WEIGHTS, method="rerank", candidates=500)
    shares = [len(np.intersect1d(a, b)) / 10 for a, b in zip(found.ids, expected.ids, strict=True)]
    assert np.mean(shares) > 0.95  # at the edge of the candidates FAISS may take others of the same distance
    distances = np.take_along_axis(weighted_hamming(QUERIES, CODES, WEIGHTS), found.ids, axis=1)
    np.testing.assert_array_equal(found.distances, distances)


@pytest.mark.parametrize("make", [flat, hnsw, MINE["idmap"]])
def test_exact_search_of_an_index_that_is_there(make):
    whole = quantize_weights(WEIGHTS)
    found, expected = FaissEngine(make()).search(QUERIES, 10, whole), Index(CODES).search(QUERIES, 10, whole)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.distances, expected.distances)


def test_exact_search_follows_what_is_added_and_removed():
    with FaissEngine("faiss://") as engine:
        engine.create(N_BITS)
        engine.add(CODES[:100], np.arange(100))
        assert engine.search(CODES[:1], 1).ids == [[0]]
        engine.remove([0])
        assert engine.search(CODES[:1], 1).ids != [[0]]
        engine.add(CODES[:1], [500])
        assert engine.search(CODES[:1], 1).ids == [[500]]


@pytest.mark.parametrize("make", MINE.values(), ids=MINE)
def test_ids_and_codes_of_an_index_that_is_there(make):
    engine = FaissEngine(make())
    results = engine.search(QUERIES, k=20, method="rerank")
    ids = engine.ids
    np.testing.assert_array_equal(ids, np.arange(2000))
    np.testing.assert_array_equal(engine.codes(results.ids[0]), CODES[results.ids[0]])
    np.testing.assert_array_equal(engine.codes(ids), CODES)


def test_exact_search_of_clusters_is_refused():
    with pytest.raises(ValueError, match="IndexBinaryIVF"):
        FaissEngine(ivf()).search(QUERIES, 10)


def test_rows_without_ids_go_on_and_stay():
    engine = FaissEngine(flat())
    engine.add(CODES[:5], np.arange(2000, 2005))
    assert engine.count() == 2005
    with pytest.raises(ValueError, match="continue from 2005"):
        engine.add(CODES[:1], [7])
    with pytest.raises(ValueError, match="IDMap"):
        engine.remove([3])
    assert engine.count() == 2005


def test_clusters_replace_and_remove():
    engine = FaissEngine(ivf())
    engine.add(CODES[:5], np.arange(5))
    assert engine.count() == 2000
    engine.remove(np.arange(10))
    assert engine.count() == 1990


def test_what_faiss_cannot_remove_is_refused():
    inner = faiss.IndexBinaryHNSW(N_BITS, 8)
    index = faiss.IndexBinaryIDMap2(inner)
    engine = FaissEngine(index)
    engine.add(CODES[:50], np.arange(50) + 7)
    with pytest.raises(ValueError, match="IndexBinaryHNSW of FAISS cannot remove"):
        engine.remove([7])
    with pytest.raises(ValueError, match="cannot remove or replace"):
        engine.add(CODES[:1], [7])
    assert engine.count() == 50


def test_a_file_holds_what_was_added(tmp_path):
    path = tmp_path / "codes with space.index"
    url = f"faiss://{path.as_posix().replace(' ', '%20')}"
    add_20_and_remove_one(url)
    assert faiss.read_index_binary(str(path)).ntotal == 19
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ValueError, match="FAISS binary index"):
        bitrank.connect(url)


def test_what_is_not_a_binary_index_is_refused():
    for source in (faiss.IndexFlatL2(8), 7, None):
        with pytest.raises(ValueError, match=r"faiss\.IndexBinary"):
            FaissEngine(source)
    with pytest.raises(ValueError, match=r"72 bits.*64"):
        FaissEngine(flat(), n_bits=72)


@given(st.integers(1, 150), st.integers(0, 99))
def test_index_pq_ranks_by_the_weighted_distance(n_bits, seed):
    rng = np.random.default_rng(seed)
    codes, queries = pack(rng.integers(0, 2, (40, n_bits))), pack(rng.integers(0, 2, (3, n_bits)))
    weights, more = rng.lognormal(0, 1, (2, n_bits)).astype(np.float32)
    index = index_pq(codes, n_bits, weights)
    products, rows = index.search(pq_queries(queries, n_bits), 40)
    expected = weighted_hamming(queries, codes, weights)
    found = (weights.sum() - products) / 2
    np.testing.assert_allclose(found, np.take_along_axis(expected, rows, 1), rtol=1e-4, atol=1e-4 * weights.sum())
    np.testing.assert_allclose(found, np.sort(expected, axis=1), rtol=1e-4, atol=1e-4 * weights.sum())
    # Weights of a query come on top of those of the index, and new ones replace those.
    products, rows = index.search(pq_queries(queries, n_bits, more), 1)
    both = np.sort(weighted_hamming(queries, codes, weights * more), axis=1)[:, :1]
    np.testing.assert_allclose(((weights * more).sum() - products) / 2, both, atol=1e-4 * (weights * more).sum())
    set_pq_weights(index, n_bits, None)
    products, _ = index.search(pq_queries(queries, n_bits), 1)
    np.testing.assert_array_equal(
        (n_bits - products) / 2, weighted_hamming(queries, codes, np.ones(n_bits)).min(1)[:, None]
    )


def test_index_pq_survives_a_file(tmp_path):
    faiss.write_index(index_pq(CODES, N_BITS, quantize_weights(WEIGHTS)), str(tmp_path / "pq.index"))
    products, _ = faiss.read_index(str(tmp_path / "pq.index")).search(pq_queries(QUERIES, N_BITS), 3)
    whole = quantize_weights(WEIGHTS)
    np.testing.assert_array_equal((whole.sum() - products) / 2, Index(CODES).search(QUERIES, 3, whole).distances)


@pytest.mark.parametrize("weights", [np.ones(63), np.ones((2, 64)), -np.ones(64), np.full(64, np.nan)])
def test_index_pq_refuses_bad_weights(weights):
    with pytest.raises(ValueError, match="weights"):
        index_pq(CODES, N_BITS, weights)


def test_an_address_of_a_relative_file_is_refused():
    with pytest.raises(ValueError, match="faiss:///path/to/file"):
        bitrank.connect("faiss://folder/codes.index")


@pytest.mark.parametrize("make", [flat, hnsw, ivf, in_map(faiss.IndexBinaryIDMap)])
def test_a_sample_of_any_kind_of_index(make):
    index = make()
    engine = FaissEngine(index)
    sample = engine.sample(300)
    known = {code.tobytes() for code in CODES}
    assert sample.shape == (300, CODES.shape[1])
    assert all(code.tobytes() in known for code in sample)
    assert sorted(code.tobytes() for code in engine.sample(5000)) == sorted(code.tobytes() for code in CODES)
