"""Logs of clicks: lines in bitrank's form, lines of UBI, and the pages of codes made from them."""

import base64
import json

import numpy as np
import pytest

from bitrank import ITQ
from bitrank.clicks import LoggedPage, pages_from_log, pairs_from_log, read_log
from bitrank.clicks.log import parse_code

RNG = np.random.default_rng(0)
CODES = RNG.integers(0, 256, (50, 4), dtype=np.uint8)
IDS = np.arange(50) * 10

OWN = {
    "key": "k1",
    "profile": "shop",
    "version": 3,
    "query": {"item": 70},
    "shown": [{"id": 10}, {"id": 20, "explored": True}, {"id": 30, "explored": False}],
    "clicked": [20],
}


def event(query_id, action, item, ordinal=None, **more):
    position = {} if ordinal is None else {"position": {"ordinal": ordinal}}
    attributes = {"object": {"object_id": item, "object_id_field": "id"}, **position, **more}
    return {"action_name": action, "query_id": query_id, "client_id": "c", "event_attributes": attributes}


def query(query_id, hits=(), **more):
    return {"query_id": query_id, "client_id": "c", "query_response_hit_ids": list(hits), **more}


@pytest.fixture
def write(tmp_path):
    def to_file(*lines, name="clicks.jsonl"):
        path = tmp_path / name
        path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
        return path

    return to_file


def test_lines_of_the_service_are_read_and_written(write):
    (page,) = read_log([write(OWN, "")])
    assert page == LoggedPage("k1", {"item": 70}, [10, 20, 30], [False, True, False], [20], "shop", 3)
    assert read_log([write(page.to_json(), name="again.jsonl")]) == [page]
    bare = {name: value for name, value in OWN.items() if name not in ("profile", "version")}
    assert "profile" not in read_log([write(bare)])[0].to_json()


def test_ubi_impressions_are_sorted_and_clicks_counted_once(write):
    lines = [
        event("q1", "click", "20", 2),
        event("q1", "impression", "30", 3, explored=True),
        query("q1", ["10", "20", "30", "40"], user_query="70"),
        event("q1", "impression", "10", 1),
        event("q1", "impression", "20", 2),
        event("q1", "click", "20", 2),
        event("q1", "add_to_cart", "20"),
        {"action_name": "login", "query_id": None},
    ]
    (page,) = read_log([write(*lines)])
    assert page == LoggedPage("q1", {"item": 70}, [10, 20, 30], [False, False, True], [20])


def test_ubi_without_impressions_shows_the_hits(write):
    queries = write(
        {"_index": "ubi_queries", "_source": query("a", ["10", "20"], query_attributes={"code": "00ff00ff"})},
        query("b", ["30"], query_attributes={"vector": [0.5, 1]}, user_query="text"),
        query("c", ["30"], user_query="red shoes"),
        query("d", [], user_query="70"),
        name="queries.jsonl",
    )
    events = write(event("a", "click", "20", 2), event("b", "click", "99"), name="events.jsonl")
    assert read_log([queries, events]) == [
        LoggedPage("a", {"code": "00ff00ff"}, [10, 20], [False, False], [20]),
        LoggedPage("b", {"vector": [0.5, 1]}, [30, 99], [False, False], [99]),
    ]


def changed(**values):
    return {**OWN, **values}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{not json", "line 2: not JSON"),
        ("[1, 2]", "line 2: expected an object"),
        ({"foo": 1}, 'line 2: expected a page with "shown"'),
        (changed(), "line 2: key 'k1' comes a second time"),
        (changed(key=""), "line 2: key must be a text"),
        (changed(key="k2", shown=[]), "line 2: shown must be a list"),
        (changed(key="k2", shown=[7]), "line 2: shown must be a list"),
        (changed(key="k2", shown=[{"id": -1}]), "line 2: an id must be a whole number from 0 to .*, got -1"),
        (changed(key="k2", shown=[{"id": True}]), "line 2: an id must be a whole number"),
        (changed(key="k2", shown=[{"id": 1}, {"id": 1}], clicked=[]), "line 2: shown must hold every item once"),
        (changed(key="k2", shown=[{"id": 20, "explored": 1}]), "line 2: explored must be true or false"),
        (changed(key="k2", clicked=[77]), "line 2: clicked must be among the items shown, got 77"),
        (changed(key="k2", clicked=None), "line 2: clicked must be a list"),
        (changed(key="k2", query={}), "line 2: query must hold one of item, code, vector"),
        (changed(key="k2", query={"item": 1, "code": "00"}), "line 2: query must hold one of"),
        (changed(key="k2", query={"vector": ["a"]}), "line 2: vector must be a list of finite numbers"),
        (event("k1", "click", "20"), "line 2: query_id 'k1' is the key of another page"),
        (event("q", "click", "shoe"), "line 2: an id must be a whole number from 0 to .*, got 'shoe'"),
        ({"query_id": "q", "action_name": "click"}, "line 2: event_attributes must be an object"),
        (query("q") | {"query_response_hit_ids": "10"}, "line 2: query_response_hit_ids must be a list"),
    ],
)
def test_a_bad_line_is_named(write, line, message):
    with pytest.raises(ValueError, match=message):
        read_log([write(OWN, line)])


def test_items_that_are_gone_are_left_out(write):
    lines = [
        OWN,
        changed(key="k2", query={"item": 71}),
        changed(key="k3", shown=[{"id": 11}], clicked=[]),
        changed(key="k4", shown=[{"id": 11}, {"id": 30}, {"id": 490, "explored": True}], clicked=[11, 490]),
    ]
    pages = list(pages_from_log(read_log([write(*lines)]), CODES, IDS, 32))
    assert [logged.key for logged, _ in pages] == ["k1", "k4"]
    assert [logged.shown for logged, _ in pages] == [[10, 20, 30], [30, 490]]
    first, last = (page for _, page in pages)
    np.testing.assert_array_equal(first.query_code, CODES[7])
    np.testing.assert_array_equal(first.shown_codes, CODES[1:4])
    np.testing.assert_array_equal(first.clicked, [False, True, False])
    np.testing.assert_array_equal(first.explored, [False, True, False])
    np.testing.assert_array_equal(last.shown_codes, CODES[[3, 49]])
    np.testing.assert_array_equal(last.clicked, [False, True])


def test_queries_may_be_codes_and_vectors(write):
    X = RNG.standard_normal((50, 40)).astype(np.float32)
    hasher = ITQ(32, random_state=0).fit(X)
    lines = [
        changed(query={"code": CODES[9].tobytes().hex()}),
        changed(key="k2", query={"code": base64.b64encode(CODES[9].tobytes()).decode()}),
        changed(key="k3", query={"vector": X[3].tolist()}),
    ]
    logged = read_log([write(*lines)])
    pages = [page for _, page in pages_from_log(logged, CODES, IDS, 32, hasher.project)]
    np.testing.assert_array_equal([pages[0].query_code, pages[1].query_code], CODES[[9, 9]])
    np.testing.assert_array_equal(pages[2].query_code, hasher.transform(X[3:4])[0])
    np.testing.assert_allclose(pages[2].query, hasher.project(X[3:4])[0], rtol=1e-6)
    with pytest.raises(ValueError, match="a hasher is needed"):
        list(pages_from_log(logged, CODES, IDS, 32))


@pytest.mark.parametrize("text", ["", "zz", "00ff", "00ff00ff00", "????????", "00ff00fg"])
def test_malformed_codes_are_refused(text):
    with pytest.raises(ValueError, match="code must be 8 hex digits or base64 of 4 bytes"):
        parse_code(text, 32)
    with pytest.raises(ValueError, match="last 1 bits of a row zero"):
        parse_code("00ff00ff", 31)


def test_pairs_of_a_log_join_the_pages_of_one_query():
    codes, ids = np.uint8([[1], [2], [3], [4]]), [10, 11, 12, 13]
    pages = [
        LoggedPage("a", {"item": 13}, [10, 11], [False, False], [11]),
        LoggedPage("b", {"item": 13}, [11, 10, 99], [False, False, False], [10]),
        LoggedPage("c", {"code": "ff"}, [12, 10], [False, True], []),
        LoggedPage("d", {"item": 99}, [10], [False], [10]),  # an item that the collection lacks
    ]
    queries, pairs, n_left_out = pairs_from_log(pages, codes, ids, 8)
    assert queries.tolist() == [[4], [255]]
    assert sorted(pairs.tolist()) == [[0, 0, 1], [0, 1, 1], [1, 0, 0], [1, 2, 0]]
    assert n_left_out == 1
    with pytest.raises(ValueError, match="pages must name items of the collection, got none in 1 pages"):
        pairs_from_log(pages[3:], codes, ids, 8)


def test_vectors_of_a_log_make_all_queries_reals():
    pages = [
        LoggedPage("a", {"vector": [0.5, -2.0]}, [0], [False], [0]),
        LoggedPage("b", {"item": 1}, [0], [False], [0]),
    ]
    queries, _, _ = pairs_from_log(pages, np.uint8([[64], [128]]), None, 2, project=lambda vectors: 2 * vectors)
    np.testing.assert_array_equal(queries, np.float32([[1, -4], [1, -1]]))


def test_numbers_of_a_log_stand_for_texts_of_digits():
    logged = LoggedPage("a1", {"item": 10}, [20, 10, 40], [False, True, True], [10])
    codes = np.uint8([[1], [2], [3]])
    [(left, page)] = pages_from_log([logged], codes, np.array(["20", "10", "b"], object), 8)
    assert (left.query, left.shown, left.clicked) == ({"item": "10"}, ["20", "10"], ["10"])
    assert (page.query_code.tolist(), page.shown_codes.tolist()) == ([2], [[1], [2]])
    assert (page.clicked.tolist(), page.explored.tolist()) == ([False, True], [False, True])
    pairs = pairs_from_log([logged], codes, ["20", "10", "b"], 8).pairs
    assert pairs.tolist() == [[0, 0, 0], [0, 1, 1]]
