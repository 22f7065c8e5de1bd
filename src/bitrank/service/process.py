"""Running the service: one socket, one worker process, and a parent that starts the worker again when it dies.

The parent holds the socket open meanwhile, so that clients wait a moment instead of being refused.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import uvicorn
from sqlalchemy.exc import SQLAlchemyError

from bitrank.service.app import create_app
from bitrank.service.ranking import Service

SHORT_S = 2.0  # a worker that dies sooner than this after its start
MAX_SHORT = 5  # so many times in a row is not worth another start


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections from now on; port 0 takes any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(1024)
    except OSError as error:
        bound.close()
        raise OSError(f"cannot listen on {host} port {port}: {error.strerror}") from None
    return bound


def serve(bound: socket.socket, make: Callable[[], Service], ready: Callable[[Service], None]) -> int:
    """Serve until told to stop, by SIGTERM or Ctrl-C; returns the exit status.

    Parameters
    ----------
    bound : socket
    make : callable
        Makes the service, in the worker, at every start of one.
    ready : callable
        Called in the first worker when the service is made.
    """
    n_short, first = 0, True
    while True:
        start = time.monotonic()
        status = _run_worker(bound, make, ready if first else lambda _: None)
        first = False
        if status >= 0:
            return status
        n_short = n_short + 1 if time.monotonic() - start < SHORT_S else 0
        name = signal.Signals(-status).name
        if n_short >= MAX_SHORT:
            print(f"bitrank serve: the worker died of {name} {n_short} times in a row: giving up", file=sys.stderr)
            return 1
        print(f"bitrank serve: the worker died of {name}, starting it again", file=sys.stderr, flush=True)


def _run_worker(bound: socket.socket, make: Callable[[], Service], ready: Callable[[Service], None]) -> int:
    """Fork a worker and wait for it; returns its exit status, or minus the signal that killed it."""
    watched, held = os.pipe()
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # none may come between the fork and the handlers
    worker = os.fork()
    if worker == 0:
        os.close(held)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        status = 1
        try:
            status = _work(bound, watched, make, ready)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    os.close(watched)
    stopping = False

    def stop(*_: Any) -> None:
        nonlocal stopping
        stopping = True
        os.kill(worker, signal.SIGTERM)

    before = {number: signal.signal(number, stop) for number in signals}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    try:
        _, wait_status = os.waitpid(worker, 0)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(held)
    status = os.waitstatus_to_exitcode(wait_status)
    return 0 if stopping else status


def _work(bound: socket.socket, watched: int, make: Callable[[], Service], ready: Callable[[Service], None]) -> int:
    def follow_parent() -> None:
        os.read(watched, 1)  # ends when the parent does
        os.kill(os.getpid(), signal.SIGTERM)

    try:
        service = make()
    except (ValueError, OSError, ModuleNotFoundError, SQLAlchemyError) as error:
        print(f"bitrank serve: {error}", file=sys.stderr)
        return 1
    config = uvicorn.Config(
        create_app(service),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # a client could name any address there, and its rate would be another's
        timeout_graceful_shutdown=5,
    )
    threading.Thread(target=follow_parent, name="bitrank-parent", daemon=True).start()
    ready(service)
    uvicorn.Server(config).run(sockets=[bound])
    return 0
