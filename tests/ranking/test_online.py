"""OnlineRankingSVM: each update against the exact minimum, streams against the offline learner, and its state."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from bitrank import ITQ, OnlineRankingSVM, RankingSVM, _kernel, load_ranker
from bitrank.core.codes import distances, pack, signs
from bitrank.core.metrics import mean_average_precision
from bitrank.datasets import digits
from bitrank.hashing import LSH, IsotropicHashing, SpectralHashing
from bitrank.ranking import online
from bitrank.ranking.evidence.kinds import QueryRows
from bitrank.ranking.evidence.quadruplets import draw_quadruplets
from bitrank.ranking.gate.stream import StreamGate
from bitrank.ranking.solvers.objective import Constraints, Objective, best_scale
from bitrank.ranking.solvers.solvers import exact


def problem(m, n_bits, *, width=4, reals=False, seed=0, n=40):
    """Codes, constraints, and the magnitudes of queries that are reals, or None."""
    rng = np.random.default_rng(seed)
    codes = pack(rng.integers(2, size=(n, n_bits)))
    values = rng.exponential(size=(n, n_bits)).astype(np.float32) if reals else None
    return codes, rng.integers(n, size=(m, width)), values


def asked(codes, magnitudes):
    """Queries as codes, or as reals of these magnitudes."""
    return codes if magnitudes is None else signs(codes, magnitudes.shape[1]) * magnitudes


def state(ranker):
    return {name: value for name, value in vars(ranker).items() if name.endswith("_")}


def same(before, after):
    return before.keys() == after.keys() and all(before[name] is after[name] for name in before)


batches = {
    "m": st.integers(1, 40),
    "n_bits": st.one_of(st.sampled_from([8, 98]), st.integers(1, 70)),
    "width": st.sampled_from([3, 4]),
    "reals": st.booleans(),
    "exponents": st.tuples(st.floats(-4, 3), st.floats(-4, 3)),
    "seed": st.integers(0, 2**31),
}


def some_weights(n_bits, seed):
    rng = np.random.default_rng(seed)
    return (0.3 * rng.exponential(size=n_bits) * (rng.random(n_bits) < 0.7)).astype(np.float32)


# One update -----------------------------------------------------------------------------------------------------------


@given(**batches)
@settings(derandomize=True)
def test_an_update_is_the_exact_minimum(m, n_bits, width, reals, exponents, seed):
    codes, rows, values = problem(m, n_bits, width=width, reals=reals, seed=seed)
    start, C = some_weights(n_bits, seed), tuple(10.0**e for e in exponents)
    ranker = OnlineRankingSVM(start, n_bits=n_bits, C=C).partial_fit(codes, rows, queries=asked(codes, values))
    objective = Objective(Constraints(codes, codes, rows, n_bits, values), *C, start.astype(float))
    want = exact(objective)
    got = ranker.last_
    assert (got >= 0).all()
    # Strongly convex with constant 1: the distance from the minimum is at most √(2·excess).
    excess = objective.value_and_gradient(got)[0] - want.objective
    assert excess <= 1e-8 * want.objective + 1e-12
    np.testing.assert_allclose(got, want.weights, atol=2e-4 * (1 + np.sqrt(want.objective)))


@given(**{**batches, "exponents": st.tuples(st.floats(-4, -1), st.floats(-4, -1))})
@settings(derandomize=True)
def test_kernel_converges_by_itself_for_small_constants(m, n_bits, width, reals, exponents, seed):
    codes, rows, values = problem(min(m, 10), n_bits, width=width, reals=reals, seed=seed)
    batch, weights = Constraints(codes, codes, rows, n_bits, values), some_weights(n_bits, seed).astype(float)
    want = exact(Objective(batch, *(10.0**e for e in exponents), weights.copy()))
    order, tie = batch.dense("order"), batch.dense("tie")
    n_sweeps = _kernel.passive_aggressive(order, tie, *(10.0**e for e in exponents), 1e-9, 1000, weights)
    assert n_sweeps < 1000
    np.testing.assert_allclose(weights, want.weights, atol=1e-6)


@pytest.mark.parametrize("C", [0.01, 1.0])
def test_large_batches_are_solved_alike(monkeypatch, C):
    codes, rows, _ = problem(200, 24)
    small = OnlineRankingSVM(np.full(24, 0.1), C=C).partial_fit(codes, rows)
    monkeypatch.setattr(online, "_MOST_DUAL_ROWS", 5)
    large = OnlineRankingSVM(np.full(24, 0.1), C=C).partial_fit(codes, rows)
    np.testing.assert_allclose(small.last_, large.last_, atol=1e-6)


@pytest.mark.parametrize("C", [0.001, 0.01, 0.1])
def test_steps_of_egd_descend_towards_the_minimum(C):
    codes, rows, _ = problem(10, 24)
    start = np.full(24, 0.1)
    ranker = OnlineRankingSVM(start, C=C, solver="egd").partial_fit(codes, rows)
    objective = Objective(Constraints(codes, codes, rows, 24), C, C, np.float32(start).astype(float))
    before, after = (objective.value_and_gradient(w)[0] for w in (start, ranker.last_))
    minimum = exact(objective).objective
    assert minimum <= after < before
    assert after - minimum < 0.5 * (before - minimum)


def test_satisfied_constraints_change_nothing():
    codes = pack([[0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    start = np.array([0.6, 0.6, 0.1, 0.2], np.float32)  # the margin is 1.2, the tie exact
    ranker = OnlineRankingSVM(start).partial_fit(codes, [[0, 1, 2, 3]])
    np.testing.assert_array_equal(ranker.weights_, start)
    assert ranker.n_updates_ == 1


def test_starts_from_the_best_uniform_scale_or_from_weights():
    codes, rows, _ = problem(10, 24)
    scale = best_scale(Constraints(codes, codes, rows, 24), 1.0, 1.0)
    ranker = OnlineRankingSVM(C=0).partial_fit(codes, rows)
    np.testing.assert_allclose(ranker.weights_, scale, rtol=1e-6)
    given_weights = some_weights(24, 1)
    np.testing.assert_array_equal(OnlineRankingSVM(given_weights, C=0).partial_fit(codes, rows).weights_, given_weights)
    assert OnlineRankingSVM(np.ones(20)).partial_fit(codes & np.uint8([255, 255, 240]), rows).n_bits_ == 20


def test_separate_queries():
    codes, rows, _ = problem(10, 24)
    same = OnlineRankingSVM(np.full(24, 0.1)).partial_fit(codes, rows)
    queries = codes[::-1].copy()
    turned = rows.copy()
    turned[:, 0] = len(codes) - 1 - rows[:, 0]
    np.testing.assert_array_equal(
        OnlineRankingSVM(np.full(24, 0.1)).partial_fit(codes, turned, queries=queries).weights_, same.weights_
    )


def test_weights_are_the_mean_of_updates(monkeypatch):
    monkeypatch.setattr(online, "_MEMORY", 4)
    codes, rows, _ = problem(100, 16)
    ranker, mean = OnlineRankingSVM(np.full(16, 0.1), C=0.1), np.zeros(16)
    for count in range(1, 11):
        ranker.partial_fit(codes, rows[10 * count - 10 : 10 * count])
        mean += (ranker.last_ - mean) / min(count, 4)  # of all at first, then forgetting
        np.testing.assert_allclose(ranker.weights_, mean, rtol=1e-5)
        assert ranker.n_updates_ == count


# Streams --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def images():
    pixels, labels = digits()
    return pixels[:3000].reshape(3000, -1).astype(np.float32), labels[:3000]


@pytest.mark.parametrize("hasher", [LSH, SpectralHashing, IsotropicHashing, ITQ], ids=lambda cls: cls.__name__)
def test_a_stream_ends_near_the_offline_solution(images, hasher):
    X, y = images
    codes = (hasher(32) if hasher is SpectralHashing else hasher(32, random_state=0)).fit(X[:1500]).transform(X)
    drawn = draw_quadruplets(y[:1500], 5000, random_state=0)
    offline = RankingSVM(C=0.001).fit_constraints(codes[:1500], drawn)
    stream = OnlineRankingSVM()
    for start in range(0, 5000, 10):
        stream.partial_fit(codes[:1500], drawn[start : start + 10])
    assert stream.n_updates_ == 500
    items, relevant = codes[1500:], y[1500:1800, None] == y[1500:]

    def mean_ap(weights):
        return mean_average_precision(distances(items[:300], items, weights), relevant)

    assert mean_ap(offline.weights_) > mean_ap(None)
    assert abs(mean_ap(stream.weights_) - mean_ap(offline.weights_)) < 0.01


@pytest.mark.slow
def test_fit_is_gated(itq_digits):
    ranker = OnlineRankingSVM(n_quadruplets=2000, random_state=0).fit(itq_digits.codes, itq_digits.y)
    assert itq_digits.figures(ranker.weights_)[0] > itq_digits.figures()[0] + 0.01
    assert (
        itq_digits.figures(ranker.weights_)[1] > itq_digits.figures()[1] - 0.01
    )  # of 800 queries: half of it is noise
    assert ranker.report_[0].keys() == {"blend", "map", "p10", "map_error", "p10_error"}
    assert {line["strategy"] for line in ranker.report_[1:]} == {"near", "uniform"}
    again = clone(ranker).fit(itq_digits.codes, itq_digits.y)
    np.testing.assert_array_equal(again.weights_, ranker.weights_)
    noise = np.random.default_rng(0).integers(10, size=600)
    ranker.fit(itq_digits.codes[:600], noise)
    assert (ranker.weights_ == ranker.weights_[0]).all()
    # An online learner goes on from what it has fitted.
    before = ranker.n_updates_
    assert ranker.partial_fit(itq_digits.codes, [[0, 1, 2, 3]]).n_updates_ == before + 1


def test_fit_on_top_of_float_queries(itq_digits):
    ranker = OnlineRankingSVM(n_quadruplets=2000, random_state=0).fit(
        itq_digits.codes, itq_digits.y, queries=itq_digits.values
    )
    asymmetric = itq_digits.figures(np.abs(itq_digits.query_values))
    found = itq_digits.figures(ranker.queries_for(itq_digits.query_values).weights)
    assert found[0] > asymmetric[0] + 0.01
    assert found[1] > asymmetric[1] - 0.002


# Clicks ---------------------------------------------------------------------------------------------------------------


def test_clicks_are_triplets():
    codes, _, values = problem(1, 24, reals=True)
    clicked = np.array([False, True, False, True, False])
    triplets = [(0, skipped, click) for click in (1, 3) for skipped in (0, 2, 4)]
    for query in (codes[9:10], asked(codes[9:10], values[:1])):
        by_page = OnlineRankingSVM().learn_clicks(query, codes[:5], clicked)
        by_rows = OnlineRankingSVM().partial_fit(codes[:5], triplets, queries=query)
        np.testing.assert_array_equal(by_page.weights_, by_rows.weights_)
        flat = OnlineRankingSVM().learn_clicks(query[0], codes[:5], clicked.tolist())
        np.testing.assert_array_equal(flat.weights_, by_page.weights_)


def test_clicks_improve_the_order():
    rng = np.random.default_rng(0)
    query, shown = pack(np.zeros((1, 16))), pack(rng.integers(2, size=(20, 16)))
    clicked = np.unpackbits(shown, axis=1)[:, 0] == 0  # the user cares about the first bit
    ranker = OnlineRankingSVM(C=0.1)

    def right(weights):
        found = distances(query, shown, weights)[0].astype(float)
        return np.mean(found[~clicked][:, None] > found[clicked])

    for _ in range(10):
        ranker.learn_clicks(query, shown, clicked)
    assert right(ranker.weights_) > right(None) + 0.1
    assert np.argmax(ranker.weights_) == 0


@pytest.mark.parametrize("click", [False, True])
def test_a_page_without_an_order_changes_nothing(click):
    codes, rows, _ = problem(10, 24)
    page = (codes[:1], codes[:5], np.full(5, click))
    fitted = OnlineRankingSVM().partial_fit(codes, rows)
    before = state(fitted)
    assert fitted.learn_clicks(*page) is fitted
    assert same(before, state(fitted))
    # Weights that were given are in use from the first page on; without them there are none yet.
    started = OnlineRankingSVM(some_weights(24, 0)).learn_clicks(*page)
    np.testing.assert_array_equal(started.weights_, some_weights(24, 0))
    assert started.n_updates_ == 0
    assert not hasattr(OnlineRankingSVM().learn_clicks(*page), "weights_")
    with pytest.raises(ValueError, match="one vector to start from"):
        OnlineRankingSVM(np.ones((2, 24)), n_bits=24).learn_clicks(*page)
    assert OnlineRankingSVM().learn_clicks(codes[:1], codes[:0], np.zeros(0, bool)) is not None


def test_bad_clicks():
    codes, _, _ = problem(1, 24)
    ranker = OnlineRankingSVM().learn_clicks(codes[0], codes[:2], [True, False])
    before = state(ranker)
    for arguments, message in [
        ((codes[:2], codes[:2], [True, False]), "query must be one code or one vector of reals, got 2"),
        ((codes[0].astype(int), codes[:2], [True, False]), "queries must be a packed uint8 matrix"),
        ((codes[0], codes[0], [True, False]), "shown_codes must be a packed uint8 matrix"),
        ((codes[0], codes[:2], [1, 0]), "clicked must be 2 booleans"),
        ((codes[0], codes[:2], [True]), "clicked must be 2 booleans"),
        ((codes[0, :2], codes[:2], [True, False]), "queries of 24 bits must be 3 bytes wide, got 2"),
        ((codes[0], codes[:2, :2], [True, False]), "codes of 24 bits must be 3 bytes wide, got 2"),
        ((np.ones(23), codes[:2], [True, False]), r"queries of reals must have shape \(n_queries, 24\), got \(1, 23\)"),
        ((np.full(24, np.nan), codes[:2], [True, False]), "queries of reals must be finite"),
        ((np.ones(23), codes[:2], [True, True]), "query of reals must have shape"),
    ]:
        with pytest.raises(ValueError, match=message):
            ranker.learn_clicks(*arguments)
    assert same(before, state(ranker))


# State ----------------------------------------------------------------------------------------------------------------


def test_state_does_not_grow():
    codes, rows, _ = problem(400, 32)
    ranker = OnlineRankingSVM().partial_fit(codes, rows[:10])

    def numbers(value):
        if isinstance(value, dict | list | tuple):
            return sum(map(numbers, value.values() if isinstance(value, dict) else value))
        return value.size if isinstance(value, np.ndarray) else 1

    held = numbers(vars(ranker))
    for start in range(10, 400, 10):
        ranker.partial_fit(codes, rows[start : start + 10])
    assert numbers(vars(ranker)) == held < 4 * 32


# Bad input ------------------------------------------------------------------------------------------------------------


def test_bad_batches_change_nothing():
    codes, rows, _ = problem(10, 24)
    ranker = OnlineRankingSVM().partial_fit(codes, rows)
    before = state(ranker)
    spare = OnlineRankingSVM(n_bits=21)
    for arguments, message in [
        ((codes, [[0, 1, 2, 40]]), "item rows from 0 to 39"),
        ((codes, [[0, 1, -2, 4]]), "item rows from 0 to 39"),
        ((codes, [[40, 1, 2, 3]]), "query rows from 0 to 39"),
        ((codes, np.zeros((0, 4), int)), "at least one constraint, got none"),
        ((codes, rows * 1.0), "must be integers"),
        ((codes.astype(int), rows), "packed uint8 matrix"),
        ((codes[:, :2], rows), "3 bytes wide, got 2"),
        ((codes, rows, codes[:2]), "query rows from 0 to 1"),
        ((codes, rows, codes[:, :2]), "queries of 24 bits must be 3 bytes wide, got 2"),
        ((codes, rows, np.ones((40, 23))), r"queries of reals must have shape \(n_queries, 24\)"),
        ((codes, rows, np.full((40, 24), np.nan)), "queries of reals must be finite"),
    ]:
        with pytest.raises(ValueError, match=message):
            ranker.partial_fit(*arguments[:2], queries=arguments[2] if len(arguments) == 3 else None)
        assert same(before, state(ranker))
    with pytest.raises(ValueError, match="last 3 bits of a row zero"):
        spare.partial_fit(codes, rows)
    assert not hasattr(spare, "weights_")
    with pytest.raises(NotFittedError):
        spare.queries_for(codes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"C": -1}, "C must be one or two numbers"),
        ({"C": "auto"}, "C must be one or two numbers"),
        ({"solver": "pgd"}, "solver must be one of"),
        ({"weights": np.ones(23)}, "last 1 bits of a row zero"),
        ({"weights": np.ones((2, 24)), "n_bits": 24}, "one vector to start from"),
        ({"weights": -np.ones(24)}, "finite and not negative"),
        ({"weights": 24}, r"weights must have shape \(n_bits,\)"),
        ({"weights": np.ones(8)}, "1 bytes wide, got 3"),
        ({"weights": np.ones(20), "n_bits": 24}, "must hold 24 values"),
    ],
)
def test_bad_options(options, message):
    rng = np.random.default_rng(0)
    codes, y = pack(rng.integers(2, size=(100, 24))), np.arange(100) % 4
    rows = draw_quadruplets(y, 10, random_state=0)
    with pytest.raises(ValueError, match=message):
        OnlineRankingSVM(**options).partial_fit(codes, rows)
    with pytest.raises(ValueError, match=message):
        OnlineRankingSVM(n_quadruplets=50, **options).fit(codes, y)


def test_bad_labels_leave_what_was_learned():
    codes, rows, _ = problem(10, 24)
    ranker = OnlineRankingSVM(n_quadruplets=50, random_state=0).partial_fit(codes, rows)
    before = state(ranker)
    for bad, message in [
        (np.zeros(40), "two classes"),
        (np.arange(39), "one label for each"),
        (np.full(40, np.nan), "finite"),
    ]:
        with pytest.raises(ValueError, match=message):
            ranker.fit(codes, bad)
    assert same(before, state(ranker))


# The gate of a stream -------------------------------------------------------------------------------------------------


def judged_stream(useful, n_queries=200, seed=0):
    """Triplets of ten topics that the first four of 24 bits tell, one query per batch; or of topics nothing tells."""
    rng = np.random.default_rng(seed)
    topic, query_topic = rng.integers(10, size=600), rng.integers(10, size=n_queries)
    bits, query_bits = (
        np.column_stack([(t[:, None] >> np.arange(4)) & 1, rng.integers(2, size=(len(t), 20))])
        for t in (topic, query_topic)
    )
    judged = topic if useful else rng.permutation(topic)
    batches = []
    for query in range(n_queries):
        similar = rng.choice(np.flatnonzero(judged == query_topic[query]), 5)
        other = rng.choice(np.flatnonzero(judged != query_topic[query]), 5)
        batches.append(np.column_stack([np.full(5, query), other, similar]))
    values = (2.0 * query_bits - 1) * rng.uniform(0.5, 1.5, query_bits.shape)
    return pack(bits), pack(query_bits), values.astype(np.float32), batches


@pytest.mark.parametrize("reals", [False, True])
def test_a_gated_stream_uses_what_ranks_better(reals):
    codes, queries, values, batches = judged_stream(useful=True)
    asked_queries = values if reals else queries
    ranker = OnlineRankingSVM(hold_out=0.25)
    for batch in batches:
        ranker.partial_fit(codes, batch, queries=asked_queries)
    assert ranker.blend_ > 0
    assert ranker.report_[0]["blend"] == 0
    chosen = next(line for line in ranker.report_ if line["blend"] == ranker.blend_)
    assert chosen["ndcg10"] > 1.5 * ranker.report_[0]["ndcg10"]
    assert ranker.weights_[:4].min() > ranker.weights_[4:].max()


def test_a_gated_stream_of_noise_keeps_the_start():
    codes, queries, _, batches = judged_stream(useful=False)
    start = np.random.default_rng(1).uniform(0.5, 1.5, 24).astype(np.float32)
    for weights in (None, start):
        ranker, bare = OnlineRankingSVM(weights, C=0.1, hold_out=0.2), OnlineRankingSVM(weights, C=0.1)
        for batch in batches:
            ranker.partial_fit(codes, batch, queries=queries)
            bare.partial_fit(codes, batch, queries=queries)
        assert ranker.blend_ == 0
        assert len(ranker.report_) == 11
        if weights is None:
            assert (ranker.weights_ == ranker.weights_[0]).all()
        else:
            np.testing.assert_array_equal(ranker.weights_, start)
        assert np.ptp(bare.weights_ / np.asarray(1 if weights is None else start)) > 0.01
        assert (ranker.mean_ != ranker.weights_).any()  # learning goes on behind the gate


def test_held_out_queries_are_not_learned_from():
    codes, queries, _, batches = judged_stream(useful=True, n_queries=60)
    gated, bare = OnlineRankingSVM(np.full(24, 0.1), hold_out=0.3), OnlineRankingSVM(np.full(24, 0.1))
    stream = StreamGate(0.3, np.ones(24))
    learned = 0
    for batch in batches:
        gated.partial_fit(codes, batch, queries=queries)
        query = QueryRows(queries[batch[:1, 0]], None)
        if not stream.hold_out(query, codes, np.column_stack([np.zeros(5, int), batch[:, 1:]])).any():
            bare.partial_fit(codes, batch, queries=queries)
            learned += 1
    assert gated.n_updates_ == learned
    assert 30 <= learned <= 54
    np.testing.assert_array_equal(gated.mean_, bare.mean_)


def test_a_gated_stream_starts_from_what_fit_or_a_file_trusts(tmp_path):
    codes, queries, _, batches = judged_stream(useful=False)
    topic = np.packbits(np.unpackbits(codes, axis=1)[:, :4], axis=1)[:, 0]
    ranker = OnlineRankingSVM(hold_out=0.2, n_quadruplets=500, random_state=0).fit(codes, topic)
    trusted = ranker.weights_
    for batch in batches[:50]:
        ranker.partial_fit(codes, batch, queries=queries)
    np.testing.assert_array_equal(ranker.weights_, trusted)
    ranker.save(tmp_path / "stream.ranker")
    loaded = load_ranker(tmp_path / "stream.ranker")
    loaded.partial_fit(codes, batches[50], queries=queries)
    np.testing.assert_array_equal(loaded.weights_, trusted)
    np.testing.assert_array_equal(loaded.mean_, ranker.partial_fit(codes, batches[50], queries=queries).mean_)


def test_gated_clicks():
    codes, queries, _, _ = judged_stream(useful=True)
    ranker, rng = OnlineRankingSVM(hold_out=0.2), np.random.default_rng(0)
    item_bits, query_bits = np.unpackbits(codes, axis=1), np.unpackbits(queries, axis=1)
    for query in range(200):
        shown = rng.permutation(600)[:30]
        clicked = (item_bits[shown, :4] == query_bits[query, :4]).all(axis=1)
        ranker.learn_clicks(queries[query], codes[shown], clicked)
    assert ranker.blend_ > 0
    assert ranker.weights_[:4].min() > ranker.weights_[4:].max()


@pytest.mark.parametrize("hold_out", [-0.1, 1.0, 2])
def test_bad_shares_to_hold_out(hold_out):
    codes, queries, _, batches = judged_stream(useful=True, n_queries=1)
    ranker = OnlineRankingSVM(hold_out=hold_out)
    with pytest.raises(ValueError, match="hold_out must be from 0 to less than 1, got"):
        ranker.partial_fit(codes, batches[0], queries=queries)
    assert not state(ranker)
