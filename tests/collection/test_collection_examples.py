"""`Collection.search_examples`: ids, codes and vectors as examples, filters, engines, and mistakes."""

import numpy as np
import pytest

import bitrank
from bitrank import Collection, SignBits
from bitrank.core.codes import hamming, pack
from bitrank.datasets import digits

IMAGES, Y = digits()
X, Y = IMAGES[:2000].reshape(2000, -1), Y[:2000]
NUMBERED = Collection.from_vectors(X, hasher=SignBits())
NAMED = Collection.from_vectors(X, ids=[f"i{row}" for row in range(len(X))], hasher=SignBits())
THREES = np.flatnonzero(Y == 3)


def test_examples_find_their_kind_better_than_their_mean_or_the_nearest():
    signs = 2.0 * np.unpackbits(NUMBERED.codes(), axis=1) - 1
    shares = np.zeros(3)
    for label in range(10):
        rows = np.flatnonzero(label == Y)[:5]
        ids = NUMBERED.search_examples(rows, k=30).ids[0]
        assert not set(ids) & set(rows)
        to_mean, to_nearest = (
            -signs @ signs[rows].mean(axis=0),
            hamming(NUMBERED.codes()[rows], NUMBERED.codes()).min(0),
        )
        others = [np.setdiff1d(np.argsort(to, kind="stable")[:35], rows, True)[:30] for to in (to_mean, to_nearest)]
        shares += [np.mean(Y[found] == label) for found in (ids, *others)]
    assert shares[0] > shares[1:].max() + 0.1


def test_ids_codes_and_vectors_say_the_same():
    expected = NUMBERED.search_examples(THREES[:4], THREES[:0], k=5).ids[0]
    named = NAMED.search_examples([f"i{row}" for row in THREES[:4]], k=5)
    assert named.ids[0].tolist() == [f"i{row}" for row in expected]
    for given in (X[THREES[:4]], NUMBERED.codes(THREES[:4]), X[THREES[:4]].tolist()):
        found = NUMBERED.search_examples(given, k=9)  # not named by id, so that they are found themselves
        assert set(found.ids[0]) >= set(THREES[:4])
        assert [row for row in found.ids[0] if row not in THREES[:4]] == expected.tolist()


def test_negatives_and_filters():
    found = NUMBERED.search_examples(THREES[:3], k=20)
    wrong = found.ids[0][Y[found.ids[0]] != 3]
    again = NUMBERED.search_examples(THREES[:3], wrong, k=20)
    assert not set(again.ids[0]) & set(wrong)
    only = NUMBERED.search_examples(THREES[:3], filter=np.arange(10), k=20).ids[0]
    assert sorted(only[:10]) == [row for row in range(10) if row not in THREES[:3]] + [-1] * (
        3 - np.sum(THREES[:3] >= 10)
    )


def test_similarities_and_what_was_asked():
    found = NUMBERED.search_examples(THREES[:10], k=20)
    assert found.examples.kind == "vector"
    assert (np.diff(found.distances[0]) >= 0).all()
    similar = NUMBERED.similarity(found)[0]
    assert (np.diff(similar) <= 0).all()
    assert similar[0] <= 1


def test_where_the_nearest_example_ranks():
    rng = np.random.default_rng(2)
    ones = rng.random((20, 64)) < 0.5
    codes = pack(np.concatenate([ones, ones ^ (rng.random((20, 64)) < 0.02), rng.random((1000, 64)) < 0.5]))
    collection = Collection.from_codes(codes)
    found = collection.search_examples(codes[:40], k=50)
    assert found.examples.kind in ("hamming", "tanimoto")
    assert found.ids[0][:40].tolist() == list(range(40))
    assert np.unique(found.ids[0]).size == 50
    if found.examples.kind == "hamming":
        assert found.distances[0].tolist() == np.sort(hamming(codes[:40], codes).min(axis=0))[:50].tolist()


def test_codes_in_an_engine():
    engine = bitrank.connect("memory://")
    engine.create(n_bits=NUMBERED.n_bits)
    engine.add(NUMBERED.codes(), NUMBERED.ids)
    found = Collection.from_engine(engine).search_examples(THREES[:5], k=5)
    assert found.ids.tolist() == NUMBERED.search_examples(THREES[:5], k=5).ids.tolist()


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: NUMBERED.search_examples([]), "positives must hold at least one example, got none"),
        (lambda: NUMBERED.search_examples([10**6]), "positives must be in the collection, got 1000000, which is not"),
        (lambda: NAMED.search_examples("i3"), "positives must be a list of ids, got 'i3'"),
        (lambda: NAMED.search_examples(["i3"], ["no"]), "negatives must be in the collection, got 'no', which is not"),
        (lambda: NUMBERED.search_examples([1], k=0), "k must be an int of at least 1, got 0"),
        (
            lambda: NUMBERED.search_examples(np.zeros((2, 3))),
            "positives must be vectors of 784 numbers, or packed codes",
        ),
        (lambda: Collection.from_codes([[3]]).search_examples([0]), "background must hold a row that is no positive"),
    ],
)
def test_mistakes(mistake, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        mistake()
    assert str(error.value).startswith(message)
