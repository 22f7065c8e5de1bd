"""The gate keeps what helps and drops what does not; its figures against the metrics computed directly."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitrank import QueryVectorRanker
from bitrank.core.codes import hamming, pack, weighted_hamming
from bitrank.core.metrics import average_precision, precision_at
from bitrank.ranking import QueryAdaptiveRanker
from bitrank.ranking.evidence.kinds import LabelEvidence, QueryRows
from bitrank.ranking.gate import choose as gate
from bitrank.ranking.gate import folds, judge
from bitrank.ranking.gate.report import Report

N_BITS = 24


def data(n=400, n_classes=4, n_good=4, seed=0):
    """Codes whose first bits tell the class, with some errors, and whose other bits are noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    bits = rng.integers(2, size=(n, N_BITS))
    signature = (np.arange(n_classes)[:, None] >> np.arange(n_good) % 2) & 1
    bits[:, :n_good] = signature[y] ^ (rng.random((n, n_good)) < 0.1)
    return pack(bits), y


GOOD = np.where(np.arange(N_BITS) < 4, 5.0, 0.25).astype(np.float32)
BAD = np.where(np.arange(N_BITS) < 4, 0.0, 1.0).astype(np.float32)


def candidates(**factors):
    def challengers(rows, wanted=None):
        for name, factor in factors.items():
            if wanted is None or {"name": name} in wanted:
                yield {"name": name}, factor

    return challengers


def labelled(codes, y, magnitudes=None):
    return LabelEvidence(codes, y, QueryRows(codes, magnitudes), None, N_BITS)


def choose(codes, y, learn, seed=0, magnitudes=None, **options):
    evidence, random = labelled(codes, y, magnitudes), np.random.default_rng(seed)
    return gate.choose_by_labels(
        evidence, lambda some, _: learn if some is evidence else candidates(), random=random, **options
    )


def test_a_race_judges_the_best_few_of_the_first_fold_in_the_others():
    codes, y = data()
    factors = {"good": GOOD, "bad": BAD} | {f"worse {n}": BAD * (1 + np.arange(N_BITS) % (n + 2)) for n in range(8)}
    asked = []

    def learn(rows, wanted=None):
        asked.append(wanted)
        for name, factor in factors.items():
            if wanted is None or {"name": name} in wanted:
                yield {"name": name}, factor.astype(np.float32)

    report = choose(codes, y, learn, race=True, cross_validate=True)
    assert report.params == {"name": "good"}
    assert [wanted is None for wanted in asked] == [True, False, False]
    assert asked[1] == asked[2]
    assert {"name": "good"} in asked[1]
    assert 3 <= len(asked[1]) <= 9
    assert {line["name"] for line in report[1:]} == {params["name"] for params in asked[1]}
    everyone = choose(codes, y, candidates(good=GOOD), cross_validate=True)
    assert report.blend == everyone.blend


# Blending -------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 5), st.integers(1, 9), st.floats(0, 1), st.integers(0, 2**31))
@settings(derandomize=True)
def test_blend(n, n_bits, amount, seed):
    factor = np.random.default_rng(seed).exponential(size=(n, n_bits)) + 1e-3
    got = gate.blend(factor, amount)
    np.testing.assert_allclose(got, (1 - amount) + amount * factor / factor.mean(axis=1, keepdims=True))
    np.testing.assert_allclose(got.mean(axis=1), 1)
    np.testing.assert_allclose(gate.blend(factor[0], amount), got[0])
    np.testing.assert_allclose(gate.blend(7 * factor, amount), got)


def test_blend_of_nothing_is_uniform():
    np.testing.assert_array_equal(gate.blend(np.zeros((2, 3)), 0.7), np.ones((2, 3)))
    np.testing.assert_array_equal(gate.blend(np.arange(3.0), 0.0), np.ones(3))
    np.testing.assert_allclose(gate.blend(np.arange(3.0), 1.0), [0, 1, 2])


# Choosing -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scoring", ["guarded", "map", "p10"])
@pytest.mark.parametrize("validation", ["rows", "classes"])
def test_a_good_factor_is_picked_and_a_bad_one_is_not(scoring, validation):
    codes, y = data()
    report = choose(codes, y, candidates(bad=BAD, good=GOOD), scoring=scoring, validation=validation)
    assert report.params == {"name": "good"}
    assert report.blend in gate.BLENDS
    assert report[0].keys() == {"blend", "map", "p10", "map_error", "p10_error"}
    assert report[0]["blend"] == 0.0
    tried = [(line["name"], line["blend"]) for line in report[1:]]
    assert tried == [(name, amount) for name in ("bad", "good") for amount in gate.BLENDS]
    chosen = next(line for line in report if line["blend"] == report.blend and line.get("name") == "good")
    figure = "p10" if scoring == "p10" else "map"
    assert chosen[figure] > report[0][figure]


@pytest.mark.parametrize("scoring", ["guarded", "map", "p10"])
def test_only_bad_factors_leave_uniform_weights(scoring):
    codes, y = data()
    report = choose(codes, y, candidates(bad=BAD), scoring=scoring)
    assert not report.accepted
    assert report.blend == 0.0
    assert len(report) == 1 + len(gate.BLENDS)


def test_noise_leaves_uniform_weights():
    codes = pack(np.random.default_rng(1).integers(2, size=(600, N_BITS)))
    y = np.random.default_rng(2).integers(5, size=600)
    noise = np.random.default_rng(3).exponential(size=(3, N_BITS)).astype(np.float32)
    kept = 0
    for seed in range(5):
        report = choose(codes, y, candidates(**{str(i): factor for i, factor in enumerate(noise)}), seed=seed)
        kept += not report.accepted
    assert kept == 5


@pytest.mark.parametrize("seed", range(8))
def test_guarded_never_picks_what_lowers_precision_at_10(seed):
    codes, y = data(300, seed=seed, n_good=2)
    rng = np.random.default_rng(seed)
    some = {str(i): (rng.exponential(size=N_BITS) + GOOD * rng.random()).astype(np.float32) for i in range(5)}
    report = choose(codes, y, candidates(**some), seed=seed)
    if report.accepted:
        lines = [line for line in report[1:] if line["blend"] == report.blend and line["name"] == report.params["name"]]
        assert lines[0]["p10"] >= report[0]["p10"]
        assert lines[0]["map"] > report[0]["map"]


def test_guard_refuses_a_gain_in_map_that_costs_precision_at_10():
    # Bit 0 tells the class in half of the rows, all others are a private copy for a group of 12 rows of one class:
    # they decide the top of the list, bit 0 the rest of it.
    rng = np.random.default_rng(0)
    group = np.arange(600) // 12
    y = group % 2
    bits = rng.integers(2, size=(50, N_BITS))[group] ^ (rng.random((600, N_BITS)) < 0.05)
    bits[:, :3] = (y ^ (rng.random(600) < 0.15))[:, None]
    only = np.where(np.arange(N_BITS) < 3, 1.0, 0.0).astype(np.float32)
    codes = pack(bits)
    unguarded = choose(codes, y, candidates(only=only), scoring="map")
    figures = {line["blend"]: line for line in unguarded}
    assert figures[unguarded.blend]["map"] > figures[0.0]["map"] + 0.05
    assert figures[unguarded.blend]["p10"] < figures[0.0]["p10"]
    guarded = choose(codes, y, candidates(only=only))
    assert guarded == unguarded
    assert guarded.blend != unguarded.blend
    assert figures[guarded.blend]["p10"] >= figures[0.0]["p10"]


def test_factor_may_be_a_function_of_the_queries():
    codes, y = data()
    seen = []

    def factor(queries):
        seen.append(queries)
        return np.broadcast_to(GOOD, (len(queries), N_BITS))

    by_function = choose(codes, y, candidates(good=factor))
    assert by_function == choose(codes, y, candidates(good=GOOD))
    assert all(part.dtype == np.int64 for part in seen)


def test_a_candidate_that_one_fold_lacks_is_not_compared():
    codes, y = data()
    asked = []

    def learn(rows, wanted=None):
        asked.append(rows)
        yield {"name": "always"}, BAD
        if len(asked) == 1:
            yield {"name": "once"}, GOOD

    report = choose(codes, y, learn, validation="classes")
    assert len(asked) == 2
    assert {line.get("name") for line in report} == {None, "always"}
    assert not report.accepted


def test_bad_options():
    codes, y = data()
    with pytest.raises(ValueError, match=r"scoring must be one of .*, got 'time'"):
        choose(codes, y, candidates(good=GOOD), scoring="time")
    with pytest.raises(ValueError, match=r"validation must be one of .*, got 'time'"):
        choose(codes, y, candidates(good=GOOD), validation="time")
    with pytest.raises(ValueError, match="needs at least four classes, got 3"):
        choose(codes, y % 3, candidates(good=GOOD), validation="classes")


def test_too_little_evidence_is_refused():
    codes, y = data()
    report = choose(codes, np.arange(len(y)), candidates(good=GOOD))
    assert report == []
    assert not report.accepted
    assert report.refusal.startswith("too little evidence: no held-out query has a similar item")
    assert Report.load(report.stored(), "guarded").refusal == report.refusal


# Splitting ------------------------------------------------------------------------------------------------------------


def test_rows_are_held_out_once():
    codes, y = data()
    seen = []
    choose(codes, y, lambda rows, wanted: seen.append(rows) or iter(()))
    (rows,) = seen
    assert len(rows) == 266
    assert (np.diff(rows) > 0).all()
    (fold,) = folds.split_labels(y, "rows", np.random.default_rng(0))
    np.testing.assert_array_equal(fold.learn, rows)
    assert not np.isin(fold.queries, fold.learn).any()
    assert not np.isin(fold.sample, fold.learn).any()
    assert set(fold.sample) | set(fold.learn) == set(range(400))
    np.testing.assert_array_equal(fold.collection, np.arange(400))


def test_few_rows_are_held_out_in_turn(monkeypatch):
    codes, y = data()
    seen = []
    choose(codes, y, lambda rows, wanted: seen.append(rows) or iter(()), cross_validate=True)
    left_out = [set(range(400)) - set(rows) for rows in seen]
    assert sorted(len(part) for part in left_out) == [133, 133, 134]
    assert set.union(*left_out) == set(range(400))
    monkeypatch.setattr(folds, "_FEW_ROWS", 399)
    assert len(folds.split_labels(y, "rows", np.random.default_rng(0), cross_validate=True)) == 1


@pytest.mark.parametrize("n_classes", [4, 5, 9])
def test_whole_classes_are_held_out_each_in_turn(n_classes):
    y = np.random.default_rng(0).integers(n_classes, size=300)
    codes = pack(np.random.default_rng(1).integers(2, size=(300, N_BITS)))
    seen = []
    choose(codes, y, lambda rows, wanted: seen.append(rows) or iter(()), validation="classes")
    first, second = (set(y[rows]) for rows in seen)
    assert first | second == set(range(n_classes))
    assert not first & second
    assert abs(len(first) - len(second)) <= 1
    for fold, rows in zip(folds.split_labels(y, "classes", np.random.default_rng(0)), seen, strict=True):
        np.testing.assert_array_equal(fold.learn, rows)
        for part in (fold.queries, fold.sample, fold.collection):
            assert not set(y[part]) & set(y[fold.learn])
        assert set(fold.collection) == set(range(300)) - set(fold.learn)


def test_large_collections_are_sampled(monkeypatch):
    monkeypatch.setattr(folds, "_MOST_QUERIES", 20)
    monkeypatch.setattr(folds, "_MOST_ITEMS", 50)
    _, y = data()
    (fold,) = folds.split_labels(y, "rows", np.random.default_rng(0))
    assert (len(fold.queries), len(fold.sample), len(fold.collection)) == (20, 50, 400)


# Held-out figures -----------------------------------------------------------------------------------------------------


def direct_figures(codes, y, fold, weights):
    """By the reference distances and the metrics: MAP in the query's half of the sample, P@10 in the collection."""
    ap, p10 = [], []
    halves = judge.halves(y, fold.queries, fold.sample)
    in_half = [(fold.queries[place], items, ap) for half, items in halves for place in half]
    for query, items, out in in_half + [(query, fold.collection, p10) for query in fold.queries]:
        row = None if weights is None else weights[query]
        others = items[items != query]
        if row is None:
            distance = hamming(codes[query][None], codes[others])
        else:
            distance = weighted_hamming(codes[query][None], codes[others], row)
        relevant = (y[others] == y[query])[None]
        found = average_precision(distance, relevant) if out is ap else precision_at(distance, relevant, 10)
        out.append(found[0])
    return np.array(ap), np.array(p10)


def test_halves_share_nothing_and_hold_every_class():
    y = np.repeat([3, 5, 9], [300, 200, 101])
    random = np.random.default_rng(0)
    rows = random.permutation(len(y))
    first, second = judge.halves(y, rows[:100], rows[100:])
    assert not set(first[0]) & set(second[0])
    assert not set(first[1]) & set(second[1])
    assert sorted([*first[0], *second[0]]) == list(range(100))
    for a, b in ((y[rows[first[0]]], y[rows[second[0]]]), (y[first[1]], y[second[1]])):
        counts = np.array([np.bincount(side, minlength=10)[[3, 5, 9]] for side in (a, b)])
        assert counts.min() > 0
        assert np.abs(np.diff(counts, axis=0)).max() <= 1
    # A class too small to be halved: all in all.
    ((places, items),) = judge.halves(np.r_[y, 7], rows[:100], np.r_[rows[100:], len(y)])
    assert len(places) == 100
    assert len(items) == 502


@pytest.mark.parametrize("validation", ["rows", "classes"])
@pytest.mark.parametrize("with_magnitudes", [False, True])
def test_figures_equal_a_direct_computation(validation, with_magnitudes):
    codes, y = data(200)
    magnitudes = (
        np.random.default_rng(4).integers(1, 5, size=(200, N_BITS)).astype(np.float32) if with_magnitudes else None
    )
    fold = folds.split_labels(y, validation, np.random.default_rng(0))[0]
    held_out = judge.HeldOutLabels(labelled(codes, y, magnitudes), fold)
    # Without magnitudes the rival is Hamming, with them the asymmetric distance.
    for got, want in zip(held_out.judge()[:2], direct_figures(codes, y, fold, magnitudes), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    # Powers of two with a mean of 1: blends are exact in float32, and so are their ties.
    factor = np.where(np.arange(N_BITS) % 2, 0.5, 1.5).astype(np.float32)
    for amount, scores in held_out.judge_blends(factor, gate.BLENDS):
        if amount not in (0.25, 1.0):
            continue
        weights = (1 - amount + amount * factor) * (1 if magnitudes is None else magnitudes) * np.ones((200, 1))
        for got, want in zip(scores[:2], direct_figures(codes, y, fold, weights.astype(np.float32)), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_precision_at_10_of_a_few_nearest_is_that_of_all(monkeypatch):
    codes, y = data(300)
    fold = folds.split_labels(y, "rows", np.random.default_rng(0))[0]
    rng = np.random.default_rng(0)
    magnitudes = rng.random((300, N_BITS)).astype(np.float32)  # no ties: the nearest 40 are the same, however found
    all_p10 = judge.HeldOutLabels(labelled(codes, y, magnitudes), fold).judge().p10
    monkeypatch.setattr(judge, "_NEAREST", 40)
    near_p10 = judge.HeldOutLabels(labelled(codes, y, magnitudes), fold).judge().p10
    np.testing.assert_allclose(near_p10, all_p10)


def test_queries_without_a_similar_item_are_left_out():
    codes, y = data(60)
    y = y.copy()
    fold = folds.split_labels(y, "rows", np.random.default_rng(0))[0]
    y[fold.queries[0]] = 99
    held_out = judge.HeldOutLabels(labelled(codes, y), fold)
    assert len(held_out.queries) == sum((y[fold.sample] == y[query]).sum() > 1 for query in fold.queries)
    assert len(held_out.queries) < len(fold.queries)
    assert np.isfinite(held_out.judge().ap).all()


def test_with_magnitudes_the_rival_is_the_asymmetric_distance():
    # The magnitudes alone tell which bits are right, so a factor that knows it too adds nothing.
    codes, y = data()
    magnitudes = np.tile(GOOD, (len(y), 1))
    report = choose(codes, y, candidates(same=np.ones(N_BITS, np.float32)), magnitudes=magnitudes)
    assert not report.accepted
    plain = choose(codes, y, candidates(good=GOOD))
    assert report[0]["map"] > plain[0]["map"] + 0.05
    full = next(line for line in plain if line["blend"] == 1.0)
    assert report[0]["map"] == pytest.approx(full["map"], abs=1e-3)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("learner", [QueryAdaptiveRanker, QueryVectorRanker])
def test_random_labels_keep_the_query_as_it_is(itq_digits, learner, seed):
    y = np.random.default_rng(seed).integers(10, size=500)
    ranker = learner(n_steps=30, random_state=seed).fit(itq_digits.codes[:500], y)
    assert ranker.blend_ == 0.0
    queries = ranker.queries_for(itq_digits.queries)
    np.testing.assert_array_equal(queries.codes, itq_digits.queries)
    np.testing.assert_array_equal(queries.weights, np.ones((800, 32), np.float32))
    sizes = np.abs(itq_digits.query_values)
    weights = ranker.queries_for(itq_digits.query_values).weights
    scale = sizes.mean(axis=1, keepdims=True) / weights.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(weights * scale, sizes, rtol=1e-5)


# The report -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scoring", ["guarded", "map", "p10"])
def test_a_report_knows_its_winner_and_what_it_gains(scoring):
    codes, y = data()
    report = choose(codes, y, candidates(bad=BAD, good=GOOD), scoring=scoring)
    figure = "p10" if scoring == "p10" else "map"
    assert report.accepted
    assert report.figure == figure
    assert report.winner in report[1:]
    assert report.params == {"name": "good"}
    assert report.blend == report.winner["blend"]
    assert report.before == {name: report[0][name] for name in ("map", "p10")}
    assert report.after == {name: report.winner[name] for name in ("map", "p10")}
    assert report.gain == pytest.approx(report.after[figure] - report.before[figure])
    assert report.gain > 4 * report.gain_error == 4 * report.winner[f"{figure}_error"]
    again = Report.load(report.stored(), "guarded")
    assert (again, again.winner, again.scoring) == (report, report.winner, scoring)
    older = Report.load(list(report), scoring)  # files of before held the lines alone
    assert older.winner == report.winner


def test_a_report_without_a_winner():
    codes, y = data()
    refused = choose(codes, y, candidates(bad=BAD))
    for report in (refused, Report()):
        assert not report.accepted
        assert (report.winner, report.blend, report.gain, report.gain_error, report.inputs) == (
            None,
            0.0,
            0.0,
            0.0,
            None,
        )
        assert report.params == {}
        assert report.after == report.before
    assert refused.before.keys() == {"map", "p10"}
    assert Report().before == {}
    for bad in ({"lines": [{"blend": 0.0}, {"blend": 1.0}]}, {"rows": []}, 7, [1]):
        with pytest.raises(ValueError, match="expected a report of lines, got"):
            Report.load(bad, "guarded")
