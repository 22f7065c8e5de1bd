"""The command `bitrank replay`, on a log of simulated users of the embedded digits."""

import json

import numpy as np
import pytest

from bitrank import Collection, load_ranker
from bitrank.cli import main
from bitrank.clicks import pages_from_log, read_log, replay
from bitrank.clicks.simulate import SimulatedUsers

N_PAGES = 100


@pytest.fixture(scope="module")
def log(tmp_path_factory, itq_digits):
    """A folder with a collection of digits, ids ten times the row numbers, and a log of simulated users."""
    folder = tmp_path_factory.mktemp("replay")
    codes = itq_digits.codes
    Collection.from_codes(codes, ids=np.arange(len(codes)) * 10).save(folder / "codes.bitrank")
    ids = {code.tobytes(): row * 10 for row, code in reversed(list(enumerate(codes)))}
    users = SimulatedUsers(codes, itq_digits.y, random_state=0)
    with open(folder / "clicks.jsonl", "w") as file:
        for number in range(N_PAGES):
            page = users.page()
            shown = {}  # items with equal codes get one id
            for code, clicked, explored in zip(page.shown_codes, page.clicked, page.explored, strict=True):
                shown.setdefault(ids[code.tobytes()], (bool(clicked), bool(explored)))
            line = {
                "key": f"page-{number}",
                "query": {"code": page.query_code.tobytes().hex()},
                "shown": [{"id": item, "explored": explored} for item, (_, explored) in shown.items()],
                "clicked": [item for item, (clicked, _) in shown.items() if clicked],
            }
            print(json.dumps(line), file=file)
    return folder


@pytest.fixture
def folder(log, monkeypatch):
    """The same folder as the working directory."""
    monkeypatch.delenv("BITRANK_TOKEN", raising=False)
    monkeypatch.chdir(log)
    return log


@pytest.mark.slow
def test_replay_is_the_library_call(folder, printed_json):
    assert main(["replay", "codes.bitrank", "clicks.jsonl", "--output", "clicks.ranker", "--json"]) == 0
    facts = printed_json()
    collection = Collection.load("codes.bitrank")
    codes, ids = collection.codes(), collection.ids
    pairs = list(pages_from_log(read_log(["clicks.jsonl"]), codes, ids, 32))
    replayed = replay([page for _, page in pairs], codes, 32, random_state=0)
    queries = [ranker.queries_for(codes[:9]).weights for ranker in (load_ranker("clicks.ranker"), replayed.candidate)]
    np.testing.assert_array_equal(*queries)
    assert (facts["n_pages"], facts["n_left_out"], facts["n_clicks"]) == (N_PAGES, 0, replayed.n_clicks)
    assert [look["reason"] for look in facts["decisions"]] == [look.decision.reason for look in replayed.looks]
    assert facts["top_20_kept"] == replayed.overlap
    assert len(facts["moves"]) == 10
    for named, move in zip(facts["moves"], replayed.moves, strict=False):
        logged, page = pairs[move.page]
        assert named["query"] == logged.query
        assert named["item"] in logged.clicked
        assert page.shown_codes[move.place].tobytes() == codes[ids.tolist().index(named["item"])].tobytes()
        assert (named["before"], named["after"]) == (move.before, move.after)


def test_printed_table(folder, capsys):
    assert main(["replay", "codes.bitrank", "clicks.jsonl", "--top", "3"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].split() == ["n", "pages", str(N_PAGES)]
    assert "top 20 kept" in printed
    assert "pages with explored clicks that a decision needs" in printed
    assert len(printed[printed.index("largest moves") :].splitlines()) == 5


def test_removed_items_are_left_out(folder, printed_json):
    collection = Collection.load("codes.bitrank")
    collection.remove(collection.ids[:1190])
    collection.save("small.bitrank")
    assert main(["replay", "small.bitrank", "clicks.jsonl", "--json"]) == 0
    facts = printed_json()
    assert facts["n_pages"] + facts["n_left_out"] == N_PAGES
    assert facts["n_left_out"] > 0
    assert facts["decisions"] == [] or not facts["activated"]


def test_weights_of_a_service_with_a_token(folder, loopback_service, monkeypatch, printed_json):
    weights = np.random.default_rng(0).random(32).astype(np.float32)
    np.save("start.npy", weights)
    loopback_service.token, loopback_service.weights = "secret", weights.tolist()
    lines = (folder / "clicks.jsonl").read_text().splitlines(keepends=True)
    (folder / "few.jsonl").write_text("".join(lines[:20]))
    command = ["replay", "codes.bitrank", "few.jsonl", "--json", "--weights"]
    with pytest.raises(SystemExit, match=r"bitrank replay: .*401"):
        main([*command, loopback_service.version])
    monkeypatch.setenv("BITRANK_TOKEN", "secret")
    assert main([*command, loopback_service.version]) == 0
    facts = printed_json()
    assert main([*command, "start.npy"]) == 0
    assert printed_json() == facts


def test_vectors_need_a_hasher(folder):
    line = {"key": "v", "query": {"vector": [1.0] * 5}, "shown": [{"id": 10}], "clicked": [10]}
    (folder / "vectors.jsonl").write_text(json.dumps(line))
    with pytest.raises(SystemExit, match="bitrank replay: queries are vectors: a hasher is needed"):
        main(["replay", "codes.bitrank", "vectors.jsonl"])
