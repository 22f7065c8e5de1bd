"""The experiments: storage of cells, a run that is killed and continued on a few digits, and the report."""

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

from experiments import cells, report, stream
from experiments.data import load, make_hasher
from experiments.learned_codes import mean_average_precision_within
from experiments.plan import PUBLISHED_HASHERS, PUBLISHED_LENGTHS, Group, groups
from experiments.protocols import rankings_of
from experiments.run import main as run_main

ROOT = Path(__file__).parents[2]
# One group of the quick plan, on so few rows that it takes seconds.
GROUP = Group("full", "digits", "ITQ", 32, 0)
RANKINGS = rankings_of("full", "digits")
TRIAL = ["--plan", "quick", "--only", str(GROUP), "--rows", "200"]
RECORD = {"figures": {"map": 0.5}, "seconds": 1.0, "params": {}}


# Appends 50 long cells with the seed that is its argument.
APPEND = """
import sys
from pathlib import Path
from experiments import cells
from experiments.plan import Group

record = {"figures": {"map": 0.5}, "seconds": 1.0, "params": {}, "curve": [0.1234561] * 2000}
for n_bits in range(50):
    cells.append(Path(sys.argv[1]), Group("full", "digits", "ITQ", n_bits, int(sys.argv[2])), "Hamming", record)
"""


def command(results):
    return [sys.executable, "-m", "experiments.run", *TRIAL, "--results", str(results)]


def run(results):
    done = subprocess.run(command(results), cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


def content(results):
    path = cells.path_of(results, "full", "digits")
    return path.read_bytes() if path.exists() else b""


def cell(results, ranking):
    return cells.read_all(results)[cells.key_of(GROUP, ranking)]


def missing(results, n_rows=None):
    return cells.missing(cells.read_all(results), GROUP, RANKINGS, n_rows)


def test_cells_of_many_processes_are_all_stored(tmp_path):
    writers = [subprocess.Popen([sys.executable, "-c", APPEND, tmp_path, str(seed)], cwd=ROOT) for seed in range(4)]
    assert [writer.wait() for writer in writers] == [0] * 4
    stored = cells.read_all(tmp_path)
    assert len(stored) == 4 * 50
    assert all(cell["curve"] == [0.123456] * 2000 for cell in stored.values())


@pytest.mark.parametrize("n_bytes", [1, 40, -2, -1])
def test_an_incomplete_last_line_is_computed_again(tmp_path, n_bytes):
    for ranking in RANKINGS:
        cells.append(tmp_path, GROUP, ranking, RECORD)
    whole = content(tmp_path)
    lines = whole.splitlines(keepends=True)
    cut = b"".join(lines[:-1]) + lines[-1][:n_bytes]
    cells.path_of(tmp_path, "full", "digits").write_bytes(cut)
    assert missing(tmp_path) == [RANKINGS[-1]]
    cells.append(tmp_path, GROUP, RANKINGS[-1], RECORD)
    assert content(tmp_path) == whole


def test_the_last_line_of_a_cell_counts_and_a_trial_is_not_the_whole(tmp_path):
    assert missing(tmp_path) == list(RANKINGS)
    cells.append(tmp_path, GROUP, "Hamming", {**RECORD, "params": {"n_rows": 400}})
    assert missing(tmp_path, 400) == list(RANKINGS[1:])
    assert missing(tmp_path) == list(RANKINGS)
    cells.append(tmp_path, GROUP, "Hamming", {**RECORD, "figures": {"map": 0.75}})
    assert missing(tmp_path) == list(RANKINGS[1:])
    assert cell(tmp_path, "Hamming")["figures"] == {"map": 0.75}


def test_all_planned_cells_are_stored():
    stored = cells.read_all(cells.RESULTS)
    planned = {
        cells.key_of(group, name)
        for group in groups("reproduce")
        for name in rankings_of(group.protocol, group.dataset)
    }
    assert set(stored) == planned
    assert len(list(cells.RESULTS.glob("cells/*"))) == len({key[:2] for key in stored})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Results of a run that was killed after some of its cells and then started again."""
    results = tmp_path_factory.mktemp("results")
    process = subprocess.Popen(command(results), cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 900
        while content(results).count(b"\n") < 4:
            assert process.poll() is None, "the run ended before it could be stopped"
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its workers too
        process.wait()
    before = content(results)
    return results, before[: before.rfind(b"\n") + 1], run(results)


@pytest.mark.slow
def test_a_killed_run_continues_where_it_stopped(finished):
    results, before, output = finished
    n_all, n_before = len(RANKINGS), before.count(b"\n")
    assert 4 <= n_before < n_all
    assert f"{n_all - n_before} of {n_all} cells to compute" in output
    assert content(results).startswith(before)
    assert content(results).count(b"\n") == n_all
    assert missing(results, 200) == []
    assert f"0 of {n_all} cells" in run(results)  # computes nothing, so run.json stays
    last = json.loads((results / "run.json").read_text(encoding="utf-8"))
    assert (last["cells"], last["workers"]) == (n_all - n_before, 2)
    assert 0 <= last["minutes"] < 5


@pytest.mark.slow
def test_cells_name_their_versions_and_sizes(finished):
    results, _, _ = finished
    for cell in cells.read_all(results).values():
        assert set(cell["versions"]) == {"bitrank", "numpy", "scipy", "scikit-learn", "python"}
        assert cell["params"]["n_train"] + cell["params"]["n_items"] == cell["params"]["n_rows"] == 200
        assert cell["seconds"] > 0


@pytest.mark.slow
def test_three_solvers_reach_one_optimum(finished):
    maps = [cell(finished[0], f"paper-{solver}")["figures"]["map"] for solver in ("EGD", "PGD", "exact")]
    assert np.ptp(maps) < 0.005


@pytest.mark.slow
def test_hamming_cell_equals_a_computation_from_scratch(finished):
    from sklearn.metrics import average_precision_score

    from bitrank import ITQ
    from bitrank.datasets import digits
    from experiments.data import split

    images, labels = digits()
    rows = np.random.default_rng(0).permutation(len(images))[:200]
    X, y = images[rows].reshape(200, -1).astype(np.float32) / np.float32(255), labels[rows].astype(int)
    train, test, queries = split("full", y, 0)
    assert not set(train) & set(test)
    bits = np.unpackbits(ITQ(32, random_state=0).fit(X[train]).transform(X[test]), axis=1).astype(int)
    # Random orders break the ties; the mean over many orders approaches the expectation.
    random, precisions = np.random.default_rng(0), []
    for query in queries:
        distance = np.abs(bits - bits[query]).sum(axis=1)
        relevant = y[test] == y[test][query]
        orders = [distance + random.random(len(test)) for _ in range(50)]
        precisions.append(np.mean([average_precision_score(relevant, -order) for order in orders]))
    assert cell(finished[0], "Hamming")["figures"]["map"] == pytest.approx(np.mean(precisions), abs=0.003)


@pytest.mark.slow
def test_csv_holds_every_cell(finished):
    results, _, _ = finished
    with open(results / "cells.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns = "protocol dataset hasher n_bits ranking seed map voc11 authors_map p10 p100 seconds"
    assert list(rows[0]) == columns.split()
    assert {row["ranking"]: float(row["map"]) for row in rows} == {
        ranking: cell(results, ranking)["figures"]["map"] for ranking in RANKINGS
    }


@pytest.mark.slow
def test_report_shows_cells_and_says_what_is_missing(finished, tmp_path):
    results, _, _ = finished
    report.main(["--plan", "quick", "--results", str(results), "--output", str(tmp_path)])
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    line = next(line for line in page.splitlines() if line.startswith("| ITQ | Hamming |"))
    assert f"{cell(results, 'Hamming')['figures']['map']:.3f}".lstrip("0") in line
    assert "(1 of 2 seeds)" in line
    assert "| LSH | Hamming | missing |" in page
    assert "experiments/results/cells/full-digits.jsonl" in page
    for name in ("map_by_bits.png", "pr_digits_full.png"):
        assert f"pictures/{name}" in page
        assert (tmp_path / "pictures" / name).read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "pictures" / "clicks.png").exists()
    assert "| Hamming | " in (results / "readme.md").read_text(encoding="utf-8")


def test_report_without_cells_says_that_all_are_missing(tmp_path):
    report.main(["--results", str(tmp_path / "none"), "--output", str(tmp_path)])
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "0 of " in page
    assert not (tmp_path / "pictures").exists()


def test_paper_table_is_complete():
    with open(ROOT / "experiments" / "paper.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    keys = {(row["dataset"], row["hasher"], row["ranking"], row["n_bits"]) for row in rows}
    assert len(rows) == len(keys) == 180
    assert all(0 < float(row["map"]) < 1 for row in rows)


def test_published_table_is_complete():
    with open(ROOT / "experiments" / "published.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    keys = {(row["dataset"], row["hasher"], int(row["n_bits"])) for row in rows}
    assert len(rows) == len(keys) == 40
    assert {key[2] for key in keys} == set(PUBLISHED_LENGTHS)
    assert {key[1] for key in keys} == set(PUBLISHED_HASHERS)


def test_map_within_the_first_items():
    to_items = np.array([[0, 1, 2, 3], [3, 2, 1, 0], [0, 1, 2, 3]])
    relevant = np.array([[1, 0, 1, 1], [1, 0, 1, 0], [0, 0, 0, 1]], bool)
    # Precisions 1 and 2/3 among the first three; 1/2; nothing relevant among the first three.
    expected = np.mean([(1 + 2 / 3) / 2, 1 / 2, 0])
    assert mean_average_precision_within(to_items, relevant, 3) == pytest.approx(expected)


def test_every_hasher_of_the_plan_can_be_made():
    for group in groups("reproduce"):
        hasher = make_hasher(group.hasher, group.n_bits, group.seed)
        assert getattr(hasher, "random_state", group.seed) == group.seed
        assert getattr(hasher, "n_bits", group.n_bits) == group.n_bits
    assert make_hasher("BRE-labels", 8, 0).target == "labels"
    assert make_hasher("BRE", 8, 0).target == "distances"


def test_stream_measures_every_learner_at_every_step(monkeypatch):
    for name, value in {"N_ARRIVALS": 200, "N_UPDATES": 5, "N_PAIRS": 50, "N_DESCENTS": 2}.items():
        monkeypatch.setattr(stream, name, value)
    group = Group("stream", "digits", "ITQ", 16, 0)
    data = load("digits", 600)
    measured = dict(stream.follow(group, list(stream.CELLS), data))
    load.cache_clear()
    assert tuple(measured) == stream.CELLS
    for name, record in measured.items():
        assert 0 < record["figures"]["map"] <= 1
        costs = record["params"]
        learner, step = name.split("-step")
        assert (costs["bytes_published"] > 0) == (learner in ("OnlineRankingSVM", "online query vectors"))
        assert (costs["bytes_read"] > 0) == (learner == "OKH" or (learner.startswith("OKH") and step in "0246"))
        assert costs["bytes_read"] == 0 or costs["bytes_read"] / costs["bytes_written"] == 784 * 4 / 2
    assert measured["OKH-step0"]["figures"] == measured["OKH, old codes kept-step0"]["figures"]


def test_unknown_group_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        run_main(["--only", "nothing/like/this", "--results", str(tmp_path)])
    assert "--only must be part of a group's name, got 'nothing/like/this'" in capsys.readouterr().err
