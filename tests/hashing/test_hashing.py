"""One contract for every hasher in the registry."""

import math
import resource

import numpy as np
import pytest
from hashers import (
    CLASSES,
    every_hasher,
    every_hasher_of_n_bits,
    every_hasher_of_signs,
    every_hasher_with,
    fit,
    labels,
    learned,
    make,
    repeatable,
    vectors,
)
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import bitrank
from bitrank.hashing import HASHERS, MultidimensionalSpectralHashing, SpectralHashing, hasher_class, load_hasher


def test_every_hasher_is_exported():
    for name, cls in zip(HASHERS, CLASSES, strict=True):
        assert getattr(bitrank.hashing, name) is cls
        assert name in bitrank.hashing.__all__
    with pytest.raises(ValueError, match=r"a hasher must be one of LSH, .*, got 'Perceptron'"):
        hasher_class("Perceptron")


@every_hasher
def test_scikit_learn(cls):
    # One bit, because some checks fit a single feature. What scikit-learn itself skips is its array API.
    check_estimator(make(cls, n_bits=1), on_skip=None)


@every_hasher_of_signs
@repeatable
@given(data=st.data())
def test_codes_are_the_signs_of_the_projections(cls, data):
    d = data.draw(st.integers(1, 40))
    n_bits = data.draw(st.integers(1, d))
    n = data.draw(st.integers(max(2, n_bits), 50))
    dtype = data.draw(st.sampled_from([np.float64, np.float32, np.int64, np.uint8]))
    X = (20 * np.abs(vectors(n, d, seed=data.draw(st.integers(0, 9))))).astype(dtype)
    hasher = fit(make(cls, n_bits), X)
    values, codes = hasher.project(X), hasher.transform(X)
    expected = n_bits if hasattr(hasher, "n_bits") else d
    assert hasher.n_bits_ == expected
    assert type(hasher.n_bits_) is int
    assert hasher.n_features_in_ == d
    assert values.dtype == np.float32
    assert values.shape == (n, expected)
    assert np.isfinite(values).all()
    assert codes.dtype == np.uint8
    np.testing.assert_array_equal(codes, np.packbits(values > 0, axis=1))


@every_hasher
def test_a_row_alone_gets_the_code_it_gets_among_others(cls):
    X = vectors(3000, 12)
    hasher = fit(make(cls, n_bits=12), X)
    codes = hasher.transform(X)
    rows = [hasher.transform(row[None]) for row in X[:50]]
    np.testing.assert_array_equal(np.concatenate(rows), codes[:50])
    np.testing.assert_array_equal(hasher.transform(X[::-1]), codes[::-1])


@every_hasher
def test_more_rows_than_a_block(cls):
    X = vectors(2000, 600).astype(np.float32)
    hasher = fit(make(cls, n_bits=16), X[:50])
    parts = [hasher.project(X[start : start + 100]) for start in range(0, len(X), 100)]
    np.testing.assert_allclose(hasher.project(X), np.concatenate(parts), rtol=1e-4, atol=1e-5)


@every_hasher
def test_the_type_of_the_numbers_does_not_matter(cls):
    X = np.round(10 * vectors())
    hasher = fit(make(cls), X)
    for same in (X.astype(np.float32), X.astype(np.int16), X.astype(object), X.tolist(), np.asfortranarray(X)):
        again = fit(clone(hasher), same)
        np.testing.assert_array_equal(again.project(same), hasher.project(X))


@every_hasher
def test_a_fit_can_be_repeated(cls):
    X = vectors()
    first, second = fit(make(cls), X), fit(make(cls), X)
    assert learned(first).keys() == learned(second).keys()
    for name, value in learned(first).items():
        np.testing.assert_array_equal(value, learned(second)[name])


@every_hasher_with("random_state")
def test_another_seed_gives_other_codes(cls):
    X = vectors()
    one, other = make(cls, 8, random_state=0), make(cls, 8, random_state=np.random.RandomState(1))
    assert (one.fit_transform(X, labels(X)) != other.fit_transform(X, labels(X))).any()


@every_hasher
def test_in_a_pipeline(cls):
    X = vectors()
    codes = make_pipeline(StandardScaler(), make(cls)).fit_transform(X, labels(X))
    np.testing.assert_array_equal(codes, make(cls).fit_transform(StandardScaler().fit_transform(X), labels(X)))


@every_hasher
def test_input_is_not_changed(cls):
    X = vectors()
    before = X.copy()
    fit(make(cls), X).transform(X)
    np.testing.assert_array_equal(X, before)


@every_hasher
@pytest.mark.parametrize("shape", [(6, 40), (40, 6), (2, 8)], ids=["wide", "tall", "two rows"])
@pytest.mark.parametrize("kind", ["constant features", "equal rows", "zeros", "copied features", "tiny"])
def test_degenerate_vectors(cls, shape, kind):
    X = vectors(*shape)
    X = {
        "constant features": np.where(np.arange(shape[1]) % 2, X, 0.1),
        "equal rows": np.repeat(X[:1], shape[0], axis=0),
        "zeros": np.zeros(shape),
        "copied features": np.repeat(X[:, :1], shape[1], axis=1),
        "tiny": X * 1e-200,
    }[kind]
    hasher = fit(make(cls, n_bits=2), X)
    assert all(np.isfinite(value).all() for value in learned(hasher).values())
    codes = hasher.transform(X)
    assert codes.shape == (shape[0], math.ceil(hasher.n_bits_ / 8))
    if kind in ("equal rows", "zeros"):
        assert (codes == codes[0]).all()


BAD_VECTORS = {
    "nan": (np.array([[1.0, np.nan], [0, 1], [1, 1]]), "NaN"),
    "infinity": (np.array([[1.0, np.inf], [0, 1], [1, 1]]), "infinity"),
    "no rows": (np.empty((0, 12)), "0 sample"),
    "no features": (np.empty((12, 0)), "0 feature"),
    "a vector": (np.ones(12), "Expected 2D array"),
    "a cube": (np.ones((3, 3, 3)), "dim 3"),
    "complex": (np.ones((12, 12)) * 1j, "Complex data not supported"),
    "words": (np.array([["a", "b"], ["c", "d"]]), "numeric"),
    "too large": (np.array([[1e308, 1.0], [1e308, 2.0], [-1e308, 3.0]]), "X must"),
}


@every_hasher
@pytest.mark.parametrize("kind", BAD_VECTORS)
def test_bad_vectors(cls, kind):
    X, message = BAD_VECTORS[kind]
    with pytest.raises(ValueError, match=message):
        fit(make(cls, n_bits=1), X)
    good = vectors(20, X.shape[1] if X.ndim == 2 and X.size else 12)
    hasher = fit(make(cls, n_bits=1), good)
    before = {name: np.copy(value) for name, value in learned(hasher).items()}
    with pytest.raises(ValueError, match=message):
        fit(hasher, X)
    bounded = (SpectralHashing, MultidimensionalSpectralHashing)  # a cosine or an eigenfunction is never too large
    if cls not in bounded or kind != "too large":
        with pytest.raises(ValueError, match=message):
            hasher.transform(X)
    assert before.keys() == learned(hasher).keys()
    for name, value in before.items():
        np.testing.assert_array_equal(getattr(hasher, name), value)


@every_hasher
def test_one_row_teaches_nothing(cls):
    with pytest.raises(ValueError, match=r"1 sample.*minimum of 2"):
        make(cls, n_bits=1).fit([[1.0, 2.0]])


@every_hasher
def test_another_number_of_features(cls):
    hasher = fit(make(cls), vectors(d=12))
    with pytest.raises(ValueError, match=r"11 features.*12 features"):
        hasher.transform(vectors(d=11))


@every_hasher
def test_before_fit(cls, tmp_path):
    for method in ("project", "transform"):
        with pytest.raises(NotFittedError):
            getattr(make(cls), method)(vectors())
    with pytest.raises(NotFittedError):
        make(cls).save(tmp_path / "file")
    assert not list(tmp_path.iterdir())


@every_hasher_of_n_bits
@pytest.mark.parametrize("n_bits", [0, -3, 2.0, "8", None, True, np.nan])
def test_bad_n_bits(cls, n_bits):
    with pytest.raises(ValueError, match="n_bits must be an int of at least 1, got"):
        fit(make(cls, n_bits), vectors())


@every_hasher_of_n_bits
def test_numpy_integers_are_n_bits(cls):
    assert fit(make(cls, np.int32(5)), vectors()).n_bits_ == 5


# Files ----------------------------------------------------------------------------------------------------------------


@every_hasher
@pytest.mark.parametrize("name", ["hasher", "hasher.npz", "hasher.bin"])
def test_saved_and_loaded(cls, name, tmp_path):
    X, Q = vectors(seed=0), vectors(seed=1)
    hasher = fit(make(cls, n_bits=np.int64(7), random_state=np.int64(3)), X)
    hasher.save(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    loaded = load_hasher(str(tmp_path / name))
    assert type(loaded) is cls
    assert loaded.get_params() == hasher.get_params()
    assert learned(loaded).keys() == learned(hasher).keys()
    np.testing.assert_array_equal(loaded.project(Q), hasher.project(Q))
    np.testing.assert_array_equal(loaded.transform(Q), hasher.transform(Q))
    np.testing.assert_array_equal(clone(loaded).fit_transform(X, labels(X)), hasher.transform(X))


@every_hasher
def test_a_reader_of_the_old_file_is_not_disturbed(cls, tmp_path):
    path = tmp_path / "file"
    fit(make(cls), vectors(seed=0)).save(path)
    content = path.read_bytes()
    with open(path, "rb") as reader:
        fit(make(cls), vectors(seed=1)).save(path)
        assert reader.read() == content
    assert path.read_bytes() != content


@every_hasher
def test_a_random_state_that_is_no_int_is_stored_as_none(cls, tmp_path):
    hasher = fit(make(cls, random_state=np.random.RandomState(0)), vectors())
    hasher.save(tmp_path / "file")
    loaded = load_hasher(tmp_path / "file")
    assert loaded.get_params().get("random_state") is None
    np.testing.assert_array_equal(loaded.transform(vectors()), hasher.transform(vectors()))


@every_hasher
def test_feature_names_are_kept(cls, tmp_path):
    hasher = fit(make(cls), vectors(d=6))
    hasher.feature_names_in_ = np.array([f"größe {i}" for i in range(6)], dtype=object)
    hasher.save(tmp_path / "file")
    names = load_hasher(tmp_path / "file").feature_names_in_
    assert names.dtype == object
    assert names.tolist() == hasher.feature_names_in_.tolist()


@every_hasher_of_n_bits
def test_n_bits_changed_after_fit_is_not_saved(cls, tmp_path):
    hasher = fit(make(cls, n_bits=5), vectors()).set_params(n_bits=6)
    with pytest.raises(ValueError, match="n_bits must be the fitted 5, got 6"):
        hasher.save(tmp_path / "file")
    assert not list(tmp_path.iterdir())


@every_hasher
def test_a_save_that_fails_leaves_the_old_file(cls, tmp_path):
    path = tmp_path / "file"
    old = fit(make(cls), vectors(d=12))
    old.save(path)
    content = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))  # the disk is full after 500 bytes
    try:
        with pytest.raises(OSError, match="File too large"):
            fit(make(cls), vectors(d=40)).save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [name.name for name in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == content
    with pytest.raises(FileNotFoundError):
        old.save(tmp_path / "no such folder" / "file")
