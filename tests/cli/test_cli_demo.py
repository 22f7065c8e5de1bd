"""The demonstration on a few digits, and on all of them: its table, its report and its pictures."""

import sys

import numpy as np
import pytest

from bitrank import ITQ
from bitrank.cli import demo, main
from bitrank.core import metrics
from bitrank.core.codes import hamming
from bitrank.datasets import digits

ALL_DIGITS = pytest.param(10_000, marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=[800, ALL_DIGITS])
def demo_run(tmp_path_factory, request):
    """The split, the folder of the pictures, and the rows of the table by name, which `bitrank demo` has drawn."""
    pytest.importorskip("matplotlib")
    images, labels = digits()
    folder = tmp_path_factory.mktemp("demo") / "made" / "by the demo"
    folder.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "digits", lambda: (images[: request.param], labels[: request.param]))
        if request.param < len(images):
            fast = ("Hamming", "asymmetric", "WhRank", "RankingSVM")
            patch.setattr(demo, "RANKINGS", {name: demo.RANKINGS[name] for name in fast})
        split = demo.split_digits()
        rows, report = demo.rank_digits(split)
        demo.draw_curves(rows, folder / demo.CURVES)
        demo.draw_top_ten(split, rows[0], rows[-1], folder / demo.TOP_TEN)
        return split, folder, {row.name: row for row in rows}, report


def test_one_row_per_ranking(demo_run):
    _, _, rows, report = demo_run
    assert list(rows) == list(demo.RANKINGS)[: len(rows)]
    assert len(rows) in (4, 7)
    assert all(0 <= value <= 1 for row in rows.values() for value in row[1:4])
    assert "learned from labels in" in report


def test_plain_hamming_against_its_definition(demo_run):
    split, _, rows, _ = demo_run
    X, Q = (images.reshape(len(images), -1) / np.float32(255) for images in (split.images, split.queries))
    hasher = ITQ(n_bits=64, random_state=0).fit(X)
    distances = hamming(hasher.transform(Q), hasher.transform(X))
    expected = metrics.evaluate(distances, split.wanted[:, None] == split.labels)
    ties = np.mean([np.mean([(row == value).sum() > 1 for value in np.sort(row)[:100]]) for row in distances])
    assert rows["Hamming"][1:4] == pytest.approx((expected["map"], expected["p10"], ties), abs=6e-4)
    first = np.take_along_axis(distances, rows["Hamming"].first, axis=1)
    np.testing.assert_array_equal(first, np.sort(distances, axis=1)[:, :10])


@pytest.mark.parametrize("demo_run", [ALL_DIGITS], indirect=True)
def test_learned_rankings_beat_hamming(demo_run):
    _, _, rows, report = demo_run
    for name in ("RankingSVM", "OnlineRankingSVM", "QueryAdaptiveRanker", "QueryVectorRanker"):
        assert rows[name].map > rows["Hamming"].map
        assert rows[name].ties100 < rows["Hamming"].ties100
    assert "QueryVectorRanker learned from labels" in report


def test_pictures(demo_run):
    image_of = pytest.importorskip("matplotlib.image")
    for name in (demo.CURVES, demo.TOP_TEN):
        image = image_of.imread(demo_run[1] / name)
        assert min(image.shape[:2]) > 300
        assert len(np.unique(image)) > 50


def test_split():
    split = demo.split_digits()
    assert min(np.bincount(split.labels)) > 400
    assert min(np.bincount(split.wanted)) > 30
    items = {image.tobytes() for image in split.images}
    assert not any(image.tobytes() in items for image in split.queries)


def test_table_report_and_pictures_are_printed(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    curve = np.ones(5), np.ones(5)
    first = np.zeros((500, 10), int)
    rows = [
        demo.Row("Hamming", 0.25, 0.5, 1.0, curve, first),
        demo.Row("QueryVectorRanker", 0.75, 0.875, 0, curve, first),
    ]
    monkeypatch.setattr(demo, "rank_digits", lambda split: (rows, "what is in use"))
    assert main(["demo", "--output", str(tmp_path / "made" / "here")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[3:5]] == [
        ["Hamming", "0.250", "0.500", "100.0%"],
        ["QueryVectorRanker", "0.750", "0.875", "0.0%"],
    ]
    assert lines[-4] == "what is in use"
    assert lines[-2:] == [f"picture: {tmp_path / 'made' / 'here' / name}" for name in (demo.CURVES, demo.TOP_TEN)]


def test_a_missing_extra_names_the_command_that_installs_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit, match=r"bitrank demo: .*pip install 'bitrank\[demo\]'"):
        main(["demo", "--output", str(tmp_path / "none")])
    assert not (tmp_path / "none").exists()
