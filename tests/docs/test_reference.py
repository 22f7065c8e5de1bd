"""The site: every page is in a table of contents, and the API reference has every public name, each with an example."""

import importlib
import importlib.util
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import bitrank

DOCS = Path(__file__).parents[2] / "docs"
PACKAGES = [
    "bitrank",
    *sorted(
        module.name
        for module in pkgutil.walk_packages(bitrank.__path__, "bitrank.")
        if module.ispkg and not module.name.startswith(("bitrank.service", "bitrank.cli"))
    ),
]
TABLE = re.compile(r"^\.\. currentmodule:: (\S+)\n\.\. autosummary::\n(?: +:.*\n)*\n((?:   \w+\n?)+)", re.MULTILINE)


def listed_names():
    """The names of the API reference, with their modules."""
    for page in sorted((DOCS / "api").glob("*.rst")):
        for module, names in TABLE.findall(page.read_text(encoding="utf-8")):
            yield from ((module, name) for name in names.split())


def look_up(module, name):
    if module == "bitrank.gpu" and importlib.util.find_spec("cupy") is None:
        home = {"DeviceError": "cuda", "GpuIndex": "index"}[name]
        module = f"bitrank.gpu.{home}"
    return getattr(importlib.import_module(module), name)


def test_every_page_is_in_a_table_of_contents():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    entries = [
        line
        for table in re.findall(r"```{toctree}\n(.*?)```", index, re.DOTALL)
        for line in re.findall(r"^[^:\n]+$", table, re.MULTILINE)
    ]
    assert len(entries) == len(set(entries))
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix("").as_posix()
        assert name == "index" or name in entries, f"{name} is not in the tables of docs/index.md"


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_of_a_package_are_listed(package):
    for name in getattr(importlib.import_module(package), "__all__", ()):
        if not name.isupper() or name in ("ITQ", "LSH"):
            listed = [look_up(module, other) for module, other in listed_names() if other == name]
            assert look_up(package, name) in listed, f"{package}.{name} is not in docs/api"


def test_names_are_listed_once():
    names = list(listed_names())
    assert len(names) > 100
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("module", "name"), sorted(listed_names()))
def test_name_has_an_example(module, name):
    example = re.search(r"^Examples\n-+\n(.*)", inspect.getdoc(look_up(module, name)), re.DOTALL | re.MULTILINE)
    assert example, f"{module}.{name} has no example"
    assert ">>>" in example[1]
