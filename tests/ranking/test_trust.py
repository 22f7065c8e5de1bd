"""Trust per query: classes that were never seen are told from the training rows and the collection."""

import copy
import functools
import gc
import pickle
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from bitrank import ITQ, Index, QueryVectorRanker, _kernel
from bitrank.core.codes import distances, hamming, pack
from bitrank.core.metrics import average_precision, precision_at
from bitrank.datasets import digits
from bitrank.ranking import QueryAdaptiveRanker
from bitrank.ranking.trust import (
    MOST_ROWS,
    NO_DOUBT,
    Calibration,
    Calibrations,
    Doubt,
    nearness,
    sample_collection,
)

N_BITS = 64


@functools.cache
def clusters():
    """ITQ codes of embedded digits, their classes, and the values before the sign."""
    images, labels = digits()
    X = images[:4000].reshape(4000, -1).astype(np.float32)
    hasher = ITQ(n_bits=N_BITS, random_state=0).fit(X[:2000])
    return hasher.transform(X), labels[:4000].astype(int), hasher.project(X)


def plain_nearness(codes, sample, itself=None):
    """By all distances, and without an index."""
    found = hamming(codes, sample).astype(float)
    if itself is not None:
        found[np.arange(len(codes)), itself] = np.inf
    n_near = min(len(sample) - (itself is not None), 1 + max(3, round(0.01 * len(sample))))
    return np.sort(found, axis=1)[:, :n_near][:, min(1, n_near - 1) :].mean(axis=1)


@pytest.mark.parametrize("n", [2, 4, 90, 400])
def test_nearness_is_the_mean_of_the_nearest(n):
    codes = clusters()[0][: n + 7]
    others, every = _kernel.Sample(codes[7:]), _kernel.Sample(codes)
    np.testing.assert_allclose(nearness(codes[:7], others), plain_nearness(codes[:7], codes[7:]))
    np.testing.assert_allclose(nearness(codes[:2], every, among=True), plain_nearness(codes[:2], codes, np.arange(2)))


@given(st.integers(0, 2**32 - 1), st.sampled_from(_kernel.kernel_paths()), st.data())
def test_sums_of_the_nearest_are_the_same_on_every_path(seed, path, data):
    random = np.random.default_rng(seed)
    width, n, n_queries = data.draw(st.integers(1, 70)), data.draw(st.integers(1, 300)), data.draw(st.integers(0, 5))
    codes = random.integers(0, 256, (n + n_queries, width)) & random.integers(0, 256, (n + n_queries, 1))
    sample, queries = codes[:n].astype(np.uint8), codes[n:].astype(np.uint8)
    last = data.draw(st.integers(0, n))
    skipped = data.draw(st.integers(0, min(last, 3)))
    sums = np.empty(n_queries, np.uint64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BITRANK_KERNEL", path)
        _kernel.Sample(sample).nearest_sums(queries, skipped, last, sums)
    ordered = np.sort(np.unpackbits(queries[:, None] ^ sample, axis=2).sum(axis=2), axis=1)
    assert sums.tolist() == ordered[:, skipped:last].sum(axis=1).tolist()


def test_a_sample_refuses_what_does_not_fit():
    sample, sums = _kernel.Sample(np.zeros((4, 2), np.uint8)), np.empty(1, np.uint64)
    for queries, skipped, last in (((1, 3), 0, 1), ((1, 2), 0, 5), ((1, 2), 2, 1), ((2, 2), 0, 1)):
        with pytest.raises(ValueError, match="must"):
            sample.nearest_sums(np.zeros(queries, np.uint8), skipped, last, sums)
    with pytest.raises(ValueError, match="codes must have 1 to 8191 bytes"):
        _kernel.Sample(np.zeros((4, 0), np.uint8))


def plain_trust(codes, sample, collection, doubt):
    """The trust of bitrank before it kept samples: all distances, and scikit-learn's prediction."""
    seen = plain_nearness(sample, collection) - plain_nearness(sample, sample, np.arange(len(sample)))
    items = plain_nearness(collection, collection, np.arange(len(collection))) - plain_nearness(collection, sample)
    share = min(1.0, 2 * max(1e-3, float((items >= np.median(seen)).mean())))
    weights = np.repeat([1 / len(seen), 1 / len(items)], [len(seen), len(items)])
    curve = IsotonicRegression(y_min=1e-3, y_max=1 - 1e-3, out_of_bounds="clip")
    curve.fit(np.concatenate([seen, items]), np.repeat([1.0, 0.0], [len(seen), len(items)]), weights)
    p = curve.predict(plain_nearness(codes, collection) - plain_nearness(codes, sample))
    probability = (1.2 * share * p / (1 - p)).clip(0, 1)
    least = doubt.probability * (min(1.0, (1 - share) / doubt.newness) if doubt.newness else 1)
    return (probability - least).clip(0) / (1 - least)


@pytest.mark.parametrize("doubt", [NO_DOUBT, Doubt(0.85), Doubt(0.7, newness=0.2)])
def test_trust_is_as_before(doubt):
    codes, y, _ = clusters()
    sample, collection, queries = codes[:900][y[:900] < 6], codes[1000:2500], codes[2500:]
    found = Calibration(sample, collection, "labels", doubt).trust(queries)
    want = plain_trust(queries, sample, collection, doubt)
    assert found.dtype == np.float32
    assert 0.2 < want.mean() < 0.8
    np.testing.assert_allclose(found, want, atol=0.01)
    np.testing.assert_allclose(found.mean(), want.mean(), atol=1e-4)


@pytest.mark.parametrize("low", [True, False])
def test_seen_classes_are_trusted_and_new_ones_are_not(low):
    codes, y, _ = clusters()
    train, rest = codes[:2000][(y[:2000] < 5) == low], codes[2000:]
    seen = (y[2000:] < 5) == low
    for doubt, least, most in ((Doubt(0.85), 0.35, 0.05), (NO_DOUBT, 0.6, 0.2)):
        trust = Calibration(train, rest, "labels", doubt).trust(rest)
        assert trust.dtype == np.float32
        assert ((trust >= 0) & (trust <= 1)).all()
        assert trust[seen].mean() > least
        assert trust[~seen].mean() < most
    careful = Calibration(train).trust(rest)
    assert careful[~seen].mean() < 0.08
    assert careful[seen].mean() > 0.3


def test_where_all_classes_were_seen_all_queries_are_trusted():
    codes, *_ = clusters()
    assert Calibration(codes[:2000], codes[2000:]).trust(codes[2000:]).mean() > 0.9


def test_doubt_is_less_where_little_of_the_collection_is_new():
    codes, y, _ = clusters()
    for n_new, scaled in ((5, True), (0, False)):
        train, rest = codes[:2000][y[:2000] >= n_new], codes[2000:]
        always, by_share, never = (
            Calibration(train, rest, "labels", doubt).trust(rest)
            for doubt in (Doubt(0.7), Doubt(0.7, newness=0.2), NO_DOUBT)
        )
        assert (always <= by_share).all()
        assert (by_share <= never).all()
        assert np.array_equal(always, by_share) == scaled  # half of the collection is new, or nothing


def test_items_of_new_classes_are_told_from_those_of_seen_ones():
    codes, y, _ = clusters()
    assert len(Calibration(codes).newness) == len(Calibration(codes, codes[:9]).newness) == 0
    newness = Calibration(codes[:2000][y[:2000] < 5], codes[2000:]).newness
    assert len(newness) == len(codes[2000:])
    assert newness[y[2000:] >= 5].mean() > 0.75 > 0.4 > newness[y[2000:] < 5].mean()


def test_queries_unlike_the_training_queries_are_not_trusted():
    codes, *_ = clusters()
    like, unlike = (
        Calibration(codes[:600], learned_from="pairs").trust(codes[600:]),
        Calibration(codes[:2000], learned_from="pairs").trust(
            pack(np.random.default_rng(0).integers(2, size=(200, N_BITS)))
        ),
    )
    assert like.mean() > 0.9
    assert unlike.mean() < 0.05


def test_a_collection_is_codes_or_an_index():
    codes, *_ = clusters()
    sample = sample_collection(codes, N_BITS)
    np.testing.assert_array_equal(np.sort(sample, axis=0), np.sort(codes, axis=0))
    assert (sample != codes).any(), "rows in random order: collections may be sorted by class"
    np.testing.assert_array_equal(sample_collection(Index(codes), N_BITS), sample)
    many = np.zeros((MOST_ROWS + 5, 8), np.uint8)
    assert len(sample_collection(many, N_BITS)) == len(sample_collection(Index(many), N_BITS)) == MOST_ROWS
    for bad in (codes[:, :4], codes.astype(int), "codes"):
        with pytest.raises(ValueError, match="collection"):
            sample_collection(bad, N_BITS)


# What is kept ---------------------------------------------------------------------------------------------------------


class Engine:
    """A collection that only draws samples, and counts how often."""

    def __init__(self, codes):
        self.stored, self.n_drawn = codes, 0

    def sample(self, n):
        self.n_drawn += 1
        return self.stored[:n]


def calibrations(n_bits=16, n=400):
    made, kept = [], Calibrations()

    def make(codes):
        made.append(codes)
        return Calibration(codes)

    codes = np.random.default_rng(0).integers(256, size=(n, n_bits // 8), dtype=np.uint8)
    return made, lambda collection: kept.of(collection, n_bits, make), codes


def test_a_calibration_is_made_once_and_again_when_a_twentieth_of_an_index_has_changed():
    made, of, codes = calibrations()
    index = Index(codes)
    first = of(index)
    assert of(index) is first
    index.add(codes[:10])
    index.update([3], codes[:1])
    index.remove([7])
    assert of(index) is first, "13 of 400 rows have changed"
    assert of(index.copy()) is first
    index.update(np.arange(20, 30), codes[:10])
    second = of(index)
    assert second is not first
    assert of(index) is second
    assert of(Index(codes)) is not first, "another index, though of the same rows"
    assert [len(drawn) for drawn in made] == [400, 409, 400]


def test_engines_are_asked_for_samples_once_and_again_after_a_while(monkeypatch):
    made, of, codes = calibrations()
    engine, now = Engine(codes), [1000.0]
    monkeypatch.setattr("bitrank.ranking.trust.time.monotonic", lambda: now[0])
    assert of(engine) is of(engine)
    now[0] += 599
    of(engine)
    assert engine.n_drawn == len(made) == 1
    now[0] += 2
    of(engine)
    assert engine.n_drawn == len(made) == 2


def test_codes_are_told_by_what_they_hold_and_few_calibrations_are_kept():
    made, of, codes = calibrations()
    assert of(codes) is of(codes.copy())
    changed = codes.copy()
    changed[0] ^= 1
    assert of(changed) is not of(codes)
    for row in range(5):
        of(codes[row:])
    assert len(made) == 6  # the first is that of all rows
    of(changed)
    assert len(made) == 7, "no longer kept"


@pytest.fixture(scope="module")
def learned():
    codes, y, _ = clusters()
    rows = np.flatnonzero(y[:1000] < 5)
    return QueryVectorRanker(n_steps=40, n_hidden=16, scoring="map", random_state=0).fit(codes[rows], y[rows])


def test_a_calibration_stands_for_its_collection(learned, monkeypatch):
    codes = clusters()[0]
    assert learned.blend_ > 0
    index = Index(codes[2000:])
    calibration = learned.calibrate(index)
    assert learned.calibrate(index) is calibration
    for queries in (codes[1000:1040], codes[1000:1001]):
        by_index, by_calibration = (learned.queries_for(queries, collection=c) for c in (index, calibration))
        for one, other in zip(by_index, by_calibration, strict=True):
            np.testing.assert_array_equal(one, other)
    other = copy.deepcopy(learned)
    for again in (other, pickle.loads(pickle.dumps(learned))):
        np.testing.assert_array_equal(
            again.queries_for(codes[1000:1040], collection=index).weights,
            learned.queries_for(codes[1000:1040], collection=index).weights,
        )
    other.fit(codes[:900], clusters()[1][:900])
    with pytest.raises(ValueError, match="collection must be a calibration of this ranker, got another's"):
        other.queries_for(codes[:3], collection=calibration)
    assert other.calibrate(index) is not calibration


def test_a_collection_is_let_go_with_its_calibration(learned):
    index = Index(clusters()[0][2000:2500])
    reference = weakref.ref(learned.calibrate(index))
    del index
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize(
    "ranker",
    [QueryVectorRanker(n_steps=120, n_hidden=32, random_state=0), QueryAdaptiveRanker(n_steps=150, random_state=0)],
    ids=["vectors", "weights"],
)
@pytest.mark.parametrize("reals", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_new_classes_rank_as_before_and_seen_ones_gain(ranker, reals):
    codes, y, values = clusters()
    learn = y[:2000] < 5
    ranker.fit(codes[:2000][learn], y[:2000][learn], queries=values[:2000][learn] if reals else None)
    items, labels = codes[3000:], y[3000:]
    asked = values[3000:] if reals else items

    def figures(weighted):
        found = distances(weighted.codes, items, weighted.weights).astype(np.float32)
        relevant = labels[:, None] == labels
        np.fill_diagonal(found, np.inf)
        np.fill_diagonal(relevant, False)
        return average_precision(found, relevant), precision_at(found, relevant, 10)

    trusted = ranker.queries_for(asked, collection=items)
    ranker_blend, parts = ranker.blend_, {k: v for k, v in vars(ranker).items() if k.endswith("part_")}
    try:
        ranker.blend_ = 0.0
        for name, part in parts.items():
            setattr(ranker, name, part._replace(blend=0.0))
        plain = ranker.queries_for(asked, collection=items)
    finally:
        ranker.blend_ = ranker_blend
        for name, part in parts.items():
            setattr(ranker, name, part)
    (ap, p10), (plain_ap, plain_p10) = figures(trusted), figures(plain)
    new = labels >= 5
    assert ap[~new].mean() > plain_ap[~new].mean() + 0.03
    assert ap[new].mean() > plain_ap[new].mean() - 0.01
    assert p10[new].mean() > plain_p10[new].mean() - 0.02
    assert trusted.trust[new].mean() < 0.1 < trusted.trust[~new].mean()
