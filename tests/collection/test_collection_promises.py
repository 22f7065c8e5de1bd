"""`Collection.make_cells` and `search(recall=)`: promises are measured, kept, stored and reported."""

import dataclasses
import subprocess
import sys
import threading

import numpy as np
import pytest

from bitrank import AsymmetricRanker, BitPlanes, Collection, SignBits
from bitrank.collection import promises

N, D = 6000, 48


def vectors(n, seed=0, n_kinds=60):
    """Vectors of many kinds; rows of other seeds are of the same kinds."""
    kinds = np.random.default_rng(7).normal(size=(n_kinds, D))
    rng = np.random.default_rng(seed)
    return (kinds[rng.integers(0, n_kinds, n)] + rng.normal(scale=0.4, size=(n, D))).astype(np.float32)


def recall_of(found, true):
    return np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found.tolist(), true.tolist(), strict=True)])


@pytest.fixture(scope="module")
def hasher():
    return BitPlanes(4.0, random_state=0).fit(vectors(N))


def make(hasher=None):
    return Collection.from_vectors(vectors(N), hasher=hasher or SignBits(), random_state=0)


@pytest.fixture(scope="module")
def made(hasher):
    """A collection in cells, the same one without, and queries that it was not measured on."""
    out, exact = make(hasher), make(hasher)
    out.make_cells(queries=vectors(400, 1))
    return out, exact, vectors(300, 2)


@pytest.mark.parametrize("k", [1, 10, 100])
def test_what_was_measured_on_real_queries_is_kept(made, k):
    collection, exact, queries = made
    true = exact.search(queries, k)
    assert (collection.search(queries, k).ids == true.ids).all()
    reads = []
    for recall in (0.8, 0.95, 0.99):
        found = collection.search(queries, k, recall=recall, explain=True)
        assert recall_of(found.ids, true.ids) >= recall - 0.03
        assert found.explanation.promise == "queries"
        reads.append(found.explanation.read.mean())
    assert reads[0] <= reads[1] <= reads[2]
    assert reads[1] < 0.7


def test_distances_are_those_of_an_exact_search(made):
    collection, exact, queries = made
    ids, distances = collection.search(queries, 10, recall=0.9)
    true = dict(zip(*(each[0].tolist() for each in exact.search(queries[:1], N)), strict=True))
    assert distances[0].tolist() == pytest.approx([true[item] for item in ids[0].tolist()], rel=1e-4)


def test_sign_bits_and_codes(made):
    collection, exact, queries = make(), make(), made[2]
    collection.make_cells(queries=vectors(400, 1))
    for asked, promise in ((queries, "queries"), (exact.hasher.transform(queries), None)):
        found, true = collection.search(asked, 10, recall=0.95, explain=True), exact.search(asked, 10)
        assert recall_of(found.ids, true.ids) >= 0.92
        assert found.explanation.promise == promise


@pytest.mark.parametrize("of_codes", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_items_stand_for_queries_that_nobody_gave(made, hasher, of_codes):
    collection = Collection.from_codes(hasher.transform(vectors(N)), hasher=hasher) if of_codes else make(hasher)
    report = collection.make_cells()
    assert (report.curve.on, report.curve.n_items) == ("items", N)
    found = collection.search(made[2], 10, recall=0.95, explain=True)
    assert recall_of(found.ids, made[1].search(made[2], 10).ids) >= 0.94
    assert found.explanation.promise == "items"


def test_filters_and_weights_that_nobody_measured(made):
    collection, exact, queries = made
    wanted = list(range(0, N, 7))
    found = collection.search(queries, 10, recall=0.95, filter=wanted)
    assert recall_of(found.ids, exact.search(queries, 10, filter=wanted).ids) >= 0.92
    few = collection.search(queries, 10, recall=0.95, filter=wanted[:4])
    assert (few.ids == exact.search(queries, 10, filter=wanted[:4]).ids).all()
    asked = exact.queries_for(queries)
    weights = asked.weights * np.random.default_rng(0).lognormal(0, 0.7, asked.weights.shape)
    asked = (
        dataclasses.replace(asked, weights=weights.astype(np.float32))
        if dataclasses.is_dataclass(asked)
        else (type(asked)(asked.codes, weights.astype(np.float32), None))
    )
    found = collection.search(asked, 10, recall=0.95, explain=True)
    assert found.explanation.promise is None
    assert recall_of(found.ids, exact.search(asked, 10).ids) >= 0.92


def test_a_ranker_that_is_put_in_use_is_measured(made):
    collection, exact = make(), make()
    collection.make_cells(queries=vectors(400, 1))
    plain = collection.report().curve
    ranker = AsymmetricRanker().fit(exact.codes())
    for each in (collection, exact):
        each.use(ranker)
    curve = collection.report().curve
    assert (curve.ranking, curve.on) == ("version 1, AsymmetricRanker", "queries")
    found = collection.search(made[2], 10, recall=0.95, explain=True)
    assert found.explanation.promise == "queries"
    assert recall_of(found.ids, exact.search(made[2], 10).ids) >= 0.92
    collection.forget()
    assert collection.report().curve == plain


def test_memory_is_a_full_scan_beside_cells(hasher):
    collection, exact = make(hasher), make(hasher)
    collection.make_cells(queries=vectors(400, 1))
    queries = vectors(20, 3)
    for each in (collection, exact):
        each.remember(queries, [[5000 + row] for row in range(20)], pinned=True)
    found = collection.search(queries, 10, recall=0.95)
    assert found.ids[:, 0].tolist() == exact.search(queries, 10).ids[:, 0].tolist() == list(range(5000, 5020))


def test_promises_are_measured_again_once_a_tenth_changed(hasher):
    collection, exact = make(hasher), make(hasher)
    collection.make_cells(queries=vectors(400, 1))
    counted = []
    for start in range(0, 1200, 150):
        for each in (collection, exact):
            each.add(vectors(150, 10 + start))
            each.remove(range(start, start + 50))
        counted.append((collection.report().curve.n_items, collection.report().curve.n_changed))
    assert [n_changed for _, n_changed in counted] == [200, 400, 600, 50, 250, 450, 650, 50]
    assert len({n_items for n_items, _ in counted}) == 3
    queries = vectors(300, 2)
    assert recall_of(collection.search(queries, 10, recall=0.95).ids, exact.search(queries, 10).ids) >= 0.93


@pytest.mark.parametrize("mmap", [False, True])
def test_files_hold_cells_and_what_was_measured(made, tmp_path, mmap):
    collection, _, queries = made
    collection.save(tmp_path / "a")
    loaded = Collection.load(tmp_path / "a", mmap=mmap)
    assert loaded.report().curve == collection.report().curve
    ours, theirs = (each.search(queries, 10, recall=0.9, explain=True) for each in (collection, loaded))
    assert (ours.ids == theirs.ids).all()
    assert (ours.explanation.read == theirs.explanation.read).all()
    loaded.add(vectors(300, 5))
    loaded.save(tmp_path / "a")  # in the journal
    again = Collection.load(tmp_path / "a")
    assert again.report().curve == loaded.report().curve
    assert again.report().curve.n_changed == 300
    again.add(vectors(400, 6))  # measured again, on the queries of the folder
    assert (again.report().curve.on, again.report().curve.n_items) == ("queries", N + 700)


def test_auto_makes_cells_at_the_first_promise(monkeypatch):
    monkeypatch.setattr(promises, "LEAST_ITEMS", N)
    few = Collection.from_vectors(vectors(N - 1), cells="auto", hasher=SignBits())
    assert few.search(vectors(3, 1), recall=0.9, explain=True).explanation.read.tolist() == [1, 1, 1]
    assert not few.index.has_cells
    many = Collection.from_codes(make().codes(), cells="auto")
    many.search(many.codes([1]))
    assert not many.index.has_cells
    threads = [threading.Thread(target=many.search, args=(many.codes([1]),), kwargs={"recall": 0.9}) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = many.search(many.codes([1, 2]), recall=0.9, explain=True).explanation
    assert many.index.has_cells
    assert (found.read < 1).all()
    assert found.promise == "items"


def test_the_report_is_a_curve(made):
    curve = made[0].report().curve
    assert curve.recall == (0.8, 0.9, 0.95, 0.98, 0.99, 0.996, 0.999, 1.0)
    assert list(curve.read) == sorted(curve.read)
    assert len(curve.milliseconds) == 8
    assert min(curve.milliseconds) > 0
    assert "recall promised to the plain ranking, measured on 400 queries over 6000 items" in str(made[0].report())
    assert made[0].report().to_json()["curve"]["on"] == "queries"


def test_mistakes(made):
    with pytest.raises(ValueError, match=r"recall must be None for a collection without cells \(see make_cells\), got"):
        made[1].search(made[2], recall=0.9)
    with pytest.raises(ValueError, match=r"recall must be None, or a number from 0.8 to 0.999, got 1"):
        made[0].search(made[2], recall=1)
    with pytest.raises(ValueError, match=r"recall must be None for a similarity, got 0\.9"):
        made[0].search(made[0].codes([1]), recall=0.9, similarity="tanimoto")
    with pytest.raises(ValueError, match='cells must be None or "auto", got 3'):
        Collection.from_vectors(vectors(10), cells=3, hasher=SignBits())
    with pytest.raises(ValueError, match="the index must hold at least 64 rows to make cells of, got 10"):
        Collection.from_vectors(vectors(10), hasher=SignBits()).make_cells()
    with pytest.raises(ValueError, match="queries must be vectors of 48 numbers"):
        made[0].make_cells(queries=np.zeros((3, 5)))


KILLS = """
import os, random, signal, sys, time
from pathlib import Path
import numpy as np
from bitrank import Collection

folder = Path(sys.argv[1])
codes = np.random.default_rng(0).integers(0, 256, (400, 8), dtype=np.uint8)
Collection.from_codes(codes).save(folder)
true = Collection.load(folder).search(codes[:9]).ids
Collection.load(folder).make_cells()
start = time.perf_counter()
Collection.load(folder).make_cells()
takes = time.perf_counter() - start
random.seed(0)
for turn in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        while True:
            collection = Collection.load(folder)
            collection.make_cells()
            collection.save(folder)
    time.sleep(random.uniform(0, 2 * takes))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    loaded = Collection.load(folder)
    assert (loaded.search(codes[:9]).ids == true).all(), turn
    if loaded.takes_recall:
        assert (loaded.search(codes[:9], 1, recall=0.999).ids[:, 0] == np.arange(9)).all(), turn
collection = Collection.load(folder)
collection.make_cells()
collection.save(folder)
assert Collection.load(folder).takes_recall
print("whole")
"""


@pytest.mark.parametrize("n_kills", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_killed_while_cells_are_made_the_folder_is_whole(tmp_path, n_kills):
    environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PATH": ""}
    command = [sys.executable, "-W", "ignore", "-c", KILLS, str(tmp_path / "a"), str(n_kills)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout == "whole\n", done.stderr


def test_searches_with_recall_while_cells_are_made_and_items_join():
    collection = Collection.from_codes(make().codes())
    collection.make_cells()
    asked, failed, done = collection.codes(range(50)), [], threading.Event()

    def search():
        try:
            while not done.is_set():
                assert (collection.search(asked, 5, recall=0.9).ids >= 0).all()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=search)
    thread.start()
    collection.add(collection.codes(range(1000)), ids=range(7000, 8000))
    collection.make_cells()
    done.set()
    thread.join()
    assert not failed
    assert len(collection) == N + 1000
