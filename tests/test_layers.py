"""Imports go down the layers of the design only; deleting an upper room breaks nothing below it."""

import ast
import pathlib
import subprocess
import sys

import pytest

import bitrank

ROOT = pathlib.Path(bitrank.__file__).parent

# Each room and the rooms of bitrank that it may import. `_kernel` is the compiled module.
MAY_IMPORT: dict[str, set[str]] = {
    "progress": set(),
    "lazy": set(),
    "ties": {"_kernel"},
    "metrics": {"ties"},
    "datasets": set(),
    "features": set(),
    "codes": {"_kernel"},
    "segments": {"codes", "_kernel"},
    "rows": {"codes", "segments", "_kernel"},
    "storage": {"codes", "segments", "rows", "_kernel"},
    "index": {"codes", "segments", "rows", "storage"},
    "interchange": {"codes", "segments", "index"},
    "engines": {"codes", "segments", "rows", "index", "progress"},
    "index_cli": {"index", "interchange", "storage", "progress"},
    "solvers": {"codes", "_kernel"},
    "whrank": {"codes"},
    "agreement": {"codes", "whrank"},
    "hashing": {"codes"},
    "quadruplets": {"codes"},
    "gate": {"codes", "metrics"},
    "ranking_svm": {"codes", "quadruplets", "solvers", "gate"},
    "online": {"codes", "_kernel", "quadruplets", "solvers", "gate", "ranking_svm"},
    "service": {"codes", "segments", "index", "hashing", "datasets", "features", "feedback"},
    "serve_cli": {"service"},
    "batch": {"codes", "hashing", "index", "interchange", "metrics", "quadruplets", "segments", "ties"},
    "listwise": {"codes", "progress"},
    "query_adaptive": {"codes", "gate", "listwise", "quadruplets"},
    "query_vectors": {"codes", "gate", "listwise", "quadruplets"},
    "feedback": {"codes", "gate", "lazy", "online"},
    "array_files": {"codes", "index"},
    "fit_cli": {"array_files", "codes", "metrics", "progress", "ranking_svm"},
    "weights_cli": {"array_files", "codes", "gate"},
    "feedback_cli": {"array_files", "feedback", "hashing", "index", "progress"},
}
EVERYTHING = {"__init__", "demo", "cli"}


def room(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_rooms(path: pathlib.Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "bitrank":
            parts = node.module.split(".")
            rooms |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            rooms |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("bitrank.")}
    return rooms


SOURCES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=[str(path.relative_to(ROOT)) for path in SOURCES])
def test_imports_go_down(path):
    name = room(path)
    if name in EVERYTHING:
        return
    assert name in MAY_IMPORT, f"a new room, {name}: say in MAY_IMPORT what it may import"
    assert imported_rooms(path) <= MAY_IMPORT[name] | {name}


@pytest.mark.parametrize(
    "start",
    [
        "from bitrank import Index, connect",
        "from bitrank.cli import make_parser; make_parser()",
        "from bitrank.service import process, sources; sources.embedded_digits()",
    ],
)
def test_what_only_searches_starts_without_scikit_learn(start):
    pytest.importorskip("fastapi", reason="the service is an extra")
    slow = {"sklearn", "scipy", "pandas", "matplotlib", "pyarrow"}
    code = f"import sys; {start}; print(sorted({slow!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("package", ["bitrank", "bitrank.feedback"])
def test_lazy_names_are_those_that_are_offered(package):
    module = __import__(package, fromlist=["__all__"])
    assert sorted(module.__all__) == dir(module)
    for name in module.__all__:
        assert getattr(module, name).__name__ == name
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018
