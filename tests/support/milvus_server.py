"""A real Milvus from the wheel `milvus`, for the job that is run on demand: `make test-milvus`.

Its ports listen on every address, so it only starts inside a network namespace of its own.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

ON_DEMAND = "BITRANK_TEST_MILVUS"
# The wheel's own way to start takes other ports when those of a killed server are not free at once, so it only unpacks.
PREPARE = """
import sys, milvus
milvus.MilvusServerConfig(data_dir=sys.argv[1]).resolve()
milvus._initialize_data_files(sys.argv[1])
"""


class Milvus:
    """A server in a process of its own, that can be killed and started again on the same data."""

    url = "milvus://127.0.0.1:19530"

    def __init__(self, folder):
        self.folder = folder
        self.process = None

    def start(self):
        if [name for _, name in socket.if_nameindex()] != ["lo"]:
            raise RuntimeError("Milvus listens on every address: it must run in a network namespace of its own")
        if not (self.folder / "bin").exists():
            subprocess.run([sys.executable, "-c", PREPARE, self.folder], check=True, capture_output=True)
        own = {
            "DEPLOY_MODE": "STANDALONE",
            "METRICS_PORT": "9091",
            "MILVUS_RUN_DIR": str(self.folder / "run"),
            "LD_LIBRARY_PATH": str(self.folder / "bin"),
        }
        self.process = subprocess.Popen(
            [self.folder / "bin" / "milvus", "run", "standalone"],
            cwd=self.folder,
            env={**os.environ, **own},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(600):
            try:
                with urllib.request.urlopen("http://127.0.0.1:9091/healthz", timeout=5) as answer:
                    if b"OK" in answer.read():
                        return self
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                pass
            time.sleep(0.2)
        self.kill()
        raise RuntimeError(f"Milvus did not start: see {self.folder}")

    def kill(self):
        if self.process is not None:
            self.process.kill()
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
