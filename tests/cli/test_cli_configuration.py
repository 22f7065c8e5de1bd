"""Options of `bitrank serve` from command line, environment and a TOML file; the reference table of the docs."""

import argparse
import re
from pathlib import Path

import pytest

from bitrank.cli import make_parser
from bitrank.cli.configuration import complete
from bitrank.cli.serve import DEFAULTS

DOCS = Path(__file__).parents[2] / "docs" / "service.md"


def parser_and_options():
    parser = argparse.ArgumentParser()
    options = [
        parser.add_argument("--port", type=int),
        parser.add_argument("--token-file", type=Path),
        parser.add_argument("--clients", choices=["address", "session"]),
        parser.add_argument("--proxy", action="append", default=[]),
        parser.add_argument("--learn-imported", action="store_true", default=None),
    ]
    return parser, options


def read(monkeypatch, tmp_path, line=(), environment=None, toml=None):
    parser, options = parser_and_options()
    for name, value in (environment or {}).items():
        monkeypatch.setenv(name, value)
    config = None
    if toml is not None:
        config = tmp_path / "serve.toml"
        config.write_text(toml)
    return complete(parser.parse_args(list(line)), options, {"port": 8000, "learn_imported": False}, config)


TOML = 'port = 1\ntoken-file = "a"\nclients = "session"\nproxy = ["10.0.0.0/8"]\nlearn_imported = true\n'
ENVIRONMENT = {
    "BITRANK_SERVE_PORT": "2",
    "BITRANK_SERVE_PROXY": "10.0.0.1, 10.0.0.2",
    "BITRANK_SERVE_LEARN_IMPORTED": "false",
}


def test_the_command_line_comes_before_the_environment_and_that_before_the_file(monkeypatch, tmp_path):
    found = read(monkeypatch, tmp_path)
    assert (found.port, found.token_file, found.clients, found.proxy, found.learn_imported) == (
        8000,
        None,
        None,
        [],
        False,
    )
    found = read(monkeypatch, tmp_path, toml=TOML)
    assert (found.port, found.token_file, found.clients) == (1, Path("a"), "session")
    assert (found.proxy, found.learn_imported) == (["10.0.0.0/8"], True)
    found = read(monkeypatch, tmp_path, environment=ENVIRONMENT, toml=TOML)
    assert (found.port, found.proxy, found.learn_imported) == (2, ["10.0.0.1", "10.0.0.2"], False)
    assert (found.token_file, found.clients) == (Path("a"), "session")
    line = ["--port", "3", "--proxy", "10.9.9.9", "--learn-imported"]
    found = read(monkeypatch, tmp_path, line, ENVIRONMENT, TOML)
    assert (found.port, found.proxy, found.learn_imported) == (3, ["10.9.9.9"], True)


@pytest.mark.parametrize(
    ("environment", "toml", "message"),
    [
        ({}, "prot = 1", r"serve\.toml must hold options of this command, got 'prot'"),
        ({}, "port = ", "must be TOML"),
        ({}, 'port = "x"', "port of .* must be a value of --port, got 'x'"),
        ({}, "port = true", "must be no boolean, got True"),
        ({}, "port = [1]", "must be one value"),
        ({}, 'proxy = "10.0.0.1"', "must be a list"),
        ({}, "learn-imported = 1", "must be true or false, got 1"),
        ({}, 'clients = "cookie"', "must be one of address, session, got 'cookie'"),
        ({"BITRANK_SERVE_PORT": "x"}, None, "BITRANK_SERVE_PORT must be a value of --port, got 'x'"),
        (
            {"BITRANK_SERVE_LEARN_IMPORTED": "maybe"},
            None,
            "LEARN_IMPORTED must be true or false, got 'maybe'",
        ),
    ],
)
def test_mistakes_are_named(monkeypatch, tmp_path, environment, toml, message):
    with pytest.raises(ValueError, match=message):
        read(monkeypatch, tmp_path, (), environment, toml)


def test_the_reference_table_lists_every_option_with_its_default():
    commands = next(action for action in make_parser()._actions if isinstance(action, argparse._SubParsersAction))
    actions = commands.choices["serve"]._actions
    options = {action.option_strings[-1] for action in actions if action.option_strings} - {"--help"}
    text = DOCS.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(--[a-z-]+)[^`]*`[^|]* \| `([A-Z_]+)` \|", text, re.M))
    assert set(rows) == options
    for option, variable in rows.items():
        assert variable == f"BITRANK_SERVE_{option[2:].replace('-', '_').upper()}"
    for name, value in DEFAULTS.items():
        option = "--" + name.replace("_", "-")
        (line,) = [line for line in text.splitlines() if line.startswith(f"| `{option}") and "BITRANK_" in line]
        shown = {False: "no"}.get(value, f"{value:g}" if isinstance(value, float) else str(value))
        assert line.split("|")[3].strip() == shown, line
