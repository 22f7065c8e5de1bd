"""No client counts for more than its share: windows, weights, decisions, and what is known after a restart."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.vandals import ATTACKS, NearWrong, Promotion
from bitrank.clicks import ClickLearner, Page
from bitrank.clicks import learn as learner_module
from bitrank.clicks.robust import Clients, mean_over_clients
from bitrank.clicks.simulate import SimulatedUsers
from bitrank.clicks.walks import ClickLog
from bitrank.clicks.window import SHARE, Window, limit_of, n_counted, page_weights
from bitrank.core.codes import pack

ONES = np.ones(20)


@given(st.integers(1, 12), st.lists(st.sampled_from("abcd"), max_size=40))
def test_a_full_window_forgets_the_oldest_entry_of_the_busiest_client(size, clients):
    window, expected = Window(size), []
    for number, client in enumerate(clients):
        window.add(client, number)
        expected.append((client, number))
        if len(expected) > size:
            counts = Counter(name for name, _ in expected)
            most = max(counts.values())
            expected.remove(next(entry for entry in expected if counts[entry[0]] == most))
    assert list(window) == expected
    assert len(window) == len(expected)
    assert window.counts == Counter(client for client, _ in expected)


@given(st.lists(st.integers(1, 20_000), min_size=1, max_size=200))
def test_no_client_counts_for_more_than_one_page_and_its_share(counts):
    n_pages = {str(number): n for number, n in enumerate(counts)}
    weights, limit = page_weights(n_pages), limit_of(n_pages)
    counted = {client: weights[client] * n for client, n in n_pages.items()}
    total = sum(counted.values())
    assert n_counted(n_pages) == pytest.approx(total)
    if len(counts) >= 1 / SHARE:
        assert max(counted.values()) <= max(1, SHARE * total) * (1 + 1e-9)
        more = sum(min(n, 1.01 * limit) for n in counts)  # no larger limit would do
        assert limit >= max(counts) or 1.01 * limit > SHARE * more
    else:
        assert limit == max(1, np.median(counts))


def one_class(itq_digits, **options):
    return SimulatedUsers(itq_digits.codes, itq_digits.y, random_state=0, **options)


def test_a_flood_of_one_client_decides_nothing_and_pushes_nobody_out(itq_digits, monkeypatch):
    """Before, it filled every window: decisions at every hundred of its pages, of its pages alone."""
    for name in ("_MAX_EVIDENCE", "_MIN_NEW"):
        monkeypatch.setattr(learner_module, name, 60)
    users = one_class(itq_digits, n_clients=60, n_explored=10)
    vandal = ATTACKS["useless bits"](itq_digits.codes, itq_digits.y, n_clients=1, n_explored=10, random_state=0)
    learner = ClickLearner(itq_digits.codes, secret=b"0", min_clients=10, random_state=0)
    for _ in range(150):
        learner.learn(users.page(), version=3)
    learner.decide(version=3)
    honest = [list(window) for window in (learner._held_out, learner._newest)]
    for _ in range(400):
        learner.learn(vandal.page(), version=3)
        assert not learner.due
    for before, window in zip(honest, (learner._held_out, learner._newest), strict=True):
        kept = [entry for client, entry in window if client != "vandal 0"]
        assert len(kept) >= len(before) - 3  # its own fair part of a full window
        assert window.counts["vandal 0"] <= max(window.counts.values())
    assert not learner.decide(version=3).alarm
    assert learner.teachers.get("vandal 0", 0) <= SHARE


def test_an_estimate_of_nothing_reaches_no_decision(itq_digits, monkeypatch):
    """Before, the rates of clients who are all left out gave NaN, and learning failed with it."""
    monkeypatch.setattr(learner_module, "_N_STEPS", 2)
    users = one_class(itq_digits, n_clients=12, n_explored=10)
    learner = ClickLearner(itq_digits.codes, secret=b"0", random_state=0)
    for _ in range(60):
        learner.learn(users.page(), version=3)
    everybody = set(learner.clients.facts)
    monkeypatch.setattr(Clients, "left_out", lambda _: everybody)
    decision = learner.decide(version=3)
    assert learner.hamming_gain is None
    assert np.isfinite(learner.blend)
    assert not decision.activate
    assert not decision.alarm
    assert mean_over_clients(np.zeros(0), []) is None


def test_clicks_on_the_querys_own_code_teach_nothing_and_harm_nothing(itq_digits):
    """Before, a log of such pages alone made a network of NaN."""
    codes = itq_digits.codes
    learner = ClickLearner(codes, secret=b"0", random_state=0)
    for row in range(8):
        learner.learn(Page(codes[row], codes[[row, row + 1]], np.array([True, False])))
    learner.update()
    queries = learner.candidate.queries_for(codes[:5], collection=codes)
    assert np.isfinite(queries.weights).all()


def test_fewer_clients_than_asked_for_decide_nothing(itq_digits, monkeypatch):
    monkeypatch.setattr(learner_module, "_N_STEPS", 5)
    bad = ATTACKS["wrong classes"](itq_digits.codes, itq_digits.y, n_clients=9, n_explored=14, random_state=0)
    for min_clients, rings in ((1, True), (10, False)):
        learner = ClickLearner(itq_digits.codes, secret=b"0", min_clients=min_clients, random_state=0)
        for _ in range(300):
            learner.learn(bad.page(), version=3)
        behind = learner._behind_hamming(None, 3)
        assert bool(behind) == rings
        if min_clients == 10:
            decision = learner.decide(version=3)
            assert not decision.activate
            assert "9 of the 10 clients" in decision.reason


def test_pages_of_one_query_count_as_one_and_so_do_clicks_on_one_explored_item():
    codes = pack(np.random.default_rng(0).integers(0, 2, (40, 24)))
    log, random = ClickLog(3), np.random.default_rng(0)
    explored = np.array([False, True])
    for client in range(10):  # ten vandals agree on item 39 for query 0
        log.add(
            Page(codes[0], codes[[1, 39]], explored, explored, f"vandal {client}"), f"vandal {client}", ONES, random
        )
    for query in range(2, 22, 2):  # and ten users click what the others do not
        log.add(Page(codes[query], codes[[query + 1]], np.array([True])), f"user {query}", ONES, random)
    walks = log.walks()
    starts = np.diff(walks._by_page)
    assert starts[:10].sum() <= 1
    np.testing.assert_allclose(starts[10:], 1)
    pairs = walks.draw(4000, random, n_hops=0)
    target = next(node for node, code in enumerate(walks.codes) if (code == codes[39]).all())
    assert (pairs == target).any(axis=1).mean() < 0.1  # of eleven pages, one


def test_what_is_known_of_clients_survives_a_restart(itq_digits):
    codes, y = itq_digits.codes, itq_digits.y
    users = SimulatedUsers(codes, y, n_clients=20, random_state=0)
    vandals = ATTACKS["wrong classes"](codes, y, n_clients=5, random_state=0)
    learner = ClickLearner(codes, secret=b"0", random_state=0)
    for number in range(400):
        learner.learn((vandals if number % 5 == 0 else users).page())
    learner.dropped = learner.clients.left_out()
    again = ClickLearner(codes, secret=b"0", facts=learner.clients.facts, random_state=0)
    assert again.dropped == learner.dropped == {f"vandal {number}" for number in range(5)}
    page = users.page()
    again.learn(page, is_known=True)
    assert again.clients.n_pages == learner.clients.n_pages


def test_clients_who_click_near_items_of_other_classes_are_found(itq_digits):
    """Before, nobody was: they agree with Hamming distance about what is far."""
    codes, y = itq_digits.codes, itq_digits.y
    options = {"n_explored": 10, "random_state": 0}
    users = SimulatedUsers(codes, y, n_clients=20, **options)
    vandals = NearWrong(codes, y, n_clients=5, **options)
    learner = ClickLearner(codes, secret=b"0", random_state=0)
    for number in range(600):
        learner.learn((vandals if number % 5 == 0 else users).page())
    left_out = learner.clients.left_out()
    assert len({client for client in left_out if client.startswith("vandal")}) >= 3
    assert len({client for client in left_out if client.startswith("user")}) <= 1


@pytest.mark.slow
def test_a_tenth_of_the_clients_cannot_promote_an_item_for_a_query(itq_digits):
    codes, y = itq_digits.codes, itq_digits.y
    users = SimulatedUsers(codes, y, n_clients=90, random_state=0)
    vandals = Promotion(codes, y, n_clients=10, random_state=0)
    learner, random = ClickLearner(codes, secret=b"0", random_state=0), np.random.default_rng(0)
    for _ in range(800):
        learner.learn((vandals if random.random() < 0.1 else users).page())
    learner.update()
    assert vandals.rank(vandals.query, learner.candidate) > 20
