"""`Collection.learn`: every kind of evidence, the gate, versions, and what the glued parts would have found."""

import numpy as np
import pytest
import scipy.sparse

from bitrank import Collection, Index, QueryVectorRanker, RankingSVM, SignBits
from bitrank.clicks.log import LoggedPage
from bitrank.collection.learning import check_labels
from bitrank.datasets import digits

IMAGES, Y = digits()
X = IMAGES.reshape(len(IMAGES), -1)[:, ::12].astype(np.float32)  # 66 of 784 pixels: codes that learn fast
N = 400
ITEMS, QUERIES = X[:N], X[N : N + 300]
NAMES = [f"digit {row}" for row in range(N)]
RNG = np.random.default_rng(0)
FAST = QueryVectorRanker(n_steps=30, random_state=0)


def precision(ids, wanted, labels):
    return float((labels[ids] == wanted[:, None]).mean())


@pytest.fixture(scope="module")
def learned():
    """A collection that learned from labels, with all defaults but fewer steps."""
    collection = Collection.from_vectors(ITEMS, random_state=0, hasher=SignBits())
    collection.learn(labels=Y[:N], ranker=FAST)
    return collection


def test_labels_learn_what_the_glued_parts_learn(learned):
    hasher = SignBits().fit(ITEMS)
    codes, reals = hasher.transform(ITEMS), hasher.project(ITEMS)
    index = Index(codes, n_bits=hasher.n_bits_)
    ranker = QueryVectorRanker(n_steps=30, random_state=0)
    ranker.fit(codes, Y[:N], queries=reals, features=ITEMS, collection=index)
    queries = ranker.queries_for(hasher.project(QUERIES), features=QUERIES, collection=index)
    found = learned.search(QUERIES, 10)
    np.testing.assert_allclose(found.distances, index.search(queries, 10).distances, rtol=1e-5)
    plain = Collection.from_vectors(ITEMS, hasher=SignBits()).search(QUERIES, 10)
    wanted = Y[N : N + 300]
    assert precision(found.ids, wanted, Y[:N]) > precision(plain.ids, wanted, Y[:N]) + 0.03


def test_the_report_says_what_happened(learned):
    report = learned.report()
    assert report.learned.accepted
    assert report.winner in report.learned.gate
    assert report.learned.gate.gain > 0
    assert report.version.number == 1
    text = str(report)
    assert "in use: version 1, QueryVectorRanker learned from labels" in text
    assert "P@10" in text
    assert "plain  learned     gain" in text
    frame = pytest.importorskip("pandas") and report.frame()
    assert len(frame) == len(report.learned.gate)
    pytest.importorskip("matplotlib").use("agg")
    axes = report.plot()
    assert "held out" in axes.get_ylabel()


def test_forget_is_the_plain_ranking_bit_for_bit(learned):
    plain = Collection.from_vectors(ITEMS, hasher=SignBits()).search(QUERIES, 20)
    before = learned.search(QUERIES, 20)
    learned.forget()
    found = learned.search(QUERIES, 20)
    assert (found.ids == plain.ids).all()
    assert (found.distances == plain.distances).all()
    assert learned.versions[-1].kind == "plain"
    again = learned.roll_back()
    assert (again.kind, again.ranker) == ("labels", "QueryVectorRanker")
    assert (learned.search(QUERIES, 20).distances == before.distances).all()


def test_learning_again_replaces(learned):
    collection = Collection.from_vectors(ITEMS, random_state=0, hasher=SignBits())
    collection.learn(labels=Y[:N], ranker="WhRank")
    collection.learn(labels=Y[:N], ranker="RankingSVM")
    kinds = [(version.number, version.ranker) for version in collection.versions]
    assert kinds[:2] == [(0, None), (1, "WhRank")]
    assert len(kinds) in (2, 3)  # the gate may refuse the SVM; what was in use then stays
    for _ in range(12):
        collection.forget()
    assert len(collection.versions) == 10


def test_items_without_label_are_left_out(learned):
    labels = [int(label) if row % 3 else None for row, label in enumerate(Y[:N])]
    report = Collection.from_vectors(ITEMS, random_state=0, hasher=SignBits()).learn(labels=labels, ranker="WhRank")
    assert report.learned.notes == ["134 of 400 items have no label"]


@pytest.mark.parametrize(
    ("labels", "values", "rows"),
    [
        (["a", None, "b"], ["a", "b"], [0, 2]),
        ([1.5, float("nan"), 2.5], [1.5, 2.5], [0, 2]),
        (np.array([3, -1, 4]), [3, 4], [0, 2]),
        (np.array(["x", None, "y"], object), ["x", "y"], [0, 2]),
        ([-1, -1, -1], [], []),
    ],
)
def test_none_nan_and_minus_one_are_no_labels(labels, values, rows):
    found, kept = check_labels(labels, 3)
    assert found.tolist() == values
    assert kept.tolist() == rows


def test_too_little_evidence_is_a_refusal():
    collection = Collection.from_vectors(ITEMS, random_state=0, hasher=SignBits())
    little = [
        {"labels": [None] * N},
        {"labels": [0] * N},
        {"pairs": [(0, 1)], "queries": QUERIES[:1]},
        {"constraints": [(0, 1, 2)]},
        {"unjudged": QUERIES[:1]},
        {"pairs": [(0, "nowhere")], "queries": QUERIES[:1], "ignore_unknown": True},
        {"labels": np.arange(N) // 2, "ranker": RankingSVM(C=1.0)},
    ]
    for evidence in little:
        report = collection.learn(**evidence)
        assert not report.learned.accepted
        assert "too little evidence" in str(report), evidence
    assert collection.versions == Collection.from_vectors(ITEMS, hasher=SignBits()).versions


def test_random_codes_are_refused():
    codes = RNG.integers(0, 256, (500, 8), np.uint8)
    collection = Collection.from_codes(codes, random_state=0)
    report = collection.learn(labels=RNG.integers(0, 5, 500), ranker=FAST)
    assert not report.learned.accepted
    assert report.version.ranker is None


def relevant_pairs(n_queries, items, names=None):
    """Judgements of the first queries: ten items of the same class and ten others."""
    pairs = []
    for row in range(n_queries):
        same = np.flatnonzero(Y[:N] == Y[N + row])
        other = np.flatnonzero(Y[:N] != Y[N + row])
        for grade, rows in (1, same), (0, other):
            for item in RNG.choice(rows, items, replace=False).tolist():
                pairs.append((row, item if names is None else names[item], grade))
    return pairs


def test_pairs_come_as_rows_a_file_or_a_matrix(tmp_path):
    pairs = relevant_pairs(60, 10, NAMES)
    rows = {name: row for row, name in enumerate(NAMES)}
    lines = [f"q{query} 0 {name.replace(' ', '_')} {grade}\n" for query, name, grade in pairs]
    (tmp_path / "qrels.txt").write_text("".join(lines))
    query_ids = [f"q{row}" for row in range(60)]
    matrix = scipy.sparse.lil_matrix((60, N))
    for query, name, grade in pairs:
        matrix[query, rows[name]] = grade
    forms = [
        (NAMES, pairs, {}),
        ([name.replace(" ", "_") for name in NAMES], tmp_path / "qrels.txt", {"query_ids": query_ids}),
    ]
    reports = []
    for ids, evidence, options in forms:
        collection = Collection.from_vectors(ITEMS, ids=ids, random_state=0, hasher=SignBits())
        reports.append(collection.learn(pairs=evidence, queries=QUERIES[:60], ranker=FAST, **options))
    lines = [report.learned.gate for report in reports]
    assert lines[0] == lines[1]
    collection = Collection.from_vectors(ITEMS, random_state=0, hasher=SignBits())
    by_matrix = collection.learn(pairs=matrix.tocsr(), queries=QUERIES[:60], ranker=FAST)
    assert by_matrix.learned.gate[0].keys() == lines[0][0].keys()
    assert "nDCG@10" in str(reports[0])


def test_unknown_ids_are_refused_or_left_out():
    collection = Collection.from_vectors(ITEMS, ids=NAMES, random_state=0, hasher=SignBits())
    pairs = [*relevant_pairs(60, 5, NAMES), (0, "nowhere", 1)]
    with pytest.raises(ValueError, match="pairs must name ids of the collection, got 'nowhere'"):
        collection.learn(pairs=pairs, queries=QUERIES[:60])
    report = collection.learn(pairs=pairs, queries=QUERIES[:60], ranker=FAST, ignore_unknown=True)
    assert "1 judgements name unknown ids" in str(report)


def test_constraints_name_items_or_rows_of_queries():
    rows = []
    for query in range(0, 200):
        same = RNG.choice(np.flatnonzero(Y[:N] == Y[query]), 3)
        other = RNG.choice(np.flatnonzero(Y[:N] != Y[query]), 3)
        rows += [(NAMES[query], NAMES[d], NAMES[s]) for s, d in zip(same, other, strict=True)]
    collection = Collection.from_vectors(ITEMS, ids=NAMES, random_state=0, hasher=SignBits())
    report = collection.learn(constraints=rows)
    assert report.learned.ranker == "RankingSVM"
    by_query = [(int(name.split()[1]) % 50, d, s) for name, d, s in rows]
    assert collection.learn(constraints=by_query, queries=QUERIES[:50]).learned.kind == "constraints"
    with pytest.raises(ValueError, match="constraints must name ids of the collection, got 'digit 400'"):
        collection.learn(constraints=[("digit 0", "digit 1", "digit 400")])


@pytest.mark.parametrize("ids", [None, NAMES])
def test_clicks_are_judged_pairs(ids):
    known = list(range(N)) if ids is None else ids
    pages = []
    for row in range(80):
        shown = RNG.choice(N, 10, replace=False).tolist()
        clicked = [item for item in shown if Y[item] == Y[row]]
        pages.append(
            LoggedPage(
                f"page {row}",
                {"item": known[row]},
                [known[item] for item in shown],
                [False] * 10,
                [known[item] for item in clicked],
            )
        )
    collection = Collection.from_vectors(ITEMS, ids=ids, random_state=0, hasher=SignBits())
    report = collection.learn(clicks=pages, ranker=FAST)
    assert report.learned.kind == "clicks"
    assert report.learned.gate


def test_queries_without_judgements_learn_from_the_vectors():
    report = Collection.from_vectors(ITEMS, random_state=0, hasher=SignBits()).learn(unjudged=QUERIES, ranker=FAST)
    assert report.learned.kind == "unjudged"
    assert report.learned.gate


def test_added_items_learn_with_their_vectors():
    whole = Collection.from_vectors(ITEMS, hasher=SignBits().fit(ITEMS), random_state=0)
    parts = Collection.from_vectors(ITEMS[:250], hasher=SignBits().fit(ITEMS), random_state=0)
    parts.add(ITEMS[250:])
    reports = [each.learn(labels=Y[:N], ranker=FAST) for each in (whole, parts)]
    assert reports[0].learned.gate == reports[1].learned.gate


def test_features_stand_in_for_vectors_of_another_process(tmp_path):
    collection = Collection.from_vectors(ITEMS, random_state=0, hasher=SignBits())
    collection.save(tmp_path / "a")
    there = collection.learn(labels=Y[:N], ranker=FAST).learned.gate
    loaded = Collection.load(tmp_path / "a")
    assert loaded.learn(labels=Y[:N], features=ITEMS, ranker=FAST).learned.gate == there
    report = Collection.load(tmp_path / "a").learn(labels=Y[:N], ranker=FAST)
    assert "decoded from the codes" in str(report)
    assert not any(line.get("inputs") == "features" for line in report.learned.gate)


def test_a_failed_fit_leaves_everything_as_it_was(learned, monkeypatch):
    versions, before = learned.versions, learned.search(QUERIES[:5])

    def fails(*_, **__):
        raise RuntimeError("no")

    monkeypatch.setattr(QueryVectorRanker, "fit", fails)
    with pytest.raises(RuntimeError, match="no"):
        learned.learn(labels=Y[:N])
    assert learned.versions == versions
    assert (learned.search(QUERIES[:5]).distances == before.distances).all()


def test_the_same_seed_learns_the_same():
    lines = [
        Collection.from_vectors(ITEMS, random_state=3, hasher=SignBits())
        .learn(labels=Y[:N], ranker="OnlineRankingSVM")
        .learned.gate
        for _ in range(2)
    ]
    assert lines[0] == lines[1]
