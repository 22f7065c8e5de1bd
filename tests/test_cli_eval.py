"""The command `bitrank eval`."""

import json

import numpy as np
import pytest

from bitrank.cli import main
from bitrank.evaluation import evaluate_weights

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


def printed_json(capsys):
    return json.loads(capsys.readouterr().out)


def test_other_queries(arrays, capsys):
    codes, labels, queries, query_labels = arrays
    assert main(["eval", *COLLECTION, *QUERIES, "--weights", "w.npy", "--json"]) == 0
    table = printed_json(capsys)
    weights = {"Hamming": None, "w.npy": WEIGHTS}
    expected = evaluate_weights(codes, labels, weights, queries=queries, query_y=query_labels)
    assert (table["n_queries"], table["n_items"]) == (30, 200)
    for name, figures in table["rankings"].items():
        assert figures == pytest.approx({figure: expected.figures[name][figure] for figure in figures})
        assert list(figures) == ["map", "p10", "p100", "voc11"]
    assert main(["eval", *COLLECTION, *QUERIES, "--weights", "w.npy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "30 queries in 200 codes of 32 bits"
    assert lines[-1].split()[:2] == ["w.npy", f"{expected.figures['w.npy']['map']:.3f}"]


def test_a_sample_of_the_collection(arrays, capsys):
    codes, labels, *_ = arrays
    assert main(["eval", *COLLECTION, "--max-queries", "50", "--seed", "3", "--json"]) == 0
    expected = evaluate_weights(codes, labels, {"Hamming": None}, max_queries=50, random_state=3)
    assert printed_json(capsys)["rankings"]["Hamming"]["map"] == pytest.approx(expected.figures["Hamming"]["map"])


def test_weights_of_a_service_with_a_token(arrays, loopback_service, monkeypatch, capsys):
    loopback_service.token, loopback_service.weights = "secret", WEIGHTS.tolist()
    command = ["eval", *COLLECTION, "--weights", loopback_service.version, "--weights", "w.npy", "--json"]
    with pytest.raises(SystemExit, match=r"bitrank eval: .*401"):
        main(command)
    monkeypatch.setenv("BITRANK_TOKEN", "secret")
    assert main(command) == 0
    rankings = printed_json(capsys)["rankings"]
    assert rankings[loopback_service.version] == rankings["w.npy"] != rankings["Hamming"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (QUERIES[:2], "bitrank eval: --queries and --query-labels go together"),
        (["--max-queries", "0"], "max_queries must be at least 1, got 0"),
        (["--weights", "labels.npy"], "got 200"),
        (["--weights", "absent.npy"], "No such file"),
    ],
)
def test_mistakes_end_with_a_message(arrays, arguments, message):
    with pytest.raises(SystemExit, match=message):
        main(["eval", *COLLECTION, *arguments])
