"""The commands `bitrank fit`, `eval` and `weights`, run as the command line runs them."""

import json
from pathlib import Path

import numpy as np
import pytest

from bitrank import Index, RankingSVM
from bitrank.cli import main
from bitrank.codes import hamming, weighted_hamming
from bitrank.metrics import average_precision, precision_at
from bitrank.ranking.quadruplets import draw_quadruplets


@pytest.fixture
def files(tmp_path, monkeypatch, itq_digits):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BITRANK_TOKEN", raising=False)
    np.save("codes.npy", itq_digits.codes)
    np.save("labels.npy", itq_digits.y)
    np.save("queries.npy", itq_digits.queries)
    np.savetxt("query_labels.csv", itq_digits.query_y, fmt="%d")
    return itq_digits


def said(capsys):
    return json.loads(capsys.readouterr().out)


def test_fit_from_labels_is_the_learner(files, capsys):
    arguments = ["--codes", "codes.npy", "--labels", "labels.npy", "--output", "w.npy", "--seed", "3"]
    assert main(["fit", *arguments, "--json"]) == 0
    learner = RankingSVM(random_state=3).fit(files.codes, files.y)
    np.testing.assert_array_equal(np.load("w.npy"), learner.weights_)
    facts = said(capsys)
    assert facts["uniform"] == pytest.approx({name: learner.report_[0][name] for name in ("map", "p10")})
    assert facts["learned"]["map"] > facts["uniform"]["map"]
    assert facts["blend"] == learner.params_["blend"]


def test_fit_from_triplets_of_other_queries(files, capsys):
    triplets = draw_quadruplets(files.y, 3000, query_y=files.query_y, random_state=0)[:, :3]
    np.savetxt("triplets.csv", triplets, fmt="%d", delimiter=",")
    arguments = ["--codes", "codes.npy", "--triplets", "triplets.csv", "--queries", "queries.npy"]
    assert main(["fit", *arguments, "--output", "w.json", "--json"]) == 0
    learner = RankingSVM(random_state=0).fit_quadruplets(files.codes, triplets, files.queries)
    np.testing.assert_array_equal(np.float32(json.loads(Path("w.json").read_text())), learner.weights_)
    assert said(capsys)["uniform"]["order"] == pytest.approx(learner.report_[0]["order"])


def test_fit_says_when_nothing_beats_uniform_weights(files, capsys):
    np.save("codes.npy", files.codes[:600])
    np.save("labels.npy", np.random.default_rng(0).integers(10, size=600))
    assert main(["fit", "--codes", "codes.npy", "--labels", "labels.npy", "--output", "w.npy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("nothing beat uniform weights")
    assert lines[1].split() == ["held", "out", "map", "p10"]
    assert lines[2].split()[1:] == lines[3].split()[1:]  # uniform, and what is used
    assert len(np.unique(np.load("w.npy"))) == 1


def test_eval_measures_with_other_queries(files, capsys):
    weights = np.random.default_rng(0).random(32).astype(np.float32)
    np.save("w.npy", weights)
    arguments = ["--codes", "codes.npy", "--labels", "labels.npy", "--weights", "w.npy"]
    arguments += ["--query-codes", "queries.npy", "--query-labels", "query_labels.csv"]
    assert main(["eval", *arguments, "--json"]) == 0
    table = said(capsys)
    relevant = files.query_y[:, None] == files.y
    assert (table["n_queries"], table["n_items"]) == (800, 1200)
    rankings = {
        "Hamming": hamming(files.queries, files.codes),
        "w.npy": weighted_hamming(files.queries, files.codes, weights),
    }
    for name, found in rankings.items():
        assert table["rankings"][name]["map"] == pytest.approx(average_precision(found, relevant).mean())
        assert table["rankings"][name]["p10"] == pytest.approx(precision_at(found, relevant, 10).mean())
    assert main(["eval", *arguments]) == 0
    assert f"{table['rankings']['w.npy']['map']:.3f}" in capsys.readouterr().out


def test_eval_of_a_collection_leaves_the_query_out(files, capsys):
    assert main(["eval", "--codes", "codes.npy", "--labels", "labels.npy", "--most-queries", "5000", "--json"]) == 0
    found, relevant = hamming(files.codes, files.codes).astype(float), files.y[:, None] == files.y
    np.fill_diagonal(found, np.inf)
    np.fill_diagonal(relevant, False)
    assert said(capsys)["rankings"]["Hamming"]["map"] == pytest.approx(average_precision(found, relevant).mean())


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("fit --codes absent.npy --labels labels.npy --output w.npy", "bitrank fit: .*No such file"),
        ("fit --codes labels.npy --labels labels.npy --output w.npy", "bitrank fit: codes must be a packed"),
        ("fit --codes codes.npy --labels query_labels.csv --output w.npy", "one label for each of the 1200"),
        ("fit --codes codes.npy --labels labels.npy --output w.pkl", "must end in .npy, .csv, .json"),
        ("fit --codes codes.npy --labels labels.npy --queries queries.npy --output w.npy", "goes with --triplets"),
        ("eval --codes codes.npy --labels labels.npy --query-codes queries.npy", "bitrank eval: .*go together"),
        ("eval --codes codes.npy --labels labels.npy --most-queries 0", "at least 1"),
        ("eval --codes codes.npy --labels labels.npy --weights labels.npy", "got 1200"),
        ("weights show absent.json", "bitrank weights: .*No such file"),
        ("weights diff three.json four.json", "as many bits, got 3 and 4"),
    ],
)
def test_mistakes_end_with_a_message_and_no_file(files, tmp_path, command, message):
    for n, name in ((3, "three.json"), (4, "four.json")):
        (tmp_path / name).write_text(json.dumps([1.0] * n))
    with pytest.raises(SystemExit, match=message):
        main(command.split())
    assert not list(tmp_path.glob("w.*"))


def test_weights_show(files, capsys):
    np.save("w.npy", np.arange(8, dtype=np.float32))
    assert main(["weights", "show", "w.npy", "--json"]) == 0
    facts = said(capsys)
    assert facts["weights"] == list(range(8))
    assert (facts["n_bits"], facts["least"], facts["mean"], facts["most"], facts["n_zero"]) == (8, 0, 3.5, 7, 1)
    assert facts["effective_bits"] == pytest.approx(28**2 / 140)
    assert main(["weights", "show", "w.npy", "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[-2:]] == [["7", "7"], ["6", "6"]]
    assert lines[-1].count("█") == round(30 * 6 / 7)


def test_weights_diff_compares_at_one_scale(files, capsys):
    np.save("a.npy", np.float32([1, 1, 1, 1]))
    np.save("b.npy", np.float32([4, 2, 2, 0]))
    assert main(["weights", "diff", "a.npy", "b.npy", "--top", "2", "--json"]) == 0
    facts = said(capsys)
    assert facts["bits"] == [{"bit": 0, "before": 1, "after": 2}, {"bit": 3, "before": 1, "after": 0}]
    assert facts["mean_change"] == 0.5
    assert facts["cosine"] == pytest.approx(4 / np.sqrt(4 * 6))
    assert main(["weights", "diff", "a.npy", "a.npy"]) == 0
    assert "cosine          1" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["w.npy", "w.csv", "w.json"])
def test_weights_export_of_an_index(files, capsys, name):
    weights = np.random.default_rng(0).random(32).astype(np.float32)
    Index(files.codes, weights=weights).save("codes.index")
    assert main(["weights", "export", "codes.index", name]) == 0
    assert main(["weights", "diff", "codes.index", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["most_change"] == 0
