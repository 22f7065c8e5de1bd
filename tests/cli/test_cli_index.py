"""The commands `bitrank index build|info|search|optimize`."""

import json

import numpy as np
import pytest

from bitrank.cli import main
from bitrank.core.files import write_array
from bitrank.index import Index, interchange

pytestmark = pytest.mark.filterwarnings("ignore:builtin type [Ss]wig:DeprecationWarning")

RNG = np.random.default_rng(0)
CODES = RNG.integers(0, 256, (500, 4), dtype=np.uint8)
WEIGHTS = RNG.random(32).astype(np.float32)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("codes.npy", CODES)
    np.save("ids.npy", np.arange(500) + 1000)
    np.save("weights.npy", WEIGHTS)
    np.save("queries.npy", CODES[:3])
    np.save("reals.npy", RNG.standard_normal((2, 32)))
    return tmp_path


def test_build_info_search_optimize(files, capsys):
    assert (
        main(["index", "build", "codes.npy", "my.index", "--ids", "ids.npy", "--weights", "weights.npy", "--json"]) == 0
    )
    built = json.loads(capsys.readouterr().out)
    assert (built["n_codes"], built["n_bits"]) == (500, 32)
    assert main(["index", "info", "my.index", "--json"]) == 0
    info = json.loads(capsys.readouterr().out)
    assert info["weighted"]
    assert info["n_codes"] == 500
    assert main(["index", "search", "my.index", "queries.npy", "-k", "4", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    expected = Index(CODES, ids=np.arange(500) + 1000, weights=WEIGHTS).search(CODES[:3], 4)
    assert [line["ids"] for line in lines] == expected.ids.tolist()
    np.testing.assert_allclose([line["distances"] for line in lines], expected.distances)
    write_array("weights.json", WEIGHTS[::-1])
    assert main(["index", "optimize", "my.index", "--weights", "weights.json"]) == 0
    np.testing.assert_array_equal(Index.load("my.index").weights, WEIGHTS[::-1])
    capsys.readouterr()
    assert (
        main(["index", "search", "my.index", "reals.npy", "--method", "rerank", "--candidates", "50", "--threads", "1"])
        == 0
    )
    assert capsys.readouterr().out.startswith("query 0: ")


def test_build_from_parquet_and_faiss(files, capsys):
    index = Index(CODES)
    pytest.importorskip("pyarrow", reason="PyArrow is an extra")
    interchange.to_parquet(index, "codes.parquet")
    faiss = pytest.importorskip("faiss", reason="FAISS is an extra")
    faiss.write_index_binary(interchange.to_faiss(index), "codes.faiss")
    for source in (["codes.parquet", "--id-column", "id"], ["codes.faiss"]):
        assert main(["index", "build", source[0], "my.index", *source[1:]]) == 0
        assert capsys.readouterr().out.startswith("n codes             500\nn bits              32\n")
        assert Index.load("my.index").search(CODES[:9], 1).ids[:, 0].tolist() == list(range(9))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "absent.npy", "my.index"], "No such file"),
        (["build", "reals.npy", "my.index"], "packed uint8 matrix"),
        (["build", "codes.parquet", "my.index", "--ids", "ids.npy"], "ids must be None unless"),
        (["info", "absent.index"], "meta.json is missing"),
        (["search", "absent.index", "queries.npy"], "meta.json is missing"),
    ],
)
def test_mistakes_end_with_a_message(files, arguments, message):
    with pytest.raises(SystemExit, match=message):
        main(["index", *arguments])
