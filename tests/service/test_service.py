"""The API of the service: every route against an independent reference, and what each must refuse."""

import base64
import io
import json
import os
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from serving import serving
from threads import in_threads

from bitrank import ITQ, Collection, SignBits
from bitrank.core.codes import pack, unpack
from bitrank.datasets import DIGIT_CODES, DIGIT_HASHER, digits
from bitrank.hashing import load_hasher
from bitrank.index import Index
from bitrank.ranking import AgreementRanker
from bitrank.service import images, sources
from bitrank.service.collection import SearchQuery
from bitrank.service.page_tokens import Signer
from bitrank.service.searching import PageRequest
from bitrank.service.service import Service
from bitrank.service.settings import TOKEN_LIFETIME_S, Settings
from bitrank.service.store import Store, profiles
from bitrank.service.store.page_log import read_page

N_BITS, N = 20, 300
BITS = np.random.default_rng(0).integers(0, 2, (N, N_BITS), dtype=np.uint8)
CODES = pack(BITS)
IDS = np.arange(N) * 3 + 1


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An index of 20-bit codes with items, pictures and a hasher, as a user has them."""
    folder = tmp_path_factory.mktemp("files")
    Index(CODES, n_bits=N_BITS, ids=IDS).save(folder / "my.index")
    (folder / "pictures").mkdir()
    Image.new("RGB", (8, 8), "red").save(folder / "pictures" / "red.png")
    (folder.parent / "secret.png").write_bytes(b"secret")
    os.symlink(folder.parent / "secret.png", folder / "pictures" / "link.png")
    names = ["pictures/red.png", "../secret.png", "pictures/link.png", "https://images.example.org/a.png", None]
    table = {
        "id": IDS,
        "title": [f"<b>item</b> {i}" for i in IDS],
        "image": [names[i % 5] for i in range(N)],
        "price": [float("nan") if i == 0 else i / 2 for i in range(N)],
        "day": pa.array([1_700_000_000] * N, pa.timestamp("s")),
    }
    pyarrow.parquet.write_table(pa.table(table), folder / "items.parquet")
    rng = np.random.default_rng(1)
    SignBits().fit(rng.normal(size=(50, N_BITS))).save(folder / "hasher.npz")
    return folder


def load(files):
    return sources.from_folder(files / "my.index", files / "items.parquet", files / "hasher.npz", None)


@pytest.fixture
def client(files, tmp_path):
    with serving(load(files), tmp_path) as client:
        yield client


@pytest.fixture(scope="module")
def shared(files, tmp_path_factory):
    """A client for tests that only read."""
    with serving(load(files), tmp_path_factory.mktemp("shared")) as client:
        yield client


def hits(response):
    assert response.status_code == 200, response.text
    return [(result["id"], result["distance"]) for result in response.json()["results"]]


def reference(query_bits, weights, k, leave_out=None):
    """Find the nearest items by weighted Hamming distance, from unpacked bits."""
    distances = ((query_bits != BITS) * np.asarray(weights)).sum(axis=1)
    rows = sorted((d, i) for d, i in zip(distances.tolist(), IDS.tolist(), strict=True) if i != leave_out)
    return [(i, pytest.approx(d, rel=1e-5)) for d, i in rows[:k]]


# Searches


@given(st.integers(0, 2**N_BITS - 1), st.integers(1, 40), st.sampled_from(["hex", "base64"]))
@settings(max_examples=40, deadline=None)
def test_search_by_code_equals_reference(shared, value, k, form):
    bits = np.array([value >> i & 1 for i in range(N_BITS)], np.uint8)
    raw = pack(bits[None]).tobytes()
    text = raw.hex() if form == "hex" else base64.b64encode(raw).decode()
    response = shared.post("/search", json={"code": text, "k": k, "explore": 0})
    assert hits(response) == reference(bits, np.ones(N_BITS), k)
    assert response.json()["query"] == {"code": raw.hex(), "item": None}


def test_search_by_item_leaves_the_item_out(shared):
    response = shared.post("/search", json={"item": int(IDS[7]), "k": 15, "explore": 0})
    assert hits(response) == reference(BITS[7], np.ones(N_BITS), 15, leave_out=IDS[7])


def test_search_by_vector_uses_magnitudes_and_hamming_does_not(shared, files):
    vector = np.random.default_rng(2).normal(size=N_BITS)
    values = vector - np.load(files / "hasher.npz")["mean_"]
    body = {"vector": vector.tolist(), "k": 12, "explore": 0}
    assert hits(shared.post("/search", json=body)) == reference(values > 0, np.abs(values), 12)
    assert hits(shared.post("/search?profile=hamming", json=body)) == reference(values > 0, np.ones(N_BITS), 12)


def test_distances_are_what_json_can_hold(client):
    client.post("/profiles/default/versions", json={"weights": [1e30] * N_BITS})
    body = {"vector": [1e8] * N_BITS, "version": 2, "k": 100}  # each product is finite in float32, their sum is not
    refused = client.post("/search", json=body)
    assert (refused.status_code, "sum to a finite value" in refused.json()["detail"]) == (422, True)
    body["vector"] = [1e6] * N_BITS
    assert all(0 <= distance < 1e38 for _, distance in hits(client.post("/search", json=body)))


def test_results_carry_ranks_ties_and_texts(shared):
    results = shared.post("/search", json={"item": 1, "k": 30, "explore": 0}).json()["results"]
    assert [result["rank"] for result in results] == list(range(1, 31))
    distances = [result["distance"] for result in results]
    assert [result["tie"] for result in results] == [distances.index(d) + 1 for d in distances]
    assert len(set(distances)) < 30
    for result in results:
        row = (result["id"] - 1) // 3
        assert result["title"] == f"<b>item</b> {result['id']}"
        assert result["payload"]["price"] == (None if row == 0 else row / 2)
        assert result["payload"]["day"].startswith("2023-11-14")
        expected = f"/items/{result['id']}/image"
        assert result["image"] == [expected, expected, expected, "https://images.example.org/a.png", None][row % 5]


def test_the_embedded_codes_of_the_digits_are_those_of_their_hasher():
    X = digits().images.reshape(10_000, -1) / np.float32(255)
    codes, values = np.load(DIGIT_CODES), load_hasher(DIGIT_HASHER).project(X)
    assert codes.shape == (10_000, 8)
    # Linear algebra rounds differently on another machine: values next to zero may change their sign.
    assert np.abs(values[unpack(codes, 64) != (values > 0)]).max(initial=0) < 1e-4


@pytest.mark.slow
def test_the_embedded_hasher_of_the_digits_is_what_itq_learns():
    X = digits().images.reshape(10_000, -1) / np.float32(255)
    assert (np.load(DIGIT_CODES) == ITQ(64, random_state=0).fit(X[:2000]).transform(X)).mean() > 0.99


def test_digits_are_found_by_their_own_pictures(tmp_path):
    with serving(sources.embedded_digits(), tmp_path) as client:
        assert client.get("/collection").json() == {
            "name": "digits",
            "n_items": 10_000,
            "n_bits": 64,
            "has_images": True,
            "has_hasher": True,
            "columns": ["label"],
            "image_search": True,
            "page_size": 20,
            "explore": 4,
        }
        picture = client.get("/items/12/image")
        assert picture.headers["content-type"] == "image/png"
        pixels = np.asarray(Image.open(io.BytesIO(picture.content)))
        np.testing.assert_array_equal(255 - pixels, digits().images[12])
        upload = {"file": ("digit.png", picture.content, "image/png")}
        top = client.post("/search/image?k=3&explore=0", files=upload).json()
        assert top["results"][0]["id"] == 12
        assert top["results"][0]["distance"] == 0
        # The same digit drawn large and off centre in a JPEG: its neighbours are still of its class.
        large = Image.new("RGB", (400, 300), "white")
        large.paste(Image.fromarray(pixels).resize((112, 112)), (250, 20))
        out = io.BytesIO()
        large.save(out, "JPEG")
        near = client.post("/search/image?k=10&explore=0", files={"file": ("d.jpg", out.getvalue(), "image/jpeg")})
        labels = [result["payload"]["label"] for result in near.json()["results"]]
        assert labels.count(digits().labels[12]) >= 8


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_searches_that_run_together_are_those_that_run_alone(shared, data):
    """One batch of any mixture, against the reference."""
    asked = data.draw(st.lists(st.tuples(st.integers(0, N - 1), st.integers(1, 90)), min_size=1, max_size=9))
    kinds = [data.draw(st.sampled_from(["item", "code"])) for _ in asked]
    searcher, collection = shared.service.searcher, shared.service.collection
    plans = []
    for (row, k), kind in zip(asked, kinds, strict=True):
        by_item = kind == "item"
        query = (
            collection.query_of_item(int(IDS[row])) if by_item else collection.query_of_code(CODES[row].tobytes().hex())
        )
        plans.append(searcher.plan(query, PageRequest(k, explore=0)))
    for (row, k), kind, body in zip(asked, kinds, searcher.run(plans), strict=True):
        results = [(result["id"], result["distance"]) for result in json.loads(body)["results"]]
        assert results == reference(BITS[row], np.ones(N_BITS), k, leave_out=IDS[row] if kind == "item" else None)


def test_concurrent_searches_answer_their_own_clients(shared):
    wrong = []

    def search(row):
        for k in (3, 70, 7):
            response = shared.post("/search", json={"item": int(IDS[row]), "k": k, "explore": 0})
            if hits(response) != reference(BITS[row], np.ones(N_BITS), k, leave_out=IDS[row]):
                wrong.append(row)

    in_threads(*(lambda row=row: search(row) for row in range(12)))
    assert wrong == []


# Feedback


def page_of(client, query=None, **options):
    """Search, and return the page as the service showed it: its token and its ids."""
    page = client.post("/search", json={"k": 6, **(query or {"item": 1}), **options}).json()
    return page["page_token"], [result["id"] for result in page["results"]]


def answer(client, token, clicked=(), **more):
    return client.post("/feedback", json={"page_token": token, "clicked": list(clicked), **more})


def last_page(client, profile="default"):
    return client.service.store.pages.after(profile, 0, 1000)[-1]


def places_of(row):
    """Return id, explored and clicked of every place that a page showed."""
    shown = json.loads(row.shown)
    return [(item, at in shown["explored"], at in shown["clicked"]) for at, item in enumerate(shown["ids"])]


def test_a_page_is_logged_as_it_was_shown_with_all_that_was_chosen(client):
    for query in ({"item": 1}, {"code": "0f0ff0"}, {"vector": np.linspace(-1, 1, N_BITS).tolist()}):
        page = client.post("/search", json={**query, "k": 10, "explore": 3}).json()
        shown = [(result["id"], result["explored"]) for result in page["results"]]
        clicked = [shown[2][0], shown[7][0]]
        assert answer(client, page["page_token"], clicked).status_code == 201
        row = last_page(client)
        assert [place[:2] for place in places_of(row)] == shown
        assert [item for item, _, is_clicked in places_of(row) if is_clicked] == clicked
        assert (row.signed, row.version, row.query_item) == (True, 1, query.get("item"))
        assert row.client == client.service.clients.name("127.0.0.1")
        assert "127.0.0.1" not in row.client
        assert row.query_code.hex() == page["query"]["code"]
        if "vector" in query:
            logged = read_page(row).query
            np.testing.assert_array_equal(logged, client.service.collection.query_of_vector(query["vector"]).vector[0])


def test_the_same_page_counts_once(client):
    token, ids = page_of(client)
    first, again = answer(client, token, ids[2:3]), answer(client, token, ids)
    assert (first.status_code, first.json()["accepted"], first.json()["n_pages"]) == (201, True, 1)
    assert (again.status_code, again.json()) == (200, first.json() | {"accepted": False})
    other, shown = page_of(client)
    assert answer(client, other, shown[:1]).json()["n_pages"] == 2
    (first_row,) = client.service.store.pages.after("default", 0, 1)
    assert [item for item, _, is_clicked in places_of(first_row) if is_clicked] == ids[2:3]


def test_pages_that_were_never_shown_are_refused(client):
    """The finding: whoever claimed to have seen 1000 results, all clicked, could steer the ranking."""
    token, ids = page_of(client)
    other = next(int(item) for item in IDS if item not in ids)
    assert "clicked must be among the items shown" in answer(client, token, [other]).json()["detail"]
    assert answer(client, token, [ids[0], other]).status_code == 422
    shown = [{"id": int(item)} for item in IDS]
    old = {"key": "forged", "query": {"item": 1}, "shown": shown, "clicked": [int(item) for item in IDS]}
    assert client.post("/feedback", json=old).status_code == 422
    for forged in (token[:-4] + "AAAA", token[4:], token + "AAAA", "AAAA", "?", token.rstrip("=") + "\n"):
        refused = answer(client, forged, ids[:1])
        assert (refused.status_code, "page token" in refused.json()["detail"]) == (422, True), forged
    raw = bytearray(base64.urlsafe_b64decode(token))
    for place in range(0, len(raw), 7):  # any changed byte
        raw[place] ^= 1
        assert answer(client, base64.urlsafe_b64encode(raw).decode(), ids[:1]).status_code == 422
        raw[place] ^= 1
    elsewhere = Signer(b"another secret").sign(SearchQuery(CODES[:1], 1), "", "default", 1, ids, [False] * len(ids))
    assert answer(client, elsewhere, ids[:1]).status_code == 422
    assert client.get("/profiles").json()[1]["n_pages"] == 0
    assert answer(client, token, ids[:1]).status_code == 201


def test_tokens_expire():
    now = [1000.0]
    signer = Signer(b"secret", clock=lambda: now[0])
    token = signer.sign(SearchQuery(CODES[:1], 1), "", "default", 1, [4], [False])
    now[0] += TOKEN_LIFETIME_S
    assert signer.read(token).shown == [4]
    now[0] += 1
    with pytest.raises(ValueError, match="at most 24 hours old"):
        signer.read(token)


def test_tokens_outlive_a_restart_and_count_once(files, tmp_path):
    with serving(load(files), tmp_path) as client:
        token, ids = page_of(client)
        answered, _ = page_of(client)
        assert answer(client, answered).status_code == 201
    with serving(load(files), tmp_path) as client:
        assert answer(client, token, ids[:1]).status_code == 201
        assert answer(client, answered).status_code == 200


def test_pages_that_continue_each_other_are_one_page(client):
    query = {"code": "0f0ff0"}
    first = client.post("/search", json={**query, "k": 5, "explore": 0}).json()
    ids = [result["id"] for result in first["results"]]
    more = {"chosen": [ids[4]], "version": "candidate", "k": 9, "explore": 2, "continues": first["page_token"]}
    second = client.post("/search", json={**query, **more}).json()
    later = [result["id"] for result in second["results"] if result["id"] not in ids]
    assert later
    assert answer(client, second["page_token"], [ids[4], later[0]]).status_code == 201
    places = places_of(last_page(client))
    assert [item for item, _, _ in places] == ids + later
    explored = [result["id"] for result in second["results"] if result["explored"]]
    assert [item for item, is_explored, _ in places if is_explored] == [i for i in later if i in explored]
    assert answer(client, first["page_token"], ids[:1]).status_code == 200
    for wrong in ({"code": "0f0f00"}, {**query, "profile": "hamming"}):
        refused = client.post("/search", json={**wrong, "continues": first["page_token"]})
        assert (refused.status_code, "same query and profile" in refused.json()["detail"]) == (422, True)
    large = client.post("/search", json={**query, "k": 300, "explore": 0}).json()["page_token"]
    assert client.post("/search", json={**query, "k": 900, "continues": large}).status_code == 422


def test_a_page_of_hamming_teaches_the_profile_that_the_answer_names(client):
    token, ids = page_of(client, profile="hamming")
    assert answer(client, token, ids[:1]).status_code == 403
    assert answer(client, token, ids[:1], profile="nobody").status_code == 404
    assert answer(client, token, ids[:1], profile="default").json()["n_pages"] == 1
    client.put("/profiles/tenant")
    own, ids = page_of(client, profile="tenant")
    assert answer(client, own, ids[:1], profile="default").status_code == 422
    assert answer(client, own, ids[:1], profile="tenant").status_code == 201


def test_imported_pages_are_marked_and_count_once(client):
    body = GOOD | {"client": "session-7"}
    assert client.post("/feedback/import", json=body).status_code == 201
    assert client.post("/feedback/import", json=body).status_code == 200
    row = last_page(client)
    assert (row.signed, row.client, row.key) == (False, "session-7", "k")


def test_one_page_from_many_threads_counts_once(client):
    tokens = [page_of(client)[0] for _ in range(5)]
    statuses = []

    def send(number):
        statuses.append(answer(client, tokens[number % 5]).status_code)

    in_threads(*(lambda number=number: send(number) for number in range(20)))
    assert sorted(statuses) == [200] * 15 + [201] * 5
    assert client.get("/profiles").json()[1]["n_pages"] == 5


def test_clicks_of_profiles_are_kept_apart(client):
    assert client.put("/profiles/tenant").status_code == 201
    assert answer(client, page_of(client, profile="tenant")[0]).json()["n_pages"] == 1
    assert answer(client, page_of(client, profile="tenant")[0]).json()["n_pages"] == 2
    assert answer(client, page_of(client)[0]).json()["n_pages"] == 1


def test_a_removed_item_does_not_lose_the_click(client):
    token, ids = page_of(client)
    assert client.delete(f"/items/{ids[0]}").status_code == 204
    assert answer(client, token, ids[:2]).status_code == 201
    assert [item for item, _, _ in places_of(last_page(client))] == ids[1:]


# Items


def test_items_are_added_replaced_removed_and_found(client):
    new = {"id": 5000, "code": "fffff0", "title": "new", "payload": {"deep": [1, {"a": None}]}}
    other = {"id": 1, "vector": np.linspace(-1, 1, N_BITS).tolist(), "image": "pictures/red.png"}
    response = client.post("/items", json={"items": [new, other]})
    assert (response.status_code, response.json()) == (201, {"added": 1, "replaced": 1})
    assert client.get("/items/5000").json() == new | {"image": None}
    assert client.get("/items/1").json()["image"] == "/items/1/image"
    assert client.get("/items/1").json()["title"] is None
    top = client.post("/search", json={"code": "fffff0", "k": 1, "explore": 0}).json()["results"][0]
    assert (top["id"], top["distance"], top["title"]) == (5000, 0, "new")
    assert client.delete("/items/5000").status_code == 204
    assert client.delete("/items/5000").status_code == 404
    assert client.get("/items/5000").status_code == 404
    listed = client.get("/items?offset=1&limit=3").json()
    assert listed["total"] == N
    assert [item["id"] for item in listed["items"]] == IDS[1:4].tolist()
    assert [item["code"] for item in listed["items"]] == [code.tobytes().hex() for code in CODES[1:4]]


def test_items_survive_a_restart(files, tmp_path):
    with serving(load(files), tmp_path) as client:
        client.post("/items", json={"items": [{"id": i, "code": f"{i:04x}f0"} for i in range(1000, 1030)]})
        client.delete("/items/1003")
        client.delete("/items/1")
        before = client.post("/search", json={"code": "03f0f0", "k": 50, "explore": 0}).json()["results"]
    with serving(load(files), tmp_path) as client:
        after = client.post("/search", json={"code": "03f0f0", "k": 50, "explore": 0}).json()["results"]
        assert after == before
        assert client.get("/collection").json()["n_items"] == N - 1 + 29
        assert client.get("/items/1003").status_code == client.get("/items/1").status_code == 404
        assert client.post("/items", json={"items": [{"id": 1, "code": "0000f0"}]}).json() == {
            "added": 1,
            "replaced": 0,
        }


def test_pictures_are_confined_to_their_folder(client):
    shown = client.get("/items/1/image")
    assert (shown.status_code, shown.headers["content-type"]) == (200, "image/png")
    assert client.get("/items/4/image").status_code == 422  # ../secret.png
    assert client.get("/items/7/image").status_code == 422  # a link out of the folder
    assert client.get("/items/10/image").status_code == 404  # a URL is not ours to serve
    assert client.get("/items/13/image").status_code == 404
    for bad in ("../secret.png", "/etc/hosts.png", "pictures/link.png", "pictures/a.svg", "items.parquet", "a\0.png"):
        response = client.post("/items", json={"items": [{"id": 9000, "code": "000000", "image": bad}]})
        assert response.status_code == 422, bad
    assert client.get("/items/9000").status_code == 404


# Profiles and versions


def test_versions_are_added_activated_and_rolled_back(client):
    weights = np.linspace(0.5, 2, N_BITS).round(3)
    made = client.post("/profiles/default/versions", json={"weights": weights.tolist()})
    assert (made.status_code, made.json()["number"], made.json()["active"]) == (201, 2, False)
    body = {"item": 1, "k": 9, "explore": 0}
    plain = reference(BITS[0], np.ones(N_BITS), 9, leave_out=1)
    weighted = reference(BITS[0], weights, 9, leave_out=1)
    assert hits(client.post("/search", json=body)) == plain
    assert hits(client.post("/search", json=body | {"version": 2})) == weighted
    assert client.post("/profiles/default/versions/2/activate").json() == {"profile": "default", "version": 2}
    answer = client.post("/search", json=body)
    assert (hits(answer), answer.json()["version"]) == (weighted, 2)
    assert hits(client.post("/search?profile=hamming", json=body)) == plain
    shown = client.get("/profiles/default/versions/2").json()
    np.testing.assert_allclose(shown["weights"], weights, rtol=1e-6)
    assert shown["origin"] == "given"
    listed = client.get("/profiles/default/versions").json()
    assert (listed["active"], listed["rollback_to"]) == (2, 1)
    assert [entry["reason"] for entry in listed["activations"]] == ["start", "user"]
    assert client.post("/profiles/default/rollback").json()["version"] == 1
    assert hits(client.post("/search", json=body)) == plain
    assert client.post("/profiles/default/rollback").status_code == 409
    assert [v["number"] for v in client.get("/profiles/default/versions").json()["versions"]] == [1, 2]


def test_profiles_are_created_once(client):
    weights = {"weights": [1.0] * N_BITS}
    assert client.put("/profiles/arm-b", json=weights).status_code == 201
    assert client.put("/profiles/arm-b").status_code == 200
    assert client.put("/profiles/arm-b", json=weights).status_code == 409
    assert [p["name"] for p in client.get("/profiles").json()] == ["hamming", "default", "arm-b"]


def test_a_vector_is_the_features_that_the_ranker_learned_from(featured, tmp_path):
    codes = featured.hasher.transform(featured.items)
    source = sources.Source("pixels", Index(codes), sources.Items(), lambda: featured.hasher)
    asked = featured.ranker.queries_for(
        featured.hasher.project(featured.queries), features=featured.queries, collection=codes
    )
    expected = Index(codes).search(asked, 10)
    with serving(source, tmp_path, ranker=featured.ranker, explore=0) as client:
        for query, distances in zip(featured.queries[:5], expected.distances, strict=False):
            for _ in range(2):  # at first on a thread, which loads the hasher
                results = client.post("/search", json={"vector": query.tolist(), "k": 10}).json()["results"]
                np.testing.assert_allclose([row["distance"] for row in results], distances, rtol=1e-4)


def test_a_ranker_that_ranks_vectors_by_other_weights_than_codes(tmp_path):
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(200, 24)) * rng.uniform(0.2, 2, 24), rng.integers(4, size=200)
    hasher = SignBits().fit(X)
    codes = hasher.transform(X)
    ranker = AgreementRanker(random_state=0).fit(codes, y, queries=hasher.project(X))
    source = sources.Source("codes", Index(codes, n_bits=24), sources.Items(), lambda: hasher)
    query = rng.normal(size=(1, 24))
    expected = Index(codes, n_bits=24).search(ranker.queries_for(hasher.project(query)), 10)
    with serving(source, tmp_path, ranker=ranker, explore=0) as client:
        found = client.post("/search", json={"vector": query[0].tolist(), "k": 10}).json()["results"]
    assert [row["id"] for row in found] == expected.ids[0].tolist()


def test_an_index_with_weights_starts_from_them(tmp_path):
    weights = np.arange(N_BITS, dtype=np.float32)
    source = sources.Source("w", Index(CODES, n_bits=N_BITS, ids=IDS, weights=weights), sources.Items())
    with serving(source, tmp_path) as client:
        assert client.get("/profiles/default/versions/1").json()["weights"] == weights.tolist()
        body = {"item": 1, "k": 9, "explore": 0}
        assert hits(client.post("/search", json=body)) == reference(BITS[0], weights, 9, leave_out=1)


def test_a_database_of_other_codes_is_refused(files, tmp_path):
    with serving(load(files), tmp_path):
        pass
    other = sources.Source("other", Index(np.zeros((1, 2), np.uint8)), sources.Items())
    with pytest.raises(ValueError, match="must have n_bits 16, got one with 20"), serving(other, tmp_path):
        pass


def test_a_write_with_a_key_is_done_once(client):
    """Who gets no answer sends a write again: a rollback must not go back twice, a version must not be added twice."""

    def send(method, path, key, body=None):
        response = client.request(method, path, json=body, headers={"idempotency-key": key})
        return response.status_code, response.json() if response.content else None

    weights = {"weights": [2.0] * N_BITS}
    item = {"items": [{"id": 5000, "code": "000000"}]}
    writes = [
        ("POST", "/profiles/default/versions", "a", weights),
        ("POST", "/profiles/default/versions/2/activate", "b", None),
        ("POST", "/profiles/default/versions", "c", weights),
        ("POST", "/profiles/default/versions/3/activate", "d", None),
        ("POST", "/profiles/default/rollback", "e", None),
        ("PUT", "/profiles/tenant", "f", weights),
        ("POST", "/items", "g", item),
        ("DELETE", "/items/5000", "h", None),
    ]
    for write in writes:
        first, again = send(*write), send(*write)
        assert first[0] in (200, 201, 204)
        assert again == first, write
    listed = client.get("/profiles/default/versions").json()
    assert (listed["active"], [version["number"] for version in listed["versions"]]) == (2, [1, 2, 3])
    assert [entry["reason"] for entry in listed["activations"]] == ["start", "user", "user", "rollback"]
    assert client.get("/collection").json()["n_items"] == N
    status, problem = send("POST", "/profiles/tenant/rollback", "e")
    assert (status, "must be new for another request" in problem["detail"]) == (422, True)
    assert send("POST", "/items", "g", {"items": [{"id": 5001, "code": "000000"}]})[0] == 422
    assert send("POST", "/profiles/default/rollback", "e2")[1]["version"] == 1  # another key, another rollback
    assert send("POST", "/profiles/default/rollback", "a b")[0] == 422


def test_one_key_from_many_threads_is_done_once(client):
    answers = []

    def add():
        headers = {"idempotency-key": "same"}
        body = {"weights": [2.0] * N_BITS}
        answers.append(client.post("/profiles/default/versions", json=body, headers=headers).json()["number"])

    in_threads(*[add] * 8)
    assert answers == [2] * 8
    assert len(client.get("/profiles/default/versions").json()["versions"]) == 2


def test_a_database_of_another_collection_is_refused(tmp_path):
    """Codes of the same length are not enough: clicks on other items would be learned from."""

    def source(codes, ids=None):
        return sources.Source("codes", Index(codes, n_bits=N_BITS, ids=ids), sources.Items())

    with serving(source(CODES), tmp_path):
        pass
    other = pack(np.random.default_rng(9).integers(0, 2, (N, N_BITS), dtype=np.uint8))
    for another in (source(other), source(CODES, IDS + 10_000)):
        with pytest.raises(ValueError, match=r"that of this collection, got one of another: \d+ of 64"):
            serving(another, tmp_path).__enter__()
    # The same collection, built again with a few items more and fewer.
    with serving(source(np.concatenate([CODES[:280], other[:100]])), tmp_path) as client:
        assert client.get("/collection").json()["n_items"] == 380


def test_a_collection_may_change_slowly(tmp_path):
    """Each start is compared with the one before it, not with the first."""
    codes = pack(np.random.default_rng(0).integers(0, 2, (800, N_BITS), dtype=np.uint8))
    url = f"sqlite:///{tmp_path / 'bitrank.db'}"
    for start in (0, 80, 160, 240, 320, 240):
        rows = np.arange(start, start + 200)  # 60 % of those before
        Store(url, N_BITS, Index(codes[rows], n_bits=N_BITS, ids=rows)).close()
    for start in (0, 600):
        rows = np.arange(start, start + 200)
        for _ in range(2):  # a collection that was refused is not remembered
            with pytest.raises(ValueError, match="0 of 64 of its items are the same"):
                Store(url, N_BITS, Index(codes[rows], n_bits=N_BITS, ids=rows))


def test_one_thousand_profiles_fit_and_not_one_more(client, monkeypatch):
    monkeypatch.setattr(profiles, "MAX_PROFILES", 12)
    statuses = []

    def create(number):
        statuses.append(client.put(f"/profiles/p{number}").status_code)

    in_threads(*(lambda number=number: create(number) for number in range(24)))
    assert sorted(statuses) == [201] * 10 + [422] * 14
    assert len(client.get("/profiles").json()) == 12
    assert client.put("/profiles/default").status_code == 200


def test_an_item_chosen_twice_counts_once(client):
    plain = client.post("/search", json={"item": 1, "explore": 0}).json()["results"]
    chosen = plain[9]["id"]
    once, twice = (
        client.post("/search", json={"item": 1, "explore": 0, "chosen": [chosen] * n}).json() for n in (1, 2)
    )
    assert once["results"] == twice["results"] != plain


def test_a_loop_of_links_is_not_found(client, files):
    for name, target in (("a.png", "b.png"), ("b.png", "a.png")):
        (files / "pictures" / name).symlink_to(files / "pictures" / target)
    response = client.post("/items", json={"items": [{"id": 9000, "code": "000000", "image": "pictures/a.png"}]})
    assert (response.status_code, "can be found" in response.json()["detail"]) == (422, True)


def test_a_pipe_is_no_picture(client, files):
    os.mkfifo(files / "pictures" / "pipe.png")
    client.post("/items", json={"items": [{"id": 9001, "code": "000000", "image": "pictures/pipe.png"}]})
    assert client.get("/items/9001/image").status_code == 404


def test_ids_stay_sorted_and_whole_through_any_changes(client):
    rng = np.random.default_rng(5)
    present = {int(item) for item in IDS}
    for _ in range(12):
        batch = sorted({int(item) for item in rng.integers(0, 1200, 9)})
        added = client.post("/items", json={"items": [{"id": item, "code": "000000"} for item in batch]}).json()
        assert added == {"added": len(set(batch) - present), "replaced": len(present & set(batch))}
        present |= set(batch)
        for item in rng.choice(sorted(present), 3, replace=False).tolist():
            assert client.delete(f"/items/{item}").status_code == 204
            present.remove(item)
        listed = client.get("/items?limit=1000").json()
        assert [item["id"] for item in listed["items"]] == sorted(present)


# What is refused

DEEP = {"a": 1}
for _ in range(16):
    DEEP = {"a": DEEP}
LONG = {"a": "x" * 16_384}
GOOD = {"key": "k", "query": {"item": 1}, "shown": [{"id": 1}, {"id": 4}], "clicked": [4]}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", "/search", {}, 422, "exactly one of item, code, vector and positives, got none"),
        ("POST", "/search", {"item": 1, "code": "00"}, 422, "exactly one"),
        ("POST", "/search", {"item": 2}, 404, "no item 2"),
        ("POST", "/search", {"item": -1}, 422, "greater than or equal to 0"),
        ("POST", "/search", {"item": 2**63}, 422, "less than"),
        ("POST", "/search", {"item": "1"}, 422, "valid integer"),
        ("POST", "/search", {"item": 1, "k": 0}, 422, "k: "),
        ("POST", "/search", {"item": 1, "k": 1001}, 422, "k: "),
        ("POST", "/search", {"item": 1, "kk": 5}, 422, "kk: "),
        ("POST", "/search", {"item": 1, "profile": "nobody"}, 404, "no profile 'nobody'"),
        ("POST", "/search", {"item": 1, "profile": "../x"}, 422, "pattern"),
        ("POST", "/search", {"item": 1, "version": 9}, 404, "no version 9"),
        ("POST", "/search", {"item": 1, "version": "newest"}, 422, "version"),
        ("POST", "/search", {"item": 1, "explore": -1}, 422, "explore"),
        ("POST", "/search", {"code": "00"}, 422, "6 hex digits or base64 of 3 bytes, got '00'"),
        ("POST", "/search", {"code": "zzzzzz"}, 422, "6 hex digits"),
        ("POST", "/search", {"code": "00000f"}, 422, "last 4 bits"),
        ("POST", "/search", {"vector": [1.0]}, 422, "vector must hold 20 numbers, got 1"),
        ("POST", "/search", {"vector": []}, 422, "vector"),
        ("POST", "/search", {"vector": [1e308] * 20}, 422, "float32"),
        ("POST", "/search", {"vector": [3e38] * 20}, 422, "at most 1e+15"),
        ("POST", "/feedback/import", GOOD | {"query": {"vector": [3e38] * 20}}, 422, "at most 1e+15"),
        ("POST", "/items", {"items": [{"id": 5000, "vector": [3e38] * 20}]}, 422, "at most 1e+15"),
        ("POST", "/feedback/import", GOOD | {"clicked": [7]}, 422, "clicked must be among the items shown, got 7"),
        ("POST", "/feedback/import", GOOD | {"shown": [{"id": 1}, {"id": 1}], "clicked": []}, 422, "every item once"),
        (
            "POST",
            "/feedback/import",
            GOOD | {"shown": [{"id": 2}], "clicked": []},
            422,
            "items of this collection, got 2",
        ),
        ("POST", "/feedback/import", GOOD | {"shown": []}, 422, "shown"),
        ("POST", "/feedback/import", GOOD | {"key": ""}, 422, "key"),
        ("POST", "/feedback/import", GOOD | {"key": "a b"}, 422, "key"),
        ("POST", "/feedback/import", GOOD | {"query": {"item": 2}}, 404, "no item 2"),
        ("POST", "/feedback/import", GOOD | {"profile": "hamming"}, 403, "read-only"),
        ("POST", "/feedback/import", GOOD | {"profile": "nobody"}, 404, "nobody"),
        ("POST", "/feedback/import", GOOD | {"version": 9}, 404, "no version 9"),
        ("POST", "/items", {"items": []}, 422, "items"),
        ("POST", "/items", {"items": [{"id": 5000}]}, 422, "either a code or a vector"),
        ("POST", "/items", {"items": [{"id": 5000, "code": "000000"}] * 2}, 422, "every id once"),
        ("POST", "/items", {"items": [{"id": 5000, "code": "000000"}, {"id": 1, "code": "0"}]}, 422, "hex digits"),
        ("POST", "/items", {"items": [{"id": 5000, "code": "000000", "title": "x" * 2001}]}, 422, "title"),
        ("POST", "/items", {"items": [{"id": 5000, "code": "000000", "title": "a\0b"}]}, 422, "zero character"),
        ("POST", "/items", {"items": [{"id": 5000, "code": "000000", "payload": DEEP}]}, 422, "at most 16 deep"),
        ("POST", "/items", {"items": [{"id": 5000, "code": "000000", "payload": LONG}]}, 422, "at most 16384 bytes"),
        ("POST", "/items", {"items": [{"id": i, "code": "000000"} for i in range(1001)]}, 422, "items"),
        ("GET", "/items/2", None, 404, "no item 2"),
        ("GET", "/items/x", None, 422, "item: "),
        ("GET", "/items?limit=1001", None, 422, "limit"),
        ("DELETE", "/items/2", None, 404, "no item 2"),
        ("PUT", "/profiles/a b", None, 422, "name: "),
        ("PUT", "/profiles/b", {"weights": [1.0]}, 422, "weights must hold 20 values, one per bit, got 1"),
        ("PUT", "/profiles/b", {"weights": [-1.0] * 20}, 422, "greater than or equal to 0"),
        ("GET", "/profiles/nobody/versions", None, 404, "nobody"),
        ("GET", "/profiles/default/versions/7", None, 404, "no version 7"),
        ("GET", "/profiles/nobody/quality", None, 404, "nobody"),
        ("POST", "/profiles/default/versions/7/activate", None, 404, "no version 7"),
        ("POST", "/profiles/hamming/versions", {"weights": [1.0] * 20}, 403, "read-only"),
        ("POST", "/profiles/hamming/rollback", None, 403, "read-only"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(shared, method, path, body, status, message):
    before = shared.get("/profiles").json(), shared.get("/collection").json()
    response = shared.request(method, path, json=body)
    assert response.status_code == status, response.text
    assert message in response.json()["detail"]
    assert (shared.get("/profiles").json(), shared.get("/collection").json()) == before


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        (b"{", 422, "the body must be JSON: EOF while parsing"),
        (b"\xff\xfe", 422, "the body must be JSON"),
        (b'{"vector": [NaN, 1]}', 422, "vector.0: Input should be a finite number, got nan"),
        (b'{"item": "1", "k": 0}', 422, "item: Input should be a valid integer, got '1'; k: .* or equal to 1, got 0"),
        (b'{"item": ' + b"9" * 5000 + b"}", 422, "the body must be JSON: number out of range"),
        (b"[" * 100_000, 422, "the body must be JSON: recursion limit exceeded"),
        (b"", 422, "the body must be JSON: EOF while parsing"),
    ],
)
def test_broken_json_is_refused(shared, content, status, message):
    response = shared.post("/search", content=content, headers={"content-type": "application/json"})
    assert response.status_code == status
    assert re.search(message, response.json()["detail"])


def test_json_of_another_kind_is_named(shared):
    refused = shared.post("/search", content=b'{"item": 1}', headers={"content-type": "text/plain"})
    assert (refused.status_code, "Content-Type: application/json" in refused.json()["detail"]) == (422, True)


@pytest.mark.parametrize("payload", ['{"a": NaN}', '{"a": "\\ud800"}', '{"a": 1e999}'])
def test_payloads_are_what_json_can_hold(shared, payload):
    content = b'{"items": [{"id": 7000, "code": "000000", "payload": %s}]}' % payload.encode()
    response = shared.post("/items", content=content, headers={"content-type": "application/json"})
    assert response.status_code == 422
    assert shared.get("/items/7000").status_code == 404


def test_an_upload_needs_image_features(shared):
    response = shared.post("/search/image", files={"file": ("a.png", b"x", "image/png")})
    assert response.status_code == 422
    assert "--image-features" in response.json()["detail"]


def test_own_pictures_are_found_by_their_pixels(tmp_path):
    rng = np.random.default_rng(3)
    pictures = rng.integers(0, 256, (40, 8, 8), dtype=np.uint8)
    hasher = SignBits().fit(pictures.reshape(40, -1) / 255)
    hasher.save(tmp_path / "hasher.npz")
    Index(hasher.transform(pictures.reshape(40, -1) / 255)).save(tmp_path / "p.index")
    source = sources.from_folder(tmp_path / "p.index", None, tmp_path / "hasher.npz", "pixels:8")
    with serving(source, tmp_path) as client:
        for row in (0, 17):
            upload = {"file": ("a.png", images.png(pictures[row]), "image/png")}
            assert client.post("/search/image?k=1&explore=0", files=upload).json()["results"][0]["id"] == row
    with pytest.raises(ValueError, match=r"the 64 values that the hasher takes, got \(81,\)"):
        sources.from_folder(tmp_path / "p.index", None, tmp_path / "hasher.npz", "pixels:9")
    for wrong in ("raw", "pixels:3", "pixels:", "no_such_module:f", "math:no_such_function", ":f", "math:"):
        with pytest.raises(ValueError, match=r"pixels:SIDE, .* or module:function"):
            sources.from_folder(tmp_path / "p.index", None, tmp_path / "hasher.npz", wrong)


def test_own_pictures_are_found_by_features_of_the_operator(tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    pictures = rng.integers(0, 256, (40, 8, 8), dtype=np.uint8)
    (tmp_path / "features_of_mine.py").write_text(
        'import numpy\n\ndef rows(image):\n    return numpy.asarray(image.convert("L").resize((8, 8))).mean(axis=1)\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    means = pictures.mean(axis=2)
    hasher = SignBits().fit(means)
    hasher.save(tmp_path / "hasher.npz")
    Index(hasher.transform(means), n_bits=8).save(tmp_path / "p.index")
    source = sources.from_folder(tmp_path / "p.index", None, tmp_path / "hasher.npz", "features_of_mine:rows")
    expected = hasher.transform(means[17:18])[0].tobytes().hex()
    with serving(source, tmp_path) as client:
        upload = {"file": ("a.png", images.png(pictures[17]), "image/png")}
        assert client.post("/search/image?k=1&explore=0", files=upload).json()["query"]["code"] == expected


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"name": ["a"]}, "must have a column id"),
        ({"id": [1, 1]}, "none twice"),
        ({"id": ["a"]}, "whole numbers"),
    ],
)
def test_items_files_are_checked(tmp_path, table, message):
    pyarrow.parquet.write_table(pa.table(table), tmp_path / "items.parquet")
    with pytest.raises(ValueError, match=message):
        sources.ParquetItems(tmp_path / "items.parquet", names={})


def test_metrics_and_health(client):
    client.post("/search", json={"item": 1})
    token, _ = page_of(client)
    answer(client, token)
    answer(client, token)
    client.get("/no/such/route/12345")
    assert client.get("/healthz").json() == {"status": "ok"}
    lines = client.get("/metrics").text.splitlines()
    assert 'bitrank_requests_total{route="/search",status="200"} 2.0' in lines
    assert 'bitrank_pages_total{kind="new"} 1.0' in lines
    assert 'bitrank_pages_total{kind="again"} 1.0' in lines
    assert "bitrank_items 300.0" in lines
    assert 'bitrank_active_version{profile="default"} 1.0' in lines
    assert not any("12345" in line for line in lines)


def test_the_documentation_needs_no_other_host(client):
    html = client.get("/docs").text
    assert "http" not in html.replace("https://", "http")
    for path in ("/docs/assets/swagger-ui-bundle.js", "/docs/assets/swagger-ui.css", "/docs/start.js"):
        assert path in html
        assert client.get(path).status_code == 200
    assert "<script>" not in html
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/search", "/feedback", "/items", "/profiles/{name}/rollback"} <= set(paths)


def test_more_like_these(shared):
    liked, wrong = [int(item) for item in IDS[[3, 40, 41]]], [int(IDS[7])]
    body = {"positives": [*liked, liked[0]], "negatives": wrong, "k": 20}
    page = shared.post("/search", json=body).json()
    collection = shared.service.collection
    codes = dict(zip(IDS.tolist(), CODES, strict=True))
    from bitrank.core.codes import distances, sample_rows
    from bitrank.ranking.examples import query_from

    sample = collection.sample.codes
    background = sample[sample_rows(len(sample), 1000)]
    found = query_from(
        np.stack([codes[item] for item in liked]), codes[wrong[0]][None], background, collection.n_bits, judge=False
    )
    rest = np.array([item for item in IDS.tolist() if item not in (*liked, *wrong)])
    to_rest = distances(found.queries.codes, np.stack([codes[item] for item in rest.tolist()]), found.queries.weights)[
        0
    ]
    expected = rest[np.lexsort((rest, to_rest))][:20]
    assert [result["id"] for result in page["results"]] == expected.tolist()
    assert page["query"] == {"code": found.queries.codes[0].tobytes().hex(), "item": None}
    assert not any(
        result["explored"] for result in shared.post("/search", json={**body, "explore": 5}).json()["results"]
    )
    hamming = shared.post("/search?profile=hamming", json=body).json()
    assert all(result["distance"] == int(result["distance"]) for result in hamming["results"])
    answered = shared.post("/feedback", json={"page_token": page["page_token"], "clicked": [int(expected[0])]})
    assert answered.status_code == 201
    assert not shared.service.store.pages.after("default", 0, 1000)[-1].signed, "a client chose what it shows"


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"positives": []}, 422, "at least 1 item"),
        ({"positives": [10**9]}, 404, "1000000000"),
        ({"positives": [1] * 101}, 422, "at most 100 items"),
        ({"item": 1, "positives": [1]}, 422, "give exactly one of item, code, vector and positives"),
        ({"item": 1, "negatives": [1]}, 422, "negatives must come with positives, got them alone"),
        ({}, 422, "give exactly one of item, code, vector and positives, got none"),
    ],
)
def test_examples_that_are_refused(shared, body, status, message):
    answer = shared.post("/search", json=body)
    assert answer.status_code == status
    assert message in answer.text


def test_a_promise_of_recall_by_request_and_as_a_setting(tmp_path):
    codes = np.random.default_rng(0).integers(0, 256, (600, 4), dtype=np.uint8)
    collection = Collection.from_codes(codes)
    collection.save(tmp_path / "exact")
    collection.make_cells()
    collection.save(tmp_path / "cells")
    asked = {"code": codes[5].tobytes().hex(), "k": 3, "explore": 0}
    with serving(sources.from_folder(tmp_path / "cells"), tmp_path, recall=0.9) as client:
        exact = client.post("/search", json=asked | {"recall": 0.999}).json()["results"]
        assert exact[0]["id"] == client.post("/search", json=asked).json()["results"][0]["id"] == 5
        assert client.post("/search", json=asked | {"recall": 0.5}).status_code == 422
        client.post("/items", json={"items": [{"id": 1000, "code": codes[5].tobytes().hex()}]})
        found = client.post("/search", json=asked).json()["results"]
        assert [hit["id"] for hit in found[:2]] == [5, 1000]
    (tmp_path / "other").mkdir()
    with serving(sources.from_folder(tmp_path / "exact"), tmp_path / "other") as client:
        refused = client.post("/search", json=asked | {"recall": 0.9})
        assert refused.status_code == 422
        assert "recall must be null for a collection without cells, got 0.9" in refused.text
    with pytest.raises(ValueError, match=r"recall must be None for a collection without cells, got 0\.9"):
        Service(sources.from_folder(tmp_path / "exact"), f"sqlite:///{tmp_path / 'c.db'}", Settings(recall=0.9))
