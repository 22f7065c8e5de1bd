"""QaRank against a general solver and a search by hand; the ranker of multidimensional spectral hashing."""

import numpy as np
import pytest
import scipy.optimize

from bitrank import Index
from bitrank.core.codes import hamming, pack, unpack
from bitrank.hashing import MultidimensionalSpectralHashing
from bitrank.ranking import MDSHRanker, QaRank, load_ranker
from bitrank_papers import qa_rank


def test_weights_against_a_general_solver():
    random = np.random.default_rng(0)
    variances, similar = random.uniform(0.01, 1, size=(3, 5)), random.uniform(size=(3, 3))
    similar += similar.T
    np.fill_diagonal(similar, 0)
    for smoothing in (0.01, 1.0):
        ours = qa_rank.solve_weights(variances, similar, smoothing)

        def value(flat, smoothing=smoothing):
            return qa_rank.objective(flat.reshape(3, 5), variances, similar, smoothing)

        found = scipy.optimize.minimize(
            value,
            np.full(15, 0.2),
            method="SLSQP",
            bounds=[(0, None)] * 15,
            constraints=[{"type": "eq", "fun": lambda flat: flat.reshape(3, 5).sum(axis=1) - 1}],
            options={"ftol": 1e-12, "maxiter": 500},
        )
        np.testing.assert_allclose(ours.sum(axis=1), 1)
        np.testing.assert_allclose(ours, found.x.reshape(3, 5), atol=1e-4)
        assert value(ours.ravel()) <= found.fun + 1e-6


def test_objective_against_the_sums():
    random = np.random.default_rng(0)
    a, v, s = random.uniform(size=(2, 3)), random.uniform(size=(2, 3)), np.array([[0, 0.5], [0.5, 0]])
    expected = sum(v[c, k] * a[c, k] ** 2 for c in range(2) for k in range(3))
    expected += 2 * 0.5 * sum((a[0, k] - a[1, k]) ** 2 for k in range(3)) * 0.7
    assert qa_rank.objective(a, v, s, 0.7) == pytest.approx(expected)


def data(n=300, n_bits=13, seed=0):
    random = np.random.default_rng(seed)
    y = random.integers(3, size=n)
    bits = random.integers(2, size=(n, n_bits))
    bits[np.arange(n), y] = 1
    return pack(bits), y


def test_queries_mix_the_classes_of_their_nearest_rows():
    codes, y = data()
    ranker = QaRank(13, n_neighbors=40, random_state=0).fit(codes, y)
    queries = ranker.queries_for(codes[:6])
    for query, weights in zip(codes[:6], queries.weights, strict=True):
        nearest = np.argsort(hamming(query[None], codes)[0], kind="stable")[:40]
        mixed = sum(ranker.class_weights_[label] for label in y[nearest]) / 40
        np.testing.assert_allclose(weights, (13 * mixed) ** 2, rtol=1e-5)
    # Bit c is constant in class c alone: it gets the largest weight there.
    np.testing.assert_array_equal(ranker.class_weights_.argmax(axis=1), [0, 1, 2])


def test_a_sample_of_the_rows_is_kept():
    codes, y = data()
    ranker = QaRank(13, n_rows=50, random_state=0).fit(codes, y)
    assert ranker.rows_.shape == (50, 13)
    kept = {tuple(row) for row in ranker.rows_ > 0}
    assert kept <= {tuple(row) for row in unpack(codes, 13) > 0}
    assert ranker.queries_for(codes).weights.shape == (300, 13)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"smoothing": 0}, "smoothing must be positive and finite, got 0"),
        ({"n_neighbors": 0}, "n_neighbors must be an int of at least 1, got 0"),
        ({"n_rows": 0}, "n_rows must be an int of at least 1, got 0"),
    ],
)
def test_bad_parameters(options, message):
    codes, y = data()
    with pytest.raises(ValueError, match=message):
        QaRank(13, **options).fit(codes, y)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("row_classes_", lambda array: array + 0.5, "expected row_classes_ from 0 to 2"),
        ("row_classes_", lambda array: array + 1, "expected row_classes_ from 0 to 2"),
        ("class_weights_", lambda array: -array, "expected class_weights_ that are not negative"),
    ],
)
def test_wrong_files(name, change, message, tmp_path):
    codes, y = data()
    QaRank(13, random_state=0).fit(codes, y).save(tmp_path / "file")
    with np.load(tmp_path / "file") as archive:
        entries = dict(archive)
    with open(tmp_path / "file", "wb") as file:
        np.savez(file, **{**entries, name: change(entries[name])})
    with pytest.raises(ValueError, match=message):
        load_ranker(tmp_path / "file")


def test_mdsh_ranker_searches_by_eigenvalues(tmp_path):
    X = np.random.default_rng(0).normal(size=(500, 6)) * [5, 3, 2, 1, 1, 1]
    hasher = MultidimensionalSpectralHashing(n_bits=13).fit(X)
    codes = hasher.transform(X)
    ranker = MDSHRanker(hasher.eigenvalues_).fit(codes)
    signs = np.where(hasher.project(X) > 0, 1.0, -1.0)
    affinity = (signs[:5] * hasher.eigenvalues_) @ signs.T
    ids, _ = Index(codes, n_bits=13).search(ranker.queries_for(codes[:5]), k=10)
    expected = np.sort(affinity, axis=1)[:, ::-1][:, :10]
    np.testing.assert_allclose(np.take_along_axis(affinity, ids, axis=1), expected, atol=1e-5)
    ranker.save(tmp_path / "file")
    np.testing.assert_array_equal(load_ranker(tmp_path / "file").weights_, ranker.weights_)


@pytest.mark.parametrize(
    ("eigenvalues", "message"),
    [
        (np.ones(12), "weights must hold 13 values, one per bit, got 12"),
        (-np.ones(13), "weights must"),
        (np.ones((2, 13)), r"eigenvalues must be one vector, got shape \(2, 13\)"),
    ],
)
def test_bad_eigenvalues(eigenvalues, message):
    codes, _ = data()
    with pytest.raises(ValueError, match=message):
        MDSHRanker(eigenvalues, n_bits=13).fit(codes)
