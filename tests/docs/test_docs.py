"""The documentation runs: the Python blocks of every page and the examples of every docstring; links have targets."""

import doctest
import importlib
import json
import pkgutil
import re
from pathlib import Path

import pytest

import bitrank
import bitrank_papers
from bitrank.gpu.cuda import DeviceError

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = [
    name
    for package in (bitrank, bitrank_papers)
    for name in [
        package.__name__,
        *sorted(module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")),
    ]
]

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://|mailto:)([^)\s]+)\)")

LONG = {
    "feedback.md",
    "service.md",
    "choosing.md",
    "dask.md",
    "learning.md",
    "quickstart.md",
    "parts.md",
    "README.md",
}  # a cluster, rankers with their gates


def blocks(page):
    """The Python blocks of a page, padded with empty lines so that tracebacks show the page's line numbers."""
    text = page.read_text(encoding="utf-8")
    return ["\n" * text.count("\n", 0, match.start(1)) + match[1] for match in BLOCK.finditer(text)]


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow if page.name in LONG else (), id=page.name) for page in PAGES],
)
def test_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "examples")  # files that the recipes tell to copy
    if "DATABASE_URL" in page.read_text(encoding="utf-8"):
        server = request.getfixturevalue("postgres")
        monkeypatch.setenv("DATABASE_URL", server.url(server.new_base()))
        monkeypatch.setenv("SHARD_URLS", " ".join(server.url(server.new_base()) for _ in range(2)))
    namespace = {"__name__": "__main__"}
    try:
        for block in blocks(page):
            exec(compile(block, str(page), "exec"), namespace)
    except DeviceError as error:
        pytest.skip(str(error))


def test_blocks_are_found():
    assert len(blocks(ROOT / "docs" / "metrics.md")) == 3
    # A fence that the pattern misses, such as an indented one, would never run.
    for page in PAGES:
        assert len(blocks(page)) == page.read_text(encoding="utf-8").count("```python"), page.name


@pytest.mark.parametrize(
    "page",
    [*PAGES, *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md"))],
    ids=lambda page: page.name,
)
def test_links_have_targets(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", heading).replace(" ", "-").lower() for heading in headings], target


def test_architecture_names_modules_that_exist():
    """Every path between backticks is a room, a module or a file of the kernel."""
    named = re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    assert len(named) > 30
    for path in named:
        assert (ROOT / path).exists() or (ROOT / "src" / "bitrank" / path).exists(), path


def test_architecture_says_how_long_parts_written_by_hand_are():
    """Within a tenth: every part that a library might do has a line with a figure."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+/\w+\.py)` \| (\d+) \|", text, re.MULTILINE)
    assert len(rows) == 5
    for path, figure in rows:
        n_lines = len((ROOT / "src" / "bitrank" / path).read_text(encoding="utf-8").splitlines())
        assert abs(n_lines - int(figure)) <= n_lines / 10, (path, n_lines)


def test_readme_shows_the_results_of_the_experiments():
    """Its first picture and its table are those that `python -m experiments.report` wrote."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    picture, table = (ROOT / "experiments" / "results" / "readme.md").read_text(encoding="utf-8").strip().split("\n\n")
    assert re.search(r"!\[.*?\]\(.*?\)", readme)[0] == picture
    assert table in readme


def test_readme_shows_the_measured_recall():
    """Its table of recall is that of `make bench-recall`."""
    results = json.loads((ROOT / "benchmarks" / "results" / "recall.json").read_text(encoding="utf-8"))
    table = re.search(r"<!-- table: quantisers-readme -->\n(.*?)<!-- end -->", (ROOT / "README.md").read_text(), re.S)[
        1
    ]
    head, _, *rows = ([cell.strip(" *") for cell in line.strip("|").split("|")] for line in table.splitlines())
    assert len(rows) > 5
    for name, *figures in rows:
        stored = [results["recall"][each][name]["recall"] for each in head[1:3]]
        assert [float(figure) for figure in figures[:2]] == pytest.approx(stored, abs=6e-4), name
        sizes = [results["recall"][head[2]][name]["bytes"], *results["times"][head[2]][name].values()]
        assert [float(figure) for figure in figures[2:]] == pytest.approx(sizes[:3], abs=0.6), name


def test_readme_shows_the_measured_speed():
    """Its multiples of FAISS are those that `make bench` wrote."""
    records = json.loads((ROOT / "benchmarks" / "results" / "search.json").read_text(encoding="utf-8"))["records"]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    for section, digits, sentence in (
        ("real", 0, "64 or 128 bits it is {} to {} times as fast"),
        ("long", 1, "at 256 to 1024 bits, {} to {} times ("),
    ):
        times = [
            record["times_flat"]
            for record in records
            if record["section"] == section and record["contender"].startswith("bitrank")
        ]
        least, most = (f"{value:.{digits}f}" for value in (min(times), max(times)))
        assert sentence.format(least, most) in readme


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        doctest.testmod(importlib.import_module(name), raise_on_error=True)
    except doctest.UnexpectedException as error:
        if isinstance(error.exc_info[1], DeviceError):
            pytest.skip(str(error.exc_info[1]))
        raise error.exc_info[1] from None
    except doctest.DocTestFailure as failure:
        pytest.fail(f"{failure.example.source}expected: {failure.example.want}got: {failure.got}")
