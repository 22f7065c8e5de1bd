"""The command `bitrank fit`."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from bitrank import ITQ, OnlineRankingSVM, QueryVectorRanker, RankingSVM, load_ranker
from bitrank.cli import main
from bitrank.clicks import LoggedPage, pairs_from_log, write_log
from bitrank.core.codes import pack
from bitrank.ranking import RANKERS, ranker_class
from bitrank.ranking.evidence.constraints import triplets_from_pairs
from bitrank.ranking.evidence.quadruplets import draw_quadruplets

FIT = ["fit", "--codes", "codes.npy", "--output", "learned.ranker"]


@pytest.fixture
def files(tmp_path, monkeypatch, itq_digits):
    monkeypatch.chdir(tmp_path)
    np.save("codes.npy", itq_digits.codes[:600])
    np.save("labels.npy", itq_digits.y[:600])
    np.save("queries.npy", itq_digits.queries)
    np.save("values.npy", itq_digits.values[:600])
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
    pairs = np.argwhere(query_topics[:, None] == topics)
    codes, queries = pack(bits), pack(query_bits)
    np.save("codes.npy", codes)
    np.save("queries.npy", queries)
    return codes, queries, pairs


def assert_same_ranker(path, other, queries):
    ranker = load_ranker(path)
    assert type(ranker) is type(other)
    got, want = ranker.queries_for(queries), other.queries_for(queries)
    np.testing.assert_array_equal(got.codes, want.codes)
    np.testing.assert_array_equal(got.weights, want.weights)


def test_labels(files, printed_json):
    assert main([*FIT, "--labels", "labels.npy", "--seed", "3", "--option", "n_quadruplets=1000", "--json"]) == 0
    ranker = RankingSVM(n_quadruplets=1000, random_state=3).fit(files.codes[:600], files.y[:600])
    assert_same_ranker("learned.ranker", ranker, files.queries)
    facts = printed_json()
    assert (facts["ranker"], facts["n_bits"], facts["blend"]) == ("RankingSVM", 32, ranker.blend_)
    assert facts["plain"] == pytest.approx({name: ranker.report_[0][name] for name in ("map", "p10")})
    assert facts["learned"]["map"] > facts["plain"]["map"]
    assert main(["weights", "export", "learned.ranker", "w.npy"]) == 0
    np.testing.assert_array_equal(np.load("w.npy"), ranker.weights_)


@pytest.mark.parametrize("name", sorted(RANKERS))
def test_every_ranker(files, name, printed_json):
    np.save("codes.npy", files.codes[:200])
    np.save("labels.npy", files.y[:200])
    np.save("values.npy", files.values[:200])
    small = {"n_quadruplets": 200, "n_steps": 5, "n_pairs": 200, "n_rows": 100}
    known = ranker_class(name)().get_params()
    options = [part for key, value in small.items() if key in known for part in ("--option", f"{key}={value}")]
    evidence = ["--labels", "labels.npy", "--queries", "values.npy"]
    assert main([*FIT, "--ranker", name, *evidence, *options, "--json"]) == 0
    facts = printed_json()
    assert facts["ranker"] == name
    ranker = load_ranker("learned.ranker")
    assert type(ranker).__name__ == name
    assert ranker.n_bits_ == 32
    assert ("plain" in facts) == bool(ranker.report_)


def test_features_and_unlabelled_codes(files, capsys):
    np.save("unlabelled.npy", files.queries)
    options = ["--ranker", "QueryVectorRanker", "--labels", "labels.npy", "--features", "values.npy"]
    options += ["--option", "n_steps=10"]
    assert main([*FIT, *options, "--collection", "unlabelled.npy"]) == 0
    ranker = load_ranker("learned.ranker")
    assert ranker.n_features_ == 32
    assert len(ranker.collection_) == len(files.queries)
    assert capsys.readouterr().out.splitlines()[-1] == "QueryVectorRanker for 32 bits: learned.ranker"


def test_triplets_of_other_queries(files, printed_json):
    codes, y = files.codes[:600], files.y[:600]
    triplets = draw_quadruplets(y, 100, query_y=files.query_y, random_state=0)[:, :3]
    np.savetxt("triplets.csv", triplets, fmt="%d", delimiter=",")
    assert main([*FIT, "--triplets", "triplets.csv", "--queries", "queries.npy", "--json"]) == 0
    ranker = RankingSVM(random_state=0).fit_constraints(codes, triplets, queries=files.queries)
    assert_same_ranker("learned.ranker", ranker, files.queries)
    assert printed_json()["plain"]["ndcg10"] == pytest.approx(ranker.report_[0]["ndcg10"])


@pytest.mark.parametrize("form", ["rows", "sparse", "qrels"])
def test_judged_pairs(judged, form, capsys, printed_json):
    codes, queries, pairs = judged
    if form == "rows":
        np.savetxt("pairs.csv", pairs, fmt="%d", delimiter=",")
        evidence = ["--pairs", "pairs.csv"]
    elif form == "sparse":
        matrix = scipy.sparse.coo_array((np.ones(len(pairs), int), tuple(pairs.T)), shape=(120, 300))
        scipy.sparse.save_npz("pairs.npz", matrix.tocsr())
        evidence = ["--pairs", "pairs.npz"]
    else:
        lines = [f"q{query} 0 d{item} 1\n" for query, item in pairs.tolist()]
        Path("train.qrels").write_text("".join([*lines, "q0 0 d999 1\n"]))
        Path("ids.json").write_text(json.dumps([f"d{row}" for row in range(300)]))
        Path("query_ids.csv").write_text("".join(f"q{row}\n" for row in range(120)))
        evidence = ["--qrels", "train.qrels", "--ids", "ids.json", "--query-ids", "query_ids.csv"]
    command = [*FIT, "--ranker", "QueryVectorRanker", "--queries", "queries.npy", *evidence]
    command += ["--option", "n_steps=60"]
    assert main([*command, "--json"]) == 0
    ranker = QueryVectorRanker(n_steps=60, random_state=0).fit_pairs(codes, pairs, queries=queries)
    assert_same_ranker("learned.ranker", ranker, queries)
    facts = printed_json()
    assert facts["learned"]["ndcg10"] > facts["plain"]["ndcg10"]
    assert facts.get("n_unknown") == (1 if form == "qrels" else None)
    if form == "qrels":
        assert main(command) == 0
        assert capsys.readouterr().out.startswith("1 judgements name unknown ids and were skipped\n")
        with pytest.raises(SystemExit, match=r"train.qrels:\d+ must name known ids, got query q0, item d999"):
            main([*command, "--strict"])


@pytest.mark.slow
def test_vectors(files, printed_json):
    np.save("vectors.npy", files.values[:600, :8])
    command = [*FIT, "--ranker", "QueryVectorRanker", "--vectors", "vectors.npy", "--queries", "values.npy"]
    assert main([*command, "--json"]) == 0
    facts = printed_json()
    ranker = load_ranker("learned.ranker")
    assert ranker.learned_from_ == "vectors"
    assert facts["plain"]["ndcg10"] == pytest.approx(ranker.report_[0]["ndcg10"])
    with pytest.raises(SystemExit, match="query_vectors must have shape"):
        main([*command, "--query-vectors", "labels.npy"])


@pytest.mark.parametrize("ranker", ["RankingSVM", "OnlineRankingSVM"])
def test_clicks(judged, ranker, printed_json):
    codes, _, pairs = judged
    rng, log, relevant = np.random.default_rng(1), [], set(map(tuple, pairs.tolist()))
    for query in range(120):
        shown = np.unique(np.concatenate([pairs[pairs[:, 0] == query, 1][:5], rng.integers(300, size=10)])).tolist()
        clicked = [item for item in shown if (query, item) in relevant]
        page = LoggedPage(
            f"p{query}",
            {"item": 1000 + query},
            [1000 + i for i in shown],
            [False] * len(shown),
            [1000 + i for i in clicked],
        )
        log.append(page)
    log.append(LoggedPage("other", {"item": 5}, [1000], [False], []))
    write_log("clicks.jsonl", log)
    np.save("ids.npy", np.arange(1000, 1300))
    command = [*FIT, "--ranker", ranker, "--clicks", "clicks.jsonl", "--ids", "ids.npy"]
    assert main([*command, "--option", "n_quadruplets=300", "--json"]) == 0
    facts = printed_json()
    assert (facts["n_queries"], facts["n_left_out"]) == (len(np.unique(codes[:120], axis=0)), 1)
    evidence = pairs_from_log(log, codes, np.arange(1000, 1300), 16)
    if ranker == "RankingSVM":
        want = RankingSVM(n_quadruplets=300, random_state=0).fit_pairs(codes, evidence.pairs, queries=evidence.queries)
    else:
        triplets = triplets_from_pairs(evidence.pairs)
        want = OnlineRankingSVM(n_quadruplets=300, random_state=0).fit_constraints(
            codes, triplets, queries=evidence.queries
        )
    assert_same_ranker("learned.ranker", want, codes)


def test_clicks_on_results_of_vectors(files, printed_json):
    hasher = ITQ(n_bits=8, random_state=0).fit(files.values)
    hasher.save("hasher.npz")
    codes, vectors = hasher.transform(files.values[:300]), files.values[:60]
    np.save("codes.npy", codes)
    pages = [
        LoggedPage(f"p{row}", {"vector": vector.tolist()}, [row, row + 100, row + 200], [False] * 3, [row])
        for row, vector in enumerate(vectors)
    ]
    write_log("clicks.jsonl", pages)
    assert main([*FIT, "--clicks", "clicks.jsonl", "--hasher", "hasher.npz", "--json"]) == 0
    assert printed_json()["n_queries"] == 60
    with pytest.raises(SystemExit, match="a hasher is needed to turn them into codes"):
        main([*FIT, "--clicks", "clicks.jsonl"])


def test_random_labels_give_the_plain_distance(files, capsys):
    np.save("labels.npy", np.random.default_rng(0).integers(10, size=600))
    assert main([*FIT, "--labels", "labels.npy", "--option", "n_quadruplets=500"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("nothing beat the plain distance")
    assert lines[1].split() == ["held", "out", "map", "p10"]
    assert lines[2].split()[1:] == lines[3].split()[1:]
    assert len(np.unique(load_ranker("learned.ranker").weights_)) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--codes absent.npy --labels labels.npy", "bitrank fit: .*No such file"),
        ("--codes labels.npy --labels labels.npy", "bitrank fit: codes must be a packed"),
        ("--labels query_labels.csv", "one label for each of the 600"),
        ("--labels labels.npy --queries queries.npy", "one row for each of the 600 codes, got 800"),
        ("--labels labels.npy --features values.npy", "RankingSVM cannot learn from features; QueryVectorRanker can"),
        (
            "--labels labels.npy --ranker WhRank --scoring map",
            "options of WhRank must be among n_bits, n_pairs, random_state, got scoring",
        ),
        ("--labels labels.npy --option n_steps", "--option must be NAME=VALUE, got n_steps"),
        ("--labels labels.npy --option C=small", "C must be one or two numbers"),
        ("--labels labels.npy --ranker WhRank", "queries must be reals, as `project` gives, got codes"),
        ("--pairs codes.npy", "--queries must name the queries of pairs and qrels, got none"),
        ("--pairs labels.npy --queries queries.npy", r"pairs must be integers of shape \(m, 2\)"),
        ("--qrels labels.npy --queries queries.npy --ids query_labels.csv", "one id for each of the 600, one per code"),
        ("--triplets codes.npy --features values.npy", "--features must be left out for triplets, vectors and clicks"),
        ("--clicks absent.jsonl", "No such file"),
        ("--clicks absent.jsonl --queries queries.npy", "--queries must be left out for clicks"),
        ("--triplets codes.npy --collection codes.npy", "--collection must be left out without --labels"),
    ],
)
def test_mistakes_end_with_a_message_and_no_file(files, tmp_path, arguments, message):
    with pytest.raises(SystemExit, match=message):
        main([*FIT, *arguments.split()])
    assert not list(tmp_path.glob("*learned*"))


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("absent/learned.ranker", "absent/learned.ranker must be in a folder that exists, got none"),
        (".", "must be a file, got a folder"),
        ("w.npy", "`bitrank weights export RANKER FILE` writes the weights of one"),
    ],
)
def test_outputs_are_checked_before_learning(files, output, message, monkeypatch):
    monkeypatch.setattr(RankingSVM, "fit", lambda *args, **options: pytest.fail("learned first"))
    with pytest.raises(SystemExit, match=message):
        main(["fit", "--codes", "codes.npy", "--labels", "labels.npy", "--output", output])
