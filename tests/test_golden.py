"""Golden files: hashers, rankers and record stores of past formats still answer, and seeded fits report the same.

`scripts/make_golden_rankers.py` writes them, but for the stores, whose format is of the past.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from bitrank import Collection
from bitrank.core.codes import signs
from bitrank.hashing import HASHERS, load_hasher
from bitrank.ranking import RANKERS, load_ranker

GOLDEN = Path(__file__).parent / "golden"
sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
import make_golden_rankers as golden  # noqa: E402

ANSWERS = {name: dict(np.load(GOLDEN / f"{name}-answers.npz")) for name in ("hashers-v1", "rankers-v1")}
REPORTS = json.loads((GOLDEN / "reports.json").read_text())
# Linear algebra rounds by the processor, and near ties change places: OPENBLAS_CORETYPE changed figures by 1e-6.
FIGURE = 5e-4


@pytest.mark.parametrize("name", HASHERS)
def test_hashers_give_the_same_codes(name):
    hasher = load_hasher(GOLDEN / "hashers-v1" / f"{name}.npz")
    assert type(hasher).__name__ == name
    np.testing.assert_array_equal(hasher.transform(golden.vectors()), ANSWERS["hashers-v1"][name])


@pytest.mark.parametrize("name", RANKERS)
def test_rankers_give_the_same_queries(name):
    ranker = load_ranker(GOLDEN / "rankers-v1" / f"{name}.npz")
    assert type(ranker).__name__ == name
    stored = ANSWERS["rankers-v1"]
    expected = {key.removeprefix(f"{name}-"): stored[key] for key in stored if key.startswith(f"{name}-")}
    found = golden.answers_of(ranker)
    assert found.keys() == expected.keys()

    def vectors(answers, kind):  # a bit may turn where its weight is almost 0
        return signs(answers[f"{kind}-codes"], golden.N_BITS) * answers[f"{kind}-weights"]

    for kind in ("codes", "reals"):
        np.testing.assert_allclose(vectors(found, kind), vectors(expected, kind), rtol=1e-4, atol=1e-5)
        if f"{kind}-trust" in expected:
            np.testing.assert_allclose(found[f"{kind}-trust"], expected[f"{kind}-trust"], atol=1e-5)


def test_stores_find_the_same():
    """The similarities of before were the share of the query's weight where bits agree."""
    stored = json.loads((GOLDEN / "stores-v1.json").read_text())
    assert list(stored) == ["store-langchain-v1", "store-haystack-v1"]
    for name, expected in stored.items():
        collection = Collection.load(GOLDEN / name)
        for query, wanted in zip(golden.vectors()[20:26], expected, strict=True):
            results = collection.search(query, 5)
            assert results.ids[0].tolist() == [text_id for text_id, _ in wanted]
            agreeing = 2 * np.array([score for _, score in wanted]) - 1
            if name == "store-haystack-v1":  # one bit per dimension: cosines
                agreeing *= np.abs(query).sum() / np.linalg.norm(query) / np.sqrt(2 * len(query) / np.pi)
            np.testing.assert_allclose(collection.similarity(results)[0], agreeing, rtol=1e-4, atol=1e-6)


def test_langchain_reads_its_store():
    pytest.importorskip("langchain_core")
    from langchain_core.embeddings import DeterministicFakeEmbedding

    from bitrank.integrations.langchain import BitrankVectorStore

    store = BitrankVectorStore.load(GOLDEN / "store-langchain-v1", DeterministicFakeEmbedding(size=6))
    assert len(store) == 20
    document = store.similarity_search_by_vector(golden.vectors()[0].tolist(), k=20, filter={"group": 1})[0]
    assert document.page_content == f"text {document.id[1:]}"
    assert document.metadata == {"group": 1}


def test_haystack_reads_its_store():
    pytest.importorskip("haystack")
    from bitrank.integrations.haystack import BitrankDocumentStore

    store = BitrankDocumentStore(str(GOLDEN / "store-haystack-v1"))
    assert store.count_documents() == 6
    found = store.embedding_retrieval(golden.vectors()[2].tolist(), top_k=6)
    assert len(found) == 5
    assert found[0].id == "d2"
    assert found[0].meta == {"group": 2}


def test_there_are_thirty_reports():
    assert list(REPORTS) == list(golden.fits())
    assert len(REPORTS) == 30


@pytest.mark.parametrize("name", REPORTS)
def test_seeded_fits_report_the_same(name):
    found, expected = golden.as_table(golden.fit(golden.fits()[name]).report_), REPORTS[name]
    assert found["names"] == expected["names"]
    assert len(found["rows"]) == len(expected["rows"])
    for row, wanted in zip(found["rows"], expected["rows"], strict=True):
        numbers = [type(value) is float for value in wanted]
        assert [type(value) is float for value in row] == numbers
        pairs = zip(row, wanted, numbers, strict=True)
        assert all(value == expected or number for value, expected, number in pairs)
        assert row == pytest.approx(wanted, abs=FIGURE)


@pytest.mark.parametrize("mmap", [False, True])
def test_collection_in_two_parts(mmap):
    """Heads and rests, a ranking of the space of vectors, costs of other numbers of bits, drift, and a journal."""
    stored = json.loads((GOLDEN / "planes-v1.json").read_text())
    collection = Collection.load(GOLDEN / "planes-v1", mmap=mmap)
    queries = np.float32(stored["queries"])
    assert [collection.n_bits, collection.index.n_scanned] == stored["n_bits"]
    assert str(collection.report()).splitlines() == stored["report"]
    assert 3 not in collection
    results = collection.search(queries, 5)
    # An estimate of one float32 or another may change places.
    assert (results.ids == stored["ids"]).mean() > 0.9
    np.testing.assert_allclose(results.distances, stored["distances"], rtol=1e-3, atol=1e-3)
    collection.roll_back(0)
    plain = [[item for item in row if item != 3][:4] for row in stored["plain"]]
    found = collection.search(queries, 5, filter=[item for item in range(300) if item != 3]).ids
    assert np.mean([row[:4] == wanted for row, wanted in zip(found.tolist(), plain, strict=True)]) > 0.6


@pytest.mark.parametrize("mmap", [False, True])
def test_collection_in_cells(mmap):
    """Cells, promises of recall with the queries that they were measured on, and a journal of later items."""
    stored = json.loads((GOLDEN / "cells-v1.json").read_text())
    collection = Collection.load(GOLDEN / "cells-v1", mmap=mmap)
    queries = np.uint8(stored["queries"])
    assert str(collection.report()).splitlines() == stored["report"]
    assert 3 not in collection
    assert 2001 in collection
    exact = collection.search(queries, 5)
    np.testing.assert_array_equal(exact.distances, stored["distances"])
    found = collection.search(queries, 5, recall=0.9, explain=True)
    assert found.explanation.promise == "queries"
    assert found.explanation.read.mean() == pytest.approx(stored["read"], abs=0.05)
    assert (found.distances >= exact.distances).all()
    assert (found.distances == exact.distances).mean() > 0.85
