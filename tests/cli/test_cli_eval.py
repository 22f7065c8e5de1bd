"""The command `bitrank eval`."""

import numpy as np
import pytest

from bitrank import QueryVectorRanker
from bitrank.cli import main
from bitrank.evaluation import FIGURES, evaluate_rankings
from bitrank.ranking import UniformRanker

COLLECTION = ["--codes", "codes.npy", "--labels", "labels.npy"]
QUERIES = ["--queries", "queries.npy", "--query-labels", "query_labels.csv"]
WEIGHTS = np.random.default_rng(1).random(32).astype(np.float32)


@pytest.fixture
def arrays(tmp_path, monkeypatch):
    """Codes, labels, queries and their labels, also as files in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BITRANK_TOKEN", raising=False)
    rng = np.random.default_rng(0)
    codes, queries = rng.integers(0, 256, (200, 4), dtype=np.uint8), rng.integers(0, 256, (30, 4), dtype=np.uint8)
    labels, query_labels = rng.integers(4, size=200), rng.integers(4, size=30)
    np.save("codes.npy", codes)
    np.save("labels.npy", labels)
    np.save("queries.npy", queries)
    np.savetxt("query_labels.csv", query_labels, fmt="%d")
    np.save("w.npy", WEIGHTS)
    return codes, labels, queries, query_labels


def test_other_queries(arrays, capsys, printed_json):
    codes, labels, queries, query_labels = arrays
    assert main(["eval", *COLLECTION, *QUERIES, "--weights", "w.npy", "--json"]) == 0
    table = printed_json()
    weights = {"Hamming": None, "w.npy": WEIGHTS}
    expected = evaluate_rankings(codes, weights, y=labels, queries=queries, query_y=query_labels)
    assert (table["n_queries"], table["n_items"]) == (30, 200)
    for name, figures in table["rankings"].items():
        assert figures == pytest.approx({figure: expected.figures[name][figure] for figure in figures})
        assert tuple(figures) == FIGURES
    assert main(["eval", *COLLECTION, *QUERIES, "--weights", "w.npy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "30 queries in 200 codes of 32 bits"
    assert lines[-1].split()[:2] == ["w.npy", f"{expected.figures['w.npy']['map']:.3f}"]


def test_a_sample_of_the_collection(arrays, printed_json):
    codes, labels, *_ = arrays
    assert main(["eval", *COLLECTION, "--max-queries", "50", "--seed", "3", "--json"]) == 0
    expected = evaluate_rankings(codes, {"Hamming": None}, y=labels, max_queries=50, random_state=3)
    assert printed_json()["rankings"]["Hamming"]["map"] == pytest.approx(expected.figures["Hamming"]["map"])


def reals_of(queries):
    return (2.0 * np.unpackbits(queries, axis=1) - 1) * np.random.default_rng(5).uniform(0.1, 2, (30, 32))


def test_rankers_and_reals(arrays, printed_json):
    codes, labels, queries, query_labels = arrays
    values, features = reals_of(queries).astype(np.float32), np.random.default_rng(2).normal(size=(200, 3))
    np.save("queries.npy", values)
    np.save("features.npy", features[:30])
    uniform = UniformRanker().fit(codes)
    vectors = QueryVectorRanker(n_steps=20, random_state=0).fit(codes, labels, features=features)
    uniform.save("uniform.ranker")
    vectors.save("vectors.ranker")
    rankers = ["--ranker", "uniform.ranker", "--ranker", "vectors.ranker", "--features", "features.npy"]
    assert main(["eval", *COLLECTION, *QUERIES, *rankers, "--json"]) == 0
    got = printed_json()["rankings"]
    rankings = {"Hamming": None, "asymmetric": np.ones(32), "uniform.ranker": uniform, "vectors.ranker": vectors}
    judged = {"y": labels, "queries": values, "query_y": query_labels, "features": features[:30]}
    want = evaluate_rankings(codes, rankings, **judged, max_queries=1000, random_state=0).figures
    assert list(got) == list(want)
    assert got["Hamming"] == got["uniform.ranker"] != got["asymmetric"]
    assert got["vectors.ranker"] == pytest.approx(want["vectors.ranker"])


def test_qrels_by_group(arrays, capsys, printed_json):
    codes, labels, queries, query_labels = arrays
    pairs = np.argwhere(query_labels[:, None] == labels)
    with open("test.qrels", "w") as file:
        file.writelines(f"{query} 0 d{item} {1 + item % 2}\n" for query, item in pairs.tolist())
        file.write("77 0 d3 1\n")
    with open("ids.csv", "w") as file:
        file.writelines(f"d{row}\n" for row in range(200))
    np.savetxt("groups.csv", np.where(query_labels < 2, "seen", "new"), fmt="%s")
    arguments = ["--codes", "codes.npy", "--queries", "queries.npy", "--qrels", "test.qrels", "--ids", "ids.csv"]
    assert main(["eval", *arguments, "--groups", "groups.csv", "--weights", "w.npy", "--json"]) == 0
    facts = printed_json()
    graded = np.column_stack([pairs, 1 + pairs[:, 1] % 2])
    groups = np.where(query_labels < 2, "seen", "new")
    want = evaluate_rankings(codes, {"Hamming": None, "w.npy": WEIGHTS}, pairs=graded, queries=queries, groups=groups)
    assert facts["n_unknown"] == 1
    for name, figures in want.figures.items():
        assert facts["rankings"][name] == pytest.approx(figures)
    for group in ("seen", "new"):
        assert facts["groups"][group]["n_queries"] == want.groups[group].n_queries
        assert facts["groups"][group]["rankings"]["w.npy"] == pytest.approx(want.groups[group].figures["w.npy"])
    assert main(["eval", *arguments, "--groups", "groups.csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 judgements name unknown ids and were skipped"
    assert f"group new: {(query_labels >= 2).sum()} queries" in lines
    with pytest.raises(SystemExit, match="must name known ids, got query 77, item d3"):
        main(["eval", *arguments, "--strict"])


def test_weights_of_a_service_with_a_token(arrays, loopback_service, monkeypatch, printed_json):
    loopback_service.token, loopback_service.weights = "secret", WEIGHTS.tolist()
    command = ["eval", *COLLECTION, "--weights", loopback_service.version, "--weights", "w.npy", "--json"]
    with pytest.raises(SystemExit, match=r"bitrank eval: .*401"):
        main(command)
    monkeypatch.setenv("BITRANK_TOKEN", "secret")
    assert main(command) == 0
    rankings = printed_json()["rankings"]
    assert rankings[loopback_service.version] == rankings["w.npy"] != rankings["Hamming"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (QUERIES[:2], "bitrank eval: --queries and --query-labels go together"),
        (["--max-queries", "0"], "max_queries must be at least 1, got 0"),
        (["--weights", "labels.npy"], "got 200"),
        (["--weights", "absent.npy"], "No such file"),
        (["--ranker", "absent.ranker"], "No such file"),
        (["--weights", "uniform.ranker"], "uniform.ranker must hold one weight per bit, got a UniformRanker"),
        (["--groups", "query_labels.csv"], "one name for each of the 200 queries"),
    ],
)
def test_mistakes_end_with_a_message(arrays, arguments, message):
    UniformRanker().fit(arrays[0]).save("uniform.ranker")
    with pytest.raises(SystemExit, match=message):
        main(["eval", *COLLECTION, *arguments])


def test_pairs_need_queries(arrays):
    with pytest.raises(SystemExit, match="--pairs and --qrels go with --queries and without --query-labels"):
        main(["eval", "--codes", "codes.npy", "--pairs", "labels.npy"])
