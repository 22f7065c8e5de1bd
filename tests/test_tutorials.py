"""The tutorials of the site and the scripts of examples/ run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
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
