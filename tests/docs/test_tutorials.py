"""The tutorials of the site and the scripts of examples/ run."""

import functools
import inspect
import os
import pathlib
import random
import shutil
import statistics
import string
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))


def run(script, folder, request, *arguments):
    """Run a script as its reader would, in an empty folder; return what it printed."""
    environment = {**os.environ, "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if "DATABASE_URL" in script.read_text(encoding="utf-8"):
        server = request.getfixturevalue("postgres")
        environment["DATABASE_URL"] = server.url(server.new_base())
    done = subprocess.run(
        [sys.executable, "-W", "error", script, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("script", TUTORIALS, ids=lambda script: script.stem)
def test_tutorial(script, tmp_path, request):
    assert run(script, tmp_path, request)


@pytest.mark.slow
def test_example_of_text_search(tmp_path, request):
    modules = [functools, inspect, os, pathlib, random, shutil, statistics, string, subprocess, tempfile]
    texts = [
        (module.__name__, name, " ".join(inspect.getdoc(value).split()))
        for module in modules
        for name, value in sorted(vars(module).items())
        if callable(value) and getattr(value, "__module__", None) == module.__name__ and value.__doc__
    ]
    (tmp_path / "documents.tsv").write_text(
        "\n".join(f"{name}.{number}\t{text}" for number, (_, name, text) in enumerate(texts))
    )
    (tmp_path / "queries.tsv").write_text(
        "\n".join(f"q{number}\t{text[:40]}" for number, (_, _, text) in enumerate(texts))
    )
    (tmp_path / "train.qrels").write_text(
        "\n".join(f"q{number} 0 {name}.{number} 1" for number, (_, name, _) in enumerate(texts))
    )
    files = [str(tmp_path / name) for name in ("documents.tsv", "queries.tsv", "train.qrels")]
    printed = run(ROOT / "examples" / "text_search.py", tmp_path, request, *files, "copy a file", "--n-bits", "32")
    assert printed.startswith(f"{len(texts)} items of ")
    assert "BitPlanes of 32 dimensions" in printed.partition("\n")[0]
    assert "learned from pairs in" in printed
    assert all(
        line.split()[1] in {f"{name}.{number}" for number, (_, name, _) in enumerate(texts)}
        for line in printed.splitlines()[-5:]
    )


@pytest.mark.slow
def test_example_of_clicks(tmp_path, request):
    pytest.importorskip("httpx")
    pytest.importorskip("fastapi")
    printed = run(ROOT / "examples" / "image_search_clicks.py", tmp_path, request, "10")
    assert "pages learned from: 10" in printed


@pytest.mark.slow
def test_example_of_postgresql(tmp_path, request):
    pytest.importorskip("psycopg")
    assert "1000 codes in the table" in run(ROOT / "examples" / "postgresql.py", tmp_path, request)


@pytest.mark.slow
def test_example_of_langchain(tmp_path, request):
    pytest.importorskip("langchain_core")
    printed = run(ROOT / "examples" / "langchain_search.py", tmp_path, request)
    assert printed.splitlines()[0].startswith("how to cook rice")
