"""QueryVectorRanker: its gradients against finite differences, its gains on the digits, its gate, and the search."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from listwise import differences, direct_loss, toy
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.base import clone

from bitrank import Index, QueryVectorRanker, load_ranker
from bitrank.core.archives import read_archive, write_archive
from bitrank.core.codes import distances, pack, signs, split_vectors, unpack
from bitrank.ranking.gate import judge
from bitrank.ranking.gate.choose import BLENDS
from bitrank.ranking.networks import classes
from bitrank.ranking.networks.batches import class_batches, label_batches
from bitrank.ranking.networks.loss import Adam
from bitrank.ranking.networks.network import Network, start_network, train
from bitrank.ranking.registry import FORMAT, VERSION
from bitrank.ranking.trust import Calibration


def fast(**options):
    return QueryVectorRanker(**{"n_steps": 30, "n_hidden": 16, "random_state": 0, **options})


# The search -----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 6), st.integers(1, 40), st.integers(0, 2**31))
def test_a_code_and_weights_order_as_the_inner_product(n, n_bits, seed):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, n_bits)).astype(np.float32)
    vectors[rng.random(vectors.shape) < 0.2] = 0
    items = pack(rng.integers(2, size=(30, n_bits)))
    codes, weights = split_vectors(vectors)
    assert (weights >= 0).all()
    np.testing.assert_array_equal(unpack(codes, n_bits), vectors > 0)
    # Twice the distance and the inner product add up to the sum of the weights.
    inner = vectors.astype(float) @ signs(items, n_bits).T.astype(float)
    total = weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        2 * distances(codes, items, weights) + inner, np.broadcast_to(total, inner.shape), atol=1e-3
    )


def test_an_index_answers_them():
    codes, y = toy()
    queries = fast().fit(codes, y).queries_for(codes[:5])
    found = Index(codes, n_bits=16).search(queries, 10)
    expected = np.sort(distances(queries.codes, codes, queries.weights), axis=1)[:, :10]
    np.testing.assert_allclose(found.distances, expected, rtol=1e-5, atol=1e-6)


# Queries with less than was learned from ------------------------------------------------------------------------------


def steady_and_noisy(n=400):
    """Codes, classes, reals that say which bits are noise, and features that name the class."""
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=n)
    bits = np.column_stack([y // 2, y % 2, rng.integers(2, size=(n, 14))])
    bits[:, :2] ^= rng.random((n, 2)) < 0.2
    sizes = np.repeat([8.0, 0.05], [2, 14])
    return pack(bits), y, np.where(bits > 0, sizes, -sizes), np.eye(4)[y]


def test_bare_codes_get_what_the_gate_chose_for_them():
    """Reals know the noise already, so the gate refuses what was learned for them, and accepts it for codes."""
    codes, y, values, _ = steady_and_noisy()
    ranker = fast().fit(codes, y, queries=values)
    assert ranker.full_part_.blend == 0 < ranker.bits_part_.blend
    alone = fast().fit(codes, y)
    assert ranker.bits_part_.blend == alone.blend_
    bare = ranker.queries_for(codes[:50], collection=codes)
    assert bare.weights[:, :2].mean() > 2 * bare.weights[:, 2:].mean(), "the accepted part tells bits from noise"
    trust = ranker.queries_for(codes).trust
    np.testing.assert_array_equal(trust, Calibration(ranker.sample_).trust(codes))
    assert trust.min() == 0
    asked = ranker.queries_for(values[:50], collection=codes)
    np.testing.assert_allclose(asked.weights * np.abs(values).mean(), np.abs(values[:50]), rtol=1e-5)
    np.testing.assert_array_equal(asked.trust, 1)


def test_reals_without_features_get_what_the_gate_chose_for_them(tmp_path):
    codes, y, values, features = steady_and_noisy()
    ranker = fast().fit(codes, y, queries=values, features=features)
    assert ranker.full_part_.inputs.with_features
    assert min(ranker.bits_part_.blend, ranker.full_part_.blend) > 0
    alone = fast().fit(codes, y, queries=values)
    assert ranker.reals_part_.blend == alone.blend_ == 0
    asked = ranker.queries_for(values, collection=codes)
    np.testing.assert_allclose(asked.weights * np.abs(values).mean(), np.abs(values), rtol=1e-5)
    np.testing.assert_array_equal(asked.codes, codes)
    ranker.save(tmp_path / "new.ranker")
    archive = read_archive(tmp_path / "new.ranker", FORMAT, VERSION)
    older = {name: array for name, array in archive.arrays.items() if not name.startswith("reals_")}
    facts = {name: fact for name, fact in archive.facts.items() if name != "reals_part"}
    write_archive(tmp_path / "old.ranker", FORMAT, VERSION, archive._replace(arrays=older, facts=facts))
    for name in ("new.ranker", "old.ranker"):
        again = load_ranker(tmp_path / name)
        for queries in (codes, values):
            for before, after in zip(ranker.queries_for(queries), again.queries_for(queries), strict=True):
                np.testing.assert_array_equal(before, after)


def test_learned_reals_without_features_rank_better_than_by_the_asymmetric_distance(itq_digits):
    codes, values, labels = itq_digits.codes[:700], itq_digits.values[:700], itq_digits.y[:700]
    features = np.hstack([values, np.eye(10)[labels] * values.std()])
    ranker = fast(n_steps=60).fit(codes, labels, queries=values, features=features)
    assert ranker.full_part_.inputs.with_features
    assert not ranker.reals_part_.inputs.with_features
    assert ranker.reals_part_.blend > 0
    asked = ranker.queries_for(itq_digits.query_values, collection=itq_digits.queries)
    plain = itq_digits.figures(np.abs(itq_digits.query_values))
    assert itq_digits.figures(asked.weights, asked.codes)[0] > plain[0] + 0.05


# Gradients ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_hidden", [0, 4])
@pytest.mark.parametrize("of_classes", [False, True])
def test_a_step_descends_the_loss(monkeypatch, n_hidden, of_classes):
    rng = np.random.default_rng(3)
    n_outputs, n_inputs = 5, 8
    codes, y = pack(rng.integers(2, size=(12, n_outputs))), rng.integers(2, size=12)
    bits = signs(codes, n_outputs)
    inputs = np.hstack([bits, rng.normal(size=(12, 2)), np.ones((12, 1))]).astype(np.float32)
    start = start_network(n_outputs, n_inputs, rng, n_hidden=n_hidden)
    # Scores of a few units: where all but one item have scores of exp(-20), four-byte numbers lose digits.
    filled = Network(*((rng.normal(size=array.shape) / 2).astype(np.float32) for array in start[:4]))
    if of_classes:
        y = rng.integers(n_outputs, size=12)
        filled = filled._replace(direct=rng.normal(size=(n_outputs, n_inputs)).astype(np.float32))
    seen = []
    monkeypatch.setattr(Adam, "step", lambda self, gradient, schedule: seen.append(gradient))
    draw = class_batches(y, np.arange(12)) if of_classes else label_batches(codes, n_outputs, y, np.arange(12))
    options = {"rate": 0.1, "n_steps": 1, "random": np.random.default_rng(1), "label": ""}
    train(filled, draw, lambda batch: inputs[batch.queries], **options)
    random = np.random.default_rng(1)
    queries = random.integers(12, size=12)

    def loss(*arrays):
        direct, shift = arrays[:2]
        given = inputs[queries].astype(float)
        outputs = (given[:, :n_outputs] * direct if direct.ndim == 1 else given @ direct.T) + shift
        if n_hidden:
            outputs = outputs + np.maximum(given @ arrays[2].T, 0) @ arrays[3].T
        if of_classes:
            return (np.log(np.exp(outputs).sum(axis=1)) - outputs[np.arange(12), y[queries]]).mean()
        return direct_loss(outputs @ bits[items].T, similar)

    items = random.integers(12, size=12)
    similar = (y[queries][:, None] == y[items]) & (queries[:, None] != items)
    at = [array.astype(float) for array in filled[: 4 if n_hidden else 2]]
    assert len(seen) == len(at)
    for place, gradient in enumerate(seen):
        numeric = differences(lambda array, place=place: loss(*at[:place], array, *at[place + 1 :]), at[place])
        np.testing.assert_allclose(gradient, numeric, atol=1e-4)


@pytest.mark.parametrize("kind", ["multinomial", "one against rest"])
def test_logistic_regressions_are_those_of_scipy(monkeypatch, kind):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(classes, "_N_STEPS", 2000)
    y, inputs = rng.integers(3, size=60), np.hstack([rng.normal(size=(60, 4)), np.ones((60, 1))]).astype(np.float32)
    targets, shares = np.eye(3, dtype=np.float32)[y], rng.random(60).astype(np.float32)
    targets[:5] = 0 if kind == "one against rest" else targets[:5]
    ridge = np.array([6, 6, 6, 6, 0.06])

    def loss(flat):
        weights = flat.reshape(3, 5)
        scores = inputs @ weights.T
        losses = np.logaddexp(0, scores).sum(axis=1) if kind != "multinomial" else logsumexp(scores, axis=1)
        return shares @ (losses - (targets * scores).sum(axis=1)) + (ridge * weights**2).sum() / 2

    wanted = minimize(loss, np.zeros(15), tol=1e-10).x.reshape(3, 5)
    np.testing.assert_allclose(classes.logistic(inputs, targets, shares, kind), wanted, atol=1e-3)


def test_a_vector_is_the_mean_of_those_of_the_classes():
    codes, y = toy()
    ranker = fast().fit(codes, y)
    network = ranker.full_part_
    phi = np.hstack([signs(codes, 16), np.ones((200, 1))])
    logits = phi @ network.direct.T + network.shift + np.maximum(phi @ network.inner.T, 0) @ network.outer.T
    shares = np.exp(logits - logsumexp(logits, axis=1)[:, None])
    np.testing.assert_allclose(network(phi.astype(np.float32)), shares @ network.classes[:, :16], atol=1e-4)


# Gains and the gate ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_features", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_digits_rank_better_than_by_hamming(itq_digits, with_features):
    """The values before the sign, with their signs, as features."""
    rows, queries = (itq_digits.values, itq_digits.query_values) if with_features else (None, None)
    ranker = fast(n_steps=100, n_hidden=64).fit(itq_digits.codes, itq_digits.y, features=rows)
    hamming_map, hamming_p10 = itq_digits.figures()
    made = ranker.queries_for(itq_digits.queries, features=queries, collection=itq_digits.queries)
    found = itq_digits.figures(made.weights, made.codes)
    assert found[0] > hamming_map + (0.2 if with_features else 0.12)
    assert found[1] > hamming_p10 - 0.002
    assert ranker.blend_ in BLENDS
    assert ranker.n_features_ == (32 if with_features else 0)


@pytest.mark.slow
def test_float_queries_of_digits_rank_better_than_by_the_asymmetric_distance(itq_digits):
    values, asked = itq_digits.values, itq_digits.query_values
    ranker = fast(n_steps=100, n_hidden=64).fit(itq_digits.codes, itq_digits.y, queries=values, features=values)
    made = ranker.queries_for(asked, features=asked, collection=itq_digits.queries)
    found, asymmetric = itq_digits.figures(made.weights, made.codes), itq_digits.figures(np.abs(asked))
    assert found[0] > asymmetric[0] + 0.18
    assert found[1] > asymmetric[1] - 0.002


def test_precision_at_10_is_judged_beyond_the_nearest_by_hamming(itq_digits, monkeypatch):
    """Turned bits bring far items to the top; the gate sees them, also where few of the nearest are looked at."""
    whole = fast().fit(itq_digits.codes[:900], itq_digits.y[:900]).report_[-1]
    monkeypatch.setattr(judge, "_NEAREST", 200)
    few = fast().fit(itq_digits.codes[:900], itq_digits.y[:900]).report_[-1]
    assert few["p10"] == pytest.approx(whole["p10"], abs=1e-3)


def test_the_same_seed_gives_the_same_vectors():
    codes, y = toy()
    first, second = (fast().fit(codes, y).queries_for(codes[:20]) for _ in range(2))
    np.testing.assert_array_equal(first.codes, second.codes)
    np.testing.assert_array_equal(first.weights, second.weights)


def test_clone_and_parameters():
    ranker = fast(scoring="map", validation="classes")
    assert clone(ranker).get_params() == ranker.get_params()


# Bad input ------------------------------------------------------------------------------------------------------------


def test_bad_input():
    codes, y = toy()
    features = np.ones((200, 3), np.float32)
    with pytest.raises(ValueError, match="at least two classes"):
        fast().fit(codes, np.zeros(200))
    for name in ("n_steps", "n_hidden"):
        with pytest.raises(ValueError, match=f"{name} must be an int of at least 1, got 0"):
            fast(**{name: 0}).fit(codes, y)
    for wrong in (features[:3], features[0]):
        with pytest.raises(ValueError, match=r"features must have shape \(200, n_features\)"):
            fast().fit(codes, y, features=wrong)
    with pytest.raises(ValueError, match="features must be finite"):
        fast().fit(codes, y, features=np.full((200, 3), np.nan))
    with pytest.raises(ValueError, match="scoring must be one of"):
        fast(scoring="best").fit(codes, y)
    with pytest.raises(ValueError, match="vectors must be a matrix"):
        split_vectors([1.0, 2.0])
    with pytest.raises(ValueError, match="vectors must be finite"):
        split_vectors([[np.inf, 2.0]])
