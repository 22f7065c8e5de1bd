"""RankingSVM on the embedded digits and on made-up codes: what it gains, what it reports, that it does no harm."""

import numpy as np
import pytest
from sklearn.base import clone

from bitrank import RankingSVM
from bitrank.core.codes import distances, pack, signs
from bitrank.core.metrics import average_precision
from bitrank.ranking.evidence.quadruplets import draw_quadruplets
from bitrank.ranking.gate.choose import BLENDS, COARSE_BLENDS, blend
from bitrank.ranking.ranking_svm import constants
from bitrank.ranking.solvers.objective import Constraints, Objective, best_scale
from bitrank.ranking.solvers.solvers import exact

WAYS = {("near", 200), ("near", 0.03), ("near", 0.12), ("uniform", None)}


def toy(n=300, n_bits=16, n_good=3, seed=0):
    """Eight classes told by the first bits, with errors; the others are noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2**n_good, size=n)
    bits = rng.integers(2, size=(n, n_bits))
    bits[:, :n_good] = (y[:, None] >> np.arange(n_good)) & 1
    bits[:, :n_good] ^= rng.random((n, n_good)) < 0.1
    return pack(bits), y


def fast(**options):
    return RankingSVM(**{"n_quadruplets": 2000, "random_state": 0, **options})


def choice(ranker):
    return {**ranker.params_, "blend": ranker.blend_}


def learned(ranker):
    return {name: value for name, value in vars(ranker).items() if name.endswith("_")}


# Gains ----------------------------------------------------------------------------------------------------------------


def test_digits_rank_better_than_by_hamming(itq_digits):
    ranker = fast(n_quadruplets=5000).fit(itq_digits.codes, itq_digits.y)
    (hamming_map, hamming_p10), (new_map, new_p10) = itq_digits.figures(), itq_digits.figures(ranker.weights_)
    assert new_map > hamming_map + 0.015
    assert new_p10 > hamming_p10 - 0.002
    assert ranker.weights_.dtype == np.float32
    assert ranker.weights_.shape == (32,)


def test_digits_with_magnitudes_rank_better_than_by_the_asymmetric_distance(itq_digits):
    ranker = fast(n_quadruplets=5000).fit(itq_digits.codes, itq_digits.y, queries=itq_digits.values)
    asymmetric = itq_digits.figures(np.abs(itq_digits.query_values))
    found = itq_digits.figures(ranker.queries_for(itq_digits.query_values).weights)
    assert found[0] > asymmetric[0] + 0.015
    assert found[1] > asymmetric[1] - 0.002


def test_the_paper_gains_map(itq_digits):
    ranker = fast(C=100, prior="zero", n_quadruplets=5000).fit(itq_digits.codes, itq_digits.y)
    assert itq_digits.figures(ranker.weights_)[0] > itq_digits.figures()[0] + 0.01


def test_new_digits_do_not_rank_worse(itq_digits):
    seen = itq_digits.y < 5
    ranker = fast(validation="classes").fit(itq_digits.codes[seen], itq_digits.y[seen])
    new = itq_digits.query_y >= 5
    codes, y = itq_digits.queries[new], itq_digits.query_y[new]
    relevant = (y[:, None] == y) & ~np.eye(len(y), dtype=bool)

    def mean_ap(weights):
        return average_precision(distances(codes, codes, weights) + 1e9 * np.eye(len(y)), relevant).mean()

    assert mean_ap(ranker.weights_) > mean_ap(None) - 0.002


@pytest.mark.parametrize("n_seeds", [2, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("reals", [False, True])
def test_random_labels_keep_uniform_weights(reals, n_seeds, itq_digits):
    queries = itq_digits.values[:600] if reals else None
    n_kept = 0
    for seed in range(n_seeds):
        y = np.random.default_rng(seed).integers(10, size=600)
        ranker = fast(n_quadruplets=1000, random_state=seed).fit(itq_digits.codes[:600], y, queries=queries)
        assert len(ranker.report_) > 10
        assert (ranker.weights_ >= 0).all()
        if (ranker.weights_ == ranker.weights_[0]).all():
            n_kept += 1
            assert (ranker.params_, ranker.blend_) == ({}, 0.0)
            assert ranker.solution_ is None
            assert np.log2(ranker.weights_[0]) % 1 == 0  # a power of two, so that ties stay ties
    assert n_kept >= n_seeds - 1  # the gate is a test of significance over a hundred candidates


# What is reported -----------------------------------------------------------------------------------------------------


def test_report_and_params():
    codes, y = toy()
    ranker = fast().fit(codes, y)
    first, *tried = ranker.report_
    assert first.keys() == {"blend", "map", "p10", "map_error", "p10_error"}
    assert first["blend"] == 0.0
    # The candidates that the first fold left in the race: three by each of three figures, some of them the same.
    params = ("strategy", "n_neighbors", "C_order", "C_tie")
    racers = {tuple(line[name] for name in params) for line in tried}
    assert {racer[:2] for racer in racers} <= WAYS
    assert 3 <= len(racers) <= 9
    assert len(tried) == len(racers) * len(COARSE_BLENDS)
    assert {line["blend"] for line in tried} == set(COARSE_BLENDS)
    assert ranker.params_.keys() == {"strategy", "n_neighbors", "C_order", "C_tie"}
    chosen = next(line for line in tried if choice(ranker).items() <= line.items())
    assert chosen["map"] > first["map"]
    assert chosen["p10"] >= first["p10"]
    assert ranker.n_bits_ == 16
    assert 0 <= ranker.solution_.gap <= 1e-8 * ranker.solution_.objective
    # The solution, blended; a ranking knows no scale.
    np.testing.assert_allclose(
        ranker.weights_ / ranker.weights_.mean(), blend(ranker.solution_.weights, ranker.blend_), rtol=1e-5
    )
    assert (np.argsort(ranker.weights_)[-3:] < 3).all()


def test_scoring_picks_the_best_of_its_figure():
    codes, y = toy(seed=1)
    reports = {scoring: fast(scoring=scoring).fit(codes, y) for scoring in ("guarded", "map", "p10")}
    assert reports["map"].report_ == reports["guarded"].report_ == reports["p10"].report_
    for scoring, figure in (("map", "map"), ("p10", "p10")):
        ranker = reports[scoring]
        line = next(line for line in ranker.report_[1:] if choice(ranker).items() <= line.items())
        best = max(line[figure] for line in ranker.report_)
        # Ranked by the gain less its standard error, which may put another one first, but not by much.
        assert line[figure] >= best - 0.02


@pytest.mark.parametrize(
    ("strategy", "ways"), [("near", {way for way in WAYS if way[0] == "near"}), ("uniform", {("uniform", None)})]
)
def test_strategy_restricts_what_is_tried(strategy, ways):
    codes, y = toy()
    ranker = fast(strategy=strategy).fit(codes, y)
    used = {(line["strategy"], line["n_neighbors"]) for line in ranker.report_[1:]}
    assert used
    assert used <= ways
    given = fast(strategy=strategy, C=0.01).fit(codes, y)
    assert given.params_["strategy"] == strategy


# Options --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("C", "pair"), [(0.01, (0.01, 0.01)), ((0.02, 0.003), (0.02, 0.003)), (0, (0.0, 0.0))])
@pytest.mark.parametrize("prior", ["uniform", "zero", "array"])
def test_given_constants_solve_the_objective(C, pair, prior):
    codes, y = toy()
    prior = np.linspace(0, 1, 16) if prior == "array" else prior
    drawn = draw_quadruplets(y, 500, random_state=1)
    ranker = RankingSVM(C=C, prior=prior).fit_constraints(codes, drawn)
    constraints = Constraints(codes, codes, drawn, 16)
    start = prior
    if isinstance(prior, str):
        start = np.full(16, best_scale(constraints, *pair) if prior == "uniform" else 0.0)
    want = exact(Objective(constraints, *pair, np.float32(start).astype(float) if prior is start else start))
    np.testing.assert_allclose(ranker.weights_, want.weights, atol=1e-6)
    assert ranker.params_ == {"C_order": pair[0], "C_tie": pair[1]}
    assert ranker.blend_ == 1.0
    assert ranker.report_ == []


def test_given_constants_draw_from_the_whole_collection_by_default():
    codes, y = toy()
    ranker = fast(C=0.01).fit(codes, y)
    assert ranker.params_ == {"strategy": "uniform", "n_neighbors": None, "C_order": 0.01, "C_tie": 0.01}


def test_solvers_agree():
    codes, y = toy()
    found = {solver: fast(C=0.01, solver=solver).fit(codes, y) for solver in ("exact", "pgd", "egd")}
    want = found["exact"].solution_.objective
    for ranker in found.values():
        assert want * (1 - 1e-9) <= ranker.solution_.objective <= want * (1 + 1e-4)
        np.testing.assert_allclose(ranker.weights_, found["exact"].weights_, atol=0.02)


@pytest.mark.parametrize("C", ["auto", 0.01])
def test_codes_of_98_bits(C):
    codes, y = toy(n_bits=98)
    ranker = fast(n_bits=98, C=C).fit(codes, y)
    assert ranker.weights_.shape == (98,)
    assert (np.argsort(ranker.weights_)[-3:] < 3).all()
    assert fast(C=0.01).fit(codes, y).n_bits_ == 104  # all bits of the bytes, unless told


def test_same_seed_same_weights():
    codes, y = toy()
    first, again = fast().fit(codes, y), fast().fit(codes, y)
    np.testing.assert_array_equal(first.weights_, again.weights_)
    assert first.report_ == again.report_
    assert (fast(random_state=1).fit(codes, y).weights_ != first.weights_).any()
    generator = np.random.RandomState(0)
    assert (fast(random_state=generator).fit(codes, y).weights_ == first.weights_).all()
    assert (fast(random_state=generator).fit(codes, y).weights_ != first.weights_).any()


def test_labels_may_be_strings():
    codes, y = toy()
    names = np.array(list("abcdefgh"))[y]
    np.testing.assert_array_equal(fast().fit(codes, names).weights_, fast().fit(codes, y).weights_)


def test_clone_and_params():
    ranker = fast(n_bits=16, C=(1.0, 2.0), prior="zero", strategy="near").fit(*toy())
    again = clone(ranker)
    assert not hasattr(again, "weights_")
    assert (
        again.get_params()
        == ranker.get_params()
        == {
            "n_bits": 16,
            "C": (1.0, 2.0),
            "prior": "zero",
            "solver": "exact",
            "n_quadruplets": 2000,
            "strategy": "near",
            "scoring": "guarded",
            "validation": "rows",
            "random_state": 0,
        }
    )
    np.testing.assert_array_equal(again.fit(*toy()).weights_, ranker.weights_)


# Quadruplets and triplets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [3, 4])
@pytest.mark.parametrize("reals", [False, True])
def test_separate_queries(width, reals):
    items, y = toy()
    queries, query_y = toy(40, seed=5)
    drawn = draw_quadruplets(y, 1500, query_y=query_y, random_state=0)[:, :width]
    magnitudes = np.random.default_rng(0).exponential(size=(40, 16)).astype(np.float32) if reals else None
    asked = signs(queries, 16) * magnitudes if reals else queries
    ranker = RankingSVM(random_state=0).fit_constraints(items, drawn, queries=asked)
    assert (np.argsort(ranker.weights_)[-3:] < 3).all()
    assert ranker.params_.keys() == {"C_order", "C_tie"}
    first, *tried = ranker.report_
    assert first.keys() == {"blend", "ndcg10", "ndcg10_error", "new_ndcg10"}
    assert len(tried) == 4 * len(BLENDS)
    chosen = next(line for line in tried if choice(ranker).items() <= line.items())
    assert chosen["ndcg10"] > first["ndcg10"]
    given = RankingSVM(C=0.01).fit_constraints(items, drawn, queries=asked)
    constraints = Constraints(queries, items, drawn, 16, magnitudes)
    want = exact(Objective(constraints, 0.01, 0.01, np.full(16, best_scale(constraints, 0.01, 0.01))))
    np.testing.assert_allclose(given.weights_, want.weights, atol=1e-6)


@pytest.mark.slow
def test_quadruplets_of_noise_keep_uniform_weights():
    codes = pack(np.random.default_rng(0).integers(2, size=(300, 16)))
    for seed in range(4):
        drawn = np.random.default_rng(seed).integers(300, size=(1000, 4))
        ranker = RankingSVM(random_state=seed).fit_constraints(codes, drawn)
        assert (ranker.weights_ == ranker.weights_[0]).all()
        assert (ranker.params_, ranker.blend_) == ({}, 0.0)


def test_learning_from_all_zero_differences():
    codes = np.zeros((6, 2), np.uint8)
    ranker = RankingSVM(random_state=0).fit_constraints(codes, [[0, 1, 2, 3], [4, 5, 0, 1]])
    assert (ranker.weights_ > 0).all()
    assert (ranker.weights_ == ranker.weights_[0]).all()


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("C", ["auto", 0.01])
def test_bad_labels(C):
    codes, y = toy()
    with pytest.raises(ValueError, match="at least two classes, got 1"):
        fast(C=C).fit(codes, np.zeros(300))
    pairs = np.arange(300) // 2
    with pytest.raises(ValueError, match="no class is large enough"):
        fast(C=0.01).fit(codes, pairs)
    if C == "auto":
        refused = fast(C=C).fit(codes, np.arange(300))
        assert refused.report_.refusal.startswith("too little evidence: no held-out query has a similar item")
        np.testing.assert_array_equal(refused.weights_, np.ones(16))
    else:
        with pytest.raises(ValueError, match="no class is large enough"):
            fast(C=C).fit(codes, np.arange(300))
    small = np.append(y[:-1], 99)  # one row of its own class: skipped
    assert fast(C=C).fit(codes, small).weights_.shape == (16,)


@pytest.mark.parametrize("C", ["auto", 0.01])
def test_bad_quadruplets(C):
    codes, _ = toy()
    for bad, message in [
        ([[0, 1, 2, 300]], "item rows from 0 to 299"),
        ([[-1, 1, 2, 3]], "query rows from 0 to 299"),
        (np.zeros((0, 4), int), "at least one constraint, got none"),
        ([[0.0, 1.0, 2.0, 3.0]], "must be integers"),
        ([[0, 1]], r"shape \(m, 4\), or \(m, 3\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            RankingSVM(C=C).fit_constraints(codes, bad)
    with pytest.raises(ValueError, match="query rows from 0 to 4"):
        RankingSVM(C=C).fit_constraints(codes, [[5, 1, 2, 3]], queries=codes[:5])
    with pytest.raises(ValueError, match="queries of 16 bits must be 2 bytes wide, got 1"):
        RankingSVM(C=C).fit_constraints(codes, [[0, 1, 2, 3]], queries=codes[:, :1])


def test_one_query_alone_is_refused():
    codes, _ = toy()
    refused = RankingSVM().fit_constraints(codes, [[0, 1, 2, 3], [0, 4, 5, 6]])
    assert refused.blend_ == 0
    assert refused.report_.refusal.endswith("evidence must come from at least two queries to hold one out")
    assert RankingSVM(C=1).fit_constraints(codes, [[0, 1, 2, 3]]).weights_.shape == (16,)


BAD_OPTIONS = [
    ({"C": -1}, "C must be one or two numbers, finite and not negative"),
    ({"C": "large"}, "C must be one or two numbers"),
    ({"C": (1, 2, 3)}, "C must be one or two numbers"),
    ({"C": np.nan}, "C must be one or two numbers"),
    ({"C": (1, np.inf)}, "C must be one or two numbers"),
    ({"C": None}, "C must be one or two numbers"),
    ({"prior": "one"}, 'prior must be "uniform", "zero" or an array'),
    ({"prior": np.ones(5)}, "must hold 16 values, one per bit, got 5"),
    ({"prior": np.ones((2, 16))}, r"prior must be one vector, got shape \(2, 16\)"),
    ({"prior": -np.ones(16)}, "finite and not negative"),
    ({"solver": "newton"}, "solver must be one of"),
    ({"strategy": "far"}, 'strategy must be "auto", "uniform" or "near"'),
    ({"n_quadruplets": 0}, "n_quadruplets must be an int of at least 1"),
    ({"scoring": "f1"}, "scoring must be one of"),
    ({"validation": "time"}, "validation must be one of"),
]


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS, ids=[str(options)[:40] for options, _ in BAD_OPTIONS])
def test_bad_options_and_a_failed_fit_changes_nothing(options, message):
    codes, y = toy()
    ranker = fast(C=0.01).fit(codes, y)
    before = dict(learned(ranker))
    ranker.set_params(**{"C": "auto", **options})
    with pytest.raises(ValueError, match=message):
        ranker.fit(codes, y)
    assert learned(ranker).keys() == before.keys()
    assert all(learned(ranker)[name] is before[name] for name in before)


def test_too_few_classes_to_hold_out():
    codes, y = toy()
    with pytest.raises(ValueError, match="needs at least four classes, got 3"):
        fast(validation="classes").fit(codes, y % 3)


def test_constants():
    assert constants(2) == {"C_order": 2.0, "C_tie": 2.0}
    assert constants([1, 0]) == {"C_order": 1.0, "C_tie": 0.0}
