"""Records beside a collection: files that hold both or neither, and the stores of before."""

import json
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from collection_processes import put_for_ever, start
from hypothesis import example, given
from hypothesis import strategies as st

from bitrank import Collection
from bitrank.collection import promises
from bitrank.core.codes import unpack
from bitrank.integrations.documents import _MOST_PARTS, Documents

X = np.random.default_rng(0).normal(size=(60, 24))
GOLDEN = Path(__file__).parents[1] / "golden"


def filled(n=20):
    documents = Documents()
    documents.put([f"d{row}" for row in range(n)], [{"row": row} for row in range(n)], list(X[:n]))
    return documents


def state(documents):
    """Records, and the codes of those that have one."""
    collection = documents.collection
    return documents.records, dict(zip(collection.ids.tolist(), collection.codes().tolist(), strict=True))


STEPS = st.tuples(st.sampled_from(["put", "plain", "drop", "save", "load"]), st.integers(0, 5))


@given(steps=st.lists(STEPS, max_size=30))
@example(steps=[("save", 0), ("put", 5), ("drop", 5), ("save", 0), ("load", 0)])
def test_what_is_loaded_is_what_was_saved(steps, tmp_path_factory):
    folder = tmp_path_factory.mktemp("store") / "a"
    documents, saved = filled(2), None
    for number, (step, item) in enumerate(steps):
        if step == "drop":
            documents.drop([f"d{item}", "absent"])
        elif step == "save":
            documents.save(folder)
            saved = json.loads(json.dumps(state(documents)))
        elif step == "load":
            if saved is not None:
                documents = Documents(path=folder)
                assert list(state(documents)) == saved
        else:
            documents.put([f"d{item}"], [{"step": number}], [None if step == "plain" else X[number]])
        records, codes = state(documents)
        assert codes.keys() <= records.keys()
    documents.save(folder)
    assert state(Documents(path=folder)) == state(documents)


def test_a_small_change_costs_a_small_file(tmp_path):
    documents = filled(60)
    documents.save(tmp_path / "store")
    before = {file.name for file in (tmp_path / "store").iterdir()}
    for row in range(3):
        documents.put([f"new {row}"], [{"row": row}], [X[row]])
        documents.save(tmp_path / "store")
    after = {file.name for file in (tmp_path / "store").iterdir()}
    assert before <= after
    assert sum((tmp_path / "store" / name).stat().st_size for name in after - before) < 400
    assert len(after - before) == 3
    documents.save(tmp_path / "store")  # nothing changed
    assert {file.name for file in (tmp_path / "store").iterdir()} == after
    for row in range(_MOST_PARTS):
        documents.revise({"d0": {"row": row}})
        documents.save(tmp_path / "store")
    assert len(list((tmp_path / "store").iterdir())) < 20
    assert state(Documents(path=tmp_path / "store")) == state(documents)


def test_records_without_an_embedding_are_stored_before_and_after_the_first_one(tmp_path):
    documents = Documents()
    documents.put(["plain"], ["a"], [None])
    for _ in range(2):
        documents.save(tmp_path / "store")
        documents = Documents(path=tmp_path / "store")
        assert documents.records == {"plain": "a"}
        assert documents.search(X[0], 3) == []
    documents.put(["coded"], ["b"], [X[0]])
    with pytest.raises(ValueError, match="must not hold another collection"):
        filled().save(tmp_path / "store")
    documents.save(tmp_path / "store")
    again = Documents(path=tmp_path / "store")
    assert again.records == {"plain": "a", "coded": "b"}
    assert [hit[:2] for hit in again.search(X[0], 3)] == [("coded", "b")]
    documents.put(["coded"], ["c"], [None])
    assert documents.search(X[0], 3) == []
    assert documents.collection.n_bits == 24


def test_the_greedy_choice_of_unlike_records():
    documents = filled(60)
    signs = np.where(X > 0, 1, -1)
    near = X[7] @ signs.T / np.linalg.norm(X[7]) / np.sqrt(24) * np.sqrt(np.pi / 2)
    alike = np.cos(np.pi * (24 - signs @ signs.T) / 48)
    candidates, chosen = list(np.argsort(-near, kind="stable")[:30]), []
    while len(chosen) < 8:
        values = [0.3 * near[c] - 0.7 * max((alike[c, d] for d in chosen), default=0) for c in candidates]
        chosen.append(candidates.pop(int(np.argmax(values))))
    found = documents.diverse(X[7], 8, 30, 0.3)
    assert [hit[0] for hit in found] == [f"d{row}" for row in chosen]
    assert documents.diverse(X[7], 8, 8, 1.0) == documents.search(X[7], 8)
    assert documents.diverse(X[7], 8, 30, 0.3, wanted=["d3", "d9"])[0][0] in ("d3", "d9")
    assert Documents().diverse(X[7], 8, 30, 0.3) == []


@pytest.mark.parametrize("name", ["langchain", "haystack"])
def test_a_store_of_before_is_replaced_in_its_folder(name, tmp_path):
    folder = tmp_path / "store"
    shutil.copytree(GOLDEN / f"store-{name}-v1", folder)
    old = [json.loads(line) for line in next(folder.glob("records-*")).read_text().splitlines()]
    documents = Documents(path=folder)
    assert documents.records == {text_id: record for _, text_id, record in old}
    assert documents.collection.ids.tolist() == [text_id for row, text_id, _ in old if row is not None]
    query = np.arange(6.0)
    hits = documents.search(query, 20)
    assert len(hits) == len(documents.collection)
    documents.drop([hits[0][0]])
    documents.save(folder)
    assert not list(folder.glob("records-*"))
    assert not (folder / "store.json").exists()
    again = Documents(path=folder)
    assert state(again) == state(documents)
    assert again.search(query, 20) == hits[1:]


def test_damaged_stores_of_before(tmp_path):
    shutil.copytree(GOLDEN / "store-haystack-v1", tmp_path / "store")
    meta = tmp_path / "store" / "store.json"
    for content in ("{", "[]", "{}", json.dumps(json.loads(meta.read_text()) | {"version": 2})):
        meta.write_text(content)
        with pytest.raises(ValueError, match=r"store\.json is not that of a store"):
            Documents(path=tmp_path / "store")


def test_a_kill_leaves_records_and_codes_of_one_save(tmp_path):
    documents = Documents()
    documents.put(["d0", "count"], [{"row": 0}, {"row": 0}], [X[0], None])
    documents.save(tmp_path / "store")
    for wait in (0.0, 0.03, 0.1, 0.3):
        n = Documents(path=tmp_path / "store").records["count"]["row"] + 1
        process, pipe = start(put_for_ever, tmp_path / "store", n)
        assert pipe.recv() == "ready"
        time.sleep(wait)
        process.kill()
        process.join()
        records, codes = state(Documents(path=tmp_path / "store"))
        last = records["count"]["row"]
        expected = {f"d{row}" for row in range(last + 1) if row % 3 < 2 or row == last}
        assert records.keys() - {"count"} == codes.keys() == expected


def test_of_two_savers_one_is_refused(tmp_path):
    filled().save(tmp_path / "store")
    one, two = (Documents(path=tmp_path / "store") for _ in range(2))
    one.put(["one"], [1], [X[30]])
    two.put(["two"], [2], [X[31]])
    one.save(tmp_path / "store")
    with pytest.raises(ValueError, match="must not have changed since it was loaded"):
        two.save(tmp_path / "store")
    assert "one" in Documents(path=tmp_path / "store").records
    two.save(tmp_path / "store", replace=True)
    assert state(Documents(path=tmp_path / "store")) == state(two)
    two.save(tmp_path / "elsewhere")
    assert state(Documents(path=tmp_path / "elsewhere")) == state(two)


def test_changes_of_the_collection_alone_keep_the_records(tmp_path):
    filled().save(tmp_path / "store")
    collection = Collection.load(tmp_path / "store")
    collection.learn(labels=np.arange(20) % 2, features=X[:20], ranker="WhRank")
    collection.remove(["d3"])
    collection.save(tmp_path / "store")
    documents = Documents(path=tmp_path / "store")
    assert len(documents.records) == 20
    assert len(documents.search(X[3], 20)) == 19
    assert documents.search(X[3], 20, ["d3"]) == []
    Collection.from_vectors(X).save(tmp_path / "other")
    with pytest.raises(ValueError, match="path must be the folder of a store, got a collection without documents"):
        Documents(path=tmp_path / "other")


def test_threads_that_write_and_search():
    documents, errors = filled(60), []

    def run(work):
        try:
            for number in range(60):
                work(number)
        except Exception as error:
            errors.append(error)

    def search(number):
        hits = documents.search(X[number], 10, [f"d{row}" for row in range(40)])
        assert all(record["row"] == int(text_id[1:]) for text_id, record, _ in hits)
        documents.diverse(X[number], 3, 10, 0.5)

    works = [
        search,
        search,
        lambda number: documents.drop([f"d{number}"]),
        lambda number: documents.put([f"d{number}"], [{"row": number}], [X[number]]),
    ]
    threads = [threading.Thread(target=run, args=[work]) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_vectors_reach_a_ranker_that_learned_from_them(featured):
    documents = Documents(featured.hasher, featured.ranker)
    names = [str(row) for row in range(400)]
    documents.put(names, names, list(featured.items))
    for query in featured.queries[:5]:
        asked = featured.ranker.queries_for(
            featured.hasher.project(query[None]),
            features=query[None],
            collection=featured.hasher.transform(featured.items),
        )
        bits = unpack(featured.hasher.transform(featured.items), 16) != unpack(asked.codes, 16)
        distances = (bits * asked.weights).sum(axis=1)
        found = documents.search(query, 400)
        np.testing.assert_allclose(
            [score for _, _, score in found], 1 - 2 * np.sort(distances) / asked.weights.sum(), rtol=1e-3, atol=1e-5
        )


def test_a_promise_of_recall_makes_cells_of_many_embeddings(tmp_path, monkeypatch):
    monkeypatch.setattr(promises, "LEAST_ITEMS", 2000)
    vectors = np.random.default_rng(0).normal(size=(2000, 16))
    names = [str(row) for row in range(2000)]
    documents = Documents(recall=0.999)
    documents.put(names, names, vectors)
    assert [hit[0] for hit in documents.search(vectors[7], 1)] == ["7"]
    assert documents.collection.index.has_cells
    documents.save(tmp_path / "a")
    loaded = Documents(path=tmp_path / "a", recall=0.9)
    assert loaded.search(vectors[7], 1)[0][0] == "7"
    assert loaded.collection.index.has_cells
    with pytest.raises(ValueError, match=r"recall must be None, or a number from 0.8 to 0.999, got 2"):
        Documents(recall=2)
