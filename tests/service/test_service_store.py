"""The store: databases of older formats are migrated, those of the future refused, and candidates published."""

import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from threads import in_threads

from bitrank.clicks import ClickLearner
from bitrank.service.candidates import Candidates
from bitrank.service.store import Store
from bitrank.service.store.candidates import PageSetAside, Progress, Publication
from bitrank.service.store.migrations import FORMAT, MIGRATIONS
from bitrank.service.store.page_log import read_page
from bitrank.service.store.rankings import Ranking

GOLDEN = Path(__file__).parents[1] / "golden"
N_BITS = 12


def restored(folder, dump):
    """Make a database of the SQL dump of one that an older version of the service wrote."""
    path = folder / "bitrank.db"
    connection = sqlite3.connect(path)
    connection.executescript((GOLDEN / dump).read_text())
    connection.close()
    return path


@pytest.fixture
def first_format(tmp_path):
    return restored(tmp_path, "service-v1.dump")


def opened(path):
    return Store(f"sqlite:///{path}", N_BITS)


def test_a_database_of_the_first_format_is_migrated_whole(first_format):
    for _ in range(2):  # migrated, and opened again
        store = opened(first_format)
        assert store.profiles.n_pages() == {"hamming": 0, "default": 10, "shop": 2}
        assert [version["origin"] for version in store.profiles.versions("shop")] == ["given", "clicks", "given"]
        assert [version["n_pages"] for version in store.profiles.versions("shop")] == [0, 2, 2]
        entries = [(entry.version, entry.reason, entry.n_pages) for entry in store.profiles.activations("shop")]
        assert entries == [(1, "start", 0), (2, "gate", 2), (3, "user", 2), (2, "rollback", 2)]
        (finding,) = store.gate.findings("shop", 10)
        assert (finding["n_pages"], finding["decision"], finding["candidate"]) == (2, "activate", 0.7)
        items = {item.id: (item.removed, item.title) for item in store.items.changed(after=0)[1]}
        assert items == {100: (False, "hundred"), 7: (True, None)}
        store.close()


def test_a_database_of_the_second_format_is_migrated_whole(tmp_path):
    path = restored(tmp_path, "service-v2.dump")
    secrets = set()
    for _ in range(2):
        store = opened(path)
        secrets.add(store.secret)
        assert store.profiles.n_pages() == {"hamming": 0, "default": 4, "shop": 2}
        entries = [(entry.version, entry.reason) for entry in store.profiles.activations("shop")]
        assert entries == [(1, "start"), (2, "user"), (3, "gate"), (2, "rollback")]
        rows = store.pages.after("default", 0, 100)
        assert [row.key for row in rows] == [f"key-{number}" for number in range(4)]
        assert [(row.signed, row.client) for row in rows] == [(False, None)] * 4  # nobody signed them
        assert [read_page(row).query.dtype.kind for row in rows] == ["f", "u"] * 2
        assert all(read_page(row).clicked.tolist() == [False, True, False] for row in rows)
        store.close()
    (secret,) = secrets
    assert len(secret) == 32


def test_databases_have_a_secret_each(tmp_path):
    secrets = set()
    for name in ("a.db", "b.db"):
        store = opened(tmp_path / name)
        secrets.add(store.secret)
        store.close()
    assert len(secrets) == 2


def test_pages_of_the_first_format_still_teach(first_format):
    """The log holds pages by item, by code and by vector."""
    golden = json.loads((GOLDEN / "service-v1.json").read_text())
    codes = np.frombuffer(bytes.fromhex(golden["codes"]), np.uint8).reshape(-1, 2)
    hundred = np.uint8([[0xAB, 0xC0]])
    sample = np.concatenate([np.delete(codes, 7, axis=0), hundred])
    store = opened(first_format)
    rows = store.pages.after("default", 0, 100)
    store.close()
    assert [row.number for row in rows] == list(range(1, 11))
    pages = [read_page(row) for row in rows]
    assert [page.query.dtype.kind for page in pages] == ["u", "u", "f"] * 3 + ["u"]
    learner = ClickLearner(sample, n_bits=N_BITS, random_state=0)
    for page in pages:
        learner.learn(page)
    learner.update()
    assert learner.n_pages == 10
    assert learner.candidate.blend_ > 0


def test_several_processes_may_open_an_old_database_at_once(first_format):
    stores = []
    in_threads(*[lambda: stores.append(opened(first_format))] * 4)
    assert len(stores) == 4
    for store in stores:
        assert store.profiles.n_pages()["default"] == 10
        store.close()


def test_a_failed_migration_changes_nothing(first_format, monkeypatch):
    monkeypatch.setitem(MIGRATIONS, FORMAT, (*MIGRATIONS[FORMAT], "ALTER TABLE absent RENAME TO other"))
    with pytest.raises(ConnectionError, match="no such table: absent"):
        opened(first_format)
    monkeypatch.undo()
    store = opened(first_format)
    assert store.profiles.n_pages()["shop"] == 2
    store.close()


def test_a_database_of_a_later_format_is_refused(tmp_path):
    opened(tmp_path / "bitrank.db").close()
    connection = sqlite3.connect(tmp_path / "bitrank.db")
    with connection:
        connection.execute("UPDATE facts SET value = 99 WHERE name = 'format'")
    connection.close()
    with pytest.raises(ValueError, match=f"must have format {FORMAT} or older, got one with 99"):
        opened(tmp_path / "bitrank.db")


@pytest.fixture(params=["sqlite", "postgresql"])
def two_stores(request, tmp_path):
    """Two stores over one database."""
    url = f"sqlite:///{tmp_path / 'bitrank.db'}"
    if request.param == "postgresql":
        postgres = request.getfixturevalue("postgres")
        url = postgres.url(postgres.new_base())
    stores = [Store(url, n_bits) for n_bits in (N_BITS, None)]
    yield stores
    for store in stores:
        store.close()


def test_what_two_learners_publish_and_others_read(two_stores):
    one, other = two_stores
    assert (one.n_bits, other.n_bits) == (N_BITS, N_BITS)
    for name in ("default", "shop"):
        one.profiles.add(name, Ranking(np.ones(N_BITS, np.float32)), "uniform")
    reader = Candidates(other.candidates)

    def publish(store, choice, position, ranking=None, *, is_new=True, aside=()):
        store.candidates.publish([Publication("shop", Progress(choice, position), is_new, ranking)], aside)
        reader.refresh()
        weights = reader.ranking("shop")
        return reader.position("shop"), None if weights is None else weights.weights.tolist()

    first, second = (Ranking(np.full(N_BITS, value, np.float32)) for value in (2, 3))
    assert other.candidates.progress("shop") is None
    assert publish(one, 1, 3) == (3, None)
    assert publish(one, 1, 5, first) == (5, first.weights.tolist())
    kept = reader.ranking("shop")
    assert publish(one, 1, 6, is_new=False) == (6, first.weights.tolist())
    assert reader.ranking("shop") is kept, "a ranking that stayed is not read again"
    assert publish(other, 1, 4, second) == (6, first.weights.tolist()), "a learner that is behind changes nothing"
    assert publish(other, 1, 6, second) == (6, second.weights.tolist())
    assert publish(one, 2, 6) == (6, None), "after a user's choice there is no candidate"
    assert publish(other, 1, 9, second) == (6, None)
    assert other.candidates.progress("shop") == Progress(2, 6)
    assert (reader.position("default"), reader.ranking("default")) == (0, None)

    page = PageSetAside("shop", 4, "ValueError('damaged')")
    for store in (one, other):  # both may find the same page
        publish(store, 2, 6, aside=[page])
    assert one.candidates.set_aside("shop") == {4}
    assert one.candidates.set_aside("default") == set()
    assert other.candidates.n_set_aside() == {"shop": 1}

    sample = np.arange(6, dtype=np.uint8).reshape(3, 2)
    one.candidates.keep_sample(sample)
    number, kept = other.candidates.sample(-1)
    np.testing.assert_array_equal(kept, sample)
    other.candidates.keep_sample(sample)
    assert one.candidates.sample(number) == (number, None), "the same sample is no change"
    other.candidates.keep_sample(sample[:2])
    assert one.candidates.sample(number)[1].shape == (2, 2)


def test_alarms_are_those_of_the_newest_finding(tmp_path):
    store = opened(tmp_path / "bitrank.db")
    for name in ("default", "shop", "quiet"):
        store.profiles.add(name, Ranking(np.ones(N_BITS, np.float32)), "uniform")
    for profile, n_pages, alarm in (("shop", 1, True), ("shop", 2, False), ("default", 1, False), ("default", 9, True)):
        store.gate.record(profile, n_pages, {"alarm": alarm}, 1, None)
    assert store.gate.alarms() == {"shop": False, "default": True}
    store.close()
