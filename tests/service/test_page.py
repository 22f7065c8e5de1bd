"""The page in headless Chromium over a real service: what it shows, learning, keyboard, screen readers, screens."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from itertools import groupby, pairwise
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image
from serving import Command
from threads import wait_until

from bitrank import Index
from bitrank.core.codes import hamming, pack
from bitrank.datasets import digits
from bitrank.service.store import Store

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("the page's tests are left out: there is no Chromium here", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="the page's tests are left out: playwright is missing")
expect = playwright.expect
expect.set_options(timeout=120_000)  # the machine may be busy with other tests

FLAGS = "--disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update"
FLAGS = [*FLAGS.split(), "--disable-sync", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
# Browsers report violations of the policy as events, and not always in the console.
LISTEN = (
    "window.violations = []; addEventListener('securitypolicyviolation', (e) => violations.push(e.violatedDirective))"
)
MARKUP = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script><b>bold</b>'


def call(method, url, body=None):
    """Send one request to the API, as any client does."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.loads(response.read() or "null")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The folder of the service's database."""
    return tmp_path_factory.mktemp("digits")


@pytest.fixture(scope="module")
def service(data):
    with Command("--data", data, "--rate", 0) as running:
        yield running.address


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def contexts(browser):
    """Browser contexts by their options; pages of one context share a cache."""
    opened = {}

    def context(options):
        key = json.dumps(options, sort_keys=True)
        if key not in opened:
            opened[key] = browser.new_context(**options)
            opened[key].set_default_timeout(120_000)
        return opened[key]

    yield context
    for context in opened.values():
        context.close()


@pytest.fixture
def profile(service, request):
    """A profile for one test: no other test sees what it learns."""
    name = re.sub(r"\W+", "-", request.node.name)[:60].strip("-")
    call("PUT", f"{service}/profiles/{name}")
    return name


@pytest.fixture
def visit(contexts):
    """Open an address; at the end, check for violations, console messages and requests to other hosts."""
    opened = []

    def go(url, **options):
        options = {"viewport": {"width": 1200, "height": 900}, "reduced_motion": "reduce", **options}
        page = contexts(options).new_page()
        faults, hosts = [], set()
        opened.append((page, urlsplit(url).netloc, faults, hosts))
        page.on("console", lambda message: message.type in ("error", "warning") and faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
        page.add_init_script(LISTEN)
        page.goto(url)
        expect(page.locator("#learned li").first).to_be_visible()
        return page

    go.expected = lambda text: [
        faults.remove(fault) for *_, faults, _ in opened for fault in faults[:] if text in fault
    ]
    yield go
    for page, host, faults, hosts in opened:
        assert page.evaluate("violations") == []
        assert faults == []
        assert hosts == {host}
        page.close()


@pytest.fixture
def digit(visit, service, profile):
    """The page over the digits, at item 7, in the profile of the test."""
    return visit(f"{service}/?item=7&profile={profile}")


def ids(page, column):
    return page.locator(f"#{column} li").evaluate_all("cards => cards.map(card => Number(card.dataset.id))")


def ranked(page, column="learned"):
    """Return the ids in order, without explored items."""
    return page.locator(f"#{column} li:not(.explored)").evaluate_all(
        "cards => cards.map(card => Number(card.dataset.id))"
    )


def search_by(page, mode):
    page.get_by_role("search").get_by_text(mode, exact=True).click()


def choose(page, column, item):
    page.locator(f'#{column} li[data-id="{item}"] button').click()
    expect(page.locator("#status")).to_contain_text("More like")
    expect(page.locator("body")).not_to_have_attribute("aria-busy", "true")


# What is shown


def test_a_search_fills_both_columns(digit, service, profile):
    answer = call("POST", f"{service}/search", {"item": 7, "profile": "hamming", "explore": 0})
    assert ids(digit, "hamming") == [result["id"] for result in answer["results"]]
    own = pack_hex(answer["query"]["code"])
    shown = [call("GET", f"{service}/items/{item}")["code"] for item in ids(digit, "hamming")]
    found = [int(hamming(own, pack_hex(code))[0, 0]) for code in shown]
    assert found == sorted(found)
    assert [int(text) for text in digit.locator("#hamming .distance").evaluate_all(LAST_TEXT)] == found
    assert len(ids(digit, "learned")) == 20
    pictures = digit.locator("#hamming img")
    assert pictures.count() == 20
    assert all(
        pictures.evaluate_all("pictures => pictures.map(picture => picture.complete && picture.naturalWidth === 28)")
    )


LAST_TEXT = "spans => spans.map(span => span.lastChild.textContent)"


def pack_hex(text):
    return np.frombuffer(bytes.fromhex(text), np.uint8)[None]


def tie_ranks(page, column):
    """Rank the items of a column by their distances, ties together, without explored items."""
    cards = page.locator(f"#{column} li:not(.explored)")
    items = cards.evaluate_all("cards => cards.map(card => Number(card.dataset.id))")
    distances = cards.locator(".distance").evaluate_all(LAST_TEXT)
    return {item: distances.index(distance) + 1 for item, distance in zip(items, distances, strict=True)}


def test_the_page_says_what_it_is_for_and_what_its_marks_mean(digit):
    expect(digit.locator(".lead")).to_contain_text("the ranking learns from your choices")
    legend = digit.get_by_role("list", name="Legend")
    for words in ("a tie: equal distances", "from deeper ranks", "chosen by you", "moved since"):
        expect(legend).to_contain_text(words)


def test_ranks_leave_out_explored_cards(digit):
    expected = tie_ranks(digit, "learned")
    assert digit.locator("#learned li.explored").count() == 4
    cards = digit.locator("#learned li:not(.explored)")
    labels = cards.locator(".rank > [aria-hidden]").all_inner_texts()
    assert [int(label.removeprefix("=")) for label in labels] == [expected[item] for item in ranked(digit)]
    assert max(int(label.removeprefix("=")) for label in labels) <= 16
    assert digit.locator("#learned li.explored .rank").first.inner_text().endswith("explore")


def test_an_empty_field_searches_nothing(digit):
    shown = ids(digit, "hamming")
    digit.get_by_label("Item number").fill("")
    digit.get_by_role("button", name="Search").click()
    expect(digit.get_by_role("alert")).to_contain_text("Enter the number of an item first")
    search_by(digit, "Code")
    digit.get_by_role("button", name="Search").click()
    expect(digit.get_by_role("alert")).to_contain_text("Enter a code first")
    assert ids(digit, "hamming") == shown


@pytest.mark.slow
def test_a_broken_picture_leaves_its_title(digit, visit):
    digit.route("**/items/*/image", lambda route: route.abort())
    digit.reload()
    card = digit.locator("#hamming li").first
    expect(card.locator(".words")).to_contain_text("digit")
    expect(digit.locator("#hamming img")).to_have_count(0)
    visit.expected("ERR_FAILED")


def test_an_unknown_profile_is_said_and_the_default_shown(visit, service):
    page = visit(f"{service}/?item=7&profile=nobody")
    expect(page.get_by_role("alert")).to_contain_text("There is no profile “nobody”")
    expect(page.locator("#profile")).to_have_value("default")
    assert len(ids(page, "learned")) == 20


@pytest.mark.slow
def test_a_slow_search_looks_busy_and_a_failed_one_keeps_the_results(digit, visit):
    shown, waiting = ids(digit, "hamming"), []
    digit.route("**/search", lambda route: waiting.append(route))
    digit.get_by_label("Item number").fill("12")
    digit.get_by_role("button", name="Search").click()
    expect(digit.get_by_role("status")).to_contain_text("Working")
    expect(digit.locator("body")).to_have_attribute("aria-busy", "true")
    for route in waiting:
        route.fulfill(status=500, json={"detail": "the service failed; its log says more"})
    expect(digit.get_by_role("alert")).to_contain_text("the service failed")
    expect(digit.locator("body")).not_to_have_attribute("aria-busy", "true")
    assert ids(digit, "hamming") == shown
    digit.unroute("**/search")
    digit.get_by_role("button", name="Search").click()
    expect(digit).to_have_url(re.compile("item=12"))
    expect(digit.get_by_role("alert")).to_have_count(0)
    visit.expected("500")


def test_ties_are_shown_as_ties(digit):
    distances = digit.locator("#hamming .distance").evaluate_all(LAST_TEXT)
    expected, rank = [], 1
    for _, group in groupby(distances):
        size = len(list(group))
        expected += [f"={rank}" if size > 1 else str(rank)] * size
        rank += size
    labels = digit.locator("#hamming .rank > [aria-hidden]").all_inner_texts()
    assert labels == expected
    tied = sum(label.startswith("=") for label in labels)
    assert tied > 10  # 64 bits cannot tell twenty neighbours apart
    assert digit.locator("#hamming li.tied").count() == tied
    expect(digit.locator("#hamming .summary")).to_contain_text(f"{tied} of 20 tied")
    # A band runs through all cards of a tie: those after the first are joined to the one before.
    joined = sum(label.startswith("=") and label == before for before, label in pairwise(labels))
    assert digit.locator("#hamming li.joined").count() == joined


def test_markup_in_a_title_is_text(visit, service):
    code = "0f" * 8
    call("POST", f"{service}/items", {"items": [{"id": 20_000, "code": code, "title": MARKUP}]})
    page = visit(f"{service}/?code={code}")
    first = page.locator('#hamming li[data-id="20000"]')
    expect(first.locator(".words")).to_have_text(MARKUP)  # no picture: the title stands in its place
    assert first.locator("img, script, b").count() == 0
    choose(page, "hamming", 20_000)
    expect(page.locator("#status")).to_contain_text(MARKUP)
    page = visit(f"{service}/?item=20000")
    expect(page.locator("#query-title")).to_have_text(MARKUP)
    assert page.evaluate("window.hacked") is None
    call("DELETE", f"{service}/items/20000")


@pytest.mark.slow  # the markup test shows a title in the place of a picture by default
def test_titles_stand_where_there_are_no_pictures(visit, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    Index(pack(rng.integers(0, 2, (200, 98)))).save(tmp_path / "codes.index")
    titles = [None if i == 5 else f"Title {i}, " + "long enough to need more than one line " * 3 for i in range(200)]
    pq.write_table(pa.table({"id": range(200), "title": titles}), tmp_path / "items.parquet")
    given = ["--index", tmp_path / "codes.index", "--items", tmp_path / "items.parquet"]
    token = "a-token-for-this-test"
    with Command("--data", tmp_path / "data", *given, environment={"BITRANK_TOKEN": token}) as running:
        # Where the service has a token, the browser asks for it and sends it from then on.
        known = {"username": "anybody", "password": token}
        page = visit(f"{running.address}/?item=0", viewport={"width": 360, "height": 740}, http_credentials=known)
        shown = ids(page, "hamming")
        expected = [titles[i] or f"Item {i}" for i in shown]
        assert [" ".join(text.split()) for text in page.locator("#hamming .words").all_inner_texts()] == [
            text.strip() for text in expected
        ]
        expect(page.get_by_role("radio", name="Picture")).to_have_count(0)
        expect(page.locator("#code-label")).to_contain_text("26 hex digits")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_unknown_items_and_bad_codes_are_reported(digit, visit):
    shown = ids(digit, "hamming")
    digit.get_by_label("Item number").fill("999999")
    digit.get_by_role("button", name="Search").click()
    expect(digit.get_by_role("alert")).to_contain_text("999999")
    search_by(digit, "Code")
    digit.locator("#code").fill("xyz")
    digit.get_by_role("button", name="Search").click()
    expect(digit.get_by_role("alert")).to_contain_text("16 hex digits")
    assert ids(digit, "hamming") == shown
    visit.expected("404")
    visit.expected("422")


@pytest.mark.slow
def test_code_and_address_lead_to_the_same_page(digit, service):
    code = call("GET", f"{service}/items/42")["code"]
    search_by(digit, "Code")
    digit.locator("#code").fill(code)
    digit.get_by_role("button", name="Search").click()
    expect(digit.locator("#query-code")).to_have_text(code)
    assert ids(digit, "hamming")[0] == 42
    found = ids(digit, "hamming")
    digit.reload()
    expect(digit.locator("#query-code")).to_have_text(code)
    assert ids(digit, "hamming") == found
    digit.go_back()
    expect(digit.locator("#query-code")).to_have_text(call("GET", f"{service}/items/7")["code"])


def test_a_filter_narrows_both_columns_and_further_results_follow(digit, visit, service, profile):
    wanted = {"and": [{"column": "label", "in": [3, 5]}, {"column": "label", "below": 5}]}
    digit.locator("#item").fill("7")
    digit.get_by_label("Filter").fill("label in 3, 5 and label < 5")
    digit.get_by_role("button", name="Search", exact=True).click()
    expect(digit.locator("#status")).to_contain_text("20 results for")

    def found(offset):
        asked = {"item": 7, "profile": "hamming", "explore": 0, "filter": wanted, "offset": offset}
        return [result["id"] for result in call("POST", f"{service}/search", asked)["results"]]

    assert ids(digit, "hamming") == found(0)
    assert {call("GET", f"{service}/items/{item}")["payload"]["label"] for item in ids(digit, "learned")} == {3}
    digit.get_by_role("button", name="Next results").click()
    expect(digit.locator("#status")).to_contain_text("20 results from 21 for")
    assert ids(digit, "hamming") == found(20)
    ranks = digit.locator("#hamming .rank > [aria-hidden]").all_inner_texts()
    assert [int(rank.removeprefix("=")) for rank in ranks] == [result["tie"] for result in call(
        "POST", f"{service}/search",
        {"item": 7, "profile": "hamming", "explore": 0, "filter": wanted, "offset": 20},
    )["results"]]  # fmt: skip
    choose(digit, "learned", ids(digit, "learned")[0])
    digit.get_by_role("button", name="Previous results").click()
    expect(digit.locator("#status")).to_contain_text("20 results for")
    assert ids(digit, "hamming") == found(0)
    expect(digit.get_by_role("button", name="Previous results")).to_be_hidden()
    again = visit(digit.url)
    assert ids(again, "hamming") == found(0)
    again.locator("#item").fill("7")
    again.get_by_label("Filter").fill("label ~ 3")
    again.get_by_role("button", name="Search", exact=True).click()
    expect(again.locator("#error")).to_contain_text("The filter must be like")


def test_random_item(digit):
    digit.get_by_role("button", name="Random item").click()
    expect(digit).to_have_url(re.compile(r"\?item=\d+"))


# Pictures as queries


def test_an_uploaded_picture_is_found(digit, tmp_path):
    Image.fromarray(255 - digits().images[123]).save(tmp_path / "digit.png")
    search_by(digit, "Picture")
    digit.get_by_label("Upload a picture").set_input_files(tmp_path / "digit.png")
    digit.get_by_role("button", name="Search").click()
    expect(digit.locator("#query-title")).to_have_text("digit.png")
    assert digit.locator('#hamming li[data-id="123"] .distance').evaluate_all(LAST_TEXT) == ["0"]
    choose(digit, "learned", ranked(digit)[9])


def test_a_drawing_is_found(digit):
    search_by(digit, "Picture")
    digit.get_by_role("button", name="Search").click()
    expect(digit.get_by_role("alert")).to_contain_text("draw one")
    box = digit.locator("#draw").bounding_box()
    x, y, side = box["x"], box["y"], box["width"]
    digit.mouse.move(x + 0.55 * side, y + 0.15 * side)
    digit.mouse.down()
    digit.mouse.move(x + 0.45 * side, y + 0.85 * side, steps=5)
    digit.mouse.up()
    digit.get_by_role("button", name="Search").click()
    expect(digit.locator("#query-title")).to_have_text("Your drawing")
    names = digit.locator("#hamming .name").all_inner_texts()
    assert names.count("digit 1") > 10


@pytest.mark.slow
def test_a_drawing_and_a_file_do_not_fight(digit, tmp_path):
    Image.fromarray(255 - digits().images[123]).save(tmp_path / "digit.png")
    search_by(digit, "Picture")
    box = digit.locator("#draw").bounding_box()

    def draw():
        digit.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.2 * box["height"])
        digit.mouse.down()
        digit.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.8 * box["height"], steps=4)
        digit.mouse.up()

    draw()
    digit.get_by_label("Upload a picture").set_input_files(tmp_path / "digit.png")
    digit.get_by_role("button", name="Search").click()
    expect(digit.locator("#query-title")).to_have_text("digit.png")
    draw()
    assert digit.locator("#file").input_value() == ""
    digit.get_by_role("button", name="Search").click()
    expect(digit.locator("#query-title")).to_have_text("Your drawing")


# Learning


def test_a_click_moves_the_ranking_and_marks_it(digit, service, profile):
    before, ranks_before = ranked(digit), tie_ranks(digit, "learned")
    choose(digit, "learned", before[12])
    after = ranked(digit)
    assert after != before
    marks = dict(digit.locator("#learned li:not(.explored)").evaluate_all(MARKS))
    ranks_after = tie_ranks(digit, "learned")
    for item in after:
        moved = ranks_before[item] - ranks_after[item] if item in ranks_before else None
        assert marks[item] == (
            "new" if moved is None else "" if moved == 0 else f"{'▲' if moved > 0 else '▼'}{abs(moved)}"
        )
    moved = sum(mark not in ("", "new") for mark in marks.values())
    expect(digit.get_by_role("status")).to_contain_text(f"{moved} item")


MARK = "card.querySelector('.move [aria-hidden]')?.textContent ?? ''"
MARKS = f"cards => cards.map(card => [Number(card.dataset.id), {MARK}])"


def n_pages(service, profile):
    return next(row["n_pages"] for row in call("GET", f"{service}/profiles") if row["name"] == profile)


@pytest.fixture
def sent(digit):
    """The bodies of all answered pages that the page sends."""
    bodies = []
    digit.on("request", lambda request: bodies.append(request.post_data_json) if "feedback" in request.url else None)
    return bodies


def send(page):
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("status")).to_contain_text("Your choices are sent")


@pytest.mark.slow
def test_several_choices_on_one_page_are_one_page(digit, service, profile, sent):
    first = ranked(digit)[3]
    choose(digit, "learned", first)
    second = next(item for item in reversed(ranked(digit)) if item != first)
    choose(digit, "learned", second)
    assert sent == []
    send(digit)
    assert n_pages(service, profile) == len(sent) == 1
    assert sorted(sent[0]["clicked"]) == sorted([first, second])
    expect(digit.locator("li.liked")).to_have_count(0)


def test_more_like_all_that_was_chosen(digit, service, profile):
    expect(digit.get_by_role("button", name="More like these")).to_have_count(0)
    chosen = ranked(digit)[:2]
    for item in chosen:
        choose(digit, "learned", item)
    digit.get_by_role("button", name="More like these").click()
    expect(digit.locator("#query-title")).to_have_text("2 examples")
    alike = call("POST", f"{service}/search", {"positives": chosen, "profile": profile})
    assert ids(digit, "learned") == [result["id"] for result in alike["results"]]
    assert not set(chosen) & set(ids(digit, "hamming"))
    choose(digit, "learned", ids(digit, "learned")[2])  # choices among these answers move them on


@pytest.mark.slow
def test_choices_of_both_columns_are_a_page_each(digit, service, profile, sent):
    first, second = ids(digit, "hamming")[:2]
    choose(digit, "learned", next(item for item in ranked(digit) if item not in (first, second)))
    choose(digit, "hamming", first)
    send(digit)
    assert [body["clicked"] == [first] for body in sent] == [True, False]
    assert n_pages(service, profile) == 2


@pytest.mark.slow
def test_a_result_is_pinned_and_taken_back(digit):
    last = ranked(digit)[-1]
    digit.locator("#pinning").check()
    card = digit.locator(f'#learned li[data-id="{last}"]')
    card.locator("button").click()
    expect(digit.locator("#status")).to_contain_text("Pinned")
    assert ranked(digit)[0] == last
    expect(card.locator(".lifted")).to_contain_text("pinned for")
    card.locator("button").click()
    expect(digit.locator("#status")).to_contain_text("Taken back")
    assert ranked(digit)[0] != last


def test_a_choice_is_undone_by_choosing_again(digit, service, profile, sent):
    before = ranked(digit)
    choose(digit, "learned", before[12])
    assert ranked(digit) != before
    digit.locator(f'#learned li[data-id="{before[12]}"] button').click()
    expect(digit.get_by_role("status")).to_contain_text("No longer chosen")
    assert ranked(digit) == before
    expect(digit.get_by_role("button", name="Send")).to_have_count(0)
    digit.get_by_role("button", name="Random item").click()
    expect(digit).not_to_have_url(re.compile("item=7&"))
    assert sent == []
    assert n_pages(service, profile) == 0


@pytest.mark.slow
def test_choices_are_sent_when_the_query_or_the_page_is_left(digit, service, profile):
    choose(digit, "learned", ranked(digit)[5])
    digit.get_by_role("button", name="Random item").click()
    expect(digit).not_to_have_url(re.compile("item=7&"))
    assert n_pages(service, profile) == 1
    choose(digit, "learned", ranked(digit)[5])
    digit.goto(f"{service}/docs")
    wait_until(lambda: n_pages(service, profile) == 2)
    digit.go_back()
    expect(digit.locator("#learned li").first).to_be_visible()


@pytest.mark.slow
def test_a_page_whose_answer_is_lost_counts_once(digit, visit, service, profile, sent):
    lost = []

    def lose(route):
        if not lost:
            route.fetch()  # the request arrives, its answer does not
            lost.append(route)
            route.abort()
        else:
            route.continue_()

    digit.route("**/feedback", lose)
    choose(digit, "learned", ranked(digit)[5])
    digit.get_by_role("button", name="Send").click()
    expect(digit.get_by_role("alert")).to_contain_text("does not answer")
    digit.get_by_role("button", name="Random item").click()
    expect(digit).not_to_have_url(re.compile("item=7&"))
    assert len(lost) == 1
    assert len(sent) == 2
    assert n_pages(service, profile) == 1
    visit.expected("ERR_FAILED")


COUNT_GLIDES = """() => {
  const animate = Element.prototype.animate;
  Element.prototype.animate = function (...given) {
    window.glides = (window.glides ?? 0) + 1;
    return animate.apply(this, given);
  };
}"""


@pytest.mark.slow
@pytest.mark.parametrize("motion", ["reduce", pytest.param("no-preference", marks=pytest.mark.slow)])
def test_cards_glide_unless_the_system_asks_for_reduced_motion(visit, service, profile, motion):
    page = visit(f"{service}/?item=7&profile={profile}", reduced_motion=motion)
    page.evaluate(COUNT_GLIDES)
    choose(page, "learned", ranked(page)[12])
    assert (page.evaluate("window.glides ?? 0") > 0) == (motion == "no-preference")


# Weights, versions, quality


def test_versions_are_activated_and_rolled_back(visit, service, profile):
    rng = np.random.default_rng(0)
    weights = [1.0] * 32 + rng.lognormal(0, 1, 32).round(3).tolist()
    call("POST", f"{service}/profiles/{profile}/versions", {"weights": weights})
    page = visit(f"{service}/?item=7&profile={profile}")
    page.get_by_label("Which weights").select_option("active version")
    expect(page.get_by_role("button", name="Roll back")).to_be_disabled()
    uniform = ranked(page)
    page.get_by_role("button", name="Activate version 2").click()
    expect(page.locator('tr[data-version="2"]')).to_contain_text("active")
    expect(page.get_by_role("status")).to_contain_text("Version 2 is active")
    assert ranked(page) != uniform
    assert call("GET", f"{service}/profiles/{profile}/versions")["active"] == 2
    check_bars(page, weights)
    page.get_by_role("button", name="Roll back to version 1").click()
    expect(page.locator('tr[data-version="1"]')).to_contain_text("active")
    expect(page.get_by_role("status")).to_contain_text("Rolled back to version 1")
    assert call("GET", f"{service}/profiles/{profile}/versions")["active"] == 1
    check_bars(page, [1.0] * 64)
    page.get_by_role("button", name="Weights of version 2").click()
    expect(page.locator("#weights figcaption")).to_contain_text("Version 2")
    check_bars(page, weights)


@pytest.mark.slow
def test_a_rollback_whose_answer_is_lost_goes_back_once(visit, service, profile):
    for number in (2, 3):
        call("POST", f"{service}/profiles/{profile}/versions", {"weights": [1.0] * 32 + [number / 10] * 32})
        call("POST", f"{service}/profiles/{profile}/versions/{number}/activate")
    page, lost = visit(f"{service}/?item=7&profile={profile}"), []

    def lose(route):
        if lost:
            route.continue_()
        else:
            route.fetch()  # the request arrives, its answer does not
            lost.append(route)
            route.abort()

    page.route("**/rollback", lose)
    page.get_by_role("button", name="Roll back to version 2").click()
    expect(page.get_by_role("alert")).to_contain_text("does not answer")
    page.get_by_role("button", name="Roll back to version 2").click()
    expect(page.get_by_role("status")).to_contain_text("Rolled back to version 2")
    assert call("GET", f"{service}/profiles/{profile}/versions")["active"] == 2
    page.get_by_role("button", name="Roll back to version 1").click()
    expect(page.get_by_role("status")).to_contain_text("Rolled back to version 1")
    visit.expected("ERR_FAILED")


@pytest.mark.slow
def test_a_version_can_be_activated_on_a_phone(visit, service, profile):
    call("POST", f"{service}/profiles/{profile}/versions", {"weights": [1.0] * 32 + [0.0] * 32})
    page = visit(f"{service}/?item=7&profile={profile}", viewport={"width": 360, "height": 740}, has_touch=True)
    button = page.get_by_role("button", name="Activate version 2")
    button.scroll_into_view_if_needed()
    box = button.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360
    scrolled = page.locator("#versions").evaluate("place => [place.scrollLeft, place.scrollWidth - place.clientWidth]")
    assert scrolled == [0, 0]
    button.tap()
    expect(page.locator('tr[data-version="2"]')).to_contain_text("active")


@pytest.mark.slow
def test_what_was_learned_is_shown_on_a_query_that_nobody_answered(visit, service, profile):
    rng = np.random.default_rng(1)
    weights = rng.lognormal(0, 1.5, 64).tolist()
    number = call("POST", f"{service}/profiles/{profile}/versions", {"weights": weights})["number"]
    call("POST", f"{service}/profiles/{profile}/versions/{number}/activate")
    page = visit(f"{service}/?item=7&profile={profile}")
    page.get_by_label("Which weights").select_option("active version")
    expect(page.get_by_role("status")).to_contain_text("active version")
    expect(page.locator("body")).not_to_have_attribute("aria-busy", "true")
    expect(page.locator("#gain .strip")).to_have_count(2)
    for _ in range(2):
        text = page.locator("#gain p").inner_text()
        assert "which nobody has searched for" in text
        strips = page.locator("#gain .strip").all()
        before, after = (
            strip.locator("li").evaluate_all("cards => cards.map(card => Number(card.dataset.id))") for strip in strips
        )
        assert len(before) == len(after) == 8
        fresh = [item for item in after if item not in before]
        marked = page.locator("#gain li.new").evaluate_all("cards => cards.map(card => Number(card.dataset.id))")
        assert marked == fresh
        assert (f"{len(fresh)} result" in text) == bool(fresh)
        page.get_by_role("button", name="Another query").click()
        expect(page.locator("body")).not_to_have_attribute("aria-busy", "true")


def test_a_query_that_was_answered_is_not_offered(service, profile):
    for _ in range(3):
        item = call("GET", f"{service}/profiles/{profile}/unanswered")["item"]
        page = call("POST", f"{service}/search", {"item": item, "profile": profile})
        call("POST", f"{service}/feedback", {"page_token": page["page_token"], "clicked": []})
    answered = {7 * number for number in range(40)}
    for item in answered:
        page = call("POST", f"{service}/search", {"item": item, "profile": profile, "k": 1, "explore": 0})
        call("POST", f"{service}/feedback", {"page_token": page["page_token"], "clicked": []})
    assert call("GET", f"{service}/profiles/{profile}/unanswered")["item"] not in answered


def test_quality_is_drawn_with_its_uncertainty(visit, service, data, profile):
    store = Store(f"sqlite:///{data / 'bitrank.db'}", 64)
    for n_pages, error in ((100, 0.08), (200, 0.04)):
        figures = {"active": 0.62, "candidate": 0.66, "hamming": 0.6, "decision": "keep", "reason": "no gain"}
        figures |= {"error": error, "n_held_out": 30, "alarm": False}
        store.gate.record(profile, n_pages, figures, 1, None)
    store.close()
    page = visit(f"{service}/?item=7&profile={profile}")
    picture = page.get_by_role("img", name=re.compile("After 200 pages: active 0.620"))
    expect(picture).to_be_visible()
    for line in ("active", "candidate", "hamming"):
        points = [
            [float(value) for value in point.split(",")]
            for point in picture.locator(f"polygon.band.{line}").get_attribute("points").split()
        ]
        heights = [points[3][1] - points[0][1], points[2][1] - points[1][1]]
        assert heights[0] == pytest.approx(2 * heights[1], rel=1e-3)
        drawn = picture.locator(f"polyline.{line}").get_attribute("points").split()[0].split(",")
        assert points[0][1] < float(drawn[1]) < points[3][1]
    expect(page.locator("#quality figcaption")).to_contain_text("± 0.080 at most")


def check_bars(page, weights):
    """Check the heights of the bars, the sentence and the table against the weights."""
    heaviest = ", ".join(str(bit) for bit in np.argsort(weights, kind="stable")[::-1][:3])
    words = "weigh the same" if len(set(weights)) == 1 else f"Heaviest: bits {heaviest}"
    picture = page.get_by_role("img", name=re.compile(words))
    expect(picture).to_be_visible()
    heights = picture.locator("rect").evaluate_all("bars => bars.map(bar => bar.height.baseVal.value)")
    np.testing.assert_allclose(np.array(heights) / max(heights), np.array(weights) / max(weights), atol=1e-4)
    cells = page.locator("#weights td:nth-child(2)").evaluate_all(
        "cells => cells.map(cell => Number(cell.textContent))"
    )
    np.testing.assert_allclose(cells, weights, atol=6e-4)


@pytest.mark.slow
def test_quality_over_time_is_drawn_as_measured(visit, service, profile):
    labels = digits().labels
    rng = np.random.default_rng(0)
    measured, n = [], 0
    while len(measured) < 2:
        assert n < 600
        for _ in range(40):
            item = int(rng.integers(10_000))
            found = call("POST", f"{service}/search", {"item": item, "profile": profile, "explore": 10})
            alike = [result["id"] for result in found["results"] if labels[result["id"]] == labels[item]]
            call("POST", f"{service}/feedback", {"page_token": found["page_token"], "clicked": alike})
            n += 1
        while call("GET", f"{service}/profiles/{profile}/candidate")["n_learned"] < n:
            time.sleep(0.01)
        replays = call("GET", f"{service}/profiles/{profile}/quality")
        measured = [replay for replay in replays if replay["active"] is not None]
    assert len(measured) < len(replays)  # the first decisions had too few pages for figures
    page = visit(f"{service}/?item=7&profile={profile}")
    words = f"After {measured[-1]['n_pages']} pages: active {measured[-1]['active']:.3f}"
    picture = page.get_by_role("img", name=re.compile(words))
    expect(picture).to_be_visible()
    heights = {}
    for line in ("active", "candidate", "hamming"):
        points = picture.locator(f"polyline.{line}").get_attribute("points").split()
        heights[line] = [float(point.partition(",")[2]) for point in points]
    drawn = np.array([heights[line] for line in ("active", "candidate", "hamming")]).ravel()
    values = np.array([[row[line] for row in measured] for line in ("active", "candidate", "hamming")]).ravel()
    # One falling line maps every value to its height.
    slope, start = np.polyfit(values, drawn, 1)
    assert slope < 0
    np.testing.assert_allclose(start + slope * values, drawn, atol=0.01)
    rows = page.locator("#quality tbody tr")
    assert rows.count() == len(replays)
    expect(rows.last).to_contain_text(f"{measured[-1]['hamming']:.3f}")
    # Activations by the gate are versions.
    made = call("GET", f"{service}/profiles/{profile}/versions")["versions"]
    assert page.locator("#versions tbody tr").count() == len(made)


@pytest.mark.slow
def test_every_profile_has_its_own_weights(digit, service, profile):
    weights = np.random.default_rng(1).lognormal(0, 1, 64).tolist()
    other = f"{profile}-other"
    call("PUT", f"{service}/profiles/{other}", {"weights": weights})
    digit.reload()
    expect(digit.locator("#learned li").first).to_be_visible()
    uniform = ranked(digit)
    digit.get_by_label("Profile").select_option(other)
    expect(digit.locator("#weights figcaption")).to_contain_text("Heaviest")
    check_bars(digit, weights)
    assert ranked(digit) != uniform
    choose(digit, "learned", ranked(digit)[7])
    send(digit)
    assert (n_pages(service, profile), n_pages(service, other)) == (0, 1)
    expect(digit).to_have_url(re.compile(f"profile={other}"))


# Keyboard, screen readers, colours and phones


@pytest.mark.slow
def test_the_keyboard_alone_is_enough(digit):
    press = digit.keyboard.press
    press("Tab")
    skip = digit.get_by_role("link", name="Skip to the results")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    press("Enter")
    press("Tab")
    expect(digit.locator("#hamming li button").first).to_be_focused()
    assert digit.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    for _ in range(20):
        press("Tab")
    expect(digit.get_by_label("Which weights")).to_be_focused()
    for _ in range(8):
        press("Tab")
    item = digit.evaluate("document.activeElement.closest('li').dataset.id")
    press("Enter")
    expect(digit.get_by_role("status")).to_contain_text("More like")
    # The focus goes where the item went, or to the heading of its column.
    where = "document.activeElement.closest('li')?.dataset.id ?? document.activeElement.id"
    assert digit.evaluate(where) in (item, "learned-title")


def test_searching_by_keyboard(digit):
    press = digit.keyboard.press
    digit.locator("#profile").focus()
    press("Tab")
    expect(digit.get_by_role("link", name="API")).to_be_focused()
    press("Tab")
    expect(digit.get_by_role("radio", name="Item")).to_be_focused()
    press("ArrowRight")
    expect(digit.get_by_role("radio", name="Code")).to_be_checked()
    expect(digit.locator("#code")).to_be_visible()
    press("ArrowLeft")
    press("Tab")
    digit.keyboard.type("12")
    press("Enter")
    expect(digit.get_by_role("status")).to_contain_text("20 results")
    expect(digit).to_have_url(re.compile("item=12"))


def tree(page):
    """Read what a screen reader gets: role, name and properties of every node that is not ignored."""
    nodes = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    return [
        {
            "role": node["role"]["value"],
            "name": node.get("name", {}).get("value", ""),
            **{prop["name"]: prop["value"].get("value") for prop in node.get("properties", [])},
        }
        for node in nodes
        if not node["ignored"]
    ]


@pytest.mark.slow
def test_roles_and_names_for_screen_readers(digit):
    choose(digit, "learned", ranked(digit)[6])
    nodes = tree(digit)
    by_role = {role: [node for node in nodes if node["role"] == role] for role in {node["role"] for node in nodes}}
    names = {role: [node["name"] for node in found] for role, found in by_role.items()}
    for role in ("banner", "main", "search", "status"):
        assert len(by_role[role]) == 1, role
    assert all(node["name"] for node in nodes if node.get("focusable") and node["role"] != "RootWebArea")
    headings = [(node["level"], node["name"]) for node in by_role["heading"]]
    assert headings[0] == (1, "Search that learns from clicks")
    assert {"Hamming", "Learned", "Weight of each bit", "Held-out quality", "Versions"} <= {
        name for _, name in headings
    }
    assert {"Hamming", "Learned"} <= set(names["region"])
    assert by_role["status"][0]["live"] == "polite"
    cards = [name for name in names["button"] if name.startswith("More like digit")]
    assert len(cards) == 40
    assert any(re.fullmatch(r"More like digit \d: rank \d+, a tie of \d+ ?, distance \d+.*", name) for name in cards)
    assert any(name.endswith("chosen") for name in cards)
    assert any(re.search("up|down|new here", name) for name in cards)
    assert any("64 weights" in name or "weigh the same" in name for name in names["image"])
    assert {"Item number", "Profile", "Which weights to rank by"} <= {
        node["name"] for node in nodes if node["role"] in ("textbox", "combobox")
    }


CONTRAST = """(selectors) => {
  const ground = (element) => {
    const { backgroundColor } = getComputedStyle(element);
    return backgroundColor === "rgba(0, 0, 0, 0)" ? ground(element.parentElement) : backgroundColor;
  };
  const ink = (element) => getComputedStyle(element)[element instanceof SVGElement ? "fill" : "color"];
  const some = (selector) => [...document.querySelectorAll(selector)].slice(0, 3);
  return selectors.flatMap((selector) => some(selector).map((element) => [selector, ink(element), ground(element)]));
}"""
TEXTS = ["body", ".quiet", ".summary", "button", "button.primary", ".rank", ".distance", ".move.up", ".move.down", "a"]
TEXTS += [".like", ".chart text", "th", "td", "select", "input", "label", "summary", ".legend li", ".modes span"]


def luminance(colour):
    values = np.array([int(part) for part in re.findall(r"\d+", colour)[:3]]) / 255
    return np.where(values <= 0.03928, values / 12.92, ((values + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_colours_have_enough_contrast(visit, service, profile, scheme):
    page = visit(f"{service}/?item=7&profile={profile}", color_scheme=scheme)
    for place in (12, 3, 8):
        choose(page, "learned", [item for item in ranked(page) if item not in liked(page)][place])
    measured = page.evaluate(CONTRAST, TEXTS)
    assert {selector for selector, *_ in measured} >= {".move.down", ".like", ".chart text", "td"}
    for selector, ink, ground in measured:
        low, high = sorted([luminance(ink), luminance(ground)])
        assert (high + 0.05) / (low + 0.05) >= 4.5, (selector, ink, ground)
    ground = luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert ground < 0.05 if scheme == "dark" else ground > 0.8


def liked(page):
    return page.locator("#learned li.liked").evaluate_all("cards => cards.map(card => Number(card.dataset.id))")


@pytest.mark.slow
def test_a_phone_scrolls_vertically_only(visit, service, profile):
    page = visit(f"{service}/?item=7&profile={profile}", viewport={"width": 360, "height": 740}, has_touch=True)
    choose(page, "learned", ranked(page)[4])
    for details in page.locator("details").all():
        details.locator("summary").click()
    for mode in ("Item", "Code", "Picture"):
        search_by(page, mode)
        assert page.evaluate("document.documentElement.scrollWidth") == 360
    # Both rankings stay side by side, and every target is large enough for a finger.
    left, right = page.locator("#hamming").bounding_box(), page.locator("#learned").bounding_box()
    assert left["y"] == right["y"]
    assert left["x"] + left["width"] <= right["x"]
    sizes = page.locator("button:visible, select:visible, input:visible:not([type=radio])").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect()).map(box => Math.min(box.width, box.height))"
    )
    assert min(sizes) >= 24


@pytest.mark.slow
def test_the_pictures_of_the_docs_can_be_taken_again(tmp_path):
    root = Path(__file__).parents[2]
    command = [sys.executable, root / "scripts" / "screenshots.py", "--output", tmp_path, "--pages", "8"]
    subprocess.run(command, check=True, timeout=600)
    kept = sorted((root / "docs" / "pictures").glob("page-*.png"))
    assert [path.name for path in kept] == sorted(path.name for path in tmp_path.iterdir())
    for path in kept:
        assert path.stat().st_size < 200_000
        with Image.open(path) as old, Image.open(tmp_path / path.name) as new:
            assert old.width == new.width
