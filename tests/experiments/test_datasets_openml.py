"""MNIST and CIFAR-10: read from the folder, downloaded once, refused when other bytes come."""

import hashlib
import io
import json
import os
import shutil

import numpy as np
import pytest
import sklearn.datasets._openml

from experiments import datasets
from experiments.datasets import data_folder, openml

LOADERS = {"MNIST": datasets.mnist, "CIFAR10": datasets.cifar10}
every_source = pytest.mark.parametrize("name", LOADERS)


@pytest.fixture
def small(name, datasets_folder, monkeypatch):
    """A set of ten images in place of the complete one, with its own checksums, and those images."""
    complete = getattr(openml, name)
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (10, *complete.shape)).astype(np.uint8)
    labels = random.permutation(10).astype(np.uint8)
    arrays = {"x_train": images[:7], "y_train": labels[:7], "x_test": images[7:], "y_test": labels[7:]}
    sums = {key: hashlib.sha256(array.tobytes()).hexdigest() for key, array in arrays.items()}
    monkeypatch.setattr(openml, name, complete._replace(n_train=7, n_test=3, sha256=sums))
    return arrays


def serve(monkeypatch, data_id, rows, labels, cut=0):
    """OpenML's answers about one data set: its description, columns, qualities, and its rows as an ARFF file."""
    columns = [f"pixel{i}" for i in range(rows.shape[1])]
    header = [f"@ATTRIBUTE {column} real" for column in columns] + ["@ATTRIBUTE class {0,1,2,3,4,5,6,7,8,9}"]
    lines = [",".join([*map(str, row), str(label)]) for row, label in zip(rows.tolist(), labels, strict=True)]
    arff = "\n".join(["@RELATION images", *header, "@DATA", *lines, ""]).encode()
    plain = {"is_ignore": "false", "is_row_identifier": "false", "number_of_missing_values": "0"}
    features = [
        {"index": str(i), "name": column, "data_type": "numeric", "is_target": "false", **plain}
        for i, column in enumerate(columns)
    ]
    features.append({"index": str(len(columns)), "name": "class", "data_type": "nominal", "is_target": "true", **plain})
    description = {
        "id": str(data_id),
        "name": "images",
        "version": "1",
        "status": "active",
        "format": "ARFF",
        "description": "",
        "file_id": "1",
        "url": "https://api.openml.org/data/v1/download/1/images.arff",
        "md5_checksum": hashlib.md5(arff).hexdigest(),
    }
    answers = {
        f"/data/features/{data_id}": json.dumps({"data_features": {"feature": features}}).encode(),
        f"/data/qualities/{data_id}": json.dumps(
            {"data_qualities": {"quality": [{"name": "NumberOfInstances", "value": str(float(len(rows)))}]}}
        ).encode(),
        f"/json/data/{data_id}": json.dumps({"data_set_description": description}).encode(),
        "/download/1": arff[: len(arff) - cut],
    }
    asked = []

    class Answer(io.BytesIO):
        def info(self):
            return {}

    def urlopen(request, *args, **kwargs):
        asked.append(request.full_url)
        return Answer(next(body for part, body in answers.items() if part in request.full_url))

    monkeypatch.setattr(sklearn.datasets._openml, "urlopen", urlopen)
    return asked


def rows_of(arrays):
    """Rows as OpenML has them: all images, of a coloured one red first."""
    images = np.concatenate([arrays["x_train"], arrays["x_test"]])
    if images.ndim == 4:
        images = np.stack([images[..., channel] for channel in range(3)], axis=1)
    return images.reshape(len(images), -1), np.concatenate([arrays["y_train"], arrays["y_test"]])


def check_small(loaded, arrays):
    np.testing.assert_array_equal(loaded.images, np.concatenate([arrays["x_train"], arrays["x_test"]]), strict=True)
    np.testing.assert_array_equal(loaded.labels, np.concatenate([arrays["y_train"], arrays["y_test"]]), strict=True)
    assert loaded.images.flags.c_contiguous


@every_source
def test_read_from_the_folder(name, small, datasets_folder):
    np.savez(datasets_folder / getattr(openml, name).file, **small)
    check_small(LOADERS[name](), small)


@every_source
def test_downloaded_once(name, small, datasets_folder, monkeypatch):
    # Through scikit-learn's own client: only the wire is replaced.
    source = getattr(openml, name)
    asked = serve(monkeypatch, source.data_id, *rows_of(small))
    datasets_folder.rmdir()
    check_small(LOADERS[name](), small)
    assert len(asked) == 4
    assert [path.name for path in datasets_folder.iterdir()] == [source.file]
    check_small(LOADERS[name](), small)
    assert len(asked) == 4
    with np.load(datasets_folder / source.file, allow_pickle=False) as stored:
        np.testing.assert_array_equal(stored["class_names"], source.class_names)
        for key, array in small.items():
            np.testing.assert_array_equal(stored[key], array, strict=True)


@every_source
def test_other_bytes_are_refused(name, small, datasets_folder, monkeypatch):
    source = getattr(openml, name)
    rows, labels = rows_of(small)
    for wrong in ("pixel", "order"):
        other = rows.copy() if wrong == "pixel" else rows[::-1]
        other[8, 5] ^= 1
        serve(monkeypatch, source.data_id, other, labels)
        with pytest.raises(
            ValueError, match=rf"OpenML's data set {source.data_id} must be {source.title}: sha256 of x_"
        ):
            LOADERS[name]()
        assert not list(datasets_folder.iterdir())
        shutil.rmtree(os.environ["SCIKIT_LEARN_DATA"])
    small["y_test"][0] ^= 1
    np.savez(datasets_folder / source.file, **small)
    with pytest.raises(ValueError, match=rf"{source.file} \(delete it .*\) must be {source.title}: sha256 of y_test"):
        LOADERS[name]()


@every_source
@pytest.mark.parametrize("wrong", ["few", "narrow", "fractions", "large", "negative"])
def test_rows_of_another_form_are_refused(name, small, datasets_folder, monkeypatch, wrong):
    source = getattr(openml, name)
    rows, labels = rows_of(small)
    rows = {
        "few": rows[:9],
        "narrow": rows[:, :-1],
        "fractions": rows + 0.5,
        "large": rows.astype(int) + 256,
        "negative": -rows.astype(int),
    }[wrong]
    serve(monkeypatch, source.data_id, rows, labels[: len(rows)])
    with pytest.raises(ValueError, match=rf"data set {source.data_id} must be {source.title}: (10 rows|pixels)"):
        LOADERS[name]()
    assert not list(datasets_folder.iterdir())


@every_source
def test_a_download_cut_short(name, small, datasets_folder, monkeypatch):
    source = getattr(openml, name)
    serve(monkeypatch, source.data_id, *rows_of(small), cut=100)
    missing = rf"{source.title} is not at .*{source.file}, and its download .* failed: .*md5 checksum"
    with pytest.warns(RuntimeWarning, match="redownloading"), pytest.raises(FileNotFoundError, match=missing):
        LOADERS[name]()
    assert not list(datasets_folder.iterdir())


@every_source
def test_missing_and_no_network(name, datasets_folder):
    source = getattr(openml, name)
    with pytest.warns(UserWarning, match="Retrying"), pytest.raises(FileNotFoundError, match="no network in") as error:
        LOADERS[name]()
    for part in (source.title, str(datasets_folder / source.file), "BITRANK_DATA", "x_train, y_train, x_test, y_test"):
        assert part in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.slow
@every_source
def test_the_complete_sets(name):
    # Not in an empty folder: with the data of this machine, where it has any.
    source = getattr(openml, name)
    if not (data_folder() / source.file).exists():
        pytest.skip(f"the complete {source.title} is not on this machine ({source.file} in BITRANK_DATA)")
    loaded = LOADERS[name]()
    n = source.n_train + source.n_test
    assert loaded.images.shape == (n, *source.shape)
    assert loaded.labels.shape == (n,)
    assert set(np.unique(loaded.labels)) == set(range(10))
    if name == "CIFAR10":
        assert list(loaded.class_names[loaded.labels[:3]]) == ["frog", "truck", "truck"]
