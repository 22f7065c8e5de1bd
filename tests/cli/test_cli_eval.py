"""The command `bitrank eval`."""

import numpy as np
import pytest

from bitrank import Collection, QueryVectorRanker, SignBits
from bitrank.cli import main
from bitrank.evaluation import FIGURES, evaluate_rankings
from bitrank.ranking import UniformRanker

COLLECTION = ["shop.bitrank", "--labels", "labels.npy"]
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
    Collection.from_codes(codes).save("shop.bitrank")
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
    values = reals_of(queries).astype(np.float32)
    np.save("queries.npy", values)
    uniform = UniformRanker().fit(codes)
    uniform.save("uniform.ranker")
    assert main(["eval", *COLLECTION, *QUERIES, "--ranker", "uniform.ranker", "--json"]) == 0
    got = printed_json()["rankings"]
    rankings = {"Hamming": None, "asymmetric": np.ones(32), "uniform.ranker": uniform}
    judged = {"y": labels, "queries": values, "query_y": query_labels}
    want = evaluate_rankings(codes, rankings, **judged, max_queries=1000, random_state=0).figures
    assert list(got) == list(want)
    assert got["Hamming"] == got["uniform.ranker"] != got["asymmetric"]


def test_what_a_collection_of_vectors_learned(tmp_path, monkeypatch, itq_digits, printed_json):
    monkeypatch.chdir(tmp_path)
    vectors, y = itq_digits.values[:400].astype(np.float32), itq_digits.y[:400]
    collection = Collection.from_vectors(vectors, random_state=0, hasher=SignBits())
    assert collection.learn(labels=y, ranker=QueryVectorRanker(n_steps=60, random_state=0)).learned.accepted
    collection.save("shop.bitrank")
    np.save("labels.npy", y)
    np.save("queries.npy", itq_digits.values[400:450].astype(np.float32))
    np.save("query_labels.npy", itq_digits.y[400:450])
    assert main(["eval", *COLLECTION, "--queries", "queries.npy", "--query-labels", "query_labels.npy", "--json"]) == 0
    got = printed_json()["rankings"]
    assert list(got) == ["Hamming", "asymmetric", "learned"]
    hasher, queries = collection.hasher, itq_digits.values[400:450].astype(np.float32)
    want = evaluate_rankings(
        hasher.transform(vectors),
        {"learned": collection.ranker},
        y=y,
        query_y=itq_digits.y[400:450],
        queries=hasher.project(queries),
        features=queries,
    )
    assert got["learned"] == pytest.approx(want.figures["learned"])
    assert got["learned"]["map"] > got["asymmetric"]["map"]


@pytest.mark.parametrize("form", ["qrels", "pairs"])
def test_judgements_by_group(arrays, form, capsys, printed_json):
    codes, labels, queries, query_labels = arrays
    pairs = np.argwhere(query_labels[:, None] == labels)
    graded = np.column_stack([pairs, 1 + pairs[:, 1] % 2])
    if form == "qrels":
        Collection.from_codes(codes, ids=[f"d{row}" for row in range(200)]).save("shop.bitrank", replace=True)
        with open("test.qrels", "w") as file:
            file.writelines(f"{query} 0 d{item} {grade}\n" for query, item, grade in graded.tolist())
            file.write("77 0 d3 1\n")
        arguments, unknown = ["--qrels", "test.qrels"], "must name known ids, got query 77, item d3"
    else:
        Collection.from_codes(codes, ids=np.arange(200) + 1000).save("shop.bitrank", replace=True)
        np.save("pairs.npy", np.vstack([graded + np.array([0, 1000, 0]), [[0, 5, 1]]]))
        arguments, unknown = ["--pairs", "pairs.npy"], "pairs must name ids of the collection, got 5"
    np.savetxt("groups.csv", np.where(query_labels < 2, "seen", "new"), fmt="%s")
    command = ["eval", "shop.bitrank", "--queries", "queries.npy", *arguments]
    with pytest.raises(SystemExit, match=unknown):
        main(command)
    command += ["--ignore-unknown", "--groups", "groups.csv"]
    assert main([*command, "--weights", "w.npy", "--json"]) == 0
    facts = printed_json()
    groups = np.where(query_labels < 2, "seen", "new")
    want = evaluate_rankings(codes, {"Hamming": None, "w.npy": WEIGHTS}, pairs=graded, queries=queries, groups=groups)
    for name, figures in want.figures.items():
        assert facts["rankings"][name] == pytest.approx(figures)
    for group in ("seen", "new"):
        assert facts["groups"][group]["n_queries"] == want.groups[group].n_queries
        assert facts["groups"][group]["rankings"]["w.npy"] == pytest.approx(want.groups[group].figures["w.npy"])
    assert main(command) == 0
    assert f"group new: {(query_labels >= 2).sum()} queries" in capsys.readouterr().out.splitlines()


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
        main(["eval", "shop.bitrank", "--pairs", "labels.npy"])


def test_queries_that_were_not_centred(arrays, capsys):
    queries = np.random.default_rng(0).normal(size=(60, 32)) + np.where(np.arange(32) % 2, 3, -3)
    np.save("shifted.npy", queries)
    np.save("centred.npy", queries - queries.mean(axis=0))
    np.savetxt("shifted_labels.csv", np.arange(60) % 3, fmt="%d")
    for name in ("shifted", "centred"):
        options = ["--queries", f"{name}.npy", "--query-labels", "shifted_labels.csv", "--json"]
        assert main(["eval", *COLLECTION, *options]) == 0
        assert ("centre queries as the vectors" in capsys.readouterr().err) == (name == "shifted")
