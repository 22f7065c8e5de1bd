"""`fit_vectors`: a decoder against least squares, the vectors that it calls near, and what the gate makes of it."""

import numpy as np
import pytest

from bitrank import AsymmetricRanker, QueryVectorRanker, load_ranker
from bitrank.core.codes import distances, pack, signs
from bitrank.core.metrics import ndcg_at
from bitrank.ranking import decoder
from bitrank.ranking.evidence.kinds import check_vector_evidence

N_BITS = 32


def collection(n=800, n_queries=400, seed=0):
    """Vectors around a mean, codes of their centred signs, and queries that lie off the items, as questions do."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(12, N_BITS))
    mean = rng.normal(size=N_BITS)
    vectors = rng.normal(size=(n, 12)) @ mixing + 0.3 * rng.normal(size=(n, N_BITS)) + mean
    queries = rng.normal(size=(n_queries, 12)) @ mixing + 2.5 * rng.normal(size=N_BITS)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    center = vectors.mean(axis=0)
    return pack(vectors > center), vectors.astype(np.float32), queries.astype(np.float32), center.astype(np.float32)


def agreement(asked, codes, vectors, query_vectors):
    """nDCG@10 of the ten nearest vectors."""
    near = np.argsort(-query_vectors @ vectors.T, axis=1)[:, :10]
    gains = np.zeros((len(near), len(codes)))
    np.put_along_axis(gains, near, 1, axis=1)
    return ndcg_at(distances(asked.codes, codes, asked.weights), gains, 10).mean()


@pytest.mark.slow
def test_reals_off_the_items_are_ranked_as_their_vectors(tmp_path):
    codes, vectors, queries, center = collection()
    learn, test = slice(0, 300), slice(300, None)
    values = queries - center
    ranker = QueryVectorRanker(random_state=0).fit_vectors(
        codes, vectors, queries=values[learn], query_vectors=queries[learn]
    )
    own = agreement(AsymmetricRanker().fit(codes).queries_for(values[test]), codes, vectors, queries[test])
    assert ranker.blend_ > 0
    assert agreement(ranker.queries_for(values[test]), codes, vectors, queries[test]) > own + 0.05
    assert (ranker.queries_for(values[test]).trust == 1).all()
    assert ranker.report_[0]["ndcg10"] == pytest.approx(own, abs=0.05)
    bare = ranker.queries_for(pack(values[test] > 0))
    assert bare.weights.shape == (100, N_BITS)
    ranker.save(tmp_path / "decoder.ranker")
    again = load_ranker(tmp_path / "decoder.ranker").queries_for(values[test])
    np.testing.assert_array_equal(again.weights, ranker.queries_for(values[test]).weights)


@pytest.mark.slow
def test_vectors_that_say_nothing_of_the_codes_change_nothing():
    codes, vectors, *_ = collection(400)
    noise = np.random.default_rng(1).normal(size=vectors.shape).astype(np.float32)
    values = (signs(codes, N_BITS) * np.random.default_rng(2).uniform(0.5, 1.5, vectors.shape)).astype(np.float32)
    ranker = QueryVectorRanker(random_state=0).fit_vectors(codes, noise, queries=values)
    assert ranker.blend_ == 0
    found = ranker.queries_for(values[:5])
    np.testing.assert_array_equal(found.codes, codes[:5])
    sizes = np.abs(values[:5]) / np.abs(values[:5]).mean(axis=1, keepdims=True)
    np.testing.assert_allclose(found.weights, sizes, rtol=1e-5)


def test_the_decoder_is_the_least_squares_solution():
    codes, vectors, *_ = collection(500)
    evidence = check_vector_evidence(codes, vectors, None, None, N_BITS)
    got = decoder._least_squares(evidence, np.arange(500))
    bits = signs(codes, N_BITS).astype(float)
    values = np.column_stack([vectors, (vectors.astype(float) ** 2).sum(axis=1)])
    inputs = np.vstack([bits - bits.mean(axis=0), np.sqrt(0.003 * 500) * np.eye(N_BITS)])
    targets = np.vstack([values - values.mean(axis=0), np.zeros((N_BITS, values.shape[1]))])
    want = np.linalg.lstsq(inputs, targets, rcond=None)[0]
    np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("form", [None, 1.0, 1e-9])
def test_linear_maps(form):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(300, 6)) + 1
    full = np.diag(rng.uniform(1, 2, 6)) if form is None else rng.normal(size=(6, 6))
    targets = inputs @ full.T + 3
    network = decoder._linear(inputs, targets, form)
    got = network(np.column_stack([inputs, np.ones(300)]).astype(np.float32))
    error = np.abs(got - targets).mean()
    assert error < (0.01 if form != 1.0 else 1.5)


@pytest.mark.parametrize("itself", [False, True])
def test_nearest_vectors(itself):
    codes, vectors, queries, _ = collection(200, 50)
    evidence = check_vector_evidence(
        codes, vectors, *((None, None) if itself else (pack(queries > 0), queries)), N_BITS
    )
    numbers = np.array([3, 7, 20])
    pairs = decoder.nearest_vectors(evidence, numbers)
    asked = (vectors if itself else queries)[numbers]
    far = np.linalg.norm(asked[:, None] - vectors, axis=2)
    if itself:
        far[np.arange(3), numbers] = np.inf
    want = [
        [number, item, 1] for number, row in zip(numbers, far, strict=True) for item in np.sort(np.argsort(row)[:10])
    ]
    assert pairs.tolist() == want


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vectors": np.zeros((10, 3))}, r"vectors must have shape \(200, n_features\), one row per code, got"),
        ({"vectors": np.full((200, 3), np.nan)}, "vectors must be finite"),
        ({"query_vectors": np.zeros((200, N_BITS))}, "query_vectors must come with queries"),
        ({"queries": np.ones((5, N_BITS))}, "must be the 200 items themselves, got 5 rows"),
        ({"queries": np.ones((5, N_BITS)), "query_vectors": np.zeros((4, N_BITS))}, "query_vectors must have shape"),
        ({"queries": np.ones((5, N_BITS)), "query_vectors": np.zeros((5, 3))}, rf"shape \(5, {N_BITS}\)"),
        ({"queries": np.ones((5, 7)), "query_vectors": np.zeros((5, N_BITS))}, "bytes wide|shape"),
    ],
)
def test_bad_vectors(change, message):
    codes, vectors, *_ = collection(200, 1)
    ranker = QueryVectorRanker(random_state=0)
    with pytest.raises(ValueError, match=message):
        ranker.fit_vectors(codes, **{"vectors": vectors, **change})
    assert not hasattr(ranker, "n_bits_")


def test_too_few_codes():
    with pytest.raises(ValueError, match="codes must be at least three"):
        QueryVectorRanker(random_state=0).fit_vectors(np.uint8([[1], [2]]), np.ones((2, 3)))
