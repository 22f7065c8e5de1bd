"""A collection put together from parts: codes with a hasher, a ranker from elsewhere, attachments, older folders."""

import copy
import gc
import pickle
import weakref
from pathlib import Path

import numpy as np
import pytest

from bitrank import ITQ, Collection, Index, SignBits
from bitrank.core.codes import distances
from bitrank.ranking import QueryAdaptiveRanker, WhRank

X = np.random.default_rng(0).normal(size=(80, 24)).astype(np.float32)
HASHER = ITQ(n_bits=12, random_state=0).fit(X)
RANKER = WhRank().fit(HASHER.transform(X), np.arange(80) % 4, queries=HASHER.project(X))
GOLDEN = Path(__file__).parents[1] / "golden"


def test_codes_with_their_hasher_are_searched_by_vectors():
    collection = Collection.from_codes(HASHER.transform(X[:50]), n_bits=12, hasher=HASHER)
    collection.add(X[50:])
    whole = Collection.from_vectors(X, hasher=HASHER)
    np.testing.assert_array_equal(collection.codes(), whole.codes())
    np.testing.assert_array_equal(collection.search(X[:5], 7).ids, whole.search(X[:5], 7).ids)
    with pytest.raises(ValueError, match="codes"):
        Collection.from_codes(np.zeros((3, 3), np.uint8), hasher=HASHER)
    with pytest.raises(ValueError, match="hasher must be a fitted Hasher, got"):
        Collection.from_codes(np.zeros((3, 2), np.uint8), n_bits=12, hasher=ITQ(12))
    with pytest.raises(ValueError, match="hasher must be a fitted Hasher, got 'ITQ'"):
        Collection.from_codes(np.zeros((3, 2), np.uint8), n_bits=12, hasher="ITQ")


def test_only_the_vectors_that_can_be_learned_from_are_kept(tmp_path):
    started = Collection.from_vectors(X[:50], hasher=SignBits())
    started.save(tmp_path / "a")
    for collection, kept in ((started, True), (Collection.load(tmp_path / "a"), False)):
        rows = X[50:].copy()
        alive = weakref.ref(rows)
        collection.add(rows)
        del rows
        gc.collect()
        assert (alive() is not None) == kept


def test_a_ranker_from_elsewhere_ranks_until_another_version_does(tmp_path):
    collection = Collection.from_vectors(X, hasher=HASHER)
    plain = collection.search(X[:3], 5)
    version = collection.use(RANKER)
    assert collection.use(RANKER) == version == collection.versions[-1]
    assert len(collection.versions) == 2
    queries = RANKER.queries_for(HASHER.project(X[:3]))
    expected = np.sort(distances(queries.codes, HASHER.transform(X), queries.weights), axis=1)[:, :5]
    np.testing.assert_allclose(collection.search(X[:3], 5).distances, expected, rtol=1e-5)
    assert repr(collection).endswith("WhRank learned from elsewhere)")
    collection.save(tmp_path / "a")
    again = Collection.load(tmp_path / "a")
    assert again.use(RANKER) == version
    again.roll_back(0)
    np.testing.assert_array_equal(again.search(X[:3], 5).ids, plain.ids)
    for wrong, message in (
        (QueryAdaptiveRanker(n_bits=8), "ranker must be a fitted ranker, got"),
        (None, "ranker must be a fitted ranker, got None"),
        (QueryAdaptiveRanker(n_bits=8, random_state=0).fit(X[:, :1].astype(np.uint8), np.arange(80) % 4), "of 8 bits"),
    ):
        with pytest.raises(ValueError, match=message):
            collection.use(wrong)
    assert collection.versions[-1] == version


def test_attachments_are_saved_with_the_items_or_not_at_all(tmp_path):
    collection = Collection.from_vectors(X[:50], hasher=SignBits())
    collection.attachments["notes"] = b"one"
    collection.save(tmp_path / "a")
    files = {file.name for file in (tmp_path / "a").iterdir()}
    collection.add(X[50:])
    collection.attachments["more"] = b"two" * 1000
    stale = Collection.load(tmp_path / "a")
    assert stale.attachments == {"notes": b"one"}
    collection.save(tmp_path / "a")
    assert len({file.name for file in (tmp_path / "a").iterdir()} - files) == 1
    loaded = Collection.load(tmp_path / "a")
    assert (len(loaded), loaded.attachments) == (80, collection.attachments)
    stale.attachments["notes"] = b"three"
    with pytest.raises(ValueError, match="must not have changed since it was loaded"):
        stale.save(tmp_path / "a")
    del loaded.attachments["notes"]
    loaded.attachments["more"] = b"changed"
    for other in (copy.copy(loaded), pickle.loads(pickle.dumps(loaded))):
        other.attachments["mine"] = b""
        assert loaded.attachments == {"more": b"changed"}
    loaded.save(tmp_path / "a")
    assert Collection.load(tmp_path / "a").attachments == {"more": b"changed"}
    (attachment,) = (tmp_path / "a").glob("attachment-*")
    attachment.write_bytes(b"damaged")
    with pytest.raises(ValueError, match="is damaged: its checksum does not fit"):
        Collection.load(tmp_path / "a")
    for wrong in ({"a": "text"}, {1: b"bytes"}):
        collection.attachments = wrong
        with pytest.raises(ValueError, match="attachments must be bytes by name, got"):
            collection.save(tmp_path / "a")


def test_names_added_to_an_empty_collection_survive_the_journal(tmp_path):
    empty = Collection.from_codes(np.empty((0, 2), np.uint8))
    unordered = Collection.from_codes(np.uint8([[1, 2], [3, 4]]), ids=[7, 5])
    unordered.save(tmp_path / "unordered")
    unordered.remove([5, 7])
    empty.save(tmp_path / "empty")
    for collection, name in ((empty, "empty"), (unordered, "unordered")):
        collection.add(np.uint8([[1, 2], [3, 4]]), ids=["a", "b"])
        collection.save(tmp_path / name)
        collection.forget()
        collection.save(tmp_path / name)
        loaded = Collection.load(tmp_path / name)
        assert loaded.ids.tolist() == ["a", "b"]
        assert loaded.search(np.uint8([[3, 4]]), 1).ids.tolist() == [["b"]]


def test_folders_of_an_index_load(tmp_path):
    index = Index(HASHER.transform(X), ids=np.arange(80)[::-1] * 3, n_bits=12)
    index.save(tmp_path / "codes.index")
    collection = Collection.load(tmp_path / "codes.index")
    np.testing.assert_array_equal(collection.ids, index.ids)
    np.testing.assert_array_equal(
        collection.search(HASHER.project(X[:4]), 6).ids, index.search(HASHER.project(X[:4]), 6).ids
    )
    collection.add(HASHER.transform(X[:1]), ids=[1])
    collection.save(tmp_path / "codes.bitrank")
    assert len(Collection.load(tmp_path / "codes.bitrank")) == 81
    assert len(Collection.load(GOLDEN / "index-v1")) == len(Index.load(GOLDEN / "index-v1"))
