"""Connections: slow and endless requests are cut off, and all forms of a request get the same answers in order."""

import json
import socket
import time

import numpy as np
import pytest
from serving import serving
from threads import wait_until

from bitrank.index import Index
from bitrank.service import protocol, sources

CODES = np.random.default_rng(0).integers(0, 256, (200, 4), dtype=np.uint8)


@pytest.fixture
def client(tmp_path, monkeypatch):
    monkeypatch.setattr(protocol, "_SWEEP_S", 0.05)
    with serving(sources.Source("codes", Index(CODES), sources.Items()), tmp_path, random_state=0) as client:
        yield client


def connect(client):
    host, _, port = client.address.removeprefix("http://").partition(":")
    opened = socket.create_connection((host, int(port)), timeout=120)
    opened.settimeout(120)
    return opened


def read_answers(opened, n):
    """Read n answers with a content-length: their statuses and bodies."""
    data, answers = b"", []
    while len(answers) < n:
        piece = opened.recv(65536)
        assert piece, f"closed after {len(answers)} answers: {data!r:.200}"
        data += piece
        while b"\r\n\r\n" in data:
            head, _, rest = data.partition(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            length = next(int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:"))
            if len(rest) < length:
                break
            answers.append((int(head.split()[1]), rest[:length]))
            data = rest[length:]
    return answers


def post(body, *headers, path="/search"):
    content = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "host: localhost", "content-type: application/json", *headers]
    return "\r\n".join([*lines, f"content-length: {len(content)}", "", ""]).encode() + content


def is_closed(opened):
    """Wait for the end of a connection."""
    try:
        while opened.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


CHUNKED = b"POST /%b HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n"


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ", b"a"),
        (CHUNKED % b"search" + b"0\r\nx: ", b"a"),
        (CHUNKED % b"items" + b"0\r\nx: ", b"a"),
        (CHUNKED % b"search" + b"0\r\n", b"a: b\r\n"),
        (CHUNKED % b"items" + b"2;", b"a"),
    ],
    ids=["header", "trailer of a search", "trailer", "many trailers", "chunk extension"],
)
def test_an_endless_header_ends_with_431_while_others_are_answered(client, start, piece):
    """The finding: one such header, or trailer, froze the service for many seconds, before it was asked for a token."""
    with connect(client) as opened:
        opened.sendall(start)
        received = b""
        for _ in range(2000):
            try:
                opened.sendall(piece * (65536 // len(piece)))
            except OSError:
                break
            assert client.post("/search", json={"item": 1}).status_code == 200
        else:
            pytest.fail("125 megabytes of one header were taken")
        try:
            received = opened.recv(65536)
        except ConnectionResetError:
            received = b"HTTP/1.1 431"  # our own data was still on its way
        assert received.startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize("sent", [b"\0\1\r\n\r\n", b"GET / HTTP/1.1\r\ncontent-length: -5\r\n\r\n"])
def test_what_is_no_http_gets_an_answer_like_any_other(client, sent):
    with connect(client) as opened:
        opened.sendall(sent)
        head, _, body = b"".join(iter(lambda: opened.recv(65536), b"")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"content-security-policy: default-src 'none'" in head
    assert "HTTP" in json.loads(body)["detail"]


def test_trailers_are_no_headers(tmp_path):
    source = sources.Source("codes", Index(CODES), sources.Items())
    body = b'{"item": 1}'
    lines = b"POST /%b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n%b"
    lines += b"transfer-encoding: chunked\r\n\r\n"
    token = b"authorization: bearer secret-of-the-test\r\n"
    with serving(source, tmp_path, token="secret-of-the-test") as client:
        for path in (b"search", b"search?"):
            for header, trailer, status in ((token, b"", 200), (b"", token, 401)):
                with connect(client) as opened:
                    opened.sendall(lines % (path, header) + b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(body), body, trailer))
                    assert read_answers(opened, 1)[0][0] == status


def test_a_body_of_many_chunks_is_taken(client):
    body = json.dumps({"item": 1, "k": 3}).encode() + b" " * 100_000
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    with connect(client) as opened:
        head = b"POST /search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        opened.sendall(head + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
        assert read_answers(opened, 1)[0][0] == 200


@pytest.mark.parametrize(
    ("limit", "sent"),
    [
        ("HEADER_TIMEOUT_S", b""),
        ("HEADER_TIMEOUT_S", b"GET /heal"),
        ("HEADER_TIMEOUT_S", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"),
        ("BODY_TIMEOUT_S", post({"item": 1})[:-3]),
        ("BODY_TIMEOUT_S", post({"items": []}, path="/items")[:-3]),
        ("IDLE_TIMEOUT_S", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        ("IDLE_TIMEOUT_S", post({"item": 1})),
    ],
)
def test_slow_clients_are_cut_off(client, monkeypatch, limit, sent):
    start = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(protocol, limit, 0.2)
        with connect(client) as opened:
            opened.sendall(sent)
            assert is_closed(opened)
        assert time.monotonic() - start >= 0.15
    assert client.post("/search", json={"item": 1}).status_code == 200


def test_a_client_that_reads_nothing_is_cut_off(client, monkeypatch):
    with monkeypatch.context() as patch, connect(client) as opened:
        patch.setattr(protocol, "WRITE_TIMEOUT_S", 0.2)
        request = b"GET /docs/assets/swagger-ui-bundle.js HTTP/1.1\r\nhost: localhost\r\n\r\n"
        opened.sendall(request * 30)  # more than the buffers of both ends hold
        port, connections = opened.getsockname()[1], client.server.server_state.connections
        wait_until(lambda: all(connection.client[1] != port for connection in list(connections)))
    assert client.post("/search", json={"item": 1}).status_code == 200


def test_pipelined_requests_are_answered_in_order(client):
    with connect(client) as opened:
        requests = [
            post({"item": 1, "k": 3, "explore": 0}),
            b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
            post({"item": 2, "k": 4, "explore": 0}),
            post({"item": 10**6}),
            post({"item": 3, "k": 5, "explore": 0}),
        ]
        opened.sendall(b"".join(requests))
        answers = read_answers(opened, 5)
    assert [status for status, _ in answers] == [200, 200, 200, 404, 200]
    found = [json.loads(body) for _, body in answers]
    assert [len(found[at]["results"]) for at in (0, 2, 4)] == [3, 4, 5]
    assert [found[at]["query"]["item"] for at in (0, 2, 4)] == [1, 2, 3]


def test_all_forms_of_a_search_get_the_same_answer(client):
    body = {"item": 7, "k": 9, "explore": 0}
    expected = client.post("/search?profile=default", json=body).json()["results"]
    content = json.dumps(body).encode()
    start = b"POST /search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    pieces = b"%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (5, content[:5], len(content) - 5, content[5:])
    padded = b"%-70000s" % content
    forms = [
        post(body),
        post(body, "connection: close"),
        start.replace(b"1.1", b"1.0") + b"content-length: %d\r\n\r\n" % len(content) + content,
        start + b"transfer-encoding: chunked\r\n\r\n" + pieces,
        start + b"content-length: %d\r\n\r\n" % len(padded) + padded,
    ]
    for form in forms:
        with connect(client) as opened:
            opened.sendall(form)
            ((status, answer),) = read_answers(opened, 1)
            assert (status, json.loads(answer)["results"]) == (200, expected)
            if b"connection: close" in form or b"HTTP/1.0" in form:
                assert is_closed(opened)
    for at in range(1, len(forms[0]), 37):  # in two pieces
        with connect(client) as opened:
            opened.sendall(forms[0][:at])
            time.sleep(0.002)
            opened.sendall(forms[0][at:])
            ((status, answer),) = read_answers(opened, 1)
            assert (status, json.loads(answer)["results"]) == (200, expected)


def test_all_answers_carry_the_same_headers(client):
    search, routed = client.post("/search", json={"item": 1}), client.get("/items/1")
    for name in ("content-security-policy", "x-content-type-options", "content-type", "date", "x-frame-options"):
        assert search.headers[name]
        assert name == "date" or search.headers[name] == routed.headers[name]


def test_an_answer_without_a_body_is_sent_at_once(client):
    with connect(client) as opened:
        for method, path in (("HEAD", "/"), ("DELETE", "/items/1")):
            opened.sendall(f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            received = b""
            while b"\r\n\r\n" not in received:
                received += opened.recv(65536)
            assert received.startswith((b"HTTP/1.1 204", b"HTTP/1.1 405")), received
        opened.sendall(post({"item": 2}))
        assert read_answers(opened, 1)[0][0] == 200


def test_a_client_that_asks_first_is_told_to_go_on(client):
    with connect(client) as opened:
        head, _, body = post({"item": 2}, "expect: 100-continue").partition(b"\r\n\r\n")
        opened.sendall(head + b"\r\n\r\n")
        assert opened.recv(65536).startswith(b"HTTP/1.1 100 Continue")
        opened.sendall(body)
        assert read_answers(opened, 1)[0][0] == 200


@pytest.mark.parametrize(
    "path", ["/search?profile=hamming", "/search?profile=", "/search?profile=a%20b", "/search?x=1"]
)
def test_the_address_of_a_search_may_name_its_profile(client, path):
    answer = client.post(path, json={"item": 1, "profile": "default"})
    if "=hamming" in path or "x=1" in path:
        assert answer.json()["profile"] == ("hamming" if "hamming" in path else "default")
    else:
        assert (answer.status_code, "profile" in answer.json()["detail"]) == (422, True)


def test_the_openapi_document_describes_searches(client):
    described = client.get("/openapi.json").json()["paths"]["/search"]["post"]
    body = described["requestBody"]["content"]["application/json"]["schema"]
    assert body["$ref"].endswith("/Search")
    assert described["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].endswith("/Results")
    assert [parameter["name"] for parameter in described["parameters"]] == ["profile"]
    assert client.get("/search").status_code == 405
