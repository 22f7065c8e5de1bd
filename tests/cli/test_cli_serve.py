"""The command `bitrank serve`."""

import sys

import httpx
import pytest
from serving import Command

from bitrank.cli import main

TOKEN = "0123456789abcdef0123"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--items", "items.parquet"],
            "--items, --hasher and --image-features go with a collection or --engine",
        ),
        (["--explore", "-1"], "explore must be at least 0, got -1"),
        (["--engine", "duckdb://"], "--engine needs --data or --db"),
        (["--engine", "duckdb://", "--index", "x"], "a collection or --engine, not both"),
        (["--table", "shop"], "--table, --method and --candidates go with --engine"),
        (["--index", "x", "--candidates", "5"], "--table, --method and --candidates go with --engine"),
        (["--workers", "0"], "workers must be from 1 to 256, got 0"),
        (["--engine", "duckdb:///x", "--data", "d", "--workers", "2"], "workers must be 1 with duckdb://.* got 2"),
        (["--engine", "chdb:///x", "--data", "d", "--workers", "3"], "workers must be 1 with chdb://.* got 3"),
        (["--port", "99999"], "port must be from 0 to 65535, got 99999"),
        (["--port", "-1"], "port must be from 0 to 65535, got -1"),
        (["--image-origin", "javascript:x"], "an image origin must be like https://"),
        (["--db", "sqlite://", "--data", "x"], "--data or --db, not both"),
        (["--host", "192.0.2.1"], "without a token, got 192.0.2.1"),
        (["--host", "192.0.2.1", "--token-file", "absent.txt"], "No such file"),
        (["--token-file", "short.txt"], "at least 16 printable ASCII characters"),
        (["--token-file", "binary"], "at least 16 printable ASCII characters"),
        (["--config", "binary"], "binary must be TOML"),
        (["--workers", "1000000"], "workers must be from 1 to 256, got 1000000"),
    ],
)
def test_mistakes_end_with_a_message(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BITRANK_TOKEN", raising=False)
    (tmp_path / "short.txt").write_text("short\n")
    (tmp_path / "binary").write_bytes(b"\xff" * 20)
    with pytest.raises(SystemExit, match=message):
        main(["serve", "--port", "0", *arguments])


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "bitrank.service.process", raising=False)
    with pytest.raises(SystemExit, match=r"this needs uvicorn: pip install 'bitrank\[service\]'"):
        main(["serve", "--port", "0"])


def test_the_environment_names_a_token(monkeypatch):
    monkeypatch.setenv("BITRANK_TOKEN", "short")
    with pytest.raises(SystemExit, match="at least 16 printable ASCII characters"):
        main(["serve", "--port", "0"])


def test_the_digits_are_served_with_a_token(tmp_path):
    (tmp_path / "token").write_text(TOKEN + "\n")
    # The folder of data sets, which an environment may name as well, is not that of the service.
    home = {"XDG_DATA_HOME": str(tmp_path / "home"), "BITRANK_DATA": str(tmp_path / "sets")}
    # A loopback address too, but not one of those that need no token.
    with Command("--host", "127.0.0.2", "--token-file", tmp_path / "token", environment=home) as command:
        address = command.address
        assert httpx.get(f"{address}/collection").status_code == 401
        found = httpx.get(f"{address}/collection", headers={"authorization": f"Bearer {TOKEN}"}).json()
        assert (found["name"], found["n_items"]) == ("digits", 10_000)
        status, errors = command.stop()
    assert (status, errors) == (0, "")
    assert (tmp_path / "home" / "bitrank" / "digits" / "bitrank.db").exists()


@pytest.mark.parametrize(
    ("option", "message"), [("--index", "collection.json is missing"), ("--access-log", "No such file or directory")]
)
def test_a_missing_index_or_folder_is_named(tmp_path, option, message):
    with Command(option, tmp_path / "absent" / "file", "--data", tmp_path / "data") as command:
        assert command.address is None
        status, errors = command.stop()
    assert status == 1
    assert message in errors
    assert "Traceback" not in errors
