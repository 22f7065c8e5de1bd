"""The service on PostgreSQL: several services over one database, killed workers, and a server that goes away."""

import contextlib
import itertools
import json
import os
import signal
import sys
import threading
import time

import httpx
import numpy as np
import psycopg
import pytest
from serving import CODES, Command, one_off_client, save_codes, serving
from sqlalchemy.exc import OperationalError
from tcp_proxy import Proxy
from threads import in_threads, wait_until

from bitrank.service import sources
from bitrank.service.learner import POLL_S
from bitrank.service.store import Store
from bitrank.service.store.items import Item
from bitrank.service.store.rankings import Ranking

N_BITS = 8 * CODES.shape[1]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return save_codes(tmp_path_factory.mktemp("service"))


@pytest.fixture
def base(postgres):
    """The URL of an empty database."""
    return postgres.url(postgres.new_base())


@pytest.fixture(scope="module")
def shared_base(postgres):
    return postgres.url(postgres.new_base())


@pytest.fixture(scope="module")
def two(index, shared_base):
    """Two services over one database, on threads of this process; each test has a profile of its own."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(serving(sources.from_folder(index), url=shared_base)) for _ in range(2)]


def started(index, base):
    """Start a service as a process of its own, which can be killed."""
    command = Command("--index", index, "--db", base, "--rate", 0)
    assert command.address is not None, command.stop()[1]
    return command


CLIENT = one_off_client(timeout=120)


def call(service, method, path, **body):
    return CLIENT.request(method, service.address + path, json=body or None)


def page_token(service, profile, item=0):
    return call(service, "POST", "/search", item=item, k=5, profile=profile).json()["page_token"]


def click(service, token):
    return call(service, "POST", "/feedback", page_token=token, clicked=[])


def logged(base, profile):
    """Read the keys and numbers of a profile's log, and the count of the profile."""
    with psycopg.connect(base) as connection:
        rows = connection.execute("SELECT key, number FROM bitrank.pages WHERE profile = %s", [profile]).fetchall()
        count = connection.execute("SELECT n_pages FROM bitrank.profiles WHERE name = %s", [profile]).fetchone()
    return sorted(key for key, _ in rows), sorted(number for _, number in rows), count[0]


@pytest.mark.slow
def test_a_version_activated_by_one_is_active_in_the_other(two):
    # At this interval of polls a version is active everywhere long before two seconds are over.
    assert POLL_S <= 1
    weights = np.linspace(0, 3, N_BITS).tolist()

    def page(service):
        return call(service, "POST", "/search", item=3, explore=0).json()

    for one, other in (two, two[::-1]):
        number = call(one, "POST", "/profiles/default/versions", weights=weights).json()["number"]
        assert call(one, "POST", f"/profiles/default/versions/{number}/activate").status_code == 200
        wait_until(lambda other=other, number=number: page(other)["version"] == number)
        assert page(one)["results"] == page(other)["results"]
    assert call(two[0], "POST", "/profiles/default/rollback").json()["version"] == number - 1
    wait_until(lambda: page(two[1])["version"] == number - 1)


def test_a_profile_made_by_one_is_there_for_the_other_at_once(two):
    assert call(two[0], "PUT", "/profiles/new").status_code == 201
    assert call(two[1], "POST", "/search", item=3, profile="new").status_code == 200


def test_items_added_and_removed_by_one_are_so_for_the_other(two):
    item = {"id": 1000, "code": (CODES[7] ^ np.uint8(1)).tobytes().hex(), "title": "ünï ☃", "payload": {"price": 3}}
    assert call(two[0], "POST", "/items", items=[item]).status_code == 201
    wait_until(lambda: call(two[1], "GET", "/items/1000").status_code == 200)
    assert call(two[1], "GET", "/items/1000").json()["title"] == "ünï ☃"
    result = call(two[1], "POST", "/search", code=item["code"], explore=0).json()["results"][0]
    assert (result["id"], result["payload"]) == (1000, {"price": 3})
    assert call(two[1], "DELETE", "/items/1000").status_code == 204
    wait_until(lambda: call(two[0], "GET", "/items/1000").status_code == 404)


def test_a_click_on_an_item_that_another_just_added_is_whole(two, shared_base):
    """The item is logged, though this service has not yet polled for what the other wrote."""
    for number in range(1000, 1005):
        item = {"id": number, "code": (CODES[7] ^ np.uint8(number - 999)).tobytes().hex()}
        assert call(two[0], "POST", "/items", items=[item]).status_code == 201
        page = call(two[0], "POST", "/search", code=item["code"], k=2, explore=0).json()
        assert page["results"][0]["id"] == number
        body = {"page_token": page["page_token"], "clicked": [number]}
        assert call(two[1], "POST", "/feedback", **body).status_code == 201
    with psycopg.connect(shared_base) as connection:
        for (shown,) in connection.execute("SELECT shown FROM bitrank.pages").fetchall():
            assert len(json.loads(shown)["ids"]) == 2


def test_one_page_at_both_at_once_counts_once(two, shared_base):
    call(two[0], "PUT", "/profiles/keys")
    answers = []
    for _ in range(10):
        token = page_token(two[0], "keys")
        in_threads(
            *(lambda service=service, token=token: answers.append(click(service, token)) for service in [*two, *two])
        )
    assert sorted(answer.status_code for answer in answers) == [200] * 30 + [201] * 10
    keys, numbers, n_pages = logged(shared_base, "keys")
    assert keys == sorted({answer.json()["key"] for answer in answers})
    assert numbers == list(range(1, 11))
    assert n_pages == 10


class Load:
    """Threads that send pages to all services, each page to any of them until one acknowledges it."""

    def __init__(self, services, profile, n_threads=4):
        self.services, self.profile, self.acknowledged, self.wrong = services, profile, [], []
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self._send, args=[number]) for number in range(n_threads)]
        for thread in self.threads:
            thread.start()

    def _send(self, thread):
        random = np.random.default_rng(thread)
        for _ in itertools.count():
            token, done = None, False
            while not done:
                if self.over.is_set():
                    return
                try:
                    service = self.services[random.integers(len(self.services))]
                    item = int(random.integers(100, 500))
                    token = token or page_token(service, self.profile, item)
                    answer = click(service, token)
                except httpx.HTTPError:
                    continue
                done = answer.status_code in (200, 201)
                if not done and answer.status_code != 503:
                    self.wrong.append(answer.text)
                    return
            self.acknowledged.append(answer.json()["key"])

    def goes_on(self, n=1):
        """Wait until n more pages are acknowledged."""
        wanted = len(self.acknowledged) + n
        wait_until(lambda: self.wrong or len(self.acknowledged) >= wanted)
        assert self.wrong == []

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


def assert_nothing_lost(load, base):
    keys, numbers, n_pages = logged(base, load.profile)
    assert load.wrong == []
    assert set(load.acknowledged) <= set(keys)
    # A page whose acknowledgement was lost may be in the log, but none twice, and the numbers have no gap.
    assert len(keys) == len(set(keys)) <= len(load.acknowledged) + len(load.threads)
    assert numbers == list(range(1, len(keys) + 1))
    assert n_pages == len(keys)


@pytest.mark.slow  # test_service_faults kills a worker twice by default, on SQLite
def test_killed_workers_lose_no_page_and_count_none_twice(index, base):
    with contextlib.ExitStack() as stack:
        services = [stack.enter_context(started(index, base)) for _ in range(2)]
        random = np.random.default_rng(0)
        load = Load(services, "default")
        try:
            for number in range(8):
                killed = services[number % 2]
                load.goes_on(5)
                time.sleep(random.uniform(0, 0.1))
                os.kill(killed.worker(), signal.SIGKILL)
                killed.wait_until_healthy()
            load.goes_on(20)
        finally:
            load.stop()
        assert_nothing_lost(load, base)
        for service in services:
            wait_until(
                lambda service=service: 'pages_to_learn{profile="default"} 0.0' in call(service, "GET", "/metrics").text
            )
    # All services learned from the same log, and only one decided at any page.
    with psycopg.connect(base) as connection:
        rows = connection.execute("SELECT number FROM bitrank.versions WHERE profile = 'default' ORDER BY 1").fetchall()
    assert [number for (number,) in rows] == list(range(1, len(rows) + 1))


@pytest.mark.parametrize(
    ("n_services", "ends"), [(1, ["kill"]), pytest.param(2, ["stop", "kill"], marks=pytest.mark.slow)]
)
def test_a_database_that_goes_away_gives_503_and_loses_nothing(index, postgres, base, n_services, ends):
    with contextlib.ExitStack() as stack:
        services = [stack.enter_context(serving(sources.from_folder(index), url=base)) for _ in range(n_services)]
        load = Load(services, "default")
        try:
            for end in ends:
                load.goes_on(10)
                token = page_token(services[0], "default")
                getattr(postgres, end)()
                try:
                    assert click(services[0], token).status_code == 503
                    assert call(services[0], "POST", "/search", item=3).status_code == 200  # from memory
                finally:
                    postgres.start()
                load.goes_on(10)
        finally:
            load.stop()
        assert_nothing_lost(load, base)


SLOW_COMMITS = """
CREATE FUNCTION bitrank.wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(300); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON bitrank.{table} DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION bitrank.wait();
"""
IN_COMMIT = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'"


@pytest.mark.parametrize("table", ["pages", "activations"])
def test_a_session_that_ends_within_the_commit_is_no_claim_that_nothing_was_written(index, base, table):
    with serving(sources.from_folder(index), url=base) as service:
        token = page_token(service, "default")
        number = call(service, "POST", "/profiles/default/versions", weights=[2.0] * N_BITS).json()["number"]
        call(service, "POST", f"/profiles/default/versions/{number}/activate")

        def write():
            if table == "pages":
                return click(service, token)
            return CLIENT.post(f"{service.address}/profiles/default/rollback", headers={"idempotency-key": "back"})

        with psycopg.connect(base, autocommit=True) as connection:
            connection.execute(SLOW_COMMITS.format(table=table))
            answers = []
            thread = threading.Thread(target=lambda: answers.append(write()))
            thread.start()
            wait_until(lambda: connection.execute(IN_COMMIT).fetchone())
            connection.execute(f"SELECT pg_terminate_backend(({IN_COMMIT}))")
            thread.join()
            connection.execute(f"DROP TRIGGER slow ON bitrank.{table}")
        assert answers[0].status_code == 503
        assert "unknown" in answers[0].json()["detail"]
        assert "nothing was changed" not in answers[0].json()["detail"]
        assert [write().status_code for _ in range(2)] in ([201, 200], [200, 200])
        assert call(service, "GET", "/profiles").json()[1]["n_pages"] == (table == "pages")
        assert call(service, "GET", "/profiles/default/versions").json()["active"] == (
            number if table == "pages" else 1
        )


WRITES = [
    ("POST", "/items", {"items": [{"id": 1000, "code": "00ff00ff"}, {"id": 3, "code": "00ff00ff"}]}, "items"),
    ("DELETE", "/items/4", None, "items"),
    ("PUT", "/profiles/tenant", {"weights": [2.0] * N_BITS}, "profiles"),
    ("POST", "/profiles/default/versions", {"weights": [2.0] * N_BITS}, "versions"),
    ("POST", "/profiles/default/versions/2/activate", None, "activations"),
    ("POST", "/profiles/default/versions/1/activate", None, "activations"),
    ("POST", "/profiles/default/rollback", None, "activations"),
]


def test_a_database_that_goes_away_after_the_commit_makes_no_answer_wrong(index, postgres, base):
    """What was committed is answered as such; sent again with its key, it is answered so again."""
    with Proxy(postgres.port) as proxy, serving(sources.from_folder(index), url=proxy.url(base)) as service:
        token = page_token(service, "default")
        for number, (method, path, body, table) in enumerate([*WRITES, ("POST", "/feedback", None, "pages")]):
            if table == "pages":
                body = {"page_token": token, "clicked": []}

            def send(method=method, path=path, body=body, number=number):
                headers = {"idempotency-key": f"write-{number}"}
                return CLIENT.request(method, service.address + path, json=body, headers=headers)

            proxy.cut_after_commit_of(f"INSERT INTO {table} ")
            first = send()
            assert proxy.was_cut.wait(120), path
            assert first.status_code in (200, 201, 204), (path, first.text)
            refused = send()
            assert refused.status_code == 503, path
            assert "nothing was changed by this request" in refused.json()["detail"]
            proxy.restore()
            again = send()
            if table == "pages":
                assert (first.status_code, again.status_code) == (201, 200)
            else:
                assert (again.status_code, again.text) == (first.status_code, first.text), path
        for item in (3, 1000):  # at the next poll
            wait_until(lambda item=item: call(service, "GET", f"/items/{item}").json().get("code") == "00ff00ff")
        wait_until(lambda: call(service, "GET", "/items/4").status_code == 404)
        assert call(service, "GET", "/collection").json()["n_items"] == len(CODES)
        shown = {profile["name"]: profile for profile in call(service, "GET", "/profiles").json()}
        assert (shown["tenant"]["n_versions"], shown["default"]["n_pages"]) == (1, 1)
        listed = call(service, "GET", "/profiles/default/versions").json()
        assert [entry["version"] for entry in listed["activations"]] == [1, 2, 1, 2]
        wait_until(lambda: call(service, "POST", "/search", item=3).json()["version"] == 2)


def test_many_make_the_tables_at_once(base):
    stores, failures = [], []

    def make():
        try:
            stores.append(Store(base, N_BITS))
        except Exception as error:
            failures.append(error)

    in_threads(*[make] * 8)
    for store in stores:
        store.close()
    assert failures == []


def test_a_database_of_the_first_format_is_migrated(base):
    """Undo the changes of the later formats, and open the result; tests/golden has a whole database of SQLite."""
    store = Store(base, N_BITS)
    store.profiles.add("shop", Ranking(np.ones(N_BITS, np.float32)), "uniform")
    store.close()
    with psycopg.connect(base, autocommit=True) as connection:
        later = ("blobs", "requests", "candidates", "pages_set_aside", "clients", "blocked_clients")
        connection.execute(f"DROP TABLE {', '.join(f'bitrank.{table}' for table in later)}")
        connection.execute("ALTER TABLE bitrank.pages DROP COLUMN signed, DROP COLUMN client")
        connection.execute("ALTER TABLE bitrank.versions DROP COLUMN ranker, DROP COLUMN clients")
        connection.execute("ALTER TABLE bitrank.pages RENAME TO clicks")
        for table in ("profiles", "versions", "activations", "quality"):
            connection.execute(f"ALTER TABLE bitrank.{table} RENAME COLUMN n_pages TO n_clicks")
        connection.execute("UPDATE bitrank.facts SET value = 1 WHERE name = 'format'")
    store = Store(base, N_BITS)
    assert store.profiles.n_pages() == {"shop": 0}
    assert len(store.secret) == 32
    store.close()


def test_tables_of_others_are_not_touched(base):
    with psycopg.connect(base, autocommit=True) as connection:
        connection.execute("CREATE TABLE public.items (mine int)")
        store = Store(base, N_BITS)
        store.items.add([Item(7, False, b"abcd", "seven", None, {})])
        store.close()
        assert connection.execute("SELECT count(*) FROM public.items").fetchone() == (0,)
        assert connection.execute("SELECT title FROM bitrank.items").fetchone() == ("seven",)


def test_a_role_needs_no_more_than_its_schema(base):
    guest = base.replace("bitrank@", "tenant@")
    with psycopg.connect(base, autocommit=True) as connection:
        connection.execute("CREATE ROLE tenant LOGIN")
        with pytest.raises(ConnectionError, match="permission denied"):
            Store(guest, N_BITS)
        connection.execute("CREATE SCHEMA bitrank AUTHORIZATION tenant")
        for _ in range(2):  # created, and opened again
            store = Store(guest, N_BITS)
            store.items.add([Item(7, False, b"abcd", "seven", None, {})])
            store.close()


def test_another_number_of_bits_is_refused(base):
    Store(base, N_BITS).close()
    with pytest.raises(ValueError, match="n_bits 64, got one with 32"):
        Store(base, 64)


UNREACHABLE = "postgresql://me:secret@127.0.0.1:1/base"


def test_an_unreachable_server_is_named_without_the_password():
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1") as error:
        Store(UNREACHABLE, N_BITS)
    assert "secret" not in str(error.value)


@pytest.mark.slow
def test_the_command_names_an_unreachable_server_without_the_password(index):
    command = Command("--index", index, "--db", UNREACHABLE)
    status, errors = command.stop()
    assert status != 0
    assert "127.0.0.1" in errors
    assert "secret" not in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("url", ["nonsense", "mysql://localhost/base", "postgresql"])
def test_other_databases_are_refused(url):
    with pytest.raises(ValueError, match="the database must be"):
        Store(url, N_BITS)


def test_without_the_extra_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'bitrank\[service,postgres\]'"):
        Store("postgresql://localhost/base", N_BITS)


def test_a_row_that_another_holds_is_waited_for_and_then_given_up(base):
    store = Store(f"{base}?options=-clock_timeout%3D50ms", N_BITS)
    with psycopg.connect(base) as other:
        other.execute("SELECT * FROM bitrank.changes FOR UPDATE")
        with pytest.raises(OperationalError, match="lock timeout"):
            store.items.add([Item(7, False, b"abcd", "seven", None, {})])
    store.items.add([Item(7, False, b"abcd", "seven", None, {})])
    assert [item.id for item in store.items.changed(0)[1]] == [7]
    store.close()
