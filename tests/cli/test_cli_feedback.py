"""The command `bitrank feedback import`, with a real HTTP server on loopback."""

import json

import pytest

from bitrank.cli import main

LINES = [
    {
        "key": f"page-{number}",
        "query": {"item": number},
        "shown": [{"id": 10, "explored": False}, {"id": 20, "explored": True}],
        "clicked": [20][: number % 2],
    }
    for number in range(20)
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with a log of 20 pages and 10 clicks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BITRANK_TOKEN", raising=False)
    (tmp_path / "clicks.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in LINES))
    return tmp_path


def test_every_page_is_sent_once(folder, loopback_service, capsys, printed_json):
    assert main(["feedback", "import", "clicks.jsonl", "--url", loopback_service.url, "--json"]) == 0
    assert printed_json() == {"n_pages": 20, "n_clicks": 10, "new": 20, "known": 0}
    assert main(["feedback", "import", "clicks.jsonl", "--url", f"{loopback_service.url}/"]) == 0
    assert capsys.readouterr().out.split()[-4:] == ["new", "0", "known", "20"]
    assert list(loopback_service.pages.values()) == LINES


def test_an_interrupted_import_is_continued(folder, loopback_service, printed_json):
    loopback_service.capacity = 8
    with pytest.raises(SystemExit, match=r"bitrank feedback: after 8 of 20 pages, at 'page-8': .*the disk is full"):
        main(["feedback", "import", "clicks.jsonl", "--url", loopback_service.url])
    loopback_service.capacity = 1000
    assert main(["feedback", "import", "clicks.jsonl", "--url", loopback_service.url, "--json"]) == 0
    facts = printed_json()
    assert (facts["new"], facts["known"]) == (12, 8)


def test_token_and_profile(folder, loopback_service, monkeypatch):
    loopback_service.token = "secret"
    with pytest.raises(SystemExit, match="401"):
        main(["feedback", "import", "clicks.jsonl", "--url", loopback_service.url])
    monkeypatch.setenv("BITRANK_TOKEN", "secret")
    assert main(["feedback", "import", "clicks.jsonl", "--url", loopback_service.url, "--profile", "shop"]) == 0
    assert {page["profile"] for page in loopback_service.pages.values()} == {"shop"}


def test_a_bad_log_sends_nothing(folder, loopback_service):
    with open("clicks.jsonl", "a") as file:
        file.write('{"key": "bad", "shown": 3}\n')
    with pytest.raises(SystemExit, match=r"bitrank feedback: clicks\.jsonl, line 21: shown must be a list"):
        main(["feedback", "import", "clicks.jsonl", "--url", loopback_service.url])
    assert loopback_service.pages == {}


def test_ubi_to_a_file(folder, printed_json):
    query = {"query_id": "q1", "user_query": "70", "query_response_hit_ids": ["10", "20"]}
    click = {"query_id": "q1", "action_name": "click", "event_attributes": {"object": {"object_id": "20"}}}
    (folder / "queries.jsonl").write_text(json.dumps(query))
    (folder / "events.jsonl").write_text(json.dumps(click))
    assert main(["feedback", "import", "events.jsonl", "queries.jsonl", "--output", "pages.jsonl", "--json"]) == 0
    assert printed_json() == {"n_pages": 1, "n_clicks": 1}
    shown = [{"id": 10, "explored": False}, {"id": 20, "explored": False}]
    expected = {"key": "q1", "query": {"item": 70}, "shown": shown, "clicked": [20]}
    assert json.loads((folder / "pages.jsonl").read_text()) == expected
