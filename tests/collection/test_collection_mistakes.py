"""Mistakes in every argument of `Collection`: what was expected, what came; and nothing has changed."""

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from bitrank import ITQ, Collection, Index, RankingSVM, SignBits

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 16))
NAMED = Collection.from_vectors(X, hasher=SignBits(), ids=[f"i{row}" for row in range(60)])
NUMBERED = Collection.from_vectors(X, hasher=SignBits())
CODES = Collection.from_codes(NAMED.codes())
Y = np.repeat([0, 1, 2], 20)
NANS = np.where(np.arange(16) == 2, np.nan, X)

MISTAKES = [
    (lambda: Collection.from_vectors(X[0]), "X must be a matrix with one vector per row, got float64 of shape (16,)"),
    (
        lambda: Collection.from_vectors(X[:0]),
        "X must hold at least two rows, whose values choose the thresholds, got 0",
    ),
    (
        lambda: Collection.from_vectors(X[:1]),
        "X must hold at least two rows, whose values choose the thresholds, got 1",
    ),
    (lambda: Collection.from_vectors(["a", "b"]), "X must be a matrix with one vector per row, got <U1 of shape (2,)"),
    (lambda: Collection.from_vectors(None), "X must be an array, got NoneType: give rows of numbers"),
    (lambda: Collection.from_vectors(NANS), "X must be finite, got nan in row 0, column 2"),
    (lambda: Collection.from_vectors(X, ids=[1, 2]), "ids must have one value for each of the 60 codes, got 2"),
    (lambda: Collection.from_vectors(X, ids=["a"]), "ids must have one value for each of the 60 items, got 1"),
    (lambda: Collection.from_vectors(X, ids=[1] * 60), "ids must be unique, got 1 more than once"),
    (lambda: Collection.from_vectors(X, ids=["a"] * 60), "ids must be unique, got 'a' more than once"),
    (lambda: Collection.from_vectors(X, ids=np.arange(60) - 1), "ids must be from 0 to 2**63 - 1, got -1 to 58"),
    (
        lambda: Collection.from_vectors(X, ids=np.full(60, np.nan)),
        "ids must be hashable values other than None, got nan",
    ),
    (lambda: Collection.from_vectors(X, ids=[None] * 60), "ids must be hashable values other than None, got None"),
    (lambda: Collection.from_vectors(X, ids=[[1]] * 60), "ids must be hashable values other than None, got [1]"),
    (lambda: Collection.from_vectors(X, ids="abc"), "ids must be a list of ids, got 'abc'"),
    (lambda: Collection.from_vectors(X, ids=5), "ids must be a list of ids, got 5"),
    (lambda: Collection.from_vectors(X, hasher="itq"), "hasher must be a Hasher, got 'itq'"),
    (lambda: Collection.from_vectors(X, hasher=ITQ(4).fit(X[:, :8])), "X must have the 8 columns that the hasher"),
    (
        lambda: Collection.from_vectors(X, metric="euclid"),
        "metric must be one of ('cosine', 'dot', 'l2'), got 'euclid'",
    ),
    (lambda: Collection.from_vectors(X, random_state="x"), "random_state must be an int or None, got 'x'"),
    (lambda: Collection.from_vectors(X, bits=0), "bits must be"),
    (lambda: Collection.from_vectors(X, bits=1, hasher=ITQ(4)), "bits must be None for a hasher, which has its own"),
    (lambda: Collection.from_codes("codes"), "codes must be an array, got the text 'codes'"),
    (lambda: Collection.from_codes(NAMED.codes(), ids=["a"]), "ids must have one value for each of the 60 items, got"),
    (lambda: Collection.from_codes(NAMED.codes(), n_bits="16"), "n_bits must be an int, got '16'"),
    (lambda: Collection.from_codes(NAMED.codes(), hasher=ITQ(4).fit(X)), "hasher must make codes of 16 bits, got one"),
    (lambda: Collection.from_codes(NAMED.codes(), random_state=True), "random_state must be an int or None, got True"),
    (lambda: Collection.from_engine("memory://"), "engine must be what bitrank.connect returns, got 'memory://'"),
    (lambda: Collection.from_codes(X), "codes must be a packed uint8 matrix"),
    (lambda: Collection.from_codes(NAMED.codes(), n_bits=99), "codes of 99 bits must be 13 bytes wide, got 2"),
    (lambda: Collection.from_codes(NAMED.codes(), hasher=SignBits()), "hasher must be a fitted Hasher, got SignBits()"),
    (
        lambda: NAMED.search(X[:, :5]),
        "queries must be vectors of 16 numbers, or packed codes of 2 bytes, got shape (60, 5)",
    ),
    (lambda: NAMED.search(NANS), "queries must be finite, got nan in row 0, column 2"),
    (lambda: NAMED.search("query"), "queries must be an array, got the text 'query'"),
    (lambda: NAMED.search(X, 0), "k must be an int of at least 1, got 0"),
    (lambda: NAMED.search(X, 2.5), "k must be an int of at least 1, got 2.5"),
    (
        lambda: NAMED.search(X, filter=np.ones(3, bool)),
        "a mask with one value for each of the 60 items, got a mask of shape",
    ),
    (lambda: NAMED.search(X, filter=["zz"]), "filter must be in the collection, got 'zz', which is not"),
    (lambda: NAMED.search(X, filter="i1"), "filter must be an array, got the text 'i1'"),
    (lambda: NUMBERED.search(X, filter=[0.5]), "filter must be in the collection, got 0.5, which is not"),
    (lambda: NAMED.search(X, threads=0), "threads must be an int of at least 1, got 0"),
    (
        lambda: CODES.search(X[:, :9]),
        "queries must be packed codes of 2 bytes, or reals of 16 numbers, got shape (60, 9)",
    ),
    (
        lambda: NAMED.similarity(Index(NAMED.codes()).search(NAMED.codes(), 3)),
        "results must come from a search of this",
    ),
    (lambda: NAMED.learn(), "learn must get one kind of evidence, got none"),
    (lambda: NAMED.learn(labels=Y, pairs=[(0, 1)]), "learn must get one kind of evidence, got labels, pairs"),
    (lambda: NAMED.learn(labels=Y[:5]), "labels must hold one label for each of the 60 items, got shape (5,)"),
    (lambda: NAMED.learn(labels=["a", 1] * 30), "labels must be of one kind, got float, str"),
    (lambda: NAMED.learn(labels=Y, queries=X), "queries must be None for labels, got some"),
    (lambda: NAMED.learn(labels=Y, ranker="SVM"), "ranker must be one of AgreementRanker, AsymmetricRanker"),
    (lambda: NAMED.learn(labels=Y, ranker=3), "ranker must be a ranker or the name of one, got 3"),
    (lambda: NAMED.learn(pairs=[("a", "b")], queries=X, ranker="WhRank"), "ranker must learn from pairs, as Query"),
    (
        lambda: NAMED.learn(labels=Y, ranker=RankingSVM(8)),
        "ranker must be for the 16 bits of the collection, got one for 8",
    ),
    (lambda: NAMED.learn(pairs=[(0, "i1")]), "queries must be given with pairs, got none"),
    (
        lambda: NAMED.learn(pairs=csr_array((60, 9), dtype=int), queries=X),
        "a matrix of pairs must have shape (60, 60), got (60, 9)",
    ),
    (
        lambda: NAMED.learn(pairs=[("q", "i1")], queries=X, query_ids=list(range(60))),
        "the first column must name ids of",
    ),
    (lambda: NAMED.learn(pairs=[(0,)], queries=X), "pairs must be rows of (query, id) or (query, id, grade)"),
    (lambda: NAMED.learn(pairs=[0, 1], queries=X), "pairs must be rows of (query, id) or (query, id, grade)"),
    (
        lambda: NAMED.learn(pairs=[(99, "i1")], queries=X),
        "the first column must name rows of queries from 0 to 59, got 99",
    ),
    (lambda: NAMED.learn(pairs=[(9, "zz")], queries=X), "pairs must name ids of the collection, got 'zz'"),
    (lambda: NAMED.learn(pairs=[(9, "i1", -1)], queries=X), "grades must be whole numbers from 0 (not relevant) to 30"),
    (
        lambda: NAMED.learn(pairs=[(0, "i1")], queries=X, query_ids=["a"]),
        "query_ids must be one name for each of the 60",
    ),
    (lambda: NAMED.learn(constraints=[(1, 2)]), "constraints must be rows of (query, dissimilar, similar[, similar])"),
    (lambda: NAMED.learn(constraints=[("i0", "i1", "zz")]), "constraints must name ids of the collection, got 'zz'"),
    (lambda: NAMED.learn(constraints=[(99, "i1", "i2")], queries=X), "the first column must name rows of queries from"),
    (lambda: NAMED.learn(unjudged=X[:, :5]), "queries must be vectors of 16 numbers, or packed codes of 2 bytes, got"),
    (lambda: NAMED.learn(unjudged=NAMED.codes()), "unjudged must hold vectors of queries, got codes"),
    (lambda: NAMED.learn(labels=[[1, 2]] * 60), "labels must hold one label per item, got rows of several"),
    (lambda: NAMED.learn(labels=Y, features=NANS), "features must be finite, got nan in row 0, column 2"),
    (lambda: NAMED.learn(clicks=3), "clicks must be the path of a log, paths, or pages of a log, got 3"),
    (
        lambda: CODES.learn(unjudged=X),
        "features must hold the vectors of all items to learn from queries alone, got none",
    ),
    (lambda: NAMED.learn(labels=Y, features=X[:5]), "the vectors of all items, of shape (60, 16), got (5, 16)"),
    (lambda: CODES.learn(labels=Y, features=X), "features must be None for a collection of codes, got some"),
    (lambda: NAMED.remember(X[0], "i1"), "items must be a list per query, got 'i1'"),
    (lambda: NAMED.remember(X[0], []), "items must name at least one item per query"),
    (lambda: NAMED.remember(X[:2], ["i1"]), "items must be a list for each of the 2 queries, got 1 of other kinds"),
    (lambda: NAMED.remember(X[0], ["zz"]), "items must be in the collection, got 'zz', which is not"),
    (lambda: NAMED.remember(X[0, :3], ["i1"]), "queries must be vectors of 16 numbers, or packed codes of 2 bytes"),
    (lambda: NAMED.remember(NANS[0], ["i1"]), "queries must be finite, got nan"),
    (lambda: NAMED.remember(X[0], ["i1"], grades=[1, 2]), "and grades one grade per item, got others"),
    (lambda: NAMED.remember(X[0], ["i1"], grades=[-1]), "grades must be whole numbers from 0 (not relevant) to 30"),
    (lambda: NAMED.remember(X[0], ["i1"], grades=[0.5]), "grades must be whole numbers from 0 (not relevant) to 30"),
    (lambda: NAMED.remember(X[0], ["i1"], query_ids="q"), "query_ids must be a list of ids, got 'q'"),
    (lambda: NAMED.remember(X[0], ["i1"], query_ids=[None]), "query_ids must be a text or a whole number for each of"),
    (lambda: NAMED.remember(X[0], ["i1"], pinned=1), "pinned must be True or False, got 1"),
    (lambda: NAMED.forget(queries=["q"]), "queries must be ids of judged queries, got 'q', which is none"),
    (lambda: NAMED.forget("q"), "queries must be a list of ids, got 'q'"),
    (lambda: NAMED.add(X[:, :3], ids=["a"]), "X must have 16 columns, got 3"),
    (lambda: NAMED.add(X[:2], ids=["new", "i1"]), "ids must be new, got 'i1', which is in the collection"),
    (lambda: NAMED.add(X[:2]), "ids must be given for a collection with ids that are not whole numbers, got none"),
    (lambda: NUMBERED.add(X[:2], ids=["a", "b"]), "ids must be whole numbers as those of the collection, got others"),
    (lambda: NUMBERED.add(X[:2], ids=[99, 2]), "ids must be new, got 2, which is in the collection"),
    (lambda: NUMBERED.add(NANS), "X must be finite, got nan in row 0, column 2"),
    (lambda: CODES.add(np.zeros((2, 9), np.uint8)), "codes of 16 bits must be 2 bytes wide, got 9"),
    (lambda: NAMED.remove(["i1", "zz"]), "ids must be in the collection, got 'zz', which is not"),
    (lambda: NAMED.remove(["i1", "i1"]), "ids must be unique, got one more than once"),
    (lambda: NUMBERED.remove(3), "ids must be a list of ids, got 3"),
    (lambda: NAMED.codes(["zz"]), "ids must be in the collection, got 'zz', which is not"),
    (lambda: NAMED.roll_back(), "versions must hold an earlier one to roll back to, got one version"),
    (lambda: NAMED.roll_back(9), "number must be that of a version in [0], got 9"),
    (lambda: NAMED.queries_for(NANS), "queries must be finite, got nan in row 0, column 2"),
    (lambda: NAMED.use(RankingSVM()), "ranker must be a fitted ranker, got RankingSVM()"),
    (
        lambda: NAMED.use(RankingSVM.from_weights(np.ones(8))),
        "ranker must be of the 16 bits of the collection, got one of",
    ),
    (lambda: NAMED.save(__file__), "path must be a folder for the collection, got the file"),
    (lambda: NAMED.save(Path(__file__).parent), "path must be a saved collection or an empty folder, got"),
    (lambda: Collection.load("nowhere.bitrank"), "nowhere.bitrank/collection.json is missing: no collection was saved"),
    (lambda: NAMED.use(3), "ranker must be a fitted ranker, got 3"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES, ids=[message[:40] for _, message in MISTAKES])
def test_mistakes_are_value_errors_that_help_and_change_nothing(call, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        call()
    assert message in str(caught.value)
    assert len(str(caught.value)) < 330
    for collection in (NAMED, NUMBERED, CODES):
        assert len(collection) == 60
        assert [version.kind for version in collection.versions] == ["plain"]
        assert collection.judgements() == []


def test_an_empty_collection_answers_and_says_what_it_lacks():
    collection = Collection.from_vectors(X, hasher=SignBits())
    collection.remove(collection.ids)
    assert len(collection) == 0
    assert (collection.search(X[:2], 3).ids == -1).all()
    with pytest.raises(ValueError, match="the collection must hold items to learn about, got none"):
        collection.learn(labels=[])
    collection.add(X[:5])
    assert len(collection) == 5
