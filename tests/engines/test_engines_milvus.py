"""Milvus beyond the contract: both indexes, limits, and a server that goes away. `make test-milvus` runs it."""

import os

import numpy as np
import pytest
from milvus_server import ON_DEMAND

import bitrank
from bitrank.core.codes import pack, weighted_hamming

if ON_DEMAND not in os.environ:
    pytest.skip("Milvus is tested on demand: make test-milvus", allow_module_level=True)


def clustered_codes(n, n_bits, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.integers(0, 2, (20, n_bits))
    return pack(centres[rng.integers(0, 20, n)] ^ (rng.random((n, n_bits)) < 0.1))


@pytest.mark.parametrize("index", ["BIN_FLAT", "BIN_IVF_FLAT"])
def test_milvus_both_indexes_find_the_candidates(milvus, index):
    codes, queries = clustered_codes(20_000, 64), clustered_codes(20, 64, seed=1)
    weights = np.random.default_rng(2).lognormal(0, 1, 64).astype(np.float32)
    with bitrank.connect(milvus.url, f"both_{index}", index=index, nlist=64, nprobe=64) as engine:
        engine.create(64)
        engine.add(codes, np.arange(len(codes)))
        engine.optimize()
        assert engine._client.describe_index(f"both_{index}", "code")["index_type"] == index
        found = engine.search(queries, 10, weights, method="rerank", candidates=500)
    expected = bitrank.Index(codes, n_bits=64).search(queries, 10, weights, method="rerank", candidates=500)
    shares = [len(np.intersect1d(a, b)) / 10 for a, b in zip(found.ids, expected.ids, strict=True)]
    assert np.mean(shares) > 0.9
    distances = np.take_along_axis(weighted_hamming(queries, codes, weights), found.ids, axis=1)
    np.testing.assert_array_equal(found.distances, distances)


def test_milvus_limits_and_names(milvus):
    with bitrank.connect(milvus.url, "limits") as engine:
        engine.create(16)
        engine.add(pack(np.eye(16)), np.arange(16))
        with pytest.raises(ValueError, match="at most 16384"):
            engine.search(pack(np.eye(16)), 10, method="rerank", candidates=20_000)
        with pytest.raises(ValueError, match="at most 16384"):
            engine.search(pack(np.eye(16)), 20_000, method="rerank")
        assert engine.search(pack(np.eye(16)), 2000, method="rerank").ids.shape == (16, 2000)
        with pytest.raises(ValueError, match="2\\*\\*63 - 2"):
            engine.add(pack(np.ones((1, 16))), [2**63 - 1])
        assert engine.count() == 16
    for name in ("a b", 'x"; drop', "1st", "é", "n" * 256):
        with pytest.raises(ValueError, match="letters, digits and underscores"):
            bitrank.connect(milvus.url, name)
    for option in ("secure=yes", "secure", "tls=true", "consistency=strong"):
        with pytest.raises(ValueError, match="options of an address of Milvus must be of secure=true.*got " + option):
            bitrank.connect(f"{milvus.url}?{option}")
    for options in ({"index": "HNSW"}, {"nlist": 4, "nprobe": 5}):
        with pytest.raises(ValueError, match="must be"):
            bitrank.connect(milvus.url, **options)


def test_milvus_reads_need_not_wait_for_the_newest_codes(milvus):
    codes = clustered_codes(1000, 32)
    with bitrank.connect(milvus.url, "settled") as engine:
        engine.create(32)
        engine.add(codes, np.arange(1000))
        expected = engine.search(codes[:5], 10, method="rerank")  # from now on the codes are there for everybody
        for level in ("Strong", "Session", "Bounded", "Eventually"):
            with bitrank.connect(f"{milvus.url}?consistency={level}", "settled") as other:
                found = other.search(codes[:5], 10, method="rerank")
                np.testing.assert_array_equal(found.distances, expected.distances)
                np.testing.assert_array_equal(other.codes([3, 1]), codes[[3, 1]])
                assert other.count() == 1000


def test_milvus_takes_a_bulk_whole_or_not_at_all(milvus):
    n = 1_000_000
    codes = np.random.default_rng(0).integers(0, 256, (n, 32), dtype=np.uint8)
    with bitrank.connect(milvus.url, "bulk") as engine:
        engine.create(256)
        engine.add(codes, np.arange(n))  # 40 MB, in one message
        assert engine.count() == n
        with pytest.raises(ValueError, match="up to 1258291 codes of this length at once, got 2000000"):
            engine.add(np.concatenate([codes, codes]), np.arange(2 * n))
        assert engine.count() == n


def test_milvus_collection_of_another_shape_is_refused(milvus):
    with bitrank.connect(milvus.url, "strange") as engine:
        types, client = engine._milvus.DataType, engine._client
        schema = client.create_schema(auto_id=False)
        schema.add_field("id", types.INT64, is_primary=True)
        schema.add_field("code", types.FLOAT_VECTOR, dim=8)
        client.create_collection("strange", schema=schema)
        with pytest.raises(ValueError, match="BINARY_VECTOR"):
            engine.create(8)


def test_milvus_collection_that_is_not_loaded_is_loaded(milvus):
    with bitrank.connect(milvus.url, "released") as engine:
        engine.create(16)
        engine.add(pack(np.eye(16)), np.arange(16))
        engine._client.release_collection("released")
        assert engine.search(pack(np.eye(16)), 1, method="rerank").ids[:, 0].tolist() == list(range(16))
        engine._client.release_collection("released")
        assert engine.count() == 16
        engine._client.release_collection("released")
        np.testing.assert_array_equal(engine.codes([3]), pack(np.eye(16))[3:4])


def test_milvus_killed_and_started_again(milvus):
    codes = clustered_codes(2000, 32)
    with bitrank.connect(milvus.url, "restarted", timeout=10) as engine:
        engine.create(32)
        engine.add(codes, np.arange(2000))
        before = engine.search(codes[:3], 5, method="rerank")
        milvus.kill()
        with pytest.raises(ConnectionError, match="Milvus"):
            engine.search(codes[:3], 5, method="rerank")
        with pytest.raises(ConnectionError, match="Milvus"):
            engine.add(codes, np.arange(2000, 4000))
        milvus.start()
        with bitrank.connect(milvus.url, "restarted") as again:
            again.add(codes, np.arange(2000, 4000))
            assert again.count() == 4000
        after = engine.search(codes[:3], 5, method="rerank", candidates=4000)
    np.testing.assert_array_equal(after.distances[:, 0], before.distances[:, 0])


def test_milvus_that_is_not_there_is_a_connection_error():
    with pytest.raises(ConnectionError, match="Milvus"):
        bitrank.connect("milvus://127.0.0.1:1", timeout=2)
