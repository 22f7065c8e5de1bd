"""`Collection.from_engine`: the codes stay in the engine, and everything else is as in a collection of its own."""

import numpy as np
import pytest

import bitrank
from bitrank import ITQ, Collection, SignBits
from bitrank.datasets import digits

IMAGES, Y = digits()
X = IMAGES.reshape(len(IMAGES), -1)[:600, ::12].astype(np.float32)
HASHER = SignBits().fit(X)


@pytest.fixture(params=["memory://", "duckdb://", "faiss://"])
def engine(request):
    """An engine with 400 codes under ids of its own."""
    pytest.importorskip({"memory://": "numpy", "duckdb://": "duckdb", "faiss://": "faiss"}[request.param])
    with bitrank.connect(request.param) as connected:
        connected.create(n_bits=HASHER.n_bits_)
        connected.add(HASHER.transform(X[:400]), ids=np.arange(400) + 1000)
        yield connected


def test_it_answers_as_a_collection_of_its_own(engine):
    there = Collection.from_engine(engine, HASHER, random_state=0)
    here = Collection.from_vectors(X[:400], ids=np.arange(400) + 1000, hasher=HASHER, random_state=0)
    assert repr(there) == repr(here)
    assert (there.ids == here.ids).all()
    assert 1000 in there
    assert 999 not in there
    for collection in (there, here):
        collection.learn(labels=Y[:400], features=X[:400], ranker="WhRank")
    found, expected = there.search(X[400:420], 5, explain=True), here.search(X[400:420], 5)
    # The engine ranks by whole-number weights: near ties may change places.
    np.testing.assert_allclose(found.distances, expected.distances, rtol=1e-2)
    assert (found.ids == expected.ids).mean() > 0.9
    assert found.explanation.ranking == ["WhRank"] * 20
    there.forget()
    here.forget()
    np.testing.assert_allclose(there.search(X[400:420], 5).distances, here.search(X[400:420], 5).distances, rtol=1e-2)


def test_items_come_and_go_in_the_engine(engine):
    collection = Collection.from_engine(engine, HASHER)
    collection.add(X[400:403])
    assert collection.ids[-3:].tolist() == [1400, 1401, 1402]
    collection.add(X[403:404], ids=[7])
    assert engine.ids[0] == 7
    collection.remove([1000, 1401])
    assert len(collection) == engine.count() == 402
    with pytest.raises(ValueError, match="ids must be in the collection, got 1401"):
        collection.remove([1401])
    with pytest.raises(ValueError, match="ids must be new, got 7"):
        collection.add(X[:1], ids=[7])
    with pytest.raises(ValueError, match="filter must be None for a collection in an engine"):
        collection.search(X[:1], filter=[7])


def test_what_is_learned_is_saved_without_the_codes(engine, tmp_path):
    collection = Collection.from_engine(engine, HASHER, random_state=0)
    collection.learn(labels=Y[:400], ranker="WhRank")
    collection.save(tmp_path / "a")
    assert not list((tmp_path / "a").glob("index-*"))
    with pytest.raises(ValueError, match="engine must be the engine that holds the codes, got None"):
        Collection.load(tmp_path / "a")
    loaded = Collection.load(tmp_path / "a", engine=engine)
    assert (loaded.search(X[400:410], 5).distances == collection.search(X[400:410], 5).distances).all()
    collection.forget()
    collection.save(tmp_path / "a")
    assert Collection.load(tmp_path / "a", engine=engine).versions == collection.versions
    Collection.from_codes(HASHER.transform(X)).save(tmp_path / "b")
    with pytest.raises(ValueError, match="engine must be None, since the folder has the codes"):
        Collection.load(tmp_path / "b", engine=engine)


def test_what_is_no_engine_or_no_hasher_of_it_is_refused(engine):
    with pytest.raises(ValueError, match=r"engine must be what bitrank.connect returns, got 'memory://'"):
        Collection.from_engine("memory://")
    with pytest.raises(ValueError, match="hasher must be a fitted Hasher"):
        Collection.from_engine(engine, SignBits())
    with pytest.raises(ValueError, match="hasher must make codes of 66 bits, got one of 8 bits"):
        Collection.from_engine(engine, ITQ(8, random_state=0).fit(X))
