"""The command `bitrank fit`."""

import json
from pathlib import Path

import numpy as np
import pytest

from bitrank import RankingSVM
from bitrank.cli import main
from bitrank.ranking.quadruplets import draw_quadruplets


@pytest.fixture
def files(tmp_path, monkeypatch, itq_digits):
    monkeypatch.chdir(tmp_path)
    np.save("codes.npy", itq_digits.codes)
    np.save("labels.npy", itq_digits.y)
    np.save("queries.npy", itq_digits.queries)
    np.savetxt("query_labels.csv", itq_digits.query_y, fmt="%d")
    return itq_digits


def printed_json(capsys):
    return json.loads(capsys.readouterr().out)


def test_labels(files, capsys):
    codes, y = files.codes[:600], files.y[:600]
    np.save("codes.npy", codes)
    np.save("labels.npy", y)
    arguments = ["--codes", "codes.npy", "--labels", "labels.npy", "--output", "w.npy", "--seed", "3"]
    assert main(["fit", *arguments, "--json"]) == 0
    ranker = RankingSVM(random_state=3).fit(codes, y)
    np.testing.assert_array_equal(np.load("w.npy"), ranker.weights_)
    facts = printed_json(capsys)
    assert facts["uniform"] == pytest.approx({name: ranker.report_[0][name] for name in ("map", "p10")})
    assert facts["learned"]["map"] > facts["uniform"]["map"]
    assert facts["blend"] == ranker.blend_


def test_triplets_of_other_queries(files, capsys):
    triplets = draw_quadruplets(files.y, 3000, query_y=files.query_y, random_state=0)[:, :3]
    np.savetxt("triplets.csv", triplets, fmt="%d", delimiter=",")
    arguments = ["--codes", "codes.npy", "--triplets", "triplets.csv", "--queries", "queries.npy"]
    assert main(["fit", *arguments, "--output", "w.json", "--json"]) == 0
    ranker = RankingSVM(random_state=0).fit_constraints(files.codes, triplets, queries=files.queries)
    np.testing.assert_array_equal(np.float32(json.loads(Path("w.json").read_text())), ranker.weights_)
    assert printed_json(capsys)["uniform"]["ndcg10"] == pytest.approx(ranker.report_[0]["ndcg10"])


def test_random_labels_give_uniform_weights(files, capsys):
    np.save("codes.npy", files.codes[:600])
    np.save("labels.npy", np.random.default_rng(0).integers(10, size=600))
    assert main(["fit", "--codes", "codes.npy", "--labels", "labels.npy", "--output", "w.npy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("nothing beat uniform weights")
    assert lines[1].split() == ["held", "out", "map", "p10"]
    assert lines[2].split()[1:] == lines[3].split()[1:]
    assert len(np.unique(np.load("w.npy"))) == 1


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("fit --codes absent.npy --labels labels.npy --output w.npy", "bitrank fit: .*No such file"),
        ("fit --codes labels.npy --labels labels.npy --output w.npy", "bitrank fit: codes must be a packed"),
        ("fit --codes codes.npy --labels query_labels.csv --output w.npy", "one label for each of the 1200"),
        ("fit --codes codes.npy --labels labels.npy --output w.pkl", "must end in .npy, .csv, .json"),
        (
            "fit --codes codes.npy --labels labels.npy --queries queries.npy --output w.npy",
            "one row for each of the 1200 codes, got 800",
        ),
    ],
)
def test_mistakes_end_with_a_message_and_no_file(files, tmp_path, command, message):
    with pytest.raises(SystemExit, match=message):
        main(command.split())
    assert not list(tmp_path.glob("w.*"))
