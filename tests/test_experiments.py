"""The experiments, end to end on a few digits: cells are files, a stopped run goes on, a missing cell says so."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
# One group of the quick plan, on so few rows that it takes seconds.
GROUP = "full/digits/ITQ-32-0"
TRIAL = ["--plan", "quick", "--only", GROUP, "--rows", "400"]


def command(module, *arguments):
    return [sys.executable, "-m", f"experiments.{module}", *map(str, arguments)]


def run(module, *arguments):
    done = subprocess.run(command(module, *arguments), cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def files(results):
    return sorted(results.glob("cells/*/*/*.json"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Results of a run that was killed when some of its cells were there, and then started again."""
    results = tmp_path_factory.mktemp("results")
    process = subprocess.Popen(
        command("run", *TRIAL, "--results", results), cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 240
        while len(files(results)) < 4:
            assert process.poll() is None, "the run ended before it could be stopped"
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its workers too
        process.wait()
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files(results)}
    output = run("run", *TRIAL, "--results", results)
    return results, before, output


def test_a_killed_run_leaves_whole_cells_and_goes_on(finished):
    results, before, output = finished
    n_all = len(files(results))
    assert 4 <= len(before) < n_all
    assert f"{n_all - len(before)} of {n_all} cells to compute" in output
    for path, (content, modified) in before.items():
        json.loads(content)
        assert (path.read_bytes(), path.stat().st_mtime_ns) == (content, modified)
    assert f"0 of {n_all} cells" in run("run", *TRIAL, "--results", results)  # which is no run to be told of
    last = json.loads((results / "run.json").read_text(encoding="utf-8"))
    assert (last["cells"], last["workers"]) == (n_all - len(before), 2)
    assert 0 <= last["minutes"] < 5


def test_cells_say_what_they_are(finished):
    results, _, _ = finished
    for path in files(results):
        cell = json.loads(path.read_text(encoding="utf-8"))
        assert path.name == f"ITQ-32-{cell['ranking']}-0.json"
        assert path.parts[-3:-1] == (cell["protocol"], cell["dataset"]) == ("full", "digits")
        assert set(cell["versions"]) == {"bitrank", "numpy", "scipy", "scikit-learn", "python"}
        assert cell["params"]["n_train"] + cell["params"]["n_items"] == cell["params"]["n_rows"] == 400
        assert cell["seconds"] > 0
    solvers = [json.loads((path).read_text())["figures"] for path in files(results) if "paper-" in path.name]
    assert len(solvers) == 3
    assert np.ptp([figures["map"] for figures in solvers]) < 0.005  # one objective, three ways to its minimum


def test_hamming_cell_equals_a_computation_from_scratch(finished):
    from sklearn.metrics import average_precision_score

    from bitrank import ITQ
    from bitrank.datasets import digits

    sys.path.insert(0, str(ROOT))
    try:
        from experiments.protocols import split
    finally:
        sys.path.remove(str(ROOT))
    images, labels = digits()
    rows = np.random.default_rng(0).permutation(len(images))[:400]
    X, y = images[rows].reshape(400, -1).astype(np.float32) / np.float32(255), labels[rows].astype(int)
    train, test, queries = split("full", y, 0)
    assert not set(train) & set(test)
    bits = np.unpackbits(ITQ(32, random_state=0).fit(X[train]).transform(X[test]), axis=1).astype(int)
    # Distinct distances in random order stand for the ties; the mean over many orders is the expectation.
    random, found = np.random.default_rng(0), []
    for query in queries:
        distance = np.abs(bits - bits[query]).sum(axis=1)
        relevant = y[test] == y[test][query]
        orders = [distance + random.random(len(test)) for _ in range(200)]
        found.append(np.mean([average_precision_score(relevant, -order) for order in orders]))
    cell = json.loads((finished[0] / "cells/full/digits/ITQ-32-Hamming-0.json").read_text())
    assert cell["figures"]["map"] == pytest.approx(np.mean(found), abs=0.003)


def test_csv_gathers_every_cell(finished):
    results, _, _ = finished
    with open(results / "cells.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns = "protocol dataset hasher n_bits ranking seed map voc11 authors_map p10 p100 seconds"
    assert list(rows[0]) == columns.split()
    stored = {path.name: json.loads(path.read_text()) for path in files(results)}
    assert len(rows) == len(stored)
    for row in rows:
        cell = stored[f"{row['hasher']}-{row['n_bits']}-{row['ranking']}-{row['seed']}.json"]
        assert float(row["map"]) == cell["figures"]["map"]


def test_report_shows_cells_and_says_what_is_missing(finished, tmp_path):
    results, _, _ = finished
    run("report", "--plan", "quick", "--results", results, "--output", tmp_path)
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    cell = json.loads((results / "cells/full/digits/ITQ-32-Hamming-0.json").read_text())
    line = next(line for line in page.splitlines() if line.startswith("| ITQ | Hamming |"))
    assert f"{cell['figures']['map']:.3f}".lstrip("0") in line
    assert "(1 of 2 seeds)" in line
    assert "| LSH | Hamming | missing |" in page
    assert "cells/full/digits/<hasher>-<bits>-<ranking>-<seed>.json" in page
    for name in ("map_by_bits.png", "pr_digits_full.png"):
        assert f"pictures/{name}" in page
        assert (tmp_path / "pictures" / name).read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "pictures" / "clicks.png").exists()
    assert "| Hamming | " in (results / "readme.md").read_text(encoding="utf-8")


def test_report_of_nothing_is_all_missing(tmp_path):
    run("report", "--results", tmp_path / "none", "--output", tmp_path)
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "0 of " in page
    assert not (tmp_path / "pictures").exists()


def test_a_trial_does_not_pass_for_the_whole(finished):
    results, _, _ = finished
    script = (
        "from pathlib import Path; from experiments.cells import missing; from experiments.plan import Group;"
        f"group = Group('full', 'digits', 'ITQ', 32, 0); folder = Path({str(results)!r});"
        "print(len(missing(folder, group, 400)), len(missing(folder, group, None)) == len(group.rankings))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True"]


def test_paper_table_is_complete():
    with open(ROOT / "experiments" / "paper.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    keys = {(row["dataset"], row["hasher"], row["ranking"], row["n_bits"]) for row in rows}
    assert len(rows) == len(keys) == 180
    assert all(0 < float(row["map"]) < 1 for row in rows)


def test_unknown_group_is_refused(tmp_path):
    arguments = command("run", "--only", "nothing/like/this", "--results", tmp_path)
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "no group's name holds 'nothing/like/this'" in done.stderr
