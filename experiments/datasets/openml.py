"""The complete MNIST and CIFAR-10, from the folder of data sets or from OpenML, verified by checksums."""

from __future__ import annotations

import hashlib
import http.client
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bitrank.datasets import Digits
from experiments.datasets.files import Arrays, Forms, data_folder, read_arrays, write_arrays

Bytes = npt.NDArray[np.uint8]


class Pictures(NamedTuple):
    """Colour images and their labels, one row per image; and the names of the classes.

    Examples
    --------
    >>> pictures = Pictures(np.zeros((1, 32, 32, 3), np.uint8), np.uint8([1]), np.array(["cat", "dog"]))
    >>> pictures.class_names[pictures.labels]
    array(['dog'], dtype='<U3')
    """

    images: Bytes
    labels: Bytes
    class_names: npt.NDArray[np.str_]


class Source(NamedTuple):
    """A set of images: its file, its number at OpenML, its sizes and the checksums of its arrays."""

    title: str
    file: str
    data_id: int
    n_train: int
    n_test: int
    shape: tuple[int, ...]
    class_names: tuple[str, ...]
    sha256: dict[str, str]

    @property
    def forms(self) -> Forms:
        """Arrays of the file."""
        return {
            "x_train": (np.uint8, (self.n_train, *self.shape)),
            "y_train": (np.uint8, (self.n_train,)),
            "x_test": (np.uint8, (self.n_test, *self.shape)),
            "y_test": (np.uint8, (self.n_test,)),
        }


MNIST = Source(
    title="MNIST",
    file="mnist.npz",
    data_id=554,
    n_train=60_000,
    n_test=10_000,
    shape=(28, 28),
    class_names=tuple("0123456789"),
    sha256={
        "x_train": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
        "y_train": "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
        "x_test": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
        "y_test": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
    },
)
CIFAR10 = Source(
    title="CIFAR-10",
    file="cifar10.npz",
    data_id=40927,
    n_train=50_000,
    n_test=10_000,
    shape=(32, 32, 3),
    class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    sha256={
        "x_train": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
        "y_train": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
        "x_test": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        "y_test": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    },
)


def mnist() -> Digits:
    """Load the 70 000 handwritten digits of MNIST: 60 000 of the training set, then 10 000 of the test set.

    They are read from mnist.npz in the folder of data sets. The first call downloads a missing file from OpenML
    (`mnist_784`) through scikit-learn, in about a minute. The download was tested with local files in OpenML's format
    only.

    Returns
    -------
    images, labels : as in `digits`, 70 000 of them

    Raises
    ------
    FileNotFoundError
        If the file is missing and cannot be downloaded.
    ValueError
        If the file is damaged or does not hold the bytes of MNIST.

    References
    ----------
    Y. LeCun, C. Cortes, C. J. C. Burges: The MNIST database of handwritten digits.

    Examples
    --------
    >>> images, labels = mnist()  # doctest: +SKIP
    >>> images.shape, labels[:8]  # doctest: +SKIP
    ((70000, 28, 28), array([5, 0, 4, 1, 9, 2, 1, 3], dtype=uint8))
    """
    return Digits(*_load(MNIST))


def cifar10() -> Pictures:
    """Load the 60 000 colour images of CIFAR-10: 50 000 of the training set, then 10 000 of the test set.

    They are read from cifar10.npz and downloaded as by `mnist`, from `CIFAR_10`, in some minutes and 4 GB of memory.

    Returns
    -------
    images : uint8 array of shape (60000, 32, 32, 3)
        Red, green and blue.
    labels : uint8 array of shape (60000,)
    class_names : str array of shape (10,)

    Errors are those of `mnist`.

    References
    ----------
    A. Krizhevsky: Learning multiple layers of features from tiny images, 2009.

    Examples
    --------
    >>> images, labels, class_names = cifar10()  # doctest: +SKIP
    >>> images.shape, class_names[labels[:3]]  # doctest: +SKIP
    ((60000, 32, 32, 3), array(['frog', 'truck', 'truck'], dtype='<U10'))
    """
    return Pictures(*_load(CIFAR10), np.array(CIFAR10.class_names))


def _load(source: Source) -> tuple[Bytes, Bytes]:
    path = data_folder() / source.file
    if path.exists():
        arrays = read_arrays(path, source.forms)
        _check_bytes(source, arrays, f"{path} (delete it to download it again)")
    else:
        origin = f"OpenML's data set {source.data_id}"
        arrays = _arrays(source, *_download(source, path), origin)
        _check_bytes(source, arrays, origin)
        write_arrays(path, arrays | {"class_names": np.array(source.class_names)})
    images = np.concatenate([arrays["x_train"], arrays["x_test"]])
    return images, np.concatenate([arrays["y_train"], arrays["y_test"]])


def _download(source: Source, path: Path) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    # Fail before the download if the folder cannot be written.
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        from sklearn.datasets import fetch_openml  # slow to import

        # The parser liac-arff needs no pandas.
        bunch = fetch_openml(data_id=source.data_id, as_frame=False, parser="liac-arff")
    except (OSError, ValueError, EOFError, http.client.HTTPException, zlib.error) as error:
        raise FileNotFoundError(
            f"{source.title} is not at {path}, and its download from OpenML (data set {source.data_id}) failed: "
            f"{error}. Connect to the network and call again, or put {source.file} there (arrays "
            f"{', '.join(source.forms)}); the environment variable BITRANK_DATA names the folder"
        ) from error
    return bunch.data, bunch.target


def _arrays(source: Source, data: npt.NDArray[Any], target: npt.NDArray[Any], origin: str) -> Arrays:
    """Arrays of the file, from rows of numbers and labels as strings: the training set first."""
    n_images, n_pixels = source.n_train + source.n_test, int(np.prod(source.shape))
    if data.shape != (n_images, n_pixels) or target.shape != (n_images,):
        raise ValueError(
            f"{origin} must be {source.title}: {n_images} rows of {n_pixels} pixels, got shape {data.shape} "
            f"with labels of shape {target.shape}"
        )
    with np.errstate(invalid="ignore"):
        images, labels = data.astype(np.uint8), target.astype(np.uint8)
    if not (images == data).all():
        raise ValueError(f"{origin} must be {source.title}: pixels that are whole numbers from 0 to 255, got others")
    if len(source.shape) == 3:
        # A row holds all red values, then green, then blue.
        height, width, channels = source.shape
        images = images.reshape(n_images, channels, height, width).transpose(0, 2, 3, 1)
    images = np.ascontiguousarray(images).reshape(n_images, *source.shape)
    train, test = slice(source.n_train), slice(source.n_train, None)
    return {"x_train": images[train], "y_train": labels[train], "x_test": images[test], "y_test": labels[test]}


def _check_bytes(source: Source, arrays: Arrays, origin: str) -> None:
    for name, expected in source.sha256.items():
        got = hashlib.sha256(np.ascontiguousarray(arrays[name]).data).hexdigest()
        if got != expected:
            raise ValueError(f"{origin} must be {source.title}: sha256 of {name} must be {expected}, got {got}")
