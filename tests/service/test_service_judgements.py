"""Judgements of the API: remembered, listed, forgotten, and what searches make of them."""

import numpy as np
import pytest
from serving import CODES, save_codes, serving

from bitrank import Collection
from bitrank.service import sources
from bitrank.service.store import Store
from bitrank.service.store.migrations import FORMAT


@pytest.fixture
def client(tmp_path):
    with serving(sources.from_folder(save_codes(tmp_path)), tmp_path) as client:
        yield client


def code(row):
    return CODES[row].tobytes().hex()


def ask(client, row=7, **options):
    answer = client.post("/search", json={"code": code(row), "k": 10, "explore": 0, **options})
    assert answer.status_code == 200, answer.text
    return answer.json()["results"]


def judge(client, *judgements):
    answer = client.post("/judgements", json={"judgements": list(judgements)})
    assert answer.status_code == 201, answer.text
    return answer.json()["queries"]


def far(client, row=7):
    return ask(client, row, k=500)[-1]["id"]


def test_pinned_items_come_first_for_their_query_alone_until_they_are_taken_back(client):
    before, last, others = ask(client), far(client), ask(client, 9)
    assert all(result["lifted"] is None for result in before)
    (name,) = judge(client, {"code": code(7), "query": "lids", "items": [{"id": last}], "pinned": True})
    results = ask(client)
    assert (name, results[0]["id"], results[0]["lifted"]) == ("lids", last, {"query": "lids", "pinned": True})
    assert [each["id"] for each in results[1:]] == [each["id"] for each in before[:9]]
    assert [each["distance"] for each in results] == sorted(each["distance"] for each in results)
    assert ask(client, 9) == others
    assert ask(client, profile="hamming") == before
    assert judge(client, {"code": code(7), "items": [{"id": last, "grade": 0}]}) == ["lids"]
    assert ask(client) == before
    assert client.get("/judgements").json() == {"total": 0, "judgements": []}


def test_judgements_that_no_gate_has_seen_are_kept_and_lift_nothing(client):
    before, last = ask(client), far(client)
    judge(client, {"item": 7, "items": [{"id": last, "grade": 2}, {"id": 3}]}, {"code": code(9), "items": [{"id": 4}]})
    assert ask(client) == before
    listed = client.get("/judgements").json()
    assert [each["query"] for each in listed["judgements"]] == [code(7), code(9)]
    items = {each["id"]: each["grade"] for each in listed["judgements"][0]["items"]}
    assert items == {last: 2, 3: 1}
    assert client.get("/judgements?offset=1&limit=1").json()["judgements"][0]["query"] == code(9)
    assert client.request("DELETE", "/judgements", params={"query": code(9)}).status_code == 204
    assert client.request("DELETE", "/judgements", params={"query": code(9)}).status_code == 404
    assert client.get("/judgements").json()["total"] == 1


def test_the_verdict_of_the_folder_lifts_what_the_api_adds_and_hides_what_it_removes(tmp_path):
    collection = Collection.from_codes(CODES)
    last = collection.search(CODES[7], 500).ids[0, -1]
    collection.remember(CODES[7:8], [[int(last)]], query_ids=["known"])
    collection._use("pairs", None, {"memory": 0.0})
    collection.save(tmp_path / "c.bitrank")
    with serving(sources.from_folder(tmp_path / "c.bitrank"), tmp_path) as client:
        lifted = [each for each in ask(client) if each["lifted"]]
        assert [(each["id"], each["lifted"]) for each in lifted] == [(last, {"query": "known", "pinned": False})]
        expected = collection.search(CODES[7:8], 10)
        assert [each["id"] for each in ask(client)] == expected.ids[0].tolist()
        other = far(client, 9)
        judge(client, {"code": code(9), "query": "new", "items": [{"id": other}]})
        assert other in [each["id"] for each in ask(client, 9) if each["lifted"]]
        client.delete(f"/items/{last}")
        assert last not in [each["id"] for each in ask(client)]
        client.request("DELETE", "/judgements", params={"query": "known"})
        assert [each["query"] for each in client.get("/judgements").json()["judgements"]] == ["new"]
    with serving(sources.from_folder(tmp_path / "c.bitrank"), tmp_path) as client:  # what was said is there again
        assert [each["query"] for each in client.get("/judgements").json()["judgements"]] == ["new"]
        assert other in [each["id"] for each in ask(client, 9) if each["lifted"]]


def test_a_key_makes_a_write_count_once_and_bad_input_changes_nothing(client):
    body = {"judgements": [{"code": code(7), "items": [{"id": 3}]}]}
    for _ in range(2):
        assert client.post("/judgements", json=body, headers={"Idempotency-Key": "k"}).status_code == 201
    for wrong, status in (
        ({"judgements": []}, 422),
        ({"judgements": [{"code": code(7), "items": []}]}, 422),
        ({"judgements": [{"items": [{"id": 3}]}]}, 422),
        ({"judgements": [{"code": "00", "items": [{"id": 3}]}]}, 422),
        ({"judgements": [{"vector": [1.0], "items": [{"id": 3}]}]}, 422),
        ({"judgements": [{"code": code(8), "items": [{"id": 3, "grade": 31}]}]}, 422),
        ({"judgements": [{"code": code(8), "items": [{"id": 3}]}, {"code": code(9), "items": [{"id": 900}]}]}, 404),
    ):
        answer = client.post("/judgements", json=wrong)
        assert answer.status_code == status, answer.text
    assert client.get("/judgements").json()["total"] == 1


def test_an_admin_token_is_needed(tmp_path):
    source = sources.from_folder(save_codes(tmp_path))
    with serving(source, tmp_path, token="r" * 16, admin_token="a" * 16) as client:
        body = {"judgements": [{"code": code(7), "items": [{"id": 3}]}]}
        for token, status in (("r" * 16, 403), ("a" * 16, 201)):
            headers = {"Authorization": f"Bearer {token}"}
            assert client.post("/judgements", json=body, headers=headers).status_code == status
            assert client.get("/judgements", headers=headers).status_code == 200


def test_a_file_of_qrels_is_remembered_at_the_start(client, tmp_path):
    path = tmp_path / "qrels.txt"
    path.write_text(f"7 0 3 2\n{code(9)} 0 4 1\n7 5 1\n\n")
    client.service.remembered.read(path)
    listed = client.get("/judgements").json()["judgements"]
    assert [(each["query"], {item["id"] for item in each["items"]}) for each in listed] == [
        ("7", {3, 5}),
        (code(9), {4}),
    ]
    assert client.service.remembered.lift is not None
    for wrong in ("7 0 900 1", "7 0 3 -1", "7 3", "nothing 0 3 1"):
        path.write_text(wrong)
        with pytest.raises(ValueError, match="line 1 must be"):
            client.service.remembered.read(path)


def test_vectors_are_judged_queries(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 16))
    for bits in (None, 2):
        collection = Collection.from_vectors(X, bits=bits, random_state=0)
        folder = tmp_path / f"{bits}"
        folder.mkdir()
        collection.save(folder / "c.bitrank")
        with serving(sources.from_folder(folder / "c.bitrank"), folder) as client:
            vector = {"vector": rng.normal(size=16).tolist()}
            plain = client.post("/search", json={**vector, "k": 300, "explore": 0}).json()["results"]
            judge(client, {**vector, "query": "v", "items": [{"id": plain[-1]["id"]}], "pinned": True})
            first = client.post("/search", json={**vector, "k": 5, "explore": 0}).json()["results"][0]
            assert (first["id"], first["lifted"]) == (plain[-1]["id"], {"query": "v", "pinned": True})


def test_a_database_of_the_format_before_gets_the_table(tmp_path):
    assert FORMAT >= 9
    store = Store(f"sqlite:///{tmp_path / 'new.db'}", 32)
    assert store.judgements.changed(0) == (0, [])
    store.close()
