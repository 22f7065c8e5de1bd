"""Learning from clicks: pages, exploration, the click graph, the click gate, the learner and its replay."""

import json
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitrank import ITQ
from bitrank.codes import distances, hamming, pack, signs, weighted_hamming
from bitrank.datasets import digits
from bitrank.feedback import ClickGraph, ClickLearner, Page, click_gate, estimate_propensities, explore, replay
from bitrank.feedback import learner as learner_module
from bitrank.feedback.click_gate import MIN_PAGES, decide, evidence_from
from bitrank.feedback.exploration import draw_far
from bitrank.feedback.simulation import SimulatedUsers
from bitrank.metrics import average_precision, precision_at

ONES = np.ones(20)


def random_codes(n, n_bits, seed=0):
    return pack(np.random.default_rng(seed).integers(0, 2, (n, n_bits)))


# Pages


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"clicked": [1, 0]}, "clicked must be 2 booleans"),
        ({"clicked": [True]}, "clicked must be 2 booleans"),
        ({"explored": [True]}, "explored must be 2 booleans"),
        ({"query": np.uint8([1, 2])}, "query must be one code of 1 bytes"),
        ({"query": np.ones(9)}, "query of reals must be one vector of 1 to 8 values, got shape \\(1, 9\\)"),
        ({"query": np.ones((2, 8))}, "query of reals must be one vector"),
        ({"query": np.array([1.0, np.nan])}, "query of reals must hold values of at most 1e\\+15"),
        ({"query": np.array([1.0, 3e38])}, "query of reals must hold values of at most 1e\\+15"),
        ({"query": np.array([1.0, 1e39])}, "query of reals must hold values of at most 1e\\+15"),
        ({"query": np.array([1, 2])}, "query must be a packed uint8 matrix"),
        ({"shown_codes": np.float32([[1], [2]])}, "shown_codes must be a packed uint8 matrix"),
    ],
)
def test_a_malformed_page_is_refused(arguments, message):
    page = {"query": np.uint8([1]), "shown_codes": np.uint8([[1], [2]]), "clicked": [True, False], **arguments}
    with pytest.raises(ValueError, match=message):
        Page(**page)


def test_a_query_of_reals_is_a_code_and_magnitudes():
    page = Page(np.array([[0.5, -2.0, 0.0, 1.0]]), np.uint8([[16]]), [True])
    np.testing.assert_array_equal(page.query, np.float32([0.5, -2, 0, 1]))
    np.testing.assert_array_equal(page.query_code, pack([[1, 0, 0, 1]])[0])


def test_propensities_are_estimated_from_explored_clicks():
    """Two in three explored items are relevant; the best results, which always are, must not count."""
    rng, shown = np.random.default_rng(0), np.zeros((10, 1), np.uint8)
    truth = 1 / np.log2(np.arange(10) + 2)
    pages = []
    for _ in range(20_000):
        explored = np.zeros(10, bool)
        explored[rng.choice(10, 2, replace=False)] = True
        relevant = ~explored | (rng.random(10) < 2 / 3)
        pages.append(Page(shown[0], shown, relevant & (rng.random(10) < truth), explored))
    estimate = estimate_propensities(pages, 10)
    np.testing.assert_allclose(estimate, truth, atol=0.06)
    assert (np.diff(estimate) <= 0).all()


def test_propensities_are_uniform_without_exploration_and_bounded_below():
    shown = np.zeros((3, 1), np.uint8)
    np.testing.assert_array_equal(estimate_propensities([Page(shown[0], shown, np.ones(3, bool))], 3), np.ones(3))
    first_only = [Page(shown[0], shown, np.arange(3) == 0, np.ones(3, bool))] * 10_000
    np.testing.assert_array_equal(estimate_propensities(first_only, 3), [1, 0.1, 0.1])
    with pytest.raises(ValueError, match="n_places"):
        estimate_propensities([], 0)


# Exploration


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 30), st.integers(0, 20), st.integers(0, 8), st.integers(0, 2**31))
def test_explored_items_join_the_results_in_order(n_bits, n_top, n_slots, seed):
    sample = random_codes(200, n_bits, seed)
    mixed = explore(sample[0], sample[:n_top], sample, n_slots, np.random.default_rng(seed))
    np.testing.assert_array_equal(mixed.rows[~mixed.explored], np.arange(n_top))
    far = mixed.rows[mixed.explored]
    assert len(far) == len(set(far.tolist())) <= n_slots
    known = {code.tobytes() for code in sample[: max(1, n_top)]}
    assert not any(sample[row].tobytes() in known for row in far)
    if len({code.tobytes() for code in sample} - known) >= 100:
        assert len(far) == n_slots


def test_results_stay_where_nothing_can_be_explored():
    codes = np.zeros((5, 1), np.uint8)
    for sample in (codes, codes[:0]):
        mixed = explore(codes[0], codes[:2], sample, 4, np.random.default_rng(0))
        np.testing.assert_array_equal(mixed.rows, [0, 1])
        assert not mixed.explored.any()
    with pytest.raises(ValueError, match="n_slots"):
        explore(codes[0], codes, codes, -1, np.random.default_rng(0))


def test_ranks_are_drawn_log_uniformly_and_ties_evenly():
    """One item at each distance 1 to 63 from the query, then 960 at distance 64 of 64."""
    bits = np.zeros((1023, 64), int)
    for row in range(63):
        bits[row, : row + 1] = 1
    bits[63:] = 1
    sample = pack(bits)
    rows = draw_far(np.zeros(8, np.uint8), sample[:0], sample, 60_000, np.random.default_rng(0))
    ranks = rows + 1
    for low, high in ((1, 2), (2, 8), (8, 64), (64, 1024)):
        share = np.mean((ranks >= low) & (ranks < high))
        assert share == pytest.approx(np.log(high / low) / np.log(1023), abs=0.01)
    tied = np.bincount(rows[rows >= 63] - 63, minlength=960)
    assert tied.max() < 2.2 * tied.mean()
    assert tied.min() > 0.2 * tied.mean()


def test_explored_places_are_uniform():
    sample = random_codes(300, 32)
    rng = np.random.default_rng(0)
    places = sum(explore(sample[0], sample[1:17], sample, 4, rng).explored.astype(int) for _ in range(2000))
    np.testing.assert_allclose(places / 2000, 0.2, atol=0.04)


# The click graph


def page_of(codes, query, clicked, skipped=()):
    shown = [*clicked, *skipped]
    return Page(codes[query], codes[shown], np.arange(len(shown)) < len(clicked))


def test_walks_follow_a_markov_chain():
    """Compare with powers of the transition matrix: item to a page that holds it, page to one of its members."""
    codes = random_codes(7, 24)
    pages = [(0, [1, 2]), (2, [3]), (3, [4, 5, 0]), (6, [5])]
    propensities = np.array([1.0, 0.5, 0.25])
    graph = ClickGraph(3, n_hops=3, skipped=0.0, seed=1)
    weights = np.zeros((4, 7))
    for number, (query, clicked) in enumerate(pages):
        assert graph.add(page_of(codes, query, clicked), propensities)
        weights[number, query] = 1
        weights[number, clicked] = 1 / propensities[: len(clicked)]
    to_member = weights / weights.sum(axis=1, keepdims=True)
    to_page = (weights > 0).T / (weights > 0).sum(axis=0)[:, None]
    step = to_page @ to_member
    row = {code.tobytes(): number for number, code in enumerate(codes)}
    drawn = graph.draw(40_000, random_codes(50, 24, seed=9))
    counts = Counter((row[q.tobytes()], row[s.tobytes()]) for q, s in zip(drawn.queries, drawn.similar, strict=True))
    drawn_pairs = np.zeros((7, 7))
    for pair, count in counts.items():
        drawn_pairs[pair] = count
    # Both ends start from one page, drawn evenly; what comes back to its start is left out.
    expected = sum(np.outer(members, members @ np.linalg.matrix_power(step, 3)) for members in to_member)
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(drawn_pairs / drawn_pairs.sum(), expected / expected.sum(), atol=0.01)


def test_skipped_items_are_drawn_by_their_propensity():
    codes = random_codes(5, 24)
    graph = ClickGraph(3, skipped=1.0)
    graph.add(page_of(codes, 0, [1], [2, 3]), np.array([1.0, 0.8, 0.2]))
    drawn = graph.draw(20_000, codes)
    assert {code.tobytes() for code in drawn.queries} == {codes[0].tobytes()}
    assert {code.tobytes() for code in drawn.similar} == {codes[1].tobytes()}
    counts = Counter(code.tobytes() for code in drawn.dissimilar)
    assert counts[codes[2].tobytes()] / 20_000 == pytest.approx(0.8, abs=0.02)
    assert counts[codes[3].tobytes()] / 20_000 == pytest.approx(0.2, abs=0.02)


def test_old_pages_are_forgotten():
    codes = random_codes(40, 24)
    graph = ClickGraph(3, n_pages=5)
    for query in range(0, 38, 2):
        graph.add(page_of(codes, query, [query + 1], [39]), ONES)
    assert len(graph) == 5
    drawn = graph.draw(2000, codes)
    assert {code.tobytes() for code in drawn.queries} == {codes[row].tobytes() for row in range(28, 38)}


def test_a_page_without_a_click_says_nothing():
    codes = random_codes(5, 24)
    graph = ClickGraph(3)
    assert not graph.add(page_of(codes, 0, [], [1, 2]), ONES)
    assert len(graph.draw(10, codes).queries) == 0


def test_reals_stand_for_their_query_and_items_for_signs():
    codes = random_codes(4, 24)
    reals = np.random.default_rng(0).normal(size=24).astype(np.float32)
    page = Page(reals, codes[1:], np.array([True, True, False]))
    graph = ClickGraph(3, n_hops=1, skipped=0.3)
    graph.add(page, ONES)
    expected = {page.query_code.tobytes(): reals}
    expected |= {code.tobytes(): row for code, row in zip(codes, signs(codes, 24), strict=True)}
    queries = graph.draw(500, codes).queries
    assert len(np.unique(queries, axis=0)) == 3
    for query in queries:
        np.testing.assert_array_equal(query, expected[np.packbits(query > 0).tobytes()])


# The click gate


def digits_users(itq_digits, **options):
    return SimulatedUsers(itq_digits.codes, itq_digits.y, random_state=0, **options)


def evidence_of(users, codes, n, weights=None, seed=0):
    """Collect the evidence of n pages; those without explored clicks have none."""
    random = np.random.default_rng(seed)
    collected = [evidence_from(users.page(weights), codes, random) for _ in range(n)]
    return [evidence for evidence in collected if evidence is not None]


def win_rates(pages, weights):
    return np.array([evidence.win_rate(weights) for evidence in pages])


@pytest.fixture(scope="module")
def evidence(itq_digits):
    """The evidence of 300 pages, of which half explores: about 200 have explored clicks."""
    return evidence_of(digits_users(itq_digits, n_explored=10), itq_digits.codes, 300)


def test_win_rates_equal_those_counted_one_by_one(evidence):
    weights = np.random.default_rng(3).random(32).astype(np.float32)
    for page in evidence[:15]:
        scores = []
        for anchor in page.anchors:
            for item in page.clicked:
                near = weighted_hamming(anchor[None], item[None], weights)[0, 0]
                far = weighted_hamming(anchor[None], page.drawn, weights)[0]
                scores.append(np.mean(np.where(far > near, 1.0, np.where(far == near, 0.5, 0.0))))
        assert page.win_rate(weights) == pytest.approx(np.mean(scores))
        assert page.win_rate(None) == page.win_rate(np.ones(32, np.float32))


def test_magnitudes_of_a_query_do_not_weigh_the_other_anchors(evidence):
    magnitudes, weights = np.random.default_rng(0).random((2, 32)).astype(np.float32)
    for page in evidence[:8]:
        anchors, n = signs(page.anchors, 32), len(page.anchors)
        anchors[0] *= magnitudes
        query = page._replace(anchors=page.anchors[:1]).win_rate(weights * magnitudes)
        others = page._replace(anchors=page.anchors[1:]).win_rate(weights) if n > 1 else 0.0
        assert page._replace(anchors=anchors).win_rate(weights) == pytest.approx((query + (n - 1) * others) / n)


def test_only_explored_clicks_are_evidence():
    codes, random = random_codes(100, 32), np.random.default_rng(0)
    clicked, explored = np.arange(20) < 5, np.arange(20) >= 16
    assert evidence_from(Page(codes[0], codes[1:21], clicked, explored), codes, random) is None
    evidence = evidence_from(Page(codes[0], codes[1:21], clicked, explored[::-1]), codes, random)
    np.testing.assert_array_equal(evidence.clicked, codes[1:5])
    np.testing.assert_array_equal(evidence.anchors, codes[[0, 5]])
    assert evidence_from(Page(codes[0], codes[1:21], clicked, explored[::-1]), codes[:1], random) is None
    reals = np.random.default_rng(1).normal(size=32).astype(np.float32)
    evidence = evidence_from(Page(reals, codes[1:21], clicked, explored[::-1]), codes, random)
    np.testing.assert_array_equal(evidence.anchors, [reals, signs(codes[[5]], 32)[0]])


@pytest.mark.parametrize(
    ("seed", "n"), [(0, 400), *(pytest.param(seed, 1500, marks=pytest.mark.slow) for seed in range(3))]
)
def test_random_clicks_win_half_the_comparisons_under_any_weights(itq_digits, seed, n):
    """Also where a version other than Hamming ranked the pages."""
    ranked_by, weights = np.random.default_rng(seed).lognormal(size=(2, 32)).astype(np.float32)
    users = SimulatedUsers(itq_digits.codes, itq_digits.y, at_random=1.0, random_state=seed)
    evidence = evidence_of(users, itq_digits.codes, n, ranked_by, seed)
    for judged in (None, ranked_by, weights):
        rates = win_rates(evidence, judged)
        assert abs(rates.mean() - 0.5) < 3.5 * rates.std() / np.sqrt(len(rates))


def test_the_gate_needs_pages_and_stronger_evidence_at_every_look(evidence):
    ones, evidence = np.ones(32, np.float32), evidence[:80]
    hamming_rates = win_rates(evidence, None)
    few = decide(evidence[: MIN_PAGES - 1], hamming_rates, ones, None, 1)
    assert not few.activate
    assert few.candidate is None
    assert f"of the {MIN_PAGES} pages" in few.reason
    answers = [decide(evidence, hamming_rates, ones, None, n_looks) for n_looks in (1, 10, 10**3, 10**30)]
    passed = [answer.activate for answer in answers]
    assert passed[0]
    assert passed == sorted(passed, reverse=True)
    assert not passed[-1]
    assert "clicks at random" in answers[-1].reason


def test_the_gate_refuses_worse_weights_and_raises_the_alarm(evidence):
    """A few random bits rank worse than all of them."""
    hamming_rates, ones = win_rates(evidence, None), np.ones(32, np.float32)
    bad = (np.random.default_rng(0).random(32) < 0.15).astype(np.float32)
    kept = decide(evidence, hamming_rates, bad, None, 1)
    assert not kept.activate
    assert "worse than active" in kept.reason
    assert not kept.alarm
    assert kept.candidate < kept.hamming == kept.active
    alarmed = decide(evidence, hamming_rates, ones, bad, 1)
    assert alarmed.alarm
    assert alarmed.activate
    assert alarmed.active < alarmed.hamming == alarmed.candidate


# The learner


@pytest.fixture(scope="module")
def collection():
    """The digits of benchmarks/clicks.py, first seed: 5000 as codes of 64 bits, and 2000 others to measure with."""
    images, labels = digits()
    rows = np.random.default_rng(0).permutation(len(images))
    X = images.reshape(len(images), -1).astype(np.float32) / 255
    items, others = rows[:5000], rows[5000:7000]
    hasher = ITQ(n_bits=64, random_state=0).fit(X[items])
    codes, queries = hasher.transform(X[items]), hasher.transform(X[others])
    relevant = labels[others][:, None] == labels[items]

    def gains(weights):
        """Measure MAP and P@10 above those of Hamming."""
        scores = []
        for ranking in (distances(queries, codes, weights), distances(queries, codes)):
            scores.append((average_precision(ranking, relevant).mean(), precision_at(ranking, relevant, 10).mean()))
        return np.subtract(*scores)

    return SimpleNamespace(codes=codes, y=labels[items], gains=gains)


@pytest.mark.slow
@pytest.mark.parametrize(("at_random", "n_pages"), [(0.0, 1000), (0.3, 500), (1.0, 500)])
def test_what_clicks_must_reach(collection, at_random, n_pages):
    """Honest pages raise MAP; with random clicks the active version never falls behind Hamming."""
    users = SimulatedUsers(collection.codes, collection.y, at_random=at_random, random_state=0)
    learner, versions = ClickLearner(collection.codes, random_state=0), [None]
    for _ in range(n_pages):
        learner.learn(users.page(versions[-1]))
        if learner.due and learner.decide(versions[-1]).activate:
            versions.append(learner.weights)
    if at_random == 1:
        assert versions == [None]
        assert learner.n_looks > 5
        return
    gains = [collection.gains(weights) for weights in (versions[1], versions[-1])]
    assert (np.array(gains) > -0.002).all()
    assert at_random > 0 or gains[-1][0] > 0.015


def test_the_same_pages_and_seed_give_the_same_candidate(itq_digits):
    users = digits_users(itq_digits)
    pages = [users.page() for _ in range(30)]
    learners = [ClickLearner(itq_digits.codes, random_state=seed) for seed in (5, 5, 6)]
    for learner in learners:
        for page in pages:
            learner.learn(page)
    first, second, other = (learner.weights for learner in learners)
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()
    assert json.dumps(first.tolist())


def test_honest_pages_pass_the_gate_and_random_clicks_do_not(itq_digits, monkeypatch):
    """The small case of the above: half of the pages are held out, ten are enough to decide, most results explore."""
    monkeypatch.setattr(learner_module, "_HOLD_OUT", 2)
    monkeypatch.setattr(click_gate, "MIN_PAGES", 10)
    for at_random in (0.0, 1.0):
        users = digits_users(itq_digits, n_explored=14, noise=0.0, at_random=at_random)
        learner, active = ClickLearner(itq_digits.codes, random_state=0), None
        for _ in range(80):
            learner.learn(users.page(active))
            if learner.due and learner.decide(active).activate:
                active = learner.weights
        assert (active is None) == (at_random == 1)
        assert learner.n_looks > 2
        if active is not None:
            assert (np.subtract(itq_digits.figures(active), itq_digits.figures()) > [0, -0.002]).all()


def test_the_candidate_follows_at_once_but_for_held_out_pages(itq_digits):
    users, learner = digits_users(itq_digits), ClickLearner(itq_digits.codes, random_state=0)
    np.testing.assert_array_equal(learner.weights, np.ones(32, np.float32))
    for number in range(1, 13):
        before = learner.weights
        page = users.page()
        assert page.clicked.any()
        learner.learn(page)
        assert (learner.weights != before).any() == (number % 5 != 0)
    assert learner.n_pages == 12


def test_it_starts_from_given_weights(itq_digits):
    start = np.random.default_rng(0).random(32)
    learner = ClickLearner(itq_digits.codes, weights=start, random_state=0)
    np.testing.assert_allclose(learner.weights, start / start.mean(), rtol=1e-6)
    users = digits_users(itq_digits)
    for _ in range(10):
        learner.learn(users.page())
    assert 0.9 < np.corrcoef(learner.weights, start)[0, 1] < 1


def test_a_page_of_other_codes_is_refused_and_changes_nothing(itq_digits):
    learner = ClickLearner(itq_digits.codes, random_state=0)
    codes = random_codes(21, 64)
    with pytest.raises(ValueError, match="shown_codes of 32 bits must be 4 bytes wide, got 8"):
        learner.learn(Page(codes[0], codes[1:], np.arange(20) == 0))
    narrow = itq_digits.codes[:21]
    with pytest.raises(ValueError, match="query must hold 32 values, one per bit, got 31"):
        learner.learn(Page(np.ones(31), narrow[1:], np.arange(20) == 0))
    assert learner.n_pages == 0
    np.testing.assert_array_equal(learner.weights, np.ones(32, np.float32))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weights": np.ones(31)}, "weights must hold 32 values"),
        ({"propensities": [0.5, 0.0]}, "propensities must be"),
        ({"blend": 1.5}, "blend must be"),
        ({"n_bits": 31}, "must have the last 1 bits"),
    ],
)
def test_bad_options_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ClickLearner(np.full((10, 4), 255, np.uint8), **arguments)


def test_queries_of_reals_are_learned_with_their_magnitudes(itq_digits):
    """Signs are the code; other magnitudes change what a page says."""
    users = digits_users(itq_digits)
    pages = [users.page() for _ in range(30)]
    ones, other = np.ones(32, np.float32), np.random.default_rng(0).random(32).astype(np.float32)
    learned = []
    for magnitudes in (None, ones, other):
        learner = ClickLearner(itq_digits.codes, random_state=0)
        for page in pages:
            query = page.query if magnitudes is None else signs(page.query[None], 32)[0] * magnitudes
            learner.learn(Page(query, page.shown_codes, page.clicked, page.explored))
        learned.append(learner.weights)
    np.testing.assert_allclose(learned[0], learned[1], rtol=1e-5)
    assert np.abs(learned[0] - learned[2]).max() > 0.001


def test_the_sample_may_change_with_the_collection(itq_digits):
    learner = ClickLearner(itq_digits.codes[:600], random_state=0)
    learner.sample = itq_digits.codes[600:]
    users = digits_users(itq_digits)
    for _ in range(8):
        learner.learn(users.page())
    with pytest.raises(ValueError, match="sample of 32 bits"):
        learner.sample = random_codes(10, 64)


# Replays


def test_a_replay_learns_as_a_learner_does(itq_digits):
    users, codes = digits_users(itq_digits), itq_digits.codes
    pages = [users.page() for _ in range(80)]
    start = np.random.default_rng(0).random(32).astype(np.float32)
    replayed = replay(pages, codes, weights=start, random_state=0)
    assert replayed.n_pages == 80
    assert replayed.n_clicks == sum(page.clicked.sum() for page in pages)
    assert replayed.n_explored_clicks == sum((page.clicked & page.explored).sum() for page in pages)
    again = replay(iter(pages), codes, weights=start, random_state=0)
    np.testing.assert_array_equal(again.candidate, replayed.candidate)
    assert [look.n_pages for look in replayed.looks] == sorted({look.n_pages for look in replayed.looks})
    for move in replayed.moves[:20]:
        page = pages[move.page]
        item = page.shown_codes[move.place][None]
        for weights, rank in ((start, move.before), (replayed.candidate, move.after)):
            others = weighted_hamming(page.query_code[None], codes, weights)[0]
            distance = weighted_hamming(page.query_code[None], item, weights)[0, 0]
            assert rank == (others < distance).sum() + ((others == distance).sum() + 1) / 2
    logs = [abs(np.log(move.before / move.after)) for move in replayed.moves]
    assert logs == sorted(logs, reverse=True)
    assert len(logs) == replayed.n_clicks


def test_a_replay_of_nothing_changes_nothing(itq_digits):
    replayed = replay([], itq_digits.codes)
    assert (replayed.n_pages, replayed.overlap, replayed.moves, replayed.weights) == (0, 1.0, [], None)
    np.testing.assert_array_equal(replayed.candidate, np.ones(32))


# Simulated users


def test_simulated_users_click_as_described(itq_digits):
    codes, y = itq_digits.codes, itq_digits.y
    users = SimulatedUsers(codes, y, noise=0.0, random_state=0)
    of_code = {code.tobytes(): label for code, label in zip(codes, y, strict=True)}
    clicks = np.zeros(20)
    for _ in range(400):
        page = users.page()
        top = page.shown_codes[~page.explored]
        reach = hamming(page.query_code[None], top)[0]
        assert (np.diff(reach) >= 0).all()
        assert len(top) == 16
        label = of_code[page.query_code.tobytes()]
        wrong = [of_code[code.tobytes()] != label for code in page.shown_codes[page.clicked]]
        assert np.mean(wrong or [0]) < 0.5  # equal codes may belong to two classes
        clicks += page.clicked
    assert clicks[0] > 1.5 * clicks[5] > 1.5 * clicks[19]
    with pytest.raises(ValueError, match="rising order"):
        SimulatedUsers(codes[:10], y[:10])
