"""The demonstration on a few digits, and on all of them: its table and its pictures."""

from functools import partial

import numpy as np
import pytest

from bitrank import ITQ, QueryVectorRanker, demo
from bitrank.core import metrics
from bitrank.core.codes import hamming, unpack
from bitrank.datasets import digits

matplotlib_image = pytest.importorskip("matplotlib.image", reason="matplotlib is an extra")


ALL_DIGITS = pytest.param(10_000, marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=[500, ALL_DIGITS])
def demo_run(tmp_path_factory, request):
    """The split, the folder of the pictures, and the rows of the table by ranker."""
    images, labels = digits()
    folder = tmp_path_factory.mktemp("demo") / "made" / "by the demo"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "digits", lambda: (images[: request.param], labels[: request.param]))
        if request.param < len(images):
            patch.setattr(demo, "QueryVectorRanker", partial(QueryVectorRanker, n_steps=20))
        return demo.split_digits(), folder, {row.ranker: row for row in demo.run_demo(folder)}


def test_one_row_per_ranker(demo_run):
    _, _, rows = demo_run
    assert list(rows) == ["Hamming", "WhRank", "asymmetric", "RankingSVM", "online", "query-adaptive", "query vector"]
    assert all(0 <= value <= 1 for row in rows.values() for value in row[1:])


def test_plain_hamming_against_its_definition(demo_run):
    split, _, rows = demo_run
    X, items = (images.reshape(len(images), -1) / np.float32(255) for images in (split.train_images, split.images))
    codes = ITQ(n_bits=64, random_state=0).fit(X).transform(items)
    distances = hamming(codes[split.queries], codes)
    first = (unpack(codes[split.queries[:1]], 64) != unpack(codes, 64)).sum(axis=1)
    np.testing.assert_array_equal(distances[0], first)
    relevant = split.labels[split.queries][:, None] == split.labels
    expected = metrics.evaluate(distances, relevant)
    ties = np.mean([np.mean([(row == value).sum() > 1 for value in np.sort(row)[:100]]) for row in distances])
    assert rows["Hamming"][1:] == pytest.approx((expected["map"], expected["p10"], ties), abs=6e-4)


@pytest.mark.parametrize("demo_run", [ALL_DIGITS], indirect=True)
def test_learned_rankers_beat_hamming(demo_run):
    _, _, rows = demo_run
    for ranker in ("RankingSVM", "online", "query-adaptive", "query vector"):
        assert rows[ranker].map > rows["Hamming"].map
        assert rows[ranker].ties100 < rows["Hamming"].ties100


def test_pictures(demo_run):
    _, folder, _ = demo_run
    for name in (demo.CURVES, demo.TOP_TEN):
        image = matplotlib_image.imread(folder / name)
        assert min(image.shape[:2]) > 300
        assert len(np.unique(image)) > 50


def test_split():
    split = demo.split_digits()
    np.testing.assert_array_equal(np.bincount(split.train_labels), np.full(10, 500))
    np.testing.assert_array_equal(np.bincount(split.labels), np.full(10, 500))
    np.testing.assert_array_equal(np.bincount(split.labels[split.queries]), np.full(10, 50))
    training_images = {image.tobytes() for image in split.train_images}
    assert not any(image.tobytes() in training_images for image in split.images)
