"""The parser of all commands, and how a command ends."""

import subprocess
import sys

import numpy as np
import pytest

import bitrank
from bitrank import Collection, cli
from bitrank.cli import COMMANDS, main, make_parser


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


def test_examples_of_help_are_commands(capsys):
    parser = make_parser()
    for line in cli.EXAMPLES:
        assert callable(parser.parse_args(line.split()).run)
        with pytest.raises(SystemExit):
            parser.parse_args([*[word for word in line.split()[:2] if word.isalpha()][:2], "--help"])
        assert "example: bitrank" in capsys.readouterr().out


def test_an_interrupt_is_one_line_and_status_130(monkeypatch, capsys):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.search, "_search", interrupt)
    assert cli.main(["search", "shop.bitrank", "queries.npy"]) == 130
    assert capsys.readouterr() == ("", "bitrank search: interrupted\n")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such pipes")
def test_a_closed_pipe_is_no_error(working_folder):
    rng = np.random.default_rng(0)
    np.save("queries.npy", rng.integers(0, 256, (5000, 8), dtype=np.uint8))
    Collection.from_codes(np.load("queries.npy")).save("shop.bitrank")
    command = [sys.executable, "-m", "bitrank", "search", "shop.bitrank", "queries.npy", "-k", "20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline().startswith(b"query 0: ")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
