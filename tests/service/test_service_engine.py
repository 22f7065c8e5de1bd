"""The service over codes that stay in an engine: the same pages as over an index in memory."""

import os
import uuid

import httpx
import numpy as np
import pytest
from milvus_server import ON_DEMAND
from serving import Command, serving
from tcp_proxy import Proxy

import bitrank
from bitrank.index import Index
from bitrank.service import sources
from bitrank.service.engine_index import EngineIndex

N_BITS = 32
CODES = np.random.default_rng(0).integers(0, 256, (400, N_BITS // 8), dtype=np.uint8)
IDS = 5 + 3 * np.arange(400)
# Milvus is tested in `make test-milvus` only.
SERVERS = ["postgresql", *(["milvus"] if ON_DEMAND in os.environ else [])]


@pytest.fixture(params=[*SERVERS, "duckdb", "chdb"])
def scheme(request):
    return request.param


@pytest.fixture
def url(scheme, request, tmp_path):
    """The address of an engine."""
    if scheme == "postgresql":
        postgres = request.getfixturevalue("postgres")
        return postgres.url(postgres.new_base())
    if scheme == "milvus":
        return f"{request.getfixturevalue('milvus_address')}/default"
    if scheme == "chdb":
        pytest.importorskip("chdb")
    return f"{scheme}://{tmp_path / 'codes.db'}"


@pytest.fixture
def table(url):
    """The name of a table with the codes."""
    name = f"shop_{uuid.uuid4().hex}"
    with bitrank.connect(url, name) as engine:
        engine.create(N_BITS)
        engine.add(CODES, IDS)
    return name


@pytest.fixture
def engine(url, table):
    """An engine with the codes."""
    with bitrank.connect(url, table) as engine:
        yield engine


def test_ids_and_codes_are_looked_up(engine):
    np.testing.assert_array_equal(engine.ids, IDS)
    np.testing.assert_array_equal(engine.codes([8, 5, 8, 1202]), CODES[[1, 0, 1, 399]])
    assert engine.codes([]).shape == (0, 4)
    with pytest.raises(ValueError, match="ids must be in the engine, got 6"):
        engine.codes([5, 6])


@pytest.mark.parametrize("method", [None, "rerank"])
def test_pages_clicks_and_versions_over_an_engine(engine, tmp_path, method):
    local = sources.Source("codes", Index(CODES, ids=IDS), sources.Items())
    remote = sources.from_engine(EngineIndex(engine, method, None if method is None else 400), "shop")
    for folder in ("local", "remote"):
        (tmp_path / folder).mkdir()
    with serving(local, tmp_path / "local") as one, serving(remote, tmp_path / "remote") as other:
        weights = np.arange(1, N_BITS + 1).tolist()  # whole numbers: engines round others
        for client in (one, other):
            client.post("/profiles/default/versions", json={"weights": weights})
            client.post("/profiles/default/versions/2/activate")
        for body in ({"item": 8}, {"code": CODES[3].tobytes().hex()}, {"item": 11, "chosen": [14], "version": 1}):
            bodies = [client.post("/search", json={**body, "explore": 0}).json() for client in (one, other)]
            assert bodies[0]["results"] == bodies[1]["results"]
        page = other.post("/search", json={"item": 8, "explore": 4}).json()
        assert sum(result["explored"] for result in page["results"]) == 4
        clicked = {"page_token": page["page_token"], "clicked": [page["results"][3]["id"]]}
        assert other.post("/feedback", json=clicked).status_code == 201
        assert other.get("/items/8").json()["code"] == CODES[1].tobytes().hex()
        assert other.get("/collection").json()["n_items"] == 400
        assert other.post("/search", json={"item": 6}).status_code == 404
        assert "bitrank" in other.get("/").text
        refused = other.post("/items", json={"items": [{"id": 9000, "code": "00000000"}]})
        assert (refused.status_code, "live in an engine" in refused.json()["detail"]) == (403, True)
        assert other.delete("/items/8").status_code == 403
    assert engine.count() == 400


def test_a_method_that_the_engine_does_not_have_is_refused_at_the_start(engine, scheme):
    with pytest.raises(ValueError, match="candidates must be"):
        EngineIndex(engine, candidates=0)
    with pytest.raises(ValueError, match="candidates must be None unless"):
        EngineIndex(engine, "exact", 5)
    if scheme == "milvus":
        with pytest.raises(ValueError, match='method must be "rerank" for Milvus, which cannot weigh bits'):
            EngineIndex(engine, "exact")
        with pytest.raises(ValueError, match="at most 16384 in this engine, got 20000"):
            EngineIndex(engine, candidates=20_000)


def requests_of(client):
    """One request of each kind that needs the engine."""
    token = client.post("/search", json={"item": 8}).json()["page_token"]
    return [
        ("GET", "/healthz", None),
        ("POST", "/search", {"code": CODES[3].tobytes().hex()}),
        ("POST", "/search", {"item": 8}),
        ("POST", "/search", {"item": 11, "chosen": [14]}),
        ("GET", "/items/8", None),
        ("POST", "/feedback", {"page_token": token, "clicked": []}),
    ]


def check_unavailable(client, requests, reason=""):
    for method, path, body in requests:
        answer = client.request(method, path, json=body)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), (path, body)
        assert "the engine cannot answer now" in answer.json()["detail"]
        assert reason in answer.json()["detail"] or path == "/healthz"  # which names no place to anybody
    assert client.get("/profiles").json()[1]["n_pages"] == 0


@pytest.mark.parametrize("scheme", SERVERS, indirect=True)
def test_an_engine_that_goes_away_gives_503_until_it_is_back(url, table, tmp_path):
    port = int(url.rpartition(":")[2].partition("/")[0])
    with (
        Proxy(port) as proxy,
        bitrank.connect(proxy.url(url), table) as engine,
        serving(sources.from_engine(EngineIndex(engine), "shop"), tmp_path) as client,
    ):
        requests = requests_of(client)
        for _ in range(2):
            proxy.cut()
            check_unavailable(client, requests)
            proxy.restore()
            for method, path, body in requests[:-1]:
                assert client.request(method, path, json=body).status_code == 200, (path, body)
        assert client.request(*requests[-1][:2], json=requests[-1][2]).status_code == 201
        with bitrank.connect(url, table) as other:
            other.remove(IDS[:1])
        assert client.get("/healthz").status_code == 200, "an engine without the first item answers"


@pytest.mark.parametrize("scheme", SERVERS, indirect=True)
def test_a_table_that_is_gone_is_named(engine, scheme, table, tmp_path):
    with serving(sources.from_engine(EngineIndex(engine), "shop"), tmp_path) as client:
        requests = requests_of(client)
        if scheme == "milvus":
            engine._client.drop_collection(table)
        else:
            engine._run(lambda connection: connection.execute(f"DROP TABLE {table}"))
        check_unavailable(client, requests, table)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SERVERS, indirect=True)
def test_the_command_serves_an_engine(url, table, tmp_path):
    distances = np.unpackbits(CODES ^ CODES[1], axis=1).sum(axis=1)
    expected = sorted((int(d), int(i)) for d, i in zip(distances, IDS, strict=True) if i != 8)[:20]
    for start in range(2):
        with Command("--engine", url, "--table", table, "--data", tmp_path, "--workers", 2) as command:
            with httpx.Client(base_url=command.address, timeout=120) as client:
                page = client.post("/search", json={"item": 8, "explore": 0, "profile": "hamming"}).json()
                assert [(result["distance"], result["id"]) for result in page["results"]] == expected
                assert client.get("/profiles").json()[1]["n_pages"] == start
                assert client.get("/profiles/default/versions").json()["active"] == 1 + start
                clicked = {"page_token": page["page_token"], "clicked": [expected[1][1]], "profile": "default"}
                assert client.post("/feedback", json=clicked).status_code == 201
                client.post("/profiles/default/versions", json={"weights": [1.0] * N_BITS})
                client.post("/profiles/default/versions/2/activate")
            assert command.stop()[0] == 0
    with bitrank.connect(url, f"{table}_2") as engine:
        engine.create(N_BITS)
        engine.add(CODES[::-1].copy(), IDS)
    with Command("--engine", url, "--table", f"{table}_2", "--data", tmp_path) as command:
        assert "the database must be that of this collection" in command.stop()[1]
