"""Collections of `BitPlanes`: heads, whole codes and estimates together find what float vectors would."""

import functools
import re

import numpy as np
import pytest

from bitrank import BitPlanes, Collection, QueryVectorRanker, SignBits
from bitrank.collection.planes import PlaneQueries
from bitrank.core.codes import weighted_hamming
from bitrank.datasets import digits

METRICS = ["cosine", "dot", "l2"]
RNG = np.random.default_rng(0)
TURN = np.linalg.qr(RNG.normal(size=(40, 40)))[0]


def draw(n, seed):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, 40)) / np.arange(1, 41) @ TURN + 0.1).astype(np.float32)


X, Q = draw(1500, 1), draw(30, 2)


@functools.cache
def made(metric, bits):
    """A collection that no test changes."""
    return Collection.from_vectors(X, bits=bits, metric=metric, random_state=0)


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
@pytest.mark.parametrize("bits", [4, *(pytest.param(bits, marks=pytest.mark.slow) for bits in (0.5, 1))])
def test_a_search_is_that_of_all_codes(metric, bits):
    collection = made(metric, bits)
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
    collection = made(metric, 8)
    results = collection.search(Q, 10)
    truth = np.take_along_axis(true_distances(metric), results.ids, 1)
    assert np.abs(results.distances - truth).max() < 0.05 * truth.std() + 0.1
    similar = collection.similarity(results)
    np.testing.assert_allclose(similar, 1 - results.distances if metric == "cosine" else -results.distances, atol=1e-6)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("k", [1, 10, 60, 375])
def test_recall_for_any_k(metric, k):
    collection = made(metric, 4)
    wanted = np.argsort(true_distances(metric), axis=1)[:, :k]
    found = collection.search(Q, k).ids
    assert np.mean([len(set(a) & set(b)) / k for a, b in zip(found.tolist(), wanted.tolist(), strict=True)]) > 0.85


@pytest.mark.parametrize("metric", METRICS)
def test_recall_with_a_filter_of_one_percent(metric):
    collection = made(metric, 4)
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
    collection = made("cosine", 4)
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


def digits_of(n):
    """Pictures at half of their size, as vectors of 196 pixels."""
    images, y = digits()
    return images[:n].reshape(n, 14, 2, 14, 2).mean(axis=(2, 4), dtype=np.float32).reshape(n, -1), y[:n]


@pytest.mark.parametrize(
    "metric", ["l2", pytest.param("cosine", marks=pytest.mark.slow), pytest.param("dot", marks=pytest.mark.slow)]
)
def test_labels_are_learned_in_the_space_of_vectors(metric, tmp_path):
    images, y = digits_of(1400)
    collection = Collection.from_vectors(images[:1200], bits=2, metric=metric, random_state=0)
    asked, wanted = images[1200:], y[1200:, None]
    before = (y[collection.search(asked, 10).ids] == wanted).mean()
    report = collection.learn(labels=y[:1200])
    assert (report.version.ranker, collection.ranker.space) == ("QueryVectorRanker", "vectors")
    results = collection.search(asked, 10, explain=True)
    assert (y[results.ids] == wanted).mean() > before + 0.01
    assert (np.diff(results.distances) >= 0).all()
    collection.save(tmp_path / "c")
    loaded = Collection.load(tmp_path / "c")
    assert loaded.search(asked, 10).ids.tolist() == results.ids.tolist()
    # Where nothing is trusted, the search is the plain one.
    alone = PlaneQueries.of(collection.hasher, asked)
    same = collection.hasher.ask_at(collection.hasher.points_of(alone.asked), alone.asked)
    np.testing.assert_allclose(same.z, alone.asked.z, atol=1e-5)


def test_classes_without_labels_keep_their_ranking():
    images, y = digits_of(1400)
    collection = Collection.from_vectors(images[:1200], bits=4, metric="l2", random_state=0)
    new = y[1200:] >= 5
    asked, wanted = images[1200:], y[1200:, None]
    before = (y[collection.search(asked, 10).ids] == wanted).mean(axis=1)
    collection.learn(labels=[label if label < 5 else None for label in y[:1200].tolist()])
    assert collection.ranker is not None
    after = (y[collection.search(asked, 10).ids] == wanted).mean(axis=1)
    assert after[new].mean() > before[new].mean() - 0.08
    assert after[~new].mean() >= before[~new].mean() - 0.005


def test_pairs_are_learned_in_the_space_of_vectors():
    """Queries are turned: a map that the pairs tell turns them back."""
    turn = np.linalg.qr(np.random.default_rng(5).normal(size=(40, 40)))[0].astype(np.float32)
    turned = draw(500, 6) @ (0.6 * turn + 0.4 * np.eye(40, dtype=np.float32))
    lengths = np.linalg.norm(X, axis=1)
    near = np.argsort(-(draw(500, 6) @ X.T) / lengths, axis=1)[:, :10]
    pairs = [(row, item) for row in range(400) for item in near[row].tolist()]
    collection = Collection.from_vectors(X, bits=4, random_state=0)

    def found():
        ids = collection.search(turned[400:], 10).ids.tolist()
        return np.mean([len(set(a) & set(b)) / 10 for a, b in zip(ids, near[400:].tolist(), strict=True)])

    before = found()
    report = collection.learn(pairs=pairs, queries=turned[:400])
    assert report.learned.accepted, str(report)
    assert found() > before + 0.1
    reals = collection.queries_for(turned[:2])
    assert reals.weights.shape == (2, collection.n_bits)


def test_a_ranker_of_points_is_used_and_checked():
    images, y = digits_of(600)
    collection = Collection.from_vectors(images, bits=2, metric="l2", random_state=0)
    planes = collection.hasher
    points = planes.points(collection.codes())
    assert points.shape == (600, planes.n_point_)
    ranker = QueryVectorRanker(n_steps=20, random_state=0, space="vectors")
    ranker.fit(points, y, queries=planes.points_of(planes.ask(images)))
    assert ranker.score(points, y) > 0.3
    assert collection.use(ranker).ranker == "QueryVectorRanker"
    assert (y[collection.search(images[:50], 10).ids] == y[:50, None]).mean() > 0.8
    other = Collection.from_vectors(images[:, :40] + 0.1, bits=2, random_state=0)
    with pytest.raises(ValueError, match=r"ranker must be of the \d+ numbers of a point of the collection, got one of"):
        other.use(ranker)
    with pytest.raises(ValueError, match='space must be "codes" for a collection whose hasher has no points'):
        Collection.from_vectors(images, hasher=SignBits()).learn(labels=y, ranker=QueryVectorRanker(space="vectors"))
    with pytest.raises(ValueError, match=r'space must be "codes" or "vectors", got .bits'):
        QueryVectorRanker(space="bits").fit(collection.codes(), y)
    with pytest.raises(ValueError, match="codes must have at least one column"):
        QueryVectorRanker(space="vectors").fit(points[:, :0], y)


def test_without_a_wish_four_bits_and_a_table_of_costs(tmp_path):
    collection = Collection.from_vectors(X, random_state=0)
    assert isinstance(collection.hasher, BitPlanes)
    assert collection.hasher.bits == 4
    report = collection.report()
    bits, n_bytes, n_scanned, recalls, errors = zip(*report.costs, strict=True)
    assert list(bits) == [0.5, 1, 2, 3, 4, 6]
    assert list(n_bytes) == sorted(n_bytes)
    assert all(scanned <= size for scanned, size in zip(n_scanned, n_bytes, strict=True))
    assert n_bytes[4] == collection.bytes_per_item
    assert recalls[0] < recalls[2] < recalls[4] + 0.01
    assert recalls[4] > 0.85
    assert list(errors) == sorted(errors, reverse=True)
    assert f"{collection.bytes_per_item} bytes per item" in str(report)
    assert f"4: {n_bytes[4]} ({n_scanned[4]}), {recalls[4]:.3f}" in str(report)
    collection.save(tmp_path / "c")
    assert Collection.load(tmp_path / "c").report().costs == report.costs
    axes = report.plot()
    assert axes.get_lines()[0].get_xdata().tolist() == list(n_scanned)


def test_recall_of_the_table_is_that_of_held_out_rows():
    """A table of queries that are given, against brute force over codes fitted on the other rows."""
    made = Collection.from_vectors(X, queries=Q, random_state=0)
    cost = next(cost for cost in made.report().costs if cost.bits == 2)
    planes = BitPlanes(2, random_state=0).fit_family(X, made.hasher.family_)
    other = Collection.from_vectors(X, hasher=planes)
    wanted = np.argsort(true_distances("cosine"), axis=1)[:, :10]
    hits = [len(set(a) & set(b)) / 10 for a, b in zip(other.search(Q, 10).ids.tolist(), wanted.tolist(), strict=True)]
    assert abs(np.mean(hits) - cost.recall) < 0.05


def test_wishes():
    few = X[:500]
    for size in (10, 21, 30):
        assert size - 1 <= Collection.from_vectors(few, bytes=size, random_state=0).bytes_per_item <= size
    table = Collection.from_vectors(few, random_state=0).report().costs
    for wish in (table[1].recall, table[2].recall, 1.0):
        made = Collection.from_vectors(few, float_recall=wish, random_state=0)
        reached = [cost.bits for cost in table if cost.recall >= wish]
        assert made.hasher.bits == (reached[0] if reached else 6)


def test_drift_is_noticed_and_repaired(tmp_path):
    rng = np.random.default_rng(7)
    other = (rng.normal(size=(400, 40)) / np.arange(40, 0, -1) @ TURN).astype(np.float32)  # where X has few bits
    collection = Collection.from_vectors(X, bits=1, metric="l2", random_state=0)
    collection.add(draw(200, 8))
    assert collection.report().drift.lost < 0.02
    collection.remember(Q[:1], [[3]], pinned=True)
    with pytest.warns(UserWarning, match=r"added items: codes miss .* refit\(vectors\) makes the codes again"):
        collection.add(other)
    collection.save(tmp_path / "c")
    drift = Collection.load(tmp_path / "c").report().drift
    assert drift == collection.report().drift
    assert drift.n == 600
    vectors = np.vstack([X, draw(200, 8), other])
    asked = other[:50] + 0.01
    wanted = np.argsort(np.linalg.norm(asked[:, None] - vectors, axis=2), axis=1)[:, :10]

    def found(collection):
        ids = collection.search(asked, 10).ids.tolist()
        return np.mean([len(set(a) & set(b)) / 10 for a, b in zip(ids, wanted.tolist(), strict=True)])

    before = found(collection)
    with pytest.raises(ValueError, match=r"vectors must hold those of all items, of shape \(2100, 40\), got"):
        collection.refit(X)
    assert collection.refit(vectors).drift is None
    assert found(collection) > before + 0.05
    assert collection.search(Q[:1], 1).ids.tolist() == [[3]]  # what was remembered is known in the new codes
    collection.save(tmp_path / "c")
    assert found(Collection.load(tmp_path / "c")) == found(collection)


def test_mistaken_wishes():
    cases = [
        ({"bits": 2, "bytes": 10}, "from_vectors must get one wish, got bits and bytes"),
        ({"bytes": 2}, "bytes must be at least 4 for 40 dimensions, got 2"),
        ({"bytes": 0}, "bytes must be"),
        ({"float_recall": 1.5}, "float_recall must be a number above 0 and at most 1, got 1.5"),
        ({"float_recall": True}, "float_recall must be a number above 0 and at most 1, got True"),
        ({"bytes": 9, "hasher": SignBits()}, "bytes must be None for a hasher, which has its own, got both"),
        ({"queries": Q[:, :5]}, "queries must have 40 columns, as X has, got 5"),
    ]
    for wish, message in cases:
        with pytest.raises(ValueError, match=re.escape(message)):
            Collection.from_vectors(X, **wish)
    with pytest.raises(ValueError, match="refit must be of a collection of vectors, got one of codes"):
        Collection.from_codes(np.uint8([[1], [2]])).refit(X)
