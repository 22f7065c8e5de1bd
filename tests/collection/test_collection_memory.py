"""What a collection remembers: `remember`, `forget`, and searches that judged queries lift."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from collection_processes import remember_for_ever, start

import bitrank
from bitrank import Collection, SignBits
from bitrank.collection import CollectionFormatError, remembering
from bitrank.core.codes import distances, signs
from bitrank.core.types import Queries
from bitrank.ranking import QueryVectorRanker
from bitrank.ranking.memory.lifting import MOST, PINNED_FROM, PIVOT, TIE


def make(n=300, d=24, seed=0, ids=None):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(12, d))
    X = centres[rng.integers(12, size=n)] + 0.7 * rng.normal(size=(n, d))
    queries = centres[rng.integers(12, size=60)] + 0.7 * rng.normal(size=(60, d))
    return Collection.from_vectors(X, ids=ids, random_state=0, hasher=SignBits()), queries, rng


def with_verdict(collection, offset):
    """As if the gate had found this offset."""
    collection._use(collection.versions[-1].kind, None, {"memory": offset})
    return collection


def reference(collection, asked, plain_queries, k, offset, wanted=None):
    """Ids of the k best by the definition: dense and in Python."""
    memory = collection._moment.memory
    n_bits = collection.n_bits
    item_ids = collection.index.ids

    def similarity(queries, codes):
        total, unit = collection._moment.scale_of(queries)
        if isinstance(queries, Queries):
            found = distances(queries.codes, codes, queries.weights)
        elif queries.dtype == np.uint8:
            found = distances(queries, codes)
        else:
            found = distances(np.packbits(queries > 0, axis=1), codes, np.abs(queries))
        assert signs(codes, n_bits).shape[1] == n_bits
        return (total[:, None] - 2 * found) * unit[:, None], np.minimum(1, total * unit)

    plain, _ = similarity(plain_queries, collection.index.codes(item_ids))
    to_judged, itself = similarity(asked, memory.codes)
    out = []
    for q in range(len(plain)):
        best = {}
        for entry, item, _, pinned in memory.pairs.tolist():
            m = to_judged[q, entry]
            value = m + 1 if pinned and m >= PINNED_FROM * itself[q] else -np.inf if offset is None else m - offset
            best[item] = max(best.get(item, -np.inf), value)
        score = dict(zip(item_ids.tolist(), plain[q], strict=True))
        lifts = {i: m + TIE * (score[i] - PIVOT) for i, m in best.items() if wanted is None or i in wanted}
        lifts = {i: value for i, value in lifts.items() if value > score[i]}
        for item in sorted(lifts, key=lambda i: (-lifts[i], i))[:MOST]:
            score[item] = lifts[item]
        kept = [i for i in score if wanted is None or i in wanted]
        out.append(sorted(kept, key=lambda i: (-np.float32(score[i]), i))[:k])
    return out


@pytest.mark.parametrize("k", [1, 5, 20, 400])
@pytest.mark.parametrize("offset", [None, 0.0, 0.12])
@pytest.mark.parametrize("filtered", [False, True])
def test_a_search_equals_the_definition(k, offset, filtered):
    collection, queries, rng = make()
    lists = [rng.choice(300, rng.integers(1, 9), replace=False).tolist() for _ in range(50)]
    collection.remember(queries[:40], lists[:40])
    collection.remember(queries[40:50], lists[40:], pinned=True)
    with_verdict(collection, offset)
    wanted = set(rng.choice(300, 120, replace=False).tolist()) if filtered else None
    asked = np.vstack([queries[50:], queries[38:46]])
    reals = collection.hasher.project(asked)
    expected = reference(collection, reals, reals, k, offset, wanted)
    results = collection.search(asked, k, filter=None if wanted is None else sorted(wanted))
    for row, ids, found in zip(expected, results.ids.tolist(), results.distances, strict=True):
        assert ids[: len(row)] == row
        assert (np.diff(found[: len(row)]) >= 0).all()
        assert set(ids[len(row) :]) <= {-1}


def test_a_search_of_codes_and_of_queries_with_weights_equals_the_definition():
    rng = np.random.default_rng(1)
    codes, asked = (rng.integers(0, 256, (n, 6), dtype=np.uint8) for n in (200, 30))
    collection = Collection.from_codes(codes, n_bits=48)
    collection.remember(asked[:25], [rng.choice(200, 4).tolist() for _ in range(25)])
    with_verdict(collection, 0.0)
    near = asked.copy()
    near[:, 0] ^= 3
    assert collection.search(near, 10).ids.tolist() == reference(collection, near, near, 10, 0.0)
    weighted = Queries(near, rng.random((30, 48)).astype(np.float32))
    assert collection.search(weighted, 10).ids.tolist() == reference(collection, weighted, weighted, 10, 0.0)


def test_many_judged_queries_are_fetched_until_none_could_matter():
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 256, (500, 4), dtype=np.uint8)
    collection = Collection.from_codes(codes)
    judged = np.repeat(rng.integers(0, 256, (3, 4), dtype=np.uint8), 100, axis=0)  # a hundred say the same
    collection.remember(judged, [[int(i) % 7] for i in range(300)], query_ids=list(range(300)))
    with_verdict(collection, 0.0)
    asked = judged[::100]
    assert collection.search(asked, 12).ids.tolist() == reference(collection, asked, asked, 12, 0.0)


def test_without_a_verdict_only_pinned_items_are_lifted_and_say_so():
    collection, queries, _ = make(ids=[f"item {i}" for i in range(300)])
    plain = collection.search(queries[:2], 300).ids.tolist()
    last = [row[-1] for row in plain]
    collection.remember(queries[:1], [[last[0]]], query_ids=["first"])
    assert collection.search(queries[:2], 300).ids.tolist() == plain
    collection.remember(queries[1:2], [[last[1]]], query_ids=["second"], pinned=True)
    results = collection.search(queries[:2], 5, explain=True)
    assert results.ids[0].tolist() == plain[0][:5]
    place = results.ids[1].tolist().index(last[1])
    lift = results.explanation.lifted[1][place]
    assert (lift.query, lift.plain_rank, lift.pinned) == ("second", 300, True)
    assert lift.similarity >= 0.95
    assert str(collection.report()).splitlines()[-1] == (
        f"remembers 2 judged queries with 2 items in {collection._moment.memory.n_bytes} bytes, and lifts the 1 that "
        f"are pinned; no gate has judged 2 of them"
    )
    assert results.distances.min() >= 0
    assert last[1] not in collection.search(-queries[1:2], 5).ids
    collection.forget(["second"])
    assert collection.search(queries[:2], 300).ids.tolist() == plain


def test_lists_of_a_query_merge_and_removed_items_drop_out():
    collection, queries, _ = make(ids=[f"item {i}" for i in range(300)])
    assert collection.remember(queries[0], ["item 3", "item 4"]) == [0]
    assert collection.remember(queries[0], ["item 4", "item 5"], grades=[2, 1]) == [0]
    assert collection.remember(queries[1], ["item 3"]) == [1]
    collection.remember(queries[0], ["item 3"], grades=[0])
    assert [(each["items"], each["grades"]) for each in collection.judgements()] == [
        (["item 4", "item 5"], [2, 1]),
        (["item 3"], [1]),
    ]
    collection.remove(["item 3", "item 4"])
    assert [(each["query"], each["items"]) for each in collection.judgements()] == [(0, ["item 5"])]
    collection.add(np.ones((1, 24)), ids=["item 5"], replace=True)
    assert collection.judgements()[0]["items"] == ["item 5"]
    with pytest.raises(ValueError, match="must be in the collection"):
        collection.remember(queries[0], ["item 3"])
    assert len(collection.judgements()) == 1


def test_the_memory_is_saved_with_the_collection_and_a_few_judgements_cost_an_append(tmp_path):
    collection, queries, _ = make(ids=[f"item {i}" for i in range(300)])
    collection.remember(queries[:30], [[f"item {i}", f"item {i + 1}"] for i in range(30)])
    with_verdict(collection, 0.0)
    collection.save(tmp_path / "c")
    files = {file.name: file.stat().st_size for file in (tmp_path / "c").iterdir() if file.is_file()}
    collection.remember(queries[40], ["item 7"], query_ids=["new"], pinned=True)
    collection.forget([3])
    collection.remove(["item 5"])
    collection.add(np.ones((2, 24)), ids=["item 9", "more"], replace=True)
    collection.save(tmp_path / "c")
    grown = {name for name, size in files.items() if (tmp_path / "c" / name).stat().st_size > size}
    assert [name[:8] for name in grown] == ["journal-"]
    assert {file.name for file in (tmp_path / "c").iterdir() if file.is_file()} == set(files)
    loaded = Collection.load(tmp_path / "c")
    assert loaded.judgements() == collection.judgements()
    assert loaded.report().memory == collection.report().memory
    one, other = (each.search(queries, 10) for each in (collection, loaded))
    assert (one.ids == other.ids).all()
    assert (one.distances == other.distances).all()
    loaded.save(tmp_path / "d")
    assert Collection.load(tmp_path / "d").judgements() == collection.judgements()


def test_an_engine_is_lifted_as_an_index_is(tmp_path):
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 256, (120, 4), dtype=np.uint8)
    engine = bitrank.connect("memory://")
    engine.create(n_bits=32)
    engine.add(codes, ids=np.arange(120))
    collections = Collection.from_engine(engine), Collection.from_codes(codes)
    asked, lists = codes[:20] ^ 1, [rng.choice(120, 3).tolist() for _ in range(20)]
    for collection in collections:
        collection.remember(asked, lists)
        with_verdict(collection, 0.0)
    one, other = (collection.search(asked, 7) for collection in collections)
    assert (one.ids == other.ids).all()
    np.testing.assert_allclose(one.distances, other.distances, rtol=1e-5)
    collections[0].save(tmp_path / "c")
    collections[0].remember(asked[0], [100], pinned=True)
    collections[0].save(tmp_path / "c")
    assert Collection.load(tmp_path / "c", engine=engine).judgements() == collections[0].judgements()


def topical(seed, n=400, n_queries=120, n_topics=8, flipped=0.12):
    """Codes, queries about topics, and pairs: what is wanted is of the query's topic, of which codes say nothing."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 256, (n, 8), dtype=np.uint8)
    topics = rng.integers(n_topics, size=n_queries)
    centres = rng.random((n_topics, 64)) < 0.5
    queries = np.packbits(centres[topics] ^ (rng.random((n_queries, 64)) < flipped), axis=1)
    wanted = rng.permutation(n)[: n_topics * 12].reshape(n_topics, 12)
    pairs = np.array([(q, i) for q in range(n_queries) for i in rng.choice(wanted[topics[q]], 6, replace=False)])
    return codes, queries, pairs, rng


QUICK = QueryVectorRanker(n_steps=1, random_state=0)  # what matters is the memory


def test_learning_from_pairs_judges_the_memory_and_uses_it_from_then_on(tmp_path):
    codes, queries, pairs, _ = topical(0)
    collection = Collection.from_codes(codes, ids=[f"item {i}" for i in range(400)], random_state=0)
    collection.remember(queries[:1], [["item 0"]], query_ids=["before"])
    names = [f"query {q}" for q in range(120)]
    rows = [(names[q], f"item {i}") for q, i in pairs.tolist()]
    report = collection.learn(pairs=rows, queries=queries, query_ids=names, ranker=QUICK)
    learned = report.learned
    assert learned.memory["use"] in ("memory", "both")
    assert report.memory.offset == learned.memory["offset"] == collection.versions[-1].facts["memory"]
    assert (report.memory.n_queries, report.memory.n_unjudged) == (121, 0)
    assert f"memory of the judged queries: {learned.memory['use']} in use" in str(report)
    near = queries[:5] ^ np.uint8([1, 0, 0, 0, 0, 0, 0, 0])
    results = collection.search(near, 10, explain=True)
    plain = Collection.from_codes(codes, ids=[f"item {i}" for i in range(400)]).search(near, 10)
    wanted = [{f"item {i}" for q, i in pairs.tolist() if q == row} for row in range(5)]

    def hits(found):
        return sum(len(set(ids) & own) for ids, own in zip(found.ids.tolist(), wanted, strict=True))

    assert hits(results) >= hits(plain) + 10
    assert any(lift and lift.query.startswith("query") for lift in results.explanation.lifted[0])
    collection.remember(queries[3:4], [["item 7"]], query_ids=["after"])
    assert collection.report().memory.n_unjudged == 1
    collection.save(tmp_path / "c")
    loaded = Collection.load(tmp_path / "c")
    assert loaded.report() == collection.report()
    assert (loaded.search(near, 10).ids == collection.search(near, 10).ids).all()
    collection.forget()
    assert (collection.search(near, 10).ids == plain.ids).all()


def test_a_memory_that_the_gate_refuses_lifts_nothing_any_more():
    codes, queries, pairs, rng = topical(1)
    collection = Collection.from_codes(codes, random_state=0)
    collection.learn(pairs=pairs, queries=queries, ranker=QUICK)
    assert collection.report().memory.offset is not None
    collection.forget([each["query"] for each in collection.judgements()])
    pairs[:, 0] = rng.permutation(120)[pairs[:, 0]]
    report = collection.learn(pairs=pairs, queries=queries, ranker=QUICK)
    assert report.learned.memory["use"] == "neither"
    assert report.memory is None
    assert collection.versions[-1].facts.get("memory") is None
    plain = Collection.from_codes(codes).search(queries, 10)
    assert (collection.search(queries, 10).ids == plain.ids).all()


def test_what_is_remembered_or_removed_while_learning_is_not_lost(monkeypatch):
    codes, queries, pairs, _ = topical(2)
    collection = Collection.from_codes(codes, random_state=0)
    judge = remembering.judge

    def meanwhile(*args):
        collection.remember(~queries[:3], [[1], [2], [3]])  # takes the first numbers
        collection.remove([int(pairs[0, 1])])
        return judge(*args)

    monkeypatch.setattr(remembering, "judge", meanwhile)
    collection.learn(pairs=pairs, queries=queries, ranker=QUICK)
    known = collection.judgements()
    assert len(known) == 123
    assert [each["items"] for each in known[:3]] == [[1], [2], [3]]
    assert all(pairs[0, 1] not in each["items"] for each in known)
    collection.search(queries, 10)


def test_learning_from_pairs_over_an_engine_finds_what_it_finds_over_an_index():
    codes, queries, pairs, _ = topical(0)
    engine = bitrank.connect("memory://")
    engine.create(n_bits=64)
    engine.add(codes, ids=np.arange(400))
    collections = Collection.from_engine(engine, random_state=0), Collection.from_codes(codes, random_state=0)
    one, other = (each.learn(pairs=pairs, queries=queries, ranker=QUICK).learned.memory for each in collections)
    assert one["offset"] == other["offset"] is not None
    assert (collections[0].search(queries, 10).ids == collections[1].search(queries, 10).ids).all()


def test_codes_of_planes_are_lifted_over_a_learned_vector_on_one_scale():
    rng = np.random.default_rng(4)
    X, queries = rng.normal(size=(400, 16)), rng.normal(size=(40, 16))
    collection = Collection.from_vectors(X, bits=4, random_state=0)
    reals = collection.hasher.project(queries)
    plain = collection._moment.linear(collection._moment.plain(None, queries))
    same = remembering.linear(plain, Queries(np.packbits(reals > 0, axis=1), 3 * np.abs(reals)))
    similarities = [
        (total[:, None] - 2 * collection._moment.search(each, 5, None, 1)[1]) * unit[:, None]
        for each, (total, unit) in (plain, same)
    ]
    np.testing.assert_allclose(*similarities, rtol=1e-4)


def test_searches_see_one_moment_while_others_remember_and_forget():
    collection, queries, _ = make()
    with_verdict(collection, 0.0)
    stop, errors = threading.Event(), []

    def search():
        while not stop.is_set():
            try:
                results = collection.search(queries[:8], 5, explain=True)
                assert (results.ids >= 0).all()
                assert (np.diff(results.distances) >= 0).all()
            except Exception as error:
                errors.append(error)
                return

    searchers = [threading.Thread(target=search) for _ in range(3)]
    for thread in searchers:
        thread.start()
    for turn in range(40):
        names = collection.remember(queries[:30], [[turn, turn + 1, turn + i] for i in range(30)])
        if turn % 3 == 0:
            collection.forget(names[::2])
        collection.remove([turn + 100])
    stop.set()
    for thread in searchers:
        thread.join()
    assert not errors


def test_a_killed_process_leaves_what_it_saved(tmp_path):
    collection, queries, _ = make()
    collection.remember(queries[0], [1, 2], query_ids=["kept"])
    collection.save(tmp_path / "c")
    for turn in range(3):
        process, _ = start(remember_for_ever, tmp_path / "c")
        before = (tmp_path / "c" / "collection.json").read_bytes(), journal_bytes(tmp_path / "c")
        while before == ((tmp_path / "c" / "collection.json").read_bytes(), journal_bytes(tmp_path / "c")):
            assert process.is_alive()
        process.join(0.05 * turn)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        loaded = Collection.load(tmp_path / "c")
        names = [each["query"] for each in loaded.judgements()]
        assert "kept" in names
        assert len(names) > 1
        assert all(each["items"] for each in loaded.judgements())
        loaded.search(queries, 5)


def journal_bytes(folder):
    return sum(file.stat().st_size for file in folder.glob("journal-*"))


def test_damaged_entries_are_an_error_that_names_the_file(tmp_path):
    collection, queries, _ = make()
    collection.remember(queries[:20], [[i] for i in range(20)])
    collection.save(tmp_path / "c")
    collection.remember(queries[30], [5])
    collection.save(tmp_path / "c")
    for kind, place in (("memory", 200), ("memory", -1), ("journal", 100)):
        folder = tmp_path / f"{kind}{place}"
        shutil.copytree(tmp_path / "c", folder)
        (file,) = folder.glob(f"{kind}-*")
        data = bytearray(file.read_bytes())
        data[place] ^= 255
        file.write_bytes(data + (data if kind == "journal" else b""))
        with pytest.raises(CollectionFormatError, match=file.name):
            Collection.load(folder)
    (file,) = (tmp_path / "c").glob("memory-*")
    file.unlink()
    with pytest.raises(CollectionFormatError, match="memory-"):
        Collection.load(tmp_path / "c")


def test_the_golden_memory_answers_as_when_it_was_written():
    golden = Path(__file__).parents[1] / "golden"
    stored, collection = json.loads((golden / "memory-v1.json").read_text()), Collection.load(golden / "memory-v1")
    assert collection.judgements() == stored["judgements"]
    found = collection.search(np.array(stored["queries"], np.uint8), 5, explain=True)
    assert found.ids.tolist() == stored["ids"]
    np.testing.assert_allclose(found.distances, stored["distances"], rtol=1e-5, atol=1e-5)
    assert [[each and each.query for each in row] for row in found.explanation.lifted] == stored["lifted"]
