"""The digits in the package: their form, their exact bytes, and that they are MNIST's."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from bitrank import datasets


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
    path = Path(os.environ.get("BITRANK_DATA", "~/.cache/bitrank")).expanduser() / "mnist.npz"
    if not path.exists():
        pytest.skip("the complete MNIST is not on this machine (mnist.npz in the folder named by BITRANK_DATA)")
    with np.load(path, allow_pickle=False) as mnist:
        images = np.concatenate([mnist["x_train"], mnist["x_test"]])
        labels = np.concatenate([mnist["y_train"], mnist["y_test"]])
    known = {(image.tobytes(), int(label)) for image, label in zip(images, labels, strict=True)}
    ours = datasets.digits()
    assert all((image.tobytes(), int(label)) in known for image, label in zip(*ours, strict=True))
