"""Real servers for the tests of the service: on a thread of this process, or as the command `bitrank serve`."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import numpy as np
import uvicorn
from threads import wait_until

from bitrank import Index
from bitrank.service import process
from bitrank.service.service import Service
from bitrank.service.settings import Settings

CODES = np.random.default_rng(0).integers(0, 256, (500, 4), dtype=np.uint8)


def save_codes(folder):
    """Save an index of `CODES` in a folder."""
    Index(CODES).save(folder / "codes.index")
    return folder / "codes.index"


@contextlib.contextmanager
def serving(source, folder=None, *, url=None, ranker=None, **settings):
    """Run a service on a thread, over a database in a folder or at a URL, and yield a client of it."""
    url = url or f"sqlite:///{folder / 'bitrank.db'}"
    service = Service(source, url, Settings(**{"rate": 0, **settings}), ranker)
    bound = process.listen("127.0.0.1", 0)
    server = uvicorn.Server(process.server_config(service, graceful_s=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    address = f"http://127.0.0.1:{bound.getsockname()[1]}"
    try:
        with httpx.Client(base_url=address, timeout=120) as client:
            client.service, client.address, client.server = service, address, server
            yield client
    finally:
        server.should_exit = True
        thread.join()
        bound.close()


def one_off_client(**options):
    """Make a client that opens a connection per request: none is left over from a service that was killed."""
    return httpx.Client(limits=httpx.Limits(max_keepalive_connections=0), **options)


class Command:
    """A `bitrank serve`, as a user starts it."""

    def __init__(self, *arguments, environment=None, wrapper=(), preexec_fn=None):
        self.process = subprocess.Popen(
            [*wrapper, str(Path(sys.executable).parent / "bitrank"), "serve", "--port", "0", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
            preexec_fn=preexec_fn,
        )
        self.address = None
        line = self.process.stdout.readline()
        if " at http://" in line:
            self.address = line.rpartition(" at ")[2].strip().rstrip("/")

    def _children(self, name):
        """Return the process ids of all children of a name."""
        found = []
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
            for pid in map(int, children.read_text().split()):
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                        found.append(pid)
        return found

    def workers(self):
        """Return the process ids of all workers."""
        return self._children("bitrank-worker")

    def worker(self):
        """Return the process id of the first worker, None between two."""
        return next(iter(self.workers()), None)

    def learners(self):
        """Return the process ids of all learners: one, or none between two."""
        return self._children("bitrank-learner")

    def stop(self, number=signal.SIGTERM):
        """Send a signal and wait; returns the exit status and what was printed to standard error."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=120)
        return self.process.returncode, errors

    def is_healthy(self):
        """Whether the service answers."""
        with contextlib.suppress(httpx.HTTPError), one_off_client(timeout=5) as client:
            return client.get(f"{self.address}/healthz").status_code == 200
        return False

    def wait_until_healthy(self):
        """Wait until the service answers."""
        wait_until(self.is_healthy)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop(signal.SIGKILL if self.process.poll() is None else signal.SIGTERM)
