"""The operator's choices: `Settings`, the addresses that need a token, and the place of the database."""

from __future__ import annotations

import fcntl
import hashlib
import ipaddress
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bitrank.index.reading import check_recall

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TOKEN_LIFETIME_S = 24 * 3600  # of the token of a page
_MIN_TOKEN = 16


class Retention(NamedTuple):
    """How much of the log of a profile is kept; 0 is no limit."""

    pages: int = 1_000_000
    days: float = 0.0
    bytes: int = 2**31
    client_pages: int = 20_000


@dataclass(frozen=True)
class Settings:
    """Settings of a service, checked.

    Examples
    --------
    >>> Settings(explore=-1)
    Traceback (most recent call last):
    ValueError: explore must be at least 0, got -1
    """

    page_size: int = 20
    explore: int = 4
    rate: float = 500.0
    token: str | None = None  # for searches and feedback; for all where there is no admin token
    admin_token: str | None = None  # for all
    image_origins: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()  # addresses or networks whose X-Forwarded-For is believed
    sessions: bool = False  # clients are told apart by a signed cookie, not by address
    access_log: str | None = None  # a file, or "-"
    learn_imported: bool = False
    canary: float = 0.05  # share of the pages of a version learned from clicks that Hamming distance ranks instead
    auto_rollback: bool = True
    recall: float | None = None  # share of the exact results to find; None reads all
    min_clients: int = 1  # nothing is decided by clicks of fewer
    retention: Retention = field(default_factory=Retention)
    random_state: int | None = None

    def __post_init__(self) -> None:
        for name in ("explore", "rate", "canary"):
            value = getattr(self, name)
            if not value >= 0:
                raise ValueError(f"{name} must be at least 0, got {value}")
        for name, limit in self.retention._asdict().items():
            if not limit >= 0:
                raise ValueError(f"keep_{name} must be at least 0, got {limit}")
        if self.explore > self.page_size:
            raise ValueError(f"explore must be at most {self.page_size}, the places of a page, got {self.explore}")
        check_recall(self.recall)
        if self.min_clients < 1:
            raise ValueError(f"min_clients must be at least 1, got {self.min_clients}")
        if not self.canary <= 1:
            raise ValueError(f"canary must be from 0 to 1, got {self.canary}")
        for token in (self.token, self.admin_token):
            if token is not None and (len(token) < _MIN_TOKEN or not re.fullmatch("[!-~]*", token)):
                raise ValueError(
                    f"a token must be at least {_MIN_TOKEN} printable ASCII characters without spaces; make one by "
                    "`openssl rand -hex 16`"
                )
        if self.token is not None and self.token == self.admin_token:
            raise ValueError("the admin token must differ from the other token, got the same")
        for proxy in self.proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError:
                raise ValueError(f"a proxy must be an address or a network like 10.0.0.0/8, got {proxy!r}") from None
        for origin in self.image_origins:
            scheme, _, host = origin.partition("://")
            if scheme not in ("http", "https") or not host or not all(c.isalnum() or c in ".-:*" for c in host):
                raise ValueError(f"an image origin must be like https://images.example.org, got {origin!r}")


def check_host(host: str, settings: Settings) -> None:
    """Check that a service which others can reach has a token."""
    if settings.token is None and settings.admin_token is None and host not in LOOPBACK:
        raise ValueError(f"host must be one of {', '.join(LOOPBACK)} without a token, got {host}")


def default_folder(index: Path | None) -> Path:
    """Name the folder of the database in the user's data folder: one per index, or that of the embedded digits."""
    home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    if index is None:
        return home / "bitrank" / "digits"
    # Two indexes of the same name in different folders must not share clicks.
    digest = hashlib.sha256(str(index.resolve()).encode()).hexdigest()[:8]
    return home / "bitrank" / f"{index.stem}-{digest}"


def sqlite_url(folder: Path) -> str:
    """Create a folder that only its owner can read, and return the URL of the database in it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return f"sqlite:///{folder.resolve() / 'bitrank.db'}"


@contextmanager
def claim(folder: Path) -> Iterator[None]:
    """Keep other services from the database in a folder, until the last process of this one has ended."""
    with open(folder / "bitrank.lock", "a") as file:
        end = time.monotonic() + 5  # the workers of a parent that was killed end within a moment
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise ValueError(f"the folder must be of one service at a time, got {folder}, in use") from None
                time.sleep(0.05)
        yield
