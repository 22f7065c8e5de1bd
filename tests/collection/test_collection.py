"""`Collection`: what it finds, compared with sorting all distances; ids, filters, changes, copies."""

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from bitrank import ITQ, Collection, SignBits, pack
from bitrank.core.codes import signs, weighted_hamming

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 24)).astype(np.float32)
NAMES = [f"item {row}" for row in range(len(X))]


def asymmetric(codes, reals):
    """Distances of all items: the sizes of the reals where signs differ."""
    bits = signs(codes, reals.shape[1])
    return np.where(np.sign(reals)[:, None] * bits < 0, np.abs(reals)[:, None], 0).sum(axis=2)


def expected(collection, Q, k, kept=None):
    """Ids and distances of the k nearest, by sorting the distances of all items."""
    reals = collection.hasher.project(np.atleast_2d(Q))
    distances = asymmetric(collection.codes(), reals)
    kept = np.ones(len(collection), bool) if kept is None else kept
    distances[:, ~kept] = np.inf
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    near = np.take_along_axis(distances, order, axis=1)
    return collection.ids[order], near


def agree(found, ids, distances):
    """The same distances, and the same ids but for ties."""
    np.testing.assert_allclose(found.distances[:, : distances.shape[1]], distances, rtol=1e-5, atol=1e-5)
    same = found.ids[:, : ids.shape[1]] == ids
    ties = np.isclose(distances, np.roll(distances, 1, axis=1)) | np.isclose(distances, np.roll(distances, -1, axis=1))
    assert (same | ties | np.isinf(distances)).all()


@given(
    n=st.integers(2, 60),
    n_dimensions=st.integers(1, 40),
    n_queries=st.integers(1, 4),
    k=st.integers(1, 70),
    named=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_search_finds_what_sorting_finds(n, n_dimensions, n_queries, k, named, seed):
    rng = np.random.default_rng(seed)
    vectors, Q = rng.normal(size=(n, n_dimensions)), rng.normal(size=(n_queries, n_dimensions))
    collection = Collection.from_vectors(
        vectors, ids=[f"{row}" for row in range(n)] if named else None, hasher=SignBits()
    )
    found = collection.search(Q, k)
    assert found.ids.shape == found.distances.shape == (n_queries, k)
    assert found.ids.dtype == (object if named else np.int64)
    assert (np.diff(found.distances[:, :n]) >= 0).all()
    agree(found, *expected(collection, Q, min(k, n)))
    assert (found.ids[:, n:] == (None if named else -1)).all()
    assert np.isinf(found.distances[:, n:]).all()


def test_one_vector_is_one_query():
    collection = Collection.from_vectors(X, hasher=SignBits())
    ids, distances = collection.search(X[3])
    assert ids.shape == distances.shape == (1, 10)
    assert ids[0, 0] == 3


@pytest.mark.parametrize("ids", [None, NAMES, np.arange(200)[::-1] * 7, [("a", row) for row in range(200)]])
def test_a_filter_is_a_mask_or_a_list_of_ids(ids):
    collection = Collection.from_vectors(X, ids=ids, hasher=SignBits())
    kept = RNG.random(200) < 0.2
    by_mask = collection.search(X[:5] + 0.1, 7, filter=kept)
    by_ids = collection.search(
        X[:5] + 0.1, 7, filter=[each for each, keep in zip(collection.ids, kept, strict=True) if keep]
    )
    agree(by_mask, *expected(collection, X[:5] + 0.1, 7, kept))
    assert (by_mask.ids == by_ids.ids).all()
    assert (by_mask.distances == by_ids.distances).all()


def test_ids_keep_the_order_in_which_they_came():
    given_ids = np.random.default_rng(1).permutation(1000)[:200]
    collection = Collection.from_vectors(X, ids=given_ids, hasher=SignBits())
    assert (collection.ids == given_ids).all()
    assert (collection.codes() == SignBits().fit(X).transform(X)).all()
    assert (collection.search(X[:4], 1).ids[:, 0] == given_ids[:4]).all()
    collection.remove(given_ids[:2])
    assert (collection.ids == given_ids[2:]).all()


def test_codes_of_others_are_asked_by_codes_or_reals():
    bits = RNG.random((100, 20)) < 0.5
    collection = Collection.from_codes(pack(bits), n_bits=20, ids=NAMES[:100])
    found = collection.search(pack(bits[:6]), 5)
    distances = np.sort(weighted_hamming(pack(bits[:6]), pack(bits), np.ones(20)), axis=1)[:, :5]
    assert (found.distances == distances).all()
    assert (collection.search(pack(bits[:6])[0], 5).ids == found.ids[:1]).all()
    reals = RNG.normal(size=(6, 20))
    near = np.sort(asymmetric(pack(bits), reals), axis=1)[:, :5]
    np.testing.assert_allclose(collection.search(reals, 5).distances, near, rtol=1e-5)
    assert collection.hasher is None


def test_a_hasher_may_be_given_fitted_or_not():
    hasher = ITQ(8, random_state=0)
    by_new = Collection.from_vectors(X, hasher=hasher)
    assert not hasattr(hasher, "n_bits_")  # the caller's stays as it is
    by_fitted = Collection.from_vectors(X, hasher=hasher.fit(X))
    assert (by_new.codes() == by_fitted.codes()).all()
    assert by_new.n_bits == 8
    assert by_new.bytes_per_item == 1


def test_similarity_is_near_the_cosine():
    vectors = RNG.normal(size=(500, 256))
    collection = Collection.from_vectors(vectors, hasher=SignBits())
    found = collection.search(vectors[:20] + RNG.normal(size=(20, 256)), 600)
    estimated = collection.similarity(found)
    assert (np.diff(estimated[:, :500]) <= 1e-6).all()
    assert np.isneginf(estimated[:, 500:]).all()
    queries = vectors[:20] / np.linalg.norm(vectors[:20], axis=1, keepdims=True)
    exact = collection.similarity(collection.search(queries, 500))
    cosines = queries @ (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).T
    ids = collection.search(queries, 500).ids
    assert abs(exact - np.take_along_axis(cosines, ids, axis=1)).mean() < 0.06


def test_explain_names_the_ranking():
    explanation = Collection.from_vectors(X, hasher=SignBits()).search(X[:3], explain=True).explanation
    assert explanation.ranking == ["plain"] * 3
    assert (explanation.trust == 0).all()
    assert Collection.from_vectors(X, hasher=SignBits()).search(X[:3]).explanation is None


def test_len_in_and_repr():
    collection = Collection.from_vectors(X, ids=NAMES, hasher=SignBits())
    assert len(collection) == 200
    assert "item 7" in collection
    assert "item 200" not in collection
    assert [] not in collection  # not hashable
    assert repr(collection) == "Collection(200 items of 24 bits from 24 dimensions, plain ranking)"


def test_replace_takes_the_place_of_items():
    collection = Collection.from_vectors(X, ids=NAMES, hasher=SignBits())
    before = collection.codes(NAMES[1:])
    collection.add(-X[:1], ids=["item 0"], replace=True)
    assert len(collection) == 200
    assert (collection.codes(NAMES[1:]) == before).all()
    assert collection.search(-X[0], 1).ids[0, 0] == "item 0"


def test_the_vectors_are_not_copied():
    collection = Collection.from_vectors(X, hasher=SignBits())
    assert np.shares_memory(collection._vectors.of(np.arange(200)), X)


def test_a_copy_changes_by_itself():
    collection = Collection.from_vectors(X, ids=NAMES, hasher=SignBits())
    for other in (copy.copy(collection), copy.deepcopy(collection)):
        other.remove(NAMES[:5])
        other.add(X[:1], ids=["new"])
        assert len(collection) == 200
        assert len(other) == 196
        assert "new" not in collection
        assert (collection.search(X[:3], 1).ids[:, 0] == NAMES[:3]).all()


def test_an_id_removed_and_added_again_is_another_item():
    collection = Collection.from_vectors(X, ids=NAMES, hasher=SignBits())
    older = copy.copy(collection)
    collection.remove(["item 0"])
    collection.add(-X[:1], ids=["item 0"])
    assert older.search(X[0], 1).ids[0, 0] == "item 0"
    assert collection.search(X[0], 1).ids[0, 0] != "item 0"
    assert "item 0" in older
    assert (older.codes(["item 0"]) != collection.codes(["item 0"])).any()


class Model(RuleBasedStateMachine):
    """A collection beside a dict of vectors, through additions, removals and saves."""

    names = Bundle("names")

    def __init__(self):
        super().__init__()
        self.vectors = {"first": X[0], "second": X[1]}
        self.collection = Collection.from_vectors(X[:2], ids=list(self.vectors), hasher=SignBits(threshold="zero"))

    @rule(row=st.integers(0, 199), name=st.text(min_size=1, max_size=3), replace=st.booleans())
    def add(self, row, name, replace):
        if name in self.vectors and not replace:
            with pytest.raises(ValueError, match="ids must be new"):
                self.collection.add(X[row : row + 1], ids=[name])
            return
        self.vectors.pop(name, None)
        self.vectors[name] = X[row]
        self.collection.add(X[row : row + 1], ids=[name], replace=replace)

    @rule(data=st.data())
    def remove(self, data):
        if self.vectors:
            name = data.draw(st.sampled_from(sorted(self.vectors)))
            del self.vectors[name]
            self.collection.remove([name])

    @rule()
    def copy(self):
        self.collection = copy.deepcopy(self.collection)

    @invariant()
    def same(self):
        assert self.collection.ids.tolist() == list(self.vectors)
        assert len(self.collection) == len(self.vectors)
        if self.vectors:
            stacked = np.stack(list(self.vectors.values()))
            assert (self.collection.codes() == SignBits(threshold="zero").fit(X).transform(stacked)).all()
            given = self.collection._vectors.of(self.collection._moment.ids.numbers(self.collection._moment.index))
            assert (given == stacked).all()


TestModel = Model.TestCase
