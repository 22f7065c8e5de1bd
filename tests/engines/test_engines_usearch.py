"""USearch beyond the contract: an index that a user already has, its graph, and files."""

import numpy as np
import pytest
import usearch.index
from engine_files import add_20_and_remove_one

import bitrank
from bitrank import Index
from bitrank.core.codes import pack, weighted_hamming
from bitrank.engines.usearch import USearchEngine

N_BITS = 64


def clustered_codes(n, seed=0):
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).integers(0, 2, (20, N_BITS))
    return pack(centres[rng.integers(0, 20, n)] ^ (rng.random((n, N_BITS)) < 0.1))


CODES, QUERIES = clustered_codes(2000), clustered_codes(10, seed=1)
WEIGHTS = np.random.default_rng(2).lognormal(0, 1, N_BITS).astype(np.float32)


def mine():
    index = usearch.index.Index(ndim=N_BITS, metric="hamming", dtype="b1")
    index.add(np.arange(2000), CODES)
    return index


@pytest.mark.parametrize(("scan", "least"), [(False, 0.8), (True, 0.95)])
def test_weights_on_an_index_that_is_there(scan, least):
    engine = USearchEngine(mine(), scan=scan)
    assert (engine.count(), engine.n_bits) == (2000, N_BITS)
    found = engine.search(QUERIES, 10, WEIGHTS, method="rerank", candidates=300)
    expected = Index(CODES).search(QUERIES, 10, WEIGHTS, method="rerank", candidates=300)
    shares = [len(np.intersect1d(a, b)) / 10 for a, b in zip(found.ids, expected.ids, strict=True)]
    assert np.mean(shares) > least
    distances = np.take_along_axis(weighted_hamming(QUERIES, CODES, WEIGHTS), found.ids, axis=1)
    np.testing.assert_array_equal(found.distances, distances)


def test_an_exact_search_is_refused():
    with pytest.raises(ValueError, match='must be "rerank" for USearch'):
        USearchEngine(mine()).search(QUERIES, 10, method="exact")


def test_a_file_holds_what_was_added(tmp_path):
    path = tmp_path / "codes.usearch"
    url = f"usearch://{path.as_posix()}?scan=true"
    add_20_and_remove_one(url)
    assert len(usearch.index.Index.restore(str(path))) == 19
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "codes.usearch"
    path.write_bytes(b"not an index at all" * 100)
    with pytest.raises(ValueError, match="USearch index"):
        bitrank.connect(f"usearch://{path.as_posix()}")


def test_what_is_not_an_index_of_bits_is_refused():
    with pytest.raises(ValueError, match="b1 by hamming"):
        USearchEngine(usearch.index.Index(ndim=8, metric="cos", dtype="f32"))
    with pytest.raises(ValueError, match=r"usearch\.index\.Index"):
        USearchEngine(7)
    with pytest.raises(ValueError, match=r"72 bits.*64"):
        USearchEngine(mine(), n_bits=72)


def test_an_address_of_a_relative_file_is_refused():
    with pytest.raises(ValueError, match="usearch:///path/to/file"):
        bitrank.connect("usearch://folder/codes.index")
