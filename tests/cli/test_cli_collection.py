"""The commands on a collection: `create`, `search`, `report` and `info`."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from bitrank import ITQ, Collection, Index, SignBits
from bitrank.cli import main
from bitrank.index import interchange

pytestmark = pytest.mark.filterwarnings("ignore:builtin type [Ss]wig:DeprecationWarning")

RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(300, 24)).astype(np.float32)
CODES = RNG.integers(0, 256, (300, 4), dtype=np.uint8)
NAMES = [f"item {row}" for row in range(300)]


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("vectors.npy", VECTORS)
    np.save("codes.npy", CODES)
    np.save("queries.npy", VECTORS[:3] + 0.01)
    np.savetxt("ids.csv", NAMES, fmt="%s")


def searched(capsys, *arguments):
    capsys.readouterr()
    assert main(["search", *arguments, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_create_and_search_vectors(capsys):
    assert main(["create", "shop.bitrank", "vectors.npy", "--ids", "ids.csv"]) == 0
    assert re.match(
        r"300 items of \d+ bits, BitPlanes of 24 dimensions, cosine: 14 bytes per item", capsys.readouterr().out
    )
    lines = searched(capsys, "shop.bitrank", "queries.npy", "-k", "4")
    want = Collection.from_vectors(VECTORS, ids=NAMES, random_state=0).search(VECTORS[:3] + np.float32(0.01), k=4)
    assert [line["ids"] for line in lines] == want.ids.tolist()
    np.testing.assert_allclose([line["distances"] for line in lines], want.distances, rtol=1e-6)
    assert [line["query"] for line in lines] == [0, 1, 2]
    assert main(["search", "shop.bitrank", "queries.npy", "-k", "2", "--explain"]) == 0
    assert capsys.readouterr().out.startswith("query 0 by plain, trust 0.00: item 0 (")


def test_cells_and_a_promise_of_recall(capsys):
    main(["create", "shop.bitrank", "vectors.npy"])
    with pytest.raises(SystemExit, match="recall must be None for a collection without cells"):
        main(["search", "shop.bitrank", "queries.npy", "--recall", "0.9"])
    capsys.readouterr()
    assert main(["cells", "shop.bitrank", "--queries", "queries.npy"]) == 0
    assert "measured on 3 queries over 300 items" in capsys.readouterr().out
    lines = searched(capsys, "shop.bitrank", "queries.npy", "-k", "4", "--recall", "0.999", "--explain")
    exact = searched(capsys, "shop.bitrank", "queries.npy", "-k", "4")
    assert [line["ids"][0] for line in lines] == [line["ids"][0] for line in exact]
    assert all(0 < line["read"] <= 1 for line in lines)
    assert main(["search", "shop.bitrank", "queries.npy", "--recall", "0.9", "--explain"]) == 0
    assert "% read: " in capsys.readouterr().out


def test_a_filter_leaves_few_results(capsys):
    main(["create", "shop.bitrank", "vectors.npy", "--ids", "ids.csv"])
    np.savetxt("some.csv", ["item 7", "item 8"], fmt="%s")
    lines = searched(capsys, "shop.bitrank", "queries.npy", "--filter", "some.csv")
    assert all(sorted(line["ids"]) == ["item 7", "item 8"] and len(line["distances"]) == 2 for line in lines)


def test_wishes(printed_json):
    vectors = ["create", "shop.bitrank", "vectors.npy", "--replace", "--json"]
    assert main([*vectors, "--bytes", "9"]) == 0
    facts = printed_json()
    assert facts["bytes_per_item"] == 9
    wish = facts["costs"][1]["recall"]
    assert main([*vectors, "--float-recall", str(wish)]) == 0
    assert printed_json()["bytes_per_item"] in (facts["costs"][0]["n_bytes"], facts["costs"][1]["n_bytes"])
    assert main([*vectors, "--bits", "2"]) == 0
    assert printed_json()["bytes_per_item"] == facts["costs"][2]["n_bytes"]


@pytest.mark.parametrize("hasher", ["name", "file"])
def test_create_with_a_hasher(hasher, capsys, printed_json):
    fitted = ITQ(n_bits=8, random_state=5).fit(VECTORS)
    fitted.save("itq.npz")
    chosen = ["--hasher", "itq.npz"] if hasher == "file" else ["--hasher", "ITQ", "--n-bits", "8", "--seed", "5"]
    assert main(["create", "shop.bitrank", "vectors.npy", *chosen, "--metric", "l2", "--json"]) == 0
    facts = printed_json()
    assert (facts["hasher"], facts["n_bits"], facts["metric"]) == ("ITQ", 8, "l2")
    np.testing.assert_array_equal(Collection.load("shop.bitrank").codes(), fitted.transform(VECTORS))


def test_create_from_codes_of_every_kind(capsys, printed_json):
    index = Index(CODES, ids=np.arange(300) + 1000)
    index.save("old.index")
    sources = {"codes.npy": ["--codes"], "old.index": []}
    pytest.importorskip("pyarrow", reason="PyArrow is an extra")
    interchange.to_parquet(index, "codes.parquet")
    sources["codes.parquet"] = ["--id-column", "id"]
    faiss = pytest.importorskip("faiss", reason="FAISS is an extra")
    faiss.write_index_binary(interchange.to_faiss(index), "codes.faiss")
    sources["codes.faiss"] = []
    for source, options in sources.items():
        assert main(["create", "shop.bitrank", source, *options, "--replace", "--json"]) == 0
        facts = printed_json()
        assert (facts["n_items"], facts["n_bits"], facts["hasher"]) == (300, 32, None)
        collection = Collection.load("shop.bitrank")
        first = 0 if source == "codes.npy" else 1000
        np.testing.assert_array_equal(collection.ids, np.arange(300) + first)
        np.testing.assert_array_equal(collection.codes(), CODES)


def test_info_and_report(capsys, printed_json):
    main(["create", "shop.bitrank", "vectors.npy"])
    printed = capsys.readouterr().out
    assert main(["report", "shop.bitrank"]) == 0
    assert capsys.readouterr().out == printed
    assert main(["learn", "shop.bitrank", "--forget"]) == 0
    capsys.readouterr()
    assert main(["info", "shop.bitrank"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["n", "items", "300"],
        ["n", "bits", "112"],
        ["bytes", "per", "item", "14"],
    ]
    assert lines[-1].split() == ["version", "1", "plain"]
    assert main(["info", "shop.bitrank", "--json"]) == 0
    facts = printed_json()
    assert facts["versions"] == [{"number": number, "learned_from": "plain", "ranker": None} for number in (0, 1)]
    assert facts["bytes"] > 300 * 14


def test_as_a_module(tmp_path):
    command = [sys.executable, "-m", "bitrank", "create", "shop.bitrank", "vectors.npy"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.startswith("300 items of 112 bits")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("create new.bitrank absent.npy", "No such file"),
        ("create new.bitrank vectors.npy --codes", "packed uint8 matrix"),
        ("create new.bitrank codes.npy --codes --bits 1", "--float-recall must be left out for codes, got one"),
        ("create new.bitrank old.index --ids ids.csv", "--ids must be left out for old.index, which has its own"),
        ("create new.bitrank vectors.npy --n-bits 8", "--n-bits must be left out for vectors without --hasher"),
        ("create new.bitrank vectors.npy --hasher absent.npz", "No such file"),
        ("create new.bitrank vectors.npy --metric angle", "metric must be one of"),
        ("create shop.bitrank codes.npy --codes", "shop.bitrank"),
        ("search absent.bitrank queries.npy", "collection.json is missing"),
        ("search shop.bitrank codes.npy", "queries must be vectors of 24 numbers, or packed codes of 3 bytes"),
        ("search shop.bitrank queries.npy --filter ids.csv", "filter must be in the collection, got 'item 0'"),
        ("report absent.bitrank", "collection.json is missing"),
        ("report shop.bitrank --plot new.png", "report must be of something learned"),
        ("info absent.bitrank", "collection.json is missing"),
    ],
)
def test_mistakes_end_with_a_message_and_change_nothing(arguments, message, tmp_path):
    Collection.from_vectors(VECTORS, hasher=SignBits()).save("shop.bitrank")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(SystemExit, match=message):
        main(arguments.split())
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
