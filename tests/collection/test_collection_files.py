"""A collection on disk: what is read is what was saved, and no cut, damage, kill or second saver loses any of it."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from collection_processes import last, save_for_ever, start, take_turns
from hypothesis import given
from hypothesis import strategies as st

from bitrank import Collection, SignBits
from bitrank.collection import CollectionFormatError

GOLDEN = Path(__file__).parents[1] / "golden" / "collection-v1"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 16)).astype(np.float32)
Y = (X[:, 0] > 0) * 2 + (X[:, 1] > 0)
NAMES = [f"item {row}" for row in range(120)]


def answers(collection):
    """Everything that a reader can see."""
    found = collection.search(X[:10], 7)
    return (
        found.ids.tolist(),
        found.distances.tolist(),
        collection.ids.tolist(),
        collection.codes().tolist(),
        collection.versions,
        str(collection.report()),
    )


@pytest.fixture
def learned():
    """A collection of named items that learned from labels, and one that did not."""
    collection = Collection.from_vectors(X, ids=NAMES, random_state=0, hasher=SignBits())
    collection.learn(labels=Y, ranker="WhRank")
    return collection


@pytest.mark.parametrize("ids", [None, NAMES, np.arange(120)[::-1] * 5])
@pytest.mark.parametrize("mmap", [False, True])
def test_what_is_read_is_what_was_saved(tmp_path, ids, mmap):
    collection = Collection.from_vectors(X, ids=ids, random_state=0, hasher=SignBits())
    collection.learn(labels=Y, ranker="WhRank")
    collection.save(tmp_path / "a")
    other = Collection.load(tmp_path / "a", mmap=mmap)
    assert answers(other) == answers(collection)
    assert other.metric == collection.metric
    other.forget()
    other.save(tmp_path / "a")
    assert Collection.load(tmp_path / "a").versions[-1].kind == "plain"
    assert Collection.load(tmp_path / "a").roll_back(1).ranker == "WhRank"


def test_changes_are_appended_and_replayed(tmp_path, learned):
    learned.save(tmp_path / "a")
    index_files = sorted((tmp_path / "a").glob("index-*/*"))
    learned.add(X[:3] + 1, ids=["x", "y", "z"])
    learned.remove(["item 5", "y"])
    learned.add(X[:1], ids=["item 0"], replace=True)
    learned.save(tmp_path / "a")
    learned.forget()
    learned.add(X[:2], ids=["y", "item 5"])
    learned.save(tmp_path / "a")
    assert sorted((tmp_path / "a").glob("index-*/*")) == index_files
    assert answers(Collection.load(tmp_path / "a")) == answers(learned)


def test_many_changes_are_written_anew(tmp_path):
    collection = Collection.from_vectors(X, hasher=SignBits())
    collection.save(tmp_path / "a")
    (old,) = (tmp_path / "a").glob("index-*")
    more = RNG.normal(size=(130_000, 16)).astype(np.float32)
    collection.add(more)
    collection.save(tmp_path / "a")
    assert not old.exists()
    assert len(Collection.load(tmp_path / "a")) == 130_120


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    """A saved folder, the journal after each of two more saves, and what was in each."""
    folder = tmp_path_factory.mktemp("journal") / "a"
    collection = Collection.from_vectors(X[:20], ids=NAMES[:20], hasher=SignBits())
    collection.save(folder)
    (file,) = folder.glob("journal-*")
    stages = [(0, len(collection))]
    for row in (20, 22):
        collection.add(X[row : row + 2], ids=NAMES[row : row + 2])
        collection.save(folder)
        stages.append((file.stat().st_size, len(collection)))
    return folder, file.name, file.read_bytes(), stages


@pytest.mark.parametrize("step", [37, pytest.param(1, marks=pytest.mark.slow)])
def test_a_journal_cut_anywhere_holds_what_was_whole(journal, step):
    folder, name, content, stages = journal
    record, end = stages[1][0], len(content)
    for size in sorted({0, 5, *range(record, record + 40), *range(record, end, step), *range(end - 40, end + 1)}):
        (folder / name).write_bytes(content[:size])
        whole = max(n for stop, n in stages if stop <= size)
        assert len(Collection.load(folder)) == whole
    (folder / name).write_bytes(content[: stages[1][0]] + bytes(100))  # zeros, as a file system leaves them
    assert len(Collection.load(folder)) == stages[1][1]
    (folder / name).write_bytes(content)


@given(place=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_a_damaged_journal_is_an_error_or_the_last_record_missing(journal, place, flip):
    folder, name, content, stages = journal
    damaged = bytearray(content)
    damaged[place % len(content)] ^= flip
    (folder / name).write_bytes(bytes(damaged))
    try:
        found = len(Collection.load(folder))
    except CollectionFormatError as error:
        message = str(error)
    else:  # the length of a record was damaged, and says that it was cut off
        message = name
        assert found == (stages[0][1] if place % len(content) < stages[1][0] else stages[1][1])
    finally:
        (folder / name).write_bytes(content)
    assert name in message


def test_a_cut_record_is_overwritten_by_the_next_save(journal, tmp_path):
    folder, name, content, stages = journal
    shutil.copytree(folder, tmp_path / "a")
    (tmp_path / "a" / name).write_bytes(content[:-5])
    collection = Collection.load(tmp_path / "a")
    assert len(collection) == stages[1][1]
    collection.add(X[:1], ids=["new"])
    collection.save(tmp_path / "a")
    assert "new" in Collection.load(tmp_path / "a")


@pytest.mark.parametrize(
    "pattern", ["collection.json", "journal-*", "index-*/meta.json", "hasher-*", "ids-*", "ranker-*"]
)
@pytest.mark.parametrize("damage", ["missing", "cut", "flipped"])
def test_damage_is_an_error_that_names_the_file(tmp_path, learned, pattern, damage):
    learned.save(tmp_path / "a")
    if pattern.startswith("journal") and damage != "missing":
        pytest.skip("an empty journal has nothing to damage")
    (file,) = (tmp_path / "a").glob(pattern)
    if damage == "missing":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:-7])
    else:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=file.name.split("-")[0]):
        Collection.load(tmp_path / "a").search(X[:1])


def test_folders_of_others_are_refused(tmp_path, learned):
    with pytest.raises(CollectionFormatError, match="no collection was saved there"):
        Collection.load(tmp_path / "nowhere")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("milk")
    with pytest.raises(ValueError, match=r"empty folder, got .* with todo.txt"):
        learned.save(tmp_path / "notes")
    (tmp_path / "file").write_text("milk")
    with pytest.raises(ValueError, match="must be a folder"):
        learned.save(tmp_path / "file")
    with pytest.raises(CollectionFormatError, match="got the file"):
        Collection.load(tmp_path / "file")
    assert [file.name for file in (tmp_path / "notes").iterdir()] == ["todo.txt"]


def test_a_newer_version_is_refused(tmp_path, learned):
    learned.save(tmp_path / "a")
    file = tmp_path / "a" / "collection.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": 2}))
    with pytest.raises(CollectionFormatError, match="format version 2; this bitrank reads 1"):
        Collection.load(tmp_path / "a")


def test_another_save_is_not_overwritten(tmp_path, learned):
    learned.save(tmp_path / "a")
    one, two = Collection.load(tmp_path / "a"), Collection.load(tmp_path / "a")
    one.add(X[:1], ids=["one"])
    one.save(tmp_path / "a")
    two.add(X[:1], ids=["two"])
    with pytest.raises(ValueError, match="changed since it was loaded"):
        two.save(tmp_path / "a")
    assert "one" in Collection.load(tmp_path / "a")
    with pytest.raises(ValueError, match="must not hold another collection"):
        Collection.from_vectors(X, hasher=SignBits()).save(tmp_path / "a")
    two.save(tmp_path / "a", replace=True)
    assert "two" in Collection.load(tmp_path / "a")
    with pytest.raises(ValueError, match="changed since it was loaded"):
        one.save(tmp_path / "a")  # also where nothing changed since
    one.save(tmp_path / "b")
    assert "one" in Collection.load(tmp_path / "b")


def test_a_reader_keeps_its_moment_while_the_folder_is_replaced(tmp_path, learned):
    learned.save(tmp_path / "a")
    reader = Collection.load(tmp_path / "a")
    before = answers(reader)
    learned.remove(NAMES[:60])
    learned.save(tmp_path / "a", replace=True)
    assert answers(reader) == before


@pytest.mark.parametrize("n_kills", [4, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["journal", "full"])
def test_kills_lose_nothing_that_was_saved(tmp_path, kind, n_kills):
    folder, rng = tmp_path / "a", np.random.default_rng(0)
    Collection.from_vectors(X, ids=NAMES, hasher=SignBits()).save(folder)
    saved = 120
    for _ in range(n_kills):
        process, lengths = start(save_for_ever, folder, kind == "full")
        for _ in range(int(rng.integers(1, 12))):
            saved = lengths.recv()
        time.sleep(float(rng.random()) * 0.01)  # so that the kill comes anywhere in the next save
        process.kill()
        process.join()
        saved = last(lengths, saved)
        collection = Collection.load(folder)
        assert len(collection) in (saved, saved + 5)  # the last one may be saved, and not be said to be
        assert (collection.search(X[:5], 1).ids[:, 0] == NAMES[:5]).all()
        assert collection.ids.tolist()[120:] == [f"more {row}" for row in range(120, len(collection))]
    assert len(list(folder.glob("index-*"))) <= 2  # an unfinished one at most


def test_an_interrupted_save_leaves_the_old_folder_or_the_new(tmp_path):
    folder = tmp_path / "a"
    Collection.from_vectors(X, ids=NAMES, hasher=SignBits()).save(folder)
    process, lengths = start(save_for_ever, folder, True)
    saved = lengths.recv()
    os.kill(process.pid, signal.SIGINT)
    process.join()
    saved = last(lengths, saved)
    assert process.exitcode == 1  # KeyboardInterrupt
    assert len(Collection.load(folder)) in (saved, saved + 5)


def test_two_savers_take_turns(tmp_path):
    folder = tmp_path / "a"
    Collection.from_vectors(X, ids=NAMES, hasher=SignBits()).save(folder)
    savers = [start(take_turns, folder, name)[0] for name in ("one", "two")]
    for saver in savers:
        saver.join()
    assert [saver.exitcode for saver in savers] == [0, 0]
    collection = Collection.load(folder)
    assert all(f"{name} {row}" in collection for name in ("one", "two") for row in range(10))


def test_a_full_disk_changes_nothing(tmp_path, learned, monkeypatch):
    learned.save(tmp_path / "a")
    before = answers(Collection.load(tmp_path / "a"))
    learned.add(X[:1], ids=["new"])

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        learned.save(tmp_path / "a")
    with pytest.raises(OSError, match="No space"):
        learned.save(tmp_path / "a", replace=True)
    monkeypatch.undo()
    found = answers(Collection.load(tmp_path / "a"))
    assert found in (before, answers(learned))  # whole: before the change, or with it
    learned.save(tmp_path / "a", replace=True)
    assert answers(Collection.load(tmp_path / "a")) == answers(learned)


def test_the_golden_folder_answers_as_when_it_was_written():
    stored = json.loads((GOLDEN.parent / "collection-v1.json").read_text())
    collection = Collection.load(GOLDEN)
    found = collection.search(np.array(stored["queries"], np.float32), 5)
    assert found.ids.tolist() == stored["ids"]
    np.testing.assert_allclose(found.distances, stored["distances"], rtol=1e-5)
    assert [version.kind for version in collection.versions] == ["plain", "labels"]
    assert str(collection.report()).splitlines()[0] == stored["report"]
