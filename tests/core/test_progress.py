"""The progress bar: on a terminal, and silent elsewhere."""

import io
import sys

from bitrank.core.progress import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_silent_where_nobody_looks(capsys):
    assert list(progress(iter("ab"), label="work")) == ["a", "b"]
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(progress("abcde", label="work")) == list("abcde")
    assert terminal.getvalue().split("\r")[1].startswith("work:   0%|")
    assert "5/5" in terminal.getvalue()


def test_unknown_length_and_nothing_at_all(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(progress(iter("ab"))) == ["a", "b"]
    assert "2it" in terminal.getvalue()
    assert list(progress([])) == []
