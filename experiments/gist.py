"""GIST: a descriptor of a whole image in 512 numbers, from a bank of Gabor filters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import scipy.fft
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array
from threadpoolctl import threadpool_limits

from bitrank.core.checks import check_count, n_threads

Floats = npt.NDArray[np.float32]

# Constants of Oliva and Torralba. The prefilter removes frequencies below CUTOFF cycles per image, with a border of
# BORDER pixels; the finest filter is centred at FINEST cycles per pixel, each coarser one at RATIO times less.
CUTOFF = 4.0
BORDER = 5
FINEST = 0.3
RATIO = 1.85
# Smaller gains are left out: they are below the rounding of a sum in float32.
NEGLIGIBLE = 1e-6
# Pixels per batch, which stay in the cache.
BATCH = 2**16


class Gist(TransformerMixin, BaseEstimator):
    """GIST descriptors of images: energy by scale, orientation and place.

    Each image is converted to gray (the mean of its channels), stretched to its full range, taken to logarithms and
    divided by its local contrast. Gabor filters, defined in the frequency domain, are applied to the image mirrored at
    its borders, and the magnitude of each response is averaged over a grid of blocks. Nothing is learned: a
    descriptor depends on its image alone, and images of any size can be compared.

    The defaults give the gray GIST of 512 values with which hashing methods are compared on CIFAR-10.

    Parameters
    ----------
    orientations : sequence of int, default (8, 8, 8, 8)
        Number of orientations per scale, the finest first.
    n_blocks : int, default 4
        Blocks along each side of an image.

    Notes
    -----
    Before filtering, the image is mirrored at a border of half its smaller side, at most 32 pixels. Descriptors differ
    from those of other implementations in the last digits: borders, resizing and rounding differ.

    References
    ----------
    A. Oliva, A. Torralba, Modeling the shape of the scene: a holistic representation of the spatial envelope,
    International Journal of Computer Vision 42, 2001.

    Examples
    --------
    >>> from bitrank.datasets import digits
    >>> Gist().fit_transform(digits().images[:100]).shape
    (100, 512)
    """

    def __init__(self, orientations: Sequence[int] = (8, 8, 8, 8), *, n_blocks: int = 4) -> None:
        self.orientations = orientations
        self.n_blocks = n_blocks

    def fit(self, X: npt.ArrayLike, y: Any = None) -> Self:
        """Check the parameters and the images; there is nothing to learn.

        Parameters
        ----------
        X : array-like of shape (n, height, width) or (n, height, width, 3)
        y : ignored

        Returns
        -------
        self
        """
        self._check(X)
        return self

    def transform(self, X: npt.ArrayLike) -> Floats:
        """Compute the descriptors of images.

        Parameters
        ----------
        X : array-like of shape (n, height, width) or (n, height, width, 3)
            Any numbers, such as bytes or floats from 0 to 1: descriptors do not depend on the range of an image. At
            least four pixels per block along each side.

        Returns
        -------
        features : float32 array of shape (n, sum(orientations) * n_blocks ** 2)
            By scale (the finest first), orientation, row of blocks and column of blocks; zeros for an image of one
            colour.
        """
        images = self._check(X)
        height, width = images.shape[1:3]
        pad = min(height, width, 64) // 2
        bank = list(gabors(self.orientations, height + 2 * pad, width + 2 * pad))
        to_rows, to_columns = _inverse_dft(height, pad), _inverse_dft(width, pad).T
        over_rows, over_columns = _block_means(height, self.n_blocks), _block_means(width, self.n_blocks).T

        features = np.empty((len(images), len(bank), self.n_blocks, self.n_blocks), np.float32)
        size = max(1, BATCH // (height * width))

        def describe(start: int) -> None:
            batch = slice(start, start + size)
            mirrored = np.pad(
                _local_contrast(_stretch(images[batch])), ((0, 0), (pad, pad), (pad, pad)), mode="symmetric"
            )
            spectra = scipy.fft.fftshift(scipy.fft.fft2(mirrored), axes=(1, 2))
            for number, (rows, columns, gains) in enumerate(bank):
                # The inverse transform as two products: for small images they are faster than an FFT, since they use
                # only the frequencies that the filter passes and compute only the pixels inside the border.
                response = to_rows[:, rows] @ (spectra[:, rows, columns] * gains) @ to_columns[columns]
                features[batch, number] = over_rows @ np.abs(response) @ over_columns

        # One thread per batch: the products are too small for BLAS to use several. threadpoolctl comes with
        # scikit-learn.
        with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(n_threads()) as pool:
            list(pool.map(describe, range(0, len(images), size)))
        return features.reshape(len(images), -1)

    def _check(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        counts = np.asarray(self.orientations)
        if counts.ndim != 1 or counts.size == 0 or counts.dtype.kind not in "iu" or (counts < 1).any():
            raise ValueError(f"orientations must hold a positive int for each scale, got {self.orientations!r}")
        check_count("n_blocks", self.n_blocks, 1)
        images = check_array(X, ensure_2d=False, allow_nd=True, input_name="X", estimator=self)
        if images.ndim not in (3, 4) or images.shape[3:] not in ((), (3,)):
            raise ValueError(
                f"X must be images of shape (n, height, width) or (n, height, width, 3), got shape {images.shape}"
            )
        if min(images.shape[1:3]) < 4 * self.n_blocks:
            raise ValueError(
                f"X must be images of at least {4 * self.n_blocks} by {4 * self.n_blocks} pixels, four per block, "
                f"got {images.shape[1]} by {images.shape[2]}"
            )
        checked: npt.NDArray[Any] = images
        return checked

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = []
        return tags


class Gabor(NamedTuple):
    """One filter: the frequencies that it passes, as rows and columns of a shifted spectrum, and their gains."""

    rows: slice
    columns: slice
    gains: Floats


def gabors(orientations: Sequence[int], height: int, width: int) -> Iterator[Gabor]:
    """Yield a bank of Gabor filters for spectra of a size, with the zero frequency in the middle.

    Each filter is a Gaussian in polar coordinates around its frequency and direction, on one side of the origin only:
    the response is complex, and its magnitude is the local energy.

    Examples
    --------
    >>> [rows, columns, gains] = next(gabors([8], 64, 64))
    >>> gains.shape, float(gains.max()) > 0.99
    ((64, 32), True)
    """
    vertical = scipy.fft.fftshift(scipy.fft.fftfreq(height))[:, None]
    horizontal = scipy.fft.fftshift(scipy.fft.fftfreq(width))
    radius, angle = np.hypot(vertical, horizontal), np.arctan2(vertical, horizontal)
    for scale, count in enumerate(orientations):
        radial = 3.5 * (radius / (FINEST / RATIO**scale) - 1) ** 2
        for orientation in range(count):
            # Angle from the filter's direction, from -pi to pi.
            offset = (angle + np.pi * orientation / count + np.pi) % (2 * np.pi) - np.pi
            gains = np.exp(-radial - np.pi * count**2 / 32 * offset**2)
            rows, columns = (_span((gains > NEGLIGIBLE).any(axis)) for axis in (1, 0))
            yield Gabor(rows, columns, gains[rows, columns].astype(np.float32))


def _local_contrast(images: Floats) -> Floats:
    """Logarithms less their low frequencies, over the local standard deviation of the rest."""
    border = (BORDER, BORDER)
    logs = np.pad(np.log1p(images), ((0, 0), border, border), mode="symmetric")
    # The low-pass filter is separable into rows and columns.
    left, right = (_low_pass(length, max(logs.shape[1:])) for length in logs.shape[1:])
    fast = logs - left @ logs @ right
    spread = np.sqrt(np.maximum(left @ (fast * fast) @ right, 0))
    contrast: Floats = fast / (np.float32(0.2) + spread)
    return contrast[:, BORDER:-BORDER, BORDER:-BORDER]


@np.errstate(over="ignore", invalid="ignore")
def _stretch(images: npt.NDArray[Any]) -> Floats:
    """Images in gray, each from 0 to 255; zeros for an image of one colour."""
    gray = images.astype(np.float64)
    if gray.ndim == 4:
        gray = gray.mean(axis=3)
    gray -= gray.min(axis=(1, 2), keepdims=True)
    highest = gray.max(axis=(1, 2), keepdims=True)
    if not np.isfinite(highest).all():
        raise ValueError("X must have a range of values that fits in float64")
    gray /= np.where(highest > 0, highest, 1)
    gray *= 255
    return gray.astype(np.float32)


def _low_pass(length: int, longer: int) -> Floats:
    """Circular convolution with the Gaussian of the prefilter, as a symmetric matrix."""
    frequencies = scipy.fft.fftfreq(length) * longer
    gaussian = scipy.fft.ifft(np.exp(-((frequencies / CUTOFF) ** 2) * np.log(2))).real
    places = np.arange(length)
    matrix: Floats = gaussian[(places[:, None] - places) % length].astype(np.float32)
    return matrix


def _inverse_dft(length: int, pad: int) -> npt.NDArray[np.complex64]:
    """Inverse transform of a shifted spectrum to the pixels inside the border, one row per pixel."""
    padded = length + 2 * pad
    frequencies = np.arange(padded) - padded // 2
    # Reduce before the exponential, so that long sides lose no digits.
    turns = np.outer(np.arange(pad, pad + length), frequencies) % padded / padded
    waves: npt.NDArray[np.complex64] = (np.exp(2j * np.pi * turns) / padded).astype(np.complex64)
    return waves


def _block_means(length: int, n_blocks: int) -> Floats:
    """Means over blocks of pixels, one row per block."""
    edges = np.arange(n_blocks + 1) * length // n_blocks
    pixels = np.arange(length)
    inside = (pixels >= edges[:-1, None]) & (pixels < edges[1:, None])
    return (inside / np.diff(edges)[:, None]).astype(np.float32)


def _span(chosen: npt.NDArray[np.bool_]) -> slice:
    places = np.flatnonzero(chosen)
    return slice(int(places[0]), int(places[-1]) + 1)
