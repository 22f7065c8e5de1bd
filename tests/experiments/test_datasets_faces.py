"""YouTube Faces: the official folders and the subset in one file."""

import re
import subprocess
import sys

import numpy as np
import pytest

from experiments import datasets


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


def test_faces_from_the_folder_above_and_from_the_folder_of_data_sets(database, datasets_folder):
    root, _ = database
    expected = datasets.youtube_faces(root)
    for other in (datasets.youtube_faces(str(root.parent)), datasets.youtube_faces(root / "..")):
        np.testing.assert_array_equal(other.images, expected.images)
    root.rename(datasets_folder / "frame_images_DB")
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
    code = "import sys, experiments.datasets; sys.exit('PIL' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_missing_faces(datasets_folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="wolf/ytfaces") as error:
        datasets.youtube_faces()
    for part in (
        str(datasets_folder / "ytf_subset_gray64.npz"),
        str(datasets_folder / "frame_images_DB"),
        "BITRANK_DATA",
    ):
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


def test_faces_of_the_subset(datasets_folder):
    np.savez(datasets_folder / "ytf_subset_gray64.npz", **SUBSET)
    faces = datasets.youtube_faces()
    for got, name in zip(faces, SUBSET, strict=True):
        np.testing.assert_array_equal(got, SUBSET[name])
    assert faces.labels.dtype == faces.videos.dtype == faces.frames.dtype == np.int32
    some = datasets.youtube_faces(frames_per_video=2)
    np.testing.assert_array_equal(some.images, SUBSET["x"][[0, 1, 3, 4, 5]])
    np.testing.assert_array_equal(some.labels, [0, 0, 0, 1, 1])


@pytest.mark.parametrize("person", [2, -1])
def test_a_subset_with_a_person_without_name(datasets_folder, person):
    np.savez(datasets_folder / "ytf_subset_gray64.npz", **(SUBSET | {"person": np.int16([0, 0, 0, 0, 1, 1, person])}))
    with pytest.raises(ValueError, match=r"ytf_subset_gray64.npz must hold labels from 0 to 1"):
        datasets.youtube_faces()


def test_a_damaged_subset(datasets_folder):
    (datasets_folder / "ytf_subset_gray64.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"ytf_subset_gray64.npz must be an npz file"):
        datasets.youtube_faces()
