"""Twenty fits of benchmarks/noise.py: noise of every kind opens no gate."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import noise

FITS = [case for case in noise.cases(real=False) if case.n <= 100 and case.n_bits <= 64][20::5]


def test_every_ranker_and_kind_is_among_them():
    assert len(FITS) == 20
    assert {(case.kind, case.ranker) for case in FITS} == set(noise.CELLS)


@pytest.mark.parametrize("case", FITS, ids=lambda case: case.name)
def test_noise_opens_no_gate(case):
    accepted, gain, _ = noise.fit(case)
    assert not accepted
    assert gain == 0


def test_finished_fits_are_not_repeated(tmp_path, monkeypatch, capsys):
    report, file = noise.Report("random"), tmp_path / "new" / "fits.jsonl"
    monkeypatch.setattr(noise, "cases", lambda real: iter(FITS[:4]))
    every = {"one_of": 1, "most_bits": 2048, "most_examples": 5000, "workers": 1, "file": file}
    first, again = (noise.argparse.Namespace(**every | {"one_of": step}) for step in (2, 1))
    noise.run(report, "random", first)
    assert len(file.read_text().splitlines()) == report.rows["all"]["fits"].value == 2
    noise.run(report, "random", again)
    assert len(file.read_text().splitlines()) == report.rows["all"]["fits"].value == report.rows["all"]["of"].value == 4
    assert report.rows["all"]["accepted"].met
