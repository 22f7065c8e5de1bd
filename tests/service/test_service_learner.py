"""The learner of `bitrank serve`: one process beside the workers, restarted when it dies; pages set aside stay so."""

import contextlib
import os
import signal
import sqlite3
import sys
import time

import numpy as np
import pytest
from serving import CODES, Command, one_off_client, save_codes, serving
from threads import wait_until

from bitrank.clicks import ClickLearner
from bitrank.service import learner, sources
from bitrank.service.learner import Learner

CANDIDATE = {"item": 3, "version": "candidate", "explore": 0, "k": 50}


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return save_codes(tmp_path_factory.mktemp("service"))


@contextlib.contextmanager
def running(index, folder, *arguments, wrapper=()):
    """Start a service, and yield it with a client that opens a connection per request."""
    with (
        Command("--index", index, "--data", folder, "--rate", 0, *arguments, wrapper=wrapper) as command,
        one_off_client(base_url=command.address, timeout=120) as client,
    ):
        yield command, client


def answer(client, items):
    """Answer one page per item, with clicks on items that share its first bits."""
    for item in items:
        page = client.post("/search", json={"item": item}).json()
        clicked = [result["id"] for result in page["results"] if CODES[result["id"], 0] >> 6 == CODES[item, 0] >> 6]
        assert client.post("/feedback", json={"page_token": page["page_token"], "clicked": clicked}).status_code == 201


def candidate(client):
    return client.get("/profiles/default/candidate").json()


def gauge(client, name):
    lines = client.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith(f"bitrank_{name}")).rpartition(" ")[2])


def add_unreadable_page(path):
    """Log a page whose codes are damaged, as the next one of the default profile."""
    with contextlib.closing(sqlite3.connect(path, timeout=120)) as connection, connection:
        connection.execute("UPDATE profiles SET n_pages = n_pages + 1 WHERE name = 'default'")
        connection.execute(
            "INSERT INTO pages (key, profile, number, time, query_code, shown, shown_codes, signed) "
            "SELECT 'damaged', profile, number + 1, time, query_code, shown, x'0102', signed "
            "FROM pages WHERE profile = 'default' ORDER BY number DESC LIMIT 1"
        )


@pytest.mark.slow
def test_one_learner_publishes_the_candidate_for_all_workers(index, tmp_path):
    with running(index, tmp_path, "--workers", 2) as (command, client):
        wait_until(lambda: len(command.workers()) == 2 and len(command.learners()) == 1)
        answer(client, range(8))
        wait_until(lambda: candidate(client)["n_learned"] == 8)
        workers, answers = command.workers(), []
        for other in workers:
            os.kill(other, signal.SIGSTOP)  # the one that is left has to answer now
            try:
                wait_until(lambda: candidate(client)["n_learned"] == 8)
                answers.append((candidate(client), client.post("/search", json=CANDIDATE).json()["results"]))
                assert gauge(client, 'pages_to_learn{profile="default"}') == 0
                assert client.get("/healthz").json() == {"status": "ok"}
            finally:
                os.kill(other, signal.SIGCONT)
        assert answers[0] == answers[1]
        assert answers[0][0]["kind"] == "QueryVectorRanker"
        assert np.ptp(answers[0][0]["weights"]) > 0
        learners = command.learners()
        assert len(learners) == 1
        status, errors = command.stop()
        assert (status, errors) == (0, "")
        assert not os.path.exists(f"/proc/{learners[0]}")


@pytest.mark.slow
def test_a_killed_learner_is_reported_and_comes_back_without_the_pages_set_aside(index, tmp_path):
    with running(index, tmp_path) as (command, client):
        answer(client, range(4))
        add_unreadable_page(tmp_path / "bitrank.db")
        answer(client, range(4, 6))
        wait_until(lambda: candidate(client)["n_learned"] == 7)
        before = candidate(client), client.post("/search", json=CANDIDATE).json()["results"]
        assert gauge(client, 'pages_set_aside{profile="default"}') == 1

        # It starts again also while another writer holds the database.
        (learner,) = command.learners()
        with contextlib.closing(sqlite3.connect(tmp_path / "bitrank.db", isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            os.kill(learner, signal.SIGKILL)
            wait_until(lambda: gauge(client, "learning_failures") >= 1)
            wait_until(lambda: command.learners() not in ([], [learner]))
            after = candidate(client), client.post("/search", json=CANDIDATE).json()["results"]
            assert after == before, "what was published stays"
            holder.execute("ROLLBACK")
        wait_until(lambda: client.get("/healthz").json() == {"status": "ok"})
        assert command.learners() not in ([], [learner])
        assert gauge(client, "learning_failing") == 0
        assert candidate(client) == before[0], "the same pages give the same candidate"
        answer(client, range(6, 9))
        wait_until(lambda: candidate(client)["n_learned"] == 10)
        learned = candidate(client)
        assert learned["weights"] != before[0]["weights"]
        assert gauge(client, 'pages_set_aside{profile="default"}') == 1
        status, errors = command.stop()
    assert status == 0
    assert errors.count("the learner died of SIGKILL, starting it again") == 1
    assert errors.count("page 5 of profile default cannot be learned from") == 1, "not tried again after the restart"
    with contextlib.closing(sqlite3.connect(tmp_path / "bitrank.db")) as connection, connection:
        rows = connection.execute("SELECT profile, number, reason FROM pages_set_aside").fetchall()
        assert [row[:2] for row in rows] == [("default", 5)]
        assert "ValueError" in rows[0][2]
        connection.execute("DELETE FROM candidates")

    # A learner that never died arrives at the same candidate.
    with serving(sources.from_folder(index), tmp_path) as client:
        wait_until(lambda: candidate(client)["n_learned"] == 10)
        assert candidate(client) == learned


@pytest.mark.slow
def test_learning_outlives_many_kills_of_the_learner_under_load(index, tmp_path):
    rng = np.random.default_rng(0)
    with running(index, tmp_path, "--workers", 2) as (command, client):
        killed, n_pages = set(), 0
        while len(killed) < 8:
            answer(client, rng.integers(len(CODES), size=5).tolist())
            n_pages += 5
            time.sleep(rng.uniform(0, 1))
            for learner in command.learners():
                os.kill(learner, signal.SIGKILL)
                killed.add(learner)
            assert client.post("/search", json={"item": 3}).status_code == 200
        wait_until(lambda: candidate(client)["n_learned"] == n_pages)
        wait_until(lambda: client.get("/healthz").json() == {"status": "ok"})
        assert np.ptp(candidate(client)["weights"]) > 0
        assert gauge(client, "learning_failures") == len(killed)
        status, errors = command.stop()
    assert status == 0
    assert errors.count("the learner died of SIGKILL, starting it again") == len(killed)


@pytest.mark.slow
def test_clients_get_answers_while_there_is_no_learner(index, tmp_path):
    """A learner that is stopped holds up neither searches nor answered pages."""
    with running(index, tmp_path) as (command, client):
        wait_until(lambda: len(command.learners()) == 1)
        (learner,) = command.learners()
        os.kill(learner, signal.SIGSTOP)
        answer(client, range(3))
        assert client.post("/search", json=CANDIDATE).status_code == 200
        assert gauge(client, 'pages_to_learn{profile="default"}') == 3
        os.kill(learner, signal.SIGCONT)
        wait_until(lambda: candidate(client)["n_learned"] == 3)


# Starts `bitrank serve` with a fault: page 3 ends, or holds up for ever, the process that learns from it.
FAULTY = """
import os, runpy, signal, sys
from bitrank.clicks import ClickLearner
from bitrank.service import process

fault, learn = sys.argv[1], ClickLearner.learn
if fault == "hung":
    process.LONGEST_PAGE_S = 3

def faulty(self, page, *, number=None, **options):
    if number == 3 and fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    while number == 3:
        pass
    learn(self, page, number=number, **options)

ClickLearner.learn = faulty
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "end"), [("killed", "SIGKILL"), ("hung", "SIGALRM")])
def test_a_page_that_ends_the_learner_again_and_again_is_set_aside(index, tmp_path, fault, end):
    wrapper = (sys.executable, "-c", FAULTY, fault)
    with running(index, tmp_path, wrapper=wrapper) as (command, client):
        answer(client, range(5))
        wait_until(lambda: gauge(client, 'pages_set_aside{profile="default"}') == 1)
        wait_until(lambda: candidate(client)["n_learned"] == 5)
        wait_until(lambda: client.get("/healthz").json() == {"status": "ok"})
        assert gauge(client, "learning_failures") == 3
        status, errors = command.stop()
    assert status == 0
    assert errors.count(f"the learner died of {end}, starting it again") == 3
    with contextlib.closing(sqlite3.connect(tmp_path / "bitrank.db")) as connection:
        rows = connection.execute("SELECT profile, number, reason FROM pages_set_aside").fetchall()
    assert rows == [("default", 3, "learning failed 3 times at page 3")]


@pytest.mark.parametrize(
    "together", [pytest.param(1, id="one by one", marks=pytest.mark.slow), pytest.param(6, id="all at once")]
)
def test_pages_with_which_learning_fails_again_and_again_are_set_aside(index, tmp_path, monkeypatch, together):
    """A page that can be taken, but with which no candidate can be learned."""
    update, learn, bad = ClickLearner.update, ClickLearner.learn, CODES[3].tobytes()
    monkeypatch.setattr(learner, "POLL_S", 0.01)

    def remembering(self, page, **options):
        self.__dict__.setdefault("seen", set()).add(page.query_code.tobytes())
        learn(self, page, **options)

    def failing(self):
        if bad in self.__dict__.get("seen", ()):
            raise FloatingPointError("cannot learn from this")
        update(self)

    monkeypatch.setattr(ClickLearner, "learn", remembering)
    monkeypatch.setattr(ClickLearner, "update", failing)
    with serving(sources.from_folder(index), tmp_path) as client:
        for first in range(0, 6, together):
            if together > 1:
                monkeypatch.setattr(learner, "PUBLISH_S", 0.0)
                monkeypatch.setattr(client.service.link, "wait", lambda _: time.sleep(0.01))
                with monkeypatch.context() as held:
                    held.setattr(Learner, "step", lambda _: False)
                    answer(client, range(first, first + together))
            else:
                answer(client, [first])
            wait_until(lambda first=first: candidate(client)["n_learned"] == first + together)
        wait_until(lambda: client.get("/healthz").json() == {"status": "ok"})
        wait_until(lambda: np.ptp(candidate(client)["weights"]) > 0)  # a candidate may lack the last pages for a moment
    with contextlib.closing(sqlite3.connect(tmp_path / "bitrank.db")) as connection:
        rows = connection.execute("SELECT number, reason FROM pages_set_aside ORDER BY number").fetchall()
    numbers = [number for number, _ in rows]
    assert numbers == ([4] if together == 1 else [3, 4, 5, 6])
    assert rows[0][1].startswith("learning failed 3 times at page 4" if together == 1 else "learning failed")
