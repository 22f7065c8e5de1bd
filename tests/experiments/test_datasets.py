"""The folder of data sets, the files in it, and banking77."""

import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from bitrank.datasets import digits
from experiments import datasets
from experiments.datasets.files import data_folder, read_arrays, write_arrays


def test_digits_are_images_of_mnist_with_its_labels():
    if not (data_folder() / "mnist.npz").exists():
        pytest.skip("the complete MNIST is not on this machine (mnist.npz in the folder named by BITRANK_DATA)")
    known = {(image.tobytes(), int(label)) for image, label in zip(*datasets.mnist(), strict=True)}
    ours = digits()
    assert all((image.tobytes(), int(label)) in known for image, label in zip(*ours, strict=True))


def test_the_default_folder(monkeypatch):
    for value in (None, ""):
        if value is None:
            monkeypatch.delenv("BITRANK_DATA", raising=False)
        else:
            monkeypatch.setenv("BITRANK_DATA", value)
        assert data_folder() == Path.home() / ".cache" / "bitrank"
    monkeypatch.setenv("BITRANK_DATA", "~/elsewhere")
    assert data_folder() == Path.home() / "elsewhere"


FORMS = {"x": (np.uint8, ("n", 2)), "y": (np.integer, ("n",)), "names": (np.str_, ("classes",))}
GOOD = {"x": np.zeros((3, 2), np.uint8), "y": np.arange(3), "names": np.array(["a", "b"])}


def test_an_npz_is_written_and_read(tmp_path):
    write_arrays(tmp_path / "set.npz", GOOD | {"more": np.zeros(1)})
    arrays = read_arrays(tmp_path / "set.npz", FORMS)
    assert arrays.keys() == GOOD.keys()
    for name, array in GOOD.items():
        np.testing.assert_array_equal(arrays[name], array, strict=True)
    assert [path.name for path in tmp_path.iterdir()] == ["set.npz"]


def test_a_write_that_fails_leaves_nothing(tmp_path):
    (tmp_path / "set.npz").mkdir()
    with pytest.raises(OSError, match=r"set\.npz"):
        write_arrays(tmp_path / "set.npz", GOOD)
    assert [path.name for path in tmp_path.iterdir()] == ["set.npz"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": np.zeros((3, 2))}, r"x as uint8 of shape \(3, 2\), got float64 of shape \(3, 2\)"),
        ({"x": np.zeros((3, 3), np.uint8)}, r"x as uint8 of shape \(3, 2\), got uint8 of shape \(3, 3\)"),
        ({"x": np.zeros(3, np.uint8)}, r"x as uint8 of shape \(3, 2\), got uint8 of shape \(3,\)"),
        ({"y": np.arange(4)}, r"y as integer of shape \(3,\), got int64 of shape \(4,\)"),
        ({"y": np.array(3)}, r"y as integer of shape \(3,\), got int64 of shape \(\)"),
        ({"names": np.array([b"a"])}, r"names as str_ of shape \(1,\), got \|S1"),
        ({"y": None}, "must hold x, y, names, got none named y"),
        ({"y": np.array([1, "a", None], object)}, "cannot be read: Object arrays cannot be loaded"),
    ],
    ids=range(8),
)
def test_an_npz_of_another_form(tmp_path, changed, message):
    arrays = {name: array for name, array in (GOOD | changed).items() if array is not None}
    np.savez(tmp_path / "set.npz", **arrays)
    with pytest.raises(ValueError, match=message) as error:
        read_arrays(tmp_path / "set.npz", FORMS)
    assert str(tmp_path / "set.npz") in str(error.value)


def test_a_damaged_npz(tmp_path):
    path = tmp_path / "set.npz"
    write_arrays(path, GOOD)
    whole = path.read_bytes()
    damaged = [
        b"",
        b"not an npz",
        whole[:100],
        whole[:-30],
        whole.replace(b"\x02\x00\x00\x00\x00\x00\x00\x00", b"\x07" * 8),
    ]
    for content in [*damaged, pickle.dumps([1])]:
        assert content != whole
        path.write_bytes(content)
        with pytest.raises(ValueError, match=re.escape(f"{path} must be an npz file of plain arrays")):
            read_arrays(path, FORMS)
    np.save(tmp_path / "set.npy", GOOD["x"])
    path.write_bytes((tmp_path / "set.npy").read_bytes())
    with pytest.raises(ValueError, match=re.escape(f"{path} must be an npz file of plain arrays")):
        read_arrays(path, FORMS)


def sentences(**changed):
    random = np.random.default_rng(0)
    return {
        "x_train": random.normal(size=(10_003, 4)).astype(np.float16),
        "y_train": random.integers(0, 77, 10_003).astype(np.int16),
        "x_test": random.normal(size=(3_080, 4)).astype(np.float16),
        "y_test": random.integers(0, 77, 3_080).astype(np.int16),
        "class_names": np.array([f"intent {i}" for i in range(77)]),
    } | changed


def test_banking77(datasets_folder):
    arrays = sentences()
    np.savez(datasets_folder / "banking77_minilm.npz", **arrays)
    vectors, labels, class_names = datasets.banking77()
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, np.concatenate([arrays["x_train"], arrays["x_test"]]))
    np.testing.assert_array_equal(labels, np.concatenate([arrays["y_train"], arrays["y_test"]]))
    np.testing.assert_array_equal(class_names, arrays["class_names"])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x_test": np.zeros((3_080, 5), np.float16)}, r"x_test as floating of shape \(3080, 4\)"),
        ({"y_test": np.full(3_080, 77)}, "labels from 0 to 76"),
        ({"x_test": np.full((3_080, 4), np.nan)}, "finite vectors"),
    ],
    ids=range(3),
)
def test_bad_banking77(datasets_folder, changed, message):
    np.savez(datasets_folder / "banking77_minilm.npz", **sentences(**changed))
    with pytest.raises(ValueError, match=message):
        datasets.banking77()


def test_missing_banking77(datasets_folder):
    with pytest.raises(FileNotFoundError, match="PolyAI-LDN/task-specific-datasets") as error:
        datasets.banking77()
    assert str(datasets_folder / "banking77_minilm.npz") in str(error.value)
