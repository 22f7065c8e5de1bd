"""The digits in the package, and the sets read from a folder: what is read, refused, and said when one is missing."""

import hashlib
import io
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import urllib.error
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets._openml

from bitrank import datasets
from bitrank.datasets import openml
from bitrank.datasets.files import data_folder, read_arrays, write_arrays


def test_digits_have_a_thousand_images_a_class():
    images, labels = datasets.digits()
    assert images.shape == (10_000, 28, 28)
    assert images.dtype == labels.dtype == np.uint8
    np.testing.assert_array_equal(np.bincount(labels), np.full(10, 1000))
    assert len(np.unique(images.reshape(10_000, -1), axis=0)) == 10_000


def test_digits_are_mixed():
    _, labels = datasets.digits()
    half = np.bincount(labels[:5000])
    assert (np.abs(half - 500) < 100).all()


def test_digits_never_change():
    images, labels = datasets.digits()
    assert hashlib.sha256(images).hexdigest() == "1d80b394acbfbca2c688402a1e199c1fee7e56c9d406023d5b3beeeddc291aeb"
    assert hashlib.sha256(labels).hexdigest() == "ea0bcb4096034a17da5c8f0319ee72ee09428a44278cdfa6b6fbe3928f3de478"


def test_a_caller_may_write_without_harming_the_next():
    images, _ = datasets.digits()
    images[:] = 0
    assert datasets.digits().images.any()


def test_digits_are_images_of_mnist_with_its_labels():
    if not (data_folder() / "mnist.npz").exists():
        pytest.skip("the complete MNIST is not on this machine (mnist.npz in the folder named by BITRANK_DATA)")
    known = {(image.tobytes(), int(label)) for image, label in zip(*datasets.mnist(), strict=True)}
    ours = datasets.digits()
    assert all((image.tobytes(), int(label)) in known for image, label in zip(*ours, strict=True))


# The folder of data sets ----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder of data sets; the network answers nothing but what a test gives to it."""
    monkeypatch.setenv("BITRANK_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "scikit-learn"))
    (tmp_path / "data").mkdir()

    def refuse(request, *args, **kwargs):
        raise urllib.error.URLError("no network in tests")

    monkeypatch.setattr(sklearn.datasets._openml, "urlopen", refuse)
    monkeypatch.setattr(sklearn.datasets._openml.time, "sleep", lambda seconds: None)
    return tmp_path / "data"


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


# MNIST and CIFAR-10 ---------------------------------------------------------------------------------------------------

LOADERS = {"MNIST": datasets.mnist, "CIFAR10": datasets.cifar10}
every_source = pytest.mark.parametrize("name", LOADERS)


@pytest.fixture
def small(name, folder, monkeypatch):
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
def test_read_from_the_folder(name, small, folder):
    np.savez(folder / getattr(openml, name).file, **small)
    check_small(LOADERS[name](), small)


@every_source
def test_downloaded_once(name, small, folder, monkeypatch):
    # Through scikit-learn's own client: only the wire is replaced.
    source = getattr(openml, name)
    asked = serve(monkeypatch, source.data_id, *rows_of(small))
    folder.rmdir()
    check_small(LOADERS[name](), small)
    assert len(asked) == 4
    assert [path.name for path in folder.iterdir()] == [source.file]
    check_small(LOADERS[name](), small)
    assert len(asked) == 4
    with np.load(folder / source.file, allow_pickle=False) as stored:
        np.testing.assert_array_equal(stored["class_names"], source.class_names)
        for key, array in small.items():
            np.testing.assert_array_equal(stored[key], array, strict=True)


@every_source
def test_other_bytes_are_refused(name, small, folder, monkeypatch):
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
        assert not list(folder.iterdir())
        shutil.rmtree(os.environ["SCIKIT_LEARN_DATA"])
    small["y_test"][0] ^= 1
    np.savez(folder / source.file, **small)
    with pytest.raises(ValueError, match=rf"{source.file} \(delete it .*\) must be {source.title}: sha256 of y_test"):
        LOADERS[name]()


@every_source
@pytest.mark.parametrize("wrong", ["few", "narrow", "fractions", "large", "negative"])
def test_rows_of_another_form_are_refused(name, small, folder, monkeypatch, wrong):
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
    assert not list(folder.iterdir())


@every_source
def test_a_download_cut_short(name, small, folder, monkeypatch):
    source = getattr(openml, name)
    serve(monkeypatch, source.data_id, *rows_of(small), cut=100)
    missing = rf"{source.title} is not at .*{source.file}, and its download .* failed: .*md5 checksum"
    with pytest.warns(RuntimeWarning, match="redownloading"), pytest.raises(FileNotFoundError, match=missing):
        LOADERS[name]()
    assert not list(folder.iterdir())


@every_source
def test_missing_and_no_network(name, folder):
    source = getattr(openml, name)
    with pytest.warns(UserWarning, match="Retrying"), pytest.raises(FileNotFoundError, match="no network in") as error:
        LOADERS[name]()
    for part in (source.title, str(folder / source.file), "BITRANK_DATA", "x_train, y_train, x_test, y_test"):
        assert part in str(error.value)
    assert "\n" not in str(error.value)


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


# YouTube Faces --------------------------------------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path):
    """A small folder in the official layout, and the frames in it by name."""
    from PIL import Image

    random = np.random.default_rng(0)
    root = tmp_path / "YouTubeFaces" / "frame_images_DB"
    frames = {}

    def write(person, video, frame):
        # Smooth in space, as photographs are, so that JPEG keeps it.
        rough = random.integers(0, 256, (6, 8, 3)).astype(np.uint8)
        image = Image.fromarray(rough).resize((200, 150), Image.Resampling.BICUBIC)
        path = root / person / video / f"{video}.{frame}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, quality=95)
        frames[person, int(video), int(frame)] = np.asarray(image).astype(float)
        return rf"{person}\{video}\{video}.{frame}.jpg,0"

    lines = {
        "Zoe_Young": [
            # Ten before nine: the videos and frames are put in the order of their numbers, not of their names.
            write("Zoe_Young", "10", "7") + ",100,75,64,64,0.0,1",
            write("Zoe_Young", "9", "618") + ",60,70,32,32,0.0,1",
            write("Zoe_Young", "9", "62") + ",80,70,100,80,0.0,1",
        ],
        "Adam_Old": [
            write("Adam_Old", "0", "1") + ",10,20,64,64,0.0,1",
            *(write("Adam_Old", "0", str(frame)) + ",90,80,64,64,0.0,1" for frame in range(2, 7)),
        ],
    }
    for person, of_person in lines.items():
        (root / f"{person}.labeled_faces.txt").write_bytes("\r\n".join([*of_person, ""]).encode())
    return root, frames


def test_faces_from_the_official_folders(database):
    root, frames = database
    faces = datasets.youtube_faces(root)
    assert list(faces.class_names) == ["Adam_Old", "Zoe_Young"]
    np.testing.assert_array_equal(faces.labels, np.int32([0] * 6 + [1] * 3), strict=True)
    np.testing.assert_array_equal(faces.videos, np.int32([0] * 6 + [1, 1, 2]), strict=True)
    np.testing.assert_array_equal(faces.frames, np.int32([1, 2, 3, 4, 5, 6, 62, 618, 7]), strict=True)
    assert faces.images.shape == (9, 64, 64)
    assert faces.images.dtype == np.uint8
    weights = np.array([0.299, 0.587, 0.114])
    # Rectangles of 64 by 64 keep their pixels: centre (90, 80) is columns 58 to 121 and rows 48 to 111.
    gray = frames["Adam_Old", 0, 4] @ weights
    np.testing.assert_allclose(faces.images[3], gray[48:112, 58:122], atol=12)
    gray = frames["Zoe_Young", 10, 7] @ weights
    np.testing.assert_allclose(faces.images[8], gray[43:107, 68:132], atol=12)
    # Twice as large: each pair of pixels of the result lies about one of the frame.
    gray = frames["Zoe_Young", 9, 618] @ weights
    pairs = faces.images[7].reshape(32, 2, 32, 2).mean(axis=(1, 3))
    np.testing.assert_allclose(pairs, gray[54:86, 44:76], atol=12)
    # At the edge of the frame: columns 0 to 41 and rows 0 to 51 are what is seen; its corners are the frame's.
    gray = frames["Adam_Old", 0, 1] @ weights
    np.testing.assert_allclose(
        faces.images[0][[0, 0, -1, -1], [0, -1, 0, -1]], gray[[0, 0, 51, 51], [0, 41, 0, 41]], atol=12
    )


def test_faces_from_the_folder_above_and_from_the_folder_of_data_sets(database, folder):
    root, _ = database
    expected = datasets.youtube_faces(root)
    for other in (datasets.youtube_faces(str(root.parent)), datasets.youtube_faces(root / "..")):
        np.testing.assert_array_equal(other.images, expected.images)
    root.rename(folder / "frame_images_DB")
    np.testing.assert_array_equal(datasets.youtube_faces().images, expected.images)


def test_some_frames_of_each_video(database):
    root, _ = database
    every = datasets.youtube_faces(root)
    some = datasets.youtube_faces(root, frames_per_video=2)
    np.testing.assert_array_equal(some.frames, [1, 4, 62, 618, 7])
    np.testing.assert_array_equal(some.labels, [0, 0, 1, 1, 1])
    np.testing.assert_array_equal(some.videos, [0, 0, 1, 1, 2])
    np.testing.assert_array_equal(some.images, every.images[[0, 3, 6, 7, 8]])
    np.testing.assert_array_equal(datasets.youtube_faces(root, frames_per_video=6).frames, every.frames)


@pytest.mark.parametrize("frames_per_video", [0, -1, 2.0, "2", True], ids=str)
def test_bad_frames_per_video(database, frames_per_video):
    with pytest.raises(ValueError, match="frames_per_video must be an int of at least 1, got"):
        datasets.youtube_faces(database[0], frames_per_video=frames_per_video)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Adam_Old", r"line 7 must be person\\video"),
        (r"Adam_Old\0\0.1.jpg,0,10,20,64", r"line 7 must be person\\video"),
        (r"Adam_Old\0\0.1.jpg,0,10,20,64,wide,0.0,1", r"line 7 must be person\\video"),
        (r"Adam_Old\0\0.1.jpg,0,10,20,64,0,0.0,1", r"line 7 must be person\\video"),
        (r"Adam_Old\0\0.1.jpg,0,nan,20,64,64,0.0,1", r"line 7 must be person\\video"),
        (r"0.1.jpg,0,10,20,64,64,0.0,1", r"line 7 must be person\\video"),
        (r"Adam_Old\zero\0.1.jpg,0,10,20,64,64,0.0,1", r"line 7 must be person\\video"),
        (r"Adam_Old\0\1,0,10,20,64,64,0.0,1", r"line 7 must be person\\video"),
        (r"Adam_Old\0\0.1.jpg,0,500,20,64,64,0.0,1", r"line 7: the rectangle must meet the frame of \(200, 150\)"),
        (r"Adam_Old\0\0.99.jpg,0,10,20,64,64,0.0,1", r"line 7: .*0.99.jpg must be an image"),
    ],
    ids=range(10),
)
def test_a_bad_line_of_a_list(database, line, message):
    root, _ = database
    path = root / "Adam_Old.labeled_faces.txt"
    path.write_text(path.read_text() + line)
    with pytest.raises(ValueError, match=message) as error:
        datasets.youtube_faces(root)
    assert str(path) in str(error.value)


def test_a_damaged_frame(database):
    root, _ = database
    frame = root / "Adam_Old" / "0" / "0.3.jpg"
    content = frame.read_bytes()
    for damaged in (b"", b"not a picture", content[:100], content[: len(content) // 2]):
        frame.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"0.3.jpg must be an image, got one that cannot be read"):
            datasets.youtube_faces(root)


def test_faces_without_pillow(database, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'bitrank[images]'")):
        datasets.youtube_faces(database[0])


def test_importing_does_not_import_pillow():
    code = "import sys, bitrank.datasets; sys.exit('PIL' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_missing_faces(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="wolf/ytfaces") as error:
        datasets.youtube_faces()
    for part in (str(folder / "ytf_subset_gray64.npz"), str(folder / "frame_images_DB"), "BITRANK_DATA"):
        assert part in str(error.value)
    for wrong in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match=re.escape(f"{wrong} must be frame_images_DB of the YouTube Faces")):
            datasets.youtube_faces(wrong)


SUBSET = {
    "x": np.random.default_rng(0).integers(0, 256, (7, 64, 64)).astype(np.uint8),
    "person": np.int16([0, 0, 0, 0, 1, 1, 1]),
    "video": np.int16([0, 0, 0, 1, 2, 2, 2]),
    "frame": np.uint8([0, 1, 2, 0, 0, 1, 2]),
    "names": np.array(["Adam_Old", "Zoe_Young"]),
}


def test_faces_of_the_subset(folder):
    np.savez(folder / "ytf_subset_gray64.npz", **SUBSET)
    faces = datasets.youtube_faces()
    for got, name in zip(faces, SUBSET, strict=True):
        np.testing.assert_array_equal(got, SUBSET[name])
    assert faces.labels.dtype == faces.videos.dtype == faces.frames.dtype == np.int32
    some = datasets.youtube_faces(frames_per_video=2)
    np.testing.assert_array_equal(some.images, SUBSET["x"][[0, 1, 3, 4, 5]])
    np.testing.assert_array_equal(some.labels, [0, 0, 0, 1, 1])


@pytest.mark.parametrize("person", [2, -1])
def test_a_subset_with_a_person_without_name(folder, person):
    np.savez(folder / "ytf_subset_gray64.npz", **(SUBSET | {"person": np.int16([0, 0, 0, 0, 1, 1, person])}))
    with pytest.raises(ValueError, match=r"ytf_subset_gray64.npz must hold labels from 0 to 1"):
        datasets.youtube_faces()


def test_a_damaged_subset(folder):
    (folder / "ytf_subset_gray64.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"ytf_subset_gray64.npz must be an npz file"):
        datasets.youtube_faces()


# banking77 ------------------------------------------------------------------------------------------------------------


def sentences(**changed):
    random = np.random.default_rng(0)
    return {
        "x_train": random.normal(size=(10_003, 4)).astype(np.float16),
        "y_train": random.integers(0, 77, 10_003).astype(np.int16),
        "x_test": random.normal(size=(3_080, 4)).astype(np.float16),
        "y_test": random.integers(0, 77, 3_080).astype(np.int16),
        "class_names": np.array([f"intent {i}" for i in range(77)]),
    } | changed


def test_banking77(folder):
    arrays = sentences()
    np.savez(folder / "banking77_minilm.npz", **arrays)
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
def test_bad_banking77(folder, changed, message):
    np.savez(folder / "banking77_minilm.npz", **sentences(**changed))
    with pytest.raises(ValueError, match=message):
        datasets.banking77()


def test_missing_banking77(folder):
    with pytest.raises(FileNotFoundError, match="PolyAI-LDN/task-specific-datasets") as error:
        datasets.banking77()
    assert str(folder / "banking77_minilm.npz") in str(error.value)
