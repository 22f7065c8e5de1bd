"""The parser of all commands, and how a command ends."""

import pytest

import bitrank
from bitrank.cli import COMMANDS, main


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"bitrank {bitrank.__version__}\n"


def test_no_command_prints_help_and_fails(capsys):
    assert main([]) == 2
    printed = capsys.readouterr().out
    for command in COMMANDS:
        assert f"    {command.__name__.rpartition('.')[2]} " in printed


def test_unknown_command_is_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["dance"])
    assert stop.value.code == 2
    assert "dance" in capsys.readouterr().err
