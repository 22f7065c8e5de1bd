"""The folder of a `Collection` as the base of a service, and what a service changed folded into one."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from serving import Command, serving

from bitrank import Collection, Index, RankingSVM, SignBits
from bitrank.cli import main
from bitrank.service import sources
from bitrank.service.folding import fold
from bitrank.service.store.backup import back_up


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=240)
    return rng.normal(size=(4, 24))[labels] + rng.normal(size=(240, 24)) * rng.uniform(0.3, 3, 24), labels


@pytest.fixture
def shop(vectors, tmp_path):
    """The folder of a collection that learned."""
    X, labels = vectors
    collection = Collection.from_vectors(X, random_state=0, hasher=SignBits())
    made = RankingSVM(random_state=0).fit(collection.codes(), labels)
    collection.use(made)
    collection.save(tmp_path / "shop.bitrank")
    return tmp_path / "shop.bitrank"


def found(client, body, **more):
    answer = client.post("/search", json={"k": 10, "explore": 0, **body, **more})
    assert answer.status_code == 200, answer.text
    return [(row["id"], row["distance"]) for row in answer.json()["results"]]


def expected(collection, query):
    ids, distances = collection.search(query, k=10)
    return list(zip(ids[0].tolist(), pytest.approx(distances[0].tolist(), rel=1e-5).expected, strict=True))


def test_the_ranker_of_the_folder_answers_vectors_and_codes(shop, vectors, tmp_path):
    collection = Collection.load(shop)
    with serving(sources.from_folder(shop), tmp_path) as client:
        assert client.get("/collection").json()["has_hasher"] is True
        listed = client.get("/profiles/default/versions").json()
        assert [(version["origin"], version["kind"]) for version in listed["versions"]] == [("ranker", "weights")]
        for query in vectors[0][:5] + 0.1:
            ids, distances = collection.search(query, k=10)
            rows = found(client, {"vector": query.tolist()})
            assert [item for item, _ in rows] == ids[0].tolist()
            np.testing.assert_allclose([distance for _, distance in rows], distances[0], rtol=1e-5)
        code = collection.codes([7])
        rows = found(client, {"code": code.tobytes().hex()})
        assert [item for item, _ in rows] == collection.search(code, k=10).ids[0].tolist()


def test_vectors_bring_themselves_as_features(vectors, tmp_path):
    X, labels = vectors
    collection = Collection.from_vectors(X, random_state=0, hasher=SignBits())
    collection.learn(labels=labels)
    collection.save(tmp_path / "shop.bitrank")
    query = X[3] + 0.2
    ids, distances = collection.search(query, k=10)
    with serving(sources.from_folder(tmp_path / "shop.bitrank"), tmp_path) as client:
        rows = found(client, {"vector": query.tolist()})
    np.testing.assert_allclose([distance for _, distance in rows], distances[0], rtol=1e-3)
    assert len({item for item, _ in rows} & set(ids[0].tolist())) >= 9


def test_a_folder_that_learned_again_is_a_new_version_and_else_nothing_is(shop, vectors, tmp_path):
    for n_versions in (1, 1, 2, 2):
        if n_versions == 2:
            collection = Collection.load(shop)
            collection.use(RankingSVM(random_state=1).fit(collection.codes(), vectors[1] % 2))
            collection.save(shop)
        with serving(sources.from_folder(shop), tmp_path) as client:
            listed = client.get("/profiles/default/versions").json()
            assert (len(listed["versions"]), listed["active"]) == (n_versions, n_versions)


def test_the_folder_is_only_read_and_the_database_holds_what_changed(shop, tmp_path):
    before = {path.name: path.read_bytes() for path in shop.iterdir() if path.is_file()}
    with serving(sources.from_folder(shop), tmp_path) as client:
        code = Collection.load(shop).codes([5]).tobytes().hex()
        assert client.post("/items", json={"items": [{"id": 900, "code": code, "title": "new"}]}).status_code == 201
        assert client.delete("/items/5").status_code == 204
    assert {path.name: path.read_bytes() for path in shop.iterdir() if path.is_file()} == before
    with serving(sources.from_folder(shop), tmp_path) as client:
        assert client.get("/items/900").json()["title"] == "new"
        assert client.get("/items/5").status_code == 404
        assert client.get("/collection").json()["n_items"] == 240


def test_names_are_titles_and_find_their_rows_in_a_file(vectors, tmp_path):
    collection = Collection.from_vectors(vectors[0][:20], ids=[f"item {row}" for row in range(20)], hasher=SignBits())
    collection.remove(["item 3"])
    collection.save(tmp_path / "named.bitrank")
    table = {"id": ["item 7", "gone", "item 1"], "title": ["seven", "x", None], "price": [1.5, 2.0, 3.0]}
    pyarrow.parquet.write_table(pa.table(table), tmp_path / "items.parquet")
    source = sources.from_folder(tmp_path / "named.bitrank", tmp_path / "items.parquet")
    with serving(source, tmp_path) as client:
        items = {item["id"]: item for item in client.get("/items?limit=100").json()["items"]}
        assert len(items) == 19
        assert (items[7]["title"], items[7]["payload"]) == ("seven", {"price": 1.5})
        assert (items[1]["title"], items[1]["payload"]) == ("item 1", {"price": 3.0})
        assert (items[0]["title"], items[0]["payload"]) == ("item 0", {})
        best = client.post("/search", json={"vector": vectors[0][9].tolist(), "k": 1, "explore": 0}).json()["results"][
            0
        ]
        assert best["title"] == collection.search(vectors[0][9], k=1).ids[0, 0]


def test_a_hasher_beside_that_of_the_folder_is_refused(shop, tmp_path):
    Collection.load(shop).hasher.save(tmp_path / "hasher.npz")
    with pytest.raises(ValueError, match="--hasher must be left out for a collection, which has its own"):
        sources.from_folder(shop, hasher=tmp_path / "hasher.npz")


@pytest.mark.parametrize("names", [False, True])
def test_a_backup_is_folded_in(vectors, tmp_path, names, capsys):
    X = vectors[0]
    collection = Collection.from_vectors(
        X, ids=[f"i{row}" for row in range(240)] if names else None, random_state=0, hasher=SignBits()
    )
    collection.save(tmp_path / "old.bitrank")
    codes = collection.codes()
    weights = np.linspace(0, 2, 24).tolist()
    with serving(sources.from_folder(tmp_path / "old.bitrank"), tmp_path) as client:
        new = {"id": 500, "code": codes[1].tobytes().hex(), "title": "five hundred", "payload": {"a": [1]}}
        other = {"id": 2, "vector": X[9].tolist(), "title": "two"}
        assert client.post("/items", json={"items": [new, other]}).status_code == 201
        assert client.delete("/items/7").status_code == 204
        client.post("/profiles/default/versions", json={"weights": weights})
        client.post("/profiles/default/versions/2/activate")
        asked = found(client, {"vector": X[20].tolist()})
    back_up(f"sqlite:///{tmp_path / 'bitrank.db'}", tmp_path / "backup.db")
    command = ["create", tmp_path / "new.bitrank", tmp_path / "old.bitrank", "--backup", tmp_path / "backup.db"]
    assert main(list(map(str, command))) == 0
    capsys.readouterr()
    folded = Collection.load(tmp_path / "new.bitrank")
    key = (lambda item: f"i{item}" if item < 240 else str(item)) if names else (lambda item: item)
    assert len(folded) == 240
    assert key(7) not in folded
    np.testing.assert_array_equal(folded.codes([key(500), key(2), key(3)]), codes[[1, 9, 3]])
    np.testing.assert_allclose(folded.ranker.one_weight_per_bit(), weights, rtol=1e-6)
    ids, distances = folded.search(X[20], k=10)
    np.testing.assert_allclose(distances[0], [distance for _, distance in asked], rtol=1e-5)
    assert set(ids[0].tolist()) == {key(item) for item, _ in asked}
    (tmp_path / "again").mkdir()
    with serving(sources.from_folder(tmp_path / "new.bitrank"), tmp_path / "again") as client:
        described = {item["title"]: item["payload"] for item in client.get("/items?limit=300").json()["items"]}
        assert described["five hundred"] == {"a": [1]}
        assert "two" in described
        assert [distance for _, distance in found(client, {"vector": X[20].tolist()})] == pytest.approx(
            [distance for _, distance in asked], rel=1e-5
        )


def test_a_backup_of_another_collection_is_refused_and_changes_nothing(vectors, tmp_path):
    with serving(sources.Source("other", Index(np.zeros((30, 3), np.uint8)), sources.Items()), tmp_path):
        pass
    back_up(f"sqlite:///{tmp_path / 'bitrank.db'}", tmp_path / "backup.db")
    collection = Collection.from_vectors(vectors[0], hasher=SignBits())
    before = collection.codes()
    with pytest.raises(ValueError, match="the database must be that of this collection"):
        fold(tmp_path / "backup.db", collection)
    np.testing.assert_array_equal(collection.codes(), before)
    assert (collection.ranker, collection.attachments) == (None, {})


def test_what_was_folded_in_twice_is_described_by_the_last(tmp_path):
    collection = Collection.from_codes(np.random.default_rng(0).integers(0, 256, (50, 4), dtype=np.uint8))
    for title in ("first", "second"):
        folder = tmp_path / title
        folder.mkdir()
        collection.save(folder / "c.bitrank")
        with serving(sources.from_folder(folder / "c.bitrank"), folder) as client:
            client.post("/items", json={"items": [{"id": 60, "code": "00000000", "title": title}]})
        back_up(f"sqlite:///{folder / 'bitrank.db'}", folder / "backup.db")
        fold(folder / "backup.db", collection)
    assert json.loads(collection.attachments[sources.FOLDED]) == [[60, "second", None, {}]]
    assert len(collection) == 51


def test_the_command_serves_a_folder(shop, tmp_path):
    with Command(shop, "--data", tmp_path / "data") as command:
        assert command.address is not None
        command.wait_until_healthy()
        assert command.stop()[0] == 0
    with Command(shop, "--index", shop, "--data", tmp_path / "data") as command:
        assert "give a collection or --index, not both" in command.stop()[1]
