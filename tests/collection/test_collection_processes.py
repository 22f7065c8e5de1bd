"""A collection across processes and threads: pickles, forks, interrupts, and searches while something changes."""

import copy
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
from collection_processes import answer, learn_for_ever, search_for_ever, start

from bitrank import Collection, SignBits

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 16)).astype(np.float32)
NAMES = [f"item {row}" for row in range(300)]
LABELS = (X[:, 0] > 0) * 2 + (X[:, 1] > 0)


@pytest.fixture(scope="module")
def learned():
    collection = Collection.from_vectors(X, ids=NAMES, random_state=0, hasher=SignBits())
    collection.learn(labels=LABELS, ranker="WhRank")
    return collection


EIGHT_LINES = """
from bitrank import Collection, SignBits
from bitrank.datasets import digits
images, y = digits()
shop = Collection.from_vectors(images[:800].reshape(800, -1), random_state=0, hasher=SignBits())
shop.learn(labels=y[:800], ranker="WhRank")
shop.save("shop.bitrank")
ids, distances = Collection.load("shop.bitrank").search(images[800:1000].reshape(200, -1))
print((y[ids] == y[800:1000, None]).mean())
"""
# What extras install; importing any of it would fail where bitrank was installed without extras.
EXTRAS = {"pandas", "matplotlib", "pyarrow", "PIL", "faiss", "usearch", "dask", "fastapi", "sqlalchemy", "msgspec"}


def as_lists(found):
    return found.ids.tolist(), found.distances.tolist()


def test_a_pool_of_spawned_processes_searches(learned):
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = pool.submit(learned.search, X[:4], 5).result()
    assert as_lists(found) == as_lists(learned.search(X[:4], 5))
    assert found.scale is not None


def test_eight_lines_need_no_extra(tmp_path):
    assert len(EIGHT_LINES.strip().splitlines()) == 8
    code = f"import sys\nsys.modules |= dict.fromkeys({EXTRAS!r})\n{EIGHT_LINES}"
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert 0.7 < float(done.stdout) < 1


def test_a_pickle_answers_the_same_without_the_vectors(learned):
    data = pickle.dumps(learned)
    other = pickle.loads(data)
    assert as_lists(other.search(X[:4], 5)) == as_lists(learned.search(X[:4], 5))
    assert other.versions == learned.versions
    other.add(X[:1], ids=["new"])
    assert "new" not in learned
    assert "decoded from the codes" in str(other.learn(labels=[*LABELS, None], ranker="WhRank"))


def test_a_fork_answers_and_changes(learned):
    collection = copy.copy(learned)
    with collection._writing:  # a lock that another thread holds must not be held in the child for ever
        process = multiprocessing.get_context("fork").Process(target=changes, args=(collection,))
        process.start()
    process.join()
    assert process.exitcode == 0


def changes(collection):
    collection.add(X[:1], ids=["new"])
    assert collection.search(X[:1], 5).ids.shape == (1, 5)


def test_another_process_answers_the_same(learned):
    process, pipe = start(answer, learned, X[:4])
    assert pipe.recv() == as_lists(learned.search(X[:4], 5))
    process.join()


def test_an_interrupt_ends_a_search_over_four_million_codes():
    process, pipe = start(search_for_ever, 4_000_000)
    assert pipe.recv() == "searching"
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGINT)
    process.join()
    assert process.exitcode == 1


@pytest.mark.parametrize("ranker", ["QueryVectorRanker", "RankingSVM"])
def test_an_interrupt_ends_a_fit_and_leaves_the_collection_as_it_was(ranker):
    process, pipe = start(learn_for_ever, ranker)
    assert pipe.recv() == "learning"
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGINT)
    assert pipe.recv() is True
    process.join()
    assert process.exitcode == 1


def test_searches_see_one_moment_while_items_and_rankings_change(tmp_path):
    """Items come and go in groups of ten; every search sees whole groups, and distances of one ranking."""
    collection = Collection.from_vectors(X, ids=NAMES, random_state=0, hasher=SignBits())
    collection.learn(labels=LABELS, ranker="WhRank")
    query = X[:1]
    group = np.repeat(query, 10, axis=0)
    learned = collection.search(query, 1).distances[0]
    plain = copy.copy(collection)
    plain.forget()
    allowed = {*learned.tolist(), *plain.search(query, 1).distances[0].tolist()}
    stop, faults = threading.Event(), []

    def reads():
        try:
            while not stop.wait(0.002):  # the writer is to get on, too
                found = collection.search(query, 400)
                seen = [name for name in found.ids[0] if name is not None and name.startswith("more")]
                assert len(seen) % 10 == 0, seen
                assert found.distances[0, 0] in allowed
                assert len(collection.codes(collection.ids[:5])) == 5
        except BaseException as error:  # of a thread: shown below
            faults.append(error)

    readers = [threading.Thread(target=reads) for _ in range(3)]
    for reader in readers:
        reader.start()
    for turn in range(15):
        collection.add(group, ids=[f"more {turn} {row}" for row in range(10)])
        collection.save(tmp_path / "a", replace=True)
        if turn % 2:
            collection.remove([f"more {turn - 1} {row}" for row in range(10)])
        collection.forget() if turn % 3 else collection.roll_back(1 if turn < 3 else None)
    stop.set()
    for reader in readers:
        reader.join()
    assert not faults
    assert len(Collection.load(tmp_path / "a")) in range(300, 460)


def test_writers_do_not_lose_each_others_items():
    collection = Collection.from_vectors(X, ids=NAMES, hasher=SignBits())

    def writes(name):
        for row in range(20):
            collection.add(X[row : row + 1], ids=[f"{name} {row}"])

    writers = [threading.Thread(target=writes, args=(name,)) for name in "abcd"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(collection) == 380
    assert all(f"{name} {row}" in collection for name in "abcd" for row in range(20))
