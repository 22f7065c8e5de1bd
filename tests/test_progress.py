"""The progress bar: on a terminal, and silent elsewhere."""

import io
import sys

from bitrank.progress import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_silent_where_nobody_looks(capsys):
    assert list(progress(iter("ab"), label="work")) == ["a", "b"]
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(progress("abcd", label="work")) == list("abcd")
    shown = terminal.getvalue().split("\r")
    assert shown[1] == f"work [{' ' * 30}] 0/4"
    assert shown[3] == f"work [{'#' * 15}{' ' * 15}] 2/4"
    assert shown[-1] == f"work [{'#' * 30}] 4/4\n"


def test_unknown_length_and_nothing_at_all(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(progress(iter("ab"))) == ["a", "b"]
    assert terminal.getvalue().endswith("] 2\n")
    assert list(progress([])) == []
