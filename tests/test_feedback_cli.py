"""The commands `bitrank feedback import` and `bitrank replay`, over real files and a real HTTP server on loopback."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from bitrank import Index
from bitrank.cli import main
from bitrank.feedback import LogReader, read_log, replay
from bitrank.feedback.simulation import SimulatedUsers

WEIGHTS = [0.5, 1.0, 1.5]


class Service(BaseHTTPRequestHandler):
    """Answers `POST /feedback` and `GET` of a version as the service promises, and keeps what it accepted."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        log = self.server.log
        if self.server.token and self.headers.get("Authorization") != f"Bearer {self.server.token}":
            return self.answer(401, {"detail": "a token is needed"})
        if self.path != "/feedback" or len(log) >= self.server.room:
            return self.answer(503, {"detail": "the disk is full"})
        known = body["key"] in log
        log.setdefault(body["key"], body)
        return self.answer(200 if known else 201, {"accepted": not known, "n_clicks": len(log)})

    def do_GET(self):
        found = self.path == "/profiles/default/versions/2"
        return self.answer(200, {"number": 2, "weights": WEIGHTS}) if found else self.answer(404, {"detail": "none"})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def service():
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        server.log, server.room, server.token = {}, 10**6, None
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def folder(tmp_path, monkeypatch, itq_digits):
    """An index of digits and a log of simulated users of it, ids ten times the rows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BITRANK_TOKEN", raising=False)
    codes = itq_digits.codes
    Index(codes, ids=np.arange(len(codes)) * 10).save("codes.index")
    ids = {code.tobytes(): row * 10 for row, code in reversed(list(enumerate(codes)))}
    users = SimulatedUsers(codes, itq_digits.y, random_state=0)
    with open("clicks.jsonl", "w") as file:
        for number in range(250):
            page = users.page()
            shown = {}  # items with equal codes have one id here
            for code, clicked, explored in zip(page.shown_codes, page.clicked, page.explored, strict=True):
                shown.setdefault(ids[code.tobytes()], (bool(clicked), bool(explored)))
            line = {
                "key": f"page-{number}",
                "query": {"code": page.query_code.tobytes().hex()},
                "shown": [{"id": item, "explored": explored} for item, (_, explored) in shown.items()],
                "clicked": [item for item, (clicked, _) in shown.items() if clicked],
            }
            print(json.dumps(line), file=file)
    return tmp_path


def said(capsys):
    return json.loads(capsys.readouterr().out)


def test_import_sends_every_page_once(folder, service, capsys):
    n_clicks = sum(len(page.clicked) for page in read_log(["clicks.jsonl"]))
    assert main(["feedback", "import", "clicks.jsonl", "--url", service.url, "--json"]) == 0
    assert said(capsys) == {"n_pages": 250, "n_clicks": n_clicks, "new": 250, "known": 0}
    assert main(["feedback", "import", "clicks.jsonl", "--url", f"{service.url}/"]) == 0
    assert capsys.readouterr().out.split()[-4:] == ["new", "0", "known", "250"]
    with open("clicks.jsonl") as file:
        assert list(service.log.values()) == [json.loads(line) for line in file]


def test_import_that_broke_off_goes_on(folder, service, capsys):
    service.room = 100
    with pytest.raises(SystemExit, match=r"after 100 of 250 pages, at 'page-100': .*503.*the disk is full"):
        main(["feedback", "import", "clicks.jsonl", "--url", service.url])
    service.room = 1000
    assert main(["feedback", "import", "clicks.jsonl", "--url", service.url, "--json"]) == 0
    facts = said(capsys)
    assert (facts["new"], facts["known"]) == (150, 100)


def test_import_brings_a_token_and_a_profile(folder, service, monkeypatch, capsys):
    service.token = "secret"
    with pytest.raises(SystemExit, match="401"):
        main(["feedback", "import", "clicks.jsonl", "--url", service.url])
    monkeypatch.setenv("BITRANK_TOKEN", "secret")
    assert main(["feedback", "import", "clicks.jsonl", "--url", service.url, "--profile", "shop"]) == 0
    assert {page["profile"] for page in service.log.values()} == {"shop"}


def test_import_without_a_service_says_so(folder):
    with pytest.raises(SystemExit, match=r"bitrank feedback: after 0 of 250 pages, .*refused"):
        main(["feedback", "import", "clicks.jsonl", "--url", "http://127.0.0.1:9"])


def test_import_of_a_bad_log_sends_nothing(folder, service):
    with open("clicks.jsonl", "a") as file:
        file.write('{"key": "bad", "shown": 3}\n')
    with pytest.raises(SystemExit, match=r"bitrank feedback: clicks\.jsonl, line 251: shown must be a list"):
        main(["feedback", "import", "clicks.jsonl", "--url", service.url])
    assert service.log == {}


def test_import_of_ubi_to_a_file(folder, capsys):
    query = {"query_id": "q1", "user_query": "70", "query_response_hit_ids": ["10", "20"]}
    click = {"query_id": "q1", "action_name": "click", "event_attributes": {"object": {"object_id": "20"}}}
    (folder / "queries.jsonl").write_text(json.dumps(query))
    (folder / "events.jsonl").write_text(json.dumps(click))
    assert main(["feedback", "import", "events.jsonl", "queries.jsonl", "--output", "own.jsonl", "--json"]) == 0
    assert said(capsys) == {"n_pages": 1, "n_clicks": 1}
    shown = [{"id": 10, "explored": False}, {"id": 20, "explored": False}]
    expected = {"key": "q1", "query": {"item": 70}, "shown": shown, "clicked": [20]}
    assert json.loads((folder / "own.jsonl").read_text()) == expected


def test_replay_is_the_library_call(folder, itq_digits, capsys):
    assert main(["replay", "clicks.jsonl", "--index", "codes.index", "--output", "w.npy", "--json"]) == 0
    facts = said(capsys)
    codes, ids = Index.load("codes.index").export()
    found = list(LogReader(codes, ids, 32).pages(read_log(["clicks.jsonl"])))
    expected = replay([page for _, page in found], codes, 32, random_state=0)
    np.testing.assert_array_equal(np.load("w.npy"), expected.candidate)
    assert facts["candidate"] == expected.candidate.tolist()
    assert (facts["n_pages"], facts["n_left_out"], facts["n_clicks"]) == (250, 0, expected.n_clicks)
    assert [look["reason"] for look in facts["decisions"]] == [look.decision.reason for look in expected.looks]
    assert facts["top_20_kept"] == expected.overlap
    for said_move, move in zip(facts["moves"], expected.moves, strict=False):
        logged, page = found[move.page]
        assert said_move["query"] == logged.query
        assert (said_move["before"], said_move["after"]) == (move.before, move.after)
        assert (codes[ids == said_move["item"]] == page.shown_codes[move.place]).all()


def test_replay_prints_for_people(folder, capsys):
    assert main(["replay", "clicks.jsonl", "--index", "codes.index", "--top", "3"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("pages             250\n")
    assert "first 20 kept" in printed
    assert "pages with explored clicks that a decision takes" in printed
    assert len(printed[printed.index("biggest moves") :].splitlines()) == 5


def test_replay_leaves_out_what_is_gone_and_says_so(folder, capsys):
    index = Index.load("codes.index")
    index.remove(index.ids[:1190])
    index.save("small.index")
    assert main(["replay", "clicks.jsonl", "--index", "small.index", "--json"]) == 0
    facts = said(capsys)
    assert facts["n_pages"] + facts["n_left_out"] == 250
    assert facts["n_left_out"] > 0
    assert facts["decisions"] == [] or not facts["activated"]


def test_replay_of_vectors_wants_a_hasher(folder):
    line = {"key": "v", "query": {"vector": [1.0] * 5}, "shown": [{"id": 10}], "clicked": [10]}
    (folder / "vectors.jsonl").write_text(json.dumps(line))
    with pytest.raises(SystemExit, match="bitrank replay: queries are vectors: a hasher is needed"):
        main(["replay", "vectors.jsonl", "--index", "codes.index"])


def test_weights_of_a_running_service(folder, service, capsys):
    version = f"{service.url}/profiles/default/versions/2"
    assert main(["weights", "export", version, "w.json"]) == 0
    assert json.loads((folder / "w.json").read_text()) == WEIGHTS
    with pytest.raises(SystemExit, match=r"bitrank weights: .*404"):
        main(["weights", "show", f"{service.url}/profiles/default/versions/9"])
