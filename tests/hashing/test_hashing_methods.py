"""Each method of hashing against an independent computation."""

import itertools
import math

import numpy as np
import pytest
import scipy.linalg
from hashers import make, repeatable, vectors
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA

import bitrank
from bitrank.hashing import ITQ, LSH, IsotropicHashing, SignBits, SpectralHashing, load_hasher
from bitrank.hashing.pca import fit_pca


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
    measured = bitrank.core.codes.hamming(hasher.transform(X), hasher.transform(X)) / 20000
    np.testing.assert_allclose(measured, expected, atol=0.02)  # five standard deviations


def test_sign_bits_against_numpy():
    X, Q = vectors(60, 13, seed=0), vectors(7, 13, seed=1)
    hasher = SignBits().fit(X)
    np.testing.assert_array_equal(hasher.transform(Q), np.packbits(X.mean(axis=0) < Q, axis=1))
    np.testing.assert_allclose(hasher.project(Q), Q - X.mean(axis=0), rtol=1e-6, atol=1e-6)


def test_sign_bits_choose_the_threshold_that_finds_more(tmp_path):
    rng = np.random.default_rng(0)
    around = rng.normal(size=(600, 32))
    away = around + np.tile([-3.0, 3.0], 16)  # signs around zero say nothing
    assert not SignBits("auto").fit(around - around.mean(axis=0) + 1e-9).mean_.any()
    chosen = SignBits(threshold="auto").fit(away)
    np.testing.assert_allclose(chosen.mean_, away.mean(axis=0))
    np.testing.assert_array_equal(chosen.transform(away), SignBits().fit_transform(away))
    chosen.save(tmp_path / "signs")
    np.testing.assert_array_equal(load_hasher(tmp_path / "signs").transform(away), chosen.transform(away))
    with pytest.raises(ValueError, match='threshold must be "mean", "zero" or "auto", got \'best\''):
        SignBits("best").fit(away)
