"""The commands as a user types them; the demo runs once, for real, and its table and pictures are examined."""

import contextlib
import io
import sys

import numpy as np
import pytest
from matplotlib.image import imread

import bitrank
from bitrank import demo, metrics
from bitrank.cli import main
from bitrank.codes import hamming, unpack


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "made" / "by the command"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(["demo", "--output", str(folder)]) == 0
    return folder, printed.getvalue()


def table(printed):
    """The rows of the printed table: name to numbers, ties as a share."""
    lines = printed.splitlines()
    header = next(number for number, line in enumerate(lines) if line.startswith("ranker"))
    rows = {}
    for line in lines[header + 1 : lines.index("", header)]:
        name, mean, p10, ties = line.rsplit(maxsplit=3)
        rows[name] = (float(mean), float(p10), float(ties.removesuffix("%")) / 100)
    return rows


def test_demo_prints_one_row_a_ranker(demo_run):
    rows = table(demo_run[1])
    assert list(rows) == ["Hamming", "WhRank", "asymmetric", "RankingSVM", "online", "query-adaptive", "query vector"]
    assert all(0 <= value <= 1 for row in rows.values() for value in row)


def test_demo_measures_plain_hamming_as_computed_here(demo_run):
    split = demo.split_digits()
    X = split.train_images.reshape(5000, -1) / np.float32(255)
    codes = bitrank.ITQ(n_bits=64, random_state=0).fit(X).transform(split.images.reshape(5000, -1) / np.float32(255))
    found = hamming(codes[split.queries], codes)
    np.testing.assert_array_equal(found[0], (unpack(codes[split.queries[:1]], 64) != unpack(codes, 64)).sum(axis=1))
    relevant = split.labels[split.queries][:, None] == split.labels
    want = metrics.evaluate(found, relevant)
    ties = np.mean([np.mean([(row == value).sum() > 1 for value in np.sort(row)[:100]]) for row in found])
    assert table(demo_run[1])["Hamming"] == pytest.approx((want["map"], want["p10"], ties), abs=6e-4)


def test_demo_shows_that_weights_help(demo_run):
    rows = table(demo_run[1])
    for ranker in ("RankingSVM", "online", "query-adaptive", "query vector"):
        assert rows[ranker][0] > rows["Hamming"][0]
        assert rows[ranker][2] < rows["Hamming"][2]


def test_demo_says_where_its_pictures_are(demo_run):
    folder, printed = demo_run
    for name in (demo.CURVES, demo.TOP_TEN):
        assert str(folder / name) in printed
        image = imread(folder / name)
        assert min(image.shape[:2]) > 300
        assert len(np.unique(image)) > 50


def test_split_is_half_and_half_with_a_tenth_as_queries():
    split = demo.split_digits()
    np.testing.assert_array_equal(np.bincount(split.train_labels), np.full(10, 500))
    np.testing.assert_array_equal(np.bincount(split.labels), np.full(10, 500))
    np.testing.assert_array_equal(np.bincount(split.labels[split.queries]), np.full(10, 50))
    ours = {image.tobytes() for image in split.train_images}
    assert not any(image.tobytes() in ours for image in split.images)


def test_missing_extra_names_the_command_that_installs_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["demo", "--output", str(tmp_path / "none")]) == 1
    assert "pip install 'bitrank[demo]'" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"bitrank {bitrank.__version__}\n"


def test_no_command_prints_help_and_fails(capsys):
    assert main([]) == 2
    assert "demo" in capsys.readouterr().out


def test_unknown_command_is_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["dance"])
    assert stop.value.code == 2
    assert "dance" in capsys.readouterr().err
