"""Learned hash functions: gradients, objectives and updates against independent computations."""

import itertools

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
from hashers import labels, make, vectors
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from bitrank.core.codes import hamming
from bitrank.hashing import (
    BinaryReconstructiveEmbeddings,
    KernelSupervisedHashing,
    MinimalLossHashing,
    MultidimensionalSpectralHashing,
    OnlineKernelHashing,
    RankingSupervisedHashing,
    load_hasher,
)
from bitrank_papers import anchors, bre, ksh, labelled, mdsh, mlh, okh, rsh

SUPERVISED = [
    KernelSupervisedHashing(random_state=0),
    MinimalLossHashing(n_steps=500, random_state=0),
    BinaryReconstructiveEmbeddings(target="labels", n_sweeps=20, random_state=0),
    RankingSupervisedHashing(random_state=0),
    OnlineKernelHashing(n_pairs=2000, random_state=0),
]
every_supervised = pytest.mark.parametrize("hasher", SUPERVISED, ids=lambda hasher: type(hasher).__name__)


def blobs(n=300, d=16, n_classes=4, seed=0):
    """Classes around random means, which plain projections mix."""
    random = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    means = 1.5 * np.random.default_rng(99).normal(size=(n_classes, d))
    return random.normal(size=(n, d)) * 2 + means[y], y


def numerical_gradient(function, x, step=1e-6):
    gradient = np.empty_like(x)
    for place in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[place] += step
        down[place] -= step
        gradient[place] = (function(up) - function(down)) / (2 * step)
    return gradient


@every_supervised
def test_labels_are_learned_from(hasher):
    """On new rows, pairs of one class differ in fewer bits than pairs of two classes, by more than with random bits."""
    X, y = blobs()
    Q, q_y = blobs(seed=1)
    codes = hasher.set_params(n_bits=12).fit(X, y).transform(Q)
    distances, similar = hamming(codes, codes) / 12, q_y[:, None] == q_y
    assert distances[~similar].mean() - distances[similar].mean() > 0.1


@every_supervised
def test_labels_are_required_and_checked(hasher):
    X = vectors()
    for y, message in [
        (None, "requires y to be passed, but the target y is None"),
        (labels(X)[1:], "y must hold one label for each of the 60"),
        (np.where(labels(X) > 1, np.nan, 0.0), "y must be finite"),
    ]:
        with pytest.raises(ValueError, match=message):
            hasher.fit(X, y)
    names = np.array(["a", "b", "c"])[labels(X)]
    few = make(type(hasher)).set_params(**({"target": "labels"} if hasattr(hasher, "target") else {}))
    np.testing.assert_array_equal(few.fit(X, names).transform(X), few.fit(X, labels(X)).transform(X))


def test_rows_are_drawn_evenly_over_the_classes():
    classes = np.repeat([0, 1, 2], [500, 20, 3])
    rows = labelled.draw_labelled(classes, 60, np.random.RandomState(0))
    assert len(np.unique(rows)) == 60
    np.testing.assert_array_equal(np.bincount(classes[rows]), [37, 20, 3])
    assert len(labelled.draw_labelled(classes, 10_000, np.random.RandomState(0))) == 523


def test_half_of_the_pairs_are_of_one_class():
    classes = np.repeat(np.arange(50), 4)
    first, second = labelled.draw_pairs(classes, 4000, np.random.RandomState(0))
    similar = classes[first] == classes[second]
    assert similar[:2000].all()
    assert similar[2000:].mean() < 0.05
    assert len(np.unique(second[:2000])) == 200


@pytest.mark.parametrize(
    ("hasher", "message"),
    [
        (KernelSupervisedHashing(n_anchors=0), "n_anchors must be an int of at least 1, got 0"),
        (KernelSupervisedHashing(n_labelled=1), "n_labelled must be an int of at least 2, got 1"),
        (MinimalLossHashing(threshold=1.0), "threshold must be at least 0 and below 1, got 1.0"),
        (MinimalLossHashing(n_steps=-1), "n_steps must be an int of at least 0, got -1"),
        (BinaryReconstructiveEmbeddings(target="words"), "target must be one of distances, labels, got 'words'"),
        (BinaryReconstructiveEmbeddings(n_sweeps=1.5), "n_sweeps must be an int of at least 0, got 1.5"),
        (BinaryReconstructiveEmbeddings(n_rows=1), "n_rows must be an int of at least 2, got 1"),
        (RankingSupervisedHashing(n_bits=13), r"n_bits must be at most the number of features \(12\), got 13"),
        (OnlineKernelHashing(C=0), "C must be above 0, got 0"),
        (OnlineKernelHashing(dissimilar_share=1.1), "dissimilar_share must be above 0 and at most 1, got 1.1"),
        (OnlineKernelHashing(n_pairs=-1), "n_pairs must be an int of at least 0, got -1"),
        (MultidimensionalSpectralHashing(sigma=0), "sigma must be positive and finite, got 0"),
        (MultidimensionalSpectralHashing(sigma=np.inf), "sigma must be positive and finite, got inf"),
    ],
    ids=str,
)
def test_bad_parameters(hasher, message):
    with pytest.raises(ValueError, match=message):
        hasher.fit(vectors(), labels(vectors()))


# Kernels --------------------------------------------------------------------------------------------------------------


def test_kernels_against_the_formula():
    X, Q = vectors(80, 6, seed=0), vectors(9, 6, seed=1)
    fitted = anchors.fit_kernel(X, 20, np.random.RandomState(0))
    assert all(any((row == anchor).all() for row in X) for anchor in fitted.anchors)
    squared = np.array([[((x - anchor) ** 2).sum() for anchor in fitted.anchors] for x in X])
    np.testing.assert_allclose(fitted.bandwidth, anchors.WIDTH * squared.mean())
    means = np.exp(-squared / fitted.bandwidth).mean(axis=0)
    expected = [[np.exp(-((q - a) ** 2).sum() / fitted.bandwidth) for a in fitted.anchors] for q in Q]
    np.testing.assert_allclose(fitted(Q), expected - means, atol=1e-12)


# KSH ------------------------------------------------------------------------------------------------------------------


def dense_residual(classes, n_bits, bits):
    return n_bits * np.where(classes[:, None] == classes, 1.0, -1.0) - bits @ bits.T


def test_ksh_gradient():
    random = np.random.default_rng(0)
    K, classes, bits = random.normal(size=(30, 7)), np.arange(30) % 3, np.sign(random.normal(size=(30, 2)))
    membership = (classes[:, None] == np.arange(3)).astype(float)
    residual, a = ksh.Residual(membership, 8, bits), random.normal(size=7)
    S = dense_residual(classes, 8, bits)
    np.testing.assert_allclose(residual @ K, S @ K)
    phi = 2 / (1 + np.exp(-K @ a)) - 1
    value, gradient = ksh.smoothed(a, K, residual)
    np.testing.assert_allclose(value, -phi @ S @ phi / 30)
    np.testing.assert_allclose(gradient, numerical_gradient(lambda a: ksh.smoothed(a, K, residual)[0], a), atol=1e-6)


def test_ksh_bits_are_no_worse_than_the_spectral_relaxation():
    """Greedily, bit by bit: each is at least as good as the top generalised eigenvector, found with dense matrices."""
    X, y = blobs(120)
    K = anchors.fit_kernel(X, 15, np.random.RandomState(0))(X)
    bits = np.where(K @ ksh.learn_bits(K, y, 6) > 0, 1.0, -1.0)
    gains = []
    for k in range(6):
        S = dense_residual(y, 6, bits[:, :k])
        _, vectors_ = scipy.linalg.eig(K.T @ S @ K, K.T @ K)
        values = [a.real @ (K.T @ S @ K) @ a.real / (a.real @ K.T @ K @ a.real) for a in vectors_.T]
        spectral = np.where(K @ vectors_[:, np.argmax(values)].real > 0, 1.0, -1.0)
        ours, theirs = bits[:, k] @ S @ bits[:, k], max(b @ S @ b for b in (spectral, -spectral))
        assert ours >= theirs * (1 - 1e-9)
        gains.append(ours - theirs)
    assert max(gains) > 0  # the sigmoid's gradient adds to it


# MLH ------------------------------------------------------------------------------------------------------------------


def slow_bound(W, first, second, losses):
    """The maximum over all pairs of codes, one by one."""
    n_bits, total = W.shape[1], 0.0
    codes = [np.array(code) for code in itertools.product((-1, 1), repeat=n_bits)]
    for x, y, loss in zip(first, second, losses, strict=True):
        u, v = x @ W, y @ W
        total += max(loss[(g != h).sum()] + g @ u + h @ v for g in codes for h in codes)
        total -= np.abs(u).sum() + np.abs(v).sum()
    return total


def test_mlh_bound_and_gradient():
    random = np.random.default_rng(0)
    W, first, second = random.normal(size=(5, 4)), random.normal(size=(6, 5)), random.normal(size=(6, 5))
    table = mlh.hinge_losses(4, 2)
    np.testing.assert_allclose(table, [[1, 2 / 3, 1 / 3, 0, 0], [0, 0, 1 / 3, 2 / 3, 1]])
    losses = table[[0, 0, 0, 1, 1, 1]]
    value, gradient = mlh.bound(W, first, second, losses)
    np.testing.assert_allclose(value, slow_bound(W, first, second, losses))
    expected = numerical_gradient(lambda W: slow_bound(W, first, second, losses), W)
    np.testing.assert_allclose(gradient, expected, atol=1e-6)
    distances = ((first @ W > 0) != (second @ W > 0)).sum(axis=1)
    assert value >= losses[np.arange(6), distances].sum() - 1e-9  # an upper bound of the loss


def test_mlh_lowers_the_loss():
    X, y = blobs()
    losses = []
    for n_steps in (0, 300):
        hasher = MinimalLossHashing(n_bits=16, n_steps=n_steps, random_state=0).fit(X, y)
        codes = hasher.transform(X)
        table = mlh.hinge_losses(16, round(0.2 * 16))
        losses.append(table[(y[:, None] == y).astype(int), hamming(codes, codes)].mean())
    assert losses[1] < 0.7 * losses[0]


# BRE ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_bre_step_is_the_best_of_all_coefficients(seed):
    random = np.random.default_rng(seed)
    n, share = 40, 1 / 6
    values, slopes = random.normal(size=n), random.normal(size=n)
    slopes[:3], values[3:6], slopes[3:6] = (
        0,
        values[3],
        slopes[3],
    )  # rows that never change, and rows that change together
    partners, others = random.integers(n, size=(n, 7)), random.normal(size=(n, 7)) / 4

    def objective(t):
        bits = values + (t - 0.5) * slopes > 0
        return np.square(others + share * (bits[:, None] != bits[partners])).sum()

    best = bre.best_coefficient(bre.Line(values, slopes, 0.5), partners, others, share)
    changes = np.sort(0.5 - values[slopes != 0] / slopes[slopes != 0])
    everywhere = np.concatenate([[changes[0] - 1], (changes[1:] + changes[:-1]) / 2, [changes[-1] + 1]])
    np.testing.assert_allclose(objective(best), min(map(objective, everywhere)))


def test_bre_leaves_a_line_without_slope():
    line = bre.Line(np.ones(4), np.zeros(4), 0.25)
    assert bre.best_coefficient(line, np.zeros((4, 1), int), np.ones((4, 1)), 0.1) == 0.25
    assert bre.best_for_labels(line, 0, np.ones((4, 2), np.float32), np.arange(4) % 2) == 0.25


def test_bre_label_error_against_all_pairs():
    random = np.random.default_rng(0)
    signs = random.choice(np.float32([-1, 1]), size=(30, 7))
    y = random.choice([0, 2, 3], size=30)  # a class without rows
    differ = (signs[:, None] != signs).mean(axis=2)
    np.testing.assert_allclose(bre.label_error(signs, y), np.square(differ - (y[:, None] != y)).mean())


@pytest.mark.parametrize("seed", range(5))
def test_bre_step_with_labels_is_the_best_of_all_coefficients(seed):
    random = np.random.default_rng(seed)
    n, n_bits, k = 40, 5, 2
    values, slopes = random.normal(size=n), random.normal(size=n)
    slopes[:3], values[3:6], slopes[3:6] = 0, values[3], slopes[3]  # rows that never change, or change together
    signs, y = random.choice(np.float32([-1, 1]), size=(n, n_bits)), random.integers(4, size=n)

    def error(t):
        column = np.where(values + (t - 0.5) * slopes > 0, 1, -1)
        return bre.label_error(np.where(np.arange(n_bits) == k, column[:, None], signs), y)

    best = bre.best_for_labels(bre.Line(values, slopes, 0.5), k, signs, y)
    changes = np.sort(0.5 - values[slopes != 0] / slopes[slopes != 0])
    everywhere = np.concatenate([[changes[0] - 1], (changes[1:] + changes[:-1]) / 2, [changes[-1] + 1]])
    np.testing.assert_allclose(error(best), min(map(error, np.setdiff1d(everywhere, changes))))


def test_bre_with_labels_ends_where_the_error_settles():
    X, y = blobs(60)
    long, longer = (
        BinaryReconstructiveEmbeddings(n_bits=4, target="labels", n_sweeps=n_sweeps, random_state=0).fit(X, y)
        for n_sweeps in (2000, 3000)
    )
    np.testing.assert_array_equal(long.components_, longer.components_)


def test_bre_learns_from_more_rows_where_labels_are_the_target():
    X, y = blobs(6000, 4)
    for target, n_rows in {"distances": 2000, "labels": 5000}.items():
        by_default, as_told = (
            BinaryReconstructiveEmbeddings(2, target=target, n_sweeps=1, random_state=0, **told).fit(X, y)
            for told in ({}, {"n_rows": n_rows})
        )
        np.testing.assert_array_equal(by_default.components_, as_told.components_)


@pytest.mark.parametrize("target", ["distances", "labels"])
def test_bre_error_never_rises(target):
    X, y = blobs(200)
    centred = X - X.mean(axis=0)
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    distances = 1 - unit @ unit.T
    wanted = distances / distances.max() if target == "distances" else (y[:, None] != y).astype(float)
    errors = []
    for n_sweeps in (0, 1, 4, 16):
        hasher = BinaryReconstructiveEmbeddings(n_bits=12, target=target, n_sweeps=n_sweeps, random_state=0)
        codes = hasher.fit(X, y).transform(X)
        errors.append(np.square(hamming(codes, codes) / 12 - wanted).mean())
    assert all(after < before for before, after in itertools.pairwise(errors))
    assert errors[-1] < 0.8 * errors[0]


def test_bre_ignores_labels_unless_they_are_the_target():
    X, y = blobs(60)
    hasher = BinaryReconstructiveEmbeddings(n_bits=6, n_sweeps=2, random_state=0)
    np.testing.assert_array_equal(hasher.fit(X, y).components_, hasher.fit(X).components_)


def test_supervised_bre_is_a_scikit_learn_estimator():
    check_estimator(BinaryReconstructiveEmbeddings(1, target="labels", n_sweeps=2, random_state=0), on_skip=None)


# RSH ------------------------------------------------------------------------------------------------------------------


def test_rsh_matrix_against_the_triplet_tensor():
    X, y = blobs(12, 5, 3)
    expected = np.zeros((5, 5))
    for query in range(12):
        differences = [X[i] - X[j] for i in range(12) for j in range(12) if y[i] == y[query] != y[j]]
        expected += np.outer(X[query], np.mean(differences, axis=0)) / 12
    np.testing.assert_allclose(rsh.triplet_matrix(X, y), (expected + expected.T) / 2)


def test_rsh_gradient():
    random = np.random.default_rng(0)
    B, multipliers, W = random.normal(size=(5, 5)), random.normal(size=(3, 3)), random.normal(size=15)
    B, multipliers = B + B.T, multipliers + multipliers.T
    gradient = rsh.lagrangian(W, B, multipliers, 0.7)[1]
    expected = numerical_gradient(lambda W: rsh.lagrangian(W, B, multipliers, 0.7)[0], W)
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_rsh_against_eigenvectors():
    random = np.random.default_rng(0)
    B = random.normal(size=(9, 9))
    B += B.T
    W = rsh.maximise(B, np.linalg.qr(random.normal(size=(9, 3)))[0])
    top = np.linalg.eigh(B)[1][:, -3:]
    np.testing.assert_allclose(W.T @ W, np.eye(3), atol=1e-3)
    np.testing.assert_allclose(W @ W.T, top @ top.T, atol=1e-2)


# OKH ------------------------------------------------------------------------------------------------------------------


def slow_update(W, pair, similar, wanted, C):
    """The nearest right codes by enumeration, then the passive-aggressive problem by a general solver."""
    n_bits = W.shape[1]
    values = pair @ W
    codes = np.where(values > 0, 1.0, -1.0)
    distance = (codes[0] != codes[1]).sum()
    loss = distance if similar else max(0, wanted - distance)
    if loss == 0:
        return W
    every_code = [np.array(code) for code in itertools.product((-1.0, 1.0), repeat=n_bits)]
    allowed = {0} if similar else range(wanted, n_bits + 1)
    right = [(g, h) for g in every_code for h in every_code if (g != h).sum() in allowed]
    best = max(right, key=lambda pair: pair[0] @ values[0] + pair[1] @ values[1])

    def margin(x):
        new = pair @ x[:-1].reshape(W.shape)
        return sum((g - f) @ v for g, f, v in zip(best, codes, new, strict=True)) - np.sqrt(loss) + x[-1]

    found = scipy.optimize.minimize(
        lambda x: np.square(x[:-1] - W.ravel()).sum() / 2 + C * x[-1],
        np.append(W.ravel(), 100.0),
        method="SLSQP",
        constraints=[{"type": "ineq", "fun": margin}, {"type": "ineq", "fun": lambda x: x[-1]}],
        options={"ftol": 1e-10, "maxiter": 500},
    )
    return found.x[:-1].reshape(W.shape)


@pytest.mark.parametrize("similar", [True, False])
@pytest.mark.parametrize("C", [0.02, 10.0])
def test_okh_update_against_a_general_solver(similar, C):
    for seed in range(4):
        random = np.random.default_rng(seed)
        W, pair = random.normal(size=(5, 4)), random.normal(size=(2, 5))
        expected = slow_update(W, pair, similar, 3, C)
        okh.update(W, pair, similar, 3, C)
        np.testing.assert_allclose(W, expected, atol=1e-4)


def test_okh_partial_fit_takes_pairs_in_their_order():
    X, y = blobs(60)
    pairs = np.array([[0, 4, 1], [1, 2, 0], [3, 7, 1], [8, 9, 0]])
    at_once = OnlineKernelHashing(8, n_pairs=50, random_state=0).fit(X, y).partial_fit(X, pairs=pairs)
    one_by_one = OnlineKernelHashing(8, n_pairs=50, random_state=0).fit(X, y)
    for pair in pairs:
        one_by_one.partial_fit(X, pairs=[pair])
    np.testing.assert_array_equal(at_once.components_, one_by_one.components_)
    consecutive = OnlineKernelHashing(8, n_pairs=50, random_state=0).fit(X, y).partial_fit(X[:4], y[:4])
    same = OnlineKernelHashing(8, n_pairs=50, random_state=0).fit(X, y).partial_fit(X, pairs=[[0, 1, 0], [2, 3, 0]])
    np.testing.assert_array_equal(consecutive.components_, same.components_)


def test_okh_starts_and_continues_without_fit(tmp_path):
    X, y = blobs(100)
    with pytest.raises(NotFittedError):
        OnlineKernelHashing().transform(X)
    hasher = OnlineKernelHashing(8, n_anchors=20, random_state=0).partial_fit(X, y)
    assert hasher.anchors_.shape == (20, 16)
    hasher.save(tmp_path / "file")
    loaded = load_hasher(tmp_path / "file")
    np.testing.assert_array_equal(loaded.partial_fit(X, y).components_, hasher.partial_fit(X, y).components_)


def test_okh_follows_new_classes():
    """Pairs of classes that appear later move the codes of those classes apart."""
    X, y = blobs(800, n_classes=8)
    old = y < 4
    hasher = OnlineKernelHashing(16, n_anchors=100, random_state=0).fit(X[old], y[old])

    def gap():
        codes = hasher.transform(X[~old])
        distances, similar = hamming(codes, codes), y[~old][:, None] == y[~old]
        return distances[~similar].mean() - distances[similar].mean()

    before = gap()
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(np.flatnonzero(~old))
        hasher.partial_fit(X[order], y[order])
    assert gap() > 1.2 * before


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (None, "requires y to be passed, but the target y is None, and so are pairs"),
        ([[0, 1]], r"pairs must be integers of shape \(m, 3\), got int64 of shape \(1, 2\)"),
        ([[0.0, 1.0, 1.0]], r"pairs must be integers of shape \(m, 3\), got float64"),
        ([[0, 60, 1]], "pairs must hold rows from 0 to 59, got 0 to 60"),
        ([[-1, 2, 1]], "pairs must hold rows from 0 to 59, got -1 to 2"),
        ([[0, 2, 2]], "pairs must be 1 if similar and 0 if not in the third column"),
    ],
)
def test_okh_bad_pairs_change_nothing(pairs, message):
    X = vectors()
    hasher = make(OnlineKernelHashing).fit(X, labels(X))
    before = hasher.components_.copy()
    with pytest.raises(ValueError, match=message):
        hasher.partial_fit(X, pairs=pairs)
    with pytest.raises(ValueError, match="11 features"):
        hasher.partial_fit(X[:, 1:], pairs=[[0, 1, 1]])
    with pytest.raises(ValueError, match="X must hold values that can be squared"):
        hasher.partial_fit([[1e308] * 12, [1e307] * 12], pairs=[[0, 1, 1]])
    with pytest.raises(ValueError, match="n_bits must be the fitted 5, got 6"):
        hasher.set_params(n_bits=6).partial_fit(X, pairs=[[0, 1, 1]])
    np.testing.assert_array_equal(hasher.components_, before)
    assert hasher.n_bits_ == 5


# MDSH -----------------------------------------------------------------------------------------------------------------


def test_mdsh_eigenfunctions_against_hermite_functions():
    """Over a normal distribution the eigenvalues fall geometrically, with a ratio known in closed form."""
    grid = np.linspace(-6, 6, 241)
    counts = np.rint(1e6 * np.exp(-(grid**2) / 2)).astype(np.int64)
    functions, eigenvalues = mdsh.eigenfunctions(counts, grid[1] - grid[0], 3)
    a, b = 1 / 4, 1 / 2  # of a standard normal distribution and a kernel of width one
    ratio = b / (a + b + np.sqrt(a**2 + 2 * a * b))
    np.testing.assert_allclose(eigenvalues, ratio ** np.arange(1, 4), rtol=0.01)
    n_changes = (np.diff(np.sign(functions[:, 20:-20]), axis=1) != 0).sum(axis=1)
    np.testing.assert_array_equal(n_changes, [1, 2, 3])


def test_mdsh_reconstructs_the_affinity():
    """Weighted by eigenvalues, codes reconstruct the affinity of vectors along one line better than unweighted."""
    X = np.random.default_rng(0).uniform(size=(400, 1))
    hasher = MultidimensionalSpectralHashing(n_bits=6, sigma=0.3).fit(X)
    signs = np.where(hasher.project(X) > 0, 1.0, -1.0)
    affinity = np.exp(-np.square(X - X.T) / (2 * 0.3**2)).ravel()
    weighted = ((signs * hasher.eigenvalues_) @ signs.T).ravel()
    assert np.corrcoef(weighted, affinity)[0, 1] > np.corrcoef((signs @ signs.T).ravel(), affinity)[0, 1] + 0.02
    assert np.corrcoef(weighted, affinity)[0, 1] > 0.7
