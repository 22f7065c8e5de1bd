"""Faults: workers killed at any moment, a full disk, a locked database, a lost parent."""

import contextlib
import itertools
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import threading
import time

import httpx
import numpy as np
import pytest
from serving import Command, serving
from threads import in_threads, wait_until

from bitrank.index import Index
from bitrank.service import sources

CODES = np.random.default_rng(0).integers(0, 256, (500, 4), dtype=np.uint8)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    path = tmp_path_factory.mktemp("codes") / "codes.index"
    Index(CODES).save(path)
    return path


class Writer(threading.Thread):
    """Answer pages and send items until they are acknowledged, and remember them."""

    def __init__(self, address, name, stopping):
        super().__init__(name=name)
        self.address, self.stopping = address, stopping
        self.keys, self.items, self.statuses, self.failures = [], {}, set(), 0

    def run(self):
        first = 10_000 * (1 + int(self.name))
        with httpx.Client(base_url=self.address, timeout=120) as client:
            for number in itertools.count():
                if self.stopping.is_set():
                    return
                key, item, code = f"{self.name}-{number}", first + number, f"{first + number:08x}"
                page = self.send(client, "/search", {"item": 1, "k": 2})
                body = {"page_token": page["page_token"], "clicked": [page["results"][0]["id"]]}
                self.keys.append(self.send(client, "/feedback", body)["key"])
                if number % 3 == 0:
                    self.send(client, "/items", {"items": [{"id": item, "code": code, "title": key}]})
                    self.items[item] = code
                time.sleep(0.01)

    def send(self, client, path, body):
        while True:
            try:
                response = client.post(path, json=body)
            except httpx.HTTPError:
                self.failures += 1
                time.sleep(0.005)
                continue
            self.statuses.add(response.status_code)
            if response.status_code in (200, 201):
                return response.json()


@contextlib.contextmanager
def writing(address):
    """Keep three writers busy; on leaving, let each finish what it sends."""
    stopping = threading.Event()
    writers = [Writer(address, str(number), stopping) for number in range(3)]
    for writer in writers:
        writer.start()
    try:
        yield writers
    finally:
        stopping.set()
        for writer in writers:
            writer.join()


def logged(folder):
    """Read from the file the keys of all pages, the items, the count of the profile, and the numbers of the pages."""
    with sqlite3.connect(folder / "bitrank.db") as connection:
        keys = [key for (key,) in connection.execute("SELECT key FROM pages")]
        items = dict(connection.execute("SELECT id, hex(code) FROM items WHERE NOT removed"))
        ((count,),) = connection.execute("SELECT n_pages FROM profiles WHERE name = 'default'")
        numbers = [n for (n,) in connection.execute("SELECT number FROM pages ORDER BY number")]
        ((sound,),) = connection.execute("PRAGMA integrity_check")
    connection.close()
    return keys, items, count, numbers, sound


@pytest.mark.parametrize("n_kills", [1, pytest.param(30, marks=pytest.mark.slow)])
def test_kills_lose_nothing_acknowledged_and_double_nothing(index, tmp_path, n_kills):
    rng = np.random.default_rng(0)
    with Command("--index", index, "--data", tmp_path, "--rate", "0") as command:
        killed = set()
        with writing(command.address) as writers:
            wait_until(lambda: all(writer.keys for writer in writers))
            while len(killed) < n_kills:
                command.wait_until_healthy()
                time.sleep(rng.uniform(0, 0.3))
                worker = command.worker()
                if worker is not None and worker not in killed:
                    os.kill(worker, signal.SIGKILL)
                    killed.add(worker)
            command.wait_until_healthy()
        status, errors = command.stop()
    assert status == 0
    assert errors.count("the worker died of SIGKILL, starting it again") == n_kills
    keys, items, count, numbers, sound = logged(tmp_path)
    assert sound == "ok"
    acknowledged = [key for writer in writers for key in writer.keys]
    assert len(acknowledged) > n_kills
    assert sum(writer.failures for writer in writers) > 0
    assert set.union(*(writer.statuses for writer in writers)) <= {200, 201}
    assert sorted(keys) == sorted(acknowledged)
    assert numbers == list(range(1, count + 1))
    assert count == len(keys)
    sent = {item: code for writer in writers for item, code in writer.items.items()}
    assert {item: code.lower() for item, code in items.items()} == sent

    # A process that knows nothing but the file serves all of it again.
    with serving(sources.from_folder(index), tmp_path) as client:
        assert client.get("/collection").json()["n_items"] == len(CODES) + len(sent)
        assert client.get("/profiles").json()[1]["n_pages"] == count
        for item, code in list(sent.items())[:5]:
            assert client.get(f"/items/{item}").json()["code"] == code


@pytest.mark.slow
def test_several_workers_share_a_socket_and_a_database_and_one_killed_comes_back(index, tmp_path):
    with Command("--index", index, "--data", tmp_path, "--rate", "0", "--workers", "2") as command:
        wait_until(lambda: len(command.workers()) == 2)
        first = command.workers()
        with writing(command.address) as writers:
            wait_until(lambda: all(writer.keys for writer in writers))
            os.kill(first[0], signal.SIGKILL)
            wait_until(lambda: len(command.workers()) == 2 and first[0] not in command.workers())
            command.wait_until_healthy()
        status, errors = command.stop()
    assert status == 0
    assert errors.count("the worker died of SIGKILL, starting it again") == 1
    keys, _, count, numbers, sound = logged(tmp_path)
    assert sound == "ok"
    assert sorted(keys) == sorted(key for writer in writers for key in writer.keys)
    assert numbers == list(range(1, count + 1))


def test_a_lost_parent_takes_its_worker_and_its_learner_along(index, tmp_path):
    command = Command("--index", index, "--data", tmp_path)
    wait_until(lambda: command.workers() and command.learners())
    (worker,), (learner,) = command.workers(), command.learners()
    command.process.kill()
    command.process.communicate()
    for child in (worker, learner):
        wait_until(lambda child=child: not os.path.exists(f"/proc/{child}"))


@pytest.mark.slow  # a restart under load is tested above, and a locked database below
def test_a_worker_killed_while_the_database_is_locked_comes_back_when_the_lock_is_gone(index, tmp_path):
    with Command("--index", index, "--data", tmp_path) as command:
        holder = sqlite3.connect(tmp_path / "bitrank.db", isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        workers = {command.worker()}
        os.kill(command.worker(), signal.SIGKILL)

        def three_workers():  # the one killed, one that found it locked, the next
            workers.update({command.worker()} - {None})
            return len(workers) == 3

        wait_until(three_workers)
        holder.execute("ROLLBACK")
        holder.close()
        command.wait_until_healthy()
        status, errors = command.stop()
    assert status == 0
    assert "database is locked" in errors
    assert "ended with status 1, starting it again" in errors


def page_token(client, k=2):
    return client.post("/search", json={"item": 1, "k": k}).json()["page_token"]


def click(client, token):
    return client.post("/feedback", json={"page_token": token, "clicked": []})


@pytest.mark.slow
def test_a_locked_database_gives_503_and_loses_nothing(tmp_path):
    with serving(sources.Source("codes", Index(CODES), sources.Items()), tmp_path) as client:
        before = click(client, page_token(client))
        assert before.status_code == 201
        tokens = [page_token(client) for _ in range(8)]
        holder = sqlite3.connect(tmp_path / "bitrank.db", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        refused = []
        in_threads(*(lambda token=token: refused.append(click(client, token)) for token in tokens))
        assert len(refused) == 8
        for response in refused:
            assert response.status_code == 503
            assert "locked" in response.json()["detail"]
            assert response.headers["retry-after"] == "1"
        assert client.post("/items", json={"items": [{"id": 9000, "code": "00000000"}]}).status_code == 503
        assert client.post("/search", json={"item": 1}).status_code == 200
        assert client.get("/items/9000").status_code == 404
        holder.execute("ROLLBACK")
        holder.close()
        after = click(client, tokens[3])
        assert after.status_code == 201
    keys, items, count, _, sound = logged(tmp_path)
    expected = sorted(response.json()["key"] for response in (before, after))
    assert (sorted(keys), items, count, sound) == (expected, {}, 2, "ok")


def fill(client, most=5000):
    """Send pages until one is refused; returns the acknowledged tokens and the refusal."""
    done = []
    for _ in range(most):
        token = page_token(client, k=20)
        response = click(client, token)
        if response.status_code != 201:
            return done, response
        done.append(token)
    raise AssertionError("the disk never filled up")


@pytest.mark.slow
def test_a_full_disk_gives_503_and_loses_nothing(index, tmp_path):
    """Use a real file system of two megabytes where this user may mount one, else a limit on the size of files."""
    small = tmp_path / "small"
    small.mkdir()
    script = f'mount -t tmpfs -o size=2m none {small} && head -c 1000000 /dev/zero > {small}/ballast && exec "$@"'
    wrapper = [shutil.which("unshare") or "unshare", "-rm", "sh", "-c", script, "sh"]
    mounts = shutil.which("unshare") and not subprocess.run([*wrapper, "true"], stderr=subprocess.DEVNULL).returncode
    how = {"wrapper": wrapper} if mounts else {"preexec_fn": limit_files}
    with (
        Command("--index", index, "--data", small, "--rate", "0", **how) as command,
        httpx.Client(base_url=command.address, timeout=120) as client,
    ):
        done, refused = fill(client)
        assert refused.status_code == 503, refused.text
        assert "full" in refused.json()["detail"] or "I/O" in refused.json()["detail"]
        assert len(done) > 10
        assert client.post("/search", json={"item": 1}).status_code == 200
        assert client.get("/profiles").json()[1]["n_pages"] == len(done)
        for token in (done[0], done[-1]):
            assert click(client, token).status_code == 200, "an acknowledged page must be kept"
        if mounts:
            # The mount belongs to the service and is reached through its process. With room again, pages are logged.
            os.remove(f"/proc/{command.worker()}/root{small}/ballast")
            assert click(client, page_token(client)).status_code == 201
            assert client.get("/profiles").json()[1]["n_pages"] == len(done) + 1


def limit_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
