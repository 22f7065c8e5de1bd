"""BitPlanes: codes against levels, numbers and scores that are computed here, one by one."""

import numpy as np
import pytest
from hashers import repeatable
from hypothesis import given
from hypothesis import strategies as st

from bitrank import _kernel
from bitrank.core.codes import unpack, weighted_hamming
from bitrank.hashing import BitPlanes, load_hasher
from bitrank.index import Index

METRICS = ["cosine", "dot", "l2"]


def spectrum(n=600, d=24, seed=0, mean=0.5):
    """Vectors with a mean, and variances that fall."""
    turn = np.linalg.qr(np.random.default_rng(99).normal(size=(d, d)))[0]
    return np.random.default_rng(seed).normal(size=(n, d)) / np.arange(1, d + 1) ** 0.7 @ turn + mean / np.sqrt(d)


def true_scores(X, Q, metric):
    if metric == "cosine":
        X, Q = (A / np.linalg.norm(A, axis=1, keepdims=True) for A in (X, Q))
    return -((Q[:, None] - X) ** 2).sum(axis=2) if metric == "l2" else Q @ X.T


def recall(found, truth, k=10):
    wanted = np.argsort(-truth, axis=1, kind="stable")[:, :k]
    return np.mean([len(set(a[:k]) & set(b)) / k for a, b in zip(found.tolist(), wanted.tolist(), strict=True)])


def search(planes, index, codes, Q, k=10):
    """What a collection does: a shortlist by heads, ranked by whole codes, ordered by the estimate."""
    shortlist = max(4 * k, planes.shortlist_)
    ids = index.search((planes.project(Q, head=True), planes.project(Q)), 4 * k, shortlist=shortlist).ids
    order = np.argsort(-planes.estimate(codes[ids], Q), axis=1)[:, :k]
    return np.take_along_axis(ids, order, 1)


def numbers_of(planes, codes):
    """Decoded axes, and w and f, read bit by bit from codes."""
    bits = unpack(codes, planes.n_bits_).astype(np.float64)
    places, exponents = planes.layout_.astype(int).T
    axes = np.zeros((len(codes), int((planes.bits_per_axis_ > 0).sum())))
    levels = {-1: 0, -2: 0, -3: 0}
    for column, (place, exponent) in enumerate(zip(places, exponents, strict=True)):
        if place >= 0:
            axes[:, place] += (bits[:, column] - 0.5) * 2.0**exponent * planes.steps_[place]
        elif place > -4:
            levels[place] = levels[place] + bits[:, column] * 2.0**exponent
    w, f = (low + step * levels[kind] for kind, (low, step, _) in zip((-2, -3), planes.numbers_[1:], strict=True))
    return axes, w, f


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bits", [0.25, 0.5, 1, 2.5, 4, 8])
def test_scores_are_those_of_levels_and_numbers(metric, bits):
    X, Q = spectrum(), spectrum(20, seed=1)
    planes = BitPlanes(bits, metric, random_state=0).fit(X)
    codes = planes.transform(X)
    assert codes.shape == (len(X), planes.n_bits_ // 8)
    assert planes.n_bits_ <= 8 * np.ceil((round(bits * 24) + 16) / 8) + 16
    axes, w, f = numbers_of(planes, codes)
    length, _, t0 = planes.facts_[:3]
    A = (X / np.linalg.norm(X, axis=1, keepdims=True) if metric == "cosine" else X / length) - planes.center_
    # Levels: every coordinate lies in its own, or beyond the last.
    a = A @ planes.axes_.astype(np.float64)
    if planes.family_ == "unit":
        a /= np.linalg.norm(A, axis=1, keepdims=True)
    steps, m = planes.steps_, axes.shape[1]
    kept = np.bincount(planes.layout_[planes.layout_[:, 0] >= 0, 0].astype(int), minlength=m)
    width = steps[:m] * 2.0 ** (planes.bits_per_axis_[:m] - kept)
    inside = np.abs(a[:, :m]) < steps[:m] * 2.0 ** (planes.bits_per_axis_[:m] - 1)
    assert (np.abs(a[:, :m] - axes)[inside] <= (width / 2 + 1e-5 + 0 * a[:, :m])[inside]).all()
    # Scores: linear in the bits, up to a constant of the query.
    if metric == "l2":
        q, beta = Q / length - planes.center_, np.ones(len(Q))
    else:
        q = Q / np.linalg.norm(Q, axis=1, keepdims=True)
        beta = np.clip(q @ planes.center_ / (planes.center_ @ planes.center_), -3, 3)
        q = q - beta[:, None] * planes.center_
    products = q @ planes.axes_[:, :m].astype(np.float64) @ axes.T
    scores = products + beta[:, None] * w
    reals = planes.project(Q)
    distances = weighted_hamming(np.packbits(reals > 0, axis=1), codes, np.abs(reals))
    found = np.abs(reals).sum(axis=1, keepdims=True) - 2 * distances
    np.testing.assert_allclose(found - found[:, :1], scores - scores[:, :1], atol=1e-5 * np.abs(scores).max())
    # Estimates of true scores.
    estimates = (products + beta[:, None] * w) / f + beta[:, None] * t0
    if metric == "l2":
        estimates = length**2 * (2 * estimates - (q**2).sum(axis=1, keepdims=True))
    else:
        estimates = estimates + ((q + beta[:, None] * planes.center_) @ planes.center_)[:, None]
        estimates *= 1 if metric == "cosine" else np.linalg.norm(Q, axis=1, keepdims=True) * length
    np.testing.assert_allclose(planes.estimate(codes, Q), estimates, rtol=1e-4, atol=1e-4 * np.abs(estimates).max())
    own = planes.estimate(codes[:40].reshape(20, 2, -1), Q)
    np.testing.assert_allclose(own[3], planes.estimate(codes[6:8], Q)[3], rtol=1e-4)


@pytest.mark.parametrize("metric", METRICS)
def test_estimates_come_near_scores(metric):
    X, Q = spectrum(2000), spectrum(50, seed=1)
    truth = true_scores(X, Q, metric)
    errors = []
    for bits in (1, 2, 4, 8):
        planes = BitPlanes(bits, metric, random_state=0).fit(X)
        near = np.argsort(-truth, axis=1)[:, :20]
        estimates = np.take_along_axis(planes.estimate(planes.transform(X), Q), near, 1)
        errors.append(np.sqrt(np.mean((estimates - np.take_along_axis(truth, near, 1)) ** 2)) / truth.std())
    assert errors[0] < 0.25
    assert errors[3] < 0.05
    assert errors[0] > errors[1] > errors[2]


@pytest.mark.parametrize("metric", METRICS)
def test_recall_rises_with_bits_and_heads_lose_little(metric):
    X, Q = spectrum(2000, d=48), spectrum(60, d=48, seed=1)
    truth = true_scores(X, Q, metric)
    recalls = []
    for bits in (0.5, 1, 2, 4):
        planes = BitPlanes(bits, metric, random_state=0).fit(X)
        codes = planes.transform(X)
        n_scanned = planes.n_scanned_
        weights = planes.bit_weights_[:n_scanned]
        index = Index(codes, n_bits=planes.n_bits_, n_scanned=n_scanned, query_weights=weights)
        recalls.append(recall(search(planes, index, codes, Q), truth))
        whole = recall(np.argsort(-planes.estimate(codes, Q), axis=1), truth)
        assert recalls[-1] > whole - 0.04
    assert recalls == sorted(recalls)
    assert recalls[1] > 0.55
    assert recalls[3] > 0.88


def test_products_with_decoded_vectors_are_the_estimates():
    X, Q = spectrum(mean=2), spectrum(20, seed=1, mean=2)
    for metric in ("dot", "cosine"):
        planes = BitPlanes(2, metric, random_state=0).fit(X)
        codes = planes.transform(X)
        asked = Q / np.linalg.norm(Q, axis=1, keepdims=True) if metric == "cosine" else Q
        np.testing.assert_allclose(asked @ planes.decode(codes).T, planes.estimate(codes, Q), rtol=1e-3, atol=1e-4)
    planes = BitPlanes(8, "l2", random_state=0).fit(X)
    assert np.abs(planes.decode(planes.transform(X)) - X).max() < 0.3


def test_any_prefix_is_a_code():
    X, Q = spectrum(2000, d=48), spectrum(50, d=48, seed=1)
    truth = true_scores(X, Q, "l2")
    planes = BitPlanes(4, "l2", random_state=0).fit(X)
    codes = planes.transform(X)
    recalls = []
    for n_bytes in (2, 6, 12, planes.n_bits_ // 8):
        first = planes.prefix(n_bytes)
        assert first.n_bits_ == 8 * n_bytes
        np.testing.assert_array_equal(first.transform(X), codes[:, :n_bytes])
        ids = Index(codes[:, :n_bytes].copy()).search(first.project(Q), 10).ids
        recalls.append(recall(ids, truth))
        assert np.isfinite(first.estimate(first.transform(X), Q)).all()
    assert recalls == sorted(recalls)
    head = planes.prefix(planes.n_scanned_ // 8)
    asked, rounded = head.project(Q), planes.project(Q, head=True)
    sizes = np.abs(asked)
    _kernel.round_to_exact_sums(sizes)
    np.testing.assert_array_equal(rounded, np.copysign(sizes, asked))
    assert (np.abs(rounded - asked) <= np.abs(asked).sum(axis=1, keepdims=True) / 200).all()


@repeatable
@given(st.integers(2, 40), st.integers(1, 20), st.floats(0.25, 8), st.sampled_from(METRICS), st.integers(0, 9))
def test_any_shape(n, d, bits, metric, seed):
    X = spectrum(n, d, seed) + 0.01
    planes = BitPlanes(bits, metric, random_state=seed).fit(X)
    codes = planes.transform(X)
    assert planes.n_scanned_ <= planes.n_bits_ == 8 * codes.shape[1] == len(planes.bit_weights_)
    assert planes.n_scanned_ % 8 == 0
    assert planes.project(X).shape == (n, planes.n_bits_)
    assert planes.project(X, head=True).shape == (n, planes.n_scanned_)
    assert np.isfinite(planes.estimate(codes, X)).all()
    assert np.isfinite(planes.decode(codes)).all()
    assert (np.diff(planes.bit_weights_[: planes.n_scanned_]) <= 0).all()


@pytest.mark.parametrize("metric", METRICS)
def test_saved_and_loaded_with_all_it_does(metric, tmp_path):
    X = spectrum()
    planes = BitPlanes(3, metric, random_state=0).fit(X)
    planes.save(tmp_path / "planes")
    loaded = load_hasher(tmp_path / "planes")
    codes = planes.transform(X)
    np.testing.assert_array_equal(loaded.transform(X), codes)
    np.testing.assert_array_equal(loaded.estimate(codes, X[:5]), planes.estimate(codes, X[:5]))
    np.testing.assert_array_equal(loaded.project(X[:5], head=True), planes.project(X[:5], head=True))
    for name in ("n_bits_", "n_scanned_", "shortlist_", "family_", "recall_"):
        assert getattr(loaded, name) == getattr(planes, name)


@pytest.mark.parametrize("bits", [0, 0.2, 8.5, -1, np.nan, np.inf, "4", None, True, [4]])
def test_bad_bits(bits):
    with pytest.raises(ValueError, match=r"bits must be a number from 0\.25 to 8, got"):
        BitPlanes(bits).fit(spectrum())


def test_mistakes():
    with pytest.raises(ValueError, match="metric must be one of"):
        BitPlanes(metric="euclidean").fit(spectrum())
    X = spectrum()
    X[3] = 0
    with pytest.raises(ValueError, match="X must have no zero vectors for the cosine, got one in row 3"):
        BitPlanes().fit(X)
    planes = BitPlanes(random_state=0).fit(spectrum())
    with pytest.raises(ValueError, match="X must have no zero vectors for the cosine, got one in row 3"):
        planes.transform(X)
    with pytest.raises(ValueError, match="X must have no zero vectors for the cosine, got one in row 3"):
        planes.project(X)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        planes.project(np.full((1, 24), np.nan))
    with pytest.raises(ValueError, match="Input X contains infinity"):
        planes.transform(np.full((1, 24), np.inf))
    with pytest.raises(ValueError, match="X has 23 features, but BitPlanes is expecting 24"):
        planes.project(np.ones((1, 23)))
    with pytest.raises(ValueError, match="n_bytes must be at most"):
        planes.prefix(999)
    with pytest.raises(ValueError, match="bytes wide, got 3"):
        planes.estimate(np.zeros((2, 3), np.uint8), X[:1])
    for metric in ("dot", "l2"):
        zeros = BitPlanes(2, metric, random_state=0).fit(X)
        assert np.isfinite(zeros.estimate(zeros.transform(X), X)).all()


def uneven_lengths():
    """Lengths over several orders of magnitude, around zero."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3200, 48)) / np.sqrt(np.arange(1, 49))
    return X * rng.lognormal(0, 1, (3200, 1)) / np.linalg.norm(X, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("metric", "bits", "least"), [("l2", 1, 0.4), ("l2", 4, 0.8), ("dot", 1, 0.65), ("dot", 4, 0.85)]
)
def test_uneven_lengths(metric, bits, least, tmp_path):
    """By distance the threshold of a query grows with its length; by products a centre near zero is no direction."""
    X, Q = np.split(uneven_lengths(), [3000])
    planes = BitPlanes(bits=bits, metric=metric, random_state=0).fit(X)
    assert (planes._layout.slope > 0) == (metric == "l2")
    codes, whole = planes.transform(X), planes.project(Q)
    index = Index(codes, n_bits=planes.n_bits_, n_scanned=planes.n_scanned_)
    found = index.search((planes.project(Q, head=True), whole), 40, shortlist=100)
    products = np.abs(whole).sum(axis=1, keepdims=True) - 2 * found.distances
    estimates = planes.estimates(products, codes[found.ids][..., -planes.tail_bytes :], planes.ask(Q))
    expected = planes.estimate(codes[found.ids], Q)
    np.testing.assert_allclose(estimates, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
    best = np.take_along_axis(found.ids, np.argsort(-estimates, axis=1), 1)
    assert recall(best, true_scores(X, Q, metric)) > least
    planes.save(tmp_path / "planes.npz")
    assert (load_hasher(tmp_path / "planes.npz").project(Q) == whole).all()


def edge(kind, n=400, d=32):
    """Vectors that a fit may stumble over, and queries like them."""
    rng = np.random.default_rng(0)
    total = n + 20
    X = rng.normal(size=(total, d)) / np.sqrt(np.arange(1, d + 1)) + 0.2
    if kind == "fewer rows than dimensions":
        X, n = X[:40].copy(), 20
    elif kind == "constant dimensions":
        X[:, ::2] = 3
    elif kind == "duplicates":
        X[:n] = np.repeat(X[: n // 4], 4, axis=0)
    elif kind == "zero vectors":
        X[:n:7] = 0
    elif kind == "heavy tails":
        X = rng.standard_t(2, (total, d))
    elif kind == "six orders of magnitude":
        X *= 10.0 ** rng.uniform(-3, 3, (total, 1))
    return X[:n], X[n:]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    "kind",
    [
        "fewer rows than dimensions",
        "constant dimensions",
        "duplicates",
        "zero vectors",
        "heavy tails",
        "six orders of magnitude",
    ],
)
def test_edges(kind, metric):
    X, Q = edge(kind)
    if kind == "zero vectors" and metric == "cosine":
        with pytest.raises(ValueError, match="X must have no zero vectors for the cosine, got one in row 0"):
            BitPlanes(4, metric, random_state=0).fit(X)
        return
    planes = BitPlanes(4, metric, random_state=0).fit(X)
    estimates, truth = planes.estimate(planes.transform(X), Q), true_scores(X, Q, metric)
    assert np.isfinite(estimates).all()
    # The score of the tenth found beside that of the tenth nearest: equal vectors are equally near.
    order = np.argsort(-estimates, axis=1)[:, :10]
    found = np.take_along_axis(truth, order, 1)
    tenth = -np.sort(-truth, axis=1)[:, 9:10]
    slack = 0.02 * (truth.max(axis=1, keepdims=True) - np.median(truth, axis=1, keepdims=True))
    # Short vectors near zero are further from each other than levels tell.
    assert (found >= tenth - slack).mean() > (0.4 if kind == "six orders of magnitude" and metric == "l2" else 0.8)
