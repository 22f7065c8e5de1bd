"""YouTube Faces: frames of videos, cropped to the face, from the official folders or from a subset in one file."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.core.checks import check_count
from bitrank.core.lazy import import_extra
from experiments.datasets.files import Forms, check_class_numbers, data_folder, read_arrays

SIDE = 64
FILE = "ytf_subset_gray64.npz"
FOLDER = "frame_images_DB"
LIST = ".labeled_faces.txt"

_FORMS: Forms = {
    "x": (np.uint8, ("n", SIDE, SIDE)),
    "person": (np.integer, ("n",)),
    "video": (np.integer, ("n",)),
    "frame": (np.integer, ("n",)),
    "names": (np.str_, ("people",)),
}


class Faces(NamedTuple):
    """Images of faces with the person, video and frame of each, one row per image; and the names of the people.

    Examples
    --------
    >>> ones = np.ones(1, np.int32)
    >>> faces = Faces(np.zeros((1, 64, 64), np.uint8), ones, ones, ones, np.array(["Ada", "Grace"]))
    >>> faces.class_names[faces.labels]
    array(['Grace'], dtype='<U5')
    """

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int32]
    videos: npt.NDArray[np.int32]
    frames: npt.NDArray[np.int32]
    class_names: npt.NDArray[np.str_]


class _Face(NamedTuple):
    """A line of a list: its file and number, the path, video and frame that it names, and the rectangle of the face."""

    line: str
    path: Path
    video: int
    frame: int
    box: tuple[float, float, float, float]


def youtube_faces(folder: str | os.PathLike[str] | None = None, *, frames_per_video: int | None = None) -> Faces:
    """Load the faces of the YouTube Faces database, in gray, 64 by 64 pixels.

    In the official folders, the lists of the database give the rectangle of each face, which is cropped, converted to
    gray and resized with Pillow (``pip install 'bitrank[images]'``). The complete database has 621 126 frames, 2.5 GB
    as returned: `frames_per_video` takes fewer.

    Parameters
    ----------
    folder : path, optional
        The database's `frame_images_DB`, or the folder that holds it. By default ytf_subset_gray64.npz in the folder
        of data sets or, where that is missing, `frame_images_DB` in it.
    frames_per_video : int, optional
        At most this many per video, evenly spaced; all by default.

    Returns
    -------
    images : uint8 array of shape (n, 64, 64)
    labels : int32 array of shape (n,)
        The person, as a row number of `class_names`.
    videos : int32 array of shape (n,)
        Numbered over all people.
    frames : int32 array of shape (n,)
        Number of the frame in its video; in the subset, numbers that do not follow the order in time.
    class_names : str array of shape (n_people,)

    Raises
    ------
    FileNotFoundError
        If the database is missing.
    ValueError
        If one of its files is damaged or has another format.

    References
    ----------
    L. Wolf, T. Hassner, I. Maoz: Face recognition in unconstrained videos with matched background similarity, CVPR
    2011.

    Examples
    --------
    >>> faces = youtube_faces("YouTubeFaces/frame_images_DB", frames_per_video=5)  # doctest: +SKIP
    >>> faces.images.shape, faces.class_names[faces.labels[0]]  # doctest: +SKIP
    ((17125, 64, 64), 'Aaron_Eckhart')
    """
    if frames_per_video is not None:
        check_count("frames_per_video", frames_per_video, 1)
    file, default = data_folder() / FILE, data_folder() / FOLDER
    if folder is not None:
        return _from_folder(Path(folder), frames_per_video)
    if file.exists():
        return _from_file(file, frames_per_video)
    if default.exists():
        return _from_folder(default, frames_per_video)
    raise FileNotFoundError(
        f"YouTube Faces is neither at {file} nor at {default}. Ask for the database at "
        f"https://www.cs.tau.ac.il/~wolf/ytfaces/, and call youtube_faces with the path of its {FOLDER}, or put that "
        f"there; the environment variable BITRANK_DATA names the folder"
    )


def _from_file(path: Path, frames_per_video: int | None) -> Faces:
    arrays = read_arrays(path, _FORMS)
    check_class_numbers(path, arrays["person"], len(arrays["names"]))
    rows = _thin(arrays["video"], frames_per_video)
    labels, videos, frames = (arrays[name][rows].astype(np.int32) for name in ("person", "video", "frame"))
    return Faces(arrays["x"][rows], labels, videos, frames, arrays["names"])


def _from_folder(folder: Path, frames_per_video: int | None) -> Faces:
    if (folder / FOLDER).is_dir():
        folder = folder / FOLDER
    lists = sorted(folder.glob(f"*{LIST}"))
    if not lists:
        raise FileNotFoundError(
            f"{folder} must be {FOLDER} of the YouTube Faces database, with a list <person>{LIST} for each person, "
            f"got none"
        )
    faces, labels = [], []
    for label, path in enumerate(lists):
        of_person = sorted(_read_list(path), key=lambda face: (face.video, face.frame))
        faces += of_person
        labels += [label] * len(of_person)
    pairs = [(label, face.video) for label, face in zip(labels, faces, strict=True)]
    numbers = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
    videos = np.array([numbers[pair] for pair in pairs], np.int32)
    rows = _thin(videos, frames_per_video)
    images = np.empty((len(rows), SIDE, SIDE), np.uint8)
    for image, row in zip(images, rows, strict=True):
        image[:] = _cut(faces[row])
    return Faces(
        images,
        np.array(labels, np.int32)[rows],
        videos[rows],
        np.array([face.frame for face in faces], np.int32)[rows],
        np.array([path.name.removesuffix(LIST) for path in lists]),
    )


def _read_list(path: Path) -> Iterator[_Face]:
    r"""Faces of a person, from lines ``person\video\video.frame.jpg,-,x,y,width,height,-,-`` with the centre x, y."""
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not text.strip():
            continue
        line = f"{path}, line {number}"
        try:
            name, _, *box = text.split(",")[:6]
            person, video, file = name.strip().replace("\\", "/").split("/")
            x, y, width, height = (float(value) for value in box)
            if not (width > 0 and height > 0 and math.isfinite(x + y + width + height)):
                raise ValueError("an empty rectangle")
            corners = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            yield _Face(line, path.parent / person / video / file, int(video), int(file.split(".")[-2]), corners)
        except (ValueError, IndexError) as error:
            raise ValueError(
                rf"{line} must be person\video\video.frame.jpg,-,x,y,width,height,-,-, got {text!r}"
            ) from error


def _cut(face: _Face) -> npt.NDArray[np.uint8]:
    Image = import_extra("PIL.Image", "images")
    try:
        with Image.open(face.path) as opened:
            frame = opened.convert("L")
    except (OSError, SyntaxError) as error:
        raise ValueError(f"{face.line}: {face.path} must be an image, got one that cannot be read: {error}") from error
    # Crop a face at the edge to the frame.
    left, top = max(face.box[0], 0), max(face.box[1], 0)
    right, bottom = min(face.box[2], frame.width), min(face.box[3], frame.height)
    if left >= right or top >= bottom:
        raise ValueError(f"{face.line}: the rectangle must meet the frame of {frame.size} pixels, got {face.box}")
    resized = frame.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=(left, top, right, bottom))
    return np.asarray(resized)


def _thin(videos: npt.NDArray[Any], frames_per_video: int | None) -> npt.NDArray[np.intp]:
    """Rows to keep: up to `frames_per_video` per video, evenly spaced."""
    if frames_per_video is None:
        return np.arange(len(videos))
    kept = np.zeros(len(videos), bool)
    for video in np.unique(videos):
        rows = np.flatnonzero(videos == video)
        kept[rows[np.arange(frames_per_video) * len(rows) // frames_per_video]] = True
    return np.flatnonzero(kept)
