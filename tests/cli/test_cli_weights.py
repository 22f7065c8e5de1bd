"""The commands `bitrank weights show|diff|export`."""

import json

import numpy as np
import pytest

from bitrank import Index
from bitrank.cli import main


def test_show(working_folder, capsys, printed_json):
    np.save("w.npy", np.arange(8, dtype=np.float32))
    assert main(["weights", "show", "w.npy", "--json"]) == 0
    facts = printed_json()
    assert facts["weights"] == list(range(8))
    assert (facts["n_bits"], facts["min"], facts["mean"], facts["max"], facts["n_zero"]) == (8, 0, 3.5, 7, 1)
    assert main(["weights", "show", "w.npy", "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["n", "bits", "8"]
    assert [line.split()[:2] for line in lines[-2:]] == [["7", "7"], ["6", "6"]]
    assert lines[-1].count("█") == round(30 * 6 / 7)


def test_show_zeros(working_folder, capsys):
    np.save("w.npy", np.zeros(2, np.float32))
    assert main(["weights", "show", "w.npy"]) == 0
    assert "█" not in capsys.readouterr().out


def test_diff(working_folder, capsys, printed_json):
    np.save("a.npy", np.float32([1, 1, 1, 1]))
    np.save("b.npy", np.float32([4, 2, 2, 0]))
    assert main(["weights", "diff", "a.npy", "b.npy", "--top", "2", "--json"]) == 0
    facts = printed_json()
    assert facts["bits"] == [{"bit": 0, "before": 1, "after": 2}, {"bit": 3, "before": 1, "after": 0}]
    assert facts["mean_change"] == 0.5
    assert main(["weights", "diff", "a.npy", "a.npy"]) == 0
    assert "cosine              1" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["w.npy", "w.csv", "w.json"])
def test_export_of_an_index(working_folder, capsys, name, printed_json):
    rng = np.random.default_rng(0)
    weights = rng.random(32).astype(np.float32)
    Index(rng.integers(0, 256, (9, 4), dtype=np.uint8), weights=weights).save("codes.index")
    assert main(["weights", "export", "codes.index", name]) == 0
    assert capsys.readouterr().out == f"32 weights: {name}\n"
    assert main(["weights", "diff", "codes.index", name, "--json"]) == 0
    assert printed_json()["max_change"] == 0


def test_export_of_a_version_on_a_service(working_folder, loopback_service, monkeypatch):
    loopback_service.token = "secret"
    with pytest.raises(SystemExit, match=r"bitrank weights: .*401"):
        main(["weights", "show", loopback_service.version])
    monkeypatch.setenv("BITRANK_TOKEN", "secret")
    assert main(["weights", "export", loopback_service.version, "w.json"]) == 0
    assert json.loads((working_folder / "w.json").read_text()) == loopback_service.weights


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("show absent.json", "bitrank weights: .*No such file"),
        ("diff three.json four.json", "same number of bits, got 3 and 4"),
        ("export three.json w.txt", "must end in .npy, .csv, .json"),
    ],
)
def test_mistakes_end_with_a_message(working_folder, command, message):
    for n, name in ((3, "three.json"), (4, "four.json")):
        (working_folder / name).write_text(json.dumps([1.0] * n))
    with pytest.raises(SystemExit, match=message):
        main(["weights", *command.split()])
