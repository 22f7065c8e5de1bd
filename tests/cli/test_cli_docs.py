"""docs/cli.md holds the current --help of every command."""

import runpy
from pathlib import Path

import pytest

from bitrank.cli import main, make_parser

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "make_cli_docs.py"))
COMMANDS = (
    "demo",
    "create",
    "learn",
    "search",
    "eval",
    "report",
    "info",
    "weights show",
    "weights diff",
    "weights export",
    "feedback import",
    "replay",
    "serve",
)


@pytest.fixture
def page(monkeypatch):
    # The script sets both; monkeypatch restores them.
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("NO_COLOR", "1")
    return SCRIPT["page"]()


def test_docs_are_up_to_date(page):
    """Compare words, not spaces: versions of Python break lines differently."""
    written = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert written.split() == page.split(), "run: python scripts/make_cli_docs.py"


def test_help_of_every_command_is_on_the_page(page, capsys):
    for command in COMMANDS:
        with pytest.raises(SystemExit) as stop:
            main([*command.split(), "--help"])
        assert stop.value.code == 0
        assert f"## bitrank {command}\n" in page
        assert " ".join(capsys.readouterr().out.split()) in " ".join(page.split())


def test_every_argument_is_explained():
    for parser in SCRIPT["commands"](make_parser()):
        unexplained = [action.dest for action in parser._actions if not action.help and action.dest != "command"]
        assert not unexplained, parser.prog
