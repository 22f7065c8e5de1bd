"""What one client can do to all: after restarts, in the log that is read again, by searching again; and blocks."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from serving import serving
from threads import wait_until

from bitrank import ITQ
from bitrank.clicks import LoggedPage, Page
from bitrank.clicks import gate as click_gate
from bitrank.clicks import learn as learner
from bitrank.clicks.robust import Facts
from bitrank.datasets import digits
from bitrank.index import Index
from bitrank.service import sources
from bitrank.service.store import Store, database
from bitrank.service.store.candidates import Progress, Publication
from bitrank.service.store.profiles import activate_version, active_stack, add_version
from bitrank.service.store.rankings import Ranking

N = 1000


@pytest.fixture(scope="module")
def collection():
    images, labels = digits()
    X = images[:N].reshape(N, -1) / np.float32(255)
    return ITQ(n_bits=32, random_state=0).fit(X).transform(X), labels[:N]


def source(collection):
    return sources.Source("digits", Index(collection[0]), sources.Items())


@pytest.fixture
def store(tmp_path):
    opened = Store(f"sqlite:///{tmp_path / 'bitrank.db'}", 32)
    opened.profiles.add("default", Ranking(np.ones(32, np.float32)), "uniform")
    yield opened
    opened.close()


def log(store, codes, client, number):
    page = Page(codes[number % N], codes[:2], np.array([True, False]))
    logged = LoggedPage(f"{client} {number}", {"item": 0}, [0, 1], [False, False], [0], "default", 1, client)
    return store.pages.add(logged, page, signed=True)


def test_a_flood_does_not_fill_what_a_new_learner_reads(store, collection):
    for number in range(20):
        log(store, collection[0], f"user {number % 10}", number)
    for number in range(100):
        log(store, collection[0], "flood", number)
    assert store.pages.newest("default", 0, 30) == [*range(1, 21), *range(111, 121)], "the newest of the busiest only"
    assert store.pages.newest("default", 0, 500) == list(range(1, 121))
    assert store.pages.newest("default", 110, 500) == list(range(111, 121))


def test_what_is_known_of_clients_is_kept_with_the_position_that_it_counts(store):
    facts = {"a": Facts(3, np.arange(6.0).reshape(2, 3), np.ones(32, np.float32), left_out=True)}
    store.candidates.publish([Publication("default", Progress(1, 5), False, None, facts)], [])
    later = {"a": Facts(9, np.zeros((2, 3)), np.ones(32, np.float32))}
    store.candidates.publish([Publication("default", Progress(1, 4), False, None, later)], [])
    kept = store.clients.facts("default")["a"]
    assert (kept.n_pages, kept.left_out) == (3, True), "a learner that is behind changes nothing"
    np.testing.assert_array_equal(kept.sums, facts["a"].sums)


def test_a_blocked_client_is_undone_and_its_versions_are_left(store):
    ranking = Ranking(np.ones(32, np.float32))
    with store.database.write() as connection:
        for clients in ({"a": 1.0}, {"a": 0.5, "b": 0.5}, {"b": 1.0}):
            number = add_version(connection, "default", ranking, "clicks", {}, clients=clients).number
            activate_version(connection, "default", number, "gate")
    assert store.clients.block("b")
    assert not store.clients.block("b")
    log = store.profiles.activations("default")
    assert (log[-1].version, log[-1].reason) == (2, "block"), "the newest that b did not teach"
    assert active_stack(log) == [1, 2]
    assert store.profiles.last_choice("default").version == 1, "no user's choice: learning goes on"
    assert store.clients.blocked()[1] == {"b"}
    assert store.clients.unblock("b")
    assert not store.clients.unblock("b")


class Users:
    """Users behind a proxy, who click items of the query's class; vandals click all others."""

    def __init__(self, client, labels, seed=0):
        self.client, self.labels, self.random = client, labels, np.random.default_rng(seed)

    def answer(self, n_pages, addresses, honest=True):
        for number in range(n_pages):
            headers = {"x-forwarded-for": addresses[number % len(addresses)]}
            item = int(self.random.integers(N))
            page = self.client.post("/search", json={"item": item, "explore": 10}, headers=headers).json()
            ids = np.array([result["id"] for result in page["results"]])
            body = {"page_token": page["page_token"]}
            body["clicked"] = ids[(self.labels[ids] == self.labels[item]) == honest].tolist()
            assert self.client.post("/feedback", json=body, headers=headers).status_code == 201
        wait_until(lambda: 'bitrank_pages_to_learn{profile="default"} 0.0\n' in self.client.get("/metrics").text)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(database, "secrets", SimpleNamespace(token_bytes=lambda n: b"s" * n))
    monkeypatch.setattr(learner, "_HELD_OUT", 0.5)
    monkeypatch.setattr(learner, "_N_STEPS", 20)
    monkeypatch.setattr(learner, "_MIN_NEW", 30)
    monkeypatch.setattr(click_gate, "MIN_PAGES", 10)


def test_clients_are_known_after_a_restart_and_a_block_learns_again(collection, tmp_path, quick):
    honest = [f"192.0.2.{number}" for number in range(20)]
    options = {"random_state": 0, "proxies": ("127.0.0.1",), "min_clients": 10}

    def known(client):
        return {one["client"]: one for one in client.get("/profiles/default/clients").json()}

    with serving(source(collection), tmp_path, **options) as client:
        users = Users(client, collection[1])
        vandal, other = (client.service.clients.name(f"198.51.100.{number}") for number in (1, 2))
        users.answer(60, honest)
        users.answer(12, ["198.51.100.1"], honest=False)
        users.answer(60, honest)
        before = known(client)
        assert before[vandal]["left_out"]
        assert before[vandal]["n_pages"] == 12
        assert before[vandal]["share"] == 0
        assert len(before) == 21
        taught = client.get("/profiles/default/versions").json()
        version = client.get(f"/profiles/default/versions/{taught['active']}").json()
        assert taught["active"] > 1
        assert sum(version["clients"].values()) == pytest.approx(1, abs=0.01)
        assert vandal not in version["clients"]
    with serving(source(collection), tmp_path, **options) as client:
        assert known(client) == before
        users = Users(client, collection[1], seed=1)
        users.answer(1, ["198.51.100.2"])
        teacher = max(version["clients"], key=version["clients"].get)
        answer = client.post(f"/clients/{teacher}/block")
        assert answer.json() == {"client": teacher, "blocked": True, "changed": True}
        assert client.get("/profiles/default/versions").json()["active"] == 1
        others = [address for address in honest if client.service.clients.name(address) != teacher]
        again = client.get("/profiles/default/versions").json()
        while again["active"] <= taught["active"]:
            users.answer(30, others)
            again = client.get("/profiles/default/versions").json()
        clients = client.get(f"/profiles/default/versions/{again['active']}").json()["clients"]
        assert teacher not in clients
        assert other in known(client)
        assert known(client)[teacher]["blocked"]
        assert client.post(f"/clients/{teacher}/unblock").json()["changed"]


def test_searching_again_explores_nothing_new(collection, tmp_path):
    """Before, a client searched until the item was shown that it wanted to click."""
    with serving(source(collection), tmp_path, proxies=("127.0.0.1",)) as client:

        def explored(item, address):
            headers = {"x-forwarded-for": address}
            page = client.post("/search", json={"item": item, "explore": 4}, headers=headers).json()
            return tuple(result["id"] for result in page["results"] if result["explored"])

        draws = {explored(3, "192.0.2.1") for _ in range(20)}
        assert len(draws) <= 2  # two where the hour ends meanwhile
        assert len({explored(3, f"192.0.2.{number}") for number in range(20)}) > 10
        assert len({explored(number, "192.0.2.1") for number in range(20)}) > 10
        first = client.post("/search", json={"item": 3, "explore": 4}).json()
        more = client.post("/search", json={"item": 3, "explore": 4, "continues": first["page_token"]}).json()
        assert [one["id"] for one in more["results"]] != [one["id"] for one in first["results"]]


def test_the_secret_of_a_draw_is_not_in_the_answer(collection, tmp_path):
    """Two stores draw differently: nobody can compute which items will be explored."""
    answers = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with serving(source(collection), tmp_path / name) as client:
            page = client.post("/search", json={"item": 3, "explore": 10}).json()
            answers.append(json.dumps([one["id"] for one in page["results"]]))
    assert answers[0] != answers[1]
