"""QueryAdaptiveRanker: its gradients against finite differences, what it gains on the digits, and its gate."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from listwise import differences, direct_loss, toy
from sklearn.base import clone

from bitrank.core.codes import signs
from bitrank.ranking import QueryAdaptiveRanker, query_adaptive
from bitrank.ranking.evidence.kinds import LabelEvidence, QueryRows
from bitrank.ranking.gate.choose import BLENDS
from bitrank.ranking.gate.report import Report
from bitrank.ranking.networks.loss import Adam, loss_gradient


def fast(**options):
    return QueryAdaptiveRanker(**{"n_steps": 30, "random_state": 0, **options})


def learned(ranker):
    return {name: value for name, value in vars(ranker).items() if name.endswith("_")}


# The loss -------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 4), st.integers(2, 9), st.floats(0, 1), st.floats(0.1, 5), st.integers(0, 2**31))
@settings(derandomize=True)
def test_gradient_of_the_loss(n_queries, n_items, share, spread, seed):
    rng = np.random.default_rng(seed)
    scores = spread * rng.normal(size=(n_queries, n_items))
    similar = rng.random((n_queries, n_items)) < share
    got = loss_gradient(scores, similar)
    np.testing.assert_allclose(got, differences(lambda s: direct_loss(s, similar), scores), atol=1e-6)


def test_gradient_of_large_scores_is_finite():
    scores = np.float32([[300, -300, 0, 200], [-500, 500, 500, -500]])
    similar = np.array([[False, True, True, False], [True, False, False, False]])
    got = loss_gradient(scores, similar)
    assert np.isfinite(got).all()
    assert (got[similar] <= 0).all()
    assert (got[~similar] >= 0).all()
    np.testing.assert_allclose(got.sum(axis=1), 0, atol=1e-6)  # a constant added to all scores changes nothing


NOTHING, GAIN = ({"map": figure, "p10": figure, "map_error": 0.01, "p10_error": 0.01} for figure in (0.5, 0.9))


@pytest.mark.parametrize("reals", [False, True])
def test_one_step_follows_the_gradient_of_the_whole_model(monkeypatch, reals):
    rng = np.random.default_rng(0)
    codes, y = toy(12, n_bits=5)
    bits = signs(codes, 5)
    magnitudes = rng.random((12, 5)).astype(np.float32) + np.float32(0.5) if reals else None
    seen = []
    monkeypatch.setattr(Adam, "step", lambda self, gradient, schedule: seen.append(gradient))
    evidence = LabelEvidence(codes, y, QueryRows(codes, magnitudes), None, 5)
    random = np.random.default_rng(1)
    monkeypatch.setattr(QueryAdaptiveRanker, "_random", lambda self: random)
    monkeypatch.setattr(
        query_adaptive.gate,
        "choose_by_labels",
        lambda *_, **__: Report([{"blend": 0.0, **NOTHING}, {"blend": 1.0, **GAIN}]),
    )
    QueryAdaptiveRanker(n_steps=1)._fit_labels(evidence)
    batch = np.random.default_rng(1)
    queries, items = batch.integers(12, size=12), batch.integers(12, size=12)
    similar = (y[queries][:, None] == y[items]) & (queries[:, None] != items)
    scale = np.ones((12, 5)) if magnitudes is None else magnitudes / magnitudes.mean(axis=1, keepdims=True)

    def loss(coef, intercept):
        weights = np.log1p(np.exp(bits[queries] @ coef.T + intercept))
        weights *= 2 / np.sqrt(5) / weights.mean(axis=1, keepdims=True)
        weights *= scale[queries]
        # Minus the weighted Hamming distance is the score.
        different = bits[queries][:, None, :] != bits[items][None]
        return direct_loss(-(weights[:, None, :] * different).sum(axis=2), similar)

    coef, intercept = np.zeros((5, 5)), np.zeros(5)
    np.testing.assert_allclose(seen[0], differences(lambda m: loss(m, intercept), coef), atol=1e-4)
    np.testing.assert_allclose(seen[1], differences(lambda b: loss(coef, b), intercept), atol=1e-4)


# Gains and the gate ---------------------------------------------------------------------------------------------------


def test_digits_rank_better_than_by_hamming(itq_digits):
    ranker = fast(n_steps=60).fit(itq_digits.codes, itq_digits.y)
    (hamming_map, hamming_p10), found = (
        itq_digits.figures(),
        itq_digits.figures(ranker.queries_for(itq_digits.queries, collection=itq_digits.queries).weights),
    )
    assert found[0] > hamming_map + 0.04
    assert found[1] > hamming_p10 - 0.002
    assert ranker.blend_ in BLENDS
    assert [line["blend"] for line in ranker.report_] == [0.0, *BLENDS]
    chosen = next(line for line in ranker.report_ if line["blend"] == ranker.blend_)
    assert chosen["map"] > ranker.report_[0]["map"]
    assert chosen["p10"] >= ranker.report_[0]["p10"]


def test_float_queries_of_digits_rank_better_than_by_the_asymmetric_distance(itq_digits):
    ranker = fast(n_steps=60).fit(itq_digits.codes, itq_digits.y, queries=itq_digits.values)
    asymmetric = itq_digits.figures(np.abs(itq_digits.query_values))
    asked = ranker.queries_for(itq_digits.query_values, collection=itq_digits.queries)
    found = itq_digits.figures(asked.weights)
    assert found[0] > asymmetric[0] + 0.04
    assert found[1] > asymmetric[1] - 0.002


def test_classes_are_held_out():
    codes, y = toy()
    ranker = fast(validation="classes").fit(codes, y)
    assert len(ranker.report_) == 1 + len(BLENDS)
    with pytest.raises(ValueError, match="needs at least four classes, got 3"):
        fast(validation="classes").fit(codes, y % 3)


# Weights --------------------------------------------------------------------------------------------------------------


def test_weights_are_softplus_of_the_query_blended():
    codes, y = toy()
    ranker = fast().fit(codes, y)
    assert ranker.blend_ > 0
    raw = signs(codes[:9], 16) @ ranker.coef_.T.astype(float) + ranker.intercept_
    asked = ranker.queries_for(codes[:9], collection=codes)
    share = ranker.blend_ * asked.trust[:, None]
    weights = np.log1p(np.exp(raw))
    want = (1 - share) + share * weights / weights.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(asked.weights, want, rtol=1e-4)
    magnitudes = np.random.default_rng(0).random((9, 16))
    reals = signs(codes[:9], 16) * magnitudes
    np.testing.assert_allclose(ranker.queries_for(reals, collection=codes).weights, want * magnitudes, rtol=1e-4)
    assert ranker.coef_.shape == (16, 16)
    assert ranker.intercept_.shape == (16,)
    # A query's weights do not depend on the other queries.
    np.testing.assert_allclose(
        ranker.queries_for(codes[3:4]).weights, ranker.queries_for(codes[:9]).weights[3:4], rtol=1e-5
    )
    assert (np.argsort(ranker.queries_for(codes).weights.mean(axis=0))[-2:] < 2).all()


def test_codes_of_98_bits():
    codes, y = toy(n_bits=98)
    ranker = fast(n_bits=98).fit(codes, y)
    assert ranker.queries_for(codes[:3]).weights.shape == (3, 98)


def test_many_steps_stay_finite():
    codes, y = toy(60, n_bits=4)
    ranker = fast(n_steps=2000, scoring="map").fit(codes, y)
    assert np.isfinite(ranker.coef_).all()
    weights = ranker.queries_for(codes).weights
    assert np.isfinite(weights).all()
    assert (weights >= 0).all()


def test_same_seed_same_weights_and_clone():
    codes, y = toy()
    ranker = fast().fit(codes, y)
    again = clone(ranker)
    assert again.get_params() == ranker.get_params()
    assert not hasattr(again, "coef_")
    again.fit(codes, y)
    for name, value in learned(ranker).items():
        np.testing.assert_array_equal(getattr(again, name), value)
    assert (fast(random_state=1).fit(codes, y).coef_ != ranker.coef_).any()
    names = np.array(list("abcd"))[y]
    np.testing.assert_array_equal(fast().fit(codes, names).coef_, ranker.coef_)


# Progress -------------------------------------------------------------------------------------------------------------


def test_silent_off_a_terminal(capsys):
    fast().fit(*toy())
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    fast(n_steps=7).fit(*toy())
    out, err = capsys.readouterr()
    assert out == ""
    assert "query-adaptive weights" in err
    assert "7/7" in err


# Bad input ------------------------------------------------------------------------------------------------------------


def test_classes_of_one_row_are_refused():
    codes, _ = toy()
    ranker = fast().fit(codes, np.arange(200))
    assert ranker.blend_ == 0
    assert ranker.report_.refusal.endswith("the classes are too small")


def test_bad_input_changes_nothing():
    codes, y = toy()
    ranker = fast().fit(codes, y)
    before = dict(learned(ranker))
    for arguments, message in [
        ((codes.astype(int), y), "packed uint8 matrix"),
        ((codes[:0], y[:0]), "at least one row, got none"),
        ((codes, y[1:]), "one label for each of the 200 codes"),
        ((codes, np.zeros(200)), "at least two classes, got 1"),
        ((codes, np.where(y > 0, np.inf, 1.0)), "y must be finite"),
    ]:
        with pytest.raises(ValueError, match=message):
            ranker.fit(*arguments)
    for options, message in [
        ({"n_bits": 24}, "3 bytes wide, got 2"),
        ({"n_bits": 15}, "last 1 bits of a row zero"),
        ({"n_steps": 0}, "n_steps must be an int of at least 1, got 0"),
        ({"scoring": "f1"}, "scoring must be one of"),
        ({"validation": "time"}, "validation must be one of"),
    ]:
        with pytest.raises(ValueError, match=message):
            clone(ranker).set_params(**options).fit(codes, y)
        with pytest.raises(ValueError, match=message):
            ranker.set_params(**options).fit(codes, y)
        ranker.set_params(**clone(fast()).get_params())
    assert all(learned(ranker)[name] is before[name] for name in before)
