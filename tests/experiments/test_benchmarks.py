"""Benchmarks: every module can be imported, and codes are kept in the folder of data sets."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


def run(script):
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_can_be_imported():
    for extra in ("faiss", "usearch", "httpx", "matplotlib", "fastapi"):
        pytest.importorskip(extra)
    modules = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "gpu" or find_spec("cupy"))
    assert "run" in modules
    run(f"import {', '.join(modules)}")


def test_codes_are_kept_in_the_folder_of_data_sets(tmp_path, monkeypatch):
    monkeypatch.setenv("BITRANK_DATA", str(tmp_path))
    codes = np.arange(40, dtype=np.uint8).reshape(5, 8)
    np.savez(tmp_path / "bench-patches-64.npz", codes=codes, queries=codes[:1], labels=np.arange(5))
    output = run("import data; codes, queries, labels = data.patch_codes(64, 3); print(codes[2], len(queries), labels)")
    assert output.split() == f"{codes[2]} 1 [0 1 2]".split()
