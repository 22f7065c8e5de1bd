"""Mistakes that people make, and what they are told: what was expected, what came, and often the fix."""

import numpy as np
import pytest

from bitrank import ITQ, Collection, Index, QueryVectorRanker, RankingSVM, connect, load_ranker
from bitrank.cli import main
from bitrank.core import metrics
from bitrank.core.codes import distances, from_embeddings, hamming, pack, split_vectors, unpack
from bitrank.hashing import load_hasher
from bitrank.ranking import WhRank
from bitrank.ranking.evidence.constraints import triplets_from_clicks

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 64))
BITS = X > 0
CODES = pack(BITS)
Y = np.repeat([0, 1, 2], 20)
WEIGHTS = RNG.random(64)
INDEX = Index(CODES)
RANKER = WhRank().fit(CODES, Y, queries=X)
HASHER = ITQ(16, random_state=0).fit(X)

MISTAKES = [
    (
        "unpacked uint8 codes",
        lambda: Index(BITS.astype(np.uint8)),
        "got shape (60, 64) with all values 0 or 1: pack them with bitrank.pack, or give n_bits",
    ),
    (
        "unpacked uint8 fit",
        lambda: RankingSVM().fit(BITS.astype(np.uint8), Y),
        "got shape (60, 64) with all values 0 or 1: pack them with bitrank.pack, or give n_bits",
    ),
    (
        "unpacked int codes",
        lambda: Index(BITS.astype(int)),
        "got int64 of shape (60, 64): they look like bits, so pack them with bitrank.pack",
    ),
    (
        "unpacked query",
        lambda: INDEX.search(BITS[:1].astype(np.uint8), 3),
        "got 64: they look like bits, so pack them with bitrank.pack",
    ),
    (
        "unpacked distances",
        lambda: distances(BITS.astype(np.uint8), BITS.astype(np.uint8)),
        "got shape (60, 64) with all values 0 or 1: pack them with bitrank.pack, or give n_bits",
    ),
    (
        "int8 binary codes",
        lambda: Index((CODES - 128).view(np.int8)),
        "got int8 of shape (60, 8): convert them with bitrank.core.codes.from_embeddings, one byte per 8",
    ),
    (
        "int8 query",
        lambda: INDEX.search((CODES[:1] - 128).view(np.int8), 3),
        "got int8 of shape (1, 8): convert them with bitrank.core.codes.from_embeddings, one byte per 8 bits",
    ),
    (
        "int64 bytes",
        lambda: Index(CODES.tolist()),
        "got int64 of shape (60, 8): convert bytes that came as whole numbers with",
    ),
    (
        "float codes",
        lambda: Index(X),
        "got float64 of shape (60, 64): make codes of embeddings with bitrank.core.codes.from_embeddings, or",
    ),
    (
        "float bytes",
        lambda: Index(CODES.astype(float)),
        "got float64 of shape (60, 8): convert bytes that came as whole numbers with",
    ),
    ("1d code", lambda: Index(CODES[0]), "got uint8 of shape (8,): for one code, give a matrix of one row"),
    ("1d query", lambda: INDEX.search(CODES[0], 3), "got uint8 of shape (8,): for one code, give a matrix of one row"),
    ("1d real query", lambda: INDEX.search(X[0], 3), "got (64,): for one query, give a matrix of one row"),
    (
        "3d codes",
        lambda: Index(CODES[None]),
        "codes must be a packed uint8 matrix (see bitrank.pack), got uint8 of shape (1, 60, 8)",
    ),
    (
        "text codes",
        lambda: Index("codes.npy"),
        "codes must be an array, got the text 'codes.npy': read a file first, as np.load does",
    ),
    ("ragged", lambda: Index([[1, 2], [1]]), "codes must have rows of one length, got lengths [1, 2]"),
    ("wrong width query", lambda: INDEX.search(CODES[:1, :4], 3), "queries of 64 bits must be 8 bytes wide, got 4"),
    (
        "wrong n_bits",
        lambda: Index(CODES, n_bits=60),
        "got ones there: another n_bits, or another bit order (see bitrank.core.codes.from_embeddings)",
    ),
    ("n_bits too large", lambda: Index(CODES, n_bits=128), "codes of 128 bits must be 16 bytes wide, got 8"),
    ("n_bits float", lambda: Index(CODES, n_bits=64.0), "n_bits must be from 1 to 65535, got 64.0"),
    ("n_bits str", lambda: Index(n_bits="64"), "n_bits must be from 1 to 65535, got '64'"),
    ("n_bits zero", lambda: Index(n_bits=0), "n_bits must be from 1 to 65535, got 0"),
    (
        "little bit order spare",
        lambda: Index(np.packbits(BITS[:, :60], axis=1, bitorder="little"), n_bits=60),
        "got ones there: another n_bits, or another bit order (see bitrank.core.codes.from_embeddings)",
    ),
    ("k float", lambda: INDEX.search(CODES[:1], 10.0), "k must be an int of at least 1, got 10.0"),
    ("k zero", lambda: INDEX.search(CODES[:1], 0), "k must be an int of at least 1, got 0"),
    ("k None", lambda: INDEX.search(CODES[:1], None), "k must be an int of at least 1, got None"),
    ("k str", lambda: INDEX.search(CODES[:1], "10"), "k must be an int of at least 1, got '10'"),
    (
        "nan query",
        lambda: INDEX.search(np.where(X[:2] > 1, np.nan, X[:2]), 3),
        "queries of reals must be finite in float32, got nan in row 0, bit 6",
    ),
    (
        "inf query",
        lambda: INDEX.search(X[:2] * np.inf, 3),
        "queries of reals must be finite in float32, got inf in row 0, bit 0",
    ),
    (
        "real query wrong dims",
        lambda: INDEX.search(X[:2, :32], 3),
        "queries of reals must have shape (n_queries, 64), got (2, 32)",
    ),
    (
        "neg weights",
        lambda: INDEX.search(CODES[:1], 3, weights=-WEIGHTS),
        "weights must be finite and not negative, got -0.193113 for bit 0",
    ),
    (
        "nan weights",
        lambda: INDEX.search(CODES[:1], 3, weights=WEIGHTS * np.nan),
        "weights must be finite and not negative, got nan for bit 0",
    ),
    (
        "weights too short",
        lambda: INDEX.search(CODES[:1], 3, weights=WEIGHTS[:10]),
        "weights must hold 64 values, one per bit, got 10",
    ),
    (
        "weights rows",
        lambda: INDEX.search(CODES[:2], 3, weights=np.tile(WEIGHTS, (3, 1))),
        "weights must have one row for each of the 2 queries, got 3",
    ),
    (
        "weights text",
        lambda: INDEX.search(CODES[:2], 3, weights=["a"] * 64),
        "weights must be numbers, got <U1 of shape (64,)",
    ),
    (
        "weights 3d",
        lambda: INDEX.search(CODES[:2], 3, weights=np.ones((1, 1, 64))),
        "weights must have shape (n_bits,) or (n_queries, n_bits), got (1, 1, 64)",
    ),
    (
        "weights scalar",
        lambda: INDEX.search(CODES[:2], 3, weights=2.0),
        "weights must have shape (n_bits,) or (n_queries, n_bits), got ()",
    ),
    (
        "weights with Queries",
        lambda: INDEX.search(RANKER.queries_for(X[:1]), 3, weights=WEIGHTS),
        "weights must be None for queries of a ranker, which bring their own, got both",
    ),
    (
        "index weights per query",
        lambda: Index(CODES, weights=np.ones((2, 64))),
        "weights of an index must be one vector of 64, got shape (2, 64)",
    ),
    ("threads 0", lambda: INDEX.search(CODES[:1], 3, threads=0), "threads must be an int of at least 1, got 0"),
    ("threads float", lambda: INDEX.search(CODES[:1], 3, threads=2.0), "threads must be an int of at least 1, got 2.0"),
    (
        "method",
        lambda: INDEX.search(CODES[:1], 3, method="fast"),
        "method must be one of ('exact', 'rerank'), got 'fast'",
    ),
    (
        "candidates exact",
        lambda: INDEX.search(CODES[:1], 3, candidates=10),
        'candidates must be None unless method is "rerank", got 10',
    ),
    (
        "filter wrong len",
        lambda: INDEX.search(CODES[:1], 3, filter=np.ones(3, bool)),
        "filter must be a list of ids, or a mask with one value for each of the 60 rows, got a mask of",
    ),
    (
        "filter negative id",
        lambda: INDEX.search(CODES[:1], 3, filter=[-1]),
        "filter must be from 0 to",
    ),
    (
        "filter unknown id",
        lambda: INDEX.search(CODES[:1], 3, filter=[1000]),
        "ids must be in the index, got 1000, which is not",
    ),
    (
        "filter floats",
        lambda: INDEX.search(CODES[:1], 3, filter=[1.0]),
        "filter must be a vector of ints, got float64 of shape (1,)",
    ),
    ("radius str", lambda: INDEX.search_radius(CODES[:1], "3"), "radius must be a number, got '3'"),
    ("radius None", lambda: INDEX.search_radius(CODES[:1], None), "radius must be a number, got None"),
    ("ids dup", lambda: Index(CODES, ids=[1] * 60), "ids must be unique, got 1 more than once"),
    ("ids neg", lambda: Index(CODES, ids=-np.arange(60)), "ids must be from 0 to 2**63 - 1, got -59 to 0"),
    (
        "ids str",
        lambda: Index(CODES, ids=[f"d{i}" for i in range(60)]),
        "got <U3 of shape (60,): keep your texts in a list, and use row numbers as ids",
    ),
    (
        "ids float",
        lambda: Index(CODES, ids=np.arange(60.0)),
        "ids must be a vector of ints, got float64 of shape (60,)",
    ),
    ("ids short", lambda: Index(CODES, ids=[1]), "ids must have one value for each of the 60 codes, got 1"),
    ("ids taken", lambda: INDEX.add(CODES[:1], ids=[0]), "ids must be new, got 0, which is in the index"),
    ("remove unknown", lambda: INDEX.remove([1000]), "ids must be in the index, got 1000, which is not"),
    ("codes unknown", lambda: INDEX.codes([1000]), "ids must be in the index, got 1000, which is not"),
    (
        "labels None",
        lambda: RankingSVM().fit(CODES, [None] + [1] * 59),
        "y must hold one label per code, got None in row 0: leave such rows out",
    ),
    (
        "labels mixed obj",
        lambda: RankingSVM().fit(CODES, np.array(["a"] + [1] * 59, object)),
        "y must hold labels of one kind, got 'a' and 1 in row 1",
    ),
    ("labels nan", lambda: RankingSVM().fit(CODES, np.where(Y > 1, np.nan, Y)), "y must be finite, got nan in row 40"),
    (
        "labels short",
        lambda: RankingSVM().fit(CODES, Y[:5]),
        "y must hold one label for each of the 60 codes, got shape (5,)",
    ),
    (
        "labels onehot",
        lambda: RankingSVM().fit(CODES, np.eye(3)[Y]),
        "y must hold one label for each code, got (60, 3)",
    ),
    ("labels one class", lambda: RankingSVM().fit(CODES, Y * 0), "y must hold at least two classes, got 1"),
    ("labels missing", lambda: RankingSVM().fit(CODES, None), "y must hold one label for each code, got None"),
    (
        "features extra",
        lambda: RANKER.queries_for(X[:2], features=X[:2]),
        "features must be None for a WhRank that learned without them, got some",
    ),
    (
        "features nan",
        lambda: QueryVectorRanker(random_state=0).fit(CODES, Y, features=X * np.nan),
        "features must be finite, got nan in row 0, column 0",
    ),
    (
        "features text",
        lambda: QueryVectorRanker(random_state=0).fit(CODES, Y, features=[["a"]] * 60),
        "features must be numbers, got <U1 of shape (60, 1)",
    ),
    (
        "features rows",
        lambda: QueryVectorRanker(random_state=0).fit(CODES, Y, features=X[:3]),
        "features must have shape (60, n_features), one row per query, got (3, 64)",
    ),
    ("hasher too many bits", lambda: ITQ(128).fit(X), "n_bits must be at most the number of features (64), got 128"),
    ("hasher n_bits float", lambda: ITQ(16.0).fit(X), "n_bits must be an int of at least 1, got 16.0"),
    ("whrank codes", lambda: WhRank().fit(CODES, Y), "got codes"),
    (
        "ranker wrong width",
        lambda: RANKER.queries_for(X[:, :5]),
        "queries of reals must have shape (n_queries, 64), got (60, 5)",
    ),
    (
        "constraints shape",
        lambda: RankingSVM().fit_constraints(CODES, [[0, 1]]),
        "rows must be integers of shape (m, 4), or (m, 3) for triplets, got int64 of shape (1, 2)",
    ),
    (
        "constraints float",
        lambda: RankingSVM().fit_constraints(CODES, [[0.0, 1, 2]]),
        "rows must be integers of shape (m, 4), or (m, 3) for triplets, got float64 of shape (1, 3)",
    ),
    (
        "constraints range",
        lambda: RankingSVM().fit_constraints(CODES, [[0, 1, 200]]),
        "rows must name item rows from 0 to 59, got 1 to 200",
    ),
    (
        "pairs strings",
        lambda: QueryVectorRanker().fit_pairs(CODES, [["q1", "d1"]], queries=X),
        "got <U2 of shape (1, 2): read_qrels turns ids into row numbers",
    ),
    (
        "pairs range",
        lambda: QueryVectorRanker().fit_pairs(CODES, [[0, 100]], queries=X),
        "pairs must name item rows from 0 to 59, got 100 to 100",
    ),
    (
        "pairs no queries",
        lambda: QueryVectorRanker().fit_pairs(CODES, [[0, 1]], queries=None),
        "queries must be an array, got NoneType: give rows of numbers",
    ),
    ("scoring", lambda: RankingSVM(scoring="f1").fit(CODES, Y), "scoring must be one of"),
    (
        "scoring of pairs",
        lambda: RankingSVM(scoring="map").fit_pairs(CODES, [[0, 1]], queries=CODES),
        "scoring must be one of guarded, ndcg, mrr, recall@N for pairs, got 'map'",
    ),
    (
        "validation of constraints",
        lambda: RankingSVM(validation="classes").fit_constraints(CODES, [[0, 1, 2]]),
        "validation must be \"rows\" for constraints, got 'classes'",
    ),
    ("C negative", lambda: RankingSVM(C=-1).fit(CODES, Y), 'not negative (or "auto", offline), got -1'),
    (
        "pack signs",
        lambda: pack(np.sign(X)),
        "got other values in an array of float64: see bitrank.core.codes.from_embeddings for signs, reals",
    ),
    ("pack 1d", lambda: pack([1, 0, 1]), "bits must be a matrix with one code per row, got an array of shape (3,)"),
    ("unpack n_bits", lambda: unpack(CODES, 100), "codes of 100 bits must be 13 bytes wide, got 8"),
    (
        "unpack float",
        lambda: unpack(X, 64),
        "got float64 of shape (60, 64): make codes of embeddings with bitrank.core.codes.from_embeddings, or",
    ),
    ("hamming widths", lambda: hamming(CODES, CODES[:, :2]), "queries and codes must have the same width, got 8 and 2"),
    ("split nan", lambda: split_vectors(X * np.nan), "vectors must be finite, got nan in row 0, column 0"),
    (
        "precision k",
        lambda: metrics.precision_at(distances(CODES, CODES), Y[:, None] == Y, 10.0),
        "k must be an int of at least 1, got 10.0",
    ),
    (
        "precision shape",
        lambda: metrics.precision_at(distances(CODES, CODES), Y == Y, 10),
        "relevant must be a bool array of the shape of distances, (60, 60), got bool of shape (60,)",
    ),
    ("connect", lambda: connect("mysql://x", "codes"), "got 'mysql://x'"),
    (
        "triplets",
        lambda: triplets_from_clicks(0, [1, 2], [1, 0]),
        "clicked must be 2 booleans, one for each row shown, got int64 of shape (2,)",
    ),
    ("unpacked query int", lambda: INDEX.search(BITS[:1].astype(int), 3), "they look like bits, so pack them"),
    ("unpacked query float", lambda: INDEX.search(BITS[:1] * 1.0, 3), "got only 0 and 1: they look like bits, so pack"),
    ("int8 as embeddings", lambda: from_embeddings((CODES - 128).view(np.int8)), 'give form="binary" for packed bits'),
    ("no codes", lambda: Index(), "n_bits must be an int for an index without codes, got None"),
    ("hasher of 5 dims", lambda: HASHER.transform(X[:, :5]), "X has 5 features, but ITQ is expecting 64 features"),
    ("hasher of NaN", lambda: HASHER.transform(X * np.nan), "Input X contains NaN"),
    ("hasher of one vector", lambda: ITQ(16).fit(X[:1]), "Found array with 1 sample(s)"),
    ("hasher of a 1d array", lambda: HASHER.transform(X[0]), "Expected 2D array, got 1D array instead"),
    ("ranker not fitted", lambda: RankingSVM().queries_for(CODES), "This RankingSVM instance is not fitted yet"),
    ("hasher not fitted", lambda: ITQ(16).transform(X), "This ITQ instance is not fitted yet"),
    (
        "few ones in unpacked codes",
        lambda: Index((RNG.random((60, 64)) < 0.05).astype(np.uint8)),
        "with all values 0 or 1: pack them with bitrank.pack",
    ),
    (
        "half a step",
        lambda: QueryVectorRanker(n_steps=5.5).fit(CODES, Y),
        "n_steps must be an int of at least 1, got 5.5",
    ),
    (
        "steps as text",
        lambda: QueryVectorRanker(n_hidden="2").fit(CODES, Y),
        "n_hidden must be an int of at least 1, got '2'",
    ),
    (
        "quadruplets as a float",
        lambda: RankingSVM(n_quadruplets=100.0).fit(CODES, Y),
        "n_quadruplets must be an int of at least 1, got 100.0",
    ),
    (
        "features without columns",
        lambda: QueryVectorRanker().fit(CODES, Y, features=X[:, :0]),
        "features must have at least one column, got shape (60, 0)",
    ),
    (
        "masked codes",
        lambda: Index(np.ma.masked_equal(CODES, 7)),
        "codes must not be masked",
    ),
]


@pytest.mark.parametrize(("call", "message"), [pytest.param(*row[1:], id=row[0]) for row in MISTAKES])
def test_mistakes_are_value_errors_that_help(call, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        call()
    assert message in str(caught.value)
    # Only scikit-learn's own messages are longer than a few lines.
    assert len(str(caught.value)) < 330 or "\n" in str(caught.value)


def test_the_table_is_long():
    assert len(MISTAKES) >= 70
    assert len({name for name, *_ in MISTAKES}) == len(MISTAKES)


def test_packed_codes_of_few_values_are_not_taken_for_bits():
    for codes in (np.zeros((100, 8), np.uint8), np.eye(30, 8, dtype=np.uint8) << 7, np.ones((2, 2), np.uint8)):
        assert Index(codes).n_bits == 8 * codes.shape[1]
    assert Index(BITS.astype(np.uint8), n_bits=512).n_bits == 512  # a caller who says so is believed


def test_files_in_the_wrong_place(tmp_path):
    HASHER.save(tmp_path / "hasher.npz")
    RANKER.save(tmp_path / "ranker.npz")
    for call, message in (
        (lambda: load_ranker(tmp_path / "hasher.npz"), "hasher.npz must be a file of a bitrank ranker, got entries"),
        (lambda: load_hasher(tmp_path / "ranker.npz"), "ranker.npz must be a file of a bitrank hasher, got entries"),
        (lambda: Index.load(tmp_path / "hasher.npz"), "path must be the folder of an index, got the file"),
        (lambda: Index.load(tmp_path / "nothing"), "meta.json is missing: no index was saved there"),
        (lambda: INDEX.save(tmp_path), "path must be an index or an empty folder"),
    ):
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            call()
        assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("labels.csv", "label\n" + "1\n" * 60, "labels.csv: the file must have no header, got 'label' in line 1"),
        (
            "labels.csv",
            "label\n" + "cat\n" * 60,
            "one label for each of the 60 items, got shape (61,)",
        ),
        ("labels.csv", "1\n" * 59, "labels must hold one label for each of the 60 items, got shape (59,)"),
        ("labels.json", "[1, null]", "expected numbers or texts in rows of one length, got object"),
        ("labels.txt", "", "the file must end in .npy, .csv, .json"),
    ],
)
def test_mistakes_on_the_command_line(name, content, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Collection.from_codes(CODES).save("my.bitrank")
    (tmp_path / name).write_text(content)
    with pytest.raises(SystemExit) as caught:
        main(["learn", "my.bitrank", "--labels", name, "--output", "my.ranker"])
    assert message in str(caught.value)
    assert not (tmp_path / "my.ranker").exists()


def test_create_refuses_unpacked_codes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("codes.npy", BITS.astype(np.uint8))
    with pytest.raises(SystemExit, match=r"all values 0 or 1: pack them with bitrank.pack"):
        main(["create", "my.bitrank", "codes.npy", "--codes"])
