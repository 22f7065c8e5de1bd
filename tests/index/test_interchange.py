"""Codes from .npy files, FAISS and Parquet into an index, and back the same."""

import sys

import numpy as np
import pytest

from bitrank.core.codes import pack
from bitrank.index import Index
from bitrank.index.interchange import from_faiss, from_npy, from_parquet, to_faiss, to_npy, to_parquet

# FAISS's bindings, made by SWIG, warn when they are imported.
pytestmark = pytest.mark.filterwarnings("ignore:builtin type [Ss]wig:DeprecationWarning")

RNG = np.random.default_rng(0)
CODES = RNG.integers(0, 256, (300, 4), dtype=np.uint8)
IDS = RNG.permutation(1000)[:300]
WEIGHTS = RNG.random(32).astype(np.float32)


def by_id(codes, ids):
    return codes[np.argsort(ids)]


def test_npy_there_and_back(tmp_path):
    np.save(tmp_path / "codes.npy", CODES)
    index = from_npy(tmp_path / "codes.npy", ids=IDS, weights=WEIGHTS)
    to_npy(index, tmp_path / "back.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "back.npy"), by_id(CODES, IDS))
    np.testing.assert_array_equal(index.weights, WEIGHTS)


def test_npy_of_odd_bits(tmp_path):
    np.save(tmp_path / "codes.npy", pack([[1, 0, 1]]))
    assert from_npy(tmp_path / "codes.npy", n_bits=3).n_bits == 3
    np.save(tmp_path / "floats.npy", np.ones((2, 2)))
    with pytest.raises(ValueError, match="packed uint8 matrix"):
        from_npy(tmp_path / "floats.npy")


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ids"])
@pytest.mark.parametrize("as_file", [False, True])
def test_faiss_there_and_back(tmp_path, kind, as_file):
    faiss = pytest.importorskip("faiss")
    source = faiss.IndexBinaryHNSW(32, 8) if kind == "hnsw" else faiss.IndexBinaryFlat(32)
    if kind == "ids":
        source = faiss.IndexBinaryIDMap(source)
        source.add_with_ids(CODES, IDS)
    else:
        source.add(CODES)
    if as_file:
        faiss.write_index_binary(source, str(tmp_path / "codes.faiss"))
        source = tmp_path / "codes.faiss"
    index = from_faiss(source, weights=WEIGHTS)
    ids = IDS if kind == "ids" else np.arange(300)
    np.testing.assert_array_equal(index.ids, np.sort(ids))
    back = to_faiss(index)
    np.testing.assert_array_equal(faiss.vector_to_array(back.id_map), np.sort(ids))
    distances, found = back.search(CODES[:20], 1)
    np.testing.assert_array_equal(found[:, 0], index.search(CODES[:20], 1).ids[:, 0])
    assert (distances == 0).all()


def test_candidates_from_faiss_are_ranked_by_weight():
    faiss = pytest.importorskip("faiss")
    flat = faiss.IndexBinaryFlat(32)
    flat.add(CODES)
    index = Index(CODES, weights=WEIGHTS)
    _, candidates = flat.search(CODES[:5], 300)
    found, expected = index.rerank(CODES[:5], candidates, k=10), index.search(CODES[:5], k=10)
    np.testing.assert_array_equal(found.ids, expected.ids)


def test_other_faiss_indexes_are_refused():
    faiss = pytest.importorskip("faiss")
    with pytest.raises(ValueError, match="source must be an IndexBinaryFlat"):
        from_faiss(faiss.IndexBinaryHash(32, 8))


def test_parquet_there_and_back(tmp_path):
    pytest.importorskip("pyarrow")
    to_parquet(Index(CODES, ids=IDS), tmp_path / "codes.parquet", column="hash", id_column="key")
    index = from_parquet(tmp_path / "codes.parquet", "hash", id_column="key", weights=WEIGHTS)
    codes, ids = index.export()
    np.testing.assert_array_equal(by_id(codes, ids), by_id(CODES, IDS))
    np.testing.assert_array_equal(np.sort(ids), np.sort(IDS))


@pytest.mark.parametrize("kind", ["binary", "large_binary", "list", "fixed_list", "chunks"])
def test_parquet_columns_of_other_kinds(tmp_path, kind):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    types = {
        "binary": arrow.binary(),
        "large_binary": arrow.large_binary(),
        "list": arrow.list_(arrow.uint8()),
        "fixed_list": arrow.list_(arrow.uint8(), 4),
        "chunks": arrow.binary(),
    }
    values = CODES.tolist() if "list" in kind else [code.tobytes() for code in CODES]
    table = arrow.table({"code": arrow.array(values, types[kind])})
    parquet.write_table(table, tmp_path / "codes.parquet", row_group_size=70 if kind == "chunks" else None)
    codes, ids = from_parquet(tmp_path / "codes.parquet").export()
    np.testing.assert_array_equal(by_id(codes, ids), CODES)


def test_bad_parquet_is_a_value_error(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {
        "ragged": [b"ab", b"a"],
        "ragged_lists": arrow.array([[1, 2], [1], [1, 2, 3]][:2], arrow.list_(arrow.uint8())),
        "nulls": [b"ab", None],
        "numbers": [1, 2],
        "wide": arrow.array([[1, 2], [1, 2]], arrow.list_(arrow.int32())),
    }
    parquet.write_table(arrow.table(columns), tmp_path / "codes.parquet")
    for column, message in {
        "ragged": "one length",
        "ragged_lists": "one length",
        "nulls": "no nulls",
        "numbers": "binary values or lists",
        "wide": "binary values or lists",
        "absent": "none named 'absent'",
    }.items():
        with pytest.raises(ValueError, match=message):
            from_parquet(tmp_path / "codes.parquet", column)


@pytest.mark.parametrize(("module", "extra"), [("faiss", "faiss"), ("pyarrow", "parquet")])
def test_a_missing_extra_names_the_command(module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    call = to_faiss if module == "faiss" else lambda index: to_parquet(index, "nowhere.parquet")
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'bitrank\[{extra}\]'"):
        call(Index(CODES))
