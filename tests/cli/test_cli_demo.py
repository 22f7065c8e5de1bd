"""The command `bitrank demo`: what it prints. `test_demo.py` runs the demonstration itself."""

import sys

import pytest

from bitrank import demo
from bitrank.cli import main


def test_table_and_pictures_are_printed(tmp_path, monkeypatch, capsys):
    rows = [demo.Row("Hamming", 0.25, 0.5, 1.0), demo.Row("query vector", 0.75, 0.875, 0.0)]
    monkeypatch.setattr(demo, "run_demo", lambda output: rows)
    assert main(["demo", "--output", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.rsplit(maxsplit=3) for line in lines[3:5]] == [
        ["Hamming", "0.250", "0.500", "100.0%"],
        ["query vector", "0.750", "0.875", "0.0%"],
    ]
    assert lines[-2:] == [f"picture: {tmp_path / name}" for name in (demo.CURVES, demo.TOP_TEN)]


def test_a_missing_extra_names_the_command_that_installs_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit, match=r"bitrank demo: .*pip install 'bitrank\[demo\]'"):
        main(["demo", "--output", str(tmp_path / "none")])
    assert not (tmp_path / "none").exists()
