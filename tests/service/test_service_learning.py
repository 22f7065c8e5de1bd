"""Learning in the service: the candidate follows clicks, the gate decides, activations are logged and undone."""

from types import SimpleNamespace

import numpy as np
import pytest
from serving import serving
from threads import wait_until

from bitrank import ITQ, QueryVectorRanker, RankingSVM
from bitrank.clicks import LoggedPage, Page
from bitrank.clicks import gate as click_gate
from bitrank.clicks import learn as learner
from bitrank.datasets import digits
from bitrank.index import Index
from bitrank.ranking.trust import Calibration
from bitrank.service import sources
from bitrank.service.service import Service
from bitrank.service.settings import Settings
from bitrank.service.store import database, rankings
from bitrank.service.store.rankings import Ranking

N = 2000
# Some of these are like what was clicked.
ITEMS = [{"item": item, "explore": 0, "k": 50} for item in range(10)]


@pytest.fixture(scope="module")
def collection():
    """Digits as 32-bit codes, with their labels to simulate users by."""
    images, labels = digits()
    X = images[:N].reshape(N, -1) / np.float32(255)
    return ITQ(n_bits=32, random_state=0).fit(X).transform(X), labels[:N]


def source(collection):
    return sources.Source("digits", Index(collection[0]), sources.Items())


@pytest.fixture(autouse=True)
def _fixed_secret(monkeypatch):
    """The secret of a store chooses the pages held out: with a fixed one, every run sees the same."""
    monkeypatch.setattr(database, "secrets", SimpleNamespace(token_bytes=lambda n: b"s" * n))


@pytest.fixture(params=["few pages", pytest.param("all pages", marks=pytest.mark.slow)])
def step(request, monkeypatch):
    """Pages between two looks at the gate. With few pages, half of them are held out and ten are enough to decide."""
    if request.param == "all pages":
        return 50
    monkeypatch.setattr(learner, "_HELD_OUT", 0.5)
    monkeypatch.setattr(learner, "_N_STEPS", 40)
    monkeypatch.setattr(learner, "_MIN_NEW", 10)
    monkeypatch.setattr(click_gate, "MIN_PAGES", 10)
    return 10


class User:
    """A user who looks at a place with probability 1 / log2(rank + 1) and clicks items of the query's label."""

    def __init__(self, client, labels, seed, random_share=0.1):
        self.client, self.labels, self.random_share = client, labels, random_share
        self.rng, self.n, self.explore = np.random.default_rng(seed), 0, client.service.settings.explore

    def answer(self, n_pages):
        for _ in range(n_pages):
            item = int(self.rng.integers(N))
            page = self.client.post("/search", json={"item": item, "explore": self.explore}).json()
            ids = np.array([result["id"] for result in page["results"]])
            seen = self.rng.random(len(ids)) < 1 / np.log2(np.arange(len(ids)) + 2)
            liked = self.labels[ids] == self.labels[item]
            noise = self.rng.random(len(ids)) < self.random_share
            liked = np.where(noise, self.rng.random(len(ids)) < 0.5, liked)
            body = {"page_token": page["page_token"], "clicked": ids[seen & liked].tolist()}
            self.n += 1
            assert self.client.post("/feedback", json=body).status_code == 201
        wait_until_learned(self.client)


def wait_until_learned(client):
    wait_until(lambda: 'bitrank_pages_to_learn{profile="default"} 0.0\n' in client.get("/metrics").text)


def published_last(client):
    """The change that published the newest candidate."""
    return next(row.ranked for row in client.service.store.candidates.published(-1)[1] if row.profile == "default")


def replayed(client, published):
    """The candidate of a learner that has read the log again, after one that was published before."""
    wait_until(lambda: published_last(client) > published)
    client.service.candidates.refresh()
    return client.service.candidates.ranking("default")


def versions(client):
    return client.get("/profiles/default/versions").json()


def test_a_page_explores_and_says_so(collection, tmp_path):
    with serving(source(collection), tmp_path, random_state=0) as client:
        places, n = np.zeros(20), 25
        for item in range(n):
            results = client.post("/search", json={"item": item, "explore": 4}).json()["results"]
            plain = client.post("/search", json={"item": item, "explore": 0, "k": 16}).json()["results"]
            assert len({result["id"] for result in results}) == 20
            assert item not in {result["id"] for result in results}
            top = [result["id"] for result in results if not result["explored"]]
            assert top == [result["id"] for result in plain]
            places += [result["explored"] for result in results]
            for result in results:
                bits = np.unpackbits(collection[0][item] ^ collection[0][result["id"]]).sum()
                assert result["distance"] == bits
                assert not result["explored"] or result["tie"] == result["rank"]
        assert places.sum() == 4 * n
        assert not places[:3].any()
        assert places[3:12].sum() == pytest.approx(2 * n, abs=20)
        for path in ("/search?profile=hamming", "/search"):  # nothing is explored for who does not ask for it
            plain = client.post(path, json={"item": 1}).json()["results"]
            assert not any(result["explored"] for result in plain)
        far = client.post("/search", json={"item": 1, "k": 3, "explore": 9}).json()["results"]
        assert [result["explored"] for result in far] == [True] * 3


def test_clicks_move_the_candidate_the_gate_activates_it_and_a_rollback_undoes_it(collection, tmp_path, step):
    with serving(source(collection), tmp_path, random_state=1, explore=10, canary=0.0) as client:
        user = User(client, collection[1], seed=1, random_share=0.0)
        uniform = client.post("/search", json={"item": 3, "explore": 0, "k": 50}).json()
        user.answer(12)
        moved = client.post("/search", json={"item": 3, "version": "candidate"}).json()
        assert moved["version"] == "candidate"
        assert np.ptp(client.get("/profiles/default/candidate").json()["weights"]) > 0
        same = client.post("/search", json={"item": 3, "explore": 0, "k": 50}).json()
        assert same["results"] == uniform["results"], "twelve pages do not pass the gate"

        while versions(client)["active"] == 1 and user.n < 16 * step:
            user.answer(step)
        listed = versions(client)
        assert listed["active"] >= 2
        entry = listed["activations"][-1]
        assert entry["reason"] == "gate"
        newest = client.get(f"/profiles/default/versions/{listed['active']}").json()
        assert (newest["origin"], newest["n_pages"]) == ("clicks", entry["n_pages"])
        assert np.ptp(newest["weights"]) > 0
        quality = client.get("/profiles/default/quality").json()
        last = next(row for row in quality if row["n_pages"] == entry["n_pages"])
        assert last["decision"] == "activate"
        assert last["candidate"] == newest["figures"]["candidate"]
        assert newest["kind"] == "QueryVectorRanker"
        assert not last["alarm"]
        assert all(row["decision"] == "keep" for row in quality if row["n_pages"] < entry["n_pages"])
        learned = [
            [client.post("/search", json=item | version).json()["results"] for item in ITEMS]
            for version in ({}, {"version": newest["made_from"]})
        ]
        assert learned[0] != learned[1]

        assert client.post("/profiles/default/rollback").json()["version"] == newest["made_from"]
        back = client.post("/search", json={"item": 3, "explore": 0, "k": 50}).json()
        assert back["results"] == uniform["results"]
        user.answer(4)
        assert versions(client)["active"] == newest["made_from"], "what was undone must not come back at once"
        candidate, published = client.service.candidates.ranking("default"), published_last(client)
        n_log = client.get("/profiles").json()[1]["n_pages"]

    # A restart reads the log after the rollback. Of so few pages no candidate lacks one: it is the same to a bit.
    with serving(source(collection), tmp_path, random_state=1) as client:
        again = replayed(client, published)
        assert again.columns() == candidate.columns()
        assert client.get("/profiles").json()[1]["n_pages"] == n_log
        assert versions(client)["active"] == newest["made_from"]


def test_the_same_log_gives_the_same_candidate_at_every_start(collection, tmp_path):
    """A running learner may lack a twentieth of the pages; one that starts learns from all, however the first came."""
    candidates, published = [], 0
    for start in range(3):
        with serving(source(collection), tmp_path, random_state=1) as client:
            if start == 0:
                user = User(client, collection[1], seed=4)
                user.answer(19)
                user.answer(21)
                user.answer(1)
            else:
                candidates.append(replayed(client, published))
            published = published_last(client)
    assert candidates[0].kind == "QueryVectorRanker"
    assert candidates[0].columns() == candidates[1].columns()


def test_a_restart_delays_no_decision(collection, tmp_path, monkeypatch):
    monkeypatch.setattr(learner, "_MIN_NEW", 10)
    for n_pages, expected in ((6, []), (3, []), (2, [10]), (8, [10]), (1, [10, 20])):
        with serving(source(collection), tmp_path, random_state=1) as client:
            wait_until_learned(client)
            User(client, collection[1], seed=n_pages).answer(n_pages)
            assert [row["n_pages"] for row in client.get("/profiles/default/quality").json()] == expected


@pytest.mark.slow
def test_random_clicks_never_pass(collection, tmp_path, step):
    with serving(source(collection), tmp_path, random_state=2, explore=10) as client:
        user = User(client, collection[1], seed=2, random_share=1.0)
        user.answer(6 * step)
        listed = versions(client)
        assert listed["active"] == 1
        quality = client.get("/profiles/default/quality").json()
        assert any(row["hamming"] is not None for row in quality)
        assert all(row["decision"] == "keep" for row in quality)


def test_the_alarm_rings_when_the_active_version_is_behind_hamming(collection, tmp_path, step, monkeypatch, caplog):
    # Ten pages do not tell the worst version from Hamming; of forty seeds, after a hundred pages, the least certain one
    # is 4.2 standard errors apart, and 2.6 ring the alarm.
    monkeypatch.setattr(learner, "_MIN_NEW", 100)
    with serving(source(collection), tmp_path, random_state=3, explore=10) as client:
        # A version of one bit of 32, the one that says least about the labels, is far worse than Hamming.
        codes, labels = collection
        means = np.array([np.unpackbits(codes[labels == label], axis=1).mean(axis=0) for label in range(10)])
        weights = (np.arange(32) == ((means - 0.5) ** 2).sum(axis=0).argmin()).astype(float).tolist()
        number = client.post("/profiles/default/versions", json={"weights": weights}).json()["number"]
        client.post(f"/profiles/default/versions/{number}/activate")
        user = User(client, collection[1], seed=3, random_share=0.0)
        while user.n < 40 * step and not any(row["alarm"] for row in client.get("/profiles/default/quality").json()):
            user.answer(step)
        rung = next(row for row in client.get("/profiles/default/quality").json() if row["alarm"])
        replaced = [entry["n_pages"] for entry in versions(client)["activations"] if entry["reason"] == "gate"]
        assert rung["n_pages"] <= min(replaced, default=user.n)
        assert f"version {number} of profile default ranks clicks worse than Hamming" in caplog.text
        assert versions(client)["active"] >= number, "a version that an operator gave is not undone"


def test_two_processes_over_one_database_agree(collection, tmp_path):
    with serving(source(collection), tmp_path) as one, serving(source(collection), tmp_path) as two:
        number = one.post("/profiles/default/versions", json={"weights": [2.0] * 32}).json()["number"]
        one.post(f"/profiles/default/versions/{number}/activate")
        one.post("/items", json={"items": [{"id": 9000, "code": "00000000", "title": "shared"}]})
        one.delete("/items/5")
        one.put("/profiles/tenant")
        for _ in range(3):
            page = one.post("/search", json={"item": 3, "k": 10}).json()
            clicked = [page["results"][place]["id"] for place in (0, 4)]
            body = {"page_token": page["page_token"], "clicked": clicked}
            assert one.post("/feedback", json=body).status_code == 201
            assert two.post("/feedback", json=body).status_code == 200

        def two_follows_one():
            results = two.post("/search", json={"item": 3, "k": 1})
            learned = [client.service.candidates.ranking("default") for client in (one, two)]
            return (
                results.json()["version"] == number
                and two.get("/items/9000").status_code == 200
                and two.get("/items/5").status_code == 404
                and two.post("/search?profile=tenant", json={"item": 3}).status_code == 200
                and all(ranking is not None and np.ptp(ranking.weights) > 0 for ranking in learned)
            )

        wait_until(two_follows_one)
        assert two.get("/items/9000").json()["title"] == "shared"


def test_the_candidate_shows_its_weights_and_how_many_pages_it_learned(collection, tmp_path):
    with serving(source(collection), tmp_path, random_state=2) as client:
        shown = client.get("/profiles/default/candidate").json()
        assert shown["n_learned"] == 0
        assert np.ptp(shown["weights"]) == 0
        User(client, collection[1], seed=2).answer(7)
        shown = client.get("/profiles/default/candidate").json()
        assert shown["n_learned"] == 7
        learned = client.service.candidates.ranking("default")
        np.testing.assert_array_equal(np.float32(shown["weights"]), learned.weights)
        assert (shown["kind"], learned.kind) == ("QueryVectorRanker", "QueryVectorRanker")
        assert np.ptp(shown["weights"]) > 0
        assert client.get("/profiles/nobody/candidate").status_code == 404


def test_choices_move_their_own_search_and_no_other(collection, tmp_path):
    with serving(source(collection), tmp_path, random_state=3) as client:
        ask = {"item": 3, "explore": 0, "k": 20}
        plain = client.post("/search", json=ask).json()["results"]
        before = [result["id"] for result in plain]
        chosen = before[12]
        after = [r["id"] for r in client.post("/search", json=ask | {"chosen": [chosen, 10**9]}).json()["results"]]
        assert after != before
        assert after.index(chosen) < 12
        assert client.post("/search", json=ask).json()["results"] == plain
        assert client.post("/search", json=ask | {"chosen": [3]}).json()["results"] == plain  # the query itself
        refused = client.post("/search?profile=hamming", json=ask | {"chosen": [chosen]})
        assert (refused.status_code, "hamming" in refused.json()["detail"]) == (422, True)
        assert client.post("/search", json=ask | {"chosen": list(range(21))}).status_code == 422


@pytest.mark.parametrize("learn_imported", [False, True])
def test_imported_pages_are_learned_from_only_where_the_operator_says_so(collection, tmp_path, learn_imported):
    with serving(source(collection), tmp_path, random_state=3, learn_imported=learn_imported) as client:
        for number in range(6):
            shown = [{"id": item} for item in range(10 * number + 1, 10 * number + 11)]
            body = {"key": f"page-{number}", "query": {"item": 0}, "shown": shown, "clicked": [10 * number + 3]}
            assert client.post("/feedback/import", json=body).status_code == 201
        wait_until_learned(client)
        weights = client.get("/profiles/default/candidate").json()["weights"]
        assert (np.ptp(weights) > 0) == learn_imported


def test_a_page_of_huge_values_in_the_log_ends_no_learning(collection, tmp_path):
    """An older service logged such pages, and learned nothing ever after."""
    huge = Page(np.ones(32, np.float32), collection[0][1:6], np.arange(5) == 2)
    huge.query = np.full(32, 3e38, np.float32)
    logged = LoggedPage("huge", {"code": "ffffffff"}, [1, 2, 3, 4, 5], [False] * 5, [3], "default")
    for _ in range(2):  # also after a restart
        with serving(source(collection), tmp_path, random_state=2) as client:
            client.service.store.pages.add(logged, huge, signed=True)
            User(client, collection[1], seed=2).answer(7)
            weights = client.get("/profiles/default/candidate").json()["weights"]
            assert np.isfinite(weights).all()
            assert np.ptp(weights) > 0


def test_a_page_that_cannot_be_learned_from_is_set_aside_and_named(collection, tmp_path, monkeypatch, caplog):
    learn = learner.ClickLearner.learn

    def fail_at_third(self, page, *, number=None, **options):
        if number == 3:
            raise RuntimeError("no such page")
        learn(self, page, number=number, **options)

    monkeypatch.setattr(learner.ClickLearner, "learn", fail_at_third)
    with serving(source(collection), tmp_path, random_state=2) as client:
        User(client, collection[1], seed=2).answer(6)
        assert client.service.store.candidates.set_aside("default") == {3}
        assert "page 3 of profile default cannot be learned from" in caplog.text
        assert 'bitrank_pages_set_aside{profile="default"} 1.0' in client.get("/metrics").text
        assert client.get("/healthz").json() == {"status": "ok"}


def test_failed_learning_is_reported_and_starts_again(collection, tmp_path, monkeypatch):
    broken, update = [True], learner.ClickLearner.update

    def update_or_fail(self):
        if broken[0]:
            raise MemoryError("no room")
        update(self)

    monkeypatch.setattr(learner.ClickLearner, "update", update_or_fail)
    with serving(source(collection), tmp_path, random_state=2) as client:
        page = client.post("/search", json={"item": 3}).json()
        body = {"page_token": page["page_token"], "clicked": [page["results"][0]["id"]]}
        assert client.post("/feedback", json=body).status_code == 201
        wait_until(lambda: client.get("/healthz").json() == {"status": "ok", "learning": "failing"})
        assert client.post("/search", json={"item": 3}).status_code == 200
        broken[0] = False
        wait_until_learned(client)
        wait_until(lambda: client.get("/healthz").json() == {"status": "ok"})
        assert "bitrank_learning_failures 0.0" not in client.get("/metrics").text


def test_a_list_of_versions_unpacks_no_ranker(collection, tmp_path, monkeypatch):
    ranker = QueryVectorRanker(n_steps=2, n_hidden=4, random_state=0).fit(*collection)
    with serving(source(collection), tmp_path, ranker=ranker) as client:
        client.post("/profiles/default/versions", json={"weights": [1.0] * 32})
        unpacked = []
        monkeypatch.setattr(rankings, "load_ranker", unpacked.append)
        listed = versions(client)["versions"]
    assert [entry["kind"] for entry in listed] == ["QueryVectorRanker", "weights"]
    assert not unpacked


def test_trust_is_calibrated_once_per_version(collection, tmp_path, monkeypatch):
    ranker = QueryVectorRanker(n_steps=20, n_hidden=16, random_state=0).fit(*collection)
    made, init = [], Calibration.__init__

    def make(self, *arguments):
        made.append(self)
        init(self, *arguments)

    with serving(source(collection), tmp_path, ranker=ranker) as client:
        monkeypatch.setattr(Calibration, "__init__", make)
        for item in (3, 4, 5, 3):
            assert client.post("/search", json={"item": item}).status_code == 200
    assert len(made) == 1


def test_a_ranker_learned_offline_is_the_first_version(collection, tmp_path):
    codes, labels = collection
    ranker = QueryVectorRanker(n_steps=20, n_hidden=16, random_state=0).fit(codes, labels)
    for _ in range(2):  # also after a restart: the same file is the same version
        with serving(source(collection), tmp_path, ranker=ranker) as client:
            listed = versions(client)
            assert [(entry["origin"], entry["kind"]) for entry in listed["versions"]] == [
                ("ranker", "QueryVectorRanker")
            ]
            results = client.post("/search", json={"item": 3, "explore": 0, "k": 10}).json()["results"]
            queries = ranker.queries_for(codes[[3]], collection=codes)
            ids = Index(codes).search(queries, k=11).ids[0]
            expected = [item for item in ids.tolist() if item != 3][:10]
            assert [result["id"] for result in results] == expected
    url = f"sqlite:///{tmp_path / 'other.db'}"
    with pytest.raises(ValueError, match="the ranker must rank codes of 32 bits, got 16"):
        Service(source(collection), url, Settings(), RankingSVM.from_weights(np.ones(16)))


@pytest.mark.slow
def test_a_ranker_learned_offline_is_activated_once(collection, tmp_path):
    """A restart does not undo a user's choice, also when the collection changed; another file is another version."""
    codes, labels = collection
    first, second = (QueryVectorRanker(n_steps=2, n_hidden=4, random_state=n).fit(codes, labels) for n in (0, 1))
    third = RankingSVM.from_weights(np.linspace(1, 2, 32))
    with serving(source(collection), tmp_path, ranker=first) as client:
        client.post("/profiles/default/versions", json={"weights": [1.0] * 32})
        client.post("/profiles/default/versions/2/activate")
        assert client.post("/items", json={"items": [{"id": 0, "code": "00ff00ff"}]}).status_code == 201
    for ranker, active in ((first, 2), (second, 3), (third, 4), (third, 4), (first, 4)):
        with serving(source(collection), tmp_path, ranker=ranker) as client:
            listed = versions(client)
            assert (listed["active"], len(listed["versions"])) == (active, active)
            last = listed["activations"]
    assert [(entry["version"], entry["reason"]) for entry in last] == [
        (1, "start"),
        (2, "user"),
        (3, "user"),
        (4, "user"),
    ]


def test_an_alarm_undoes_a_version_that_clicks_made(collection, tmp_path):
    with serving(source(collection), tmp_path) as client:
        store = client.service.store
        bad = Ranking((np.arange(32) == 5).astype(np.float32))
        figures = {"alarm": False}
        number = store.gate.record("default", 1, figures, 1, bad)
        assert versions(client)["active"] == number
        assert store.gate.record("default", 2, figures, number, None, undo=True) is None
        listed = versions(client)
        assert listed["active"] == 1
        assert listed["activations"][-1]["reason"] == "alarm"
        assert store.profiles.last_choice("default").reason == "start"
