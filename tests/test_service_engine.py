"""The service over codes that stay in an engine: the same pages as over an index in memory."""

import numpy as np
import pytest
from serving import Command, serving
from tcp_proxy import Proxy

import bitrank
from bitrank.index import Index
from bitrank.service import sources
from bitrank.service.engine_index import EngineIndex

N_BITS = 32
CODES = np.random.default_rng(0).integers(0, 256, (400, N_BITS // 8), dtype=np.uint8)
IDS = 5 + 3 * np.arange(400)


@pytest.fixture(params=["duckdb", "postgresql", "chdb"])
def engine(request, tmp_path):
    """An engine with the codes."""
    if request.param == "postgresql":
        postgres = request.getfixturevalue("postgres")
        url = postgres.url(postgres.new_base())
    elif request.param == "chdb":
        pytest.importorskip("chdb")
        url = f"chdb://{tmp_path / 'chdb'}"
    else:
        url = f"duckdb://{tmp_path / 'codes.duckdb'}"
    with bitrank.connect(url, "shop") as engine:
        engine.create(N_BITS)
        engine.add(CODES, IDS)
        yield engine


def test_ids_and_codes_are_looked_up(engine):
    np.testing.assert_array_equal(engine.ids(), IDS)
    np.testing.assert_array_equal(engine.codes([8, 5, 8, 1202]), CODES[[1, 0, 1, 399]])
    assert engine.codes([]).shape == (0, 4)
    with pytest.raises(ValueError, match="ids must be in the engine, got 6"):
        engine.codes([5, 6])


@pytest.mark.parametrize("method", ["exact", "rerank"])
def test_pages_clicks_and_versions_over_an_engine(engine, tmp_path, method):
    local = sources.Source("codes", Index(CODES, ids=IDS), sources.NoItems())
    remote = sources.from_engine(EngineIndex(engine, method, None if method == "exact" else 400), "shop")
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
        page = other.post("/search", json={"item": 8}).json()
        assert sum(result["explored"] for result in page["results"]) == 4
        clicked = {"page_token": page["page_token"], "clicked": [page["results"][3]["id"]]}
        assert other.post("/feedback", json=clicked).status_code == 201
        assert other.get("/items/8").json()["code"] == CODES[1].tobytes().hex()
        assert other.get("/collection").json()["n_items"] == 400
        assert other.post("/search", json={"item": 6}).status_code == 404
        refused = other.post("/items", json={"items": [{"id": 9000, "code": "00000000"}]})
        assert (refused.status_code, "live in an engine" in refused.json()["detail"]) == (403, True)
        assert other.delete("/items/8").status_code == 403
    assert engine.count() == 400


def test_an_engine_that_goes_away_gives_503_until_it_is_back(postgres, tmp_path):
    url = postgres.url(postgres.new_base())
    with Proxy(postgres.port) as proxy, bitrank.connect(proxy.url(url), "shop") as engine:
        engine.create(N_BITS)
        engine.add(CODES, IDS)
        with serving(sources.from_engine(EngineIndex(engine), "shop"), tmp_path) as client:
            token = client.post("/search", json={"item": 8}).json()["page_token"]
            requests = [
                ("GET", "/healthz", None),
                ("POST", "/search", {"code": CODES[3].tobytes().hex()}),  # the short way
                ("POST", "/search", {"item": 8}),
                ("POST", "/search", {"item": 11, "chosen": [14]}),
                ("GET", "/items/8", None),
                ("POST", "/feedback", {"page_token": token, "clicked": []}),
            ]
            for _ in range(2):
                proxy.cut()
                for method, path, body in requests:
                    answer = client.request(method, path, json=body)
                    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), (path, body)
                    assert "the engine cannot be reached now" in answer.json()["detail"]
                assert client.get("/profiles").json()[1]["n_pages"] == 0
                proxy.restore()
                for method, path, body in requests[:-1]:
                    assert client.request(method, path, json=body).status_code == 200, (path, body)
            assert client.request(*requests[-1][:2], json=requests[-1][2]).status_code == 201
            with bitrank.connect(url, "shop") as other:
                other.remove(IDS[:1])
            assert client.get("/healthz").status_code == 200, "an engine without the first item answers"


@pytest.mark.slow
def test_the_command_serves_an_engine(postgres, tmp_path):
    url = postgres.url(postgres.new_base())
    with bitrank.connect(url, "shop") as engine:
        engine.create(N_BITS)
        engine.add(CODES, IDS)
    import httpx

    with Command("--engine", url, "--table", "shop", "--data", tmp_path) as command:
        found = httpx.post(f"{command.address}/search", json={"item": 8, "explore": 0}).json()["results"]
    distances = np.unpackbits(CODES ^ CODES[1], axis=1).sum(axis=1)
    expected = sorted((int(d), int(i)) for d, i in zip(distances, IDS, strict=True) if i != 8)[:20]
    assert [(result["distance"], result["id"]) for result in found] == expected
