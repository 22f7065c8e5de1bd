"""The tables of docs/scale.md are those of the file of results, in which what the page promises holds."""

import importlib
import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def scale():
    spec = importlib.util.spec_from_file_location("scale", ROOT / "benchmarks" / "scale.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def results(scale):
    return json.loads(scale.RESULTS.read_text())


def test_the_page_agrees_with_the_file(scale, results):
    page = scale.PAGE.read_text(encoding="utf-8")
    assert {found[2] for found in scale.MARK.finditer(page)} == set(scale.TABLES)
    assert scale.render(page, results) == page


def test_a_changed_figure_changes_the_page(scale, results):
    page = scale.PAGE.read_text(encoding="utf-8")
    changed = json.loads(json.dumps(results))
    changed["engines"][1]["ms"] = 12345.0
    changed["library"][0]["ms"] = 12345.0
    assert scale.render(page, changed) != page


def test_what_was_measured_keeps_the_promises(results):
    at_a_million = [record for record in results["library"] if record["n"] == 1_000_000]
    overlaps = [record["overlap_8_bits"] for record in at_a_million if record["what"] == "index"]
    assert overlaps
    assert min(overlaps) >= 0.98
    recalls = [
        record["recall"]
        for record in at_a_million
        if record["what"] == "recall" and record["candidates"] == 1000 and record["weights"] == "learned"
    ]
    assert recalls
    assert min(recalls) >= 0.95
    assert all(record["same_as_index"] for record in results["engines"] if record["step"] == "exact")


def test_the_section_about_cells_agrees_with_its_file(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    cells = importlib.import_module("cells")
    page = cells.PAGE.read_text(encoding="utf-8")
    stored = json.loads(cells.PATH.read_text())
    assert {found[2] for found in cells.MARK.finditer(page)} == set(cells.tables(stored))
    assert cells.render(page, stored) == page
