"""A real Milvus from the wheel `milvus`, for the job that is run on demand: `make test-milvus`.

Its ports listen on every address, so it only starts inside a network namespace of its own.
"""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ON_DEMAND = "BITRANK_TEST_MILVUS"


class Milvus:
    """A server in processes of its own, that can be killed and started again on the same data."""

    url = "milvus://127.0.0.1:19530"

    def __init__(self, folder):
        self.folder = folder
        self.process = None

    def start(self):
        if [name for _, name in socket.if_nameindex()] != ["lo"]:
            raise RuntimeError("Milvus listens on every address: it must run in a network namespace of its own")
        command = [Path(sys.executable).with_name("milvus-server"), "--data", self.folder]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, start_new_session=True, **quiet)
        for _ in range(600):
            try:
                with urllib.request.urlopen("http://127.0.0.1:9091/healthz", timeout=5) as answer:
                    if b"OK" in answer.read():
                        return self
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                pass
            time.sleep(0.2)
        self.kill()
        raise RuntimeError(f"Milvus did not start: see {self.folder}/logs")

    def kill(self):
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture(scope="session")
def milvus(tmp_path_factory):
    """One server for every test of Milvus, since its ports are always the same."""
    server = Milvus(tmp_path_factory.mktemp("milvus")).start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def milvus_address(milvus):
    return milvus.url
