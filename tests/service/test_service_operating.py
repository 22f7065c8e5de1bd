"""What an operator needs: filters, a log with limits, health, deleted profiles, a bounded stop, backups, one writer."""

import contextlib
import datetime
import json
import os
import re
import resource
import select
import signal
import socket
import sqlite3
import sys
import time
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import CODES, Command, save_codes, serving
from threads import wait_until

from bitrank import connect
from bitrank.cli import main
from bitrank.clicks import LoggedPage, Page
from bitrank.core.codes import hamming
from bitrank.index import Index
from bitrank.service import security, service, sources
from bitrank.service.engine_index import EngineIndex
from bitrank.service.filtering import Filter
from bitrank.service.link import Link
from bitrank.service.searching import PageRequest
from bitrank.service.settings import Retention, Settings
from bitrank.service.sources import ParquetItems, _to_json
from bitrank.service.store import Store, backup
from bitrank.service.store.migrations import FORMAT
from bitrank.service.store.rankings import Ranking

N = len(CODES)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return save_codes(tmp_path_factory.mktemp("service"))


def payloads(n=N):
    """Payloads of items: a number that may be missing, a text, a truth value, a day, a list."""
    day = datetime.date(2026, 1, 1)
    return [
        {
            "price": None if row % 7 == 0 else row / 4,
            "kind": "abc"[row % 3],
            "sold": row % 2 == 0,
            "day": day + datetime.timedelta(days=row),
            "tags": [f"t{row % 5}", f"t{row % 4}"],
            "n": row,
        }
        for row in range(n)
    ]


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    path = tmp_path_factory.mktemp("items") / "items.parquet"
    rows = payloads()
    order = np.random.default_rng(0).permutation(N).tolist()  # the file need not be sorted
    pa.parquet.write_table(pa.Table.from_pylist([{"id": row, **rows[row]} for row in order]), path)
    return path


@pytest.fixture(scope="module")
def shop(index, items, tmp_path_factory):
    with serving(sources.from_folder(index, items), tmp_path_factory.mktemp("shop")) as client:
        yield client


# Filters and offsets

SCALARS = st.one_of(
    st.booleans(),
    st.integers(-5, 130),
    st.floats(-5, 130, allow_nan=False).map(lambda x: round(x * 4) / 4),
    st.sampled_from(["a", "b", "t1", "t3", "2026-01-05", "2026-03-01"]),
)
ORDERED = SCALARS.filter(lambda value: not isinstance(value, bool))
CONDITIONS = st.fixed_dictionaries(
    {"column": st.sampled_from(["price", "kind", "sold", "day", "tags", "n"])},
    optional={"equals": SCALARS, "in": st.lists(SCALARS, min_size=1, max_size=3), "at_least": ORDERED, "below": ORDERED,
              "above": ORDERED, "at_most": ORDERED},
).filter(lambda condition: len(condition) > 1)  # fmt: skip
FILTERS = st.recursive(
    CONDITIONS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"and": parts}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"or": parts}),
        inner.map(lambda part: {"not": part}),
    ),
    max_leaves=4,
)


def expected(wanted, payload):
    """Tell whether a payload matches, by a second reading of what a filter means."""
    if "not" in wanted:
        return not expected(wanted["not"], payload)
    for name, join in (("and", all), ("or", any)):
        if name in wanted:
            return join(expected(part, payload) for part in wanted[name])

    def kind(value):
        return {bool: "bool", int: "number", float: "number", str: "text"}.get(type(value))

    def holds(value):
        checks = {
            "equals": lambda x: kind(x) == kind(value) and x == value,
            "in": lambda xs: any(kind(x) == kind(value) and x == value for x in xs),
            "at_least": lambda x: kind(x) == kind(value) and value >= x,
            "above": lambda x: kind(x) == kind(value) and value > x,
            "at_most": lambda x: kind(x) == kind(value) and value <= x,
            "below": lambda x: kind(x) == kind(value) and value < x,
        }
        return all(checks[name](limit) for name, limit in wanted.items() if name != "column")

    value = payload[wanted["column"]]
    return any(map(holds, value)) if isinstance(value, list) else holds(value)


@settings(deadline=None)
@given(wanted=FILTERS)
def test_a_filter_says_the_same_of_a_table_and_of_one_payload(items, wanted):
    plain = [_to_json(payload) for payload in payloads()]
    parsed, reference = Filter.model_validate(wanted), [expected(wanted, payload) for payload in plain]
    assert [parsed.matches(payload) for payload in plain] == reference
    assert sorted(ParquetItems(items, {}).matching(parsed).tolist()) == np.flatnonzero(reference).tolist()


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({}, "a filter must be a column with conditions"),
        ({"column": "kind"}, "a filter must be a column with conditions"),
        ({"equals": 3}, "a filter must be a column with conditions"),
        ({"column": "kind", "equals": "a", "not": {"column": "n", "equals": 1}}, "a filter must be a column"),
        ({"column": "kind", "equals": {"a": 1}}, "filter"),
        ({"column": "kind", "like": "a"}, "like"),
        ({"column": "colour", "equals": "red"}, "must name columns of the items (day, kind, n, price, sold, tags)"),
        ({"or": [{"column": "n", "equals": number} for number in range(100)]}, "at most 100 parts"),
    ],
)
def test_filters_that_make_no_sense_are_refused(shop, wanted, reason):
    refused = shop.post("/search", json={"item": 1, "filter": wanted})
    assert refused.status_code == 422
    assert reason in refused.json()["detail"]


def ranked(item, allowed):
    """Rank items by Hamming distance from an item, ties by id."""
    to_all = hamming(CODES[[item]], CODES)[0]
    return sorted((int(to_all[row]), row) for row in allowed if row != item)


@pytest.mark.parametrize("offset", [0, 7, 90, 600])
@pytest.mark.parametrize("wanted", [None, {"column": "kind", "in": ["a", "c"]}, {"column": "n", "below": 30}])
def test_a_search_with_a_filter_and_an_offset_ranks_what_matches(shop, wanted, offset):
    allowed = [row for row, payload in enumerate(payloads()) if wanted is None or expected(wanted, payload)]
    reference = ranked(5, allowed)
    asked = {"item": 5, "k": 20, "offset": offset, "explore": 0} | ({} if wanted is None else {"filter": wanted})
    results = shop.post("/search", json=asked).json()["results"]
    assert [(one["distance"], one["id"]) for one in results] == reference[offset : offset + 20]
    assert [one["rank"] for one in results] == list(range(offset + 1, offset + 1 + len(results)))
    for one in results:
        assert one["tie"] == 1 + sum(distance < one["distance"] for distance, _ in reference)


def test_searches_with_different_filters_run_together(shop):
    plans, references = [], []
    collection = shop.service.collection
    for row, wanted in enumerate([None, {"column": "n", "below": 40}, None, {"column": "n", "at_least": 400}] * 3):
        filtering = None if wanted is None else Filter.model_validate(wanted)
        request = PageRequest(10, explore=0, filter=filtering)
        plans.append(shop.service.searcher.plan(collection.query_of_item(row), request))
        allowed = [n for n, payload in enumerate(payloads()) if wanted is None or expected(wanted, payload)]
        references.append([item for _, item in ranked(row, allowed)[:10]])
    answers = [json.loads(body) for body in shop.service.searcher.run(plans)]
    assert [[one["id"] for one in answer["results"]] for answer in answers] == references


def test_a_filter_reads_what_the_api_added(index, items, tmp_path):
    wanted = {"column": "kind", "equals": "new"}
    with serving(sources.from_folder(index, items), tmp_path) as client:

        def found():
            answer = client.post("/search", json={"code": "00000000", "k": 50, "filter": wanted}).json()
            return sorted(one["id"] for one in answer["results"])

        assert found() == []
        added = [{"id": number, "code": "0000000f", "payload": {"kind": "new"}} for number in (3, 9000)]
        assert client.post("/items", json={"items": added}).status_code == 201
        assert found() == [3, 9000]
        old = client.post("/search", json={"code": "0000000f", "k": 500, "filter": {"column": "kind", "equals": "a"}})
        assert 3 not in {one["id"] for one in old.json()["results"]}, "its payload was replaced"
        assert client.delete("/items/3").status_code == 204
        assert found() == [9000]
        assert "kind" in client.get("/collection").json()["columns"]


@pytest.mark.parametrize(
    "wanted", [{"column": "n", "below": 5}, {"column": "n", "at_least": 3}, {"column": "kind", "equals": "a"}]
)
def test_a_filter_on_codes_in_an_engine(items, tmp_path, wanted):
    engine = connect("duckdb://")
    engine.create(n_bits=32)
    engine.add(CODES, ids=np.arange(N))
    with serving(sources.from_engine(EngineIndex(engine), "codes", items), tmp_path) as client:
        asked = {"item": 5, "k": 20, "explore": 0, "filter": wanted}
        results = client.post("/search", json=asked).json()["results"]
    allowed = [row for row, payload in enumerate(payloads()) if expected(wanted, payload)]
    assert [(one["distance"], one["id"]) for one in results] == ranked(5, allowed)[:20]


def test_what_a_filter_or_an_offset_put_on_a_page_teaches_nothing(shop):
    """Else a client would choose the item that it promotes."""
    for part in ({"filter": {"column": "n", "equals": 77}}, {"offset": 300}, {}):
        page = shop.post("/search", json={"item": 5, "explore": 4, **part}).json()
        assert bool(part) == (not any(one["explored"] for one in page["results"]))
        body = {"page_token": page["page_token"], "clicked": [page["results"][0]["id"]]}
        assert shop.post("/feedback", json=body).status_code == 201
        assert shop.service.store.pages.after("default", 0, 100)[-1].signed == (not part)
        more = shop.post("/search", json={"item": 5, "continues": page["page_token"]}).json()
        assert shop.service.signer.read(more["page_token"]).teaches == (not part)


# The log


@pytest.fixture
def store(tmp_path):
    opened = Store(f"sqlite:///{tmp_path / 'bitrank.db'}", 32)
    opened.profiles.add("default", Ranking(np.ones(32, np.float32)), "uniform")
    yield opened
    opened.close()


def log(store, client, key, n_shown=5):
    page = Page(CODES[0], CODES[:n_shown], np.arange(n_shown) == 1, np.arange(n_shown) == 2)
    logged = LoggedPage(key, {"item": 0}, [*range(n_shown)], [False] * n_shown, [1], "default", 1, client)
    store.pages.add(logged, page, signed=True)
    return page


def kept(store):
    return [row.number for row in store.pages.after("default", 0, 10_000)]


@pytest.mark.parametrize(
    ("keep", "numbers"),
    [
        (Retention(0, 0, 0, 0), range(1, 41)),
        (Retention(pages=20, days=0, bytes=0, client_pages=0), [*range(1, 11), *range(31, 41)]),
        (Retention(pages=0, days=0, bytes=0, client_pages=3), [*range(1, 11), 38, 39, 40]),
        (Retention(pages=5, days=0, bytes=0, client_pages=0), [7, 8, 9, 10, 40]),  # a page each would be eleven
    ],
)
def test_the_log_is_kept_within_its_limits_and_floods_lose_their_own(store, keep, numbers):
    for number in range(10):
        log(store, f"user {number}", f"user {number}")
    for number in range(30):
        log(store, "flood", f"flood {number}")
    expected_numbers = list(numbers)
    assert store.pages.prune("default", keep) == 40 - len(expected_numbers)
    assert kept(store) == expected_numbers
    assert store.pages.newest("default", 0, 100) == expected_numbers
    new, n_pages = store.pages.add(
        LoggedPage("flood 0", {"item": 0}, [1], [False], [1], "default", 1, "flood"),
        Page(CODES[0], CODES[:1], np.array([True])),
        signed=True,
    )
    assert (new, n_pages) == (False, 40), "a page that was forgotten counts once all the same"
    assert store.pages.prune("default", keep) == 0


def test_old_pages_are_forgotten_and_their_keys_with_their_tokens(store):
    for number in range(6):
        log(store, "a", f"{number}")
    with store.database.write() as connection:
        connection.exec_driver_sql(f"UPDATE pages SET time = {time.time() - 100 * 3600} WHERE number <= 2")
        connection.exec_driver_sql(f"UPDATE pages SET time = {time.time() - 12 * 3600} WHERE number = 3")
    assert store.pages.prune("default", Retention(0, 0.25, 0, 0)) == 3
    assert kept(store) == [4, 5, 6]
    with store.database.read() as connection:
        assert connection.exec_driver_sql("SELECT number FROM pages ORDER BY number").scalars().all() == [3, 4, 5, 6]


def test_bytes_of_the_log_are_limited(store):
    for number in range(50):
        log(store, f"user {number}", f"{number}", n_shown=100)
    assert store.pages.prune("default", Retention(0, 0, 30_000, 0)) > 10
    with store.database.read() as connection:
        size = "SELECT sum(length(shown) + length(shown_codes) + 200) FROM pages WHERE shown != ''"
        assert 15_000 < connection.exec_driver_sql(size).scalar_one() <= 30_000


def test_a_page_of_a_thousand_results_takes_little_room(shop):
    page = shop.post("/search", json={"item": 5, "k": 499}).json()
    ids = [one["id"] for one in page["results"]]
    body = {"page_token": page["page_token"], "clicked": [ids[3], ids[400]]}
    assert shop.post("/feedback", json=body).status_code == 201
    row = shop.service.store.pages.after("default", 0, 1000)[-1]
    shown = json.loads(row.shown)
    assert (len(shown["ids"]), shown["clicked"]) == (100, [3])
    assert len(row.shown) + len(row.shown_codes) < 2000


def test_the_learner_prunes_and_goes_on_after_pages_that_were_forgotten(index, tmp_path, monkeypatch):
    from bitrank.service import learner

    monkeypatch.setattr(learner, "PRUNE_S", 0.1)
    with serving(sources.from_folder(index), tmp_path, retention=Retention(4, 0, 0, 0)) as client:
        for item in range(8):
            page = client.post("/search", json={"item": item}).json()
            body = {"page_token": page["page_token"], "clicked": [page["results"][0]["id"]]}
            assert client.post("/feedback", json=body).status_code == 201
        wait_until(lambda: len(kept(client.service.store)) == 4)
        wait_until(lambda: client.get("/profiles/default/candidate").json()["n_learned"] == 8)
    with serving(sources.from_folder(index), tmp_path, retention=Retention(4, 0, 0, 0)) as client:
        client.service.store.pages.prune("default", Retention(0, 1e-9, 0, 0))
        client.post("/profiles/default/versions/1/activate")  # starts a new learner
        page = client.post("/search", json={"item": 1}).json()
        client.post("/feedback", json={"page_token": page["page_token"], "clicked": []})
        wait_until(lambda: client.get("/profiles/default/candidate").json()["n_learned"] == 9)


def test_bitrank_feedback_prune(tmp_path, capsys):
    store = Store(f"sqlite:///{tmp_path / 'bitrank.db'}", 32)
    store.profiles.add("default", Ranking(np.ones(32, np.float32)), "uniform")
    for number in range(10):
        log(store, "a", f"{number}")
    store.close()
    assert main(["feedback", "prune", "--data", str(tmp_path), "--pages", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"forgotten from default": 7}
    with pytest.raises(SystemExit, match="give at least one limit"):
        main(["feedback", "prune", "--data", str(tmp_path)])
    with pytest.raises(SystemExit, match="must be the folder of a database"):
        main(["feedback", "prune", "--data", str(tmp_path / "absent"), "--pages", "3"])


@pytest.mark.parametrize("name", Retention._fields)
def test_limits_of_the_log_are_not_negative(name):
    with pytest.raises(ValueError, match=f"keep_{name} must be at least 0, got -1"):
        Settings(retention=Retention(**{name: -1}))


# Profiles


def test_a_deleted_profile_is_gone_and_another_of_its_name_knows_nothing_of_it(index, tmp_path):
    with serving(sources.from_folder(index), tmp_path) as client:

        def teach(items):
            for item in items:
                page = client.post("/search", json={"item": item, "profile": "shop"}).json()
                body = {"page_token": page["page_token"], "clicked": [page["results"][0]["id"]]}
                n_pages = client.post("/feedback", json=body).json()["n_pages"]
            wait_until(lambda: client.get("/profiles/shop/candidate").json()["n_learned"] == n_pages)

        assert client.put("/profiles/shop").status_code == 201
        teach(range(6))
        learned = client.get("/profiles/shop/candidate").json()
        assert np.ptp(learned["weights"]) > 0
        key = {"Idempotency-Key": "once"}
        assert [client.delete("/profiles/shop", headers=key).status_code for _ in range(2)] == [204, 204]
        assert client.delete("/profiles/shop").status_code == 404
        assert client.post("/search", json={"item": 1, "profile": "shop"}).status_code == 404
        with client.service.store.database.read() as connection:
            for table in ("pages", "versions", "activations", "candidates", "clients", "quality", "pages_set_aside"):
                of_shop = f"SELECT count(*) FROM {table} WHERE profile = 'shop'"
                assert connection.exec_driver_sql(of_shop).scalar_one() == 0, table
        assert client.put("/profiles/shop").status_code == 201
        assert client.get("/profiles/shop/candidate").json()["n_learned"] == 0
        assert np.ptp(client.get("/profiles/shop/candidate").json()["weights"]) == 0
        teach(range(20, 22))
        assert client.get("/profiles/shop/candidate").json()["weights"] != learned["weights"]
        for name in ("default", "hamming"):
            assert client.delete(f"/profiles/{name}").status_code == 403


# Health


def test_health_costs_nothing_of_the_rate_and_names_no_place(index, tmp_path, monkeypatch):
    with serving(sources.from_folder(index), tmp_path, rate=2.0, token="0123456789abcdef0") as client:
        for path in ("/livez", "/readyz", "/healthz"):
            assert [client.get(path).status_code for _ in range(20)] == [200] * 20
        monkeypatch.setattr(service, "PROBE_S", -1.0)
        with monkeypatch.context() as full:
            full.setattr(service, "LEAST_FREE", 2**63)
            answer = client.get("/readyz")
            assert (answer.status_code, answer.json()) == (503, {"detail": "the disk of the database is full"})
            assert client.get("/livez").status_code == 200
        with contextlib.closing(sqlite3.connect(tmp_path / "bitrank.db", isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            answer = client.get("/readyz")
            assert answer.json() == {"detail": "the database takes no writes now"}
            assert answer.status_code == 503
        assert client.get("/readyz").json() == {"status": "ok"}
        monkeypatch.setattr(service, "MAX_LAG", -1)
        assert client.get("/readyz").json() == {"status": "ok", "learning": "behind"}


def test_metrics_are_summed_over_workers(index, tmp_path):
    with Command("--index", index, "--data", tmp_path, "--rate", 0, "--workers", 2) as command:
        wait_until(lambda: len(command.workers()) == 2)
        for worker in command.workers():  # each answers alone while the other is held up
            os.kill(worker, signal.SIGSTOP)
            try:
                with httpx.Client(base_url=command.address, timeout=120) as client:
                    for _ in range(5):
                        assert client.post("/search", json={"item": 1}).status_code == 200
                    text = client.get("/metrics").text
            finally:
                os.kill(worker, signal.SIGCONT)
        assert 'bitrank_requests_total{route="/search",status="200"} 10.0' in text.splitlines()
        for name in ("clients_left_out", "busiest_client_share", "database_bytes", "disk_free_bytes"):
            assert f"\nbitrank_{name}" in text
        status, errors = command.stop()
    assert (status, errors) == (0, "")


# Starting and stopping

STUCK = """
import runpy, sys
from bitrank.clicks import ClickLearner

def stuck(self, page, **options):
    while True:
        pass

ClickLearner.learn = stuck
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("end", ["stop", "kill the parent"])
def test_a_stop_waits_for_no_learner(index, tmp_path, end):
    """Before, a learner went on for as long as it had pages, alone where the parent was killed."""
    with Command("--index", index, "--data", tmp_path, wrapper=(sys.executable, "-c", STUCK)) as command:
        with httpx.Client(base_url=command.address, timeout=120) as client:
            wait_until(lambda: command.learners())
            page = client.post("/search", json={"item": 1}).json()
            client.post("/feedback", json={"page_token": page["page_token"], "clicked": [page["results"][0]["id"]]})
        (learner,) = command.learners()
        wait_until(lambda: " R " in Path(f"/proc/{learner}/stat").read_text())
        if end == "stop":
            status, errors = command.stop()
            assert (status, errors) == (0, "")
        else:
            command.process.kill()
            command.process.communicate()
        wait_until(lambda: not os.path.exists(f"/proc/{learner}"))


def test_a_worker_that_does_not_end_is_killed(index, tmp_path):
    with Command("--index", index, "--data", tmp_path) as command:
        os.kill(command.worker(), signal.SIGSTOP)
        status, _ = command.stop()
    assert status == 0


def old_database(tmp_path):
    """Make a database of format 7, as the last version of the service wrote it."""
    path = tmp_path / "bitrank.db"
    Store(f"sqlite:///{path}", 32, Index(CODES)).close()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE facts SET value = 7 WHERE name = 'format'")
    return path


def stored_format(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT value FROM facts WHERE name = 'format'").fetchone()[0]


@pytest.mark.parametrize("wrong", ["n_bits", "collection", "ranker", "access log", None])
def test_a_start_that_is_refused_migrates_nothing_and_one_that_is_not_keeps_a_copy(tmp_path, wrong):
    path = old_database(tmp_path)
    codes = {"n_bits": CODES[:, :3], "collection": ~CODES}.get(wrong, CODES)
    options = {"access_log": str(tmp_path / "absent" / "log")} if wrong == "access log" else {}
    ranker = None
    if wrong == "ranker":
        from bitrank.ranking import UniformRanker

        ranker = UniformRanker().fit(np.zeros((2, 8), np.uint8))
    source = sources.Source("codes", Index(codes), sources.Items())
    if wrong is None:
        with serving(source, tmp_path):
            assert stored_format(path) == FORMAT
        (copy,) = tmp_path.glob("bitrank_format_7_*.db")
        assert stored_format(copy) == 7
        assert copy.stat().st_mode & 0o077 == 0
        return
    with pytest.raises((ValueError, OSError)):
        service.Service(source, f"sqlite:///{path}", Settings(**options), ranker, Link())
    assert stored_format(path) == 7
    assert not list(tmp_path.glob("bitrank_format_*"))


def test_a_second_service_over_one_folder_is_refused(index, tmp_path):
    with Command("--index", index, "--data", tmp_path):
        with Command("--index", index, "--data", tmp_path) as second:
            status, errors = second.stop(signal.SIGCONT)
        assert status == 1
        assert "must be of one service at a time" in errors
    with Command("--index", index, "--data", tmp_path) as third:
        assert third.is_healthy()


def test_a_damaged_database_is_refused(index, tmp_path):
    path = tmp_path / "bitrank.db"
    store = Store(f"sqlite:///{path}", 32, Index(CODES))
    store.profiles.add("default", Ranking(np.ones(32, np.float32)), "uniform")
    for number in range(200):
        log(store, "a", f"{number}")
    store.close()
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 4096] = os.urandom(4096)
    path.write_bytes(data)
    with Command("--index", index, "--data", tmp_path) as command:
        status, errors = command.stop(signal.SIGCONT)
    assert status == 1
    assert "the database must be sound, got damage" in errors


def test_a_worker_that_died_on_a_full_disk_starts_and_searches(index, tmp_path):
    """A limit on the size of files, as a full disk: nothing more is written."""

    def limit_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))

    with Command("--index", index, "--data", tmp_path, "--rate", 0, preexec_fn=limit_files) as command:
        with httpx.Client(base_url=command.address, timeout=120) as client:
            for _ in range(5000):
                page = client.post("/search", json={"item": 1, "k": 100}).json()
                if client.post("/feedback", json={"page_token": page["page_token"], "clicked": []}).status_code != 201:
                    break
            else:
                raise AssertionError("the disk never filled up")
        first = command.worker()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: command.worker() not in (None, first))

        def searches():
            with contextlib.suppress(httpx.HTTPError), httpx.Client(base_url=command.address, timeout=120) as client:
                return client.post("/search", json={"item": 1}).status_code == 200

        wait_until(searches)
        with httpx.Client(base_url=command.address, timeout=120) as client:
            assert client.get("/livez").status_code == 200


# Limits and logs


def test_a_header_that_comes_in_one_read_is_limited_too(shop):
    host, port = shop.address.removeprefix("http://").split(":")
    for size, status in ((20_000, b"200"), (60_000, b"431"), (200_000, b"431")):
        with socket.create_connection((host, int(port)), timeout=120) as connection:
            head = f"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Long: {'x' * size}\r\n\r\n"
            with contextlib.suppress(ConnectionError):
                connection.sendall(head.encode())
            with contextlib.suppress(ConnectionError):
                assert connection.recv(100).split(b" ")[1] == status


def test_bodies_in_flight_are_limited_per_client_and_in_all(shop, monkeypatch):
    monkeypatch.setattr(security, "MAX_OF_CLIENT", 2**19)
    host, port = shop.address.removeprefix("http://").split(":")
    head = (
        b"POST /items HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4000000\r\n\r\n"
    )
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(socket.create_connection((host, int(port)), timeout=120)) for _ in range(4)]
        for connection in connections:
            with contextlib.suppress(ConnectionError):
                connection.sendall(head + b"x" * 300_000)
        refused = []  # whichever came last; an answer may be lost where what was sent is not read to its end
        poll, of_number = select.poll(), {connection.fileno(): connection for connection in connections}
        for number in of_number:
            poll.register(number, select.POLLIN)
        wait_until(lambda: refused.extend(of_number[number] for number, _ in poll.poll(0)) or refused)
        for connection in refused:
            with contextlib.suppress(ConnectionError):
                assert connection.recv(100)[:13] in (b"HTTP/1.1 503 ", b"")
        small = shop.post("/search", json={"item": 1})
        assert small.status_code == 200, "small bodies pass"
    wait_until(lambda: shop.post("/items", content=b"x" * 300_000).status_code == 422)


def test_requests_have_ids_that_answers_and_logs_name(index, tmp_path):
    path = tmp_path / "access.jsonl"
    with serving(sources.from_folder(index), tmp_path, access_log=str(path)) as client:
        mine = client.get("/livez", headers={"x-request-id": "mine-1"}).headers["x-request-id"]
        others = [client.get("/livez", headers=head).headers["x-request-id"] for head in ({}, {"x-request-id": "a b"})]
    assert mine == "mine-1"
    assert len({mine, *others}) == 3
    assert all(re.fullmatch("[0-9a-f]{8}-[0-9a-f]+", other) for other in others)
    assert [json.loads(line)["request"] for line in path.read_text().splitlines()] == [mine, *others]


def test_errors_are_logged_with_the_time_and_the_request(index, tmp_path):
    faulty = "import runpy, sys\nfrom bitrank.service.searching import Searcher\n" \
        "def fail(self, plans):\n    raise ZeroDivisionError\nSearcher.run = fail\n" \
        "sys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')"  # fmt: skip
    with Command("--index", index, "--data", tmp_path, wrapper=(sys.executable, "-c", faulty)) as command:
        with httpx.Client(base_url=command.address, timeout=120) as client:
            assert client.post("/search", json={"item": 1}, headers={"x-request-id": "q7"}).status_code == 500
        _, errors = command.stop()
    assert re.search(r"^\d{4}-\d\d-\d\dT[\d:]+[+-]\d{4} bitrank serve: request q7: POST /search failed$", errors, re.M)


def test_a_token_without_visible_characters_is_refused():
    with pytest.raises(ValueError, match="printable ASCII characters without spaces"):
        Settings(token=" " * 20)


def test_every_method_of_a_path_is_allowed_by_name(shop):
    named = {
        "/items": "GET, POST",
        "/items/3": "DELETE, GET",
        "/profiles/a": "DELETE, PUT",
        "/search": "POST",
        "/": "GET",
    }
    for path, methods in named.items():
        refused = shop.request("PATCH", path)
        assert (refused.status_code, refused.headers["allow"]) == (405, methods), path


def test_backups_hold_pages_in_their_short_form(index, tmp_path):
    with serving(sources.from_folder(index), tmp_path) as client:
        page = client.post("/search", json={"item": 1}).json()
        client.post("/feedback", json={"page_token": page["page_token"], "clicked": []})
        backup.back_up(f"sqlite:///{tmp_path / 'bitrank.db'}", tmp_path / "copy.db")
    backup.restore(tmp_path / "copy.db", f"sqlite:///{tmp_path / 'new.db'}")
    store = Store(f"sqlite:///{tmp_path / 'new.db'}")
    assert len(kept(store)) == 1
    store.close()


def test_a_whole_number_with_a_point_is_one(shop):
    page = shop.post("/search", json={"item": 5.0, "k": 3.0, "chosen": [7.0], "explore": 0}).json()
    assert page["query"]["item"] == 5
    assert len(page["results"]) == 3
    clicked = [float(page["results"][0]["id"])]
    assert shop.post("/feedback", json={"page_token": page["page_token"], "clicked": clicked}).status_code == 201
    for wrong in ({"item": 5.5}, {"item": 5, "k": "3"}, {"item": True}, {"item": 1e30}):
        assert shop.post("/search", json=wrong).status_code == 422
