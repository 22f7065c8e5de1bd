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


def test_a_bar_with_the_time_left_on_a_terminal(monkeypatch):
    terminal, clock = Terminal(), iter([0.0, 0.0, 30.0, 60.0, 60.01, 7200.0])
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    assert list(progress("abcde", label="work")) == list("abcde")
    shown = terminal.getvalue().replace("\x1b[K", "").split("\r")[1:]
    assert shown == [
        f"work [{' ' * 30}] 0/5",
        f"work [{'#' * 6}{' ' * 24}] 1/5, 2:00 left",
        f"work [{'#' * 12}{' ' * 18}] 2/5, 1:30 left",  # the next follows too soon to be shown
        f"work [{'#' * 24}{' ' * 6}] 4/5, 30:00 left",
        f"work [{'#' * 30}] 5/5\n",
    ]


def test_unknown_length_and_nothing_at_all(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(progress(iter("ab"))) == ["a", "b"]
    assert terminal.getvalue().endswith("] 2\x1b[K\n")
    assert list(progress([])) == []
