"""GIST against a slow computation in space, sum by sum, and what a descriptor must do whatever its numbers."""

import cmath
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

from bitrank import ITQ
from bitrank.datasets import digits
from experiments.gist import Gist

repeatable = settings(derandomize=True)


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def as_array(features, n_scales=4, n_orientations=8, n_blocks=4):
    return features.reshape(len(features), n_scales, n_orientations, n_blocks, n_blocks)


# The same descriptor in space: no transform, every filter as the image of its own ripples, every sum written out ----


def mirror(image, border):
    """The image with its mirror image around it, the pixels at its edges twice."""

    def place(position, length):
        position %= 2 * length
        return position if position < length else 2 * length - 1 - position

    height, width = image.shape
    return np.array(
        [
            [image[place(row, height), place(column, width)] for column in range(-border, width + border)]
            for row in range(-border, height + border)
        ]
    )


def in_space(transfer, height, width):
    """What a filter makes of a single white pixel: the sum of the waves that it lets pass."""
    kernel = np.zeros((height, width), complex)
    rows, columns = np.mgrid[:height, :width]
    for u in range(-(height // 2), (height + 1) // 2):
        for v in range(-(width // 2), (width + 1) // 2):
            wave = np.exp(2j * np.pi * (u * rows / height + v * columns / width))
            kernel += transfer(u / height, v / width) * wave
    return kernel / (height * width)


def convolve(image, kernel):
    """Circular convolution: a copy of the kernel for every pixel."""
    total = np.zeros(image.shape, complex)
    for row in range(image.shape[0]):
        for column in range(image.shape[1]):
            total += image[row, column] * np.roll(kernel, (row, column), axis=(0, 1))
    return total


def local_contrast(image):
    logs = mirror(np.log(image + 1), 5)
    longer = max(logs.shape)

    def bell(u, v):
        return math.exp(-((u * longer) ** 2 + (v * longer) ** 2) / (4 / math.sqrt(math.log(2))) ** 2)

    kernel = in_space(bell, *logs.shape)
    fast = logs - convolve(logs, kernel).real
    spread = np.sqrt(np.abs(convolve(fast**2, kernel)))
    return (fast / (0.2 + spread))[5:-5, 5:-5]


def gabor(scale, orientation, n_orientations):
    centre = 0.3 / 1.85**scale

    def transfer(u, v):
        radius, angle = cmath.polar(complex(v, u))
        turned = angle + math.pi * orientation / n_orientations
        turned = math.remainder(turned, 2 * math.pi)
        width = 16 * n_orientations**2 / 32**2
        return math.exp(-10 * 0.35 * (radius / centre - 1) ** 2 - 2 * width * math.pi * turned**2)

    return transfer


def slow_gist(image, orientations, n_blocks):
    image = image.astype(float)
    if image.ndim == 3:
        image = image.mean(axis=2)
    image = 255 * (image - image.min()) / (image.max() - image.min())
    border = min(*image.shape, 64) // 2
    padded = mirror(local_contrast(image), border)
    means = []
    for scale, count in enumerate(orientations):
        for orientation in range(count):
            kernel = in_space(gabor(scale, orientation, count), *padded.shape)
            energy = np.abs(convolve(padded, kernel))[border:-border, border:-border]
            for rows in np.array_split(energy, n_blocks, axis=0):
                means += [block.mean() for block in np.array_split(rows, n_blocks, axis=1)]
    return np.array(means)


@pytest.mark.parametrize(
    ("shape", "orientations", "n_blocks"),
    [
        ((24, 16), (3, 5), 2),
        ((13, 13), (4, 1), 1),
        ((16, 16, 3), (2, 1), 4),
        pytest.param((16, 16), (8, 8, 8, 8), 4, marks=pytest.mark.slow),
        pytest.param((16, 20), (8, 4, 2), 4, marks=pytest.mark.slow),
        pytest.param((16, 16, 3), (8, 8), 4, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_as_computed_in_space(shape, orientations, n_blocks):
    images = noise(2, *shape)
    # One image with flat parts and one of mere noise.
    images[0, 3:10, 5:] //= 16
    expected = [slow_gist(image, orientations, n_blocks) for image in images]
    np.testing.assert_allclose(Gist(orientations, n_blocks=n_blocks).transform(images), expected, rtol=1e-4, atol=1e-6)


def test_blocks_of_a_size_that_does_not_divide():
    # 18 pixels in 4 blocks: edges at 0, 4, 9, 13 and 18.
    images = noise(1, 18, 16)
    energy = as_array(Gist((2,), n_blocks=1).transform(images), 1, 2, 1)
    blocks = as_array(Gist((2,), n_blocks=4).transform(images), 1, 2, 4)
    heights = np.array([4, 5, 4, 5]) / 18
    np.testing.assert_allclose((blocks * heights[:, None]).sum(axis=3).mean(axis=3), energy[..., 0, 0], rtol=1e-5)


# What it must do ------------------------------------------------------------------------------------------------------


@repeatable
@given(
    n=st.integers(1, 5),
    height=st.integers(16, 70),
    width=st.integers(16, 70),
    colour=st.booleans(),
    dtype=st.sampled_from([np.uint8, np.int64, np.float16, np.float32, np.float64]),
)
def test_shape_and_type(n, height, width, colour, dtype):
    images = noise(n, height, width, *([3] if colour else [])).astype(dtype)
    before = images.copy()
    features = Gist().transform(images)
    assert features.shape == (n, 512)
    assert features.dtype == np.float32
    assert features.flags.c_contiguous
    assert np.isfinite(features).all()
    assert (features > 0).all()
    np.testing.assert_array_equal(images, before)


@repeatable
@given(scale=st.floats(1e-305, 1e300), shift=st.floats(-3, 3))
def test_the_range_of_an_image_does_not_matter(scale, shift):
    images = noise(2, 20, 24)
    same = (images / 255 + shift) * scale
    np.testing.assert_allclose(Gist().transform(same), Gist().transform(images), rtol=1e-3, atol=1e-5)


def test_the_smallest_range_there_is():
    images = noise(2, 20, 24) > 128
    np.testing.assert_array_equal(Gist().transform(images * 5e-324), Gist().transform(images))


def test_colours_become_the_mean_of_the_channels():
    colour = noise(3, 32, 32, 3)
    np.testing.assert_allclose(Gist().transform(colour), Gist().transform(colour.mean(axis=3)), rtol=1e-5)
    gray = noise(3, 32, 32)
    np.testing.assert_allclose(
        Gist().transform(np.repeat(gray[..., None], 3, axis=3)), Gist().transform(gray), rtol=1e-5
    )


@pytest.mark.parametrize("value", [0, 7, 255])
def test_an_image_of_one_colour_is_zero(value):
    images = np.full((2, 32, 32, 3), value, np.uint8)
    np.testing.assert_array_equal(Gist().transform(images), 0)


@pytest.mark.parametrize("shape", [(32, 32), (48, 20), pytest.param((100, 90), marks=pytest.mark.slow)], ids=str)
def test_more_images_than_a_batch(shape):
    images = noise(150, *shape)
    features = Gist().transform(images)
    alone = np.concatenate([Gist().transform(image[None]) for image in images[::10]])
    np.testing.assert_allclose(features[::10], alone, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(Gist().transform(images[::-1]), features[::-1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("scale", range(4))
@pytest.mark.parametrize("orientation", range(8))
def test_a_wave_answers_to_its_own_filter(scale, orientation):
    frequency, direction = 0.3 / 1.85**scale, -np.pi * orientation / 8
    rows, columns = np.mgrid[:64, :64]
    wave = np.cos(2 * np.pi * frequency * (columns * np.cos(direction) + rows * np.sin(direction)))
    # On a bright ground, so that the logarithm leaves it a wave.
    wave[0, 0] = -20
    energy = as_array(Gist().transform(wave[None]))[0, :, :, 1:, 1:].mean(axis=(2, 3))
    assert np.unravel_index(energy.argmax(), energy.shape)[1] == orientation
    assert energy[:, orientation].argmax() == scale


def test_a_quarter_turn_turns_the_orientations_and_the_blocks():
    images = digits().images[:20, 2:26, 2:26]
    features = as_array(Gist().transform(images))
    turned = as_array(Gist().transform(np.rot90(images, axes=(1, 2))))
    expected = np.rot90(np.roll(features, 4, axis=2), axes=(3, 4))
    np.testing.assert_allclose(turned, expected, rtol=0.05, atol=0.01)
    assert np.abs(turned - features).max() > 0.1


def test_energy_is_where_the_texture_is():
    images = np.full((1, 64, 64), 128.0)
    images[0, 16:32, 48:] += np.random.default_rng(0).normal(0, 40, (16, 16))
    energy = as_array(Gist().transform(images))[0, 0].mean(axis=0)
    assert np.unravel_index(energy.argmax(), energy.shape) == (1, 3)
    assert energy[3, 0] < 0.1 * energy[1, 3]


# As a transformer -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "check",
    [
        "check_estimator_cloneable",
        "check_estimator_repr",
        "check_estimator_tags_renamed",
        "check_no_attributes_set_in_init",
        "check_parameters_default_constructible",
        "check_get_params_invariance",
        "check_set_params",
        "check_mixin_order",
        "check_valid_tag_types",
    ],
)
def test_scikit_learn(check):
    # The other checks feed vectors; these look only at how the class is made.
    getattr(estimator_checks, check)("Gist", Gist())


def test_in_a_pipeline_without_being_fitted_itself():
    images = digits().images[:300]
    features = Gist().transform(images)
    np.testing.assert_array_equal(clone(Gist()).fit(images).transform(images), features)
    pipeline = make_pipeline(Gist(), ITQ(n_bits=32, random_state=0)).fit(images)
    np.testing.assert_array_equal(pipeline.transform(images), ITQ(n_bits=32, random_state=0).fit_transform(features))


def test_neighbours_are_of_the_same_class():
    images, labels = digits()
    features = Gist().transform(images[:2000])
    nearest = KNeighborsClassifier(1).fit(features[200:], labels[200:2000])
    assert nearest.score(features[:200], labels[:200]) > 0.9


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (noise(32, 32), r"shape \(n, height, width\) or \(n, height, width, 3\), got shape \(32, 32\)"),
        (noise(2, 32, 32, 4), r"got shape \(2, 32, 32, 4\)"),
        (noise(2, 3, 32, 32), r"got shape \(2, 3, 32, 32\)"),
        (noise(2, 2, 32, 32, 3), r"got shape \(2, 2, 32, 32, 3\)"),
        (noise(2, 15, 40), "at least 16 by 16 pixels, four per block, got 15 by 40"),
        (noise(2, 40, 15, 3), "at least 16 by 16 pixels, four per block, got 40 by 15"),
        (noise(0, 32, 32), "0 sample"),
        (np.full((1, 32, 32), np.nan), "NaN"),
        (np.full((1, 32, 32), -np.inf), "infinity"),
        (np.pad([[[-1.5e308, 1.5e308]]], ((0, 0), (0, 31), (0, 30))), "range of values that fits in float64"),
        (np.full((1, 32, 32, 3), 1e308) * np.linspace(-1, 1, 32)[:, None], "range of values that fits in float64"),
        (noise(1, 32, 32) * 1j, "Complex"),
        (np.full((1, 32, 32), "a"), "could not convert|dtype='numeric'"),
    ],
    ids=range(13),
)
def test_bad_images(images, message):
    with pytest.raises(ValueError, match=message):
        Gist().transform(images)
    with pytest.raises(ValueError, match=message):
        Gist().fit_transform(images)


@pytest.mark.parametrize("orientations", [(), (8, 0), (8, -1), (8, 2.5), 8, [[8]], "8", (True, True), None], ids=str)
def test_bad_orientations(orientations):
    with pytest.raises(ValueError, match="orientations must hold a positive int for each scale, got"):
        Gist(orientations).fit(noise(1, 32, 32))


@pytest.mark.parametrize("n_blocks", [0, -1, 2.0, True, "4", None], ids=str)
def test_bad_n_blocks(n_blocks):
    with pytest.raises(ValueError, match="n_blocks must be an int of at least 1, got"):
        Gist(n_blocks=n_blocks).fit(noise(1, 32, 32))
