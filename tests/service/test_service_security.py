"""The guard (token, host, origin, size, rate, headers), and a fuzzed API."""

import base64
import datetime
import itertools
import json

import hypothesis
import numpy as np
import pytest
import schemathesis
from serving import serving
from threads import wait_until

from bitrank.index import Index
from bitrank.service import sources
from bitrank.service.clients import CLIENTS_OF_48, SESSIONS, Clients
from bitrank.service.security import MAX_BODY, Rate

TOKEN = "0123456789abcdef0123"
CODES = np.random.default_rng(0).integers(0, 256, (200, 4), dtype=np.uint8)


@pytest.fixture(scope="module")
def open_client(tmp_path_factory):
    """A client of a service without a token, as on loopback."""
    with serving(sources.Source("codes", Index(CODES), sources.Items()), tmp_path_factory.mktemp("open")) as client:
        yield client


@pytest.fixture(scope="module")
def closed_client(tmp_path_factory):
    """A client of a service with a token."""
    source = sources.Source("codes", Index(CODES), sources.Items())
    with serving(source, tmp_path_factory.mktemp("closed"), token=TOKEN) as client:
        yield client


def basic(text):
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer {TOKEN}", 200),
        (basic(f"anybody:{TOKEN}"), 200),
        (None, 401),
        ("", 401),
        ("Bearer", 401),
        (f"Bearer {TOKEN[:-1]}", 401),
        (f"Bearer {TOKEN}x", 401),
        (f"Digest {TOKEN}", 401),
        (TOKEN, 401),
        (basic(f"{TOKEN}:other"), 401),
        ("Basic not-base64", 401),
        ("Bearer \xff\xfe", 401),
    ],
)
def test_a_token_is_needed_everywhere_but_at_healthz(closed_client, authorization, status):
    headers = {} if authorization is None else {"authorization": authorization.encode("latin-1")}
    for path in ("/collection", "/", "/docs", "/openapi.json", "/metrics", "/page/style.css", "/items/0/image"):
        response = closed_client.get(path, headers=headers)
        assert (response.status_code == 401) == (status == 401), path
        if status == 401:
            assert response.headers["www-authenticate"].startswith("Basic")
    assert closed_client.post("/search", json={"item": 0}, headers=headers).status_code == status
    assert closed_client.get("/healthz", headers=headers).status_code == 200


ADMIN = "admin-0123456789abcdef"


@pytest.fixture(scope="module")
def two_roles(tmp_path_factory):
    """A client of a service with a token and an admin token."""
    source = sources.Source("codes", Index(CODES), sources.Items())
    with serving(source, tmp_path_factory.mktemp("roles"), token=TOKEN, admin_token=ADMIN) as client:
        yield client


def test_only_the_admin_token_changes_items_and_versions(two_roles):
    def send(token, method, path, body=None):
        return two_roles.request(method, path, json=body, headers={"authorization": f"Bearer {token}"})

    page = send(TOKEN, "POST", "/search", {"item": 0}).json()
    assert send(TOKEN, "POST", "/feedback", {"page_token": page["page_token"], "clicked": []}).status_code == 201
    for path in ("/", "/items", "/profiles", "/profiles/default/versions", "/metrics", "/openapi.json"):
        assert send(TOKEN, "GET", path).status_code == 200
    weights = {"weights": [1.0] * 32}
    imported = {"key": "k", "query": {"item": 1}, "shown": [{"id": 2}], "clicked": []}
    writes = [
        ("POST", "/items", {"items": [{"id": 900, "code": "00000000"}]}),
        ("DELETE", "/items/900", None),
        ("PUT", "/profiles/new", None),
        ("POST", "/profiles/default/versions", weights),
        ("POST", "/profiles/default/versions/2/activate", None),
        ("POST", "/profiles/default/rollback", None),
        ("POST", "/feedback/import", imported),
    ]
    for write in writes:
        refused = send(TOKEN, *write)
        assert (refused.status_code, refused.json()["detail"]) == (403, "this needs the admin token"), write
        assert send("wrong-0123456789abcdef", *write).status_code == 401
        assert send(ADMIN, *write).status_code in (200, 201, 204), write
    assert send(ADMIN, "POST", "/search", {"item": 0}).status_code == 200


def scope(peer, *forwarded, cookie=None):
    headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]
    return {"client": (peer, 1), "headers": headers + ([(b"cookie", cookie.encode())] if cookie else [])}


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("192.0.2.1", ["198.51.100.7"], "192.0.2.1"),  # not a proxy of ours: anybody can write this header
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["203.0.113.9, 198.51.100.7"], "198.51.100.7"),  # the first was written by the client itself
        ("10.0.0.1", ["203.0.113.9, 198.51.100.7, 10.0.0.2"], "198.51.100.7"),
        ("10.0.0.1", ["203.0.113.9", "198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["198.51.100.7, nonsense"], "10.0.0.1"),
        ("10.0.0.1", ["10.0.0.3"], "10.0.0.3"),
        ("::ffff:10.0.0.1", ["2001:db8::5"], "2001:db8::5"),
        ("10.0.0.1", ["198.51.100.7:5678"], "198.51.100.7"),
        ("10.0.0.1", ["[2001:db8::5]:443"], "2001:db8::5"),
        ("10.0.0.1", ["203.0.113.9, 10.0.0.2:80"], "203.0.113.9"),
    ],
)
def test_forwarded_addresses_are_believed_of_configured_proxies_only(peer, forwarded, address):
    assert Clients(b"secret", ("10.0.0.0/8",)).address(scope(peer, *forwarded)) == address


def test_clients_behind_a_proxy_have_a_rate_each(tmp_path):
    source = sources.Source("codes", Index(CODES), sources.Items())
    with serving(source, tmp_path, rate=1.0, proxies=("127.0.0.1",)) as client:
        statuses = [
            client.get("/profiles", headers={"x-forwarded-for": f"198.51.100.{number}"}).status_code
            for number in range(20)
        ]
        assert statuses == [200] * 20
        same = [client.get("/profiles", headers={"x-forwarded-for": "203.0.113.9"}).status_code for _ in range(20)]
        assert 429 in same


def test_clients_of_one_network_share_a_rate_and_few_names(tmp_path):
    source = sources.Source("codes", Index(CODES), sources.Items())
    with serving(source, tmp_path, rate=1.0, proxies=("127.0.0.1",)) as client:
        addresses = [f"2001:db8::{number:x}" for number in range(20)]
        statuses = [
            client.get("/collection", headers={"x-forwarded-for": address}).status_code for address in addresses
        ]
        assert statuses.count(200) < 10
        names = {client.service.clients.name(f"2001:db8:0:{number:x}::1") for number in range(500)}
        assert 1 < len(names) <= CLIENTS_OF_48


def test_a_session_is_known_by_its_signed_cookie(tmp_path):
    source = sources.Source("codes", Index(CODES), sources.Items())
    with serving(source, tmp_path, sessions=True) as client:
        clients = client.service.clients
        cookie = client.get("/").headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        value = cookie.partition(";")[0]
        name = clients.of(scope("192.0.2.1", cookie=value))
        assert name == clients.of(scope("192.0.2.2", cookie=value)) != clients.name("192.0.2.1")
        client.cookies.clear()
        assert "set-cookie" not in client.get("/", headers={"cookie": value}).headers
        for forged in (value[:-1] + "g", value.replace("=", "=f"), "bitrank_session=1.2", "bitrank_session=\xff"):
            assert clients.of(scope("192.0.2.1", cookie=forged)) == clients.name("192.0.2.1")
        values = set()
        for _ in range(100):
            client.cookies.clear()
            values.add(client.get("/").headers["set-cookie"].partition(";")[0])
        assert 1 < len(values) <= SESSIONS, "whoever asks for a hundred sessions has a few"
        assert value in values
        client.cookies.clear()
        page = client.post("/search", json={"item": 0}, headers={"cookie": value}).json()
        client.post("/feedback", json={"page_token": page["page_token"], "clicked": []})
        assert client.service.store.pages.after("default", 0, 1)[0].client == name
    with serving(source, tmp_path) as client:
        assert "set-cookie" not in client.get("/").headers


def test_the_access_log_has_a_line_of_json_per_request(tmp_path):
    path = tmp_path / "access.jsonl"
    source = sources.Source("codes", Index(CODES), sources.Items())
    with serving(source, tmp_path, access_log=str(path), token=TOKEN) as client:
        headers = {"authorization": f"Bearer {TOKEN}"}
        answer = client.post("/search", json={"item": 1}, headers=headers)
        client.post("/search", json={"item": 10**6}, headers=headers)
        wait_until(lambda: path.read_text().count("\n") == 2)  # written after the answer
        path.rename(tmp_path / "rotated.jsonl")
        client.get("/items/3?secret=1", headers=headers)
        client.get("/no/such")
    rotated = [json.loads(line) for line in (tmp_path / "rotated.jsonl").read_text().splitlines()]
    lines = rotated + [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rotated) == 2
    assert [(line["method"], line["path"], line["status"]) for line in lines] == [
        ("POST", "/search", 200),
        ("POST", "/search", 404),
        ("GET", "/items/3", 200),
        ("GET", "/no/such", 401),
    ]
    assert [line["route"] for line in lines] == ["/search", "/search", "/items/{item}", "other"]
    assert lines[0]["bytes"] == len(answer.content)
    assert all(line["address"] == "127.0.0.1" and line["ms"] > 0 for line in lines)
    assert all(datetime.datetime.fromisoformat(line["time"]).tzinfo for line in lines)


def test_with_a_token_any_host_name_is_answered(closed_client):
    headers = {"authorization": f"Bearer {TOKEN}", "host": "search.example.org"}
    assert closed_client.get("/collection", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost", 200), ("127.0.0.1:1", 200), ("[::1]:80", 200), ("evil.example.org", 421), ("", 421), ("[", 421)],
)
def test_without_a_token_only_loopback_names_are_answered(open_client, host, status):
    # Otherwise any page could reach the service through a host name of its own that points to 127.0.0.1.
    assert open_client.get("/collection", headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://localhost", "host": "localhost"}, 200),
        ({"origin": "https://evil.example.org"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://[evil"}, 403),
        ({"origin": "http://localhost:9", "host": "localhost"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
    ],
)
def test_pages_of_other_hosts_change_nothing(open_client, headers, status):
    for path in ("/search", "/search/image", "/feedback"):  # of its own, and of the routes
        response = open_client.post(path, json={"item": 0}, headers=headers)
        assert response.status_code == (status if status == 403 or path == "/search" else 422)
        assert "content-security-policy" in response.headers


def test_every_answer_carries_a_strict_policy(open_client):
    for path in ("/", "/collection", "/docs", "/no/such/page", "/page/style.css"):
        headers = open_client.get(path).headers
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert "unsafe" not in headers["content-security-policy"]
        assert "http" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in open_client.get("/", headers={"origin": "https://a.example"}).headers


@pytest.mark.parametrize("path", ["/search", "/profiles/default/versions"])
def test_errors_of_the_service_carry_the_policy_too(open_client, monkeypatch, caplog, path):
    def fail(*_):
        raise RuntimeError("secret detail")

    monkeypatch.setattr(open_client.service.batches, "_run", fail)
    monkeypatch.setattr(open_client.service.store.profiles, "activations", fail)
    response = open_client.post(path, json={"item": 0}) if path == "/search" else open_client.get(path)
    assert response.status_code == 500
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "its log says more" in response.json()["detail"]
    assert "secret" not in response.text
    wait_until(lambda: "secret detail" in caplog.text)  # the answer may come before the line of the log
    assert "in fail" in caplog.text, "where it failed"
    monkeypatch.undo()
    assert open_client.post("/search", json={"item": 0}).status_code == 200


def test_image_hosts_are_named_by_the_operator(tmp_path):
    source = sources.Source("codes", Index(CODES), sources.Items())
    with serving(source, tmp_path, image_origins=("https://images.example.org",)) as client:
        policy = client.get("/").headers["content-security-policy"]
    assert "img-src 'self' data: blob: https://images.example.org;" in policy


def test_large_bodies_are_refused_announced_or_not(open_client):
    body = b'{"code": "' + b"0" * MAX_BODY + b'"}'
    headers = {"content-type": "application/json"}
    announced = open_client.post("/search", content=body, headers=headers)
    assert (announced.status_code, f"{MAX_BODY} bytes" in announced.json()["detail"]) == (413, True)
    pieces = (body[i : i + 65536] for i in range(0, len(body), 65536))
    streamed = open_client.post("/search", content=pieces, headers=headers)
    assert streamed.status_code == 413
    upload = open_client.post("/search/image", files={"file": ("a.png", bytes(MAX_BODY))})
    assert upload.status_code == 413
    assert open_client.post("/search", json={"item": 0}).status_code == 200


def test_the_rate_is_limited(tmp_path):
    source = sources.Source("codes", Index(CODES), sources.Items())
    with serving(source, tmp_path, rate=2.0) as client:
        statuses = [client.get("/profiles").status_code for _ in range(30)]
        limited = client.get("/collection")
    assert statuses[:4] == [200] * 4
    assert statuses.count(429) >= 20
    assert limited.status_code == 429
    assert limited.headers["retry-after"] == "1"


def test_a_refused_search_costs_one_request_of_the_rate(tmp_path, monkeypatch):
    source = sources.Source("codes", Index(CODES), sources.Items())
    counted = []
    allows = Rate.allows
    monkeypatch.setattr(Rate, "allows", lambda self, client: counted.append(client) or allows(self, client))
    with serving(source, tmp_path, rate=1000.0, token=TOKEN) as client:
        for authorization, status in (("Bearer wrong", 401), (f"Bearer {TOKEN}", 200)):
            counted.clear()
            answer = client.post("/search", json={"item": 1}, headers={"authorization": authorization})
            assert answer.status_code == status
            assert len(counted) == 1


def test_rates_are_counted_per_client():
    now = itertools.count(0, 0.25)
    rate = Rate(2, clock=lambda: next(now))
    first = [rate.allows("a") for _ in range(40)]
    # Four at once, then two per second: of four requests per second every other one is answered.
    assert sum(first) == pytest.approx(4 + 40 * 0.25 * 2, abs=2)
    assert all(rate.allows("b") for _ in range(4))


# Requests generated from the OpenAPI document, valid and invalid, never cause a server error


@pytest.mark.parametrize("n_examples", [2, pytest.param(12, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE])
def test_requests_from_the_openapi_document_never_fail_the_server(open_client, mode, n_examples):
    document = schemathesis.openapi.from_dict(open_client.get("/openapi.json").json())
    seen = {}
    for result in document.get_all_operations():
        operation = result.ok()

        @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
        @hypothesis.settings(
            max_examples=n_examples,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
            phases=[hypothesis.Phase.generate],
        )
        def answer(case):
            response = case.call(base_url=str(open_client.base_url))
            seen.setdefault(case.operation.label, set()).add(response.status_code)
            assert response.status_code < 500, response.text
            if response.status_code >= 400:
                assert isinstance(response.json()["detail"], str)

        try:
            answer()
        except hypothesis.errors.Unsatisfiable:
            assert mode is schemathesis.GenerationMode.NEGATIVE  # a route without parameters has no invalid request
    assert len(seen) >= 18 or mode is schemathesis.GenerationMode.NEGATIVE
    statuses = set.union(*seen.values())
    expected = {422} if mode is schemathesis.GenerationMode.NEGATIVE else {200, 404}
    if n_examples > 2:
        expected |= {404} if mode is schemathesis.GenerationMode.NEGATIVE else {201}
    assert expected <= statuses
