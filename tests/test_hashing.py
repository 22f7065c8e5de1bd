"""One contract for every hasher in the list, and each method against an independent computation."""

import inspect
import itertools
import json
import math
import resource

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import bitrank
from bitrank.hashing import HASHERS, ITQ, LSH, IsotropicHashing, SignBits, SpectralHashing, hasher_class, load_hasher
from bitrank.hashing.pca import fit_pca

CLASSES = [hasher_class(name) for name in HASHERS]


def every_hasher_with(parameter):
    classes = [cls for cls in CLASSES if parameter in inspect.signature(cls).parameters]
    return pytest.mark.parametrize("cls", classes, ids=lambda cls: cls.__name__)


every_hasher = pytest.mark.parametrize("cls", CLASSES, ids=HASHERS)
every_hasher_of_n_bits = every_hasher_with("n_bits")
repeatable = settings(derandomize=True)


def make(cls, n_bits=5, random_state=0):
    wanted = {"n_bits": n_bits, "random_state": random_state}
    return cls(**{name: value for name, value in wanted.items() if name in inspect.signature(cls).parameters})


def vectors(n=60, d=12, seed=0):
    """Vectors with a mean and with features of different variance, as real ones have."""
    random = np.random.default_rng(seed)
    return random.normal(size=(n, d)) @ random.normal(size=(d, d)) * np.linspace(1, 3, d) + random.normal(size=d)


def learned(hasher):
    return {name: value for name, value in vars(hasher).items() if name.endswith("_")}


# The contract ---------------------------------------------------------------------------------------------------------


def test_every_hasher_is_exported():
    for name, cls in zip(HASHERS, CLASSES, strict=True):
        assert getattr(bitrank, name) is getattr(bitrank.hashing, name) is cls
        assert name in bitrank.__all__
        assert name in bitrank.hashing.__all__
    with pytest.raises(ValueError, match=r"a hasher must be one of LSH, .*, got 'Perceptron'"):
        hasher_class("Perceptron")


@every_hasher
def test_scikit_learn(cls):
    # One bit, because some checks fit a single feature. What scikit-learn itself skips is its array API.
    check_estimator(make(cls, n_bits=1), on_skip=None)


@every_hasher
@repeatable
@given(data=st.data())
def test_codes_are_the_signs_of_the_projections(cls, data):
    d = data.draw(st.integers(1, 40))
    n_bits = data.draw(st.integers(1, d))
    n = data.draw(st.integers(max(2, n_bits), 50))
    dtype = data.draw(st.sampled_from([np.float64, np.float32, np.int64, np.uint8]))
    X = (20 * np.abs(vectors(n, d, seed=data.draw(st.integers(0, 9))))).astype(dtype)
    hasher = make(cls, n_bits).fit(X)
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
    hasher = make(cls, n_bits=12).fit(X)
    codes = hasher.transform(X)
    rows = [hasher.transform(row[None]) for row in X[:50]]
    np.testing.assert_array_equal(np.concatenate(rows), codes[:50])
    np.testing.assert_array_equal(hasher.transform(X[::-1]), codes[::-1])


@every_hasher
def test_more_rows_than_a_block(cls):
    X = vectors(2000, 600).astype(np.float32)
    hasher = make(cls, n_bits=16).fit(X[:50])
    parts = [hasher.project(X[start : start + 100]) for start in range(0, len(X), 100)]
    np.testing.assert_allclose(hasher.project(X), np.concatenate(parts), rtol=1e-4, atol=1e-5)


@every_hasher
def test_the_type_of_the_numbers_does_not_matter(cls):
    X = np.round(10 * vectors())
    hasher = make(cls).fit(X)
    for same in (X.astype(np.float32), X.astype(np.int16), X.astype(object), X.tolist(), np.asfortranarray(X)):
        again = clone(hasher).fit(same)
        np.testing.assert_array_equal(again.project(same), hasher.project(X))


@every_hasher
def test_a_fit_can_be_repeated(cls):
    X = vectors()
    first, second = make(cls).fit(X), make(cls).fit(X)
    assert learned(first).keys() == learned(second).keys()
    for name, value in learned(first).items():
        np.testing.assert_array_equal(value, learned(second)[name])


@every_hasher_with("random_state")
def test_another_seed_gives_other_codes(cls):
    X = vectors()
    one, other = make(cls, 8, random_state=0), make(cls, 8, random_state=np.random.RandomState(1))
    assert (one.fit_transform(X) != other.fit_transform(X)).any()


@every_hasher
def test_in_a_pipeline(cls):
    X = vectors()
    codes = make_pipeline(StandardScaler(), make(cls)).fit_transform(X)
    np.testing.assert_array_equal(codes, make(cls).fit_transform(StandardScaler().fit_transform(X)))


@every_hasher
def test_input_is_not_changed(cls):
    X = vectors()
    before = X.copy()
    make(cls).fit(X).transform(X)
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
    hasher = make(cls, n_bits=2).fit(X)
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
        make(cls, n_bits=1).fit(X)
    good = vectors(20, X.shape[1] if X.ndim == 2 and X.size else 12)
    hasher = make(cls, n_bits=1).fit(good)
    before = {name: np.copy(value) for name, value in learned(hasher).items()}
    with pytest.raises(ValueError, match=message):
        hasher.fit(X)
    if cls is not SpectralHashing or kind != "too large":  # a cosine is never too large
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
    hasher = make(cls).fit(vectors(d=12))
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
        make(cls, n_bits).fit(vectors())


@every_hasher_of_n_bits
def test_numpy_integers_are_n_bits(cls):
    assert make(cls, np.int32(5)).fit(vectors()).n_bits_ == 5


# Files ----------------------------------------------------------------------------------------------------------------


@every_hasher
@pytest.mark.parametrize("name", ["hasher", "hasher.npz", "hasher.bin"])
def test_saved_and_loaded(cls, name, tmp_path):
    X, Q = vectors(seed=0), vectors(seed=1)
    hasher = make(cls, n_bits=np.int64(7), random_state=np.int64(3)).fit(X)
    hasher.save(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    loaded = load_hasher(str(tmp_path / name))
    assert type(loaded) is cls
    assert loaded.get_params() == hasher.get_params()
    assert learned(loaded).keys() == learned(hasher).keys()
    np.testing.assert_array_equal(loaded.project(Q), hasher.project(Q))
    np.testing.assert_array_equal(loaded.transform(Q), hasher.transform(Q))
    np.testing.assert_array_equal(clone(loaded).fit_transform(X), hasher.transform(X))


@every_hasher
def test_a_reader_of_the_old_file_is_not_disturbed(cls, tmp_path):
    path = tmp_path / "file"
    make(cls).fit(vectors(seed=0)).save(path)
    content = path.read_bytes()
    with open(path, "rb") as reader:
        make(cls).fit(vectors(seed=1)).save(path)
        assert reader.read() == content
    assert path.read_bytes() != content


@every_hasher
def test_a_random_state_that_is_no_int_is_stored_as_none(cls, tmp_path):
    hasher = make(cls, random_state=np.random.RandomState(0)).fit(vectors())
    hasher.save(tmp_path / "file")
    loaded = load_hasher(tmp_path / "file")
    assert loaded.get_params().get("random_state") is None
    np.testing.assert_array_equal(loaded.transform(vectors()), hasher.transform(vectors()))


@every_hasher
def test_feature_names_are_kept(cls, tmp_path):
    hasher = make(cls).fit(vectors(d=6))
    hasher.feature_names_in_ = np.array([f"größe {i}" for i in range(6)], dtype=object)
    hasher.save(tmp_path / "file")
    names = load_hasher(tmp_path / "file").feature_names_in_
    assert names.dtype == object
    assert names.tolist() == hasher.feature_names_in_.tolist()


@every_hasher_of_n_bits
def test_n_bits_changed_after_fit_is_not_saved(cls, tmp_path):
    hasher = make(cls, n_bits=5).fit(vectors()).set_params(n_bits=6)
    with pytest.raises(ValueError, match="n_bits must be the fitted 5, got 6"):
        hasher.save(tmp_path / "file")
    assert not list(tmp_path.iterdir())


@every_hasher
def test_a_save_that_fails_leaves_the_old_file(cls, tmp_path):
    path = tmp_path / "file"
    old = make(cls).fit(vectors(d=12))
    old.save(path)
    content = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))  # the disk is full after 500 bytes
    try:
        with pytest.raises(OSError, match="File too large"):
            make(cls).fit(vectors(d=40)).save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [name.name for name in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == content
    with pytest.raises(FileNotFoundError):
        old.save(tmp_path / "no such folder" / "file")


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_hasher(tmp_path / "nothing")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A file of the hasher with most arrays, and its codes."""
    path = tmp_path_factory.mktemp("saved") / "file"
    hasher = SpectralHashing(n_bits=4).fit(vectors(d=5))
    hasher.save(path)
    return path, hasher.transform(vectors(d=5))


@repeatable
@given(data=st.data())
def test_cut_off_files(saved, data):
    path, _ = saved
    content = path.read_bytes()
    cut = path.with_name("cut")
    cut.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(ValueError, match="must be a file written by save"):
        load_hasher(cut)


@settings(repeatable, max_examples=3 * settings.default.max_examples)
@given(data=st.data())
def test_damaged_files_never_give_other_codes(saved, data):
    path, codes = saved
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    damaged = path.with_name("damaged")
    damaged.write_bytes(content)
    try:
        loaded = load_hasher(damaged)
    except ValueError as error:
        outcome = str(error)
    else:
        np.testing.assert_array_equal(loaded.transform(vectors(d=5)), codes)
        outcome = "must be a file written by save"
    assert "must be a file written by save" in outcome


@pytest.mark.parametrize("kind", ["text", "npy", "pickle", "other npz"])
def test_other_files(kind, tmp_path):
    path = tmp_path / "file"
    with open(path, "wb") as file:
        if kind == "text":
            file.write(b"not a hasher at all\n" * 10)
        elif kind == "npy":
            np.save(file, np.ones(3))
        elif kind == "pickle":
            np.savez(file, format=np.array([{}], dtype=object))
        else:
            np.savez(file, mean_=np.ones(3))
    with pytest.raises(ValueError, match="must be a file written by save"):
        load_hasher(path)


PARAMS = {"n_bits": 4, "n_iter": 50, "random_state": 0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "something else"}, "expected a bitrank hasher"),
        ({"version": 2}, "expected format version 1, got 2"),
        ({"hasher": "Perceptron"}, "expected one of LSH, .*got 'Perceptron'"),
        ({"hasher": ["ITQ", "LSH"]}, "expected one of LSH"),
        ({"hasher": "SpectralHashing"}, "expected the parameters of SpectralHashing"),
        ({"params": json.dumps([1])}, "expected the parameters of ITQ"),
        ({"params": json.dumps({"n_bits": 4})}, "expected the parameters of ITQ"),
        ({"params": json.dumps(PARAMS | {"n_bits": 0})}, "n_bits must be an int"),
        ({"params": json.dumps(PARAMS | {"n_bits": 5})}, r"expected components_ of shape \(6, 5\), got \(6, 4\)"),
        ({"params": json.dumps(PARAMS | {"n_iter": -1})}, "n_iter must be an int"),
        ({"params": "{"}, "must be a file written by save"),
        ({"mean_": None}, "expected an array mean_ of float64, got None"),
        ({"mean_": np.zeros((6, 1))}, r"expected mean_ of shape \(6,\), got \(6, 1\)"),
        ({"mean_": np.zeros(5)}, r"expected components_ of shape \(5, 4\), got \(6, 4\)"),
        ({"mean_": np.zeros(0)}, "expected an array mean_"),
        ({"mean_": np.zeros(6, np.float32)}, "expected an array mean_ of float64, got float32"),
        ({"components_": np.full((6, 4), np.nan)}, "expected finite values in components_"),
        ({"components_": np.full((6, 4), "a")}, "expected an array components_ of float64"),
        ({"feature_names_in_": np.array(["a"])}, "expected 6 feature names"),
        ({"feature_names_in_": np.zeros(6)}, "expected 6 feature names"),
    ],
)
def test_wrong_entries(change, message, tmp_path):
    path = tmp_path / "file"
    ITQ(n_bits=4, random_state=0).fit(vectors(d=6)).save(path)
    with np.load(path) as archive:
        entries = dict(archive) | change
    with open(path, "wb") as file:
        np.savez(file, **{name: value for name, value in entries.items() if value is not None})
    with pytest.raises(ValueError, match=message):
        load_hasher(path)


# Each method ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(100, 9), (9, 9), (12, 30)], ids=str)
def test_principal_components(shape):
    X = vectors(*shape)
    ours, theirs = fit_pca(X, 7), PCA(7, svd_solver="full").fit(X)
    np.testing.assert_allclose(ours.mean, theirs.mean_)
    np.testing.assert_allclose(ours.variances, theirs.explained_variance_ * (len(X) - 1) / len(X))
    np.testing.assert_allclose(np.abs(ours.components), np.abs(theirs.components_.T), atol=1e-8)
    np.testing.assert_allclose(ours.project(X), (X - X.mean(axis=0)) @ ours.components, atol=1e-10)
    shuffled = fit_pca(X[np.random.default_rng(0).permutation(len(X))], 7)
    np.testing.assert_allclose(shuffled.components, ours.components, atol=1e-8)


@pytest.mark.parametrize("cls", [ITQ, IsotropicHashing])
def test_no_more_bits_than_principal_components(cls):
    with pytest.raises(ValueError, match=r"n_bits must be at most the number of features \(12\), got 13"):
        cls(n_bits=13).fit(vectors(60, 12))
    with pytest.raises(ValueError, match=r"n_bits must be at most the number of samples \(8\), got 9"):
        cls(n_bits=9).fit(vectors(8, 12))
    assert cls(n_bits=8, random_state=0).fit(vectors(8, 12)).n_bits_ == 8


@pytest.mark.parametrize("cls", [LSH, SpectralHashing])
def test_more_bits_than_features(cls):
    X = vectors(500, 3)
    hasher = make(cls, n_bits=50).fit(X)
    assert hasher.project(X).shape == (500, 50)
    assert len(np.unique(hasher.transform(X), axis=0)) > 8  # more than three bits could tell apart


@pytest.mark.parametrize("cls", [ITQ, IsotropicHashing])
@pytest.mark.parametrize("shape", [(100, 12), (12, 40)], ids=str)
def test_rotated_principal_components(cls, shape):
    X = vectors(*shape)
    components = cls(n_bits=6, random_state=0).fit(X).components_
    principal = PCA(6, svd_solver="full").fit(X).components_.T
    np.testing.assert_allclose(components.T @ components, np.eye(6), atol=1e-10)
    np.testing.assert_allclose(components @ components.T, principal @ principal.T, atol=1e-8)


def quantisation_loss(values):
    return float(((np.where(values > 0, 1.0, -1.0) - values) ** 2).sum())


def test_itq_loss_never_rises():
    X = vectors(300, 12)
    X /= np.sqrt(PCA(8).fit(X).explained_variance_[0])
    losses = [
        quantisation_loss(ITQ(n_bits=8, n_iter=n_iter, random_state=0).fit(X).project(X).astype(float))
        for n_iter in range(30)
    ]
    assert all(after <= before * (1 + 1e-6) for before, after in itertools.pairwise(losses))
    assert losses[-1] < 0.99 * losses[0]


@pytest.mark.parametrize("n", [300, 9000])
def test_itq_against_orthogonal_procrustes(n):
    X = vectors(n, 12)
    V = (X - X.mean(axis=0)) @ ITQ(n_bits=6, n_iter=0, random_state=0).fit(X).components_
    R = np.eye(6)
    for _ in range(5):
        R, _ = scipy.linalg.orthogonal_procrustes(V, np.where(V @ R > 0, 1.0, -1.0))
    hasher = ITQ(n_bits=6, n_iter=5, random_state=0).fit(X)
    np.testing.assert_allclose(hasher.project(X), V @ R, atol=1e-3 * np.abs(V).max())


def test_itq_does_not_depend_on_the_scale():
    X = vectors()
    components = ITQ(n_bits=6, random_state=0).fit(X).components_
    for scale in (2.0**-200, 2.0**200):
        np.testing.assert_allclose(ITQ(n_bits=6, random_state=0).fit(scale * X).components_, components, atol=1e-6)


@pytest.mark.parametrize("n_iter", [-1, 1.5, None])
def test_itq_bad_n_iter(n_iter):
    with pytest.raises(ValueError, match="n_iter must be an int of at least 0, got"):
        ITQ(n_bits=2, n_iter=n_iter).fit(vectors())


@repeatable
@given(n_bits=st.integers(1, 24), power=st.floats(0, 6), seed=st.integers(0, 99))
def test_isotropic_variances_are_equal(n_bits, power, seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(200, 24)) * np.linspace(0.05, 1, 24) ** power
    values = IsotropicHashing(n_bits=n_bits, random_state=seed).fit(X).project(X).astype(float)
    variances = values.var(axis=0)
    np.testing.assert_allclose(variances, variances.mean(), rtol=1e-3)
    np.testing.assert_allclose(variances.sum(), PCA(n_bits).fit(X).explained_variance_.sum() * 199 / 200, rtol=1e-5)


def slow_spectral_hashing(X, n_bits, Q):
    """The formula, one mode and one value at a time."""
    pca = PCA(min(n_bits, X.shape[1]), svd_solver="full").fit(X)
    axes = [axis if axis[np.abs(axis).argmax()] > 0 else -axis for axis in pca.components_]
    centre = X.mean(axis=0)
    lows, spans = [], []
    for axis in axes:
        along = [float(np.dot(x - centre, axis)) for x in X]
        lows.append(min(along))
        spans.append(max(along) - min(along))
    modes = []
    for i, span in enumerate(spans):
        for mode in range(1, math.ceil((n_bits + 1) * span / max(spans)) + 1):
            modes.append((mode * math.pi / span, i))
    slowest = sorted(modes)[:n_bits]
    return [
        [math.sin(omega * (float(np.dot(q - centre, axes[i])) - lows[i]) + math.pi / 2) for omega, i in slowest]
        for q in Q
    ]


@pytest.mark.parametrize("n_bits", [1, 5, 12, 40])
def test_spectral_against_the_formula(n_bits):
    X, Q = vectors(80, 6, seed=0), vectors(15, 6, seed=1)
    hasher = SpectralHashing(n_bits=n_bits).fit(X)
    np.testing.assert_allclose(hasher.project(Q), slow_spectral_hashing(X, n_bits, Q), atol=1e-6)
    assert (np.diff(hasher.frequencies_) >= 0).all()


def test_spectral_halves_a_line():
    """Along one feature the first bit is its lower half, the second its outer quarters."""
    X = np.linspace(0, 1, 101)[:, None]
    bits = SpectralHashing(n_bits=2).fit(X).project([[0.1], [0.3], [0.6], [0.9]]) > 0
    np.testing.assert_array_equal(bits, [[1, 1], [1, 0], [0, 0], [0, 1]])


def test_lsh_bits_differ_as_the_angle():
    X = vectors(40, 12)
    hasher = LSH(n_bits=20000, random_state=0).fit(X)
    centred = X - X.mean(axis=0)
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    expected = np.arccos(np.clip(unit @ unit.T, -1, 1)) / np.pi
    measured = bitrank.codes.hamming(hasher.transform(X), hasher.transform(X)) / 20000
    np.testing.assert_allclose(measured, expected, atol=0.02)  # five standard deviations


def test_sign_bits_against_numpy():
    X, Q = vectors(60, 13, seed=0), vectors(7, 13, seed=1)
    hasher = SignBits().fit(X)
    np.testing.assert_array_equal(hasher.transform(Q), np.packbits(X.mean(axis=0) < Q, axis=1))
    np.testing.assert_allclose(hasher.project(Q), Q - X.mean(axis=0), rtol=1e-6, atol=1e-6)
