"""The digits in the package."""

import hashlib

import numpy as np

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
