"""Settings of a service, the hosts that need a token, and the place of the database."""

from pathlib import Path

import pytest

from bitrank.service.settings import LOOPBACK, Settings, check_host, default_folder, sqlite_url

TOKEN = "0123456789abcdef"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"explore": -1}, "explore must be at least 0, got -1"),
        ({"explore": 21}, "explore must be at most 20, the places of a page, got 21"),
        ({"rate": -0.5}, "rate must be at least 0, got -0.5"),
        ({"rate": float("nan")}, "rate must be at least 0, got nan"),
        ({"image_origins": ("https://a.example", "javascript:x")}, "an image origin must be like https://.*javascript"),
        ({"image_origins": ("https://a.example; script-src *",)}, "an image origin must be like"),
        ({"proxies": ("nonsense",)}, "a proxy must be an address or a network like 10.0.0.0/8, got 'nonsense'"),
        ({"token": TOKEN, "admin_token": TOKEN}, "must differ from the other token"),
        ({"image_origins": ("https://",)}, "an image origin must be like"),
    ],
)
def test_bad_settings(change, message):
    with pytest.raises(ValueError, match=message):
        Settings(**change)


@pytest.mark.parametrize("token", ["short", "x" * 15, "", "naïve-token-of-some-length", "a new\nline in a token"])
def test_bad_tokens_are_not_repeated(token):
    with pytest.raises(ValueError, match="at least 16 printable ASCII characters") as error:
        Settings(token=token)
    assert not token or token not in str(error.value)


def test_good_settings():
    settings = Settings(
        explore=0, rate=0, token=TOKEN, image_origins=("https://*.example.org", "http://localhost:9000")
    )
    assert settings.token == TOKEN


def test_hosts_that_need_a_token():
    for host in LOOPBACK:
        check_host(host, Settings())
    check_host("0.0.0.0", Settings(token=TOKEN))
    check_host("0.0.0.0", Settings(admin_token=TOKEN))
    for host in ("0.0.0.0", "127.0.0.2", "192.0.2.1", "::"):
        with pytest.raises(ValueError, match=f"without a token, got {host}"):
            check_host(host, Settings())


def test_indexes_of_one_name_have_a_folder_each(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    folders = {default_folder(path) for path in (None, Path("a/codes.index"), Path("b/codes.index"))}
    assert len(folders) == 3
    assert all(folder.parent == tmp_path / "bitrank" for folder in folders)
    assert default_folder(Path("a/codes.index")) == default_folder(tmp_path / "a" / "codes.index")
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert default_folder(None) == tmp_path / "home" / ".local" / "share" / "bitrank" / "digits"


def test_the_folder_is_private(tmp_path):
    url = sqlite_url(tmp_path / "deep" / "folder")
    assert url == f"sqlite:///{tmp_path / 'deep' / 'folder' / 'bitrank.db'}"
    assert (tmp_path / "deep" / "folder").stat().st_mode & 0o777 == 0o700
