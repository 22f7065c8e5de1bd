"""Trust per query: classes that were never seen are told from the training rows and the collection."""

import functools

import numpy as np
import pytest

from bitrank import ITQ, Index, QueryVectorRanker
from bitrank.core.codes import distances, hamming, pack
from bitrank.core.metrics import average_precision, precision_at
from bitrank.datasets import digits
from bitrank.ranking import QueryAdaptiveRanker
from bitrank.ranking.trust import (
    MOST_ROWS,
    NO_DOUBT,
    Doubt,
    nearness,
    sample_collection,
    trust_in_classes,
    trust_in_queries,
    unlabelled_items,
)

N_BITS = 64


@functools.cache
def clusters():
    """ITQ codes of embedded digits, their classes, and the values before the sign."""
    images, labels = digits()
    X = images[:4000].reshape(4000, -1).astype(np.float32)
    hasher = ITQ(n_bits=N_BITS, random_state=0).fit(X[:2000])
    return hasher.transform(X), labels[:4000].astype(int), hasher.project(X)


def test_nearness_is_the_mean_of_the_nearest():
    codes = clusters()[0][:407]
    found = np.sort(hamming(codes[:7], codes[7:]), axis=1)[:, 1:5].mean(axis=1)
    np.testing.assert_allclose(nearness(codes[:7], codes[7:]), found)
    with_itself = hamming(codes[:7], codes).astype(float)
    with_itself[np.arange(7), np.arange(7)] = np.inf
    np.testing.assert_allclose(
        nearness(codes[:7], codes, np.arange(7)), np.sort(with_itself, axis=1)[:, 1:5].mean(axis=1)
    )


@pytest.mark.parametrize("low", [True, False])
def test_seen_classes_are_trusted_and_new_ones_are_not(low):
    codes, y, _ = clusters()
    train, rest = codes[:2000][(y[:2000] < 5) == low], codes[2000:]
    seen = (y[2000:] < 5) == low
    for doubt, least, most in ((Doubt(0.85), 0.35, 0.05), (NO_DOUBT, 0.6, 0.2)):
        trust = trust_in_classes(rest, train, rest, doubt)
        assert trust.dtype == np.float32
        assert ((trust >= 0) & (trust <= 1)).all()
        assert trust[seen].mean() > least
        assert trust[~seen].mean() < most
    careful = trust_in_classes(rest, train, None)
    assert careful[~seen].mean() < 0.08
    assert careful[seen].mean() > 0.3


def test_where_all_classes_were_seen_all_queries_are_trusted():
    codes, *_ = clusters()
    assert trust_in_classes(codes[2000:], codes[:2000], codes[2000:]).mean() > 0.9


def test_doubt_is_less_where_little_of_the_collection_is_new():
    codes, y, _ = clusters()
    for n_new, scaled in ((5, True), (0, False)):
        train, rest = codes[:2000][y[:2000] >= n_new], codes[2000:]
        always, by_share, never = (
            trust_in_classes(rest, train, rest, doubt) for doubt in (Doubt(0.7), Doubt(0.7, newness=0.2), NO_DOUBT)
        )
        assert (always <= by_share).all()
        assert (by_share <= never).all()
        assert np.array_equal(always, by_share) == scaled  # half of the collection is new, or nothing


def test_items_of_new_classes_are_told_from_those_of_seen_ones():
    codes, y, _ = clusters()
    assert unlabelled_items(codes, None) is None
    assert unlabelled_items(codes, codes[:9]) is None
    items = unlabelled_items(codes[:2000][y[:2000] < 5], codes[2000:])
    np.testing.assert_array_equal(items.codes, codes[2000:])
    assert items.newness[y[2000:] >= 5].mean() > 0.75 > 0.4 > items.newness[y[2000:] < 5].mean()


def test_queries_unlike_the_training_queries_are_not_trusted():
    codes, *_ = clusters()
    like, unlike = (
        trust_in_queries(codes[600:], codes[:600]),
        trust_in_queries(pack(np.random.default_rng(0).integers(2, size=(200, N_BITS))), codes[:2000]),
    )
    assert like.mean() > 0.9
    assert unlike.mean() < 0.05


def test_a_collection_is_codes_or_an_index():
    codes, *_ = clusters()
    assert sample_collection(None, N_BITS) is None
    sample = sample_collection(codes, N_BITS)
    np.testing.assert_array_equal(np.sort(sample, axis=0), np.sort(codes, axis=0))
    assert (sample != codes).any(), "rows in random order: collections may be sorted by class"
    np.testing.assert_array_equal(sample_collection(Index(codes), N_BITS), sample)
    many = np.zeros((MOST_ROWS + 5, 8), np.uint8)
    assert len(sample_collection(many, N_BITS)) == len(sample_collection(Index(many), N_BITS)) == MOST_ROWS
    for bad in (codes[:, :4], codes.astype(int), "codes"):
        with pytest.raises(ValueError, match="collection"):
            sample_collection(bad, N_BITS)


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
