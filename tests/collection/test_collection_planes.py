"""Collections of `BitPlanes`: heads, whole codes and estimates together find what float vectors would."""

import numpy as np
import pytest

from bitrank import BitPlanes, Collection
from bitrank.core.codes import weighted_hamming

METRICS = ["cosine", "dot", "l2"]
RNG = np.random.default_rng(0)
TURN = np.linalg.qr(RNG.normal(size=(40, 40)))[0]


def draw(n, seed):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, 40)) / np.arange(1, 41) @ TURN + 0.1).astype(np.float32)


X, Q = draw(1500, 1), draw(30, 2)


def true_distances(metric, X=X):
    if metric == "l2":
        return np.linalg.norm(Q[:, None] - X, axis=2)
    lengths = np.linalg.norm(Q, axis=1)[:, None] * np.linalg.norm(X, axis=1)
    return 1 - Q @ X.T / lengths if metric == "cosine" else -(Q @ X.T)


def brute_force(planes, codes, k, shortlist):
    """The same search from all codes: heads, whole codes, estimates."""
    out = np.empty((len(Q), k), np.int64)
    for row, query in enumerate(Q):
        head, whole = planes.project(query[None], head=True)[0], planes.project(query[None])[0]
        n_bytes = len(head) // 8
        near = weighted_hamming(np.packbits(head > 0)[None], codes[:, :n_bytes].copy(), np.abs(head))[0]
        kept = np.lexsort((np.arange(len(codes)), near))[:shortlist]
        far = weighted_hamming(np.packbits(whole > 0)[None], codes[kept], np.abs(whole))[0]
        kept = kept[np.lexsort((kept, far))][: 4 * k]
        estimates = planes.estimate(codes[kept], query[None])[0]
        out[row] = kept[np.argsort(-estimates, kind="stable")][:k]
    return out


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bits", [0.5, 1, 3])
def test_a_search_is_that_of_all_codes(metric, bits):
    collection = Collection.from_vectors(X, bits=bits, metric=metric, random_state=0)
    planes = collection.hasher
    assert isinstance(planes, BitPlanes)
    assert collection.index.n_scanned == planes.n_scanned_
    assert collection.bytes_per_item == planes.n_bits_ // 8
    ids, distances = collection.search(Q, 10)
    expected = brute_force(planes, collection.codes(), 10, planes.shortlist_)
    assert (ids == expected).mean() > 0.995  # estimates of one float32 or another change places
    assert (np.diff(distances) >= 0).all()


@pytest.mark.parametrize("metric", METRICS)
def test_distances_and_similarities_are_those_of_vectors(metric):
    collection = Collection.from_vectors(X, bits=8, metric=metric, random_state=0)
    results = collection.search(Q, 10)
    truth = np.take_along_axis(true_distances(metric), results.ids, 1)
    assert np.abs(results.distances - truth).max() < 0.05 * truth.std() + 0.1
    similar = collection.similarity(results)
    np.testing.assert_allclose(similar, 1 - results.distances if metric == "cosine" else -results.distances, atol=1e-6)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("k", [1, 10, 60, 375])
def test_recall_for_any_k(metric, k):
    collection = Collection.from_vectors(X, bits=4, metric=metric, random_state=0)
    wanted = np.argsort(true_distances(metric), axis=1)[:, :k]
    found = collection.search(Q, k).ids
    assert np.mean([len(set(a) & set(b)) / k for a, b in zip(found.tolist(), wanted.tolist(), strict=True)]) > 0.85


@pytest.mark.parametrize("metric", METRICS)
def test_recall_with_a_filter_of_one_percent(metric):
    collection = Collection.from_vectors(X, bits=4, metric=metric, random_state=0)
    some = np.sort(np.random.default_rng(3).permutation(len(X))[:15])
    wanted = some[np.argsort(np.take(true_distances(metric), some, axis=1), axis=1)[:, :5]]
    for kept in (some.tolist(), np.isin(np.arange(len(X)), some)):
        found = collection.search(Q, 5, filter=kept).ids
        hits = [len(set(a) & set(b)) / 5 for a, b in zip(found.tolist(), wanted.tolist(), strict=True)]
        assert np.mean(hits) > 0.9
    assert (collection.search(Q, 20, filter=some).ids[:, 15:] == -1).all()
    assert np.isinf(collection.search(Q, 20, filter=some).distances[:, 15:]).all()


def test_added_removed_saved_and_loaded(tmp_path):
    collection = Collection.from_vectors(X[:1000], [f"a{row}" for row in range(1000)], bits=2, random_state=0)
    collection.save(tmp_path / "c")
    collection.add(X[1000:], [f"b{row}" for row in range(500)])
    collection.remove(["a0", "b3"])
    results = collection.search(Q, 10)
    assert not {"a0", "b3"} & set(results.ids.ravel().tolist())
    assert any(name.startswith("b") for name in results.ids.ravel().tolist())
    collection.save(tmp_path / "c")
    for mmap in (True, False):
        loaded = Collection.load(tmp_path / "c", mmap=mmap)
        assert loaded.index.n_scanned == collection.index.n_scanned
        again = loaded.search(Q, 10)
        assert again.ids.tolist() == results.ids.tolist()
        np.testing.assert_array_equal(again.distances, results.distances)


def test_codes_ask_for_the_vectors_that_they_stand_for():
    collection = Collection.from_vectors(X, bits=4, random_state=0)
    ids = np.arange(0, 1500, 50)
    assert (collection.search(collection.codes(ids), 1).ids[:, 0] == ids).mean() > 0.9


def test_of_codes_and_a_hasher():
    planes = BitPlanes(2, "l2", random_state=0).fit(X)
    made = Collection.from_vectors(X, hasher=planes, metric="l2")
    other = Collection.from_codes(planes.transform(X), n_bits=planes.n_bits_, hasher=planes)
    assert other.index.n_scanned == planes.n_scanned_
    assert other.search(Q, 5).ids.tolist() == made.search(Q, 5).ids.tolist()
    whole = made.queries_for(Q)
    np.testing.assert_allclose(whole.weights, np.abs(planes.project(Q)))


def test_mistakes():
    for bits in (0, 9, "4", True, np.nan):
        with pytest.raises(ValueError, match=r"bits must be a number from 0\.25 to 8, got"):
            Collection.from_vectors(X, bits=bits)
    with pytest.raises(ValueError, match="bits must be None for a hasher"):
        Collection.from_vectors(X, bits=2, hasher=BitPlanes())
    zero = X.copy()
    zero[3] = 0
    with pytest.raises(ValueError, match="X must have no zero vectors for the cosine, got one in row 3"):
        Collection.from_vectors(zero, bits=2)
    assert len(Collection.from_vectors(zero, bits=2, metric="dot")) == len(X)
    collection = Collection.from_vectors(X, bits=2)
    with pytest.raises(ValueError, match="X must have no zero vectors for the cosine, got one in row 0"):
        collection.add(np.zeros((1, 40)))
    with pytest.raises(ValueError, match="queries must be vectors of 40 numbers"):
        collection.search(np.ones((1, 39)))
    with pytest.raises(ValueError, match="similarity must be None for an index that scans some bits only"):
        collection.search(Q, similarity="tanimoto")
    assert len(collection) == len(X)


def test_judged_queries_lift_items():
    collection = Collection.from_vectors(X, bits=4, random_state=0)
    far = collection.search(Q, 1500).ids[:, -1]
    collection.remember(Q[:10], [[item] for item in far[:10].tolist()], pinned=True)
    found = collection.search(Q, 5).ids
    assert (found[:10, 0] == far[:10]).mean() > 0.8  # similarities are estimates
    assert not (found[10:, 0] == far[10:]).any()
