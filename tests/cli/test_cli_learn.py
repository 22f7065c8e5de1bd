"""The command `bitrank learn`: every kind of evidence learns as `Collection.learn` does."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from bitrank import ITQ, Collection, QueryVectorRanker, RankingSVM, load_ranker
from bitrank.cli import main
from bitrank.clicks import LoggedPage, write_log
from bitrank.core.codes import pack
from bitrank.ranking.evidence.quadruplets import draw_quadruplets


@pytest.fixture
def shop(tmp_path, monkeypatch, itq_digits):
    """A collection of codes of digits with their labels, and queries that are reals."""
    monkeypatch.chdir(tmp_path)
    Collection.from_codes(itq_digits.codes[:600], random_state=0).save("shop.bitrank")
    np.save("labels.npy", itq_digits.y[:600])
    np.save("queries.npy", itq_digits.queries)
    np.savetxt("query_labels.csv", itq_digits.query_y, fmt="%d")
    return itq_digits


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """120 queries, 300 items of 16 topics that the first four of 16 bits tell, and pairs of one topic."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    topics, query_topics = rng.integers(16, size=300), rng.integers(16, size=120)
    bits, query_bits = (
        np.column_stack([(topic[:, None] >> np.arange(4)) & 1, rng.integers(2, size=(len(topic), 12))])
        for topic in (topics, query_topics)
    )
    codes, queries = pack(bits), pack(query_bits)
    np.save("queries.npy", queries)
    return codes, queries, np.argwhere(query_topics[:, None] == topics)


def assert_learned_the_same(want, queries):
    """The saved collection answers as one that learned in this process."""
    got, want = (collection.search(queries, k=20) for collection in (Collection.load("shop.bitrank"), want))
    np.testing.assert_array_equal(got.ids, want.ids)
    np.testing.assert_array_equal(got.distances, want.distances)


def test_labels_with_options_and_roll_back(shop, capsys, printed_json):
    options = ["--ranker", "RankingSVM", "--option", "n_quadruplets=1000", "--option", "random_state=3"]
    command = ["learn", "shop.bitrank", "--labels", "labels.npy", *options, "--output", "svm.ranker", "--json"]
    assert main(command) == 0
    facts = printed_json()
    want = Collection.from_codes(shop.codes[:600], random_state=0)
    report = want.learn(labels=shop.y[:600], ranker=RankingSVM(n_quadruplets=1000, random_state=3))
    assert_learned_the_same(want, shop.queries)
    assert facts["learned"]["accepted"]
    assert facts["learned"]["gate"]["lines"] == report.learned.gate
    np.testing.assert_array_equal(load_ranker("svm.ranker").weights_, want.ranker.weights_)
    assert main(["weights", "export", "svm.ranker", "w.npy"]) == 0
    np.testing.assert_array_equal(np.load("w.npy"), want.ranker.weights_)
    capsys.readouterr()
    assert main(["learn", "shop.bitrank", "--forget", "--json"]) == 0
    assert printed_json()["version"]["number"] == 2
    plain = Collection.from_codes(shop.codes[:600])
    assert_learned_the_same(plain, shop.queries)
    assert main(["learn", "shop.bitrank", "--roll-back", "1", "--json"]) == 0
    assert printed_json()["version"] == {**facts["version"], "number": 3}
    assert_learned_the_same(want, shop.queries)
    plain.save("shop.bitrank", replace=True)
    assert main(["learn", "shop.bitrank", "--use", "svm.ranker", "--json"]) == 0
    assert printed_json()["version"]["kind"] == "elsewhere"
    assert_learned_the_same(want, shop.queries)


def test_vectors_learn_with_features(tmp_path, monkeypatch, itq_digits, capsys):
    monkeypatch.chdir(tmp_path)
    vectors, y = itq_digits.values[:400].astype(np.float32), itq_digits.y[:400]
    np.save("vectors.npy", vectors)
    np.save("labels.npy", np.where(np.arange(400) < 300, y.astype(int), -1))
    assert main(["create", "shop.bitrank", "vectors.npy"]) == 0
    options = ["--ranker", "QueryVectorRanker", "--option", "n_steps=10"]
    assert main(["learn", "shop.bitrank", "--labels", "labels.npy", "--features", "vectors.npy", *options]) == 0
    assert "learned from labels in" in capsys.readouterr().out
    assert Collection.load("shop.bitrank").report().learned.ranker == "QueryVectorRanker"


@pytest.mark.parametrize("form", ["rows", "sparse", "qrels"])
def test_judged_pairs(judged, form, printed_json):
    codes, queries, pairs = judged
    ids = [f"d{row}" for row in range(300)] if form == "qrels" else np.arange(300) + 1000
    collection = Collection.from_codes(codes, ids=ids, random_state=0)
    collection.save("shop.bitrank")
    if form == "rows":
        evidence, given = ["--pairs", "pairs.csv"], pairs + np.array([0, 1000])
        np.savetxt("pairs.csv", given, fmt="%d", delimiter=",")
    elif form == "sparse":
        given = scipy.sparse.coo_array((np.ones(len(pairs), int), tuple(pairs.T)), shape=(120, 300)).tocsr()
        scipy.sparse.save_npz("pairs.npz", given)
        evidence = ["--pairs", "pairs.npz"]
    else:
        lines = [f"q{query} 0 d{item} 1\n" for query, item in pairs.tolist()]
        Path("train.qrels").write_text("".join([*lines, "q0 0 d999 1\n"]))
        Path("query_ids.csv").write_text("".join(f"q{row}\n" for row in range(120)))
        evidence = ["--qrels", "train.qrels", "--query-ids", "query_ids.csv"]
        given = [(query, f"d{item}") for query, item in pairs.tolist()]
    options = ["--queries", "queries.npy", "--ranker", "QueryVectorRanker", "--option", "n_steps=60"]
    command = ["learn", "shop.bitrank", *evidence, *options, "--json"]
    if form == "qrels":
        with pytest.raises(SystemExit, match=r"train.qrels:\d+ must name known ids, got query q0, item d999"):
            main(command)
        command.append("--ignore-unknown")
    assert main(command) == 0
    facts = printed_json()
    collection.learn(pairs=given, queries=queries, ranker=QueryVectorRanker(n_steps=60, random_state=0))
    assert_learned_the_same(collection, queries)
    assert facts["winner"]["ndcg10"] > facts["learned"]["gate"]["lines"][0]["ndcg10"]


def test_constraints(shop, printed_json):
    triplets = draw_quadruplets(shop.y[:600], 100, query_y=shop.query_y, random_state=0)[:, :3]
    np.savetxt("triplets.csv", triplets, fmt="%d", delimiter=",")
    command = ["learn", "shop.bitrank", "--constraints", "triplets.csv", "--queries", "queries.npy", "--json"]
    assert main(command) == 0
    want = Collection.from_codes(shop.codes[:600], random_state=0)
    want.learn(constraints=triplets, queries=shop.queries)
    assert_learned_the_same(want, shop.queries)
    assert printed_json()["learned"]["kind"] == "constraints"


def test_clicks(judged, printed_json):
    codes, queries, pairs = judged
    rng, log, relevant = np.random.default_rng(1), [], set(map(tuple, pairs.tolist()))
    for query in range(120):
        shown = np.unique(np.concatenate([pairs[pairs[:, 0] == query, 1][:5], rng.integers(300, size=10)])).tolist()
        clicked = [item for item in shown if (query, item) in relevant]
        log.append(LoggedPage(f"p{query}", {"item": query}, shown, [False] * len(shown), clicked))
    write_log("clicks.jsonl", log)
    collection = Collection.from_codes(codes, random_state=0)
    collection.save("shop.bitrank")
    assert main(["learn", "shop.bitrank", "--clicks", "clicks.jsonl", "--ranker", "RankingSVM", "--json"]) == 0
    assert printed_json()["learned"]["kind"] == "clicks"
    collection.learn(clicks="clicks.jsonl", ranker="RankingSVM")
    assert_learned_the_same(collection, queries)


def test_unjudged_queries(tmp_path, monkeypatch, itq_digits, printed_json):
    monkeypatch.chdir(tmp_path)
    vectors = itq_digits.values[:300].astype(np.float32)
    np.save("vectors.npy", vectors)
    collection = Collection.from_vectors(vectors, hasher=ITQ(n_bits=8, random_state=0), random_state=0)
    collection.save("shop.bitrank")
    np.save("new.npy", vectors[:60] + 0.1)
    command = ["learn", "shop.bitrank", "--unjudged", "new.npy", "--features", "vectors.npy"]
    assert main([*command, "--ranker", "QueryVectorRanker", "--option", "n_steps=5", "--json"]) == 0
    assert printed_json()["learned"]["kind"] == "unjudged"


def test_too_little_evidence_is_refused_in_the_report(shop, capsys):
    np.savetxt("pairs.csv", [[0, 5], [0, 6]], fmt="%d", delimiter=",")
    assert main(["learn", "shop.bitrank", "--pairs", "pairs.csv", "--queries", "queries.npy", "--output", "new"]) == 0
    assert "refused, too little evidence" in capsys.readouterr().out
    assert not Path("new").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--labels query_labels.csv", "labels must"),
        ("--labels labels.npy --features queries.npy", "features must be None for a collection of codes, got some"),
        ("--labels labels.npy --ranker RankingSVM --option n_steps", "--option must be NAME=VALUE, got n_steps"),
        ("--labels labels.npy --ranker RankingSVM --option C=small", "C must be one or two numbers"),
        ("--labels labels.npy --option C=1", "--option must come with --ranker, got it alone"),
        (
            "--labels labels.npy --ranker WhRank --option scoring=map",
            "options of WhRank must be among n_bits, n_pairs, random_state, got scoring",
        ),
        ("--labels labels.npy --queries queries.npy", "queries must be None for labels, got some"),
        ("--pairs labels.npy", "queries must be given with pairs, got none"),
        ("--pairs labels.npy --queries queries.npy", "pairs must be rows of"),
        ("--clicks absent.jsonl", "No such file"),
        ("--clicks absent.jsonl --queries queries.npy", "queries must be None for clicks"),
        ("--roll-back 7", "number must be that of a version in"),
        ("--labels labels.npy --output absent/learned.ranker", "must be in a folder that exists, got none"),
        ("--labels labels.npy --output .", "must be a file, got a folder"),
        ("--labels labels.npy --output w.npy", "`bitrank weights export RANKER FILE` writes the weights of one"),
    ],
)
def test_mistakes_end_with_a_message_and_change_nothing(shop, tmp_path, arguments, message):
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(SystemExit, match=message):
        main(["learn", "shop.bitrank", *arguments.split()])
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_report_can_be_drawn(shop, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is an extra")
    main(["learn", "shop.bitrank", "--labels", "labels.npy", "--ranker", "RankingSVM", "--option", "n_quadruplets=500"])
    assert main(["report", "shop.bitrank", "--plot", "gate.png"]) == 0
    assert Path("gate.png").read_bytes().startswith(b"\x89PNG")
    assert main(["report", "shop.bitrank", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["learned"]["ranker"] == "RankingSVM"
