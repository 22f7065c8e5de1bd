"""Learning from clicks: pages, exploration, the click graph, the click gate, the learner and its replay."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.vandals import ATTACKS
from bitrank import RankingSVM, load_ranker
from bitrank.clicks import ClickLearner, Page, explore, replay
from bitrank.clicks import gate as click_gate
from bitrank.clicks import learn as learner_module
from bitrank.clicks import robust as client_statistics
from bitrank.clicks import walks as walks_module
from bitrank.clicks.exploration import draw_far
from bitrank.clicks.gate import MIN_PAGES, decide, evidence_from, top_gain, win_rates
from bitrank.clicks.learn import estimate_propensities
from bitrank.clicks.page import CANARY
from bitrank.clicks.robust import Clients, mean_over_clients, taste
from bitrank.clicks.simulate import SimulatedUsers
from bitrank.clicks.walks import ClickLog
from bitrank.core.codes import hamming, pack, signs, weighted_hamming
from bitrank.core.metrics import average_precision, precision_at
from bitrank.ranking import UniformRanker

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
    rng = np.random.default_rng(0)
    truth = 1 / np.log2(np.arange(10) + 2)
    n_shown, n_clicked = np.zeros(10), np.zeros(10)
    for _ in range(20_000):
        explored = np.zeros(10, bool)
        explored[rng.choice(10, 2, replace=False)] = True
        relevant = ~explored | (rng.random(10) < 2 / 3)
        n_shown += explored
        n_clicked += explored & relevant & (rng.random(10) < truth)
    estimate = estimate_propensities(n_shown, n_clicked)
    np.testing.assert_allclose(estimate, truth, atol=0.06)
    assert (np.diff(estimate) <= 0).all()


def test_propensities_are_uniform_without_exploration_and_bounded_below():
    learner = ClickLearner(random_codes(10, 8), random_state=0)
    learner.learn(Page(np.uint8([0]), np.zeros((3, 1), np.uint8), np.ones(3, bool)))
    np.testing.assert_array_equal(learner.propensities, np.ones(100))
    np.testing.assert_array_equal(estimate_propensities(np.full(3, 1e4), np.array([1e4, 0, 0])), [1, 0.1, 0.1])


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


def log_of(codes, pages, propensities):
    log, random = ClickLog(3), np.random.default_rng(0)
    for number, (query, clicked) in enumerate(pages):
        assert log.add(page_of(codes, query, clicked), f"client {number}", propensities, random)
    return log.walks()


@pytest.mark.parametrize("weights", [[1, 1, 1, 1], [1, 0.25, 1, 0.5]])
def test_walks_follow_a_markov_chain(weights, monkeypatch):
    """Compare with powers of the transition matrix: item to a page that holds it, page to one of its members."""
    codes = random_codes(7, 24)
    pages = [(0, [1, 2]), (2, [3]), (3, [4, 5, 0]), (6, [5])]
    propensities = np.array([1.0, 0.5, 0.25])
    of_clients = {f"client {n}": weight for n, weight in enumerate(weights)}
    monkeypatch.setattr(walks_module, "page_weights", lambda n_pages, left_out: of_clients)
    walks = log_of(codes, pages, propensities)
    members = np.zeros((4, 7))
    for number, (query, clicked) in enumerate(pages):
        members[number, query] = 1
        members[number, clicked] = 1 / propensities[: len(clicked)]
    to_member = members / members.sum(axis=1, keepdims=True)
    to_page = (members > 0).T * np.array(weights)
    step = to_page / to_page.sum(axis=1, keepdims=True) @ to_member
    row = np.array([next(n for n in range(7) if (codes[n] == code).all()) for code in walks.codes])
    drawn = row[walks.draw(40_000, np.random.default_rng(1), n_hops=3)]
    drawn_pairs = np.zeros((7, 7))
    np.add.at(drawn_pairs, (drawn[:, 0], drawn[:, 1]), 1)
    # Both ends start from one page, drawn by weight; what comes back to its start is left out.
    ends = to_member @ np.linalg.matrix_power(step, 3)
    expected = sum(weight * np.outer(*rows) for weight, *rows in zip(weights, to_member, ends, strict=True))
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(drawn_pairs / drawn_pairs.sum(), expected / expected.sum(), atol=0.01)


def test_old_pages_are_forgotten_and_clients_left_out():
    codes, log, random = random_codes(40, 24), ClickLog(3, n_pages=5), np.random.default_rng(0)
    for query in range(0, 38, 2):
        log.add(page_of(codes, query, [query + 1], [39]), str(query), ONES, random)
    assert len(log) == 5
    walks = log.walks({"36"})
    pairs = walks.draw(2000, random)
    assert {walks.codes[node].tobytes() for node in np.unique(pairs)} == {codes[row].tobytes() for row in range(28, 36)}


def test_a_page_without_a_click_says_nothing_and_one_of_many_no_more_than_others():
    codes, log, random = random_codes(300, 24), ClickLog(3), np.random.default_rng(0)
    assert not log.add(page_of(codes, 0, [], [1, 2]), "a", ONES, random)
    assert len(log.walks().draw(10, random)) == 0
    assert log.add(page_of(codes, 0, list(range(1, 300))), "a", ONES, random)
    assert len(log.walks().nodes) == 21


# Statistics over clients


def test_a_fifth_of_the_clients_cannot_move_a_mean_far():
    rng = np.random.default_rng(0)
    clients = [str(number % 50) for number in range(500)]
    honest = rng.normal(0.5, 0.2, 500)
    forged = np.where(np.arange(500) % 50 < 10, 1e6, honest)
    estimate = mean_over_clients(honest, clients)
    assert abs(estimate.mean - 0.5) < 4 * estimate.error
    assert 0.005 < estimate.error < 0.02
    assert abs(mean_over_clients(forged, clients).mean - 0.5) < 0.05
    flooded = np.concatenate([honest, np.full(5000, 9.0)])  # one client with many pages is one client
    assert abs(mean_over_clients(flooded, clients + ["flood"] * 5000).mean - 0.5) < 0.05


@pytest.mark.parametrize("name", ["wrong classes", "one query", "explored only"])
def test_clients_who_click_against_the_rest_are_found(itq_digits, name):
    codes, y = itq_digits.codes, itq_digits.y
    users = SimulatedUsers(codes, y, n_clients=20, random_state=0)
    vandals = ATTACKS[name](codes, y, n_clients=5, random_state=0)
    clients = Clients(32)
    for number in range(500):
        page = (vandals if number % 5 == 0 else users).page()
        clients.add(page.client, page, 1 / np.log2(np.arange(20) + 2))
    assert clients.left_out() == {f"vandal {number}" for number in range(5)}


@given(st.integers(1, 30), st.integers(2, 12), st.integers(0, 2**31))
def test_a_taste_is_the_difference_of_the_shares_of_shared_bits(n_bits, n_shown, seed):
    rng = np.random.default_rng(seed)
    query, shown = rng.integers(0, 2, n_bits), rng.integers(0, 2, (n_shown, n_bits))
    clicked = np.arange(n_shown) == rng.integers(n_shown)
    propensities = rng.uniform(0.1, 1, 5)
    found = taste(Page(pack(query[None])[0], pack(shown), clicked), propensities, n_bits)
    for bit in range(n_bits):
        shares = []
        for some, sign in ((clicked, -1), (~clicked, 1)):
            weights = {place: propensities[min(place, 4)] ** sign for place in np.flatnonzero(some)}
            shared = sum(weight for place, weight in weights.items() if shown[place, bit] == query[bit])
            shares.append(shared / sum(weights.values()))
        assert found[bit] == pytest.approx(shares[0] - shares[1])


def test_a_page_without_skipped_or_clicked_items_says_nothing_of_its_client():
    codes, clients = random_codes(5, 8), Clients(8)
    for clicked in (np.zeros(4, bool), np.ones(4, bool)):
        clients.add("a", Page(codes[0], codes[1:], clicked), ONES)
    assert clients.facts["a"].n_pages == 2
    assert not clients.facts["a"].sums.any()
    assert not clients.facts["a"].taste.any()


@pytest.mark.parametrize("name", ["useless bits", "big pages", "replay"])
def test_clients_to_whom_a_few_bits_are_everything_are_found(itq_digits, name):
    codes, y = itq_digits.codes, itq_digits.y
    users = SimulatedUsers(codes, y, n_clients=20, random_state=0)
    vandals = ATTACKS[name](codes, y, n_clients=5, random_state=0)
    clients = Clients(32)
    for number in range(1000):
        page = (vandals if number % 5 == 0 else users).page()
        clients.add(page.client, page, 1 / np.log2(np.arange(20) + 2))
    assert clients.left_out() == {f"vandal {number}" for number in range(5)}


def test_clients_who_look_for_one_class_each_are_not_left_out(itq_digits):
    codes, y = itq_digits.codes, itq_digits.y
    clients = Clients(32)
    for client in range(20):
        of_class = np.flatnonzero(y == client % 10)
        users = SimulatedUsers(codes, y, random_state=client)
        users._query = lambda of_class=of_class, users=users: int(users._random.choice(of_class))
        for _ in range(30):
            clients.add(f"user {client}", users.page(), 1 / np.log2(np.arange(20) + 2))
    assert len(clients.left_out()) <= 1  # none with most seeds


def test_only_the_last_clients_to_click_are_remembered(monkeypatch):
    monkeypatch.setattr(client_statistics, "_MOST_CLIENTS", 3)
    codes, clients = random_codes(5, 8), Clients(8)
    page = Page(codes[0], codes[1:], np.arange(4) < 2)
    for client in ["a", "b", "c", "a", "d"]:
        clients.add(client, page, ONES)
    assert list(clients.facts) == ["c", "a", "d"]


# The click gate


def digits_users(itq_digits, **options):
    return SimulatedUsers(itq_digits.codes, itq_digits.y, random_state=0, **options)


def evidence_of(users, codes, n, ranker=None, seed=0):
    """Collect the evidence of n pages; those without explored clicks have none."""
    random = np.random.default_rng(seed)
    pages = [users.page(ranker) for _ in range(n)]
    collected = [evidence_from(page, f"client {number}", codes, random) for number, page in enumerate(pages)]
    return [evidence for evidence in collected if evidence is not None]


def gain_of(evidence, codes):
    rates = win_rates(evidence, None, codes)[:, 0]
    return mean_over_clients(rates - 0.5, [page.client for page in evidence])


@pytest.fixture(scope="module")
def evidence(itq_digits):
    """The evidence of 300 pages, of which half explores: about 200 have explored clicks."""
    return evidence_of(digits_users(itq_digits, n_explored=10), itq_digits.codes, 300)


def test_win_rates_equal_those_counted_one_by_one(evidence, itq_digits):
    weights = np.random.default_rng(3).random(32).astype(np.float32)
    rates = win_rates(evidence[:15], RankingSVM.from_weights(weights), itq_digits.codes)
    for page, (every, near) in zip(evidence[:15], rates, strict=True):
        scores = np.zeros((len(page.anchors), len(page.clicked), len(page.drawn)))
        for row, anchor in enumerate(page.anchors):
            for column, item in enumerate(page.clicked):
                to_item = weighted_hamming(anchor[None], item[None], weights)[0, 0]
                to_drawn = weighted_hamming(anchor[None], page.drawn, weights)[0]
                scores[row, column] = np.where(to_drawn > to_item, 1.0, np.where(to_drawn == to_item, 0.5, 0.0))
        assert every == pytest.approx(scores.mean())
        few = scores[:, page.clicked_near][:, :, page.drawn_near]
        assert near == pytest.approx(few.mean()) if few.size else np.isnan(near)
    plain = win_rates(evidence[:15], None, itq_digits.codes)
    ones = win_rates(evidence[:15], RankingSVM.from_weights(np.ones(32)), itq_digits.codes)
    np.testing.assert_array_equal(plain, ones)


def test_only_explored_clicks_are_evidence():
    codes, random = random_codes(100, 32), np.random.default_rng(0)
    clicked, explored = np.arange(20) < 5, np.arange(20) >= 16
    assert evidence_from(Page(codes[0], codes[1:21], clicked, explored), "a", codes, random) is None
    evidence = evidence_from(Page(codes[0], codes[1:21], clicked, explored[::-1]), "a", codes, random)
    np.testing.assert_array_equal(evidence.clicked, codes[1:5])
    np.testing.assert_array_equal(evidence.anchors, codes[[0, 5]])
    assert evidence_from(Page(codes[0], codes[1:21], clicked, explored[::-1]), "a", codes[:1], random) is None
    reals = np.random.default_rng(1).normal(size=32).astype(np.float32)
    evidence = evidence_from(Page(reals, codes[1:21], clicked, explored[::-1]), "a", codes, random)
    np.testing.assert_array_equal(evidence.anchors, [reals, signs(codes[[5]], 32)[0]])


@pytest.mark.parametrize(
    ("seed", "n"), [(0, 400), *(pytest.param(seed, 1500, marks=pytest.mark.slow) for seed in range(3))]
)
def test_random_clicks_win_half_the_comparisons_under_any_ranking(itq_digits, seed, n):
    """Also where a version other than Hamming ranked the pages, and among near items alone."""
    weights = np.random.default_rng(seed).lognormal(size=(2, 32)).astype(np.float32)
    ranked_by, other = map(RankingSVM.from_weights, weights)
    users = SimulatedUsers(itq_digits.codes, itq_digits.y, at_random=1.0, random_state=seed)
    evidence = evidence_of(users, itq_digits.codes, n, ranked_by, seed)
    for judged in (None, ranked_by, other):
        for rates in win_rates(evidence, judged, itq_digits.codes).T:
            rates = rates[np.isfinite(rates)]
            assert abs(rates.mean() - 0.5) < 3.5 * rates.std() / np.sqrt(len(rates))


def test_the_gate_needs_pages_and_stronger_evidence_at_every_look(evidence, itq_digits):
    ones, evidence, codes = RankingSVM.from_weights(np.ones(32)), evidence[:80], itq_digits.codes
    gain = gain_of(evidence, codes)
    few = decide(evidence[: MIN_PAGES - 1], gain, ones, None, codes, 1)
    assert not few.activate
    assert few.candidate is None
    assert f"of the {MIN_PAGES} pages" in few.reason
    answers = [decide(evidence, gain, ones, None, codes, n_looks) for n_looks in (1, 10, 10**3, 10**30)]
    passed = [answer.activate for answer in answers]
    assert passed[0]
    assert passed == sorted(passed, reverse=True)
    assert not passed[-1]
    assert "clicks at random" in answers[-1].reason


def test_the_gate_refuses_worse_weights_and_raises_the_alarm(evidence, itq_digits):
    """A few random bits rank worse than all of them."""
    codes = itq_digits.codes
    gain, ones = gain_of(evidence, codes), RankingSVM.from_weights(np.ones(32))
    bad = RankingSVM.from_weights((np.random.default_rng(0).random(32) < 0.15).astype(np.float32))
    kept = decide(evidence, gain, bad, None, codes, 1)
    assert not kept.activate
    assert "worse than active" in kept.reason
    assert not kept.alarm
    assert kept.candidate < kept.hamming == kept.active
    alarmed = decide(evidence, gain, ones, bad, codes, 1)
    assert alarmed.alarm
    assert alarmed.activate
    assert alarmed.active < alarmed.hamming == alarmed.candidate


def test_the_replacement_of_a_version_is_the_last_chance_to_raise_the_alarm(evidence, itq_digits):
    codes = itq_digits.codes
    gain, ones = gain_of(evidence, codes), RankingSVM.from_weights(np.ones(32))
    ahead = [client_statistics.Estimate(2.7, 1.0, freedom=1000)]

    def alarm(n_looks, n_activated):
        return decide(evidence, gain, ones, ones, codes, n_looks, n_activated, ahead)

    assert [alarm(2, 0).activate, alarm(2, 0).alarm] == [True, True]  # 2.58 at the first replacement, 2.94 at this look
    assert not alarm(2, 1).alarm
    assert not decide(evidence[:5], gain, ones, ones, codes, 2, 0, ahead).alarm  # nothing is replaced
    assert decide(evidence[:5], gain, ones, ones, codes, 1, 0, ahead).alarm


def test_a_mean_of_few_values_must_be_farther_from_chance():
    values = np.random.default_rng(0).normal(size=(4000, 12))
    estimates = [mean_over_clients(row, ["one"] * 12) for row in values]
    assert {estimate.freedom for estimate in estimates} == {7}
    rate = np.mean([estimate.exceeds(2.0) for estimate in estimates])
    assert rate < 0.03 < np.mean([estimate.low(2.0) > 0 for estimate in estimates])
    assert mean_over_clients(np.ones(1), ["one"]) is None
    assert mean_over_clients(np.full(3, np.nan), ["one"] * 3) is None
    assert mean_over_clients(values[0], ["one"] * 12, min_clients=2) is None


@given(seed=st.integers(0, 1000), n_best=st.integers(1, 12), n_explored=st.integers(0, 8))
def test_explored_items_near_the_query_are_compared_with_the_results_beside_them(seed, n_best, n_explored):
    rng = np.random.default_rng(seed)
    sample, n = random_codes(40, 16), n_best + n_explored
    codes = sample[rng.permutation(40)[:n]]
    explored = np.isin(np.arange(n), rng.permutation(n)[:n_explored])
    page = Page(sample[0], codes, rng.random(n) < 0.5, explored)
    limit = np.sort(hamming(sample[:1], sample)[0])[n_best]
    gains = []
    for place in range(n):
        before = [page.clicked[p] for p in range(place) if not explored[p]]
        after = [page.clicked[p] for p in range(place + 1, n) if not explored[p]]
        if explored[place] and hamming(sample[:1], codes[[place]])[0, 0] <= limit and before and after:
            gains.append(page.clicked[place] - (int(before[-1]) + int(after[0])) / 2)
    np.testing.assert_allclose(top_gain(page, sample), np.mean(gains) if gains else np.nan)


@pytest.mark.parametrize("bad", [False, True])
def test_a_version_far_behind_hamming_raises_the_alarm_and_one_like_it_does_not(itq_digits, few_steps, bad):
    """Also of one client, and though no page is a canary."""
    ranker = RankingSVM.from_weights(
        (np.arange(32) == 5).astype(float) if bad else 1 + np.random.default_rng(0).random(32) / 5
    )
    users = digits_users(itq_digits, n_explored=10, n_clients=1)
    learner = ClickLearner(itq_digits.codes, secret=b"0", random_state=0)
    for _ in range(150):
        learner.learn(users.page(ranker), version=3)
    assert learner.decide(ranker, 3).alarm == bad


# The learner


def vectors(ranker, codes):
    queries = ranker.queries_for(codes[:50], collection=codes)
    return signs(queries.codes, ranker.n_bits_) * queries.weights


def gains(ranker, itq_digits):
    """MAP and P@10 of every digit among the others, above those of Hamming."""
    codes, y = itq_digits.codes, itq_digits.y
    queries = ranker.queries_for(codes, collection=codes)
    scores = []
    for to_all in (weighted_hamming(queries.codes, codes, queries.weights), hamming(codes, codes).astype(np.float32)):
        np.fill_diagonal(to_all, np.inf)
        relevant = (y[:, None] == y) & ~np.eye(len(y), dtype=bool)
        scores.append((average_precision(to_all, relevant).mean(), precision_at(to_all, relevant, 10).mean()))
    return np.subtract(*scores)


@pytest.fixture
def few_steps(monkeypatch):
    monkeypatch.setattr(learner_module, "_N_STEPS", 40)


def learned_from(users, n_pages, codes, **options):
    learner = ClickLearner(codes, secret=b"0", random_state=0, **options)
    for _ in range(n_pages):
        learner.learn(users.page())
    learner.update()
    return learner


def test_clicks_teach_a_vector_per_query(itq_digits):
    learner = learned_from(digits_users(itq_digits, noise=0.0), 300, itq_digits.codes)
    map_gain, p10_gain = gains(learner.candidate, itq_digits)
    assert map_gain > 0.02
    assert p10_gain > 0
    assert not learner.dropped


def test_vandals_teach_nothing(itq_digits):
    codes, y = itq_digits.codes, itq_digits.y
    users = SimulatedUsers(codes, y, n_clients=40, noise=0.0, random_state=0)
    vandals = ATTACKS["wrong classes"](codes, y, n_clients=10, random_state=0)
    learner, random = ClickLearner(codes, secret=b"0", random_state=0), np.random.default_rng(0)
    for _ in range(400):
        learner.learn((vandals if random.random() < 0.2 else users).page())
    learner.update()
    assert {client.split()[0] for client in learner.dropped} == {"vandal"}
    assert len(learner.dropped) >= 8
    assert (gains(learner.candidate, itq_digits) > [0.01, 0]).all()


def test_the_same_pages_and_seed_give_the_same_candidate(itq_digits, few_steps):
    users = digits_users(itq_digits)
    pages = [users.page() for _ in range(30)]
    learners = [ClickLearner(itq_digits.codes, secret=b"0", random_state=seed) for seed in (5, 5, 6)]
    for learner in learners:
        for page in pages:
            learner.learn(page)
        learner.update()
    first, second, other = (vectors(learner.candidate, itq_digits.codes) for learner in learners)
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


def test_a_candidate_is_a_ranker_that_a_file_keeps(itq_digits, few_steps, tmp_path):
    learner = learned_from(digits_users(itq_digits), 30, itq_digits.codes)
    learner.candidate.save(tmp_path / "clicks.ranker")
    loaded = load_ranker(tmp_path / "clicks.ranker")
    codes = itq_digits.codes
    np.testing.assert_array_equal(vectors(loaded, codes), vectors(learner.candidate, codes))


def test_honest_pages_pass_the_gate_and_random_clicks_do_not(itq_digits, few_steps, monkeypatch):
    """Half of the pages are held out, ten are enough to decide, and most results explore."""
    monkeypatch.setattr(learner_module, "_HELD_OUT", 0.5)
    monkeypatch.setattr(learner_module, "_MIN_NEW", 20)
    monkeypatch.setattr(click_gate, "MIN_PAGES", 10)
    for at_random, n_pages in ((0.0, 300), (1.0, 140)):
        users = digits_users(itq_digits, n_explored=14, noise=0.0, at_random=at_random)
        learner, active = ClickLearner(itq_digits.codes, secret=b"0", random_state=0), None
        while learner.n_pages < n_pages and not (active is not None and learner.n_looks > 2):
            learner.learn(users.page(active))
            if learner.due and learner.decide(active).activate:
                active = learner.candidate
        assert (active is None) == (at_random == 1)
        assert learner.n_looks > 2
        if active is not None:
            assert (gains(active, itq_digits) > [0, -0.002]).all()


def test_pages_are_held_out_by_a_secret(itq_digits):
    held_out = []
    for secret in (b"a", b"a", b"b"):
        learner = ClickLearner(itq_digits.codes, secret=secret)
        held_out.append([number for number in range(2000) if learner._is_held_out(number)])
    assert held_out[0] == held_out[1] != held_out[2]
    assert 300 < len(held_out[0]) < 500


def test_fewer_clicks_than_on_canary_pages_raise_the_alarm(itq_digits, few_steps):
    users, learner = digits_users(itq_digits), ClickLearner(itq_digits.codes, secret=b"0", random_state=0)
    for number in range(240):
        page = users.page()
        if number % 2:
            page.clicked &= np.random.default_rng(number).random(20) < 0.3
        learner.learn(page, version=3 if number % 2 else CANARY)
    assert learner.decide(version=3).alarm
    assert not learner.decide(version=2).alarm


def test_a_page_of_other_codes_is_refused_and_changes_nothing(itq_digits):
    learner = ClickLearner(itq_digits.codes, random_state=0)
    codes = random_codes(21, 64)
    with pytest.raises(ValueError, match="shown_codes of 32 bits must be 4 bytes wide, got 8"):
        learner.learn(Page(codes[0], codes[1:], np.arange(20) == 0))
    narrow = itq_digits.codes[:21]
    with pytest.raises(ValueError, match="query must hold 32 values, one per bit, got 31"):
        learner.learn(Page(np.ones(31), narrow[1:], np.arange(20) == 0))
    assert learner.n_pages == 0
    assert isinstance(learner.candidate, UniformRanker)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"propensities": [0.5, 0.0]}, "propensities must be"), ({"n_bits": 31}, "must have the last 1 bits")],
)
def test_bad_options_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ClickLearner(np.full((10, 4), 255, np.uint8), **arguments)


def test_the_sample_may_change_with_the_collection(itq_digits):
    learner = ClickLearner(itq_digits.codes[:600], random_state=0)
    learner.sample = itq_digits.codes[600:]
    users = digits_users(itq_digits)
    for _ in range(8):
        learner.learn(users.page())
    with pytest.raises(ValueError, match="sample of 32 bits"):
        learner.sample = random_codes(10, 64)


# Replays


def test_a_replay_learns_as_a_learner_does(itq_digits, few_steps):
    users, codes = digits_users(itq_digits), itq_digits.codes
    pages = [users.page() for _ in range(80)]
    start = RankingSVM.from_weights(np.random.default_rng(0).random(32))
    replayed = replay(pages, codes, ranker=start, random_state=0)
    assert replayed.n_pages == 80
    assert replayed.n_clicks == sum(page.clicked.sum() for page in pages)
    assert replayed.n_explored_clicks == sum((page.clicked & page.explored).sum() for page in pages)
    again = replay(iter(pages), codes, ranker=start, random_state=0)
    np.testing.assert_array_equal(vectors(again.candidate, codes), vectors(replayed.candidate, codes))
    assert [look.n_pages for look in replayed.looks] == sorted({look.n_pages for look in replayed.looks})
    for move in replayed.moves[:20]:
        page = pages[move.page]
        item = page.shown_codes[move.place][None]
        for ranker, rank in ((start, move.before), (replayed.candidate, move.after)):
            queries = ranker.queries_for(page.query_code[None], collection=codes)
            others = weighted_hamming(queries.codes, codes, queries.weights)[0]
            distance = weighted_hamming(queries.codes, item, queries.weights)[0, 0]
            assert rank == (others < distance).sum() + ((others == distance).sum() + 1) / 2
    logs = [abs(np.log(move.before / move.after)) for move in replayed.moves]
    assert logs == sorted(logs, reverse=True)
    assert len(logs) == replayed.n_clicks


def test_a_replay_of_nothing_changes_nothing(itq_digits):
    replayed = replay([], itq_digits.codes)
    assert (replayed.n_pages, replayed.overlap, replayed.moves, replayed.active) == (0, 1.0, [], None)
    assert isinstance(replayed.candidate, UniformRanker)


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
