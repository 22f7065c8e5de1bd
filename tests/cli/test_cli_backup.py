"""The commands `bitrank backup` and `bitrank restore`: between SQLite and PostgreSQL, while a service writes."""

import json
import sqlite3

import numpy as np
import pytest
from serving import serving
from threads import in_threads

from bitrank.cli import main
from bitrank.index import Index
from bitrank.service import sources
from bitrank.service.store import Store

CODES = np.random.default_rng(0).integers(0, 256, (100, 4), dtype=np.uint8)


def source():
    return sources.Source("codes", Index(CODES), sources.Items())


def answer_pages(client, n):
    for _ in range(n):
        page = client.post("/search", json={"item": 1}).json()
        body = {"page_token": page["page_token"], "clicked": [page["results"][0]["id"]]}
        assert client.post("/feedback", json=body).status_code == 201


def test_a_backup_under_load_is_whole_and_restores_to_the_same_service(tmp_path, capsys):
    data, copy = tmp_path / "data", tmp_path / "backup.db"
    data.mkdir()
    with serving(source(), data) as client:
        weights = {"weights": [2.0] * 32}
        client.post("/profiles/default/versions", json=weights)
        client.post("/profiles/default/versions/2/activate")
        client.post("/items", json={"items": [{"id": 500, "code": "00ff00ff", "title": "née", "payload": {"a": [1]}}]})
        answer_pages(client, 5)
        token = client.post("/search", json={"item": 2}).json()["page_token"]

        def backup():
            assert main(["backup", "--data", str(data), str(copy), "--json"]) == 0

        in_threads(lambda: answer_pages(client, 30), backup)
    counts = json.loads(capsys.readouterr().out)
    assert 5 <= counts["pages"] <= 35
    assert main(["restore", str(copy), "--data", str(tmp_path / "restored"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == counts
    with sqlite3.connect(tmp_path / "restored" / "bitrank.db") as connection:
        numbers = [number for (number,) in connection.execute("SELECT number FROM pages ORDER BY number")]
        ((n_pages,),) = connection.execute("SELECT n_pages FROM profiles WHERE name = 'default'")
    connection.close()
    assert numbers == list(range(1, n_pages + 1)) == list(range(1, counts["pages"] + 1))
    with serving(source(), tmp_path / "restored") as client:
        assert client.get("/profiles/default/versions").json()["active"] == 2
        assert client.get("/items/500").json()["title"] == "née"
        # Tokens that were given out before are still good.
        assert client.post("/feedback", json={"page_token": token, "clicked": []}).status_code == 201


def test_the_way_from_sqlite_to_postgresql_and_back(tmp_path, postgres, capsys):
    data = tmp_path / "data"
    data.mkdir()
    with serving(source(), data) as client:
        answer_pages(client, 3)
    base = postgres.url(postgres.new_base())
    files = [tmp_path / name for name in ("a.db", "b.db")]
    assert main(["backup", "--data", str(data), str(files[0])]) == 0
    assert main(["restore", str(files[0]), "--db", base]) == 0
    assert main(["backup", "--db", base, str(files[1])]) == 0
    dumps = []
    for file in files:
        with sqlite3.connect(file) as connection:
            dumps.append({line for line in connection.iterdump() if line.startswith("INSERT")})
        connection.close()
    assert dumps[0] == dumps[1]
    with serving(source(), url=base) as client:
        assert client.get("/profiles").json()[1]["n_pages"] == 3
        answer_pages(client, 1)


def test_mistakes_change_nothing(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    Store(f"sqlite:///{tmp_path / 'data' / 'bitrank.db'}", 32).close()
    copy = tmp_path / "copy.db"
    assert main(["backup", "--data", str(tmp_path / "data"), str(copy)]) == 0
    before = copy.read_bytes()
    (tmp_path / "text.db").write_text("nonsense")
    for arguments, message in [
        (["backup", "--data", str(tmp_path / "data"), str(copy)], "must be a new file"),
        (["backup", "--data", str(tmp_path / "absent"), str(tmp_path / "x.db")], "must be the folder of a database"),
        (["restore", str(copy), "--data", str(tmp_path / "data")], "must be empty"),
        (["restore", str(tmp_path / "absent.db"), "--data", str(tmp_path / "new")], "does not exist"),
        (["restore", str(tmp_path / "text.db"), "--data", str(tmp_path / "new")], "not a database"),
    ]:
        with pytest.raises(SystemExit, match=message):
            main(arguments)
    assert copy.read_bytes() == before
    assert not (tmp_path / "x.db").exists()
    assert sorted(path.name for path in tmp_path.glob(".*")) == []
